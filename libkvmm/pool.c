// SPDX-License-Identifier: MIT
/*
 * Pools: create, open, close, destroy, list; what they are made of.
 */
#include "backend.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Puts @name into the NUL-padded field of a command. */
static int set_name(char *to, const char *name)
{
	size_t len;

	if (!name)
		return -EINVAL;
	len = strlen(name);
	if (len >= KVMM_NAME_LEN)
		return -ENAMETOOLONG;
	memset(to, 0, KVMM_NAME_LEN);
	memcpy(to, name, len);
	return 0;
}

/* In the background, once it is clear that there is room for it. */
static int populate_async(struct kvmm_pool *pool, unsigned int threads)
{
	const struct kvmm_ops *ops = pool->kv->ops;
	int err = ops->room ? ops->room(pool) : 0;

	return err ? err : ops->populate_start(pool, 0, pool->nr_frames,
					       threads);
}

/*
 * Pools are destroyed by name.  One that someone else has destroyed is let be:
 * the name may be another's by now.
 */
void kvmm_pool_unmake(struct kvmm_pool *pool, const char *name)
{
	struct kvmm_pool_destroy arg = {
		.size = sizeof(arg),
		.flags = KVMM_POOL_FORCE,
	};
	const struct kvmm_ops *ops = pool->kv->ops;
	struct kvmm_pool_stat st = { .size = sizeof(st) };

	if (ops->pool_stat(pool, &st) != -ENODEV && !set_name(arg.name, name))
		ops->pool_destroy(pool->kv, &arg);
	ops->pool_close(pool);
}

int kvmm_pool_create(struct kvmm *kv, const struct kvmm_pool_opts *opts,
		     struct kvmm_pool **out)
{
	struct kvmm_pool_create arg = { .size = sizeof(arg) };
	struct kvmm_pool_opts o;
	struct kvmm_pool *pool;
	bool async;
	int err;

	if (!opts || !out)
		return kvmm_ret(-EINVAL);
	err = kvmm_copy_opts(&o, sizeof(o), opts, sizeof(o));
	if (err)
		return kvmm_ret(err);
	async = o.flags & KVMM_POOL_POPULATE_ASYNC;
	if (o.populate_threads < (async ? 0 : -1) ||
	    o.populate_threads > (async ? KVMM_MAX_WORKERS
					: POPULATE_LIMIT_THREADS))
		return kvmm_ret(-EINVAL);
	err = set_name(arg.name, o.name);
	if (err)
		return kvmm_ret(err);
	arg.flags = o.flags & ~KVMM_POOL_POPULATE_ASYNC;
	arg.mode = o.mode ? o.mode : 0600;
	arg.policy = o.policy;
	arg.block_size = o.block_size;
	arg.nr_frames = o.nr_frames;
	arg.nr_slots = o.nr_slots;
	arg.nr_holds = o.nr_holds;
	arg.quarantine_ms = o.quarantine_ms;
	arg.clean_low = o.clean_low;
	arg.clean_high = o.clean_high;
	arg.nr_elastic = o.nr_elastic;
	arg.chunk_frames = o.chunk_frames;
	arg.nodes = o.nodes;

	err = kv->ops->pool_create(kv, &arg, &pool);
	if (err)
		return kvmm_ret(err);
	if (async)
		err = populate_async(pool, (unsigned int)o.populate_threads);
	else if (o.populate_threads >= 0)
		err = kvmm_populate_all(pool,
					(unsigned int)o.populate_threads);
	if (err) {
		if (err == -ENODEV)
			kvmm_log(kv, KVMM_LOG_ERROR,
				 "pool %s was destroyed before its memory was there",
				 o.name);
		else
			kvmm_log(kv, KVMM_LOG_ERROR,
				 "pool %s: no memory for its %zu bytes: %s",
				 o.name, pool->arena_bytes, strerror(-err));
		kvmm_pool_unmake(pool, arg.name);
		return kvmm_ret(err);
	}
	*out = pool;
	return 0;
}

int kvmm_pool_open(struct kvmm *kv, const char *name, unsigned int flags,
		   struct kvmm_pool **out)
{
	struct kvmm_pool_open arg = { .size = sizeof(arg), .flags = flags };
	struct kvmm_pool *pool;
	int err;

	if (!out || flags & ~KVMM_POOL_RDONLY)
		return kvmm_ret(-EINVAL);
	err = set_name(arg.name, name);
	if (!err)
		err = kv->ops->pool_open(kv, &arg, &pool);
	if (!err)
		*out = pool;
	return kvmm_ret(err);
}

void kvmm_pool_close(struct kvmm_pool *pool)
{
	if (pool)
		pool->kv->ops->pool_close(pool);
}

int kvmm_pool_destroy(struct kvmm *kv, const char *name, unsigned int flags)
{
	struct kvmm_pool_destroy arg = { .size = sizeof(arg), .flags = flags };
	int err;

	if (flags & ~KVMM_POOL_FORCE)
		return kvmm_ret(-EINVAL);
	err = set_name(arg.name, name);
	if (!err)
		err = kv->ops->pool_destroy(kv, &arg);
	return kvmm_ret(err);
}

long kvmm_pool_list(struct kvmm *kv, uint64_t *cursor,
		    struct kvmm_pool_entry *entries, unsigned int n)
{
	if (!cursor || !entries)
		return kvmm_ret(-EFAULT);
	if (!n)
		return kvmm_ret(-EINVAL);
	if (n > KVMM_MAX_BATCH)
		n = KVMM_MAX_BATCH;
	return kvmm_ret(kv->ops->pool_list(kv, cursor, entries, n));
}

int kvmm_pool_reset(struct kvmm_pool *pool, uint64_t *epoch)
{
	uint64_t unused;

	return kvmm_ret(pool->kv->ops->pool_reset(pool,
						  epoch ? epoch : &unused));
}

int kvmm_pool_stat(struct kvmm_pool *pool, struct kvmm_pool_stat *st)
{
	if (!st)
		return kvmm_ret(-EFAULT);
	memset(st, 0, sizeof(*st));
	st->size = sizeof(*st);
	return kvmm_ret(pool->kv->ops->pool_stat(pool, st));
}

int kvmm_pool_clock(struct kvmm_pool *pool, uint64_t now_ms)
{
	return kvmm_ret(pool->kv->ops->pool_clock(pool, now_ms));
}

int kvmm_export(struct kvmm_pool *pool, unsigned int first, unsigned int count,
		unsigned int flags)
{
	if (flags & ~KVMM_EXPORT_RDONLY || !count || first >= pool->nr_frames ||
	    count > pool->nr_frames - first)
		return kvmm_ret(-EINVAL);
	if (!pool->kv->ops->export)
		return kvmm_ret(-EOPNOTSUPP);
	return kvmm_ret(pool->kv->ops->export(pool, first, count, flags));
}

long kvmm_lease(struct kvmm_pool *pool, unsigned int first, unsigned int count,
		unsigned int flags)
{
	struct kvmm_lease arg = {
		.size = sizeof(arg),
		.flags = flags,
		.first = first,
		.count = count,
	};
	int err = pool->kv->ops->lease(pool, &arg);

	return arg.done ? (long)arg.done : kvmm_ret(err);
}

void *kvmm_pool_arena(const struct kvmm_pool *pool, size_t *bytes)
{
	if (bytes)
		*bytes = pool->arena_bytes;
	return pool->arena;
}

int kvmm_pool_fd(const struct kvmm_pool *pool)
{
	return pool->fd;
}

size_t kvmm_pool_block_size(const struct kvmm_pool *pool)
{
	return (size_t)1 << pool->block_shift;
}

#define HUGE_PAGE	((size_t)2 << 20)

void *kvmm_map_arena(int fd, size_t bytes, bool rdonly)
{
	int prot = rdonly ? PROT_READ : PROT_READ | PROT_WRITE;
	size_t len = bytes + HUGE_PAGE, head;
	unsigned char *at;
	int err;

	/* More address space than needed; what is too much goes again. */
	at = mmap(NULL, len, PROT_NONE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	head = -(uintptr_t)at & (HUGE_PAGE - 1);
	if (head)
		munmap(at, head);
	if (len - head > bytes)
		munmap(at + head + bytes, len - head - bytes);
	at += head;
	if (mmap(at, bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0) ==
	    MAP_FAILED) {
		err = errno;
		munmap(at, bytes);
		errno = err;
		return NULL;
	}
	madvise(at, bytes, MADV_DONTDUMP);
	return at;
}

void *kvmm_addr(const struct kvmm_pool *pool, const struct kvmm_block_ref *ref)
{
	if (ref->frame >= pool->nr_frames)
		return NULL;
	return (char *)pool->arena +
	       ((size_t)ref->frame << pool->block_shift);
}
