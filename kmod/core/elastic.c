// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Elastic frames: the last ones of the arena, that may lose their memory again
 * when the system is short of it.
 *
 * Memory comes and goes in units, the frames of one huge page.  So free frames
 * should lie together: the others are handed out first, and of these the
 * lowest.  They are in a set, from which any can be taken out.
 */
#include "internal.h"

#define CHUNK_BYTES	(64U << 20)

void elastic_put(struct kvmm_core *c, u32 frame)
{
	u32 e = frame - c->first_elastic, unit = e >> c->unit_shift;

	frame_at(c, frame)->link = KVMM_FRAME_SPARE;
	c->elastic_free++;
	bits_set(&c->spare, e);
	if (bits_all(&c->spare, unit << c->unit_shift, c->unit_shift))
		bits_set(&c->spare_units, unit);
}

static void spare_del(struct kvmm_core *c, u32 e, u32 link)
{
	bits_clear(&c->spare, e);
	if (bits_test(&c->spare_units, e >> c->unit_shift))
		bits_clear(&c->spare_units, e >> c->unit_shift);
	frame_at(c, c->first_elastic + e)->link = link;
	c->elastic_free--;
}

u32 elastic_take(struct kvmm_core *c)
{
	u32 e = bits_first(&c->spare);

	if (core_bug_on(e == KVMM_NONE))
		return KVMM_NONE;
	spare_del(c, e, KVMM_FRAME_USED);
	return c->first_elastic + e;
}

/* Could its block do without memory. */
static bool block_may_go(const struct kvmm_core *c, const struct kvmm_block *b,
			 u32 flags, u64 now)
{
	if (b->pins || block_busy(b))
		return false;
	if (block_outdated(c, b, now) || may_purge(c, b))
		return true;
	if (b->state == KVMM_CLEAN && !c->detaching)
		return true;
	return (flags & KVMM_OFFLINE_HARD) &&
	       (b->flags & KVMM_BLOCK_RECOMPUTABLE);
}

static bool frame_may_go(const struct kvmm_core *c, u32 frame, u32 flags,
			 u64 now)
{
	const struct kvmm_frame *f = frame_at(c, frame);

	switch (f->link) {
	case KVMM_FRAME_OFFLINE:
	case KVMM_FRAME_SPARE:
		return true;
	case KVMM_FRAME_USED:
		return block_may_go(c, block_at(c, f->block), flags, now);
	default:
		return false;	/* in quarantine */
	}
}

static void block_go(struct kvmm_core *c, u32 i, u64 now,
		     struct kvmm_reclaim_count *done)
{
	struct kvmm_block *b = block_at(c, i);

	if (!block_live(c, b, i, now))
		return;
	if (b->state == KVMM_CLEAN && !c->detaching) {
		block_drop_frame(c, b, i);
		done->evicted++;
	} else {
		block_kill(c, b, i, KVMM_END_PURGED);
		done->purged++;
	}
}

int kvmm_core_frames_offline(struct kvmm_core *c, u32 first, u32 count,
			     u32 flags, u64 now,
			     struct kvmm_reclaim_count *done)
{
	u32 k;
	int n = 0;

	if (count > KVMM_CORE_BATCH || first < c->first_elastic ||
	    first >= c->cfg.nr_frames || count > c->cfg.nr_frames - first)
		return -EINVAL;
	for (k = 0; k < count; k++) {
		if (!frame_may_go(c, first + k, flags, now))
			return -EBUSY;
		n += kvmm_core_frame_is_online(c, first + k);
	}
	if (flags & KVMM_OFFLINE_TRY)
		return n;
	for (k = 0; k < count; k++) {
		const struct kvmm_frame *f = frame_at(c, first + k);

		if (f->link == KVMM_FRAME_OFFLINE)
			continue;
		if (f->link == KVMM_FRAME_USED)
			block_go(c, f->block, now, done);
		if (core_bug_on(f->link != KVMM_FRAME_SPARE))
			return -EBUSY;
		spare_del(c, first + k - c->first_elastic, KVMM_FRAME_OFFLINE);
		c->frames_free--;
		c->frames_online--;
		c->elastic_online--;
	}
	return n;
}

u32 kvmm_core_free_unit(const struct kvmm_core *c, u32 below)
{
	u32 unit;

	if (below <= c->first_elastic || below > c->cfg.nr_frames)
		return KVMM_NONE;
	unit = bits_last(&c->spare_units,
			 (below - c->first_elastic) >> c->unit_shift);
	if (unit == KVMM_NONE)
		return KVMM_NONE;
	return c->first_elastic + (unit << c->unit_shift);
}

u32 kvmm_core_cold_frame(const struct kvmm_core *c, u32 flags, u64 now,
			 u64 *cursor)
{
	u32 i = lru_anchor(c, *cursor), k;

	if (i == KVMM_NONE)
		i = c->lru.tail;
	for (k = 0; k < KVMM_SCAN_MAX && i != KVMM_NONE; k++) {
		const struct kvmm_block *b = block_at(c, i);

		i = b->lru_prev;
		*cursor = i != KVMM_NONE ? handle_of(block_at(c, i), i) : 0;
		if (b->frame >= c->first_elastic &&
		    block_may_go(c, b, flags, now))
			return b->frame;
	}
	if (i == KVMM_NONE)
		*cursor = 0;
	return KVMM_NONE;
}

u32 kvmm_core_chunk_frames(u32 block_size, u32 huge, u32 nr_frames,
			   u32 nr_elastic, u32 want)
{
	u32 least = block_size < huge ? huge / block_size : 1;
	u32 chunk = want;

	if (!want) {
		chunk = block_size < CHUNK_BYTES ? CHUNK_BYTES / block_size : 1;
		if (chunk < least)
			chunk = least;
		/* Not more than there is; and frames are whole chunks. */
		while (chunk > least &&
		       (nr_elastic ? (nr_frames | nr_elastic) & (chunk - 1) :
				     chunk / 2 >= nr_frames))
			chunk /= 2;
	}
	if (chunk < least || chunk & (chunk - 1) || chunk > KVMM_MAX_BLOCKS)
		return 0;
	if (nr_elastic &&
	    (nr_elastic > nr_frames ||
	     (nr_frames | nr_elastic) & (chunk - 1)))
		return 0;
	return chunk;
}
