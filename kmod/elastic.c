// SPDX-License-Identifier: GPL-2.0
/*
 * Elastic memory of a pool: what is known of it, and taking it again.
 *
 * Frames that were given back get memory again when blocks are lost for want of
 * frames and the system has not asked for memory for a while: a chunk at a
 * time, only what is free, and only as long as it goes well.
 */
#include <linux/bitmap.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/sizes.h>

#include "arena.h"
#include "kvmm_mod.h"
#include "populate.h"

/* Taken again at a time; more when blocks are still lost then. */
#define KVMM_AGAIN_BYTES	SZ_64M

/* The next frames that were given back, at most a unit of them. */
static bool kvmm_next_gone(struct kvmm_pool *pool, u32 *first, u32 *last)
{
	struct kvmm_elastic *e = &pool->elastic;
	u32 nr = pool->core.cfg.nr_elastic;
	u32 f = nr;

	mutex_lock(&pool->lock);
	if (!pool->dead && e->nr_gone)
		f = find_next_bit(e->gone, nr, e->first_gone);
	if (f < nr) {
		e->first_gone = f;
		*first = pool->core.first_elastic + f;
		nr = min(nr, round_down(f, kvmm_unit_frames(pool)) +
			     kvmm_unit_frames(pool));
		*last = pool->core.first_elastic +
			find_next_zero_bit(e->gone, nr, f);
	} else {
		nr = 0;
	}
	mutex_unlock(&pool->lock);
	return nr;
}

static void kvmm_again_work(struct work_struct *work)
{
	struct kvmm_pool *pool = container_of(work, struct kvmm_pool,
					      elastic.again);
	struct kvmm_fill fill = { .pool = pool, .gently = true };
	u64 left = KVMM_AGAIN_BYTES;
	u32 first, last;

	while (left && !kvmm_pressure_recent() &&
	       kvmm_next_gone(pool, &first, &last)) {
		u64 bytes = (u64)(last - first) << pool->block_shift;

		if (kvmm_populate_unit(&fill, first, last)) {
			mutex_lock(&pool->lock);
			pool->elastic.again_after = jiffies +
						    kvmm_pressure_jiffies();
			mutex_unlock(&pool->lock);
			return;
		}
		left -= min(left, bytes);
		cond_resched();
	}
}

/**
 * kvmm_elastic_miss() - a block was lost, or not had, for want of frames
 * @pool: the pool, locked and not dead
 */
void kvmm_elastic_miss(struct kvmm_pool *pool)
{
	struct kvmm_elastic *e = &pool->elastic;

	if (e->nr_gone && !kvmm_pressure_recent() &&
	    time_after_eq(jiffies, e->again_after))
		queue_work(kvmm_elastic_wq, &e->again);
}

/**
 * kvmm_elastic_online() - frames have memory
 * @pool: the pool, locked
 * @first: first frame
 * @n: how many
 */
void kvmm_elastic_online(struct kvmm_pool *pool, u32 first, u32 n)
{
	struct kvmm_elastic *e = &pool->elastic;
	u32 floor = pool->core.first_elastic;
	u32 f;

	for (f = first; e->nr_gone && f < first + n; f++) {
		if (f < floor || !__test_and_clear_bit(f - floor, e->gone))
			continue;
		e->nr_gone--;
		e->taken_again++;
	}
}

/**
 * kvmm_elastic_pages() - how many pages the pool might give back
 * @pool: the pool, locked and not dead
 *
 * Not exact: how many of its blocks can go is found out by trying.
 */
unsigned long kvmm_elastic_pages(struct kvmm_pool *pool)
{
	const struct kvmm_core *c = &pool->core;
	u32 frames = c->elastic_free;

	if (time_after_eq(jiffies, pool->elastic.idle_until))
		frames += min(c->elastic_online - frames,
			      c->lru.count - c->lru_busy);
	return (unsigned long)frames << kvmm_frame_page_shift(pool);
}

/**
 * kvmm_elastic_stat() - the counters of giving back and taking again
 * @pool: the pool, locked and not dead
 * @st: they are filled in
 */
void kvmm_elastic_stat(struct kvmm_pool *pool, struct kvmm_pool_stat *st)
{
	const struct kvmm_elastic *e = &pool->elastic;

	st->chunk_frames = e->chunk_frames;
	st->chunks_leased = e->nr_leased;
	st->chunks_wanted = kvmm_pressure_recent() ? e->nr_wanted : 0;
	st->given_back = e->given_back;
	st->taken_again = e->taken_again;
	st->shrinks = e->shrinks;
}

/**
 * kvmm_elastic_init() - make the tables
 * @pool: being made
 * @a: as it was asked for, checked
 *
 * Return: 0 or -ENOMEM; kvmm_elastic_exit() is called in any case.
 */
int kvmm_elastic_init(struct kvmm_pool *pool, const struct kvmm_pool_create *a)
{
	const gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL |
			  __GFP_NOWARN;
	struct kvmm_elastic *e = &pool->elastic;
	u32 unit = kvmm_unit_frames(pool);

	e->chunk_frames = kvmm_core_chunk_frames(a->block_size, PMD_SIZE,
						 a->nr_frames, a->nr_elastic,
						 a->chunk_frames);
	e->nr_chunks = DIV_ROUND_UP(a->nr_frames, e->chunk_frames);
	e->idle_until = jiffies;
	e->again_after = jiffies;
	e->chunks = kvcalloc(e->nr_chunks, sizeof(*e->chunks), gfp);
	if (!e->chunks)
		return -ENOMEM;
	if (!a->nr_elastic)
		return 0;
	e->gone = kvcalloc(BITS_TO_LONGS(a->nr_elastic), sizeof(*e->gone), gfp);
	e->was = kvcalloc(BITS_TO_LONGS(unit), sizeof(*e->was), gfp);
	return e->gone && e->was ? 0 : -ENOMEM;
}

/** kvmm_elastic_exit() - free the tables */
void kvmm_elastic_exit(struct kvmm_pool *pool)
{
	kvfree(pool->elastic.chunks);
	kvfree(pool->elastic.gone);
	kvfree(pool->elastic.was);
}

/** kvmm_elastic_add() - from now on the pool may be asked for memory */
void kvmm_elastic_add(struct kvmm_pool *pool)
{
	if (!pool->core.cfg.nr_elastic)
		return;
	mutex_lock(&kvmm_elastic_lock);
	list_add_tail(&pool->elastic.node, &kvmm_elastic_pools);
	mutex_unlock(&kvmm_elastic_lock);
}

/**
 * kvmm_elastic_del() - the pool is not asked any more, nor takes anything
 * @pool: dead, or not to be found yet
 */
void kvmm_elastic_del(struct kvmm_pool *pool)
{
	mutex_lock(&kvmm_elastic_lock);
	list_del_init(&pool->elastic.node);
	mutex_unlock(&kvmm_elastic_lock);
	/* What was asked of it is not asked of the others later. */
	if (pool->core.cfg.nr_elastic)
		kvmm_shrink_flush();
	cancel_work_sync(&pool->elastic.again);
}

/** kvmm_elastic_setup() - the part of a new pool that can't fail */
void kvmm_elastic_setup(struct kvmm_pool *pool)
{
	INIT_LIST_HEAD(&pool->elastic.node);
	INIT_WORK(&pool->elastic.again, kvmm_again_work);
}
