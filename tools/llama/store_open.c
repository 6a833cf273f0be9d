// SPDX-License-Identifier: MIT
/*
 * The pool that a store is on: opened where there is one of that name, else
 * made, with its swap area; and what follows from its blocks' size.
 */
#include "store_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

#define WASTE_SHARE	8	/* at most an eighth of a range's blocks is empty */
#define MIN_FRAMES	4

const struct store_info *store_info(const struct store *st)
{
	return &st->info;
}

/* The smallest number of large blocks that leaves little of them empty. */
static unsigned int choose_block_size(size_t bytes)
{
	unsigned int size = 2 << 20;

	for (; size > KVMM_MIN_BLOCK_SIZE; size /= 2) {
		size_t room = (bytes + size - 1) / size * size;

		if ((room - bytes) * WASTE_SHARE <= room)
			break;
	}
	return size;
}

static int attach(struct store *st, const struct store_opts *o, char *why,
		  size_t len)
{
	struct kvmm_swap_opts so = {
		.size = sizeof(so),
		.flags = KVMM_SWAP_CREATE,
		.path = o->swap,
	};
	const char *dir = getenv("TMPDIR");
	char path[4096];
	long r;

	if (!o->swap) {
		snprintf(path, sizeof(path), "%s/kvmm-llama.%ld",
			 dir && *dir ? dir : "/var/tmp", (long)getpid());
		so.path = path;
		so.flags |= KVMM_SWAP_UNLINK;
	}
	r = kvmm_swap_attach(st->pool, &so);
	if (r == -EEXIST && o->swap) {	/* not a regular file: a block device */
		so.flags = 0;
		r = kvmm_swap_attach(st->pool, &so);
	}
	if (r >= 0)
		return 0;
	snprintf(why, len, "can't use %s as a swap area: %s", so.path,
		 strerror((int)-r));
	return (int)r;
}

/*
 * Close the pool, and destroy it if nobody else uses it: ours, not one that has
 * the name now because someone has destroyed ours.
 */
static void unmake_pool(struct store *st, const char *name)
{
	struct kvmm_pool_stat stat;
	bool gone = kvmm_pool_stat(st->pool, &stat) == -ENODEV;

	kvmm_pool_close(st->pool);
	st->pool = NULL;
	if (!gone)
		kvmm_pool_destroy(st->kv, name, 0);
}

static int make_pool(struct store *st, const struct store_opts *o, char *why,
		     size_t len)
{
	struct kvmm_pool_opts po = {
		.size = sizeof(po),
		.name = o->pool,
		.block_size = st->info.block_size,
		.nr_frames = (unsigned int)(o->memory / st->info.block_size),
		.nr_slots = (unsigned int)(o->disk / st->info.block_size),
	};
	int err;

	if (po.nr_frames < MIN_FRAMES * st->info.pieces) {
		snprintf(why, len, "%u blocks of %u bytes are too little memory: %u tokens take %u of them",
			 po.nr_frames, po.block_size, st->tokens,
			 st->info.pieces);
		return -EINVAL;
	}
	err = kvmm_pool_create(st->kv, &po, &st->pool);
	if (err) {
		snprintf(why, len, "can't make pool %s with %u blocks of %u bytes: %s",
			 o->pool, po.nr_frames, po.block_size, strerror(-err));
		return err;
	}
	err = po.nr_slots ? attach(st, o, why, len) : 0;
	if (err)
		unmake_pool(st, o->pool);
	return err;
}

static int open_pool(struct store *st, const struct store_opts *o, char *why,
		     size_t len)
{
	int err = kvmm_pool_open(st->kv, o->pool, 0, &st->pool);

	if (err == -ENOENT)
		return make_pool(st, o, why, len);
	if (err) {
		snprintf(why, len, "can't open pool %s: %s", o->pool,
			 strerror(-err));
		return err;
	}
	st->info.found = true;
	st->info.block_size = (unsigned int)kvmm_pool_block_size(st->pool);
	return 0;
}

static int open_library(struct store *st, const struct store_opts *o, char *why,
			size_t len)
{
	struct kvmm_open_opts oo = {
		.size = sizeof(oo),
		.backend = o->backend,
		.device = o->device,
		.log = o->log,
	};
	int err = kvmm_open(&st->kv, &oo);

	if (err) {
		snprintf(why, len, "can't open kvmm (%s): %s",
			 o->backend == KVMM_BACKEND_KERNEL ?
			 (o->device ? o->device : "/dev/kvmm") :
			 "user backend", err == -EPROTO ?
			 "not kvmm, or another version of its interface" :
			 strerror(-err));
		return err;
	}
	st->info.backend = kvmm_backend_name(st->kv);
	st->info.io = kvmm_io_name(st->kv);
	return 0;
}

static int make_keyer(struct store *st, const struct store_opts *o,
		      const struct engine_info *engine)
{
	const struct iovec domain[] = {
		{ (void *)"kvmm-llama", 10 },
		{ (void *)o->model_hash, STORE_HASH_LEN },
		{ (void *)engine->build, strlen(engine->build) },
		{ &st->tokens, sizeof(st->tokens) },
		{ &st->bytes, sizeof(st->bytes) },
		{ &st->info.block_size, sizeof(st->info.block_size) },
	};
	const struct kvmm_key_opts ko = {
		.size = sizeof(ko),
		.domain = domain,
		.nr_domain = ARRAY_SIZE(domain),
		.salt = o->tenant,
		.salt_len = o->tenant ? strlen(o->tenant) : 0,
	};

	return kvmm_keyer_new(&st->keyer, &ko);
}

static int make_room(struct store *st)
{
	struct kvmm_pool_stat stat;
	unsigned int p = st->info.pieces;
	int err = kvmm_pool_stat(st->pool, &stat);

	if (err)
		return err;
	/* leave most of the frames to others */
	st->window = (unsigned int)(stat.nr_frames / MIN_FRAMES / p);
	if (!st->window)
		st->window = 1;
	if (st->window > STORE_WINDOW)
		st->window = STORE_WINDOW;
	st->range = malloc(st->bytes);
	st->piece_keys = malloc((size_t)st->window * p * KVMM_KEY_LEN);
	st->refs = calloc((size_t)st->window * p, sizeof(*st->refs));
	st->away = calloc((size_t)st->window * p, sizeof(*st->away));
	st->entries = calloc(p, sizeof(*st->entries));
	return st->range && st->piece_keys && st->refs && st->away &&
	       st->entries ? 0 : -ENOMEM;
}

static int start(struct store *st, const struct store_opts *o,
		 const struct engine_info *engine, char *why, size_t len)
{
	int err;

	st->tokens = engine->block_tokens;
	st->bytes = engine->range_bytes;
	st->info.block_size = o->block_size ? (unsigned int)o->block_size :
					      choose_block_size(st->bytes);
	snprintf(st->name, sizeof(st->name), "%s", o->pool);
	st->info.pieces = (unsigned int)((st->bytes + st->info.block_size - 1) /
					 st->info.block_size);
	err = open_library(st, o, why, len);
	if (!err)
		err = open_pool(st, o, why, len);
	if (err)
		return err;
	st->info.pieces = (unsigned int)((st->bytes + st->info.block_size - 1) /
					 st->info.block_size);
	if (st->info.pieces > KVMM_MAX_BATCH) {
		snprintf(why, len, "%u tokens take %u blocks of %u bytes, the most is %d",
			 st->tokens, st->info.pieces, st->info.block_size,
			 KVMM_MAX_BATCH);
		return -EINVAL;
	}
	err = make_keyer(st, o, engine);
	if (!err)
		err = make_room(st);
	if (err)
		snprintf(why, len, "can't use the pool: %s", strerror(-err));
	return err;
}

int store_open(struct store **out, const struct store_opts *opts,
	       const struct engine_info *engine, char *why, size_t len)
{
	struct store *st = calloc(1, sizeof(*st));
	int err;

	if (!st) {
		snprintf(why, len, "out of memory");
		return -ENOMEM;
	}
	err = start(st, opts, engine, why, len);
	if (err) {
		store_close(st, st->pool && !st->info.found);
		return err;
	}
	*out = st;
	return 0;
}

void store_close(struct store *st, bool destroy)
{
	if (!st)
		return;
	if (destroy)
		unmake_pool(st, st->name);
	else
		kvmm_pool_close(st->pool);
	kvmm_close(st->kv);
	kvmm_keyer_free(st->keyer);
	free(st->range);
	free(st->keys);
	free(st->piece_keys);
	free(st->refs);
	free(st->away);
	free(st->entries);
	free(st);
}
