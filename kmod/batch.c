// SPDX-License-Identifier: GPL-2.0
/*
 * Commands on arrays of blocks.  User memory is copied outside the pool's
 * lock, KVMM_CORE_BATCH entries at a time, through the client's own buffer.
 */
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "arena.h"
#include "kvmm_mod.h"
#include "poison.h"
#include "trace.h"

static bool kvmm_bad_count(u32 count)
{
	return !count || count > KVMM_MAX_BATCH;
}

/* Lock the pool, if it is there. */
static int kvmm_pool_lock(struct kvmm_pool *pool)
{
	mutex_lock(&pool->lock);
	if (!pool->dead)
		return 0;
	mutex_unlock(&pool->lock);
	return -ENODEV;
}

/* Let the others in between two batches. */
static int kvmm_next_batch(void)
{
	cond_resched();
	return fatal_signal_pending(current) ? -EINTR : 0;
}

static u32 kvmm_count_good(const struct kvmm_block_ref *refs, u32 n)
{
	u32 good = 0;
	u32 i;

	for (i = 0; i < n; i++)
		good += refs[i].result >= 0;
	return good;
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

/* Blocks in memory that an error has struck must not be hits, nor be pinned. */
static void kvmm_lookup_look(struct kvmm_client *client,
			     struct kvmm_block_ref *refs, u32 n)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_cursor cur = {};
	u32 i;

	memset(refs, 0, n * sizeof(*refs));
	kvmm_core_lookup(&pool->core, client->id, KVMM_LOOKUP_PEEK,
			 kvmm_pool_now(pool), &cur,
			 client->buf.lookup.keys[0], refs, n);
	for (i = 0; i < n; i++)
		kvmm_poison_look(pool, refs[i].handle);
}

int kvmm_do_lookup(struct kvmm_client *client, struct file *file, void *arg)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_lookup *a = arg;
	const u8 __user *keys = u64_to_user_ptr(a->keys);
	struct kvmm_block_ref __user *user = u64_to_user_ptr(a->refs);
	struct kvmm_block_ref *refs = client->buf.lookup.refs;
	struct kvmm_cursor cur = {};
	bool whole = true;
	u32 at, n, i, hits;
	int ret = 0;

	a->prefix = 0;
	if (a->flags & ~(KVMM_LOOKUP_PIN | KVMM_LOOKUP_PREFIX |
			 KVMM_LOOKUP_PEEK) || kvmm_bad_count(a->count))
		return -EINVAL;

	/* Not to find out when the first of the pins are taken. */
	if (a->flags & KVMM_LOOKUP_PIN &&
	    clear_user(user, a->count * sizeof(*refs)))
		return -EFAULT;

	mutex_lock(&client->lock);
	for (at = 0; at < a->count && !ret; at += n) {
		n = min_t(u32, a->count - at, KVMM_CORE_BATCH);
		if (!whole && a->flags & KVMM_LOOKUP_PREFIX) {
			for (i = 0; i < n; i++)
				refs[i] = (struct kvmm_block_ref) {
					.frame = KVMM_NO_FRAME,
					.result = KVMM_MISS,
				};
			goto copy_out;
		}
		ret = -EFAULT;
		if (copy_from_user(client->buf.lookup.keys,
				   keys + (size_t)at * KVMM_KEY_LEN,
				   (size_t)n * KVMM_KEY_LEN))
			break;
		ret = kvmm_pool_lock(pool);
		if (ret)
			break;
		if (kvmm_poison_pending())
			kvmm_lookup_look(client, refs, n);
		memset(refs, 0, n * sizeof(*refs));
		hits = kvmm_core_lookup(&pool->core, client->id, a->flags,
					kvmm_pool_now(pool), &cur,
					client->buf.lookup.keys[0], refs, n);
		mutex_unlock(&pool->lock);
		if ((trace_kvmm_hit_enabled() || trace_kvmm_miss_enabled()) &&
		    !(a->flags & KVMM_LOOKUP_PEEK))
			kvmm_trace_lookup(client, a->flags & KVMM_LOOKUP_PREFIX,
					  client->buf.lookup.keys[0], refs, n);
		if (whole)
			a->prefix += hits;
		whole = whole && hits == n;
copy_out:
		ret = -EFAULT;
		if (copy_to_user(user + at, refs, n * sizeof(*refs))) {
			if (a->flags & KVMM_LOOKUP_PIN)
				kvmm_unpin_untold(client, refs, n);
			break;
		}
		ret = kvmm_next_batch();
	}
	mutex_unlock(&client->lock);
	return ret;
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

int kvmm_do_keys(struct kvmm_client *client, struct file *file, void *arg)
{
	struct kvmm_pool *pool = client->pool;
	struct kvmm_keys *a = arg;
	struct kvmm_key_entry __user *user = u64_to_user_ptr(a->entries);
	struct kvmm_key_entry *e = client->buf.keys;
	int ret = 0;
	u32 n;

	a->done = 0;
	if (a->flags || kvmm_bad_count(a->count))
		return -EINVAL;

	mutex_lock(&client->lock);
	while (a->done < a->count && a->cursor != KVMM_NONE) {
		n = min_t(u32, a->count - a->done, KVMM_CORE_BATCH);
		ret = kvmm_pool_lock(pool);
		if (ret)
			break;
		memset(e, 0, n * sizeof(*e));
		n = kvmm_core_keys(&pool->core, kvmm_pool_now(pool),
				   &a->cursor, e, n);
		mutex_unlock(&pool->lock);
		ret = -EFAULT;
		if (copy_to_user(user + a->done, e, n * sizeof(*e)))
			break;
		a->done += n;
		ret = 0;
		cond_resched();
		/* Most of a large pool may be empty: what there is will do. */
		if (task_sigpending(current)) {
			ret = a->done ? 0 : -EINTR;
			break;
		}
	}
	mutex_unlock(&client->lock);
	return ret;
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
