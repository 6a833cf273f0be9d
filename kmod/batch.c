// SPDX-License-Identifier: GPL-2.0
/*
 * Commands on blocks that the caller knows: pins, touches, drops, queries, and
 * those that follow a chain of blocks.  What commands on arrays share is here,
 * too.
 */
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "batch.h"
#include "kvmm_mod.h"
#include "poison.h"

/**
 * kvmm_pool_lock() - lock the pool, if it is there
 * @pool: the pool
 *
 * Return: 0 with its lock held, or -ENODEV.
 */
int kvmm_pool_lock(struct kvmm_pool *pool)
{
	mutex_lock(&pool->lock);
	if (!pool->dead)
		return 0;
	mutex_unlock(&pool->lock);
	return -ENODEV;
}

/** kvmm_next_batch() - let the others in between two batches; 0 or -EINTR */
int kvmm_next_batch(void)
{
	cond_resched();
	return fatal_signal_pending(current) ? -EINTR : 0;
}

/**
 * kvmm_unpin_untold() - drop pins of which the caller could not be told
 * @client: whose they are
 * @refs: as user memory, which can't be written, should have them; changed
 * @n: how many
 */
void kvmm_unpin_untold(struct kvmm_client *client, struct kvmm_block_ref *refs,
		       u32 n)
{
	struct kvmm_pool *pool = client->pool;
	u32 pinned = 0;
	u32 i;

	for (i = 0; i < n; i++)
		if (refs[i].result >= 0 && refs[i].frame != KVMM_NO_FRAME)
			refs[pinned++] = refs[i];
	if (kvmm_pool_lock(pool))
		return;
	kvmm_core_unpin(&pool->core, client->id, refs, pinned);
	mutex_unlock(&pool->lock);
}

static u32 kvmm_count_good(const struct kvmm_block_ref *refs, u32 n)
{
	u32 good = 0;
	u32 i;

	for (i = 0; i < n; i++)
		good += refs[i].result >= 0;
	return good;
}

typedef void (*kvmm_batch_fn)(struct kvmm_client *client, u64 now,
			      struct kvmm_cursor *cur,
			      struct kvmm_block_ref *refs, u32 n);

static void kvmm_pin_fn(struct kvmm_client *client, u64 now,
			struct kvmm_cursor *cur, struct kvmm_block_ref *refs,
			u32 n)
{
	u32 i;

	for (i = 0; kvmm_poison_pending() && i < n; i++)
		kvmm_poison_look(client->pool, refs[i].handle);
	kvmm_core_pin(&client->pool->core, client->id, !client->rdonly, refs,
		      n);
}

static int kvmm_do_batch(struct kvmm_client *client, struct kvmm_batch *a,
			 kvmm_batch_fn fn)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_block_ref __user *user = u64_to_user_ptr(a->refs);
	struct kvmm_block_ref *refs = client->buf.refs;
	struct kvmm_cursor cur = {};
	u32 at, n;
	int ret = 0;

	a->done = 0;
	if (a->flags || kvmm_bad_count(a->count))
		return -EINVAL;

	mutex_lock(&client->lock);
	for (at = 0; at < a->count && !ret; at += n) {
		n = min_t(u32, a->count - at, KVMM_CORE_BATCH);
		ret = -EFAULT;
		if (copy_from_user(refs, user + at, n * sizeof(*refs)))
			break;
		ret = kvmm_pool_lock(pool);
		if (ret)
			break;
		fn(client, kvmm_pool_now(pool), &cur, refs, n);
		mutex_unlock(&pool->lock);
		a->done += kvmm_count_good(refs, n);
		ret = -EFAULT;
		if (copy_to_user(user + at, refs, n * sizeof(*refs))) {
			if (fn == kvmm_pin_fn)
				kvmm_unpin_untold(client, refs, n);
			break;
		}
		ret = kvmm_next_batch();
	}
	mutex_unlock(&client->lock);
	return ret;
}

static void kvmm_touch_fn(struct kvmm_client *client, u64 now,
			  struct kvmm_cursor *cur, struct kvmm_block_ref *refs,
			  u32 n)
{
	kvmm_core_touch(&client->pool->core, now, cur, refs, n);
}

static void kvmm_unpin_fn(struct kvmm_client *client, u64 now,
			  struct kvmm_cursor *cur, struct kvmm_block_ref *refs,
			  u32 n)
{
	kvmm_core_unpin(&client->pool->core, client->id, refs, n);
	kvmm_writeback_kick(client->pool);
}

static void kvmm_drop_fn(struct kvmm_client *client, u64 now,
			 struct kvmm_cursor *cur, struct kvmm_block_ref *refs,
			 u32 n)
{
	kvmm_core_drop(&client->pool->core, client->id, refs, n);
}

static void kvmm_query_fn(struct kvmm_client *client, u64 now,
			  struct kvmm_cursor *cur, struct kvmm_block_ref *refs,
			  u32 n)
{
	kvmm_core_query(&client->pool->core, now, refs, n);
}

int kvmm_do_touch(struct kvmm_client *client, struct file *file, void *arg)
{
	return kvmm_do_batch(client, arg, kvmm_touch_fn);
}

int kvmm_do_pin(struct kvmm_client *client, struct file *file, void *arg)
{
	return kvmm_do_batch(client, arg, kvmm_pin_fn);
}

int kvmm_do_unpin(struct kvmm_client *client, struct file *file, void *arg)
{
	return kvmm_do_batch(client, arg, kvmm_unpin_fn);
}

int kvmm_do_drop(struct kvmm_client *client, struct file *file, void *arg)
{
	return kvmm_do_batch(client, arg, kvmm_drop_fn);
}

int kvmm_do_query(struct kvmm_client *client, struct file *file, void *arg)
{
	return kvmm_do_batch(client, arg, kvmm_query_fn);
}

int kvmm_do_request_end(struct kvmm_client *client, struct file *file,
			void *arg)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_request_end *a = arg;
	u64 handle = a->handle;
	int n = 0;
	int ret;

	a->done = 0;
	if (a->flags)
		return -EINVAL;
	do {
		ret = kvmm_pool_lock(pool);
		if (ret)
			return ret;
		n = kvmm_core_chain(&pool->core, kvmm_pool_now(pool), &handle);
		if (n > 0 && !a->done)
			kvmm_core_request_end(&pool->core, a->output_tokens);
		mutex_unlock(&pool->lock);
		if (n > 0)
			a->done += n;
		ret = kvmm_next_batch();
	} while (n > 0 && handle && !ret);
	return n < 0 && !a->done ? n : ret;
}

int kvmm_do_hint(struct kvmm_client *client, struct file *file, void *arg)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_hint *a = arg;
	struct kvmm_cursor cur = {};
	u64 handle = a->handle;
	bool found = false;
	int n = 0;
	int ret;

	a->done = 0;
	if (a->flags || a->__reserved || a->permille > 1000)
		return -EINVAL;
	do {
		ret = kvmm_pool_lock(pool);
		if (ret)
			return ret;
		n = kvmm_core_hint(&pool->core, a->permille,
				   kvmm_pool_now(pool), &cur, &handle);
		mutex_unlock(&pool->lock);
		if (n < 0)
			break;
		found = true;
		a->done += n;
		ret = kvmm_next_batch();
	} while (handle && !ret);
	return n < 0 && !found ? n : ret;
}
