// SPDX-License-Identifier: GPL-2.0
/*
 * Where the memory of a pool comes from, and who is charged for it: the NUMA
 * nodes that were asked for, and the memory cgroup of who made the pool.
 *
 * The nodes are told to the file system as a mount option.  It is a wish only:
 * a cpuset overrules it, and taking turns goes elsewhere when a node is full.  So
 * each folio is looked at when it has come; where that is elsewhere, the other
 * nodes that were asked for are tried first.
 */
#include <linux/cpuset.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/pagemap.h>
#include <linux/topology.h>

#include "arena.h"
#include "compat/compat.h"
#include "kvmm_mod.h"
#include "place.h"

static void kvmm_nodes_mask(u64 nodes, nodemask_t *mask)
{
	unsigned int nid;

	nodes_clear(*mask);
	for (nid = 0; nid < min(64, MAX_NUMNODES); nid++)
		if (nodes >> nid & 1)
			node_set(nid, *mask);
}

/**
 * kvmm_place_check() - can a pool have the nodes that are asked for
 * @a: how it is to be made
 *
 * Return: 0 or -EINVAL: a node does not exist or has no memory that can be
 * pinned, or the caller's cpuset allows none of them.
 */
int kvmm_place_check(const struct kvmm_pool_create *a)
{
	bool prefer = a->flags & KVMM_POOL_NODES_PREFER;
	nodemask_t mask;
	int nid;

	if (!a->nodes)
		return prefer ? -EINVAL : 0;
	if (MAX_NUMNODES < 64 && a->nodes >> MAX_NUMNODES % 64)
		return -EINVAL;
	kvmm_nodes_mask(a->nodes, &mask);
	for_each_node_mask(nid, mask)
		if (!node_state(nid, N_NORMAL_MEMORY))
			return -EINVAL;
	if (!prefer && !nodes_intersects(mask, cpuset_current_mems_allowed))
		return -EINVAL;
	return 0;
}

/**
 * kvmm_place_init() - remember where memory is to come from, and who pays
 * @pool: new, made by the current task
 * @a: checked
 */
void kvmm_place_init(struct kvmm_pool *pool, const struct kvmm_pool_create *a)
{
	pool->nodes = a->nodes;
	pool->nodes_prefer = a->flags & KVMM_POOL_NODES_PREFER;
	pool->memcg = kvmm_memcg_get();
}

/**
 * kvmm_place_exit() - let go of the memory cgroup
 * @pool: without memory, and none can come any more; may be called twice
 */
void kvmm_place_exit(struct kvmm_pool *pool)
{
	kvmm_memcg_put(pool->memcg);
	pool->memcg = NULL;
}

/**
 * kvmm_place_option() - the nodes as a mount option of tmpfs
 * @pool: the pool
 * @buf: where to write it; an empty string where there is nothing to say
 * @size: room in @buf
 *
 * Without nodes the policy is to take what is local: else it would be the one
 * of the thread that populates, whatever that was made for.
 */
void kvmm_place_option(const struct kvmm_pool *pool, char *buf, size_t size)
{
	const char *mode = "bind";
	nodemask_t mask;

	*buf = 0;
	if (!IS_ENABLED(CONFIG_NUMA))
		return;
	if (!pool->nodes) {
		snprintf(buf, size, "mpol=local");
		return;
	}
	kvmm_nodes_mask(pool->nodes, &mask);
	if (nodes_weight(mask) > 1)
		mode = "interleave";
	else if (pool->nodes_prefer)
		mode = "prefer";
	snprintf(buf, size, "mpol=%s:%*pbl", mode, nodemask_pr_args(&mask));
}

/** kvmm_place_cpus() - processors of the nodes that memory comes from */
unsigned int kvmm_place_cpus(const struct kvmm_pool *pool)
{
	unsigned int n = 0;
	nodemask_t mask;
	int nid;

	if (!pool->nodes)
		return cpumask_weight(cpumask_of_node(numa_node_id()));
	kvmm_nodes_mask(pool->nodes, &mask);
	for_each_node_mask(nid, mask)
		n += cpumask_weight(cpumask_of_node(nid));
	return n;
}

/** kvmm_place_worker() - the node on which worker number @i is to run */
int kvmm_place_worker(const struct kvmm_pool *pool, unsigned int i)
{
	nodemask_t mask;
	int nid;

	if (!pool->nodes)
		return numa_node_id();
	kvmm_nodes_mask(pool->nodes, &mask);
	i %= nodes_weight(mask);
	for_each_node_mask(nid, mask)
		if (!i--)
			break;
	return nid;
}

static bool kvmm_place_asked(const struct kvmm_pool *pool, int nid)
{
	return !pool->nodes || (nid < 64 && pool->nodes >> nid & 1);
}

/**
 * kvmm_place_refuses() - must memory of a node not be in the pool
 * @pool: the pool
 * @nid: the node
 * @full: all nodes that were asked for have been tried
 */
bool kvmm_place_refuses(const struct kvmm_pool *pool, int nid, bool full)
{
	if (kvmm_place_asked(pool, nid))
		return false;
	if (!pool->nodes_prefer)
		return true;
	/* Of a single one, the kernel has tried it. */
	return !full && hweight64(pool->nodes) > 1;
}

/**
 * kvmm_place_turn() - let another node take the turn of the next folio
 * @pool: the pool; kvmm_arena.turn is held
 * @n: the how manyth try, from 1 on; 0: the turns are as they were
 *
 * Whose turn it is goes by the page's index and the inode's number, which the
 * kernel adds so that files begin with different nodes.  Nobody else has a use
 * for the number.  In some kernels a huge page counts as one, in others as its
 * pages; so both steps are tried.
 *
 * Return: false: all nodes were tried.
 */
bool kvmm_place_turn(struct kvmm_pool *pool, unsigned int n)
{
	unsigned int others = pool->nodes ? hweight64(pool->nodes) - 1 : 0;
	unsigned long step = n;

	if (n > 2 * others)
		return false;
	if (n > others)
		step = (n - others) * PTRS_PER_PTE;
	WRITE_ONCE(kvmm_arena_inode(pool)->i_ino, pool->arena.ino + step);
	return true;
}

static bool kvmm_frame_misplaced(struct kvmm_pool *pool, u32 frame)
{
	struct address_space *mapping = kvmm_arena_inode(pool)->i_mapping;
	unsigned int shift = kvmm_frame_page_shift(pool);
	pgoff_t index = (pgoff_t)frame << shift;
	pgoff_t end = index + (1UL << shift);
	bool good = true;

	while (good && index < end) {
		struct page *page = find_get_page(mapping, index);
		struct folio *folio;

		if (WARN_ON_ONCE(!page))
			break;
		folio = page_folio(page);
		good = kvmm_place_asked(pool, folio_nid(folio));
		index = folio_next_index(folio);
		folio_put(folio);
	}
	return !good;
}

/**
 * kvmm_place_misplaced() - how many frames have memory of a node not asked for
 * @pool: the pool
 * @first: first frame
 * @last: frame after the last one; all of them have memory
 *
 * The answer stays true as long as they have it: these pages don't move.
 */
u32 kvmm_place_misplaced(struct kvmm_pool *pool, u32 first, u32 last)
{
	u32 n = 0;
	u32 f;

	/* Only with NODES_PREFER they can be. */
	if (!pool->nodes_prefer)
		return 0;
	for (f = first; f < last; f++)
		n += kvmm_frame_misplaced(pool, f);
	return n;
}
