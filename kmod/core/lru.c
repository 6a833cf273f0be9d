// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The order of eviction: least recently used.  One order for blocks with a
 * frame (here), one for swapped blocks (by their slots, slots.c).
 *
 * A chain is touched in prefix order, each block put just behind the one
 * before it, so that a prefix is younger than what extends it, however many
 * batches the chain takes.
 */
#include "internal.h"

static void lru_add_before(struct kvmm_core *c, struct kvmm_block *b, u32 i,
			   u64 *anchor)
{
	u32 a = lru_anchor(c, *anchor);

	lru_link(c, b, i,
		 a == KVMM_NONE ? c->lru.tail : block_at(c, a)->lru_prev, a);
	*anchor = handle_of(b, i);
}

/* The slot of the swapped block @handle names; else KVMM_NONE. */
static u32 swap_anchor(const struct kvmm_core *c, u64 handle, u32 self)
{
	struct kvmm_block *b;
	u32 i;

	b = handle ? block_get(c, handle, &i) : NULL;
	if (!b || i == self || b->state != KVMM_SWAPPED)
		return KVMM_NONE;
	return b->slot;
}

static void swap_touch(struct kvmm_core *c, struct kvmm_block *b, u32 i,
		       u64 *anchor)
{
	u32 a;

	/* Named twice in a row: it stays behind the one before it. */
	if (*anchor == handle_of(b, i))
		return;
	a = swap_anchor(c, *anchor, i);
	slot_unlink(c, &c->slots_swapped, b->slot);
	if (a == KVMM_NONE)
		slot_link(c, &c->slots_swapped, b->slot);
	else
		slot_link_behind(c, &c->slots_swapped, b->slot, a);
	*anchor = handle_of(b, i);
}

void lru_touch(struct kvmm_core *c, struct kvmm_block *b, u32 i, u64 now,
	       struct kvmm_cursor *cur)
{
	if (now > b->touched)
		b->touched = now;
	if (b->uses != 0xffff)
		b->uses++;
	if (b->state == KVMM_SWAPPED) {
		swap_touch(c, b, i, &cur->swap);
		return;
	}
	if (b->flags & KVMM_B_EVICTING)
		block_stop_evicting(c, b, i);
	if (cur->mem == handle_of(b, i))
		return;
	/* Very often it is where it has to go: a chain looked up again. */
	if (b->lru_prev == lru_anchor(c, cur->mem)) {
		cur->mem = handle_of(b, i);
		return;
	}
	lru_del(c, b, i);
	lru_add_behind(c, b, i, &cur->mem);
}

u32 lru_next_victim(struct kvmm_core *c, u32 *pos, u32 *budget)
{
	struct kvmm_block *b;
	u32 i;

	while (*pos != KVMM_NONE && *budget) {
		i = *pos;
		b = block_at(c, i);
		*pos = b->lru_prev;
		(*budget)--;
		if (!block_in_use(b))
			return i;
		/* In use: it is not cold, and must not be met again soon. */
		lru_del(c, b, i);
		lru_add(c, b, i);
	}
	return KVMM_NONE;
}

void kvmm_core_touch(struct kvmm_core *c, u64 now, struct kvmm_cursor *cur,
		     struct kvmm_block_ref *refs, u32 n)
{
	struct kvmm_block *b;
	u32 k, i;

	for (k = 0; k < n; k++)
		prefetch_handle(c, refs[k].handle);
	for (k = 0; k < n; k++) {
		struct kvmm_block_ref *r = &refs[k];

		r->frame = KVMM_NO_FRAME;
		r->result = block_get_live(c, r->handle, now, &b, &i);
		if (!r->result && b->state == KVMM_FILLING)
			r->result = -ESTALE;
		if (r->result)
			continue;
		lru_touch(c, b, i, now, cur);
		r->frame = b->frame;
	}
}

/*
 * The parent of @b, or 0 at the root or where it is gone.  Positions must
 * fall, so that parents which name each other end the walk.
 */
static u64 chain_up(struct kvmm_core *c, const struct kvmm_block *b, u64 now)
{
	struct kvmm_block *p;
	u32 pi;

	if (!b->parent || block_get_live(c, b->parent, now, &p, &pi) ||
	    p->state == KVMM_FILLING || p->position >= b->position)
		return 0;
	return b->parent;
}

int kvmm_core_chain(struct kvmm_core *c, u64 now, u64 *handle)
{
	struct kvmm_block *b;
	u32 k, i;

	if (!*handle)
		return -ESTALE;
	for (k = 0; k < KVMM_CORE_BATCH && *handle; k++) {
		struct kvmm_cursor top = { 0 };

		if (block_get_live(c, *handle, now, &b, &i) ||
		    b->state == KVMM_FILLING)
			return k ? (int)k : -ESTALE;
		/* Deepest first, each to the young end. */
		lru_touch(c, b, i, now, &top);
		*handle = chain_up(c, b, now);
	}
	return (int)k;
}

static void make_oldest(struct kvmm_core *c, struct kvmm_block *b, u32 i,
			struct kvmm_cursor *cur)
{
	u32 a;

	if (b->flags & KVMM_B_EVICTING)
		return;
	if (b->state != KVMM_SWAPPED) {
		lru_del(c, b, i);
		lru_add_before(c, b, i, &cur->mem);
		/* It may be among those found clean before. */
		clean_anew(c);
		return;
	}
	a = swap_anchor(c, cur->swap, i);
	slot_unlink(c, &c->slots_swapped, b->slot);
	if (a == KVMM_NONE)
		slot_link_tail(c, &c->slots_swapped, b->slot);
	else
		slot_link_before(c, &c->slots_swapped, b->slot, a);
	cur->swap = handle_of(b, i);
}

int kvmm_core_hint(struct kvmm_core *c, u32 permille, u64 now,
		   struct kvmm_cursor *cur, u64 *handle)
{
	bool deepest = !cur->mem && !cur->swap;
	struct kvmm_block *b;
	u32 k, i;

	if (!*handle)
		return -ESTALE;
	for (k = 0; k < KVMM_CORE_BATCH && *handle; k++) {
		if (block_get_live(c, *handle, now, &b, &i) ||
		    b->state == KVMM_FILLING)
			return k ? (int)k : -ESTALE;
		/* Only certainty moves LRU; shared blocks stay where they are. */
		if (permille || b->children > (deepest ? 0 : 1)) {
			*handle = 0;
			break;
		}
		deepest = false;
		make_oldest(c, b, i, cur);
		*handle = chain_up(c, b, now);
	}
	return (int)k;
}
