// SPDX-License-Identifier: GPL-2.0
/*
 * Populates in progress: how far they are, how they are told to end, and those
 * that workers of the kernel carry out.
 *
 * Workers take unit after unit from one cursor, so that the lowest frames come
 * online first and no worker is left with more than one unit at the end.  They
 * belong to the pool, not to the client that asked.
 */
#include <linux/cpuset.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/topology.h>

#include "arena.h"
#include "kvmm_mod.h"
#include "place.h"
#include "populate.h"

#define KVMM_DEFAULT_WORKERS	16

struct kvmm_crew;

struct kvmm_worker {
	struct work_struct work;
	struct kvmm_crew *crew;
};

/**
 * struct kvmm_crew - a populate by workers
 * @fill: what it has in common with others
 * @first: first frame
 * @end: frame after the last one
 * @next: first frame of the unit to take next
 * @left: workers that have not ended
 * @err: the first error, 0 while there is none
 * @mems: nodes that the cpuset of who asked allows
 * @worker: the workers
 *
 * Holds a reference to the pool.
 */
struct kvmm_crew {
	struct kvmm_fill fill;
	u32 first;
	u32 end;
	atomic64_t next;
	atomic_t left;
	int err;
	nodemask_t mems;
	struct kvmm_worker worker[];
};

static void kvmm_fill_add(struct kvmm_fill *fill, struct kvmm_pool *pool,
			  u32 frames)
{
	lockdep_assert_held(&pool->lock);
	fill->pool = pool;
	fill->left = frames;
	fill->gently = false;
	fill->full = false;
	fill->cancelled = false;
	list_add_tail(&fill->node, &pool->fills);
	pool->frames_populating += frames;
}

static void kvmm_fill_del(struct kvmm_fill *fill)
{
	struct kvmm_pool *pool = fill->pool;

	lockdep_assert_held(&pool->lock);
	list_del(&fill->node);
	pool->frames_populating -= fill->left;
	if (fill->cancelled)
		WRITE_ONCE(pool->fills_cancelled, pool->fills_cancelled - 1);
}

/**
 * kvmm_fill_begin() - a populate begins
 * @fill: how it will be known
 * @pool: the pool
 * @frames: that it has to do
 *
 * Return: 0 or -ENODEV.
 */
int kvmm_fill_begin(struct kvmm_fill *fill, struct kvmm_pool *pool, u32 frames)
{
	int ret = 0;

	mutex_lock(&pool->lock);
	if (pool->dead)
		ret = -ENODEV;
	else
		kvmm_fill_add(fill, pool, frames);
	mutex_unlock(&pool->lock);
	return ret;
}

/** kvmm_fill_step() - @frames more are done */
void kvmm_fill_step(struct kvmm_fill *fill, u32 frames)
{
	struct kvmm_pool *pool = fill->pool;

	mutex_lock(&pool->lock);
	fill->left -= frames;
	pool->frames_populating -= frames;
	mutex_unlock(&pool->lock);
}

/** kvmm_fill_end() - it has ended, with all done or not */
void kvmm_fill_end(struct kvmm_fill *fill)
{
	struct kvmm_pool *pool = fill->pool;

	mutex_lock(&pool->lock);
	kvmm_fill_del(fill);
	mutex_unlock(&pool->lock);
	wake_up_all(&pool->wait);
}

/**
 * kvmm_fill_cancel() - end all populates that are in progress
 * @pool: the pool
 *
 * Return: 0 when they have ended; -ENODEV; -EINTR: they end without us.
 */
int kvmm_fill_cancel(struct kvmm_pool *pool)
{
	struct kvmm_fill *fill;
	u32 n = 0;

	mutex_lock(&pool->lock);
	if (pool->dead) {
		mutex_unlock(&pool->lock);
		return -ENODEV;
	}
	list_for_each_entry(fill, &pool->fills, node) {
		n += !fill->cancelled;
		WRITE_ONCE(fill->cancelled, true);
	}
	WRITE_ONCE(pool->fills_cancelled, pool->fills_cancelled + n);
	mutex_unlock(&pool->lock);
	return kvmm_pool_wait(pool, !READ_ONCE(pool->fills_cancelled));
}

/**
 * kvmm_fill_drain() - wait for the workers of a pool
 * @pool: dead, which is what they end for
 */
void kvmm_fill_drain(struct kvmm_pool *pool)
{
	wait_event(pool->wait, !READ_ONCE(pool->has_crew));
}

static void kvmm_crew_end(struct kvmm_crew *crew)
{
	struct kvmm_pool *pool = crew->fill.pool;
	struct kvmm_event ev = {
		.type = KVMM_EVENT_POPULATED,
		.flags = -crew->err,
	};

	mutex_lock(&pool->lock);
	if (!pool->dead) {
		ev.value = pool->core.frames_online;
		kvmm_event_raise(pool, &ev);
	}
	kvmm_fill_del(&crew->fill);
	WRITE_ONCE(pool->has_crew, false);
	mutex_unlock(&pool->lock);
	wake_up_all(&pool->wait);
	kfree(crew);
	kvmm_pool_put(pool);
}

static void kvmm_crew_work(struct work_struct *work)
{
	struct kvmm_crew *crew =
		container_of(work, struct kvmm_worker, work)->crew;
	u32 unit = kvmm_unit_frames(crew->fill.pool);

	/* As if the one who asked did it: not where its cpuset forbids. */
	set_mems_allowed(crew->mems);
	while (!READ_ONCE(crew->err)) {
		u64 at = atomic64_fetch_add(unit, &crew->next);
		u64 end = min_t(u64, at + unit, crew->end);
		int ret;

		if (at >= crew->end)
			break;
		at = max_t(u64, at, crew->first);
		ret = kvmm_populate_unit(&crew->fill, at, end);
		if (ret)
			cmpxchg(&crew->err, 0, ret);
		else
			kvmm_fill_step(&crew->fill, end - at);
		cond_resched();
	}
	set_mems_allowed(node_states[N_MEMORY]);
	if (atomic_dec_and_test(&crew->left))
		kvmm_crew_end(crew);
}

/* How many workers: as many as the nodes have CPUs, but not without bounds. */
static u32 kvmm_crew_size(const struct kvmm_pool *pool, u32 want, u32 units)
{
	u32 n = want;

	if (!n)
		n = clamp(kvmm_place_cpus(pool), 1U, 0U + KVMM_DEFAULT_WORKERS);
	return min(n, units);
}

/**
 * kvmm_fill_async() - populate by workers, without waiting
 * @pool: the pool
 * @first: first frame
 * @end: frame after the last one
 * @workers: how many, 0: a default
 *
 * Return: 0, -EBUSY, -ENODEV or -ENOMEM.
 */
int kvmm_fill_async(struct kvmm_pool *pool, u32 first, u32 end, u32 workers)
{
	u32 unit = kvmm_unit_frames(pool);
	u32 n = kvmm_crew_size(pool, workers,
			       (end - 1) / unit - first / unit + 1);
	struct kvmm_crew *crew;
	int ret = 0;
	u32 i;

	crew = kzalloc(struct_size(crew, worker, n), GFP_KERNEL_ACCOUNT);
	if (!crew)
		return -ENOMEM;
	crew->first = first;
	crew->end = end;
	crew->mems = cpuset_current_mems_allowed;
	atomic64_set(&crew->next, round_down(first, unit));
	atomic_set(&crew->left, n);

	mutex_lock(&pool->lock);
	if (pool->dead) {
		ret = -ENODEV;
	} else if (pool->has_crew) {
		ret = -EBUSY;
	} else {
		kvmm_fill_add(&crew->fill, pool, end - first);
		pool->has_crew = true;
		kref_get(&pool->ref);
	}
	mutex_unlock(&pool->lock);
	if (ret) {
		kfree(crew);
		return ret;
	}
	/* The crew is gone as soon as the last one of them is queued. */
	for (i = 0; i < n; i++) {
		struct kvmm_worker *w = &crew->worker[i];

		w->crew = crew;
		INIT_WORK(&w->work, kvmm_crew_work);
		queue_work_node(kvmm_place_worker(pool, i), kvmm_populate_wq,
				&w->work);
	}
	return 0;
}
