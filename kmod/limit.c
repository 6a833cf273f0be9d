// SPDX-License-Identifier: GPL-2.0
/*
 * Limits: how much memory all pools together may hold, how much and how many
 * pools one user may have, and who may make pools at all.
 *
 * Memory in pools can't be swapped by the kernel, so it is limited as mlock()
 * is: by a privilege, by a share of the machine, and by user.
 */
#include <linux/capability.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/refcount.h>
#include <linux/slab.h>

#include "kvmm_mod.h"
#include "limit.h"

/* Of the machine's memory, where nothing else is said. */
#define KVMM_DEFAULT_PERCENT	80

unsigned int kvmm_max_pools = KVMM_MAX_POOLS;
module_param_named(max_pools, kvmm_max_pools, uint, 0644);
MODULE_PARM_DESC(max_pools,
		 "Pools that can exist at once, at most 256 (default 256)");

static unsigned long kvmm_max_bytes;
module_param_named(max_bytes, kvmm_max_bytes, ulong, 0644);
MODULE_PARM_DESC(max_bytes,
		 "Bytes that all pools together may hold; 0: 80% of memory (default)");

static unsigned long kvmm_max_user_bytes;
module_param_named(max_user_bytes, kvmm_max_user_bytes, ulong, 0644);
MODULE_PARM_DESC(max_user_bytes,
		 "Bytes that the pools of one user but root may hold; 0: no limit (default)");

static unsigned int kvmm_max_user_pools;
module_param_named(max_user_pools, kvmm_max_user_pools, uint, 0644);
MODULE_PARM_DESC(max_user_pools,
		 "Pools that one user but root may have; 0: no limit (default)");

static int kvmm_create_gid = -1;
module_param_named(create_gid, kvmm_create_gid, int, 0644);
MODULE_PARM_DESC(create_gid,
		 "Group whose members may make pools; -1: only who has CAP_IPC_LOCK (default)");

/* Bytes of all frames that are online, and of those just coming. */
static atomic64_t kvmm_pinned_bytes;

/**
 * struct kvmm_user - owner of pools
 * @node: in the list of users; kvmm_users_lock
 * @uid: who
 * @ref: one for each pool, which keeps it as long as its struct
 * @nr_pools: pools that exist; kvmm_pools_lock
 * @bytes: that they hold
 */
struct kvmm_user {
	struct list_head node;
	kuid_t uid;
	refcount_t ref;
	unsigned int nr_pools;
	atomic64_t bytes;
};

/* Protects the list; inside all other locks. */
static DEFINE_MUTEX(kvmm_users_lock);
static LIST_HEAD(kvmm_users);

/** kvmm_limit_bytes() - what all pools together may hold now */
u64 kvmm_limit_bytes(void)
{
	u64 max = READ_ONCE(kvmm_max_bytes);

	if (max)
		return max;
	return ((u64)totalram_pages() * KVMM_DEFAULT_PERCENT / 100) <<
		PAGE_SHIFT;
}

/** kvmm_limit_held() - what they hold */
u64 kvmm_limit_held(void)
{
	return atomic64_read(&kvmm_pinned_bytes);
}

static u64 kvmm_user_limit(const struct kvmm_user *user)
{
	u64 max = READ_ONCE(kvmm_max_user_bytes);

	if (!max || uid_eq(user->uid, GLOBAL_ROOT_UID))
		return U64_MAX;
	return max;
}

/** kvmm_may_create() - may the current task make pools */
bool kvmm_may_create(void)
{
	int gid = READ_ONCE(kvmm_create_gid);
	kgid_t kgid = make_kgid(&init_user_ns, gid);

	if (gid >= 0 && gid_valid(kgid) && in_group_p(kgid))
		return true;
	return capable(CAP_IPC_LOCK);
}

static struct kvmm_user *kvmm_user_find(kuid_t uid)
{
	struct kvmm_user *user;

	lockdep_assert_held(&kvmm_users_lock);
	list_for_each_entry(user, &kvmm_users, node)
		if (uid_eq(user->uid, uid))
			return user;
	return NULL;
}

/**
 * kvmm_user_get() - the user who owns a new pool
 * @uid: who
 *
 * Return: the user with one more reference, or NULL: no memory.
 */
struct kvmm_user *kvmm_user_get(kuid_t uid)
{
	struct kvmm_user *user;

	mutex_lock(&kvmm_users_lock);
	user = kvmm_user_find(uid);
	if (user) {
		refcount_inc(&user->ref);
	} else {
		user = kzalloc(sizeof(*user), GFP_KERNEL);
		if (user) {
			user->uid = uid;
			refcount_set(&user->ref, 1);
			list_add_tail(&user->node, &kvmm_users);
		}
	}
	mutex_unlock(&kvmm_users_lock);
	return user;
}

/** kvmm_user_put() - a pool's struct goes */
void kvmm_user_put(struct kvmm_user *user)
{
	if (!user)
		return;
	mutex_lock(&kvmm_users_lock);
	if (refcount_dec_and_test(&user->ref)) {
		list_del(&user->node);
		kfree(user);
	}
	mutex_unlock(&kvmm_users_lock);
}

/**
 * kvmm_user_add_pool() - count one more pool
 * @user: who
 *
 * kvmm_pools_lock is held.  Return: false: that would be too many.
 */
bool kvmm_user_add_pool(struct kvmm_user *user)
{
	unsigned int max = READ_ONCE(kvmm_max_user_pools);

	lockdep_assert_held(&kvmm_pools_lock);
	if (max && user->nr_pools >= max &&
	    !uid_eq(user->uid, GLOBAL_ROOT_UID))
		return false;
	user->nr_pools++;
	return true;
}

/** kvmm_user_del_pool() - count one less; kvmm_pools_lock is held */
void kvmm_user_del_pool(struct kvmm_user *user)
{
	lockdep_assert_held(&kvmm_pools_lock);
	user->nr_pools--;
}

/**
 * kvmm_limit_room() - would the limits, as things are, allow so much more
 * @user: for whom
 * @bytes: how much
 *
 * A pool that could never have its memory is better refused when it is made.
 */
bool kvmm_limit_room(const struct kvmm_user *user, u64 bytes)
{
	u64 max = kvmm_limit_bytes();
	u64 held = kvmm_limit_held();

	if (held > max || bytes > max - held)
		return false;
	max = kvmm_user_limit(user);
	held = atomic64_read(&user->bytes);
	return held <= max && bytes <= max - held;
}

/**
 * kvmm_limit_charge() - a pool is to have more memory
 * @pool: the pool
 * @bytes: how much
 *
 * Return: 0 or -ENOMEM.
 */
int kvmm_limit_charge(struct kvmm_pool *pool, u64 bytes)
{
	u64 held = atomic64_add_return(bytes, &kvmm_pinned_bytes);
	u64 user_held = atomic64_add_return(bytes, &pool->user->bytes);

	if (held <= kvmm_limit_bytes() &&
	    user_held <= kvmm_user_limit(pool->user))
		return 0;
	kvmm_limit_uncharge(pool, bytes);
	return -ENOMEM;
}

/** kvmm_limit_uncharge() - a pool has less */
void kvmm_limit_uncharge(struct kvmm_pool *pool, u64 bytes)
{
	atomic64_sub(bytes, &pool->user->bytes);
	atomic64_sub(bytes, &kvmm_pinned_bytes);
}
