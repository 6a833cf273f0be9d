// SPDX-License-Identifier: MIT
/*
 * Frames that go offline again, given to the pool and to the model; see sim.h.
 */
#include "sim.h"

static u32 floor_of(const struct sim *s)
{
	return s->nr_frames - s->nr_elastic;
}

static struct m_block *block_in(struct sim *s, u32 frame)
{
	u32 i;

	for (i = 0; i < SIM_BLOCKS; i++)
		if (s->block[i].used && s->block[i].frame == frame)
			return &s->block[i];
	return NULL;
}

static bool is_late(const struct sim *s, const struct m_block *b)
{
	return b->epoch != s->epoch ||
		(b->ttl && b->state != KVMM_FILLING &&
		 s->now >= b->touched + b->ttl);
}

/* Could the frame do without its block. */
static bool may_go(const struct sim *s, const struct m_block *b, u32 flags)
{
	if (m_pins(b) || (b->state != KVMM_RESIDENT && b->state != KVMM_CLEAN))
		return false;
	return is_late(s, b) || m_may_purge(s, b) ||
		(b->state == KVMM_CLEAN && !s->detaching) ||
		((flags & KVMM_OFFLINE_HARD) &&
		 (b->flags & KVMM_BLOCK_RECOMPUTABLE));
}

static int want_offline(struct sim *s, u32 first, u32 n, u32 flags)
{
	struct m_block *b;
	u32 f, sum = 0;

	if (first < floor_of(s) || first >= s->nr_frames ||
	    n > s->nr_frames - first)
		return -EINVAL;
	for (f = first; f < first + n; f++) {
		b = s->frame[f] == M_USED ? block_in(s, f) : NULL;
		if (s->frame[f] == M_RESTING || s->frame[f] == M_BAD ||
		    s->frame[f] == M_GONE || (b && !may_go(s, b, flags)))
			return -EBUSY;
		sum += s->frame[f] != M_OFFLINE;
	}
	return (int)sum;
}

int sim_frames_offline(struct sim *s, u32 first, u32 n, u32 flags)
{
	struct kvmm_reclaim_count got = { 0 }, want = { 0 };
	struct m_block *b;
	int ret, must;
	u32 f;

	s->what = "frames_offline";
	must = want_offline(s, first, n, flags);
	ret = kvmm_core_frames_offline(&s->c, first, n, flags, s->now, &got);
	sim_assert(s, ret == must);
	for (f = first; ret >= 0 && !(flags & KVMM_OFFLINE_TRY) &&
	     f < first + n; f++) {
		b = s->frame[f] == M_USED ? block_in(s, f) : NULL;
		if (b && m_live(s, b)) {
			if (b->state == KVMM_CLEAN && !s->detaching) {
				m_drop_frame(s, b);
				want.evicted++;
			} else {
				m_kill(s, b, &s->st.purged);
				want.purged++;
			}
		}
		sim_assert(s, s->frame[f] == M_UNUSED ||
			   s->frame[f] == M_OFFLINE);
		s->frame[f] = M_OFFLINE;
		s->frame_data[f] = SIM_JUNK;
	}
	sim_assert(s, got.evicted == want.evicted);
	sim_assert(s, got.purged == want.purged);
	sim_compare(s);
	return ret;
}

void sim_free_unit(struct sim *s, u32 below)
{
	u32 unit, k, want = KVMM_NONE;

	s->what = "free_unit";
	for (unit = floor_of(s); below <= s->nr_frames && unit < s->nr_frames &&
	     unit + s->unit <= below; unit += s->unit) {
		for (k = 0; k < s->unit; k++)
			if (s->frame[unit + k] != M_UNUSED)
				break;
		if (k == s->unit)
			want = unit;
	}
	sim_assert(s, kvmm_core_free_unit(&s->c, below) == want);
	sim_compare(s);
}

/* All of them, one after the other: coldest first, each once, none left out. */
void sim_cold_frames(struct sim *s, u32 flags)
{
	u64 cursor = 0;
	u32 k = s->mem.n, f;

	s->what = "cold_frame";
	do {
		f = kvmm_core_cold_frame(&s->c, flags, s->now, &cursor);
		while (k-- > 0) {
			const struct m_block *b = &s->block[s->mem.at[k]];

			if (b->frame >= floor_of(s) && may_go(s, b, flags))
				break;
		}
		if (f == KVMM_NONE) {
			sim_assert(s, k == KVMM_NONE && !cursor);
			break;
		}
		sim_assert(s, k != KVMM_NONE);
		sim_assert(s, s->block[s->mem.at[k]].frame == f);
		/* a block that is gone: from the start */
		if (cursor && s->ops % 64 == 0) {
			cursor = 1ULL << 63;
			k = s->mem.n;
			s->ops++;
		}
	} while (cursor);
	if (f != KVMM_NONE)
		while (k-- > 0) {
			const struct m_block *b = &s->block[s->mem.at[k]];

			sim_assert(s, b->frame < floor_of(s) ||
				   !may_go(s, b, flags));
		}
	sim_compare(s);
}
