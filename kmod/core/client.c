// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Clients and what they hold.  A block has room for the hold of one client in
 * itself; those of further clients are in a table, found by the block.  All
 * holds of a client form a list, so its death costs what it held.
 */
#include "internal.h"

static u32 hold_block(const struct kvmm_core *c, u32 h)
{
	return h < c->nr_blocks ? h : extra_at(c, h - c->nr_blocks)->block;
}

u32 hold_find_extra(const struct kvmm_core *c, const struct kvmm_block *b,
		    u32 i, u32 client)
{
	u32 x;

	if (!(b->flags & KVMM_B_SHARED))
		return KVMM_NONE;
	for (x = *hold_bucket_at(c, i); x != KVMM_NONE;
	     x = extra_at(c, x)->hash_next)
		if (extra_at(c, x)->block == i &&
		    extra_at(c, x)->hold.client == client)
			return c->nr_blocks + x;
	return KVMM_NONE;
}

static int extra_add(struct kvmm_core *c, struct kvmm_block *b, u32 i,
		     u32 client)
{
	u32 x = c->free_hold;
	struct kvmm_extra_hold *e;

	if (x == KVMM_NONE)
		return -ENOBUFS;
	e = extra_at(c, x);
	c->free_hold = e->hash_next;
	e->block = i;
	e->hash_next = *hold_bucket_at(c, i);
	*hold_bucket_at(c, i) = x;
	b->flags |= KVMM_B_SHARED;
	hold_link(c, &e->hold, c->nr_blocks + x, client);
	return 0;
}

static void extra_del(struct kvmm_core *c, struct kvmm_block *b, u32 i, u32 x)
{
	u32 *link = hold_bucket_at(c, i);
	u32 others = 0, k, *found = NULL;

	for (k = *link; k != KVMM_NONE; k = *link) {
		if (k == x)
			found = link;
		else if (extra_at(c, k)->block == i)
			others++;
		link = &extra_at(c, k)->hash_next;
	}
	if (core_bug_on(!found))
		return;
	*found = extra_at(c, x)->hash_next;
	extra_at(c, x)->hash_next = c->free_hold;
	c->free_hold = x;
	if (!others)
		b->flags &= ~KVMM_B_SHARED;
}

int hold_get_more(struct kvmm_core *c, struct kvmm_block *b, u32 i, u32 client)
{
	u32 h = hold_find(c, b, i, client);
	int err;

	if (h != KVMM_NONE) {
		if (hold_at(c, h)->count == 0xffffffffU ||
		    b->pins == 0xffffffffU)
			return -ENOBUFS;
		hold_at(c, h)->count++;
	} else if (b->pins == 0xffffffffU) {
		return -ENOBUFS;
	} else if (!b->hold.client) {
		hold_link(c, &b->hold, i, client);
	} else {
		err = extra_add(c, b, i, client);
		if (err)
			return err;
	}
	b->pins++;
	c->pins++;
	return 0;
}

/* Takes @count pins of hold @h away, all of it where @count is its count. */
static void hold_take(struct kvmm_core *c, struct kvmm_block *b, u32 i, u32 h,
		      u32 count)
{
	struct kvmm_hold *hold = hold_at(c, h);

	if (hold->count == count) {
		hold_unlink(c, hold);
		if (h >= c->nr_blocks)
			extra_del(c, b, i, h - c->nr_blocks);
	} else {
		hold->count -= count;
	}
	b->pins -= count;
	c->pins -= count;
	if (!b->pins)
		block_now_unpinned(c, b, i);
}

int hold_put_more(struct kvmm_core *c, struct kvmm_block *b, u32 i, u32 client)
{
	u32 h = hold_find(c, b, i, client);

	if (h == KVMM_NONE)
		return -EINVAL;
	hold_take(c, b, i, h, 1);
	return 0;
}

void hold_drop_all(struct kvmm_core *c, struct kvmm_block *b, u32 i)
{
	u32 x, next;

	if (b->hold.client)
		hold_take(c, b, i, i, b->hold.count);
	if (!(b->flags & KVMM_B_SHARED))
		return;
	for (x = *hold_bucket_at(c, i); x != KVMM_NONE; x = next) {
		next = extra_at(c, x)->hash_next;
		if (extra_at(c, x)->block == i)
			hold_take(c, b, i, c->nr_blocks + x,
				  extra_at(c, x)->hold.count);
	}
}

u32 kvmm_core_client_add(struct kvmm_core *c)
{
	u32 id;

	if (c->nr_clients >= c->cfg.max_clients)
		return 0;
	for (id = 1; id <= c->cfg.max_clients; id++) {
		struct kvmm_core_client *cl = client_at(c, id);

		if (cl->used)
			continue;
		cl->used = true;
		cl->dying = false;
		cl->head = KVMM_NONE;
		cl->nr = 0;
		c->nr_clients++;
		return id;
	}
	return 0;
}

bool kvmm_core_client_del(struct kvmm_core *c, u32 client, u64 now)
{
	struct kvmm_core_client *cl = client_at(c, client);
	u32 k;

	if (core_bug_on(!cl->used))
		return true;
	if (!cl->dying && cl->nr)
		c->stat.clients_dead++;
	cl->dying = true;
	for (k = 0; k < KVMM_CORE_BATCH && cl->head != KVMM_NONE; k++) {
		u32 h = cl->head;
		u32 i = hold_block(c, h);
		struct kvmm_block *b = block_at(c, i);

		hold_take(c, b, i, h, hold_at(c, h)->count);
		/* A device may still be writing into what it was filling. */
		if (b->state == KVMM_FILLING) {
			b->flags |= KVMM_B_ORPHAN;
			b->touched = now;
		}
		block_settle(c, b, i);
	}
	if (cl->head != KVMM_NONE)
		return false;
	cl->used = false;
	c->nr_clients--;
	return true;
}
