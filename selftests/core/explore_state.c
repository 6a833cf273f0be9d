// SPDX-License-Identifier: MIT
/*
 * What makes a state of a pool.  Two are the same if they differ only in
 * generations, counters, checksums and the time of day: what comes after them
 * is the same too.
 */
#include "explore.h"

#include "core/internal.h"

struct hash {
	u64 h;
};

static void mix(struct hash *x, u64 v)
{
	x->h = (x->h ^ v) * 0x9e3779b97f4a7c15ULL;
	x->h ^= x->h >> 29;
}

static u64 age(const struct sim *s, u64 since, u64 most)
{
	u64 d = s->now - since;

	return d < most ? d : most;
}

/*
 * How many blocks were used before @b: what is read back is put in the order by
 * that, and slots are taken by it.  Only the order counts, not the times: that,
 * and whether what is used next is used later.
 */
static u32 older(const struct sim *s, const struct m_block *b)
{
	u32 i, n = 0;

	for (i = 0; i < SIM_BLOCKS; i++)
		n += s->block[i].used && s->block[i].keyed &&
			s->block[i].touched < b->touched;
	return n;
}

static void hash_block(struct hash *x, const struct sim *s, u32 i)
{
	const struct m_block *b = &s->block[i];
	u32 k, p;

	mix(x, b->used);
	if (!b->used)
		return;
	mix(x, b->doomed | b->keyed << 1 | b->evicting << 2 | b->child << 3 |
	    b->orphan << 4 | b->state << 5 | b->late << 8 | b->nr_parts << 9);
	mix(x, (u64)b->frame << 32 | b->slot);
	mix(x, b->state == KVMM_FILLING && !b->parts ? 0 : b->id);
	mix(x, b->parts << 8 | b->position);
	if (b->keyed)
		mix(x, older(s, b) << 1 | age(s, b->touched, 1));
	mix(x, b->epoch == s->epoch);
	for (k = 1; k <= SIM_CLIENTS; k++)
		mix(x, b->pins[k] << 1 | b->extra[k]);
	if (b->ttl && b->state != KVMM_FILLING)
		mix(x, 1 + age(s, b->touched, b->ttl));
	if (b->orphan && b->state == KVMM_FILLING)
		mix(x, 1 + age(s, b->died, TICK));
	for (p = 0; p < SIM_BLOCKS; p++)
		mix(x, s->block[p].used && b->parent == s->block[p].handle);
}

static void hash_order(struct hash *x, const struct m_order *o)
{
	u32 k;

	mix(x, o->n);
	for (k = 0; k < o->n; k++)
		mix(x, o->at[k]);
}

/* Lists whose order is the core's own choice, but decides what comes next. */
static void hash_lists(struct hash *x, const struct kvmm_core *c)
{
	u32 i;

	mix(x, c->next_block << 8 | c->next_slot);
	for (i = c->free_block; i != KVMM_NONE; i = block_at(c, i)->link)
		mix(x, i + 1);
	mix(x, 100);
	for (i = c->free_frame; i != KVMM_NONE; i = frame_at(c, i)->link)
		mix(x, i + 1);
	mix(x, 100);
	if (c->nr_slots)
		for (i = c->free_slot; i != KVMM_NONE; i = slot_at(c, i)->next)
			mix(x, i + 1);
	mix(x, 100 + c->clean_at);
	for (i = c->slots_clean.head; i != KVMM_NONE; i = slot_at(c, i)->next)
		mix(x, i + 1);
}

u64 hash_state(const struct sim *s)
{
	struct hash x = { 1 };
	u32 i;

	for (i = 0; i < s->c.nr_blocks; i++)
		hash_block(&x, s, i);
	hash_order(&x, &s->mem);
	hash_order(&x, &s->swp);
	hash_order(&x, &s->rest);
	hash_lists(&x, &s->c);
	for (i = 0; i < s->nr_frames; i++) {
		mix(&x, s->frame[i]);
		if (s->frame[i] == M_RESTING)
			mix(&x, s->now >= s->due[i] ? 0 : s->due[i] - s->now);
	}
	for (i = 1; i <= SIM_CLIENTS; i++)
		mix(&x, s->client[i]);
	mix(&x, s->nr_slots | s->degraded << 8 | s->detaching << 9);
	/* how many more may break */
	mix(&x, s->st.frames_poisoned);
	return x.h ? x.h : 1;
}
