// SPDX-License-Identifier: GPL-2.0
/*
 * Memory errors.
 *
 * The kernel's handler, memory_failure(), marks a page.  It can't take it away,
 * nor split its huge page, for the references that the pool holds; and it tells
 * nobody but its tracepoint.  So we listen there, as a tracer would: the page is
 * noted, and a worker finds the frame and retires it.  Until that is done, which
 * kvmm_poison_pending() says, whoever hands out frames looks at each of them.
 *
 * Frames that are free are looked at when they are taken: there is no way to
 * find them in the list.
 *
 * In the end a huge page with a mark must not go back to the system: freed as a
 * whole, the bad page would be handed out with it (single pages are held back by
 * the kernel itself).  Its last reference stays, and it is ours for good.  Others
 * who have huge pages take no such care, so what the kernel hands out is looked
 * at as well.
 */
#include <linux/atomic.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/spinlock.h>
#include <linux/tracepoint.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "arena.h"
#include "kvmm_mod.h"
#include "poison.h"

/* ---- huge pages that stay ---- */

/* Those, by the number of their first page; and their pages. */
static DEFINE_XARRAY(kvmm_kept);
static atomic64_t kvmm_kept_pages;

/** kvmm_poison_kept() - bytes that the system does not get back */
u64 kvmm_poison_kept(void)
{
	return (u64)atomic64_read(&kvmm_kept_pages) << PAGE_SHIFT;
}

/* Returns whether the caller's reference is the one that stays. */
static bool kvmm_folio_keep(struct folio *folio)
{
	int ret = xa_insert(&kvmm_kept, folio_pfn(folio), xa_mk_value(1),
			    GFP_KERNEL | __GFP_NOWARN);

	if (ret == -EBUSY)
		return false;
	atomic64_add(folio_nr_pages(folio), &kvmm_kept_pages);
	pr_warn("kvmm: a memory error struck the huge page at pfn %#lx: it is kept from the system\n",
		folio_pfn(folio));
	return true;
}

/**
 * kvmm_folio_struck() - has an error struck a folio that the kernel hands out
 * @folio: on its way into the arena
 *
 * A page's mark stays when its huge page is freed, but the huge page's own, that
 * there is such a page in it, does not.  Here it gets that back, by which
 * kvmm_folio_drop() will know it.
 */
bool kvmm_folio_struck(struct folio *folio)
{
	long i = folio_nr_pages(folio);

	if (!IS_ENABLED(CONFIG_MEMORY_FAILURE))
		return false;
	while (i && !PageHWPoison(folio_page(folio, i - 1)))
		i--;
	if (i && folio_test_large(folio))
		folio_set_has_hwpoisoned(folio);
	return i;
}

/**
 * kvmm_folio_drop() - drop references of the pool, for good
 * @folio: on its way out of the arena, or out already
 * @refs: how many
 *
 * May sleep.
 */
void kvmm_folio_drop(struct folio *folio, unsigned int refs)
{
	if (IS_ENABLED(CONFIG_MEMORY_FAILURE) && folio_test_large(folio) &&
	    unlikely(folio_test_has_hwpoisoned(folio)) &&
	    kvmm_folio_keep(folio))
		refs--;
	if (refs)
		folio_put_refs(folio, refs);
}

/* ---- frames of blocks ---- */

/* Errors told of, and those of them that no block is in any more. */
unsigned int kvmm_poison_seen;
unsigned int kvmm_poison_done;

/**
 * kvmm_poison_look() - retire the frame of a block if it was struck
 * @pool: the pool, locked and not dead
 * @handle: the block, or any number
 */
void kvmm_poison_look(struct kvmm_pool *pool, u64 handle)
{
	struct kvmm_block_ref ref = { .handle = handle };

	kvmm_core_query(&pool->core, kvmm_pool_now(pool), &ref, 1);
	if (ref.frame != KVMM_NO_FRAME && kvmm_frame_poisoned(pool, ref.frame))
		kvmm_core_frame_retire(&pool->core, handle);
}

/**
 * kvmm_poison_elsewhere() - see that a block is not read into a bad frame
 * @pool: the pool, locked since the core decided
 * @io: its decision; changes
 *
 * Return: as kvmm_core_swap_in().
 */
int kvmm_poison_elsewhere(struct kvmm_pool *pool, struct kvmm_io *io)
{
	int ret = KVMM_IO_ISSUE;

	while (ret == KVMM_IO_ISSUE && kvmm_frame_poisoned(pool, io->frame))
		ret = kvmm_core_read_elsewhere(&pool->core, io->handle,
					       kvmm_pool_now(pool), io);
	return ret;
}

#ifdef CONFIG_MEMORY_FAILURE

/* Pages that the worker has not seen to; those above @kvmm_poison_taken. */
#define KVMM_POISON_ROOM	64
static unsigned long kvmm_poison_pfn[KVMM_POISON_ROOM];
static unsigned int kvmm_poison_taken;
static bool kvmm_poison_lost;
static DEFINE_SPINLOCK(kvmm_poison_lock);

/* @folio, of which there is a reference, is @page's; retire the block in it. */
static void kvmm_poison_strike(struct folio *folio, struct page *page)
{
	struct kvmm_pool *pool;
	u64 handle;
	u64 id = 0;

	mutex_lock(&kvmm_pools_lock);
	while ((pool = kvmm_pool_after(id))) {
		pgoff_t index = folio->index + folio_page_idx(folio, page);

		id = pool->id;
		if (READ_ONCE(folio->mapping) !=
		    kvmm_arena_inode(pool)->i_mapping)
			continue;
		mutex_lock(&pool->lock);
		handle = pool->dead ? 0 :
			kvmm_core_frame_block(&pool->core, index >>
					      kvmm_frame_page_shift(pool));
		if (handle)
			kvmm_poison_look(pool, handle);
		mutex_unlock(&pool->lock);
		break;
	}
	mutex_unlock(&kvmm_pools_lock);
}

static void kvmm_poison_page(unsigned long pfn)
{
	struct page *page = pfn_to_online_page(pfn);
	struct folio *folio;

	if (!page)
		return;
	/* What is ours has references; what is not may go at any time. */
	folio = page_folio(page);
	if (!folio_try_get(folio))
		return;
	if (page_folio(page) == folio)
		kvmm_poison_strike(folio, page);
	folio_put(folio);
}

static void kvmm_poison_work_fn(struct work_struct *work)
{
	unsigned int n = kvmm_poison_taken;
	unsigned long pfn = 0;
	bool more = true;

	while (more) {
		spin_lock_irq(&kvmm_poison_lock);
		more = n != kvmm_poison_seen;
		if (more)
			pfn = kvmm_poison_pfn[n % KVMM_POISON_ROOM];
		spin_unlock_irq(&kvmm_poison_lock);
		if (!more)
			break;
		kvmm_poison_page(pfn);
		cond_resched();
		n++;
		WRITE_ONCE(kvmm_poison_taken, n);
		if (READ_ONCE(kvmm_poison_lost))
			continue;
		/* After what was done under the lock that who asks has. */
		smp_store_release(&kvmm_poison_done, n);
	}
}

static DECLARE_WORK(kvmm_poison_work, kvmm_poison_work_fn);

/* The tracepoint: at the end of memory_failure(), in any context. */
static void kvmm_poison_probe(void *data, unsigned long pfn, int type,
			      int result)
{
	unsigned long flags;

	spin_lock_irqsave(&kvmm_poison_lock, flags);
	/* More than can be noted: then frames are looked at from now on. */
	if (kvmm_poison_seen - READ_ONCE(kvmm_poison_taken) >= KVMM_POISON_ROOM)
		WRITE_ONCE(kvmm_poison_lost, true);
	kvmm_poison_pfn[kvmm_poison_seen % KVMM_POISON_ROOM] = pfn;
	WRITE_ONCE(kvmm_poison_seen, kvmm_poison_seen + 1);
	spin_unlock_irqrestore(&kvmm_poison_lock, flags);
	queue_work(system_unbound_wq, &kvmm_poison_work);
}

#ifdef CONFIG_TRACEPOINTS
static struct tracepoint *kvmm_poison_tp;

static void kvmm_poison_find(struct tracepoint *tp, void *priv)
{
	if (!strcmp(tp->name, "memory_failure_event"))
		kvmm_poison_tp = tp;
}

static bool kvmm_poison_listen(void)
{
	for_each_kernel_tracepoint(kvmm_poison_find, NULL);
	if (!kvmm_poison_tp)
		return false;
	if (!tracepoint_probe_register(kvmm_poison_tp, kvmm_poison_probe, NULL))
		return true;
	kvmm_poison_tp = NULL;
	return false;
}

static void kvmm_poison_unlisten(void)
{
	if (!kvmm_poison_tp)
		return;
	tracepoint_probe_unregister(kvmm_poison_tp, kvmm_poison_probe, NULL);
	tracepoint_synchronize_unregister();
}
#else
static bool kvmm_poison_listen(void)
{
	return false;
}

static void kvmm_poison_unlisten(void)
{
}
#endif

/** kvmm_poison_init() - listen to the kernel */
void kvmm_poison_init(void)
{
	/* Where it does not tell, frames are looked at each time. */
	if (!kvmm_poison_listen()) {
		kvmm_poison_lost = true;
		kvmm_poison_seen = 1;
	}
}

/** kvmm_poison_exit() - no more; there is no pool left */
void kvmm_poison_exit(void)
{
	kvmm_poison_unlisten();
	flush_work(&kvmm_poison_work);
	xa_destroy(&kvmm_kept);
}

#else /* !CONFIG_MEMORY_FAILURE */

void kvmm_poison_init(void)
{
}

void kvmm_poison_exit(void)
{
}

#endif
