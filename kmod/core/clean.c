// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Writing ahead: cold blocks are written while they are still in memory, so
 * that an allocation finds victims that it can have at once.  Who goes first
 * stays the policy's: nothing here moves a block in an order.
 */
#include "internal.h"

/* Looking at so many blocks is worth one that was allocated or unpinned. */
#define WORTH	64

u32 kvmm_core_ready(const struct kvmm_core *c)
{
	return c->frames_free + c->state_count[KVMM_CLEAN] - c->clean_busy;
}

void clean_anew(struct kvmm_core *c)
{
	c->clean_at = KVMM_NONE;
	c->clean_began = 0;
}

/*
 * A walk from the oldest to the youngest that left blocks
 * unwritten, since they were pinned or there was no slot, is not worth being
 * repeated at each call.
 */
static bool may_begin(const struct kvmm_core *c)
{
	return !c->clean_began || c->stat.allocs + c->unpinned -
		c->clean_began >= c->lru.count / WORTH;
}

bool kvmm_core_may_clean(const struct kvmm_core *c)
{
	return area_usable(c) && (c->clean_at != KVMM_NONE || may_begin(c));
}

/* Where to go on. */
static u32 clean_start(struct kvmm_core *c)
{
	if (c->clean_at != KVMM_NONE)
		return c->clean_at;
	if (!may_begin(c))
		return KVMM_NONE;
	c->clean_began = c->stat.allocs + c->unpinned;
	return c->lru.tail;
}

/* Has to be written before its frame can be taken. */
static bool wants_write(const struct kvmm_core *c, const struct kvmm_block *b,
			u64 now)
{
	if (b->state != KVMM_RESIDENT || b->pins || b->epoch != c->epoch)
		return false;
	if (b->ttl_ms && now >= b->touched && now - b->touched >= b->ttl_ms)
		return false;
	return !may_purge(c, b);
}

u32 kvmm_core_clean(struct kvmm_core *c, u32 want, u64 now, struct kvmm_io *io,
		    u32 n, bool *more)
{
	u32 ready = kvmm_core_ready(c) + c->writing;
	u32 left = lru_budget(c), nr_io = 0, i;

	*more = false;
	if (!area_usable(c) || ready >= want)
		return 0;
	i = clean_start(c);
	while (i != KVMM_NONE && left && nr_io < n && ready < want) {
		struct kvmm_block *b = block_at(c, i);
		u32 slot;

		if (wants_write(c, b, now)) {
			slot = slot_take_cold(c, b->touched);
			if (slot == KVMM_NONE) {
				i = KVMM_NONE;
				break;
			}
			write_begin(c, b, i, slot, false, &io[nr_io++]);
			ready++;
		}
		i = b->lru_prev;
		left--;
		/* Came to the youngest: maybe the others are worth a look. */
		if (i == KVMM_NONE && left) {
			c->clean_at = KVMM_NONE;
			i = clean_start(c);
		}
	}
	c->clean_at = i;
	*more = i != KVMM_NONE && ready < want &&
		(nr_io == n || (!left && c->lru.count > KVMM_SCAN_MAX));
	return nr_io;
}
