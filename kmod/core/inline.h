/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The steps that every block takes many times in its life: states, its place
 * in the order, frames, pins.  Inline, each with the usual case first, since
 * alloc, publish, lookup and unpin are hardly more than these.  Included by
 * internal.h only.
 */
#ifndef KVMM_CORE_INLINE_H
#define KVMM_CORE_INLINE_H

/* ---- states (block.c) ---- */

/* Bit T of entry F: F to T is legal. */
extern const u8 core_transitions[KVMM_NR_STATES];

static inline void block_set_state(struct kvmm_core *c, struct kvmm_block *b,
				   u32 to)
{
	core_bug_on(!(core_transitions[b->state] >> to & 1));
	if (b->pins)
		c->clean_busy += (to == KVMM_CLEAN) - (b->state == KVMM_CLEAN);
	c->state_count[b->state]--;
	c->state_count[to]++;
	b->state = (u8)to;
}

/* Frees it if nothing keeps it: after a pin or an I/O has ended. */
void block_settle_idle(struct kvmm_core *c, struct kvmm_block *b, u32 i);

static inline void block_settle(struct kvmm_core *c, struct kvmm_block *b,
				u32 i)
{
	if (b->state == KVMM_FILLING || (b->flags & KVMM_B_DOOMED))
		block_settle_idle(c, b, i);
}

/* Not live, or to be looked at: of an old epoch, or with an expiry. */
bool block_live_slow(struct kvmm_core *c, struct kvmm_block *b, u32 i,
		     u64 now);

/* Is it still what its key says; kills it if it is of an old epoch or late. */
static inline bool block_live(struct kvmm_core *c, struct kvmm_block *b, u32 i,
			      u64 now)
{
	if (likely(b->epoch == c->epoch && !b->ttl_ms &&
		   !(b->flags & KVMM_B_DOOMED)))
		return true;
	return block_live_slow(c, b, i, now);
}

/* ---- the order of eviction (lru.c) ---- */

/* Puts @i between @young and @old, either of which may be KVMM_NONE. */
static inline void lru_link(struct kvmm_core *c, struct kvmm_block *b, u32 i,
			    u32 young, u32 old)
{
	b->lru_prev = young;
	b->lru_next = old;
	*(young != KVMM_NONE ? &block_at(c, young)->lru_next : &c->lru.head) = i;
	*(old != KVMM_NONE ? &block_at(c, old)->lru_prev : &c->lru.tail) = i;
	c->lru.count++;
	c->lru_busy += block_in_use(b);
}

static inline void lru_add(struct kvmm_core *c, struct kvmm_block *b, u32 i)
{
	lru_link(c, b, i, KVMM_NONE, c->lru.head);
}

static inline void lru_del(struct kvmm_core *c, struct kvmm_block *b, u32 i)
{
	u32 young = b->lru_prev, old = b->lru_next;

	if (core_bug_on(!in_lru(b, i)))
		return;
	if (unlikely(c->clean_at == i))
		c->clean_at = young;
	*(young != KVMM_NONE ? &block_at(c, young)->lru_next : &c->lru.head) =
		old;
	*(old != KVMM_NONE ? &block_at(c, old)->lru_prev : &c->lru.tail) =
		young;
	b->lru_prev = i;
	b->lru_next = KVMM_NONE;
	c->lru.count--;
	c->lru_busy -= block_in_use(b);
}

/* Index of the block @handle names, if it is in the order; else KVMM_NONE. */
static inline u32 lru_anchor(const struct kvmm_core *c, u64 handle)
{
	struct kvmm_block *b;
	u32 i;

	b = handle ? block_get(c, handle, &i) : NULL;
	return b && in_lru(b, i) ? i : KVMM_NONE;
}

/* Just behind what @anchor names, or at the young end; @anchor is @i then. */
static inline void lru_add_behind(struct kvmm_core *c, struct kvmm_block *b,
				  u32 i, u64 *anchor)
{
	u32 a = lru_anchor(c, *anchor);

	lru_link(c, b, i, a,
		 a == KVMM_NONE ? c->lru.head : block_at(c, a)->lru_next);
	*anchor = handle_of(b, i);
}

/* ---- frames (frame.c) ---- */

/* A frame that may go offline becomes free; the first that is free is taken. */
void elastic_put(struct kvmm_core *c, u32 frame);
u32 elastic_take(struct kvmm_core *c);
/* Its last block is through with a frame whose memory is broken. */
void frame_bury(struct kvmm_core *c, u32 frame);

static inline void frame_put(struct kvmm_core *c, u32 frame)
{
	struct kvmm_frame *f = frame_at(c, frame);

	if (unlikely(f->link == KVMM_FRAME_BAD)) {
		frame_bury(c, frame);
		return;
	}
	core_bug_on(f->link != KVMM_FRAME_USED);
	c->frames_free++;
	if (unlikely(frame >= c->first_elastic)) {
		elastic_put(c, frame);
		return;
	}
	f->link = c->free_frame;
	c->free_frame = frame;
}

/* One frame whose rest is over becomes free. */
bool quarantine_release(struct kvmm_core *c, u64 now);

static inline u32 frame_take(struct kvmm_core *c, u64 now)
{
	u32 frame;

	if (!c->frames_free && !quarantine_release(c, now))
		return KVMM_NONE;
	frame = c->free_frame;
	c->frames_free--;
	/* What can't be given back is used first. */
	if (unlikely(frame == KVMM_NONE))
		return elastic_take(c);
	c->free_frame = frame_at(c, frame)->link;
	frame_at(c, frame)->link = KVMM_FRAME_USED;
	return frame;
}

/* ---- the index (index.c) ---- */

/* Where an entry belongs: hashes in order, so any number of buckets will do. */
static inline u32 index_home(const struct kvmm_core *c, u32 hash)
{
	return (u32)((u64)hash * c->nr_buckets >> 32);
}

static __always_inline void index_prefetch(const struct kvmm_core *c, u32 hash)
{
	core_prefetchw(bucket_at(c, index_home(c, hash)));
}

/* ---- pins (client.c) ---- */

static inline struct kvmm_hold *hold_at(const struct kvmm_core *c, u32 h)
{
	if (likely(h < c->nr_blocks))
		return &block_at(c, h)->hold;
	return &extra_at(c, h - c->nr_blocks)->hold;
}

static inline void hold_link(struct kvmm_core *c, struct kvmm_hold *hold, u32 h,
			     u32 client)
{
	struct kvmm_core_client *cl = client_at(c, client);

	hold->client = client;
	hold->count = 1;
	hold->prev = KVMM_NONE;
	hold->next = cl->head;
	if (cl->head != KVMM_NONE)
		hold_at(c, cl->head)->prev = h;
	cl->head = h;
	cl->nr++;
}

static inline void hold_unlink(struct kvmm_core *c, struct kvmm_hold *hold)
{
	struct kvmm_core_client *cl = client_at(c, hold->client);

	if (hold->prev != KVMM_NONE)
		hold_at(c, hold->prev)->next = hold->next;
	else
		cl->head = hold->next;
	if (hold->next != KVMM_NONE)
		hold_at(c, hold->next)->prev = hold->prev;
	cl->nr--;
	hold->client = 0;
	hold->count = 0;
}

static inline void block_now_pinned(struct kvmm_core *c, struct kvmm_block *b,
				    u32 i)
{
	if (b->flags & KVMM_B_EVICTING)
		block_stop_evicting(c, b, i);
	c->blocks_pinned++;
	c->clean_busy += b->state == KVMM_CLEAN;
	c->lru_busy += in_lru(b, i) && !block_stuck(b);
}

static inline void block_now_unpinned(struct kvmm_core *c, struct kvmm_block *b,
				      u32 i)
{
	c->blocks_pinned--;
	c->unpinned++;
	c->clean_busy -= b->state == KVMM_CLEAN;
	c->lru_busy -= in_lru(b, i) && !block_stuck(b);
}

u32 hold_find_extra(const struct kvmm_core *c, const struct kvmm_block *b,
		    u32 i, u32 client);

/* The number of @client's hold on the block, or KVMM_NONE. */
static inline u32 hold_find(const struct kvmm_core *c,
			    const struct kvmm_block *b, u32 i, u32 client)
{
	if (likely(b->hold.client == client))
		return i;
	return hold_find_extra(c, b, i, client);
}

/* One more pin of @client, where the block has some already. */
int hold_get_more(struct kvmm_core *c, struct kvmm_block *b, u32 i, u32 client);

/* Return: 0 or -ENOBUFS. */
static inline int hold_get(struct kvmm_core *c, struct kvmm_block *b, u32 i,
			   u32 client)
{
	if (b->pins)
		return hold_get_more(c, b, i, client);
	hold_link(c, &b->hold, i, client);
	block_now_pinned(c, b, i);
	b->pins = 1;
	c->pins++;
	return 0;
}

/* One pin less of @client, where it isn't the only one. */
int hold_put_more(struct kvmm_core *c, struct kvmm_block *b, u32 i, u32 client);

/* Return: 0, or -EINVAL: @client has none. */
static inline int hold_put(struct kvmm_core *c, struct kvmm_block *b, u32 i,
			   u32 client)
{
	if (b->pins != 1 || b->hold.client != client)
		return hold_put_more(c, b, i, client);
	hold_unlink(c, &b->hold);
	block_now_unpinned(c, b, i);
	b->pins = 0;
	c->pins--;
	return 0;
}

#endif /* KVMM_CORE_INLINE_H */
