// SPDX-License-Identifier: GPL-2.0
/*
 * Life of a pool: creation, opening, destruction, and the list of all pools.
 *
 * A pool lives until it is destroyed by name; it holds a reference to the
 * module all that time.  What a client needs after that to close its file, the
 * struct itself and the empty arena, goes with the last client.
 */
#include <linux/ctype.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timekeeping.h>

#include "arena.h"
#include "kvmm_mod.h"
#include "limit.h"
#include "place.h"
#include "populate.h"
#include "swap.h"

/* Protects the list, the states of pools in it and who is bound to them. */
DEFINE_MUTEX(kvmm_pools_lock);
static LIST_HEAD(kvmm_pools);
static unsigned int kvmm_nr_pools;
static u64 kvmm_next_pool_id = 1;

/**
 * kvmm_pool_now() - the pool's time in ms
 * @pool: the pool, locked
 */
u64 kvmm_pool_now(struct kvmm_pool *pool)
{
	if (pool->manual_clock)
		return pool->now_ms;
	return ktime_to_ms(ktime_get_boottime());
}

/** kvmm_pools_count() - pools that exist */
u32 kvmm_pools_count(void)
{
	u32 count;

	mutex_lock(&kvmm_pools_lock);
	count = kvmm_nr_pools;
	mutex_unlock(&kvmm_pools_lock);
	return count;
}

/**
 * kvmm_pool_after() - the next pool in the order of ids
 * @id: of the one before, or 0
 *
 * kvmm_pools_lock is held.  Return: the pool or NULL.
 */
struct kvmm_pool *kvmm_pool_after(u64 id)
{
	struct kvmm_pool *pool;

	lockdep_assert_held(&kvmm_pools_lock);
	list_for_each_entry(pool, &kvmm_pools, node)
		if (pool->id > id && pool->state == KVMM_POOL_LIVE)
			return pool;
	return NULL;
}

/** kvmm_pool_owned() - may the caller manage @pool */
bool kvmm_pool_owned(const struct kvmm_pool *pool)
{
	return uid_eq(current_euid(), pool->uid) || capable(CAP_SYS_ADMIN);
}

/* As for a file, but that writing needs reading too. */
static bool kvmm_pool_permits(const struct kvmm_pool *pool, bool write)
{
	umode_t want = write ? 06 : 04;
	umode_t mode = pool->mode;

	if (uid_eq(current_fsuid(), pool->uid))
		mode >>= 6;
	else if (in_group_p(pool->gid))
		mode >>= 3;
	if ((mode & want) == want)
		return true;
	return capable(CAP_DAC_OVERRIDE) ||
	       (!write && capable(CAP_DAC_READ_SEARCH));
}

static void *kvmm_table_alloc(void *ctx, size_t bytes)
{
	if (fatal_signal_pending(current))
		return NULL;
	cond_resched();
	return kvzalloc(bytes, GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL |
			__GFP_NOWARN);
}

static void kvmm_table_free(void *ctx, void *mem, size_t bytes)
{
	kvfree(mem);
}

static int kvmm_check_name(const char *name)
{
	size_t len = strnlen(name, KVMM_NAME_LEN);
	size_t i;

	if (len == KVMM_NAME_LEN)
		return -ENAMETOOLONG;
	if (!len || name[0] == '.' || name[0] == '-')
		return -EINVAL;
	for (i = 0; i < len; i++) {
		unsigned char c = name[i];

		if (!isascii(c) || (!isalnum(c) && !strchr("._-", c)))
			return -EINVAL;
	}
	return 0;
}

static int kvmm_check_create(const struct kvmm_pool_create *a)
{
	if (a->flags & ~(KVMM_POOL_MANUAL_CLOCK | KVMM_POOL_NODES_PREFER) ||
	    a->__reserved || a->__reserved2)
		return -EINVAL;
	if (a->mode & ~0777)
		return -EINVAL;
	if (a->policy >= 64)
		return -EINVAL;
	if (!is_power_of_2(a->block_size) ||
	    a->block_size < max_t(u32, KVMM_MIN_BLOCK_SIZE, PAGE_SIZE) ||
	    a->block_size > KVMM_MAX_BLOCK_SIZE)
		return -EINVAL;
	if (!a->nr_frames ||
	    (u64)a->nr_frames + a->nr_slots > KVMM_MAX_BLOCKS)
		return -EINVAL;
	if (a->quarantine_ms > KVMM_MAX_QUARANTINE_MS)
		return -EINVAL;
	if (!kvmm_core_chunk_frames(a->block_size, PMD_SIZE, a->nr_frames,
				    a->nr_elastic, a->chunk_frames))
		return -EINVAL;
	if (a->policy != KVMM_POLICY_LRU)
		return -EOPNOTSUPP;
	return kvmm_place_check(a);
}

static struct kvmm_pool *kvmm_pool_find(const char *name)
{
	struct kvmm_pool *pool;

	lockdep_assert_held(&kvmm_pools_lock);
	list_for_each_entry(pool, &kvmm_pools, node)
		if (!strcmp(pool->name, name))
			return pool;
	return NULL;
}

/* Take the name, so that the rest can be made without the lock. */
static int kvmm_pool_reserve(struct kvmm_pool *pool)
{
	unsigned int max = min_t(unsigned int, READ_ONCE(kvmm_max_pools),
				 KVMM_MAX_POOLS);
	int ret = 0;

	mutex_lock(&kvmm_pools_lock);
	if (kvmm_pool_find(pool->name)) {
		ret = -EEXIST;
	} else if (kvmm_nr_pools >= max || !kvmm_user_add_pool(pool->user)) {
		ret = -EUSERS;
	} else {
		pool->id = kvmm_next_pool_id++;
		list_add_tail(&pool->node, &kvmm_pools);
		kvmm_nr_pools++;
	}
	mutex_unlock(&kvmm_pools_lock);
	return ret;
}

static void kvmm_pool_unlist(struct kvmm_pool *pool)
{
	mutex_lock(&kvmm_pools_lock);
	list_del(&pool->node);
	kvmm_nr_pools--;
	kvmm_user_del_pool(pool->user);
	mutex_unlock(&kvmm_pools_lock);
}

static void kvmm_pool_free(struct kref *ref)
{
	struct kvmm_pool *pool = container_of(ref, struct kvmm_pool, ref);

	kvmm_arena_exit(pool);
	kvmm_place_exit(pool);
	kvmm_user_put(pool->user);
	kvmm_elastic_exit(pool);
	mutex_destroy(&pool->lock);
	mutex_destroy(&pool->area_lock);
	kfree(pool);
}

/** kvmm_pool_put() - let go of a pool */
void kvmm_pool_put(struct kvmm_pool *pool)
{
	kref_put(&pool->ref, kvmm_pool_free);
}

/*
 * From the moment @dead is set no command starts, and who attaches or detaches
 * gives up; what was started is I/O that ends with the device.  Then nobody but
 * us looks at what is torn down.
 */
static void kvmm_pool_end_work(struct work_struct *work)
{
	struct kvmm_pool *pool = container_of(work, struct kvmm_pool,
					      end_work);

	kvmm_sysfs_del_pool(pool);

	mutex_lock(&pool->lock);
	WRITE_ONCE(pool->dead, true);
	kvmm_event_hangup(pool);
	mutex_unlock(&pool->lock);
	wake_up_all(&pool->wait);
	mutex_lock(&pool->area_lock);
	kvmm_swap_drain(pool);
	kvmm_writeback_exit(pool);
	kvmm_fill_drain(pool);
	kvmm_elastic_del(pool);

	kvmm_arena_revoke(pool);
	kvmm_place_exit(pool);
	mutex_lock(&pool->lock);
	kvmm_core_exit(&pool->core);
	mutex_unlock(&pool->lock);
	kvmm_area_drop(pool);
	mutex_unlock(&pool->area_lock);

	kvmm_pool_unlist(pool);
	/* Who waits can unload now, and unloading waits for this to return. */
	module_put(THIS_MODULE);
	complete_all(&pool->ended);
	kvmm_pool_put(pool);
}

static struct kvmm_pool *kvmm_pool_make(const struct kvmm_pool_create *a)
{
	struct kvmm_pool *pool;

	pool = kzalloc(sizeof(*pool), GFP_KERNEL_ACCOUNT);
	if (!pool)
		return NULL;
	INIT_LIST_HEAD(&pool->node);
	pool->user = kvmm_user_get(current_euid());
	if (!pool->user) {
		kfree(pool);
		return NULL;
	}
	kref_init(&pool->ref);
	strscpy(pool->name, a->name, sizeof(pool->name));
	pool->uid = current_euid();
	pool->gid = current_egid();
	pool->mode = a->mode;
	pool->policy = a->policy;
	pool->block_shift = ilog2(a->block_size);
	pool->manual_clock = a->flags & KVMM_POOL_MANUAL_CLOCK;
	kvmm_place_init(pool, a);
	mutex_init(&pool->area_lock);
	mutex_init(&pool->lock);
	kvmm_elastic_setup(pool);
	hash_init(pool->inflight);
	init_waitqueue_head(&pool->wait);
	INIT_LIST_HEAD(&pool->clients);
	INIT_LIST_HEAD(&pool->listeners);
	pool->exports = RB_ROOT_CACHED;
	INIT_LIST_HEAD(&pool->fills);
	init_llist_head(&pool->done_list);
	INIT_LIST_HEAD(&pool->ops);
	INIT_WORK(&pool->done_work, kvmm_done_work);
	kvmm_writeback_init(pool);
	INIT_DELAYED_WORK(&pool->late_work, kvmm_late_work);
	INIT_WORK(&pool->end_work, kvmm_pool_end_work);
	init_completion(&pool->ended);
	return pool;
}

static int kvmm_pool_init_core(struct kvmm_pool *pool,
			       const struct kvmm_pool_create *a)
{
	struct kvmm_core_config cfg = {
		.nr_frames = a->nr_frames,
		.nr_slots = a->nr_slots,
		.nr_holds = a->nr_holds,
		.max_clients = KVMM_MAX_CLIENTS,
		.quarantine_ms = a->quarantine_ms,
		.block_size = a->block_size,
		.nr_elastic = a->nr_elastic,
		.unit_frames = max_t(u32, PMD_SIZE / a->block_size, 1),
		.alloc = kvmm_table_alloc,
		.free = kvmm_table_free,
		.note = kvmm_event_note,
		.ctx = pool,
	};

	/* Else it is found out when there is no memory left for anyone. */
	if (kvmm_core_bytes(&cfg) > (u64)totalram_pages() << PAGE_SHIFT)
		return -ENOMEM;
	get_random_bytes(cfg.secret, sizeof(cfg.secret));
	return kvmm_core_init(&pool->core, &cfg);
}

int kvmm_do_pool_create(struct kvmm_client *client, struct file *file,
			void *arg)
{
	struct kvmm_pool_create *a = arg;
	struct kvmm_pool *pool;
	int ret;

	ret = kvmm_check_name(a->name);
	if (ret)
		return ret;
	ret = kvmm_check_create(a);
	if (ret)
		return ret;
	if ((file->f_mode & (FMODE_READ | FMODE_WRITE)) !=
	    (FMODE_READ | FMODE_WRITE))
		return -EACCES;
	if (!kvmm_may_create())
		return -EPERM;

	mutex_lock(&client->lock);
	if (client->pool) {
		ret = -EISCONN;
		goto err_unlock;
	}
	pool = kvmm_pool_make(a);
	if (!pool) {
		ret = -ENOMEM;
		goto err_unlock;
	}
	ret = kvmm_writeback_set(pool, a->clean_low, a->clean_high);
	if (ret)
		goto err_put;
	pool->arena.size = (u64)a->nr_frames << pool->block_shift;
	ret = -ENOMEM;
	if (!kvmm_limit_room(pool->user, (u64)(a->nr_frames - a->nr_elastic) <<
					 pool->block_shift))
		goto err_put;
	ret = kvmm_pool_reserve(pool);
	if (ret)
		goto err_put;
	/* First: it refuses what can't be before anything is allocated. */
	ret = kvmm_pool_init_core(pool, a);
	if (ret)
		goto err_unlist;
	ret = kvmm_elastic_init(pool, a);
	if (ret)
		goto err_core;
	ret = kvmm_arena_init(pool);
	if (ret)
		goto err_core;
	ret = kvmm_sysfs_add_pool(pool);
	if (ret)
		goto err_core;
	kvmm_elastic_add(pool);

	mutex_lock(&kvmm_pools_lock);
	ret = kvmm_client_bind(client, pool, false);
	if (ret) {
		mutex_unlock(&kvmm_pools_lock);
		goto err_sysfs;
	}
	/* The caller's open file holds the module until here. */
	__module_get(THIS_MODULE);
	pool->state = KVMM_POOL_LIVE;
	mutex_unlock(&kvmm_pools_lock);
	a->arena_size = pool->arena.size;
	a->chunk_frames = pool->elastic.chunk_frames;
	mutex_unlock(&client->lock);
	return 0;

err_sysfs:
	kvmm_elastic_del(pool);
	kvmm_sysfs_del_pool(pool);
err_core:
	mutex_lock(&pool->lock);
	WRITE_ONCE(pool->dead, true);
	kvmm_core_exit(&pool->core);
	mutex_unlock(&pool->lock);
err_unlist:
	kvmm_pool_unlist(pool);
err_put:
	kvmm_pool_put(pool);
err_unlock:
	mutex_unlock(&client->lock);
	return ret;
}

int kvmm_do_pool_open(struct kvmm_client *client, struct file *file, void *arg)
{
	struct kvmm_pool_open *a = arg;
	struct kvmm_pool *pool;
	bool rdonly;
	int ret;

	ret = kvmm_check_name(a->name);
	if (ret)
		return ret;
	if (a->flags & ~KVMM_POOL_RDONLY)
		return -EINVAL;
	if (!(file->f_mode & FMODE_READ))
		return -EACCES;
	rdonly = a->flags & KVMM_POOL_RDONLY || !(file->f_mode & FMODE_WRITE);

	mutex_lock(&client->lock);
	if (client->pool) {
		ret = -EISCONN;
		goto out_client;
	}
	mutex_lock(&kvmm_pools_lock);
	pool = kvmm_pool_find(a->name);
	if (!pool || pool->state != KVMM_POOL_LIVE) {
		ret = -ENOENT;
		goto out_pools;
	}
	if (!kvmm_pool_permits(pool, !rdonly)) {
		ret = -EACCES;
		goto out_pools;
	}
	ret = kvmm_client_bind(client, pool, rdonly);
	if (ret)
		goto out_pools;
	a->block_size = 1U << pool->block_shift;
	a->nr_frames = pool->core.cfg.nr_frames;
	a->nr_slots = pool->core.cfg.nr_slots;
	a->policy = pool->policy;
	a->arena_size = pool->arena.size;
	a->nr_elastic = pool->core.cfg.nr_elastic;
	a->chunk_frames = pool->elastic.chunk_frames;
out_pools:
	mutex_unlock(&kvmm_pools_lock);
out_client:
	mutex_unlock(&client->lock);
	return ret;
}

int kvmm_do_pool_destroy(struct kvmm_client *client, struct file *file,
			 void *arg)
{
	struct kvmm_pool_destroy *a = arg;
	struct kvmm_pool *pool;
	unsigned int mine;
	int ret;

	ret = kvmm_check_name(a->name);
	if (ret)
		return ret;
	if (a->flags & ~KVMM_POOL_FORCE)
		return -EINVAL;

	mutex_lock(&kvmm_pools_lock);
	pool = kvmm_pool_find(a->name);
	if (!pool || pool->state != KVMM_POOL_LIVE) {
		ret = -ENOENT;
		goto err_unlock;
	}
	if (!kvmm_pool_owned(pool)) {
		ret = -EPERM;
		goto err_unlock;
	}
	mine = kvmm_client_pool(client) == pool;
	if (pool->nr_bound > mine && !(a->flags & KVMM_POOL_FORCE)) {
		ret = -EBUSY;
		goto err_unlock;
	}
	pool->state = KVMM_POOL_DYING;
	kref_get(&pool->ref);
	mutex_unlock(&kvmm_pools_lock);

	/* A device may hang: who is killed meanwhile does not have to wait. */
	queue_work(kvmm_end_wq, &pool->end_work);
	ret = wait_for_completion_killable(&pool->ended) ? -EINTR : 0;
	kvmm_pool_put(pool);
	return ret;

err_unlock:
	mutex_unlock(&kvmm_pools_lock);
	return ret;
}
