// SPDX-License-Identifier: MIT
/*
 * Compares the pool and the model: counters after every command, everything
 * else every now and then.
 */
#include "sim.h"

#include "core/internal.h"

static void gauges(struct sim *s, struct kvmm_pool_stat *st)
{
	u32 i;

	*st = s->st;
	st->epoch = s->epoch;
	st->block_size = SIM_BLOCK_SIZE;
	st->nr_frames = s->nr_frames;
	st->nr_elastic = s->nr_elastic;
	st->nr_slots = s->nr_slots;
	st->degraded = s->degraded;
	st->slots_free = m_free_slots(s);
	for (i = 1; i <= SIM_CLIENTS; i++)
		st->nr_clients += s->client[i];
	for (i = 0; i < s->nr_frames; i++) {
		st->frames_online += m_online(s, i);
		st->frames_free += s->frame[i] == M_UNUSED;
		st->frames_quarantined += s->frame[i] == M_RESTING;
	}
	for (i = 0; i < s->c.nr_blocks; i++) {
		u32 pins = m_pins(&s->block[i]);

		st->blocks[s->block[i].used ? s->block[i].state : KVMM_FREE]++;
		st->pins += pins;
		st->blocks_pinned += !!pins;
	}
}

void sim_compare(struct sim *s)
{
	struct kvmm_pool_stat a, b;
	u32 k;

	sim_compare_notes(s);
	memset(&a, 0, sizeof(a));
	kvmm_core_stat(&s->c, &a);
	gauges(s, &b);
	s->ops++;
	if (!memcmp(&a, &b, sizeof(a)))
		return;
	for (k = 0; k < sizeof(a) / 4; k++)
		if (((u32 *)&a)[k] != ((u32 *)&b)[k])
			break;
	sim_fail(s, "counters differ at byte %u of struct kvmm_pool_stat: core %u, model %u",
		 k * 4, ((u32 *)&a)[k], ((u32 *)&b)[k]);
}

static void compare_block(struct sim *s, u32 i)
{
	const struct kvmm_block *b = block_at(&s->c, i);
	const struct m_block *m = &s->block[i];

	if (i >= s->c.next_block || b->state == KVMM_FREE) {
		sim_assert(s, !m->used);
		return;
	}
	sim_assert(s, m->used);
	sim_assert(s, m->handle == handle_of(b, i));
	sim_assert(s, m->state == b->state);
	sim_assert(s, m->frame == b->frame);
	sim_assert(s, m->slot == b->slot);
	sim_assert(s, m_pins(m) == b->pins);
	sim_assert(s, m->evicting == !!(b->flags & KVMM_B_EVICTING));
	sim_assert(s, m->doomed == !!(b->flags & KVMM_B_DOOMED));
	sim_assert(s, m->keyed == !!(b->flags & KVMM_B_KEYED));
	sim_assert(s, m->late == block_late(b));
	if (m->keyed) {
		sim_assert(s, m->id == sim_id(b->key));
		sim_assert(s, m->touched == b->touched);
		sim_assert(s, m->uses == b->uses);
	}
}

/* No block may have bytes that are not its own. */
static void check_data(struct sim *s)
{
	u32 i;

	for (i = 0; i < SIM_BLOCKS; i++) {
		const struct m_block *b = &s->block[i];

		if (!b->used || !b->keyed)
			continue;
		if (b->frame != KVMM_NONE && b->state != KVMM_READING)
			sim_assert(s, s->frame[b->frame] == M_USED &&
				   s->frame_data[b->frame] == b->id);
		if (b->slot != KVMM_NONE && b->state != KVMM_WRITING)
			sim_assert(s, s->slot_data[b->slot] == b->id);
	}
}

/* Handle of the block that has the frame, or 0. */
static u64 block_of(const struct sim *s, u32 frame)
{
	u32 i;

	for (i = 0; i < SIM_BLOCKS; i++)
		if (s->block[i].used && s->block[i].frame == frame)
			return s->block[i].handle;
	return 0;
}

static void compare_orders(struct sim *s)
{
	const struct kvmm_list *l = &s->c.lru;
	u32 i, k = 0;

	for (i = l->head; i != KVMM_NONE; i = block_at(&s->c, i)->lru_next) {
		sim_assert(s, k < s->mem.n);
		if (s->mem.at[k] != i)
			sim_fail(s, "order of memory differs at %u: core has block %u, model %u",
				 k, i, s->mem.at[k]);
		k++;
	}
	sim_assert(s, k == s->mem.n);
	k = 0;
	for (i = s->c.slots_swapped.head; i != KVMM_NONE;
	     i = slot_at(&s->c, i)->next) {
		sim_assert(s, k < s->swp.n);
		if (s->swp.at[k] != slot_at(&s->c, i)->block)
			sim_fail(s, "order of the area differs at %u: core has block %u, model %u",
				 k, slot_at(&s->c, i)->block, s->swp.at[k]);
		k++;
	}
	sim_assert(s, k == s->swp.n);
}

/* What a host would wait for. */
static void compare_late(struct sim *s)
{
	u32 i, late = 0;

	for (i = 0; i < SIM_BLOCKS; i++)
		late += s->block[i].used && s->block[i].late;
	sim_assert(s, kvmm_core_moving(&s->c) == s->nr_io - late);
}

void sim_compare_all(struct sim *s)
{
	const char *wrong = kvmm_core_check(&s->c);
	u32 i;

	if (wrong)
		sim_fail(s, "kvmm_core_check: %s", wrong);
	for (i = 0; i < s->c.nr_blocks; i++)
		compare_block(s, i);
	for (i = 0; i < s->nr_frames; i++) {
		sim_assert(s, kvmm_core_frame_is_online(&s->c, i) ==
			   (s->frame[i] != M_OFFLINE));
		sim_assert(s, kvmm_core_frame_retired(&s->c, i) ==
			   (s->frame[i] == M_BAD || s->frame[i] == M_GONE));
		sim_assert(s, kvmm_core_frame_block(&s->c, i) ==
			   block_of(s, i));
	}
	sim_assert(s, kvmm_core_frames_used(&s->c) == m_used_frames(s));
	compare_orders(s);
	check_data(s);
	compare_late(s);
}
