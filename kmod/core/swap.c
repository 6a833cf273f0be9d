// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Moving blocks between memory and the area, and making room.  Decisions
 * only: the host carries out the moves and says how they ended.
 */
#include "internal.h"

bool may_purge(const struct kvmm_core *c, const struct kvmm_block *b)
{
	if (!area_usable(c))
		return true;
	return (b->flags & KVMM_BLOCK_RECOMPUTABLE) && b->cost_us < c->load_us;
}

u32 victim_ahead(const struct kvmm_core *c, u32 i)
{
	const struct kvmm_block *b = block_at(c, i);

	index_prefetch(c, b->link);
	i = b->lru_prev;
	if (i != KVMM_NONE) {
		b = block_at(c, i);
		core_prefetchw(b);
		core_prefetchw(&b->hold);
	}
	return i;
}

u32 core_get_frame(struct kvmm_core *c, u64 now)
{
	u32 frame = frame_take(c, now);
	u32 pos = c->lru.tail, budget = lru_budget(c);
	struct kvmm_block *b;
	u32 i;

	if (frame != KVMM_NONE)
		return frame;
	while ((i = lru_next_victim(c, &pos, &budget)) != KVMM_NONE) {
		b = block_at(c, i);
		if (b->state == KVMM_WRITING)
			continue;
		if (!block_live(c, b, i, now))
			break;
		if (b->state == KVMM_CLEAN && !c->detaching) {
			block_drop_frame(c, b, i);
			break;
		}
		if (may_purge(c, b)) {
			block_kill(c, b, i, KVMM_END_PURGED);
			break;
		}
	}
	return i == KVMM_NONE ? KVMM_NONE : frame_take(c, now);
}

int core_no_frame(const struct kvmm_core *c)
{
	/* Whatever is pinned has a frame; the rest comes free in time. */
	if (c->blocks_pinned >= kvmm_core_frames_used(c) &&
	    !c->frames_quarantined)
		return -ENOSPC;
	return -EAGAIN;
}

void write_begin(struct kvmm_core *c, struct kvmm_block *b, u32 i, u32 slot,
		 bool evict, struct kvmm_io *io)
{
	b->slot = slot;
	slot_at(c, slot)->block = i;
	block_set_state(c, b, KVMM_WRITING);
	if (evict) {
		lru_del(c, b, i);
		b->flags |= KVMM_B_EVICTING;
		c->evicting++;
		slot_link(c, &c->slots_swapped, slot);
	} else {
		slot_link(c, &c->slots_clean, slot);
	}
	c->writing++;
	io->handle = handle_of(b, i);
	io->frame = b->frame;
	io->slot = slot;
	io->length = b->length;
	io->crc = 0;
}

/* The same with a slot of whoever has the least use for it. */
static int get_slot_and_write(struct kvmm_core *c, struct kvmm_block *b, u32 i,
			      bool evict, struct kvmm_io *io)
{
	u32 slot = slot_take(c);

	if (slot == KVMM_NONE)
		return -ENOSPC;
	write_begin(c, b, i, slot, evict, io);
	return 0;
}

/* A write under way, of a block that nobody wants in memory after it. */
static void make_evicting(struct kvmm_core *c, struct kvmm_block *b, u32 i)
{
	if (b->flags & KVMM_B_EVICTING)
		return;
	lru_del(c, b, i);
	slot_unlink(c, &c->slots_clean, b->slot);
	b->flags |= KVMM_B_EVICTING;
	c->evicting++;
	slot_link(c, &c->slots_swapped, b->slot);
}

int kvmm_core_swap_out(struct kvmm_core *c, u64 handle, u32 flags, u64 now,
		       struct kvmm_io *io)
{
	bool evict = flags & KVMM_SWAP_DROP;
	struct kvmm_block *b;
	u32 i;
	int err;

	err = block_get_live(c, handle, now, &b, &i);
	if (err)
		return err;
	io->handle = handle;
	evict = evict && !b->pins;
	switch (b->state) {
	case KVMM_SWAPPED:
		return KVMM_IO_NONE;
	case KVMM_CLEAN:
		if (evict && !c->detaching)
			block_drop_frame(c, b, i);
		return KVMM_IO_NONE;
	case KVMM_WRITING:
		if (block_late(b))
			return -EIO;
		if (evict && !c->detaching)
			make_evicting(c, b, i);
		return KVMM_IO_JOIN;
	case KVMM_RESIDENT:
		break;
	default:
		return -EBUSY;
	}
	if (!c->nr_slots || c->detaching)
		return -EOPNOTSUPP;
	if (c->degraded)
		return -EIO;
	return get_slot_and_write(c, b, i, evict, io);
}

/*
 * The youngest now; but just behind its parent where that was used no earlier:
 * a chain that is read back in prefix order stays in that order.
 */
static void lru_add_read(struct kvmm_core *c, struct kvmm_block *b, u32 i)
{
	u32 a = lru_anchor(c, b->parent);

	if (a == KVMM_NONE || block_at(c, a)->touched < b->touched)
		lru_add(c, b, i);
	else
		lru_link(c, b, i, a, block_at(c, a)->lru_next);
}

int kvmm_core_swap_in(struct kvmm_core *c, u32 client, u64 handle, u32 flags,
		      u64 now, struct kvmm_io *io)
{
	struct kvmm_block *b;
	u32 i, frame;
	int err;

	err = block_get_live(c, handle, now, &b, &i);
	if (err)
		return err;
	if (b->state == KVMM_FILLING)
		return -EBUSY;
	io->handle = handle;
	if (b->state != KVMM_SWAPPED) {
		err = flags & KVMM_SWAP_PIN ? hold_get(c, b, i, client) : 0;
		if (err)
			return err;
		io->frame = b->frame;
		return b->state == KVMM_READING ? KVMM_IO_JOIN : KVMM_IO_NONE;
	}
	if (c->detaching)
		return -ESTALE;
	frame = core_get_frame(c, now);
	if (frame == KVMM_NONE)
		return core_no_frame(c);
	slot_unlink(c, &c->slots_swapped, b->slot);
	b->frame = frame;
	frame_at(c, frame)->block = i;
	block_set_state(c, b, KVMM_READING);
	slot_link(c, &c->slots_clean, b->slot);
	lru_add_read(c, b, i);
	/* It has no other hold, so the one inside it is free. */
	if (flags & KVMM_SWAP_PIN)
		hold_get(c, b, i, client);
	c->reading++;
	io->frame = frame;
	io->slot = b->slot;
	io->length = b->length;
	io->crc = slot_at(c, b->slot)->crc;
	return KVMM_IO_ISSUE;
}

/* What was being read stays in its slot alone; nobody holds it any more. */
static void block_unread(struct kvmm_core *c, struct kvmm_block *b, u32 i)
{
	hold_drop_all(c, b, i);
	lru_del(c, b, i);
	slot_unlink(c, &c->slots_clean, b->slot);
	block_set_state(c, b, KVMM_SWAPPED);
	slot_link(c, &c->slots_swapped, b->slot);
	frame_put(c, b->frame);
	b->frame = KVMM_NONE;
}

int kvmm_core_read_elsewhere(struct kvmm_core *c, u64 handle, u64 now,
			     struct kvmm_io *io)
{
	struct kvmm_block *b;
	u32 i, frame;

	b = block_get(c, handle, &i);
	if (core_bug_on(!b || b->state != KVMM_READING))
		return -ESTALE;
	kvmm_core_frame_retire(c, handle);
	frame = core_get_frame(c, now);
	if (frame == KVMM_NONE) {
		c->reading--;
		block_unread(c, b, i);
		return core_no_frame(c);
	}
	frame_put(c, b->frame);
	b->frame = frame;
	frame_at(c, frame)->block = i;
	io->frame = frame;
	return KVMM_IO_ISSUE;
}

void kvmm_core_io_late(struct kvmm_core *c, u64 handle)
{
	struct kvmm_block *b;
	u32 i;

	b = block_get(c, handle, &i);
	if (core_bug_on(!b || !block_busy(b) || block_late(b)))
		return;
	c->stat.io_timeouts++;
	c->degraded = true;
	c->late++;
	if (b->state == KVMM_READING) {
		if (!(b->flags & KVMM_B_DOOMED)) {
			block_note(c, b, i, KVMM_NOTE_UNREADABLE);
			block_kill(c, b, i, KVMM_END_LOST);
		}
		hold_drop_all(c, b, i);
	} else {
		if (b->flags & KVMM_B_EVICTING)
			block_stop_evicting(c, b, i);
		c->lru_busy += in_lru(b, i) && !b->pins;
	}
	b->flags |= KVMM_B_LATE;
}

bool kvmm_core_is_late(const struct kvmm_core *c, u64 handle)
{
	u32 i;
	struct kvmm_block *b = block_get(c, handle, &i);

	return b && block_late(b);
}

u32 kvmm_core_moving(const struct kvmm_core *c)
{
	return c->writing + c->reading - c->late;
}

/* The I/O of a late block has ended; true where it was late. */
static bool late_done(struct kvmm_core *c, struct kvmm_block *b, u32 i)
{
	if (!block_late(b))
		return false;
	c->late--;
	b->flags &= ~KVMM_B_LATE;
	if (b->state == KVMM_WRITING)
		c->lru_busy -= in_lru(b, i) && !b->pins;
	return true;
}

void kvmm_core_write_done(struct kvmm_core *c, u64 handle, int err, u32 crc)
{
	struct kvmm_block *b;
	u32 i;

	b = block_get(c, handle, &i);
	if (core_bug_on(!b || b->state != KVMM_WRITING))
		return;
	c->writing--;
	late_done(c, b, i);
	if (err) {
		/* Of the memory, not of the area. */
		c->stat.write_errors += err != -EHWPOISON;
		c->degraded |= err != -EHWPOISON;
		if (b->flags & KVMM_B_EVICTING)
			block_stop_evicting(c, b, i);
		slot_unlink(c, &c->slots_clean, b->slot);
		slot_put(c, b->slot);
		b->slot = KVMM_NONE;
		block_set_state(c, b, KVMM_RESIDENT);
		block_settle(c, b, i);
		return;
	}
	slot_at(c, b->slot)->crc = crc;
	c->stat.swap_outs++;
	c->stat.swap_out_bytes += b->length;
	block_set_state(c, b, KVMM_CLEAN);
	if (b->flags & KVMM_B_EVICTING)
		block_evicted(c, b, i);
	else
		block_settle(c, b, i);
}

void kvmm_core_read_done(struct kvmm_core *c, u64 handle, int err)
{
	struct kvmm_block *b;
	u32 i;

	b = block_get(c, handle, &i);
	if (core_bug_on(!b || b->state != KVMM_READING))
		return;
	c->reading--;
	if (late_done(c, b, i)) {
		/* Lost long ago; now frame and slot can be used again. */
		block_free(c, b, i, false, 0);
		return;
	}
	/* What was read is not what is in the frame now. */
	if ((!err || err == -EBADMSG) &&
	    frame_at(c, b->frame)->link == KVMM_FRAME_BAD)
		err = -EHWPOISON;
	if (err == -EHWPOISON && !(b->flags & KVMM_B_DOOMED)) {
		block_unread(c, b, i);
		/* Who had it pinned must not take it for pinned still. */
		b->children = 0;
		if (!++b->gen)
			b->gen = 1;
		return;
	}
	if (!err) {
		c->stat.swap_ins++;
		c->stat.swap_in_bytes += b->length;
		/* In use only for being read: it may be a victim now. */
		c->lru_busy -= in_lru(b, i) && !b->pins;
		block_set_state(c, b, KVMM_CLEAN);
		block_settle(c, b, i);
		return;
	}
	if (err == -EBADMSG)
		c->stat.checksum_errors++;
	else
		c->stat.read_errors += err != -EHWPOISON;
	/* A doomed one was lost before. */
	if (!(b->flags & KVMM_B_DOOMED))
		block_note(c, b, i, KVMM_NOTE_UNREADABLE);
	hold_drop_all(c, b, i);
	block_free(c, b, i, false, 0);
}

/* One victim; -EAGAIN: it has to wait for I/O in flight. */
static int reclaim_one(struct kvmm_core *c, struct kvmm_block *b, u32 i,
		       u64 now, struct kvmm_io *io, u32 *nr_io,
		       struct kvmm_reclaim_count *count)
{
	if (!block_live(c, b, i, now))
		return 0;
	if (b->state == KVMM_WRITING) {
		if (c->detaching)
			return -EAGAIN;
		make_evicting(c, b, i);
		return 0;
	}
	if (b->state == KVMM_CLEAN && !c->detaching) {
		block_drop_frame(c, b, i);
		count->evicted++;
		return 0;
	}
	if (!may_purge(c, b)) {
		if (!get_slot_and_write(c, b, i, true, &io[*nr_io])) {
			(*nr_io)++;
			return 0;
		}
		if (kvmm_core_moving(c))
			return -EAGAIN;
	}
	block_kill(c, b, i, KVMM_END_PURGED);
	count->purged++;
	return 0;
}

u32 kvmm_core_reclaim(struct kvmm_core *c, u32 keep, u64 now,
		      struct kvmm_io *io, u32 n,
		      struct kvmm_reclaim_count *count)
{
	u32 pos = c->lru.tail, budget = lru_budget(c);
	u32 nr_io = 0, left = KVMM_CORE_BATCH, i;

	count->more = false;
	while (nr_io < n && left &&
	       kvmm_core_frames_used(c) - c->evicting > keep) {
		i = lru_next_victim(c, &pos, &budget);
		if (i == KVMM_NONE) {
			/*
			 * Pinned blocks that were met are at the young end
			 * now: another call meets others, if there are any.
			 */
			count->more = !budget &&
				c->lru.count > c->lru_busy;
			return nr_io;
		}
		left--;
		if (reclaim_one(c, block_at(c, i), i, now, io, &nr_io, count))
			return nr_io;
	}
	count->more = kvmm_core_frames_used(c) - c->evicting > keep;
	return nr_io;
}
