// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Is everything in a pool consistent.  Walks all of it: for tests.
 */
#include "internal.h"

#define CHECK(cond) do { if (!(cond)) return #cond; } while (0)

struct tally {
	u32 state[KVMM_NR_STATES];
	u32 in_lru, lru_busy, keyed, pinned, evicting, late, clean_busy;
	u32 frames, clean, swapped;
	u64 pins;
};

static const char *check_pins(const struct kvmm_core *c,
			      const struct kvmm_block *b, u32 i, struct tally *t)
{
	u64 sum = b->hold.client ? b->hold.count : 0;
	u32 extra = 0, x;

	CHECK(!b->hold.client || b->hold.count);
	for (x = *hold_bucket_at(c, i); x != KVMM_NONE;
	     x = extra_at(c, x)->hash_next) {
		if (extra_at(c, x)->block != i)
			continue;
		CHECK(extra_at(c, x)->hold.count);
		sum += extra_at(c, x)->hold.count;
		extra++;
	}
	CHECK(!!extra == !!(b->flags & KVMM_B_SHARED));
	CHECK(sum == b->pins);
	t->pins += sum;
	t->pinned += !!sum;
	return NULL;
}

static const char *check_block(const struct kvmm_core *c, u32 i,
			       struct tally *t)
{
	const struct kvmm_block *b = block_at(c, i);
	bool frame = b->frame != KVMM_NONE, slot = b->slot != KVMM_NONE;
	const char *err;

	CHECK(b->gen && b->state < KVMM_NR_STATES);
	t->state[b->state]++;
	if (b->state == KVMM_FREE) {
		CHECK(!b->pins && !b->flags && !b->hold.client);
		return NULL;
	}
	CHECK(frame == (b->state != KVMM_SWAPPED));
	CHECK(slot == (b->state >= KVMM_WRITING));
	CHECK(!frame || frame_at(c, b->frame)->block == i);
	if (frame && frame_at(c, b->frame)->link == KVMM_FRAME_BAD)
		CHECK((b->flags & KVMM_B_DOOMED) || b->state == KVMM_READING);
	else
		CHECK(!frame || frame_at(c, b->frame)->link == KVMM_FRAME_USED);
	CHECK(!slot || slot_at(c, b->slot)->block == i);
	err = check_pins(c, b, i, t);
	if (err)
		return err;
	CHECK(b->state != KVMM_SWAPPED || !b->pins);
	CHECK(b->state != KVMM_FILLING || b->pins);
	/* Doomed blocks are held by something and can't be found. */
	if (b->flags & KVMM_B_DOOMED) {
		CHECK(b->pins || block_busy(b));
		CHECK(!(b->flags & (KVMM_B_KEYED | KVMM_B_EVICTING)));
		CHECK(!in_lru(b, i));
	} else if (b->state != KVMM_FILLING) {
		CHECK(b->flags & KVMM_B_KEYED);
		CHECK(index_find(c, b->key, index_hash(c, b->key),
				 KVMM_NONE) == i);
		CHECK(in_lru(b, i) == (b->state != KVMM_SWAPPED &&
				       !(b->flags & KVMM_B_EVICTING)));
	}
	if (b->flags & KVMM_B_EVICTING) {
		CHECK(b->state == KVMM_WRITING && !b->pins);
		t->evicting++;
	}
	/* Late reads are lost; late writes stay in memory. */
	if (block_late(b)) {
		CHECK(b->state == KVMM_READING ?
		      (b->flags & KVMM_B_DOOMED) && !b->pins :
		      !(b->flags & KVMM_B_EVICTING));
		t->late++;
	} else {
		CHECK(b->state == KVMM_FILLING || !(b->flags & KVMM_B_LATE));
	}
	t->frames += frame;
	t->keyed += !!(b->flags & KVMM_B_KEYED);
	t->in_lru += in_lru(b, i);
	t->lru_busy += in_lru(b, i) && block_in_use(b);
	t->clean_busy += b->state == KVMM_CLEAN && b->pins;
	if (b->state == KVMM_SWAPPED || (b->flags & KVMM_B_EVICTING))
		t->swapped++;
	else
		t->clean += slot;
	return NULL;
}

static const char *check_lru(const struct kvmm_core *c)
{
	u32 i, prev = KVMM_NONE, n = 0;

	for (i = c->lru.head; i != KVMM_NONE; i = block_at(c, i)->lru_next) {
		CHECK(i < c->next_block && n++ < c->lru.count);
		CHECK(block_at(c, i)->lru_prev == prev);
		prev = i;
	}
	CHECK(c->lru.tail == prev && n == c->lru.count);
	CHECK(c->clean_at == KVMM_NONE ||
	      (c->clean_at < c->next_block &&
	       in_lru(block_at(c, c->clean_at), c->clean_at)));
	return NULL;
}

static const char *check_slots(const struct kvmm_core *c,
			       const struct kvmm_list *l)
{
	u32 i, prev = KVMM_NONE, n = 0;

	for (i = l->head; i != KVMM_NONE; i = slot_at(c, i)->next) {
		CHECK(i < c->next_slot && n++ < l->count);
		CHECK(slot_at(c, i)->prev == prev);
		CHECK(slot_at(c, i)->block < c->next_block);
		CHECK(block_at(c, slot_at(c, i)->block)->slot == i);
		prev = i;
	}
	CHECK(l->tail == prev && n == l->count);
	return NULL;
}

static const char *check_index(const struct kvmm_core *c, const struct tally *t)
{
	u32 at, k, n = 0;

	for (at = 0; at < c->nr_buckets; at++) {
		const struct kvmm_index_bucket *b = bucket_at(c, at);

		CHECK(b->tags >> 56 <= KVMM_BUCKET);
		for (k = 0; k < b->tags >> 56; k++) {
			const struct kvmm_index_entry *e = &b->entry[k];

			CHECK((u8)(b->tags >> 8 * k) == (u8)e->hash);
			CHECK(e->block < c->next_block);
			CHECK(block_at(c, e->block)->flags & KVMM_B_KEYED);
			CHECK(index_hash(c, block_at(c, e->block)->key) ==
			      e->hash);
			n++;
		}
	}
	CHECK(n == t->keyed);
	return NULL;
}

/* Elastic frames: the sets agree with the frames, on every level. */
static const char *check_elastic(const struct kvmm_core *c, u32 *spare)
{
	u32 unit = 1U << c->unit_shift, nr = c->cfg.nr_elastic;
	u32 e, k, free, online = 0;

	*spare = 0;
	for (e = 0; e < nr; e += unit) {
		for (free = 0, k = 0; k < unit; k++) {
			u32 link = frame_at(c, c->first_elastic + e + k)->link;

			CHECK(bits_test(&c->spare, e + k) ==
			      (link == KVMM_FRAME_SPARE));
			free += link == KVMM_FRAME_SPARE;
			online += link != KVMM_FRAME_OFFLINE &&
				  link != KVMM_FRAME_GONE;
		}
		CHECK(bits_test(&c->spare_units, e >> c->unit_shift) ==
		      (free == unit));
		*spare += free;
	}
	CHECK(*spare == c->elastic_free && online == c->elastic_online);
	/* going from one to the next finds each, so no level lacks any */
	for (free = 0, e = nr; nr && (e = bits_last(&c->spare, e)) != KVMM_NONE;)
		free++;
	CHECK(free == *spare);
	return NULL;
}

static const char *check_free(const struct kvmm_core *c, const struct tally *t)
{
	const char *err;
	u32 i, n = 0, spare;

	for (i = c->free_block; i != KVMM_NONE; i = block_at(c, i)->link)
		CHECK(block_at(c, i)->state == KVMM_FREE &&
		      n++ < t->state[KVMM_FREE]);
	CHECK(n == t->state[KVMM_FREE]);
	err = check_elastic(c, &spare);
	if (err)
		return err;
	for (n = spare, i = c->free_frame; i != KVMM_NONE;
	     i = frame_at(c, i)->link)
		CHECK(i < c->first_elastic && n++ < c->frames_free);
	CHECK(n == c->frames_free);
	for (n = 0, i = c->quarantine; i != KVMM_NONE; i = frame_at(c, i)->link)
		CHECK(n++ < c->frames_quarantined);
	CHECK(n == c->frames_quarantined);
	for (n = 0, i = 0; i < c->cfg.nr_frames; i++)
		n += frame_at(c, i)->link != KVMM_FRAME_OFFLINE &&
		     frame_at(c, i)->link != KVMM_FRAME_GONE;
	CHECK(n == c->frames_online);
	CHECK(t->frames + c->frames_free + c->frames_quarantined == n);
	for (n = c->nr_slots - c->next_slot, i = c->free_slot;
	     i != KVMM_NONE; i = slot_at(c, i)->next)
		CHECK(slot_at(c, i)->block == KVMM_NONE && n++ < c->slots_free);
	CHECK(!c->nr_slots || n == c->slots_free);
	CHECK(t->clean + t->swapped + c->slots_free == c->nr_slots);
	return NULL;
}

static const char *check_clients(const struct kvmm_core *c)
{
	u32 id, used = 0, extra = 0, free = 0, h, n;
	u64 pins = 0;

	for (id = 1; id <= c->cfg.max_clients; id++) {
		const struct kvmm_core_client *cl = client_at(c, id);

		if (!cl->used)
			continue;
		used++;
		n = 0;
		for (h = cl->head; h != KVMM_NONE;) {
			const struct kvmm_hold *hold = h < c->nr_blocks ?
				&block_at(c, h)->hold :
				&extra_at(c, h - c->nr_blocks)->hold;

			CHECK(hold->client == id && hold->count);
			CHECK(n++ < cl->nr);
			extra += h >= c->nr_blocks;
			pins += hold->count;
			h = hold->next;
		}
		CHECK(n == cl->nr);
	}
	CHECK(used == c->nr_clients && pins == c->pins);
	for (h = c->free_hold; h != KVMM_NONE; h = extra_at(c, h)->hash_next)
		CHECK(free++ < c->cfg.nr_holds);
	CHECK(extra + free == c->cfg.nr_holds);
	return NULL;
}

const char *kvmm_core_check(const struct kvmm_core *c)
{
	struct tally t = { 0 };
	const char *err = NULL;
	u32 i;

	for (i = 0; i < c->next_block && !err; i++)
		err = check_block(c, i, &t);
	if (err)
		return err;
	for (i = KVMM_FILLING; i < KVMM_NR_STATES; i++)
		CHECK(t.state[i] == c->state_count[i]);
	CHECK(t.in_lru == c->lru.count && t.lru_busy == c->lru_busy);
	CHECK(t.pins == c->pins && t.pinned == c->blocks_pinned);
	CHECK(t.evicting == c->evicting && t.clean_busy == c->clean_busy);
	CHECK(t.clean == c->slots_clean.count);
	CHECK(t.swapped == c->slots_swapped.count);
	CHECK(c->writing == c->state_count[KVMM_WRITING]);
	CHECK(c->reading == c->state_count[KVMM_READING]);
	CHECK(c->late == t.late && (!t.late || c->degraded));
	err = check_lru(c);
	err = err ? err : check_slots(c, &c->slots_clean);
	err = err ? err : check_slots(c, &c->slots_swapped);
	err = err ? err : check_index(c, &t);
	err = err ? err : check_free(c, &t);
	return err ? err : check_clients(c);
}
