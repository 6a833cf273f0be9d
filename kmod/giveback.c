// SPDX-License-Identifier: GPL-2.0
/*
 * Giving memory back: units of elastic frames whose blocks can do without.
 *
 * A unit goes in this order.  The core takes its frames offline, so that nobody
 * gets a block in them.  All its folios are locked, so that no page fault can
 * bring one back, and unmapped.  If a device has pinned any by then, it stays:
 * what it sees and what the CPU sees must be the same memory.  The block limit
 * falls, so that touching a frame is SIGBUS, and the folios leave the file.
 *
 * All of it is done by one thread of the system at a time (kvmm_elastic_lock),
 * with memory from the reserves, and without waiting for anyone who may be
 * waiting for memory: the arena's locks and those of folios are only tried.
 */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/pagemap.h>

#include "arena.h"
#include "compat/compat.h"
#include "export.h"
#include "kvmm_mod.h"
#include "limit.h"
#include "place.h"
#include "poison.h"
#include "populate.h"

/* Units that can't go, or chunks that may not, in a row: then it's enough. */
#define KVMM_GIVE_TRIES	512

/**
 * struct kvmm_giving - one pool gives memory back
 * @pool: the pool
 * @flags: KVMM_OFFLINE_HARD or 0
 * @want: pages that are wanted
 * @pages: pages whose frames went
 */
struct kvmm_giving {
	struct kvmm_pool *pool;
	u32 flags;
	u64 want;
	u64 pages;
};

/**
 * struct kvmm_unit - a unit at hand
 * @pool: the pool
 * @first: first frame
 * @last: first frame after it
 * @was: bit N: frame @first + N had memory
 * @frames: how many had
 * @misplaced: of those, on another node than asked for
 * @freed: pages that nobody had any more
 */
struct kvmm_unit {
	struct kvmm_pool *pool;
	u32 first;
	u32 last;
	unsigned long *was;
	u32 frames;
	u32 misplaced;
	unsigned long freed;
};

/* ---- the pages of a unit ---- */

/*
 * Calls @fn for each folio of the frames that had memory, before page @end,
 * until it says no.  Returns the index of that one, or @end.
 */
static pgoff_t kvmm_unit_walk(struct kvmm_unit *u, pgoff_t end,
			      bool (*fn)(struct kvmm_unit *u,
					 struct folio *folio))
{
	struct kvmm_pool *pool = u->pool;
	struct address_space *mapping = kvmm_arena_inode(pool)->i_mapping;
	unsigned int shift = kvmm_frame_page_shift(pool);
	pgoff_t index = (pgoff_t)u->first << shift;

	while (index < end) {
		u32 frame = index >> shift;
		struct folio *folio;
		struct page *page;
		pgoff_t next;

		if (!test_bit(frame - u->first, u->was)) {
			index = (pgoff_t)(frame + 1) << shift;
			continue;
		}
		page = find_get_page(mapping, index);
		if (WARN_ON_ONCE(!page)) {
			index++;
			continue;
		}
		folio = page_folio(page);
		/* The pool's own references keep it. */
		folio_put(folio);
		next = folio_next_index(folio);
		if (!fn(u, folio))
			return index;
		index = next;
		cond_resched();
	}
	return end;
}

static bool kvmm_folio_lock(struct kvmm_unit *u, struct folio *folio)
{
	return folio_trylock(folio);
}

static bool kvmm_folio_unlock(struct kvmm_unit *u, struct folio *folio)
{
	folio_unlock(folio);
	return true;
}

/*
 * Nor one that a memory error has struck: the kernel could not take it away, and
 * does not look at the pages of a huge page that is freed.
 */
static bool kvmm_folio_may_go(struct kvmm_unit *u, struct folio *folio)
{
	if (folio_test_large(folio) ? folio_test_has_hwpoisoned(folio) :
				      PageHWPoison(&folio->page))
		return false;
	return !folio_maybe_dma_pinned(folio);
}

/* Out of the file; it is freed, unless someone else has a reference still. */
static bool kvmm_folio_go(struct kvmm_unit *u, struct folio *folio)
{
	struct address_space *mapping = folio->mapping;
	unsigned int refs = kvmm_frames_of(u->pool, folio->index,
					   folio_next_index(folio));

	WARN_ON_ONCE(kvmm_remove_folio(mapping, folio));
	folio_unlock(folio);
	if (folio_ref_count(folio) == refs)
		u->freed += folio_nr_pages(folio);
	kvmm_folio_drop(folio, refs);
	return true;
}

/* All of it, or nothing: false. */
static bool kvmm_unit_remove(struct kvmm_unit *u)
{
	struct kvmm_pool *pool = u->pool;
	struct address_space *mapping = kvmm_arena_inode(pool)->i_mapping;
	unsigned int shift = kvmm_frame_page_shift(pool);
	pgoff_t start = (pgoff_t)u->first << shift;
	pgoff_t end = (pgoff_t)u->last << shift;
	pgoff_t locked;

	locked = kvmm_unit_walk(u, end, kvmm_folio_lock);
	if (locked < end)
		goto unlock;
	unmap_mapping_range(mapping, (loff_t)start << PAGE_SHIFT,
			    (loff_t)(end - start) << PAGE_SHIFT, 1);
	/* From here on nobody can get at the pages, so nobody can pin them. */
	if (kvmm_unit_walk(u, end, kvmm_folio_may_go) < end)
		goto unlock;
	kvmm_arena_allow(pool, -((long)u->frames << shift));
	kvmm_unit_walk(u, end, kvmm_folio_go);
	/* What is left to do is the file's own accounting. */
	kvmm_arena_punch(pool, start, end);
	return true;

unlock:
	kvmm_unit_walk(u, locked, kvmm_folio_unlock);
	return false;
}

/* ---- the frames of a unit ---- */

/* Frames that had memory have it still: they are good for blocks again. */
static void kvmm_unit_stay(struct kvmm_unit *u, u32 end)
{
	struct kvmm_pool *pool = u->pool;
	u32 f = u->first;
	u32 n;

	while (f < end) {
		mutex_lock(&pool->lock);
		for (n = 0; n < KVMM_CORE_BATCH && f < end; n++, f++)
			if (test_bit(f - u->first, u->was))
				kvmm_core_frames_online(&pool->core, f, 1);
		if (f == end)
			kvmm_chunk_of(pool, u->first)->going--;
		mutex_unlock(&pool->lock);
		cond_resched();
	}
}

/*
 * Some of its frames, in one hold of the lock.  The chunk is kept from being
 * leased from the first ones on.
 */
static int kvmm_unit_part(struct kvmm_unit *u, u32 f, u32 n, u32 flags)
{
	struct kvmm_reclaim_count count = {};
	struct kvmm_pool *pool = u->pool;
	struct kvmm_chunk *chunk = kvmm_chunk_of(pool, f);
	int ret;
	u32 i;

	if (pool->dead)
		return -ENODEV;
	if (chunk->holds || kvmm_export_covers(pool, f, n))
		return -EBUSY;
	for (i = f; i < f + n; i++)
		if (kvmm_core_frame_is_online(&pool->core, i))
			__set_bit(i - u->first, u->was);
	ret = kvmm_core_frames_offline(&pool->core, f, n, flags,
				       kvmm_pool_now(pool), &count);
	if (ret >= 0 && f == u->first && !(flags & KVMM_OFFLINE_TRY))
		chunk->going++;
	return ret;
}

/* All of its frames.  Returns how many had memory, or -errno. */
static int kvmm_unit_offline(struct kvmm_unit *u, u32 flags)
{
	struct kvmm_pool *pool = u->pool;
	int sum = 0;
	u32 f, n;
	int ret;

	bitmap_zero(u->was, u->last - u->first);
	for (f = u->first; f < u->last; f += n) {
		n = min_t(u32, u->last - f, KVMM_CORE_BATCH);
		mutex_lock(&pool->lock);
		ret = kvmm_unit_part(u, f, n, flags);
		mutex_unlock(&pool->lock);
		if (ret < 0)
			goto err;
		sum += ret;
		cond_resched();
	}
	return sum;

err:
	if (f > u->first && !(flags & KVMM_OFFLINE_TRY))
		kvmm_unit_stay(u, f);
	return ret;
}

static void kvmm_unit_gone(struct kvmm_unit *u)
{
	struct kvmm_pool *pool = u->pool;
	struct kvmm_elastic *e = &pool->elastic;
	u32 from = u->first - pool->core.first_elastic;
	u32 i;

	mutex_lock(&pool->lock);
	for_each_set_bit(i, u->was, u->last - u->first)
		__set_bit(from + i, e->gone);
	e->nr_gone += u->frames;
	e->first_gone = min(e->first_gone, from);
	e->given_back += u->frames;
	pool->frames_misplaced -= u->misplaced;
	kvmm_chunk_of(pool, u->first)->going--;
	mutex_unlock(&pool->lock);
	kvmm_limit_uncharge(pool, (u64)u->frames << pool->block_shift);
	kvmm_shrink_freed(u->freed);
}

/* Is it in memory that is, can its blocks go, and is it free of pins. */
static int kvmm_unit_give(struct kvmm_unit *u, u32 flags)
{
	struct kvmm_pool *pool = u->pool;
	pgoff_t end = (pgoff_t)u->last << kvmm_frame_page_shift(pool);
	u32 i;
	int ret;

	if (!i_size_read(kvmm_arena_inode(pool)))
		return -ENODEV;
	ret = kvmm_unit_offline(u, flags | KVMM_OFFLINE_TRY);
	if (ret <= 0)
		return ret;
	/* Not to lose blocks for nothing. */
	if (kvmm_unit_walk(u, end, kvmm_folio_may_go) < end)
		return -EBUSY;
	ret = kvmm_unit_offline(u, flags);
	if (ret < 0)
		return ret;
	u->frames = ret;
	for_each_set_bit(i, u->was, u->last - u->first)
		u->misplaced += kvmm_place_misplaced(pool, u->first + i,
						     u->first + i + 1);
	if (!kvmm_unit_remove(u)) {
		kvmm_unit_stay(u, u->last);
		return -EBUSY;
	}
	kvmm_unit_gone(u);
	return ret;
}

/* Gives a unit back, if that can be; returns whether it was. */
static bool kvmm_give_unit(struct kvmm_giving *g, u32 frame)
{
	struct kvmm_pool *pool = g->pool;
	u32 unit = kvmm_unit_frames(pool);
	struct kvmm_unit u = {
		.pool = pool,
		.first = round_down(frame, unit),
		.last = round_down(frame, unit) + unit,
		.was = pool->elastic.was,
	};
	struct mutex *lock = kvmm_unit_lock(pool, u.first);
	int ret = -EAGAIN;

	if (!mutex_trylock(lock))
		return false;
	if (down_read_trylock(&pool->arena.sem)) {
		ret = kvmm_unit_give(&u, g->flags);
		up_read(&pool->arena.sem);
	}
	mutex_unlock(lock);
	if (ret <= 0)
		return false;
	g->pages += (u64)ret << kvmm_frame_page_shift(pool);
	return true;
}

/* ---- which units ---- */

/* Units that are free, from the end of the arena on. */
static void kvmm_give_free(struct kvmm_giving *g)
{
	struct kvmm_pool *pool = g->pool;
	u32 chunk_frames = pool->elastic.chunk_frames;
	u32 below = pool->core.cfg.nr_frames;
	unsigned int tries = 0;
	bool held;
	u32 unit;

	while (g->pages < g->want && tries < KVMM_GIVE_TRIES) {
		mutex_lock(&pool->lock);
		unit = pool->dead ? KVMM_NONE :
			kvmm_core_free_unit(&pool->core, below);
		held = unit != KVMM_NONE && kvmm_chunk_of(pool, unit)->holds;
		mutex_unlock(&pool->lock);
		if (unit == KVMM_NONE)
			break;
		below = held ? round_down(unit, chunk_frames) : unit;
		if (!held && kvmm_give_unit(g, unit))
			tries = 0;
		else
			tries++;
		cond_resched();
	}
}

/* Units of the coldest blocks. */
static void kvmm_give_cold(struct kvmm_giving *g)
{
	struct kvmm_pool *pool = g->pool;
	unsigned int tries = 0;
	u64 cursor = 0;
	bool held;
	u32 frame;

	while (g->pages < g->want && tries < KVMM_GIVE_TRIES) {
		mutex_lock(&pool->lock);
		frame = pool->dead ? KVMM_NONE :
			kvmm_core_cold_frame(&pool->core, g->flags,
					     kvmm_pool_now(pool), &cursor);
		held = frame != KVMM_NONE && kvmm_chunk_of(pool, frame)->holds;
		mutex_unlock(&pool->lock);
		if (frame != KVMM_NONE && !held && kvmm_give_unit(g, frame))
			tries = 0;
		else
			tries++;
		if (!cursor)
			break;
		cond_resched();
	}
}

/* Whatever can go from frame @first to before @last, from the end on. */
static void kvmm_give_range(struct kvmm_giving *g, u32 first, u32 last,
			    bool all)
{
	u32 unit = kvmm_unit_frames(g->pool);

	while (last > first && (all || g->pages < g->want)) {
		last -= unit;
		if (!READ_ONCE(kvmm_chunk_of(g->pool, last)->holds))
			kvmm_give_unit(g, last);
		cond_resched();
	}
}

/* Chunks that were asked back and are not leased any more. */
static void kvmm_give_released(struct kvmm_giving *g)
{
	struct kvmm_pool *pool = g->pool;
	struct kvmm_elastic *e = &pool->elastic;
	u32 i;

	for (i = e->nr_chunks; i-- && READ_ONCE(e->nr_released);) {
		struct kvmm_chunk *chunk = &e->chunks[i];
		bool wanted;

		mutex_lock(&pool->lock);
		wanted = chunk->wanted && !chunk->holds;
		mutex_unlock(&pool->lock);
		if (wanted) {
			kvmm_give_range(g, i * e->chunk_frames,
					(i + 1) * e->chunk_frames, true);
			mutex_lock(&pool->lock);
			kvmm_chunk_unwant(pool, chunk);
			mutex_unlock(&pool->lock);
		}
		cond_resched();
	}
}

/* Was all of a chunk given back already. */
static bool kvmm_chunk_gone(struct kvmm_pool *pool, u32 i)
{
	u32 chunk_frames = pool->elastic.chunk_frames;
	u32 from = i * chunk_frames - pool->core.first_elastic;

	return find_next_zero_bit(pool->elastic.gone, from + chunk_frames,
				  from) >= from + chunk_frames;
}

/* Ask for chunks that are leased, as many as would do. */
static void kvmm_want_leased(struct kvmm_giving *g)
{
	struct kvmm_pool *pool = g->pool;
	struct kvmm_elastic *e = &pool->elastic;
	u64 chunk_pages = (u64)e->chunk_frames << kvmm_frame_page_shift(pool);
	u32 first = pool->core.first_elastic / e->chunk_frames;
	u32 i = e->nr_chunks;
	u32 n;

	while (i > first && READ_ONCE(e->nr_leased) && g->pages < g->want) {
		mutex_lock(&pool->lock);
		/* Looking at a large chunk takes a while. */
		for (n = 0; n < KVMM_CORE_BATCH && i > first &&
		     g->pages < g->want; n += 1 + (e->chunk_frames >> 12)) {
			struct kvmm_chunk *chunk = &e->chunks[--i];

			if (!chunk->holds || kvmm_chunk_gone(pool, i))
				continue;
			kvmm_chunk_want(pool, i);
			g->pages += chunk_pages;
		}
		mutex_unlock(&pool->lock);
		cond_resched();
	}
}

/**
 * kvmm_give_back() - give memory to the system
 * @pool: in the list of elastic pools, kvmm_elastic_lock is held
 * @pages: how much is wanted; 0: only what was asked back before
 * @hard: all blocks that can be computed again may go
 *
 * Return: pages whose frames went.
 */
u64 kvmm_give_back(struct kvmm_pool *pool, u64 pages, bool hard)
{
	struct kvmm_elastic *e = &pool->elastic;
	struct kvmm_giving g = {
		.pool = pool,
		.flags = hard ? KVMM_OFFLINE_HARD : 0,
		.want = pages,
	};
	unsigned int shift = kvmm_frame_page_shift(pool);
	u64 given;

	lockdep_assert_held(&kvmm_elastic_lock);
	if (e->wish != READ_ONCE(kvmm_pressure_nr)) {
		e->wish = READ_ONCE(kvmm_pressure_nr);
		kvmm_wishes_end(pool);
	}
	if (pages) {
		mutex_lock(&pool->lock);
		kvmm_event_pool(pool, KVMM_EVENT_PRESSURE,
				(pages >> shift) ?: 1);
		mutex_unlock(&pool->lock);
	}
	kvmm_give_released(&g);
	kvmm_give_free(&g);
	kvmm_give_cold(&g);
	if (hard)
		kvmm_give_range(&g, pool->core.first_elastic,
				pool->core.cfg.nr_frames, false);
	given = g.pages;
	mutex_lock(&pool->lock);
	if (given) {
		e->shrinks++;
		kvmm_event_pool(pool, KVMM_EVENT_GIVEN_BACK, given >> shift);
		/* The frames that were ready are fewer now. */
		if (!pool->dead)
			kvmm_writeback_kick(pool);
	} else if (pages) {
		e->idle_until = jiffies + HZ;
	}
	mutex_unlock(&pool->lock);
	kvmm_want_leased(&g);
	return given;
}
