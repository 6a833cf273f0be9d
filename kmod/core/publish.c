// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Publishing blocks under their keys, and finding them again.
 */
#include "internal.h"

static bool key_is_zero(const u8 *key)
{
	u64 w[KVMM_KEY_LEN / 8];

	memcpy(w, key, KVMM_KEY_LEN);
	return !(w[0] | w[1] | w[2] | w[3]);
}

static bool key_same(const u8 *a, const u8 *b)
{
	return !memcmp(a, b, KVMM_KEY_LEN);
}

/* The block that has @key now, or KVMM_NONE; what is not live goes. */
static u32 find_live(struct kvmm_core *c, const u8 *key, u32 hash, u32 guess,
		     u64 now)
{
	u32 i = index_find(c, key, hash, guess);

	if (i == KVMM_NONE || block_live(c, block_at(c, i), i, now))
		return i;
	return KVMM_NONE;
}

/* The same for who wants to put the key into @room where it isn't there. */
static u32 find_live_room(struct kvmm_core *c, const u8 *key, u32 hash,
			  u64 now, struct kvmm_index_bucket **room)
{
	u32 i = index_find_room(c, key, hash, room);

	if (i == KVMM_NONE || block_live(c, block_at(c, i), i, now))
		return i;
	return index_find_room(c, key, hash, room);
}

static int entry_check(const struct kvmm_core *c,
		       const struct kvmm_publish_entry *e)
{
	if (e->flags & ~(KVMM_BLOCK_PARTIAL | KVMM_BLOCK_RECOMPUTABLE))
		return -EINVAL;
	if (!e->length || e->length > c->cfg.block_size || key_is_zero(e->key))
		return -EINVAL;
	return 0;
}

/* The first part's word on the block. */
static void set_metadata(struct kvmm_block *b, u64 handle,
			 const struct kvmm_publish_entry *e)
{
	memcpy(b->key, e->key, KVMM_KEY_LEN);
	b->parent = e->parent == handle ? 0 : e->parent;
	b->position = e->position;
	b->length = e->length;
	b->ttl_ms = e->expiry_ms;
	b->cost_us = e->cost_us;
	b->priority = e->priority;
	b->flags &= ~(KVMM_BLOCK_PARTIAL | KVMM_BLOCK_RECOMPUTABLE);
	b->flags |= e->flags;
}

/* The parent may be stale, or any number at all: then nobody counts it. */
static void adopt(struct kvmm_core *c, struct kvmm_block *b)
{
	struct kvmm_block *p;
	u32 pi;

	p = b->parent ? block_get(c, b->parent, &pi) : NULL;
	if (!p)
		return;
	b->flags |= KVMM_B_CHILD;
	if (p->children != 0xffff)
		p->children++;
}

static int publish_one(struct kvmm_core *c, u32 client, u64 now, u32 hash,
		       struct kvmm_cursor *cur, struct kvmm_publish_entry *e,
		       struct kvmm_block *b, u32 i)
{
	bool first = !b->parts_done;
	struct kvmm_index_bucket *room;
	u32 other;

	if (b->state != KVMM_FILLING)
		return -EBUSY;
	if (hold_find(c, b, i, client) == KVMM_NONE)
		return -EACCES;
	if ((b->flags & KVMM_B_DOOMED) || b->epoch != c->epoch)
		return -ESTALE;
	if (e->part >= b->nr_parts)
		return -EINVAL;
	if (b->parts_done >> e->part & 1)
		return -EALREADY;
	if (!first && !key_same(b->key, e->key))
		return -EINVAL;
	if (first)
		set_metadata(b, e->handle, e);
	if (b->nr_parts > 1) {
		u64 all = b->nr_parts == 64 ? ~0ULL :
			(1ULL << b->nr_parts) - 1;

		if ((b->parts_done | 1ULL << e->part) != all) {
			b->parts_done |= 1ULL << e->part;
			return 1;
		}
	}
	other = find_live_room(c, b->key, hash, now, &room);
	if (other != KVMM_NONE) {
		e->existing = handle_of(block_at(c, other), other);
		lru_touch(c, block_at(c, other), other, now, cur);
		c->stat.publish_dups++;
		return -EEXIST;
	}
	if (!room)
		return -ENOBUFS;
	index_put(room, b, i, hash);
	b->parts_done |= 1ULL << e->part;
	adopt(c, b);
	b->flags &= ~KVMM_B_ORPHAN;
	b->uses = 1;
	b->touched = now;
	block_set_state(c, b, KVMM_RESIDENT);
	lru_add_behind(c, b, i, &cur->mem);
	c->stat.publishes++;
	return 0;
}

void kvmm_core_publish(struct kvmm_core *c, u32 client, u32 flags, u64 now,
		       struct kvmm_cursor *cur, struct kvmm_publish_entry *e,
		       u32 n)
{
	u32 hash[KVMM_CORE_BATCH];
	struct kvmm_block *b;
	u32 k, i;

	for (k = 0; k < n; k++) {
		hash[k] = index_hash(c, e[k].key);
		index_prefetch(c, hash[k]);
		prefetch_handle(c, e[k].handle);
	}
	for (k = 0; k < n; k++) {
		e[k].existing = 0;
		e[k].result = entry_check(c, &e[k]);
		if (e[k].result)
			continue;
		b = block_get(c, e[k].handle, &i);
		if (!b) {
			e[k].result = -ESTALE;
			continue;
		}
		e[k].result = publish_one(c, client, now, hash[k], cur, &e[k],
					  b, i);
		if ((flags & KVMM_PUBLISH_KEEP) ||
		    (e[k].result < 0 && e[k].result != -EEXIST))
			continue;
		hold_put(c, b, i, client);
		block_settle(c, b, i);
	}
}

/* What a hit is; pins it where asked. */
static int hit(struct kvmm_core *c, u32 client, u32 flags,
	       struct kvmm_block *b, u32 i)
{
	int err;

	if (b->state == KVMM_SWAPPED)
		return KVMM_SWAP;
	if (flags & KVMM_LOOKUP_PIN) {
		err = hold_get(c, b, i, client);
		if (err)
			return err;
	}
	return b->state == KVMM_READING ? KVMM_PENDING : KVMM_MEMORY;
}

static void count_hit(struct kvmm_core *c, int where)
{
	c->stat.lookups++;
	switch (where) {
	case KVMM_MEMORY:
		c->stat.hits_memory++;
		break;
	case KVMM_SWAP:
		c->stat.hits_swap++;
		break;
	case KVMM_PENDING:
		c->stat.hits_pending++;
		break;
	default:
		c->stat.misses++;
	}
}

static void lookup_one(struct kvmm_core *c, u32 client, u32 flags, u64 now,
		       struct kvmm_cursor *cur, const u8 *key, u32 hash,
		       u32 guess, struct kvmm_block_ref *r)
{
	u32 i = find_live(c, key, hash, guess, now);
	struct kvmm_block *b;

	r->handle = 0;
	r->frame = KVMM_NO_FRAME;
	r->result = KVMM_MISS;
	if (i != KVMM_NONE) {
		b = block_at(c, i);
		r->result = hit(c, client, flags, b, i);
		r->handle = handle_of(b, i);
		r->frame = b->frame;
		if (!(flags & KVMM_LOOKUP_PEEK))
			lru_touch(c, b, i, now, cur);
	}
	if (!(flags & KVMM_LOOKUP_PEEK))
		count_hit(c, r->result);
}

u32 kvmm_core_lookup(struct kvmm_core *c, u32 client, u32 flags, u64 now,
		     struct kvmm_cursor *cur, const u8 *keys,
		     struct kvmm_block_ref *refs, u32 n)
{
	u32 hash[KVMM_CORE_BATCH], guess[KVMM_CORE_BATCH];
	u32 k, prefix = 0;
	bool missed = false;

	for (k = 0; k < n; k++) {
		hash[k] = index_hash(c, keys + k * KVMM_KEY_LEN);
		index_prefetch(c, hash[k]);
	}
	for (k = 0; k < n; k++) {
		guess[k] = index_guess(c, hash[k]);
		if (guess[k] == KVMM_NONE)
			continue;
		core_prefetchw(block_at(c, guess[k]));
		core_prefetchw(&block_at(c, guess[k])->hold);
	}
	for (k = 0; k < n; k++) {
		if (missed && (flags & KVMM_LOOKUP_PREFIX)) {
			refs[k].handle = 0;
			refs[k].frame = KVMM_NO_FRAME;
			refs[k].result = KVMM_MISS;
			continue;
		}
		lookup_one(c, client, flags, now, cur, keys + k * KVMM_KEY_LEN,
			   hash[k], guess[k], &refs[k]);
		if (refs[k].result <= KVMM_MISS)
			missed = true;
		else if (!missed)
			prefix++;
	}
	return prefix;
}
