// SPDX-License-Identifier: MIT
/*
 * The fuzzer's ioctls: every command with the fields of its struct, mostly well
 * formed, and each field now and then not.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"

/* What a field means, so what is good for it. */
enum kind {
	END,		/* of the fields */
	ZERO,		/* reserved */
	FLAGS,		/* bits of @arg */
	UPTO,		/* 0 to @arg */
	NAME,
	MODE,
	BLOCK,		/* a block size */
	FRAMES,		/* how many a pool has */
	FRAME,		/* which */
	COUNT,
	REFS,		/* addresses of arrays, of COUNT entries */
	PUBS,
	KEYS,
	POOLS,
	ENTRIES,
	HANDLE,
	AREA,		/* a file to swap to */
	CURSOR,
	SWAP,		/* struct kvmm_swap_cmd */
	MASK,
};

#define RARE	0x80	/* with a kind: zero in most calls */

struct field {
	uint16_t off;
	uint8_t bytes, kind;
	uint32_t arg;
};

struct shape {
	const char *name;
	uint32_t cmd, size, weight;
	struct field f[14];
};

#define F(type, field, kind, arg) \
	{ offsetof(struct type, field), sizeof(((struct type *)0)->field), \
	  kind, arg }
#define SHAPE(cmd, type, weight, ...) \
	{ #cmd, cmd, sizeof(struct type), weight, { __VA_ARGS__ } }
#define BATCH(cmd, weight) SHAPE(cmd, kvmm_batch, weight,		\
	F(kvmm_batch, count, COUNT, 0), F(kvmm_batch, refs, REFS, 0))

static const struct shape shapes[] = {
	SHAPE(KVMM_INFO, kvmm_info, 1, F(kvmm_info, flags, ZERO, 0)),
	SHAPE(KVMM_POOL_CREATE, kvmm_pool_create, 2,
	      F(kvmm_pool_create, flags, FLAGS, KVMM_POOL_MANUAL_CLOCK |
		KVMM_POOL_NODES_PREFER),
	      F(kvmm_pool_create, name, NAME, 0),
	      F(kvmm_pool_create, mode, MODE, 0),
	      F(kvmm_pool_create, block_size, BLOCK, 0),
	      F(kvmm_pool_create, nr_frames, FRAMES, 0),
	      F(kvmm_pool_create, nr_slots, UPTO, 64),
	      F(kvmm_pool_create, nr_holds, RARE | UPTO, 64),
	      F(kvmm_pool_create, quarantine_ms, RARE | UPTO, 3),
	      F(kvmm_pool_create, nodes, RARE | UPTO, 1),
	      F(kvmm_pool_create, nr_elastic, RARE | FRAMES, 1),
	      F(kvmm_pool_create, chunk_frames, RARE | BLOCK, 1),
	      F(kvmm_pool_create, clean_low, RARE | UPTO, 500),
	      F(kvmm_pool_create, clean_high, RARE | UPTO, 1000)),
	SHAPE(KVMM_POOL_OPEN, kvmm_pool_open, 6,
	      F(kvmm_pool_open, flags, FLAGS, KVMM_POOL_RDONLY),
	      F(kvmm_pool_open, name, NAME, 0)),
	SHAPE(KVMM_POOL_DESTROY, kvmm_pool_destroy, 1,
	      F(kvmm_pool_destroy, flags, FLAGS, KVMM_POOL_FORCE),
	      F(kvmm_pool_destroy, name, NAME, 0)),
	SHAPE(KVMM_POOL_LIST, kvmm_pool_list, 1,
	      F(kvmm_pool_list, cursor, CURSOR, 0),
	      F(kvmm_pool_list, count, COUNT, 0),
	      F(kvmm_pool_list, entries, POOLS, 0)),
	SHAPE(KVMM_POOL_RESET, kvmm_pool_reset, 1,
	      F(kvmm_pool_reset, flags, ZERO, 0)),
	SHAPE(KVMM_POOL_STAT, kvmm_pool_stat, 2,
	      F(kvmm_pool_stat, flags, ZERO, 0)),
	SHAPE(KVMM_POOL_CLOCK, kvmm_pool_clock, 1,
	      F(kvmm_pool_clock, now_ms, UPTO, 100)),
	SHAPE(KVMM_POPULATE, kvmm_populate, 4,
	      F(kvmm_populate, flags, FLAGS, KVMM_POPULATE_ASYNC |
		KVMM_POPULATE_CANCEL),
	      F(kvmm_populate, first, FRAME, 0),
	      F(kvmm_populate, count, FRAME, 1),
	      F(kvmm_populate, workers, UPTO, 1)),
	SHAPE(KVMM_SWAP_ATTACH, kvmm_swap_attach, 3,
	      F(kvmm_swap_attach, flags, FLAGS, KVMM_SWAP_NO_CHECKSUM),
	      F(kvmm_swap_attach, fd, AREA, 0),
	      F(kvmm_swap_attach, nr_slots, UPTO, 32),
	      F(kvmm_swap_attach, offset, ZERO, 0),
	      F(kvmm_swap_attach, timeout_ms, RARE | UPTO, 20)),
	SHAPE(KVMM_SWAP_DETACH, kvmm_swap_detach, 1,
	      F(kvmm_swap_detach, flags, FLAGS, KVMM_SWAP_DISCARD)),
	SHAPE(KVMM_ALLOC, kvmm_alloc, 12,
	      F(kvmm_alloc, flags, FLAGS, KVMM_ALLOC_WAIT),
	      F(kvmm_alloc, count, COUNT, 0),
	      F(kvmm_alloc, refs, REFS, 0),
	      F(kvmm_alloc, nr_parts, UPTO, 2),
	      F(kvmm_alloc, timeout_ms, UPTO, 0)),
	SHAPE(KVMM_PUBLISH, kvmm_publish, 12,
	      F(kvmm_publish, flags, FLAGS, KVMM_PUBLISH_KEEP),
	      F(kvmm_publish, count, COUNT, 0),
	      F(kvmm_publish, entries, PUBS, 0)),
	SHAPE(KVMM_LOOKUP, kvmm_lookup, 10,
	      F(kvmm_lookup, flags, FLAGS, KVMM_LOOKUP_PIN |
		KVMM_LOOKUP_PREFIX | KVMM_LOOKUP_PEEK),
	      F(kvmm_lookup, count, COUNT, 0),
	      F(kvmm_lookup, keys, KEYS, 0),
	      F(kvmm_lookup, refs, REFS, 0)),
	BATCH(KVMM_TOUCH, 2),
	BATCH(KVMM_PIN, 4),
	BATCH(KVMM_UNPIN, 10),
	BATCH(KVMM_DROP, 3),
	BATCH(KVMM_QUERY, 2),
	SHAPE(KVMM_KEYS, kvmm_keys, 2,
	      F(kvmm_keys, cursor, CURSOR, 0),
	      F(kvmm_keys, count, COUNT, 0),
	      F(kvmm_keys, entries, ENTRIES, 0)),
	SHAPE(KVMM_REQUEST_END, kvmm_request_end, 2,
	      F(kvmm_request_end, handle, HANDLE, 0),
	      F(kvmm_request_end, output_tokens, UPTO, 1000)),
	SHAPE(KVMM_HINT, kvmm_hint, 2,
	      F(kvmm_hint, handle, HANDLE, 0),
	      F(kvmm_hint, permille, UPTO, 1),
	      F(kvmm_hint, delay_ms, UPTO, 10)),
	SHAPE(KVMM_RECLAIM, kvmm_reclaim, 4,
	      F(kvmm_reclaim, keep, UPTO, 16)),
	SHAPE(KVMM_SWAP_OUT, kvmm_swap, 6, F(kvmm_swap, cmd, SWAP, 0)),
	SHAPE(KVMM_SWAP_IN, kvmm_swap, 6, F(kvmm_swap, cmd, SWAP, 0)),
	SHAPE(KVMM_LEASE, kvmm_lease, 4,
	      F(kvmm_lease, flags, FLAGS, KVMM_LEASE_END),
	      F(kvmm_lease, first, UPTO, 2),
	      F(kvmm_lease, count, UPTO, 2)),
	SHAPE(KVMM_EVENTS, kvmm_events, 3,
	      F(kvmm_events, mask, MASK, 0),
	      F(kvmm_events, count, UPTO, 16)),
	SHAPE(KVMM_EXPORT, kvmm_export, 4,
	      F(kvmm_export, flags, FLAGS, KVMM_EXPORT_RDONLY),
	      F(kvmm_export, first, FRAME, 0),
	      F(kvmm_export, count, FRAME, 1)),
};

#define NR_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* One call: its struct, and what of its arrays is to be read afterwards. */
struct call {
	const struct shape *s;
	unsigned char arg[512];
	uint32_t count, room;	/* asked for, and there */
	struct kvmm_block_ref *refs;
	struct kvmm_key_entry *entries;
	struct kvmm_publish_entry *pubs;
};

static uint32_t count_of(struct fz *z)
{
	switch (fz_below(z, 32)) {
	case 0:
		return fz_junk(z);
	case 1:
		return KVMM_MAX_BATCH - fz_below(z, 2);
	case 2:
	case 3:
		return 60 + fz_below(z, 80);
	default:
		return 1 + fz_below(z, 8);
	}
}

static void fill_refs(struct fz *z, struct kvmm_block_ref *refs, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		refs[i].handle = i < 16 ? fz_handle(z) : 0;
		refs[i].frame = 0x5a5a5a5a;
		refs[i].result = 0x5a5a;
	}
}

static void fill_pubs(struct fz *z, struct kvmm_publish_entry *e, uint32_t n)
{
	uint64_t id = 1 + fz_below(z, FZ_IDS);
	uint32_t i;

	for (i = 0; i < n; i++) {
		memset(&e[i], 0, sizeof(e[i]));
		kt_key(e[i].key, id + i);
		if (i > 16)
			continue;
		e[i].handle = fz_handle(z);
		e[i].parent = fz_one_in(z, 2) ? 0 : fz_handle(z);
		e[i].position = fz_below(z, 4);
		e[i].length = fz_one_in(z, 8) ? fz_junk(z) :
			1 + fz_below(z, 4096);
		e[i].expiry_ms = fz_one_in(z, 4) ? fz_below(z, 4) : 0;
		e[i].cost_us = fz_one_in(z, 4) ? fz_junk(z) : 0;
		e[i].part = fz_below(z, 2);
		e[i].priority = fz_below(z, 256);
		e[i].flags = fz_one_in(z, 16) ? fz_junk(z) : fz_below(z, 4);
	}
}

static void *array(struct fz *z, struct call *c, size_t each, bool *plain)
{
	/* more is refused before anything of it is looked at */
	c->room = c->count > KVMM_MAX_BATCH + 1 ? 16 : c->count;
	return fz_place(z, c->room * each, plain);
}

/* What to put into a field; a struct's COUNT comes before its arrays. */
static uint64_t value(struct fz *z, struct call *c, const struct field *f)
{
	bool plain = false;
	uint32_t n;
	void *p;

	if (f->kind != NAME && f->kind != SWAP && fz_one_in(z, 40))
		return fz_junk(z);
	switch (f->kind & ~RARE) {
	case FLAGS:
		return fz_one_in(z, 3) ? fz_rnd(z) & f->arg :
			fz_one_in(z, 3) ? f->arg : 0;
	case UPTO:
		return fz_below(z, f->arg + 1);
	case MODE:
		return fz_one_in(z, 4) ? fz_below(z, 01000) : 0666;
	case BLOCK:
		if (f->arg)
			return fz_one_in(z, 2) ? 0 : 1ULL << fz_below(z, 6);
		return 4096ULL << (fz_one_in(z, 8) ? fz_below(z, 10) :
				   fz_below(z, 3));
	case FRAMES:
		if (f->arg)
			return fz_one_in(z, 2) ? 0 : fz_below(z, 3) * 16;
		return 1 + fz_below(z, 48);
	case FRAME:
		return f->arg ? 1 + fz_below(z, 32) : fz_below(z, 32);
	case COUNT:
		c->count = count_of(z);
		return c->count;
	case REFS:
		p = array(z, c, sizeof(*c->refs), &plain);
		if (plain) {
			c->refs = p;
			fill_refs(z, p, c->room);
		}
		return (uintptr_t)p;
	case PUBS:
		p = array(z, c, sizeof(*c->pubs), &plain);
		if (plain) {
			c->pubs = p;
			fill_pubs(z, p, c->room);
		}
		return (uintptr_t)p;
	case KEYS:
		p = array(z, c, KVMM_KEY_LEN, &plain);
		for (n = 0; plain && n < c->room; n++)
			kt_key((uint8_t *)p + n * KVMM_KEY_LEN,
			       n < 16 ? 1 + fz_below(z, FZ_IDS) : n);
		return (uintptr_t)p;
	case POOLS:
		return (uintptr_t)array(z, c, sizeof(struct kvmm_pool_entry),
					&plain);
	case ENTRIES:
		p = array(z, c, sizeof(*c->entries), &plain);
		if (plain)
			c->entries = p;
		return (uintptr_t)p;
	case HANDLE:
		return fz_handle(z);
	case AREA:
		return fz_one_in(z, 16) ? (uint64_t)fz_client(z, true)->fd :
			(uint64_t)z->area[fz_below(z, FZ_AREAS)];
	case MASK:
		return fz_rnd(z) & ((1 << KVMM_NR_EVENTS) - 1);
	case CURSOR:
		return 0;
	default:
		return 0;
	}
}

struct kvmm_swap_cmd fz_swap_cmd(struct fz *z)
{
	struct kvmm_swap_cmd cmd = { .count = 1, .flags = KVMM_SWAP_ONE };
	uint32_t room;
	bool plain;
	void *p;

	if (fz_one_in(z, 3))
		cmd.flags |= fz_one_in(z, 2) ? KVMM_SWAP_PIN : KVMM_SWAP_DROP;
	if (fz_one_in(z, 2)) {
		cmd.addr = fz_handle(z);
	} else {
		cmd.flags &= ~KVMM_SWAP_ONE;
		cmd.count = count_of(z);
		room = cmd.count > KVMM_MAX_BATCH + 1 ? 16 : cmd.count;
		p = fz_place(z, room * sizeof(struct kvmm_block_ref), &plain);
		if (plain)
			fill_refs(z, p, room);
		cmd.addr = (uintptr_t)p;
	}
	if (fz_one_in(z, 40))
		cmd.flags = fz_junk(z);
	if (fz_one_in(z, 40))
		cmd.count = fz_junk(z);
	if (fz_one_in(z, 40))
		cmd.addr = fz_junk(z);
	return cmd;
}

static void build(struct fz *z, struct call *c)
{
	bool rich = fz_one_in(z, 3);
	const struct field *f;
	uint64_t v;

	for (f = c->s->f; f->bytes; f++) {
		if (f->kind & RARE && !rich)
			continue;
		if (f->kind == NAME) {
			snprintf((char *)c->arg + f->off, KVMM_NAME_LEN,
				 "fz%u", fz_below(z, FZ_POOLS));
			if (fz_one_in(z, 40))
				c->arg[f->off + fz_below(z, KVMM_NAME_LEN)] =
					fz_junk(z);
			if (fz_one_in(z, 60))
				memset(c->arg + f->off, 'a', KVMM_NAME_LEN);
			continue;
		}
		if (f->kind == SWAP) {
			struct kvmm_swap_cmd cmd = fz_swap_cmd(z);

			memcpy(c->arg + f->off, &cmd, sizeof(cmd));
			continue;
		}
		v = value(z, c, f);
		memcpy(c->arg + f->off, &v, f->bytes);
	}
	/* a wait of some ms, with its flag */
	if (c->s->cmd == KVMM_ALLOC) {
		struct kvmm_alloc *a = (void *)c->arg;

		if (a->flags == KVMM_ALLOC_WAIT)
			a->timeout_ms = 1 + fz_below(z, 20);
	}
	if (c->s->cmd == KVMM_POPULATE) {
		struct kvmm_populate *a = (void *)c->arg;

		if (a->flags == KVMM_POPULATE_CANCEL)
			a->first = a->count = a->workers = 0;
		else if (!a->flags)
			a->workers = 0;
	}
	if (fz_one_in(z, 60))
		c->arg[fz_below(z, c->s->size)] = fz_junk(z);
}

static uint32_t size_of(struct fz *z, const struct shape *s)
{
	switch (fz_below(z, 60)) {
	case 0:
		return fz_junk(z);
	case 1:
		return fz_below(z, s->size);
	case 2:
		return s->size + 8 * (1 + fz_below(z, 4));
	default:
		return s->size;
	}
}

static void harvest(struct fz *z, struct call *c, const void *arg)
{
	uint32_t i;
	int fd;

	for (i = 0; c->refs && i < c->room && i < 16; i++)
		if (c->refs[i].handle && c->refs[i].result >= 0)
			fz_seen(z, c->refs[i].handle);
	for (i = 0; c->entries && i < c->room && i < 16; i++)
		if (c->entries[i].handle)
			fz_seen(z, c->entries[i].handle);
	for (i = 0; c->pubs && i < c->room && i < 16; i++)
		if (c->pubs[i].existing)
			fz_seen(z, c->pubs[i].existing);
	if (c->s->cmd == KVMM_EXPORT) {
		fd = ((const struct kvmm_export *)arg)->fd;
		i = fz_below(z, FZ_EXPORTS);
		if (z->exports[i] >= 0)
			close(z->exports[i]);
		z->exports[i] = fd > 2 ? fd : -1;
	}
}

static const struct shape *pick(struct fz *z)
{
	uint32_t all = 0, at;
	const struct shape *s;

	for (s = shapes; s < shapes + NR_SHAPES; s++)
		all += s->weight;
	at = fz_below(z, all);
	for (s = shapes; at >= s->weight; s++)
		at -= s->weight;
	return s;
}

void fz_ioctl(struct fz *z)
{
	struct call c = { .s = pick(z) };
	struct fz_client *client;
	uint32_t nr = c.s->cmd & 0xff, cmd = c.s->cmd, size, room;
	bool plain;
	void *arg;
	int ret;

	client = fz_client(z, c.s->cmd != KVMM_POOL_CREATE &&
			   c.s->cmd != KVMM_POOL_OPEN);
	build(z, &c);
	size = size_of(z, c.s);
	memcpy(c.arg, &size, sizeof(size));
	room = size > sizeof(c.arg) ? sizeof(c.arg) : size;
	arg = fz_place(z, room, &plain);
	if (plain)
		memcpy(arg, c.arg, room);
	if (fz_one_in(z, 200))
		cmd = fz_one_in(z, 2) ? _IO(KVMM_IOCTL_TYPE, fz_junk(z) & 0xff) :
			(uint32_t)fz_rnd(z);
	ret = kt_ioctl(client->fd, cmd, arg);
	fz_say(z, c.s->name, ret);
	if (cmd != c.s->cmd)
		return;
	z->shared->calls[nr]++;
	if (ret < 0)
		return;
	z->shared->good[nr]++;
	if (!plain)
		return;
	if (cmd == KVMM_POOL_OPEN)
		client->size = ((struct kvmm_pool_open *)arg)->arena_size;
	else if (cmd == KVMM_POOL_CREATE)
		client->size = ((struct kvmm_pool_create *)arg)->arena_size;
	harvest(z, &c, arg);
}
