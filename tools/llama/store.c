// SPDX-License-Identifier: MIT
/*
 * State <-> blocks, over libkvmm.  See store.h for what a range, a piece and a
 * key are.
 *
 * Restoring goes in windows, so that a prompt may be longer than the memory of
 * the pool: look up and pin what is in memory, bring the rest in, hand each
 * range to the engine, unpin.
 */
#include "store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

#define WAIT_MS		1000	/* for a frame that is being written out */
#define WINDOW_RANGES	32	/* most ranges at once */
#define WASTE_SHARE	8	/* at most an eighth of a range's blocks is empty */
#define MIN_FRAMES	4

/**
 * struct store - an open pool
 * @info: for others
 * @kv: the library
 * @pool: the pool
 * @name: its name
 * @keyer: makes keys
 * @tokens: of a range
 * @bytes: of a range's state
 * @window: ranges at once
 * @range: one range's state
 * @keys: of ranges, grows
 * @max_keys: room there
 * @piece_keys: of a window's pieces
 * @refs: a window's pieces
 * @away: those of them that are not in memory
 * @entries: a range's pieces, to be published
 */
struct store {
	struct store_info info;
	struct kvmm *kv;
	struct kvmm_pool *pool;
	char name[KVMM_NAME_LEN];
	struct kvmm_keyer *keyer;
	unsigned int tokens;
	size_t bytes;
	unsigned int window;
	char *range;
	uint8_t *keys;
	size_t max_keys;
	uint8_t *piece_keys;
	struct kvmm_block_ref *refs;
	struct kvmm_block_ref *away;
	struct kvmm_publish_entry *entries;
};

const struct store_info *store_info(const struct store *st)
{
	return &st->info;
}

/* Bytes of piece @i: only the last one is shorter. */
static size_t piece_len(const struct store *st, unsigned int i)
{
	if (i + 1 < st->info.pieces)
		return st->info.block_size;
	return st->bytes - (size_t)i * st->info.block_size;
}

/* Keys of the first @nr ranges, at st->keys. */
static int range_keys(struct store *st, const uint32_t *tokens, unsigned int nr)
{
	long n;

	if (nr > st->max_keys) {
		uint8_t *more = realloc(st->keys, (size_t)nr * KVMM_KEY_LEN);

		if (!more)
			return -ENOMEM;
		st->keys = more;
		st->max_keys = nr;
	}
	n = kvmm_key_chain(st->keyer, NULL, tokens, (size_t)nr * st->tokens,
			   st->tokens, NULL, st->keys);
	return n < 0 ? (int)n : 0;
}

/* Keys of the pieces of @nr ranges from @first on, at st->piece_keys. */
static int piece_keys(struct store *st, unsigned int first, unsigned int nr)
{
	uint8_t *key = st->piece_keys;

	for (unsigned int r = first; r < first + nr; r++) {
		for (unsigned int i = 0; i < st->info.pieces; i++) {
			int err = kvmm_key_wrap(st->keyer, i,
						st->keys +
						(size_t)r * KVMM_KEY_LEN,
						KVMM_KEY_LEN, key);

			if (err)
				return err;
			key += KVMM_KEY_LEN;
		}
	}
	return 0;
}

/*
 * Bring in what of the first @n of st->refs is in the area.  Each entry whose
 * result is KVMM_MEMORY afterwards is pinned; what can't be brought in is a
 * miss, whatever the reason.
 */
static void bring_in(struct store *st, unsigned int n)
{
	unsigned int nr = 0, i, a;
	long r;

	for (i = 0; i < n; i++)
		if (st->refs[i].result == KVMM_SWAP)
			st->away[nr++] = st->refs[i];
	if (!nr)
		return;
	r = kvmm_swap_in(st->pool, st->away, nr, KVMM_SWAP_PIN);
	for (i = 0, a = 0; i < n; i++) {
		if (st->refs[i].result != KVMM_SWAP)
			continue;
		if (r >= 0 && st->away[a].result >= 0) {
			st->refs[i] = st->away[a];
			st->refs[i].result = KVMM_MEMORY;
		} else {
			st->refs[i].result = KVMM_MISS;
		}
		a++;
	}
}

/* One that is being read back counts as one that is in the area. */
static void settle_pending(struct store *st, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		struct kvmm_block_ref *ref = &st->refs[i];

		if (ref->result != KVMM_PENDING)
			continue;
		/* the lookup's pin would be one too many after the swap-in's */
		kvmm_unpin(st->pool, ref, 1);
		ref->result = KVMM_SWAP;
	}
}

static void unpin_all(struct store *st, unsigned int n)
{
	unsigned int nr = 0;

	for (unsigned int i = 0; i < n; i++)
		if (st->refs[i].result == KVMM_MEMORY)
			st->refs[nr++] = st->refs[i];
	if (nr)
		kvmm_unpin(st->pool, st->refs, nr);
}

/* Hand a range, all of whose pieces are pinned, to the engine. */
static int load_range(struct store *st, struct engine *e, unsigned int slot,
		      unsigned int range, struct kvmm_block_ref *refs)
{
	for (unsigned int i = 0; i < st->info.pieces; i++)
		memcpy(st->range + (size_t)i * st->info.block_size,
		       kvmm_addr(st->pool, &refs[i]), piece_len(st, i));
	return engine_load(e, slot, range * st->tokens, st->range);
}

/* Are all pieces of a range in memory? */
static bool complete(const struct store *st, const struct kvmm_block_ref *refs)
{
	for (unsigned int i = 0; i < st->info.pieces; i++)
		if (refs[i].result != KVMM_MEMORY)
			return false;
	return true;
}

/* Ranges appended, of @nr from @first on; fewer where one is missing. */
static long restore_window(struct store *st, struct engine *e,
			   unsigned int slot, unsigned int first,
			   unsigned int nr, struct store_found *found)
{
	unsigned int p = st->info.pieces, n = nr * p, i, done = 0;
	bool disk[WINDOW_RANGES] = { false };
	long prefix, whole;
	int err = piece_keys(st, first, nr);

	if (err)
		return err;
	prefix = kvmm_lookup(st->pool, st->piece_keys, st->refs, n,
			     KVMM_LOOKUP_PIN | KVMM_LOOKUP_PREFIX);
	if (prefix < 0)
		return prefix;
	settle_pending(st, n);
	whole = prefix / p;
	for (i = 0; i < whole * p; i++)
		if (st->refs[i].result == KVMM_SWAP)
			disk[i / p] = true;
	bring_in(st, (unsigned int)whole * p);
	for (; done < whole && !err; done++) {
		struct kvmm_block_ref *refs = &st->refs[done * p];

		if (!complete(st, refs))
			break;
		err = load_range(st, e, slot, first + done, refs);
		if (err)
			break;
		found->memory += !disk[done];
		found->disk += disk[done];
	}
	if (err == -EBADMSG) {
		/* right bytes, but no use: another engine's, for all we know */
		found->refused++;
		memcpy(st->away, &st->refs[done * p], p * sizeof(st->away[0]));
		unpin_all(st, n);
		kvmm_drop(st->pool, st->away, p);
		return done;
	}
	unpin_all(st, n);
	return err ? err : (long)done;
}

long store_restore(struct store *st, struct engine *e, unsigned int slot,
		   const uint32_t *tokens, unsigned int first, unsigned int end,
		   struct store_found *found)
{
	unsigned int at = first;
	int err = range_keys(st, tokens, end);

	if (err)
		return err;
	while (at < end) {
		unsigned int nr = end - at;
		long n;

		if (nr > st->window)
			nr = st->window;
		n = restore_window(st, e, slot, at, nr, found);
		if (n < 0)
			return n;
		at += (unsigned int)n;
		if (n < nr)
			break;
	}
	return at - first;
}

/* Blocks for the pieces of a range; fewer than all: none. */
static int alloc_pieces(struct store *st, struct kvmm_block_ref *refs)
{
	unsigned int p = st->info.pieces;
	long n = kvmm_alloc(st->pool, refs, p, 1, WAIT_MS);

	if (n == p)
		return 0;
	/* a block that is being filled is freed with its last pin */
	if (n > 0)
		kvmm_unpin(st->pool, refs, (unsigned int)n);
	return n < 0 ? (int)n : -ENOSPC;
}

/* Save one range; @parent: the piece before its first one, set to its last. */
static int save_range(struct store *st, struct engine *e, unsigned int slot,
		      unsigned int range, uint64_t *parent,
		      unsigned int cost_us)
{
	struct kvmm_publish_entry *entries = st->entries;
	unsigned int p = st->info.pieces, i;
	long n;
	int err = engine_save(e, slot, range * st->tokens, st->range);

	if (!err)
		err = alloc_pieces(st, st->refs);
	if (!err)
		err = piece_keys(st, range, 1);
	if (err)
		return err;
	memset(entries, 0, p * sizeof(entries[0]));
	for (i = 0; i < p; i++) {
		memcpy(kvmm_addr(st->pool, &st->refs[i]),
		       st->range + (size_t)i * st->info.block_size,
		       piece_len(st, i));
		memcpy(entries[i].key, st->piece_keys + i * KVMM_KEY_LEN,
		       KVMM_KEY_LEN);
		entries[i].handle = st->refs[i].handle;
		entries[i].parent = i ? st->refs[i - 1].handle : *parent;
		entries[i].position = range * p + i;
		entries[i].length = (unsigned int)piece_len(st, i);
		entries[i].cost_us = cost_us / p;
	}
	n = kvmm_publish(st->pool, entries, p, 0);
	if (n < 0)
		return (int)n;
	for (i = 0; i < p; i++)
		if (entries[i].result && entries[i].result != -EEXIST)
			return entries[i].result;
	*parent = entries[p - 1].existing ? entries[p - 1].existing :
					    entries[p - 1].handle;
	return 0;
}

long store_save(struct store *st, struct engine *e, unsigned int slot,
		const uint32_t *tokens, unsigned int nr, unsigned int cost_us)
{
	unsigned int p = st->info.pieces, at, n, i;
	uint64_t parent = 0;
	long saved = 0;
	int err = range_keys(st, tokens, nr);

	for (at = 0; at < nr && !err; at += n) {
		bool there[WINDOW_RANGES];
		uint64_t last[WINDOW_RANGES];
		long found;

		n = nr - at < st->window ? nr - at : st->window;
		err = piece_keys(st, at, n);
		if (err)
			break;
		found = kvmm_lookup(st->pool, st->piece_keys, st->refs, n * p,
				    0);
		if (found < 0)
			return found;
		for (i = 0; i < n; i++) {
			there[i] = true;
			for (unsigned int k = 0; k < p; k++)
				there[i] &= st->refs[i * p + k].result !=
					    KVMM_MISS;
			last[i] = st->refs[i * p + p - 1].handle;
		}
		for (i = 0; i < n && !err; i++) {
			if (there[i]) {
				parent = last[i];
				continue;
			}
			err = save_range(st, e, slot, at + i, &parent, cost_us);
			saved += !err;
		}
	}
	/* no room: what comes behind would be of no use */
	if (err == -ENOSPC || err == -EAGAIN || err == -ETIMEDOUT)
		err = 0;
	return err ? err : saved;
}

int store_evict(struct store *st)
{
	return kvmm_reclaim(st->pool, 0, NULL);
}

int store_stat(struct store *st, struct kvmm_pool_stat *stat)
{
	return kvmm_pool_stat(st->pool, stat);
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
	if (st->window > WINDOW_RANGES)
		st->window = WINDOW_RANGES;
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
