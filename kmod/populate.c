// SPDX-License-Identifier: GPL-2.0
/*
 * Giving frames their memory: KVMM_POPULATE.
 *
 * Memory comes in units: the frames of one huge page, or one larger frame.  A
 * unit comes online as a whole as soon as it is there, while the pool works on.
 * Several threads may populate at once; place.c says where it comes from and who
 * is charged.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/shmem_fs.h>

#include "arena.h"
#include "compat/compat.h"
#include "kvmm_mod.h"
#include "limit.h"
#include "place.h"
#include "poison.h"
#include "populate.h"
#include "trace.h"

/* What nobody has asked for takes only what is free. */
#define KVMM_GENTLE_GFP							\
	((GFP_HIGHUSER & ~__GFP_DIRECT_RECLAIM) | __GFP_NORETRY | __GFP_NOWARN)

/* More than this for one run, and clients do nothing but touch other frames. */
#define KVMM_MAX_SWEEPS	1000

/* Folios with an old memory error, in a row: more are no accident. */
#define KVMM_MAX_STRUCK	8

/** kvmm_arena_allow() - change the limit of blocks by @pages */
void kvmm_arena_allow(struct kvmm_pool *pool, long pages)
{
	struct shmem_sb_info *sbinfo = kvmm_arena_sbinfo(pool->arena.mnt);

	raw_spin_lock(&sbinfo->stat_lock);
	sbinfo->max_blocks += pages;
	raw_spin_unlock(&sbinfo->stat_lock);
}

/*
 * While the limit is raised for a page to come, a client that touches some
 * frame without memory may get it instead.  Take back what frames have that are
 * not online, other than @first to before @last.  The arena is ours alone, but
 * for clients in the middle of getting a page: that is seen a moment later.
 */
static void kvmm_arena_sweep(struct kvmm_pool *pool, u32 first, u32 last)
{
	unsigned int shift = kvmm_frame_page_shift(pool);
	u32 from = 0;
	u32 end = first;
	u32 to;

	for (;;) {
		while (kvmm_next_run(pool, false, &from, &to, end)) {
			kvmm_arena_punch(pool, (pgoff_t)from << shift,
					 (pgoff_t)to << shift);
			from = to;
		}
		if (end > first)
			break;
		from = last;
		end = pool->core.cfg.nr_frames;
	}
	usleep_range(20, 100);
}

/*
 * Get the page at @index, zeroed, with a reference.
 *
 * Many kernels zero all memory as it is allocated (init_on_alloc), and shmem,
 * which doesn't know, zeroes it again: that would double the time that a pool
 * takes.  Only what is about to write a page is given it as it comes, so that
 * is what we say we are.  A page that is not up to date then is fresh from the
 * allocator, and locked since.
 */
static struct page *kvmm_arena_get(struct kvmm_pool *pool, pgoff_t index,
				   long want, bool gently)
{
	struct file *file = pool->arena.file;
	struct folio *folio;

	if (gently)
		return shmem_read_mapping_page_gfp(file->f_mapping, index,
						   KVMM_GENTLE_GFP);
	if (!want_init_on_alloc(KVMM_ARENA_GFP))
		return shmem_read_mapping_page_gfp(file->f_mapping, index,
						   KVMM_ARENA_GFP);
	folio = kvmm_shmem_begin(file, (loff_t)index << PAGE_SHIFT,
				 want << PAGE_SHIFT);
	if (IS_ERR(folio))
		return ERR_CAST(folio);
	if (!folio_test_uptodate(folio)) {
		flush_dcache_folio(folio);
		folio_mark_uptodate(folio);
	}
	folio_unlock(folio);
	return folio_file_page(folio, index);
}

/*
 * Take a folio out of the file that was got for a frame, and the reference to
 * it; no frame that is online has a part of it.
 */
static void kvmm_arena_reject(struct kvmm_pool *pool, struct folio *folio)
{
	pgoff_t from = folio->index;
	pgoff_t to = folio_next_index(folio);

	kvmm_folio_drop(folio, 1);
	kvmm_arena_punch(pool, from, to);
}

/*
 * The file system looks at one page, refuses it, and leaves its folio in the
 * file.  Returns -EIO if that was for another reason.
 */
static int kvmm_arena_refused(struct kvmm_pool *pool, pgoff_t index)
{
	struct address_space *mapping = kvmm_arena_inode(pool)->i_mapping;
	struct page *page = find_get_page(mapping, index);
	struct folio *folio;

	if (!page)
		return -EIO;
	folio = page_folio(page);
	if (!kvmm_folio_struck(folio)) {
		folio_put(folio);
		return -EIO;
	}
	kvmm_arena_reject(pool, folio);
	return -EHWPOISON;
}

/*
 * Get one folio, or the part of it before @end, with the limit raised for just
 * that.  Returns -ENOSPC where someone else was faster, -EXDEV where it would be
 * on a node that was not asked for, -EHWPOISON where it has an old error.
 */
static int kvmm_arena_try_one(struct kvmm_fill *fill, pgoff_t start,
			      pgoff_t index, pgoff_t end, pgoff_t *next)
{
	struct kvmm_pool *pool = fill->pool;
	bool huge = !(index & (PTRS_PER_PTE - 1)) &&
		    end - index >= PTRS_PER_PTE;
	long want = huge ? PTRS_PER_PTE : 1;
	struct mem_cgroup *old;
	struct folio *folio;
	struct page *page;
	int ret = 0;

	kvmm_arena_allow(pool, want);
	old = kvmm_memcg_enter(pool->memcg);
	page = kvmm_arena_get(pool, index, want, fill->gently);
	kvmm_memcg_leave(old);
	if (IS_ERR(page)) {
		ret = PTR_ERR(page);
		kvmm_arena_allow(pool, -want);
		return ret == -EIO ? kvmm_arena_refused(pool, index) : ret;
	}
	folio = page_folio(page);
	if (kvmm_folio_struck(folio))
		ret = -EHWPOISON;
	else if (kvmm_place_refuses(pool, folio_nid(folio),
				    READ_ONCE(fill->full)))
		/* The node is full, or the caller may not use it. */
		ret = -EXDEV;
	else if (folio->index < start || folio_next_index(folio) > end)
		/* A client got a huge page that has other frames too. */
		ret = -ENOSPC;
	if (ret) {
		kvmm_arena_allow(pool, -want);
		kvmm_arena_reject(pool, folio);
		return ret;
	}
	*next = folio_next_index(folio);
	kvmm_arena_allow(pool, (long)(*next - index) - want);
	folio_ref_add(folio, kvmm_frames_of(pool, index, *next) - 1);
	/* A clean page of shmem would be a page nobody wrote. */
	set_page_dirty(page);
	return 0;
}

/*
 * The same; one with an old error is set aside, and the kernel asked for another.
 * It hands such out when someone's huge page was struck and freed as a whole.
 */
static int kvmm_arena_get_one(struct kvmm_fill *fill, pgoff_t start,
			      pgoff_t index, pgoff_t end, pgoff_t *next)
{
	int tries = KVMM_MAX_STRUCK;
	int ret;

	do {
		ret = kvmm_arena_try_one(fill, start, index, end, next);
	} while (ret == -EHWPOISON && --tries);
	return ret == -EHWPOISON ? -EIO : ret;
}

/*
 * The same; the node whose turn it is may be full: then it is another's.  Who
 * merely prefers them takes what there is when all are.  Trying costs as much as
 * getting memory does, so it is not done again by the same populate.
 */
static int kvmm_arena_fill_one(struct kvmm_fill *fill, pgoff_t start,
			       pgoff_t index, pgoff_t end, pgoff_t *next)
{
	struct kvmm_pool *pool = fill->pool;
	struct mutex *turn = &pool->arena.turn;
	unsigned int n = 1;
	int ret;

	ret = kvmm_arena_get_one(fill, start, index, end, next);
	if (ret != -EXDEV)
		return ret;
	if (mutex_lock_killable(turn))
		return -EINTR;
	while (ret == -EXDEV && kvmm_place_turn(pool, n++))
		ret = kvmm_arena_get_one(fill, start, index, end, next);
	kvmm_place_turn(pool, 0);
	mutex_unlock(turn);
	if (ret != -EXDEV)
		return ret;
	if (!pool->nodes_prefer)
		return -ENOMEM;
	WRITE_ONCE(fill->full, true);
	return kvmm_arena_get_one(fill, start, index, end, next);
}

/*
 * Get zeroed memory for frames @first to before @last, or for none of them.
 * Who has the arena @alone can take stolen memory back and go on.
 */
static int kvmm_arena_fill(struct kvmm_fill *fill, u32 first, u32 last,
			   bool alone)
{
	struct kvmm_pool *pool = fill->pool;
	unsigned int shift = kvmm_frame_page_shift(pool);
	pgoff_t start = (pgoff_t)first << shift;
	pgoff_t end = (pgoff_t)last << shift;
	pgoff_t index = start;
	int sweeps = alone ? KVMM_MAX_SWEEPS : 0;
	int ret = 0;

	while (index < end) {
		pgoff_t next;

		ret = READ_ONCE(pool->dead) ? -ENODEV : 0;
		if (fatal_signal_pending(current))
			ret = -EINTR;
		if (READ_ONCE(fill->cancelled))
			ret = -ECANCELED;
		if (ret)
			break;
		ret = kvmm_arena_fill_one(fill, start, index, end, &next);
		if (ret == -ENOSPC && sweeps-- > 0) {
			kvmm_arena_punch(pool, index, end);
			kvmm_arena_sweep(pool, first, last);
			continue;
		}
		if (ret)
			break;
		index = next;
		cond_resched();
	}
	if (ret && index > start) {
		kvmm_arena_release(pool, start, index);
		kvmm_arena_punch(pool, start, index);
		kvmm_arena_allow(pool, -(long)(index - start));
	}
	return ret;
}

static unsigned int kvmm_arena_count_segs(struct kvmm_pool *pool, u32 first,
					  u32 last)
{
	size_t len = 1UL << pool->block_shift;
	unsigned int most = 1;
	size_t bytes;
	u32 f;

	for (f = first; f < last; f++)
		most = max(most, kvmm_arena_bvec(pool,
						 (u64)f << pool->block_shift,
						 len, NULL, UINT_MAX, &bytes));
	return most;
}

/* Frames @first to before @last have memory: hand them to the core. */
static void kvmm_arena_online(struct kvmm_pool *pool, u32 first, u32 last)
{
	unsigned int segs = kvmm_arena_count_segs(pool, first, last);
	u32 misplaced = kvmm_place_misplaced(pool, first, last);

	while (first < last) {
		u32 n = min_t(u32, last - first, KVMM_CORE_BATCH);

		mutex_lock(&pool->lock);
		if (pool->arena.max_segs < segs)
			WRITE_ONCE(pool->arena.max_segs, segs);
		kvmm_core_frames_online(&pool->core, first, n);
		pool->frames_misplaced += misplaced;
		kvmm_elastic_online(pool, first, n);
		mutex_unlock(&pool->lock);
		misplaced = 0;
		first += n;
	}
	wake_up_all(&pool->wait);
}

/*
 * Frames of a run within a unit.  Units that are whole huge pages come in side
 * by side.  Any other run has the arena alone: then the limit has no room for a
 * huge page, which would give memory to frames that are not in the run.
 */
static int kvmm_try_run(struct kvmm_fill *fill, u32 first, u32 last,
			bool alone)
{
	struct kvmm_pool *pool = fill->pool;
	struct rw_semaphore *sem = &pool->arena.sem;
	int ret;

	ret = alone ? down_write_killable(sem) : down_read_killable(sem);
	if (ret)
		return ret;
	/* The size of a pool that was destroyed is 0. */
	if (!i_size_read(kvmm_arena_inode(pool))) {
		ret = -ENODEV;
	} else {
		ret = kvmm_arena_fill(fill, first, last, alone);
		if (!ret)
			kvmm_arena_online(pool, first, last);
	}
	if (alone)
		up_write(sem);
	else
		up_read(sem);
	return ret;
}

static int kvmm_pin_run(struct kvmm_fill *fill, u32 first, u32 last)
{
	struct kvmm_pool *pool = fill->pool;
	unsigned int shift = kvmm_frame_page_shift(pool);
	u64 pages = (u64)(first | last) << shift;
	u64 bytes = (u64)(last - first) << pool->block_shift;
	int ret;

	ret = kvmm_limit_charge(pool, bytes);
	if (ret)
		return ret;
	ret = kvmm_try_run(fill, first, last, pages & (PTRS_PER_PTE - 1));
	if (ret == -ENOSPC)
		ret = kvmm_try_run(fill, first, last, true);
	if (!ret)
		return 0;
	kvmm_limit_uncharge(pool, bytes);
	return ret == -ENOSPC ? -ENOMEM : ret;
}

static int kvmm_populate_run(struct kvmm_fill *fill, u32 first, u32 last)
{
	u64 start = trace_kvmm_populate_enabled() ? ktime_get_ns() : 0;
	int ret = kvmm_pin_run(fill, first, last);

	if (start)
		trace_kvmm_populate(fill->pool, first, last - first,
				    kvmm_us_since(start), ret);
	return ret;
}

/**
 * kvmm_populate_unit() - populate frames of one unit
 * @fill: what it is a part of
 * @first: first frame
 * @last: frame after the last one
 */
int kvmm_populate_unit(struct kvmm_fill *fill, u32 first, u32 last)
{
	struct kvmm_pool *pool = fill->pool;
	struct mutex *lock = kvmm_unit_lock(pool, first);
	u32 end = last;
	int ret;

	ret = mutex_lock_killable(lock);
	if (ret)
		return ret;
	while (!ret && kvmm_next_run(pool, false, &first, &last, end)) {
		ret = kvmm_populate_run(fill, first, last);
		first = last;
	}
	mutex_unlock(lock);
	/* No frames were found in a pool that died meanwhile. */
	if (!ret && READ_ONCE(pool->dead))
		ret = -ENODEV;
	return ret;
}

static int kvmm_populate_sync(struct kvmm_pool *pool, struct kvmm_populate *a)
{
	u32 unit = kvmm_unit_frames(pool);
	u64 frame = a->first;
	u64 end = (u64)a->first + a->count;
	struct kvmm_fill fill;
	int ret;

	ret = kvmm_fill_begin(&fill, pool, a->count);
	if (ret)
		return ret;
	while (frame < end) {
		u64 next = min(round_down(frame, unit) + unit, end);

		ret = -EINTR;
		if (task_sigpending(current))
			break;
		ret = kvmm_populate_unit(&fill, frame, next);
		if (ret)
			break;
		kvmm_fill_step(&fill, next - frame);
		a->done += next - frame;
		frame = next;
		cond_resched();
	}
	kvmm_fill_end(&fill);
	return ret;
}

static int kvmm_populate_async(struct kvmm_pool *pool, struct kvmm_populate *a)
{
	u32 end = a->first + a->count;
	u32 first = a->first;
	u32 last = 0;

	/* What is there already. */
	kvmm_next_run(pool, false, &first, &last, end);
	a->done = first - a->first;
	return kvmm_fill_async(pool, a->first, end, a->workers);
}

int kvmm_do_populate(struct kvmm_client *client, struct file *file, void *arg)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_populate *a = arg;

	a->done = 0;
	if (a->flags == KVMM_POPULATE_CANCEL) {
		if (a->first || a->count || a->workers)
			return -EINVAL;
		return kvmm_fill_cancel(pool);
	}
	if (a->flags & ~KVMM_POPULATE_ASYNC || !a->count ||
	    (u64)a->first + a->count > pool->core.cfg.nr_frames ||
	    a->workers > KVMM_MAX_WORKERS)
		return -EINVAL;
	if (a->flags & KVMM_POPULATE_ASYNC)
		return kvmm_populate_async(pool, a);
	return a->workers ? -EINVAL : kvmm_populate_sync(pool, a);
}
