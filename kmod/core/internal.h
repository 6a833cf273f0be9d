/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the files of the core share: access to the tables, and the steps that
 * commands are made of.  Nobody outside kmod/core includes this.
 */
#ifndef KVMM_CORE_INTERNAL_H
#define KVMM_CORE_INTERNAL_H

#include "core.h"

/* Elements of a chunk, as a power of two; a chunk is at most 8 MiB. */
#define BLOCK_SHIFT	16
#define FRAME_SHIFT	20
#define INDEX_SHIFT	17
#define SLOT_SHIFT	19
#define HOLD_SHIFT	18
#define CLIENT_SHIFT	18
#define U32_SHIFT	21
#define BITS_SHIFT	20

static __always_inline void *table_at(const struct kvmm_table *t, u32 shift,
				      size_t elem, u32 i)
{
	return (char *)t->chunk[i >> shift] + (i & ((1U << shift) - 1)) * elem;
}

static inline struct kvmm_block *block_at(const struct kvmm_core *c, u32 i)
{
	return table_at(&c->blocks, BLOCK_SHIFT, sizeof(struct kvmm_block), i);
}

static inline struct kvmm_frame *frame_at(const struct kvmm_core *c, u32 i)
{
	return table_at(&c->frames, FRAME_SHIFT, sizeof(struct kvmm_frame), i);
}

static inline struct kvmm_slot *slot_at(const struct kvmm_core *c, u32 i)
{
	return table_at(&c->slots, SLOT_SHIFT, sizeof(struct kvmm_slot), i);
}

static inline struct kvmm_index_bucket *bucket_at(const struct kvmm_core *c,
						  u32 i)
{
	return table_at(&c->index, INDEX_SHIFT,
			sizeof(struct kvmm_index_bucket), i);
}

static inline struct kvmm_extra_hold *extra_at(const struct kvmm_core *c, u32 i)
{
	return table_at(&c->holds, HOLD_SHIFT, sizeof(struct kvmm_extra_hold), i);
}

static inline u32 *hold_bucket_at(const struct kvmm_core *c, u32 block)
{
	/* Knuth's multiplicative hash: neighbours go to different buckets. */
	u32 i = (block * 2654435761U >> 7) & c->hold_mask;

	return table_at(&c->hold_buckets, U32_SHIFT, sizeof(u32), i);
}

static inline struct kvmm_core_client *client_at(const struct kvmm_core *c,
						 u32 client)
{
	return table_at(&c->clients, CLIENT_SHIFT, sizeof(struct kvmm_core_client),
			client - 1);
}

static inline u64 handle_of(const struct kvmm_block *b, u32 i)
{
	return (u64)b->gen << 32 | i;
}

/* Always inline: gcc drops calls of what only prefetches. */
static __always_inline void prefetch_handle(const struct kvmm_core *c, u64 handle)
{
	u32 i = (u32)handle;

	struct kvmm_block *b;

	if (i < c->nr_blocks) {
		b = block_at(c, i);
		core_prefetchw(b);
		core_prefetchw(&b->hold);
	}
}

/* The block of a handle, or NULL where the handle is stale. */
static inline struct kvmm_block *block_get(const struct kvmm_core *c,
					   u64 handle, u32 *index)
{
	u32 i = (u32)handle;
	struct kvmm_block *b;

	if (i >= c->next_block)
		return NULL;
	b = block_at(c, i);
	if (b->gen != handle >> 32 || b->state == KVMM_FREE)
		return NULL;
	*index = i;
	return b;
}

static inline bool block_busy(const struct kvmm_block *b)
{
	return b->state == KVMM_WRITING || b->state == KVMM_READING;
}

/* Its I/O did not end in time. */
static inline bool block_late(const struct kvmm_block *b)
{
	return block_busy(b) && (b->flags & KVMM_B_LATE);
}

/* Its frame can't be had, whether pinned or not. */
static inline bool block_stuck(const struct kvmm_block *b)
{
	return b->state == KVMM_READING || block_late(b);
}

/* Can't be a victim. */
static inline bool block_in_use(const struct kvmm_block *b)
{
	return b->pins || block_stuck(b);
}

static inline bool in_lru(const struct kvmm_block *b, u32 i)
{
	return b->lru_prev != i;
}

static inline bool area_usable(const struct kvmm_core *c)
{
	return c->nr_slots && !c->degraded && !c->detaching;
}

/* The host is told, where it wants to know. */
static inline void block_note(const struct kvmm_core *c,
			      const struct kvmm_block *b, u32 i,
			      enum kvmm_core_note what)
{
	if (c->cfg.note)
		c->cfg.note(c->cfg.ctx, what, handle_of(b, i), b);
}

/* Why a block goes; each has its counter. */
enum kvmm_end {
	KVMM_END_EXPIRED,
	KVMM_END_DROPPED,
	KVMM_END_PURGED,
	KVMM_END_SLOT,
	KVMM_END_LOST,		/* counted by who knows the reason */
};

/* block.c */
bool core_transition_ok(u32 from, u32 to);
/* Frees an idle block and all it has; @quarantine: the frame must rest. */
void block_free(struct kvmm_core *c, struct kvmm_block *b, u32 i,
		bool quarantine, u64 now);
/* Makes it a miss at once; it is freed now or when it becomes idle. */
void block_kill(struct kvmm_core *c, struct kvmm_block *b, u32 i,
		enum kvmm_end why);
/* A CLEAN unpinned block gives up its frame. */
void block_drop_frame(struct kvmm_core *c, struct kvmm_block *b, u32 i);
/* A block that was to leave is written: it gives up its frame. */
void block_evicted(struct kvmm_core *c, struct kvmm_block *b, u32 i);
/* A WRITING block that was to leave is wanted again. */
void block_stop_evicting(struct kvmm_core *c, struct kvmm_block *b, u32 i);
int block_get_live(struct kvmm_core *c, u64 handle, u64 now,
		   struct kvmm_block **b, u32 *i);

/* Is it of an old epoch, or too old: a miss once someone looks. */
bool block_outdated(const struct kvmm_core *c, const struct kvmm_block *b,
		    u64 now);

/* bits.c */
/* Words for a set of numbers below @n. */
u64 bits_words(u32 n);
void bits_init(struct kvmm_bits *s, u32 n);
bool bits_test(const struct kvmm_bits *s, u32 i);
void bits_set(struct kvmm_bits *s, u32 i);
void bits_clear(struct kvmm_bits *s, u32 i);
/* The lowest; the highest below @i; KVMM_NONE. */
u32 bits_first(const struct kvmm_bits *s);
u32 bits_last(const struct kvmm_bits *s, u32 i);
/* Are all of 1 << @shift from @i on, a multiple of that, in it. */
bool bits_all(const struct kvmm_bits *s, u32 i, u32 shift);

/* client.c */
void hold_drop_all(struct kvmm_core *c, struct kvmm_block *b, u32 i);

/* index.c */
u64 core_siphash13(const u64 secret[2], const u8 *key);
u32 index_hash(const struct kvmm_core *c, const u8 *key);
/* The block most likely meant by @hash, or KVMM_NONE: to prefetch it. */
u32 index_guess(const struct kvmm_core *c, u32 hash);
/* The block that has @key, or KVMM_NONE; @guess is tried first. */
u32 index_find(const struct kvmm_core *c, const u8 *key, u32 hash, u32 guess);
/*
 * The block that has @key, or KVMM_NONE: then @room is where the key can be
 * put (until the index changes), NULL where it can't.
 */
u32 index_find_room(const struct kvmm_core *c, const u8 *key, u32 hash,
		    struct kvmm_index_bucket **room);
void index_put(struct kvmm_index_bucket *room, struct kvmm_block *b, u32 i,
	       u32 hash);
void index_del(struct kvmm_core *c, struct kvmm_block *b, u32 i);

/* lru.c */
void lru_touch(struct kvmm_core *c, struct kvmm_block *b, u32 i, u64 now,
	       struct kvmm_cursor *cur);
/*
 * The coldest block from @pos up that may be taken; @budget bounds the walk.
 * Pinned blocks that are met become the youngest; each is met once, so that
 * they stay in order among themselves.
 */
u32 lru_next_victim(struct kvmm_core *c, u32 *pos, u32 *budget);

static inline u32 lru_budget(const struct kvmm_core *c)
{
	return c->lru.count < KVMM_SCAN_MAX ? c->lru.count : KVMM_SCAN_MAX;
}

/* frame.c */
void frame_quarantine(struct kvmm_core *c, u32 frame, u64 now);

/* slots.c */
u32 slot_take(struct kvmm_core *c);
/* One that is free, or of a swapped block that is no younger than @touched. */
u32 slot_take_cold(struct kvmm_core *c, u64 touched);
void slot_put(struct kvmm_core *c, u32 slot);
void slot_link(struct kvmm_core *c, struct kvmm_list *l, u32 slot);
void slot_link_behind(struct kvmm_core *c, struct kvmm_list *l, u32 slot,
		      u32 anchor);
void slot_link_tail(struct kvmm_core *c, struct kvmm_list *l, u32 slot);
void slot_link_before(struct kvmm_core *c, struct kvmm_list *l, u32 slot,
		      u32 anchor);
void slot_unlink(struct kvmm_core *c, struct kvmm_list *l, u32 slot);
struct kvmm_list *slot_list(struct kvmm_core *c, const struct kvmm_block *b);

/* clean.c */
/* The next call of kvmm_core_clean() begins with the oldest. */
void clean_anew(struct kvmm_core *c);

/* swap.c */
/* May its data be thrown away rather than written. */
bool may_purge(const struct kvmm_core *c, const struct kvmm_block *b);
/* A frame for a new block: free, or of a victim that needs no I/O. */
u32 core_get_frame(struct kvmm_core *c, u64 now);
/*
 * Reads ahead for victims to come: what taking @i will want, and the block that
 * goes after it, which is returned.
 */
u32 victim_ahead(const struct kvmm_core *c, u32 i);
/* A RESIDENT block is WRITING to @slot; it leaves after if @evict. */
void write_begin(struct kvmm_core *c, struct kvmm_block *b, u32 i, u32 slot,
		 bool evict, struct kvmm_io *io);
/* Why core_get_frame() found none. */
int core_no_frame(const struct kvmm_core *c);

#include "inline.h"

#endif /* KVMM_CORE_INTERNAL_H */
