// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Blocks: their states, how they begin and end, and the commands on blocks
 * known by handle.
 */
#include "internal.h"

#define TO(s) (1U << KVMM_##s)

/* The legal transitions; DESIGN's table of states, nothing else happens. */
const u8 core_transitions[KVMM_NR_STATES] = {
	[KVMM_FREE]	= TO(FILLING),
	[KVMM_FILLING]	= TO(RESIDENT) | TO(FREE),
	[KVMM_RESIDENT]	= TO(WRITING) | TO(FREE),
	[KVMM_WRITING]	= TO(CLEAN) | TO(RESIDENT),
	[KVMM_CLEAN]	= TO(SWAPPED) | TO(RESIDENT) | TO(FREE),
	[KVMM_SWAPPED]	= TO(READING) | TO(FREE),
	[KVMM_READING]	= TO(CLEAN) | TO(SWAPPED) | TO(FREE),
};

bool core_transition_ok(u32 from, u32 to)
{
	return from < KVMM_NR_STATES && to < KVMM_NR_STATES &&
	       (core_transitions[from] >> to & 1);
}

static void parent_lost_child(struct kvmm_core *c, const struct kvmm_block *b)
{
	struct kvmm_block *p;
	u32 pi;

	if (!(b->flags & KVMM_B_CHILD))
		return;
	p = block_get(c, b->parent, &pi);
	/* Once at the maximum the count is not known any more: it stays. */
	if (p && p->children && p->children != 0xffff)
		p->children--;
}

void block_free(struct kvmm_core *c, struct kvmm_block *b, u32 i,
		bool quarantine, u64 now)
{
	core_bug_on(b->pins);
	if (in_lru(b, i))
		lru_del(c, b, i);
	index_del(c, b, i);
	parent_lost_child(c, b);
	if (b->slot != KVMM_NONE) {
		slot_unlink(c, slot_list(c, b), b->slot);
		slot_put(c, b->slot);
		b->slot = KVMM_NONE;
	}
	if (b->frame != KVMM_NONE) {
		if (quarantine)
			frame_quarantine(c, b->frame, now);
		else
			frame_put(c, b->frame);
		b->frame = KVMM_NONE;
	}
	block_set_state(c, b, KVMM_FREE);
	b->flags = 0;
	b->parts_done = 0;
	if (!++b->gen)
		b->gen = 1;
	b->link = c->free_block;
	c->free_block = i;
}

void block_settle_idle(struct kvmm_core *c, struct kvmm_block *b, u32 i)
{
	if (b->pins || block_busy(b))
		return;
	if (b->state == KVMM_FILLING)
		block_free(c, b, i, b->flags & KVMM_B_ORPHAN, b->touched);
	else
		block_free(c, b, i, false, 0);
}

void block_kill(struct kvmm_core *c, struct kvmm_block *b, u32 i,
		enum kvmm_end why)
{
	switch (why) {
	case KVMM_END_EXPIRED:
		c->stat.expired++;
		block_note(c, b, i, KVMM_NOTE_EXPIRED);
		break;
	case KVMM_END_DROPPED:
		c->stat.dropped++;
		break;
	case KVMM_END_PURGED:
		c->stat.purged++;
		block_note(c, b, i, KVMM_NOTE_PURGED);
		break;
	case KVMM_END_SLOT:
		c->stat.slots_evicted++;
		block_note(c, b, i, KVMM_NOTE_SLOT);
		break;
	case KVMM_END_LOST:
		break;
	}
	if (b->flags & KVMM_B_EVICTING)
		block_stop_evicting(c, b, i);
	index_del(c, b, i);
	if (in_lru(b, i))
		lru_del(c, b, i);
	b->flags |= KVMM_B_DOOMED;
	block_settle(c, b, i);
}

static bool block_expired(const struct kvmm_block *b, u64 now)
{
	return b->ttl_ms && b->state != KVMM_FILLING && now >= b->touched &&
	       now - b->touched >= b->ttl_ms;
}

bool block_outdated(const struct kvmm_core *c, const struct kvmm_block *b,
		    u64 now)
{
	return b->epoch != c->epoch || block_expired(b, now);
}

bool block_live_slow(struct kvmm_core *c, struct kvmm_block *b, u32 i,
		     u64 now)
{
	if (b->flags & KVMM_B_DOOMED)
		return false;
	if (unlikely(b->epoch != c->epoch)) {
		block_kill(c, b, i, KVMM_END_DROPPED);
		return false;
	}
	if (unlikely(block_expired(b, now))) {
		block_kill(c, b, i, KVMM_END_EXPIRED);
		return false;
	}
	return true;
}

int block_get_live(struct kvmm_core *c, u64 handle, u64 now,
		   struct kvmm_block **b, u32 *i)
{
	*b = block_get(c, handle, i);
	if (!*b || !block_live(c, *b, *i, now))
		return -ESTALE;
	return 0;
}

void block_drop_frame(struct kvmm_core *c, struct kvmm_block *b, u32 i)
{
	u32 slot = b->slot;

	block_note(c, b, i, KVMM_NOTE_EVICTED);
	lru_del(c, b, i);
	slot_unlink(c, &c->slots_clean, slot);
	block_set_state(c, b, KVMM_SWAPPED);
	slot_link(c, &c->slots_swapped, slot);
	frame_put(c, b->frame);
	b->frame = KVMM_NONE;
	c->stat.evicted++;
}

void block_evicted(struct kvmm_core *c, struct kvmm_block *b, u32 i)
{
	block_note(c, b, i, KVMM_NOTE_EVICTED);
	/*
	 * Its slot stays where it was put when the write began: the order must
	 * not depend on which write ends first.
	 */
	b->flags &= ~KVMM_B_EVICTING;
	c->evicting--;
	block_set_state(c, b, KVMM_SWAPPED);
	frame_put(c, b->frame);
	b->frame = KVMM_NONE;
	c->stat.evicted++;
}

void block_stop_evicting(struct kvmm_core *c, struct kvmm_block *b, u32 i)
{
	slot_unlink(c, &c->slots_swapped, b->slot);
	b->flags &= ~KVMM_B_EVICTING;
	c->evicting--;
	slot_link(c, &c->slots_clean, b->slot);
	lru_add(c, b, i);
}

/* A descriptor; there are as many as frames and slots, so there is one. */
static u32 block_take(struct kvmm_core *c)
{
	struct kvmm_block *b;
	u32 i = c->free_block;

	if (i != KVMM_NONE) {
		c->free_block = block_at(c, i)->link;
		return i;
	}
	if (core_bug_on(c->next_block >= c->nr_blocks))
		return KVMM_NONE;
	i = c->next_block++;
	b = block_at(c, i);
	b->gen = 1;
	return i;
}

static void block_begin(struct kvmm_core *c, u32 i, u32 frame, u32 nr_parts)
{
	struct kvmm_block *b = block_at(c, i);

	block_set_state(c, b, KVMM_FILLING);
	b->link = KVMM_NONE;
	b->nr_parts = nr_parts ? (u8)nr_parts : 1;
	b->frame = frame;
	frame_at(c, frame)->block = i;
	b->slot = KVMM_NONE;
	b->lru_prev = i;
	b->lru_next = KVMM_NONE;
	b->parent = 0;
	b->ttl_ms = 0;
	b->epoch = c->epoch;
	b->uses = 0;
	b->children = 0;
	b->length = 0;
}

/*
 * Victims are found by walking from one to the next, which waits for memory at
 * each step.  So the walk is made some steps ahead of the taking.
 */
#define AHEAD	16

static u32 look_ahead(const struct kvmm_core *c)
{
	u32 i = c->lru.tail, k;

	for (k = 0; k < AHEAD && i != KVMM_NONE; k++)
		i = victim_ahead(c, i);
	return i;
}

int kvmm_core_alloc(struct kvmm_core *c, u32 client, u32 nr_parts, u64 now,
		    struct kvmm_block_ref *refs, u32 n)
{
	u32 ahead = c->frames_free < n ? look_ahead(c) : KVMM_NONE;
	u32 k, i, frame;

	for (k = 0; k < n; k++) {
		if (ahead != KVMM_NONE)
			ahead = victim_ahead(c, ahead);
		frame = core_get_frame(c, now);
		if (frame == KVMM_NONE)
			break;
		i = block_take(c);
		if (i == KVMM_NONE) {
			frame_put(c, frame);
			break;
		}
		if (c->free_block != KVMM_NONE)
			core_prefetchw(block_at(c, c->free_block));
		block_begin(c, i, frame, nr_parts);
		/* The hold inside a new block is free: this can't fail. */
		hold_get(c, block_at(c, i), i, client);
		refs[k].handle = handle_of(block_at(c, i), i);
		refs[k].frame = frame;
		refs[k].result = 0;
	}
	c->stat.allocs += k;
	c->stat.alloc_fails += n - k;
	if (k)
		return (int)k;
	return core_no_frame(c);
}

void kvmm_core_pin(struct kvmm_core *c, u32 client, bool filling,
		   struct kvmm_block_ref *refs, u32 n)
{
	struct kvmm_block *b;
	u32 k, i;

	for (k = 0; k < n; k++) {
		struct kvmm_block_ref *r = &refs[k];

		r->frame = KVMM_NO_FRAME;
		b = block_get(c, r->handle, &i);
		if (!b || (b->flags & KVMM_B_DOOMED) || b->epoch != c->epoch) {
			r->result = -ESTALE;
			continue;
		}
		if (b->state == KVMM_SWAPPED || b->state == KVMM_READING) {
			r->result = -EAGAIN;
			continue;
		}
		if (b->state == KVMM_FILLING && !filling) {
			r->result = -EACCES;
			continue;
		}
		r->result = hold_get(c, b, i, client);
		if (!r->result)
			r->frame = b->frame;
	}
}

void kvmm_core_unpin(struct kvmm_core *c, u32 client,
		     struct kvmm_block_ref *refs, u32 n)
{
	struct kvmm_block *b;
	u32 k, i;

	for (k = 0; k < n; k++)
		prefetch_handle(c, refs[k].handle);
	for (k = 0; k < n; k++) {
		struct kvmm_block_ref *r = &refs[k];

		r->frame = KVMM_NO_FRAME;
		b = block_get(c, r->handle, &i);
		if (!b) {
			r->result = -ESTALE;
			continue;
		}
		r->result = hold_put(c, b, i, client);
		if (!r->result)
			block_settle(c, b, i);
		else if (block_late(b) && b->state == KVMM_READING)
			r->result = -ESTALE;
	}
}

void kvmm_core_drop(struct kvmm_core *c, u32 client,
		    struct kvmm_block_ref *refs, u32 n)
{
	struct kvmm_block *b;
	u32 k, i;

	for (k = 0; k < n; k++) {
		struct kvmm_block_ref *r = &refs[k];

		r->frame = KVMM_NO_FRAME;
		r->result = -ESTALE;
		b = block_get(c, r->handle, &i);
		if (!b || (b->flags & KVMM_B_DOOMED))
			continue;
		if (b->state == KVMM_FILLING &&
		    hold_find(c, b, i, client) == KVMM_NONE) {
			r->result = -EACCES;
			continue;
		}
		block_kill(c, b, i, KVMM_END_DROPPED);
		r->result = 0;
	}
}

void kvmm_core_query(struct kvmm_core *c, u64 now, struct kvmm_block_ref *refs,
		     u32 n)
{
	struct kvmm_block *b;
	u32 k, i;

	for (k = 0; k < n; k++) {
		struct kvmm_block_ref *r = &refs[k];

		r->frame = KVMM_NO_FRAME;
		r->result = -ESTALE;
		b = block_get(c, r->handle, &i);
		/* One that is only held (dropped, late) is still somewhere. */
		if (!b || (!block_live(c, b, i, now) && !b->pins))
			continue;
		r->result = b->state;
		r->frame = b->frame;
	}
}

u32 kvmm_core_keys(struct kvmm_core *c, u64 now, u64 *cursor,
		   struct kvmm_key_entry *e, u32 n)
{
	u32 looked = 0, k = 0, i;

	if (*cursor >= c->next_block) {
		*cursor = KVMM_NONE;
		return 0;
	}
	for (i = (u32)*cursor; i < c->next_block && k < n &&
	     looked < KVMM_CORE_BATCH; i++, looked++) {
		struct kvmm_block *b = block_at(c, i);

		if (!(b->flags & KVMM_B_KEYED) || !block_live(c, b, i, now))
			continue;
		memset(&e[k], 0, sizeof(e[k]));
		memcpy(e[k].key, b->key, KVMM_KEY_LEN);
		e[k].handle = handle_of(b, i);
		e[k].parent = b->parent;
		e[k].position = b->position;
		e[k].length = b->length;
		e[k].expiry_ms = b->ttl_ms;
		e[k].cost_us = b->cost_us;
		e[k].frame = b->frame;
		e[k].slot = b->slot;
		e[k].pins = b->pins;
		e[k].uses = b->uses;
		e[k].state = b->state;
		e[k].priority = b->priority;
		e[k].flags = b->flags & (KVMM_BLOCK_PARTIAL |
					 KVMM_BLOCK_RECOMPUTABLE);
		k++;
	}
	*cursor = i < c->next_block ? i : KVMM_NONE;
	return k;
}
