// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Slots: pieces of the swap area.  Those in use are in one of two orders,
 * youngest first: slots whose block is also in memory (they go first when
 * slots run short, and nothing is lost), and the rest, whose blocks are in the
 * area alone or on their way there.
 */
#include "internal.h"

/* Busy slots are young; so few of the oldest are busy. */
#define SLOT_SCAN_MAX	KVMM_SCAN_MAX

static void link_between(struct kvmm_core *c, struct kvmm_list *l, u32 slot,
			 u32 young, u32 old)
{
	struct kvmm_slot *s = slot_at(c, slot);

	s->prev = young;
	s->next = old;
	if (young != KVMM_NONE)
		slot_at(c, young)->next = slot;
	else
		l->head = slot;
	if (old != KVMM_NONE)
		slot_at(c, old)->prev = slot;
	else
		l->tail = slot;
	l->count++;
}

void slot_link(struct kvmm_core *c, struct kvmm_list *l, u32 slot)
{
	link_between(c, l, slot, KVMM_NONE, l->head);
}

void slot_link_tail(struct kvmm_core *c, struct kvmm_list *l, u32 slot)
{
	link_between(c, l, slot, l->tail, KVMM_NONE);
}

void slot_link_behind(struct kvmm_core *c, struct kvmm_list *l, u32 slot,
		      u32 anchor)
{
	link_between(c, l, slot, anchor, slot_at(c, anchor)->next);
}

void slot_link_before(struct kvmm_core *c, struct kvmm_list *l, u32 slot,
		      u32 anchor)
{
	link_between(c, l, slot, slot_at(c, anchor)->prev, anchor);
}

void slot_unlink(struct kvmm_core *c, struct kvmm_list *l, u32 slot)
{
	struct kvmm_slot *s = slot_at(c, slot);

	if (s->prev != KVMM_NONE)
		slot_at(c, s->prev)->next = s->next;
	else
		l->head = s->next;
	if (s->next != KVMM_NONE)
		slot_at(c, s->next)->prev = s->prev;
	else
		l->tail = s->prev;
	l->count--;
}

struct kvmm_list *slot_list(struct kvmm_core *c, const struct kvmm_block *b)
{
	if (b->state == KVMM_SWAPPED || (b->flags & KVMM_B_EVICTING))
		return &c->slots_swapped;
	return &c->slots_clean;
}

void slot_put(struct kvmm_core *c, u32 slot)
{
	struct kvmm_slot *s = slot_at(c, slot);

	s->block = KVMM_NONE;
	s->next = c->free_slot;
	c->free_slot = slot;
	c->slots_free++;
}

/* The slot of a block that is in memory too; the block is RESIDENT again. */
static bool take_clean(struct kvmm_core *c)
{
	u32 slot = c->slots_clean.tail;
	struct kvmm_block *b;
	u32 k;

	for (k = 0; k < SLOT_SCAN_MAX && slot != KVMM_NONE; k++) {
		b = block_at(c, slot_at(c, slot)->block);
		if (b->state == KVMM_CLEAN) {
			slot_unlink(c, &c->slots_clean, slot);
			slot_put(c, slot);
			b->slot = KVMM_NONE;
			block_set_state(c, b, KVMM_RESIDENT);
			return true;
		}
		slot = slot_at(c, slot)->prev;
	}
	return false;
}

/*
 * The slot of the oldest swapped block, which is lost, if that was last used no
 * later than @touched.
 */
static bool take_swapped(struct kvmm_core *c, u64 touched)
{
	u32 slot = c->slots_swapped.tail;
	struct kvmm_block *b;
	u32 k, i;

	for (k = 0; k < SLOT_SCAN_MAX && slot != KVMM_NONE; k++) {
		i = slot_at(c, slot)->block;
		b = block_at(c, i);
		if (b->state == KVMM_SWAPPED) {
			if (b->touched > touched)
				return false;
			block_kill(c, b, i, KVMM_END_SLOT);
			return true;
		}
		slot = slot_at(c, slot)->prev;
	}
	return false;
}

/* One that nobody has, or KVMM_NONE. */
static u32 take_free(struct kvmm_core *c)
{
	u32 slot = c->free_slot;

	if (slot != KVMM_NONE)
		c->free_slot = slot_at(c, slot)->next;
	else if (c->next_slot < c->nr_slots)
		slot = c->next_slot++;
	else
		return KVMM_NONE;
	c->slots_free--;
	return slot;
}

u32 slot_take(struct kvmm_core *c)
{
	u32 slot = take_free(c);

	if (slot == KVMM_NONE && (take_clean(c) || take_swapped(c, ~0ULL)))
		slot = take_free(c);
	return slot;
}

u32 slot_take_cold(struct kvmm_core *c, u64 touched)
{
	u32 slot = take_free(c);

	if (slot == KVMM_NONE && take_swapped(c, touched))
		slot = take_free(c);
	return slot;
}

int kvmm_core_attach(struct kvmm_core *c, u32 nr_slots)
{
	if (c->nr_slots)
		return -EBUSY;
	if (!nr_slots || nr_slots > c->cfg.nr_slots)
		return -EINVAL;
	c->nr_slots = nr_slots;
	c->slots_free = nr_slots;
	c->free_slot = KVMM_NONE;
	c->next_slot = 0;
	c->degraded = false;
	c->detaching = false;
	clean_anew(c);
	return 0;
}

/* -EBUSY at the first live swapped block that may not be lost. */
static int detach_swapped(struct kvmm_core *c, bool discard, u64 now, u32 *left)
{
	while (*left && c->slots_swapped.tail != KVMM_NONE) {
		u32 i = slot_at(c, c->slots_swapped.tail)->block;
		struct kvmm_block *b = block_at(c, i);

		(*left)--;
		if (b->flags & KVMM_B_EVICTING)
			block_stop_evicting(c, b, i);
		else if (discard)
			block_kill(c, b, i, KVMM_END_SLOT);
		else if (block_live(c, b, i, now))
			return -EBUSY;
	}
	return 0;
}

static void detach_clean(struct kvmm_core *c, u32 *left)
{
	while (*left && c->slots_clean.tail != KVMM_NONE) {
		u32 slot = c->slots_clean.tail;
		u32 i = slot_at(c, slot)->block;
		struct kvmm_block *b = block_at(c, i);

		(*left)--;
		slot_unlink(c, &c->slots_clean, slot);
		if (block_busy(b)) {
			/* Its slot is free of use when its I/O has ended. */
			slot_link(c, &c->slots_clean, slot);
			continue;
		}
		slot_put(c, slot);
		b->slot = KVMM_NONE;
		block_set_state(c, b, KVMM_RESIDENT);
	}
}

int kvmm_core_detach(struct kvmm_core *c, bool discard, u64 now)
{
	u32 left = KVMM_CORE_BATCH;
	int err;

	if (!c->nr_slots)
		return -ENOENT;
	err = detach_swapped(c, discard, now, &left);
	if (err) {
		c->detaching = false;
		return err;
	}
	c->detaching = true;
	detach_clean(c, &left);
	if (c->slots_free != c->nr_slots)
		return -EAGAIN;
	c->nr_slots = 0;
	c->slots_free = 0;
	c->free_slot = KVMM_NONE;
	c->detaching = false;
	c->degraded = false;
	return 0;
}

void kvmm_core_detach_cancel(struct kvmm_core *c)
{
	c->detaching = false;
}
