// SPDX-License-Identifier: GPL-2.0
/*
 * New blocks: frames are allocated, which may mean to wait until there are any,
 * and what was computed in them is published under its key.
 */
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "arena.h"
#include "batch.h"
#include "kvmm_mod.h"
#include "poison.h"
#include "swap.h"
#include "trace.h"

/* Blocks in frames that a memory error has struck are not handed out. */
static u32 kvmm_alloc_sound(struct kvmm_client *client,
			    struct kvmm_block_ref *refs, u32 n)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_block_ref bad;
	u32 good = 0;
	u32 i;

	if (!kvmm_poison_ever())
		return n;
	for (i = 0; i < n; i++) {
		if (!kvmm_frame_poisoned(pool, refs[i].frame)) {
			refs[good++] = refs[i];
			continue;
		}
		bad = refs[i];
		if (kvmm_pool_lock(pool))
			continue;
		kvmm_core_frame_retire(&pool->core, bad.handle);
		kvmm_core_unpin(&pool->core, client->id, &bad, 1);
		mutex_unlock(&pool->lock);
	}
	return good;
}

/*
 * Allocate at most a batch and hand it to user memory.  Blocks whose handles
 * the caller will never see are given back.
 */
static int kvmm_alloc_batch(struct kvmm_client *client, u32 nr_parts,
			    struct kvmm_block_ref __user *user, u32 n)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_block_ref *refs = client->buf.refs;
	u64 lost;
	int ret;

	mutex_lock(&client->lock);
	do {
		ret = kvmm_pool_lock(pool);
		if (ret)
			goto out;
		memset(refs, 0, n * sizeof(*refs));
		lost = pool->core.stat.evicted + pool->core.stat.purged;
		ret = kvmm_core_alloc(&pool->core, client->id, nr_parts,
				      kvmm_pool_now(pool), refs, n);
		if (ret < 0 ||
		    pool->core.stat.evicted + pool->core.stat.purged != lost)
			kvmm_elastic_miss(pool);
		kvmm_writeback_kick(pool);
		mutex_unlock(&pool->lock);
		if (ret > 0)
			ret = kvmm_alloc_sound(client, refs, ret);
	} while (!ret);
	if (ret > 0 && copy_to_user(user, refs, ret * sizeof(*refs))) {
		kvmm_unpin_untold(client, refs, ret);
		ret = -EFAULT;
	}
out:
	mutex_unlock(&client->lock);
	return ret;
}

/*
 * Wait for a while, or for I/O to end.  Not every way in which a frame comes
 * free wakes us up: quarantine ends, pins fall.
 */
static int kvmm_alloc_wait(struct kvmm_pool *pool, u64 seq,
			   unsigned long deadline)
{
	long left = deadline - jiffies;

	if (left <= 0)
		return -ETIMEDOUT;
	if (task_sigpending(current))
		return -EINTR;
	wait_event_killable_timeout(pool->wait,
				    READ_ONCE(pool->io_seq) != seq ||
				    READ_ONCE(pool->dead),
				    min_t(long, left, KVMM_SIGNAL_JIFFIES));
	return 0;
}

/* @stuck: out: when it first found no frame, in ns, or 0. */
static int kvmm_alloc_all(struct kvmm_client *client, struct kvmm_alloc *a,
			  u64 *stuck)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_block_ref __user *user = u64_to_user_ptr(a->refs);
	unsigned long deadline = jiffies + msecs_to_jiffies(a->timeout_ms);
	bool wait = a->flags & KVMM_ALLOC_WAIT;
	bool again = false;
	int ret;

	while (a->done < a->count) {
		u32 n = min_t(u32, a->count - a->done, KVMM_CORE_BATCH);
		u64 seq = READ_ONCE(pool->io_seq);

		ret = kvmm_alloc_batch(client, a->nr_parts ?: 1,
				       user + a->done, n);
		if (ret > 0) {
			a->done += ret;
			again = false;
			ret = kvmm_next_batch();
		} else if (ret == -EAGAIN) {
			if (!*stuck)
				*stuck = ktime_get_ns();
			/* Frames that came free at once are there, or stolen. */
			again = kvmm_reclaim_start(pool, n) && !again;
			if (again)
				ret = kvmm_next_batch();
			else if (wait)
				ret = kvmm_alloc_wait(pool, seq, deadline);
		}
		if (ret)
			return ret;
	}
	return 0;
}

int kvmm_do_alloc(struct kvmm_client *client, struct file *file, void *arg)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_alloc *a = arg;
	u64 stuck = 0;
	u64 us = 0;
	int ret;

	a->done = 0;
	if (a->flags & ~KVMM_ALLOC_WAIT || kvmm_bad_count(a->count) ||
	    a->nr_parts > KVMM_MAX_PARTS)
		return -EINVAL;
	if (a->flags & KVMM_ALLOC_WAIT ?
	    !a->timeout_ms || a->timeout_ms > KVMM_MAX_WAIT_MS :
	    a->timeout_ms)
		return -EINVAL;

	ret = kvmm_alloc_all(client, a, &stuck);
	if (stuck)
		us = kvmm_us_since(stuck);
	kvmm_hist_add(&pool->hist[KVMM_HIST_ALLOC_WAIT], us);
	trace_kvmm_alloc(pool, client->id, a, us, ret);
	return ret;
}

int kvmm_do_publish(struct kvmm_client *client, struct file *file, void *arg)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_publish *a = arg;
	struct kvmm_publish_entry __user *user = u64_to_user_ptr(a->entries);
	struct kvmm_publish_entry *e = client->buf.publish;
	struct kvmm_cursor cur = {};
	u32 at, n, i;
	int ret = 0;

	a->done = 0;
	if (a->flags & ~KVMM_PUBLISH_KEEP || kvmm_bad_count(a->count))
		return -EINVAL;

	mutex_lock(&client->lock);
	for (at = 0; at < a->count && !ret; at += n) {
		n = min_t(u32, a->count - at, KVMM_CORE_BATCH);
		ret = -EFAULT;
		if (copy_from_user(e, user + at, n * sizeof(*e)))
			break;
		ret = kvmm_pool_lock(pool);
		if (ret)
			break;
		kvmm_core_publish(&pool->core, client->id, a->flags,
				  kvmm_pool_now(pool), &cur, e, n);
		kvmm_writeback_kick(pool);
		mutex_unlock(&pool->lock);
		if (trace_kvmm_publish_enabled())
			kvmm_trace_publish(client, e, n);
		for (i = 0; i < n; i++)
			a->done += e[i].result >= 0;
		ret = -EFAULT;
		if (copy_to_user(user + at, e, n * sizeof(*e)))
			break;
		ret = kvmm_next_batch();
	}
	mutex_unlock(&client->lock);
	return ret;
}
