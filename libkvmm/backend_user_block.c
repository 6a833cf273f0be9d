// SPDX-License-Identifier: MIT
/*
 * User backend: commands on blocks that need no I/O.  Each goes through its
 * array in lots of KVMM_CORE_BATCH, letting go of the lock in between.
 */
#include "backend_user.h"

#include <string.h>

static unsigned int lot(unsigned int left)
{
	return left < KVMM_CORE_BATCH ? left : KVMM_CORE_BATCH;
}

/* Takes the lock, unless the pool is gone. */
static int lock_pool(struct user_pool *up)
{
	pthread_mutex_lock(&up->lock);
	if (!up->gone)
		return 0;
	pthread_mutex_unlock(&up->lock);
	return -ENODEV;
}

static long count_good(const struct kvmm_block_ref *refs, unsigned int n)
{
	unsigned int i;
	long good = 0;

	for (i = 0; i < n; i++)
		good += refs[i].result >= 0;
	return good;
}

long user_publish(struct kvmm_pool *pool, struct kvmm_publish_entry *e,
		  unsigned int n, unsigned int flags)
{
	struct user_client *cl = user_client(pool);
	struct user_pool *up = cl->up;
	struct kvmm_cursor cur = { 0 };
	unsigned int i, k, m;
	long good = 0;

	if (pool->rdonly)
		return -EACCES;
	for (i = 0; i < n; i += m) {
		int err = lock_pool(up);

		if (err)
			return err;
		m = lot(n - i);
		kvmm_core_publish(&up->core, cl->id, flags, user_now(up), &cur,
				  &e[i], m);
		pthread_mutex_unlock(&up->lock);
		for (k = i; k < i + m; k++)
			good += e[k].result >= 0;
	}
	return good;
}

long user_lookup(struct kvmm_pool *pool, const uint8_t *keys,
		 struct kvmm_block_ref *refs, unsigned int n,
		 unsigned int flags)
{
	struct user_client *cl = user_client(pool);
	struct user_pool *up = cl->up;
	struct kvmm_cursor cur = { 0 };
	bool leading = true;
	unsigned int i, k, m = 0;
	long prefix = 0;
	uint32_t hits;

	for (i = 0; i < n; i += m) {
		int err = lock_pool(up);

		if (err)
			return err;
		m = lot(n - i);
		hits = kvmm_core_lookup(&up->core, cl->id, flags, user_now(up),
					&cur, keys + (size_t)i * KVMM_KEY_LEN,
					&refs[i], m);
		pthread_mutex_unlock(&up->lock);
		if (leading)
			prefix += hits;
		if (hits < m)
			leading = false;
		if (!leading && flags & KVMM_LOOKUP_PREFIX)
			break;
	}
	for (k = i + m; i < n && k < n; k++) {
		refs[k].handle = 0;
		refs[k].frame = KVMM_NO_FRAME;
		refs[k].result = KVMM_MISS;
	}
	return prefix;
}

long user_batch(struct kvmm_pool *pool, unsigned int cmd,
		struct kvmm_block_ref *refs, unsigned int n)
{
	struct user_client *cl = user_client(pool);
	struct user_pool *up = cl->up;
	struct kvmm_cursor cur = { 0 };
	unsigned int i, m;

	if (pool->rdonly && cmd == KVMM_DROP)
		return -EACCES;
	for (i = 0; i < n; i += m) {
		int err = lock_pool(up);

		if (err)
			return err;
		m = lot(n - i);
		switch (cmd) {
		case KVMM_TOUCH:
			kvmm_core_touch(&up->core, user_now(up), &cur,
					&refs[i], m);
			break;
		case KVMM_PIN:
			kvmm_core_pin(&up->core, cl->id, !pool->rdonly,
				      &refs[i], m);
			break;
		case KVMM_UNPIN:
			kvmm_core_unpin(&up->core, cl->id, &refs[i], m);
			break;
		case KVMM_DROP:
			kvmm_core_drop(&up->core, cl->id, &refs[i], m);
			break;
		case KVMM_QUERY:
			kvmm_core_query(&up->core, user_now(up), &refs[i], m);
			break;
		}
		pthread_mutex_unlock(&up->lock);
	}
	return count_good(refs, n);
}

long user_keys(struct kvmm_pool *pool, uint64_t *cursor,
	       struct kvmm_key_entry *e, unsigned int n)
{
	struct user_pool *up = user_client(pool)->up;
	unsigned int k = 0;

	while (k < n && *cursor != KVMM_NONE) {
		int err = lock_pool(up);

		if (err)
			return err;
		k += kvmm_core_keys(&up->core, user_now(up), cursor, &e[k],
				    lot(n - k));
		pthread_mutex_unlock(&up->lock);
	}
	return k;
}

long user_request_end(struct kvmm_pool *pool, uint64_t handle,
		      unsigned int output_tokens)
{
	struct user_pool *up = user_client(pool)->up;
	uint64_t at = handle;
	long found = 0;
	int ret;

	if (pool->rdonly)
		return -EACCES;
	do {
		ret = lock_pool(up);
		if (ret)
			break;
		ret = kvmm_core_chain(&up->core, user_now(up), &at);
		if (ret > 0 && !found)
			kvmm_core_request_end(&up->core, output_tokens);
		pthread_mutex_unlock(&up->lock);
		if (ret > 0)
			found += ret;
	} while (ret > 0 && at);
	return found ? found : ret;
}

long user_hint(struct kvmm_pool *pool, uint64_t handle, unsigned int permille,
	       unsigned int delay_ms)
{
	struct user_pool *up = user_client(pool)->up;
	struct kvmm_cursor cur = { 0 };
	uint64_t at = handle;
	bool any = false;
	long acted = 0;
	int ret;

	(void)delay_ms;
	if (pool->rdonly)
		return -EACCES;
	do {
		ret = lock_pool(up);
		if (ret)
			break;
		ret = kvmm_core_hint(&up->core, permille, user_now(up), &cur,
				     &at);
		pthread_mutex_unlock(&up->lock);
		if (ret >= 0) {
			acted += ret;
			any = true;
		}
	} while (ret >= 0 && at);
	return any ? acted : ret;
}
