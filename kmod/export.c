// SPDX-License-Identifier: GPL-2.0
/*
 * Exported frames: KVMM_EXPORT, and the memory that a dma-buf holds.
 *
 * An export has references of its own to the folios of its frames.  So a pool
 * can be destroyed at any time: its mappings are revoked and its file is
 * emptied, but the pages stay for who has the dma-buf, and count as pinned until
 * it is gone.  As long as the pool lives, frames that are exported are not given
 * back to the system: two memories, one for the device and one for the CPU,
 * would be the end of it.
 *
 * The pool finds its exports in a tree by frames, under its lock.
 */
#include <linux/dma-buf.h>
#include <linux/interval_tree_generic.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "arena.h"
#include "export.h"
#include "kvmm_mod.h"
#include "limit.h"
#include "poison.h"

/* Entries of a scatter list count bytes in 32 bits. */
#define KVMM_MAX_PIECE	(SZ_1G >> PAGE_SHIFT)

#define kvmm_mem_first(x)	((x)->first)
#define kvmm_mem_last(x)	((x)->last)
INTERVAL_TREE_DEFINE(struct kvmm_export_mem, rb, u32, subtree_last,
		     kvmm_mem_first, kvmm_mem_last, static inline, kvmm_mem)

/**
 * kvmm_export_covers() - is any frame of a range exported
 * @pool: the pool, locked
 * @first: first frame
 * @count: frames, at least 1
 *
 * Such frames must keep their memory.
 */
bool kvmm_export_covers(struct kvmm_pool *pool, u32 first, u32 count)
{
	lockdep_assert_held(&pool->lock);
	return kvmm_mem_iter_first(&pool->exports, first, first + count - 1);
}

/* How many frames of a range are exported, at least once. */
static u32 kvmm_export_count(struct kvmm_pool *pool, u32 first, u32 last)
{
	u64 next = first;
	struct kvmm_export_mem *x;
	u32 sum = 0;

	lockdep_assert_held(&pool->lock);
	/* They come in the order of their first frames. */
	for (x = kvmm_mem_iter_first(&pool->exports, first, last); x;
	     x = kvmm_mem_iter_next(x, first, last)) {
		u64 from = max_t(u64, next, x->first);
		u64 to = min(last, x->last) + 1ULL;

		if (from < to) {
			sum += to - from;
			next = to;
		}
	}
	return sum;
}

/**
 * kvmm_export_revoke() - the pool gives all its memory up but what is exported
 * @pool: dead; its arena is the caller's alone
 *
 * From now on the last export of a frame lets go of its memory.
 * Return: frames that stay.
 */
u32 kvmm_export_revoke(struct kvmm_pool *pool)
{
	u32 kept;

	mutex_lock(&pool->lock);
	pool->exports_left = true;
	kept = kvmm_export_count(pool, 0, pool->core.cfg.nr_frames - 1);
	mutex_unlock(&pool->lock);
	return kept;
}

/*
 * Go through the pages from @start on.  With @pieces, take the references and
 * note what is contiguous; without, only count.
 */
static int kvmm_export_walk(struct kvmm_export_mem *x, pgoff_t start,
			    struct kvmm_piece *pieces)
{
	struct address_space *mapping = kvmm_arena_inode(x->pool)->i_mapping;
	pgoff_t pages = x->nr_pages;
	unsigned long next_pfn = 0;
	pgoff_t at = 0;
	pgoff_t run = 0;
	u32 nr = 0;
	int ret = 0;

	while (at < pages) {
		struct page *page;
		struct folio *folio;
		pgoff_t n;

		if (fatal_signal_pending(current)) {
			ret = -EINTR;
			break;
		}
		page = find_get_page(mapping, start + at);
		if (WARN_ON_ONCE(!page)) {
			ret = -EAGAIN;
			break;
		}
		folio = page_folio(page);
		n = min(folio_next_index(folio) - (start + at), pages - at);
		/* No device is to run into an error that is known. */
		if (!pieces &&
		    kvmm_folio_poisoned(folio, start + at - folio->index,
					start + at - folio->index + n)) {
			folio_put(folio);
			ret = -EHWPOISON;
			break;
		}
		if (!run || page_to_pfn(page) != next_pfn ||
		    run + n > KVMM_MAX_PIECE) {
			if (pieces) {
				pieces[nr].page = page;
				pieces[nr].start = at;
			}
			nr++;
			run = 0;
		}
		run += n;
		next_pfn = page_to_pfn(page) + n;
		at += n;
		if (!pieces)
			folio_put(folio);
		cond_resched();
	}
	x->nr_pieces = nr;
	if (pieces)
		pieces[nr].start = at;
	return ret;
}

/* Drop the references again. */
static void kvmm_export_put_pages(struct kvmm_export_mem *x)
{
	u32 i;

	for (i = 0; x->pieces && i < x->nr_pieces; i++) {
		unsigned long pfn = page_to_pfn(x->pieces[i].page);
		pgoff_t left = kvmm_piece_pages(x, i);

		while (left) {
			struct page *page = pfn_to_page(pfn);
			struct folio *folio = page_folio(page);
			pgoff_t n = folio_pfn(folio) + folio_nr_pages(folio) -
				    pfn;

			n = min(n, left);
			/* Of a pool that is gone, maybe the last. */
			if (READ_ONCE(folio->mapping))
				folio_put(folio);
			else
				kvmm_folio_drop(folio, 1);
			pfn += n;
			left -= n;
			cond_resched();
		}
	}
	kvfree(x->pieces);
}

/**
 * kvmm_export_poisoned() - has a memory error struck an export
 * @x: the export
 */
bool kvmm_export_poisoned(const struct kvmm_export_mem *x)
{
	u32 i;

	for (i = 0; i < x->nr_pieces; i++) {
		unsigned long pfn = page_to_pfn(x->pieces[i].page);
		pgoff_t left = kvmm_piece_pages(x, i);

		while (left) {
			struct folio *folio = page_folio(pfn_to_page(pfn));
			pgoff_t from = pfn - folio_pfn(folio);
			pgoff_t n = min_t(pgoff_t, left,
					  folio_nr_pages(folio) - from);

			if (kvmm_folio_poisoned(folio, from, from + n))
				return true;
			pfn += n;
			left -= n;
			cond_resched();
		}
	}
	return false;
}

/* The frames are online, and stay so: the tree has them. */
static int kvmm_export_hold(struct kvmm_export_mem *x)
{
	unsigned int shift = kvmm_frame_page_shift(x->pool);
	pgoff_t start = (pgoff_t)x->first << shift;
	u32 first = x->first;
	struct kvmm_piece *pieces;
	u32 last;
	int ret;

	if (kvmm_next_run(x->pool, false, &first, &last, x->last + 1))
		return -EAGAIN;
	/* A pool that dies meanwhile is not searched to the end. */
	if (READ_ONCE(x->pool->dead))
		return -ENODEV;
	ret = kvmm_export_walk(x, start, NULL);
	if (ret)
		return ret;
	pieces = kvmalloc_array(x->nr_pieces + 1, sizeof(*pieces),
				GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!pieces)
		return -ENOMEM;
	x->pieces = pieces;
	return kvmm_export_walk(x, start, pieces);
}

static int kvmm_export_add(struct kvmm_export_mem *x)
{
	struct kvmm_pool *pool = x->pool;
	int ret = 0;

	mutex_lock(&pool->lock);
	if (pool->dead) {
		ret = -ENODEV;
	} else if (pool->nr_exports >= KVMM_MAX_EXPORTS) {
		ret = -EUSERS;
	} else {
		kvmm_mem_insert(x, &pool->exports);
		pool->nr_exports++;
	}
	mutex_unlock(&pool->lock);
	return ret;
}

/* Undo kvmm_export_add(); what nobody else has of it is pinned no more. */
static void kvmm_export_del(struct kvmm_export_mem *x)
{
	struct kvmm_pool *pool = x->pool;
	u64 frames = 0;

	mutex_lock(&pool->lock);
	kvmm_mem_remove(x, &pool->exports);
	pool->nr_exports--;
	if (pool->exports_left)
		frames = x->last - x->first + 1 -
			 kvmm_export_count(pool, x->first, x->last);
	mutex_unlock(&pool->lock);
	kvmm_limit_uncharge(pool, frames << pool->block_shift);
}

static void kvmm_export_free(struct kvmm_export_mem *x)
{
	kvmm_pool_put(x->pool);
	mutex_destroy(&x->lock);
	kfree(x);
}

/** kvmm_export_drop() - let go of the memory; the dma-buf is gone */
void kvmm_export_drop(struct kvmm_export_mem *x)
{
	kvmm_export_put_pages(x);
	kvmm_export_del(x);
	kvmm_export_free(x);
}

/* A revocation waits for the arena, and finds all of an export or nothing. */
static struct kvmm_export_mem *kvmm_export_make(struct kvmm_pool *pool,
						const struct kvmm_export *a)
{
	struct kvmm_export_mem *x;
	int ret;

	x = kzalloc(sizeof(*x), GFP_KERNEL_ACCOUNT);
	if (!x)
		return ERR_PTR(-ENOMEM);
	kref_get(&pool->ref);
	x->pool = pool;
	x->first = a->first;
	x->last = a->first + a->count - 1;
	x->rdonly = a->flags & KVMM_EXPORT_RDONLY;
	x->nr_pages = (pgoff_t)a->count << kvmm_frame_page_shift(pool);
	mutex_init(&x->lock);
	INIT_LIST_HEAD(&x->maps);

	ret = down_read_killable(&pool->arena.sem);
	if (ret)
		goto err_free;
	ret = kvmm_export_add(x);
	if (ret)
		goto err_unlock;
	ret = kvmm_export_hold(x);
	if (ret)
		goto err_del;
	up_read(&pool->arena.sem);
	return x;

err_del:
	kvmm_export_put_pages(x);
	kvmm_export_del(x);
err_unlock:
	up_read(&pool->arena.sem);
err_free:
	kvmm_export_free(x);
	return ERR_PTR(ret);
}

int kvmm_do_export(struct kvmm_client *client, struct file *file, void *arg)
{
	struct kvmm_export_call *call = arg;
	struct kvmm_pool *pool = client->pool;
	struct kvmm_export *a = &call->a;
	struct kvmm_export_mem *x;
	struct dma_buf *buf;
	int fd;

	call->file = NULL;
	a->fd = -1;
	if (a->flags & ~KVMM_EXPORT_RDONLY || a->__reserved || !a->count ||
	    (u64)a->first + a->count > pool->core.cfg.nr_frames)
		return -EINVAL;
	if (client->rdonly && !(a->flags & KVMM_EXPORT_RDONLY))
		return -EACCES;

	x = kvmm_export_make(pool, a);
	if (IS_ERR(x))
		return PTR_ERR(x);
	buf = kvmm_dmabuf_make(x);
	if (IS_ERR(buf)) {
		kvmm_export_drop(x);
		return PTR_ERR(buf);
	}
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		dma_buf_put(buf);
		return fd;
	}
	call->file = buf->file;
	a->fd = fd;
	return 0;
}

/**
 * kvmm_export_told() - the caller knows the descriptor, or never will
 * @client: the caller
 * @arg: the command's struct
 * @err: 0 or what the command returns
 *
 * A descriptor that was installed can't be taken back, as others may have got
 * hold of it; so it is installed last.
 */
void kvmm_export_told(struct kvmm_client *client, void *arg, int err)
{
	struct kvmm_export_call *call = arg;

	if (!call->file)
		return;
	if (err) {
		put_unused_fd(call->a.fd);
		fput(call->file);
	} else {
		fd_install(call->a.fd, call->file);
	}
}
