// SPDX-License-Identifier: MIT
/*
 * Blocks: the calls of the low door that move no bytes through the caller.
 * The checks that do not depend on the pool are made here; then it is the
 * backend's.
 */
#include "backend.h"

#define PUBLISH_FLAGS	KVMM_PUBLISH_KEEP
#define LOOKUP_FLAGS	(KVMM_LOOKUP_PIN | KVMM_LOOKUP_PREFIX | KVMM_LOOKUP_PEEK)

/* An array of at least one entry: what every batched call takes. */
static int check_array(const void *array, unsigned int n)
{
	if (!n)
		return -EINVAL;
	return array ? 0 : -EFAULT;
}

long kvmm_alloc(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		unsigned int n, unsigned int nr_parts, unsigned int timeout_ms)
{
	int err = check_array(refs, n);

	if (err)
		return kvmm_ret(err);
	if (nr_parts > KVMM_MAX_PARTS || timeout_ms > KVMM_MAX_WAIT_MS)
		return kvmm_ret(-EINVAL);
	return kvmm_ret(pool->kv->ops->alloc(pool, refs, n,
					     nr_parts ? nr_parts : 1,
					     timeout_ms));
}

long kvmm_publish(struct kvmm_pool *pool, struct kvmm_publish_entry *entries,
		  unsigned int n, unsigned int flags)
{
	int err = check_array(entries, n);

	if (!err && flags & ~PUBLISH_FLAGS)
		err = -EINVAL;
	if (err)
		return kvmm_ret(err);
	return kvmm_ret(pool->kv->ops->publish(pool, entries, n, flags));
}

long kvmm_lookup(struct kvmm_pool *pool, const void *keys,
		 struct kvmm_block_ref *refs, unsigned int n,
		 unsigned int flags)
{
	int err = check_array(refs, n);

	if (!err && !keys)
		err = -EFAULT;
	if (!err && flags & ~LOOKUP_FLAGS)
		err = -EINVAL;
	if (err)
		return kvmm_ret(err);
	return kvmm_ret(pool->kv->ops->lookup(pool, keys, refs, n, flags));
}

static long batch(struct kvmm_pool *pool, unsigned int cmd,
		  struct kvmm_block_ref *refs, unsigned int n)
{
	int err = check_array(refs, n);

	if (err)
		return kvmm_ret(err);
	return kvmm_ret(pool->kv->ops->batch(pool, cmd, refs, n));
}

long kvmm_touch(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		unsigned int n)
{
	return batch(pool, KVMM_TOUCH, refs, n);
}

long kvmm_pin(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
	      unsigned int n)
{
	return batch(pool, KVMM_PIN, refs, n);
}

long kvmm_unpin(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		unsigned int n)
{
	return batch(pool, KVMM_UNPIN, refs, n);
}

long kvmm_drop(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
	       unsigned int n)
{
	return batch(pool, KVMM_DROP, refs, n);
}

long kvmm_query(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		unsigned int n)
{
	return batch(pool, KVMM_QUERY, refs, n);
}

long kvmm_swap_out(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		   unsigned int n, unsigned int flags)
{
	int err = check_array(refs, n);

	if (!err && flags & ~KVMM_SWAP_DROP)
		err = -EINVAL;
	if (err)
		return kvmm_ret(err);
	return kvmm_ret(pool->kv->ops->swap_out(pool, refs, n, flags));
}

long kvmm_swap_in(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		  unsigned int n, unsigned int flags)
{
	int err = check_array(refs, n);

	if (!err && flags & ~KVMM_SWAP_PIN)
		err = -EINVAL;
	if (err)
		return kvmm_ret(err);
	return kvmm_ret(pool->kv->ops->swap_in(pool, refs, n, flags));
}

long kvmm_keys(struct kvmm_pool *pool, uint64_t *cursor,
	       struct kvmm_key_entry *entries, unsigned int n)
{
	int err = check_array(entries, n);

	if (!err && !cursor)
		err = -EFAULT;
	if (err)
		return kvmm_ret(err);
	return kvmm_ret(pool->kv->ops->keys(pool, cursor, entries, n));
}

long kvmm_request_end(struct kvmm_pool *pool, uint64_t handle,
		      unsigned int output_tokens)
{
	return kvmm_ret(pool->kv->ops->request_end(pool, handle,
						   output_tokens));
}

long kvmm_hint(struct kvmm_pool *pool, uint64_t handle, unsigned int permille,
	       unsigned int delay_ms)
{
	if (permille > 1000)
		return kvmm_ret(-EINVAL);
	return kvmm_ret(pool->kv->ops->hint(pool, handle, permille, delay_ms));
}

int kvmm_reclaim(struct kvmm_pool *pool, unsigned int keep,
		 struct kvmm_reclaim *result)
{
	struct kvmm_reclaim arg = { .size = sizeof(arg), .keep = keep };
	int err = pool->kv->ops->reclaim(pool, &arg);

	if (result)
		*result = arg;
	return kvmm_ret(err);
}
