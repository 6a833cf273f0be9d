// SPDX-License-Identifier: GPL-2.0
/*
 * Which blocks are there: keys are looked up, or listed.
 */
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "batch.h"
#include "kvmm_mod.h"
#include "poison.h"
#include "trace.h"

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
