// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Frames: pieces of the arena.  Offline, free, in use by a block, or resting
 * in quarantine after the client that was filling them died: a device may
 * still be writing into those.  Free ones are in a list, or, where they may go
 * offline again, in a set (elastic.c).  One whose memory is broken is never used
 * again.
 */
#include "internal.h"

u32 kvmm_core_frames_online(struct kvmm_core *c, u32 first, u32 count)
{
	u32 k, n = 0;

	if (count > KVMM_CORE_BATCH || first >= c->cfg.nr_frames ||
	    count > c->cfg.nr_frames - first)
		return 0;
	/* Backwards, so that the lowest is taken first. */
	for (k = count; k-- > 0;) {
		struct kvmm_frame *f = frame_at(c, first + k);

		if (f->link != KVMM_FRAME_OFFLINE)
			continue;
		n++;
		if (first + k >= c->first_elastic) {
			elastic_put(c, first + k);
			c->elastic_online++;
			continue;
		}
		f->link = c->free_frame;
		c->free_frame = first + k;
	}
	c->frames_online += n;
	c->frames_free += n;
	return n;
}

bool kvmm_core_frame_is_online(const struct kvmm_core *c, u32 frame)
{
	return frame < c->cfg.nr_frames &&
	       frame_at(c, frame)->link != KVMM_FRAME_OFFLINE;
}

u32 kvmm_core_frames_used(const struct kvmm_core *c)
{
	return c->frames_online - c->frames_free - c->frames_quarantined;
}

int kvmm_core_frame_retire(struct kvmm_core *c, u64 handle)
{
	struct kvmm_block *b;
	struct kvmm_frame *f;
	u32 i;

	b = block_get(c, handle, &i);
	if (!b || b->frame == KVMM_NONE)
		return -ESTALE;
	f = frame_at(c, b->frame);
	if (f->link == KVMM_FRAME_BAD)
		return 0;
	f->link = KVMM_FRAME_BAD;
	c->stat.frames_poisoned++;
	/* What is being read is in its slot still: see kvmm_core_read_done(). */
	if ((b->flags & KVMM_B_DOOMED) || b->state == KVMM_READING)
		return 0;
	if (b->state == KVMM_CLEAN && !b->pins && !c->detaching) {
		block_drop_frame(c, b, i);
		return 0;
	}
	if (b->state != KVMM_FILLING)
		block_note(c, b, i, KVMM_NOTE_UNREADABLE);
	block_kill(c, b, i, KVMM_END_LOST);
	return 0;
}

u64 kvmm_core_frame_block(const struct kvmm_core *c, u32 frame)
{
	const struct kvmm_frame *f;

	if (frame >= c->cfg.nr_frames)
		return 0;
	f = frame_at(c, frame);
	if (f->link != KVMM_FRAME_USED && f->link != KVMM_FRAME_BAD)
		return 0;
	return handle_of(block_at(c, f->block), f->block);
}

bool kvmm_core_frame_retired(const struct kvmm_core *c, u32 frame)
{
	u32 link = frame_at(c, frame)->link;

	return link == KVMM_FRAME_BAD || link == KVMM_FRAME_GONE;
}

void frame_bury(struct kvmm_core *c, u32 frame)
{
	frame_at(c, frame)->link = KVMM_FRAME_GONE;
	c->frames_online--;
	if (frame >= c->first_elastic)
		c->elastic_online--;
}

void frame_quarantine(struct kvmm_core *c, u32 frame, u64 now)
{
	struct kvmm_frame *f = frame_at(c, frame);

	if (!c->cfg.quarantine_ms || f->link == KVMM_FRAME_BAD) {
		frame_put(c, frame);
		return;
	}
	core_bug_on(f->link != KVMM_FRAME_USED);
	f->link = KVMM_NONE;
	f->due = (u32)now + c->cfg.quarantine_ms;
	if (c->quarantine_tail == KVMM_NONE)
		c->quarantine = frame;
	else
		frame_at(c, c->quarantine_tail)->link = frame;
	c->quarantine_tail = frame;
	c->frames_quarantined++;
}

bool quarantine_release(struct kvmm_core *c, u64 now)
{
	u32 frame = c->quarantine;
	struct kvmm_frame *f;

	if (frame == KVMM_NONE)
		return false;
	f = frame_at(c, frame);
	/*
	 * Due times wrap, and nobody may have looked for long: it rests while
	 * what is left is 1 to quarantine_ms.
	 */
	if (f->due - (u32)now - 1 < c->cfg.quarantine_ms)
		return false;
	c->quarantine = f->link;
	if (c->quarantine == KVMM_NONE)
		c->quarantine_tail = KVMM_NONE;
	c->frames_quarantined--;
	f->link = KVMM_FRAME_USED;
	frame_put(c, frame);
	return true;
}
