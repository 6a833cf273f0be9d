// SPDX-License-Identifier: GPL-2.0
/*
 * What can be asked about pools, and the small commands on a whole pool.
 */
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/user_namespace.h>

#include "kvmm_mod.h"
#include "limit.h"
#include "swap.h"

int kvmm_do_pool_list(struct kvmm_client *client, struct file *file, void *arg)
{
	struct kvmm_pool_list *a = arg;
	struct kvmm_pool_entry __user *user = u64_to_user_ptr(a->entries);
	struct user_namespace *ns = current_user_ns();
	struct kvmm_pool_entry e;
	struct kvmm_pool *pool;

	if (a->flags || !a->count || a->count > KVMM_MAX_BATCH)
		return -EINVAL;
	a->done = 0;
	while (a->done < a->count) {
		u64 id = 0;

		memset(&e, 0, sizeof(e));
		mutex_lock(&kvmm_pools_lock);
		pool = kvmm_pool_after(a->cursor);
		if (pool) {
			id = pool->id;
			memcpy(e.name, pool->name, sizeof(e.name));
			e.mode = pool->mode;
			e.uid = from_kuid_munged(ns, pool->uid);
			e.gid = from_kgid_munged(ns, pool->gid);
			e.block_size = 1U << pool->block_shift;
			e.nr_frames = pool->core.cfg.nr_frames;
			e.nr_slots = pool->core.cfg.nr_slots;
			e.policy = pool->policy;
			e.nr_clients = pool->nr_bound;
		}
		mutex_unlock(&kvmm_pools_lock);
		if (!id)
			break;
		if (copy_to_user(user + a->done, &e, sizeof(e)))
			return -EFAULT;
		a->cursor = id;
		a->done++;
	}
	return 0;
}

int kvmm_do_info(struct kvmm_client *client, struct file *file, void *arg)
{
	struct kvmm_info *a = arg;

	if (a->flags)
		return -EINVAL;
	a->abi = KVMM_ABI;
	a->nr_pools = kvmm_pools_count();
	a->features = KVMM_FEATURE_CHECKSUM | KVMM_FEATURE_EVENTS |
		      KVMM_FEATURE_WRITEBACK | KVMM_FEATURE_NUMA |
		      KVMM_FEATURE_WORKERS | KVMM_FEATURE_DEADLINE |
		      KVMM_FEATURE_ELASTIC;
	if (IS_ENABLED(CONFIG_IO_URING))
		a->features |= KVMM_FEATURE_URING;
	if (IS_ENABLED(CONFIG_DMA_SHARED_BUFFER))
		a->features |= KVMM_FEATURE_EXPORT;
	a->policies = 1ULL << KVMM_POLICY_LRU;
	a->max_block_size = KVMM_MAX_BLOCK_SIZE;
	a->max_batch = KVMM_MAX_BATCH;
	a->pinned_bytes = kvmm_limit_held();
	memset(a->version, 0, sizeof(a->version));
	strscpy(a->version, KVMM_VERSION, sizeof(a->version));
	return 0;
}

int kvmm_do_pool_reset(struct kvmm_client *client, struct file *file,
		       void *arg)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_pool_reset *a = arg;
	int ret = 0;

	if (a->flags)
		return -EINVAL;
	mutex_lock(&pool->lock);
	if (pool->dead)
		ret = -ENODEV;
	else
		a->epoch = kvmm_core_reset(&pool->core);
	mutex_unlock(&pool->lock);
	return ret;
}

/**
 * kvmm_pool_stat() - all counters
 * @pool: the pool, locked and not dead
 * @st: filled but for @size and @flags
 */
void kvmm_pool_stat(struct kvmm_pool *pool, struct kvmm_pool_stat *st)
{
	kvmm_core_stat(&pool->core, st);
	st->checksums = kvmm_area_checksums(pool);
	st->clean_outs = pool->writeback.outs;
	st->events = pool->events;
	st->events_lost = pool->events_lost;
	st->frames_misplaced = pool->frames_misplaced;
	st->exports = pool->nr_exports;
	st->frames_populating = pool->frames_populating;
	kvmm_elastic_stat(pool, st);
}

int kvmm_do_pool_stat(struct kvmm_client *client, struct file *file, void *arg)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_pool_stat *a = arg;
	u32 size = a->size;
	int ret = 0;

	if (a->flags)
		return -EINVAL;
	mutex_lock(&pool->lock);
	if (pool->dead)
		ret = -ENODEV;
	else
		kvmm_pool_stat(pool, a);
	mutex_unlock(&pool->lock);
	a->size = size;
	a->flags = 0;
	return ret;
}

int kvmm_do_pool_clock(struct kvmm_client *client, struct file *file,
		       void *arg)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_pool_clock *a = arg;
	int ret = 0;

	if (a->flags || !pool->manual_clock)
		return -EINVAL;
	mutex_lock(&pool->lock);
	if (pool->dead)
		ret = -ENODEV;
	else if (a->now_ms < pool->now_ms)
		ret = -EINVAL;
	else
		pool->now_ms = a->now_ms;
	mutex_unlock(&pool->lock);
	return ret;
}
