// SPDX-License-Identifier: MIT
/*
 * Pools: create, open, close, destroy, list, and bring in their memory.
 *
 * Memory comes in here, for both backends: the time goes into zeroing pages, so
 * several threads do it, each taking the next piece of the arena.
 */
#include "backend.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What one thread takes at a time: whole huge pages, and not too few. */
#define POPULATE_PIECE		(32UL << 20)
#define POPULATE_MAX_THREADS	16
#define POPULATE_LIMIT_THREADS	256

/**
 * struct populate - the memory of a new pool, on its way in
 * @pool: the pool
 * @step: frames in a piece
 * @lock: guards what is below
 * @next: first frame that nobody has taken
 * @err: first error; ends the work
 */
struct populate {
	struct kvmm_pool *pool;
	unsigned int step;
	pthread_mutex_t lock;
	unsigned int next;
	int err;
};

static void *populate_worker(void *arg)
{
	struct populate *job = arg;
	unsigned int first, count, done;
	int err = 0;

	for (;;) {
		pthread_mutex_lock(&job->lock);
		if (err && !job->err)
			job->err = err;
		first = job->next;
		count = job->pool->nr_frames - first;
		if (count > job->step)
			count = job->step;
		if (job->err)
			count = 0;
		job->next += count;
		pthread_mutex_unlock(&job->lock);
		if (!count)
			return NULL;
		err = job->pool->kv->ops->populate(job->pool, first, count,
						   &done);
	}
}

/* Threads of the library take no signals: those belong to the program. */
static int start_thread(pthread_t *thread, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

static int populate_all(struct kvmm_pool *pool, int threads)
{
	struct populate job = {
		.pool = pool,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.step = POPULATE_PIECE >> pool->block_shift,
	};
	pthread_t thread[POPULATE_LIMIT_THREADS];
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned int pieces;
	int i, err, started = 0;

	/* Better told at once than when most of the memory is taken. */
	err = pool->kv->ops->room ? pool->kv->ops->room(pool) : 0;
	if (err)
		return err;
	if (!job.step)
		job.step = 1;
	if (!threads) {
		threads = cpus < 1 ? 1 : cpus;
		if (cpus > POPULATE_MAX_THREADS)
			threads = POPULATE_MAX_THREADS;
	}
	pieces = (pool->nr_frames - 1) / job.step + 1;
	if ((unsigned int)threads > pieces)
		threads = pieces;

	/* The caller is one of them: it works on when none can be started. */
	for (i = 1; i < threads; i++) {
		if (start_thread(&thread[started], populate_worker, &job))
			break;
		started++;
	}
	populate_worker(&job);
	for (i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
	pthread_mutex_destroy(&job.lock);
	return job.err;
}

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

int kvmm_pool_create(struct kvmm *kv, const struct kvmm_pool_opts *opts,
		     struct kvmm_pool **out)
{
	struct kvmm_pool_create arg = { .size = sizeof(arg) };
	struct kvmm_pool_destroy destroy = { .size = sizeof(destroy) };
	struct kvmm_pool_opts o;
	struct kvmm_pool *pool;
	int err;

	if (!opts || !out)
		return kvmm_ret(-EINVAL);
	err = kvmm_copy_opts(&o, sizeof(o), opts, sizeof(o));
	if (err)
		return kvmm_ret(err);
	if (o.populate_threads < -1 ||
	    o.populate_threads > POPULATE_LIMIT_THREADS)
		return kvmm_ret(-EINVAL);
	err = set_name(arg.name, o.name);
	if (err)
		return kvmm_ret(err);
	arg.flags = o.flags;
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
	if (o.populate_threads >= 0)
		err = populate_all(pool, o.populate_threads);
	if (err) {
		kvmm_log(kv, KVMM_LOG_ERROR,
			 "pool %s: no memory for its %zu bytes: %s", o.name,
			 pool->arena_bytes, strerror(-err));
		kv->ops->pool_close(pool);
		memcpy(destroy.name, arg.name, sizeof(arg.name));
		destroy.flags = KVMM_POOL_FORCE;
		kv->ops->pool_destroy(kv, &destroy);
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

long kvmm_pool_populate(struct kvmm_pool *pool, unsigned int first,
			unsigned int count)
{
	unsigned int done = 0;
	int err;

	if (!count || first >= pool->nr_frames ||
	    count > pool->nr_frames - first)
		return kvmm_ret(-EINVAL);
	err = pool->kv->ops->populate(pool, first, count, &done);
	return kvmm_ret(done ? (long)done : err);
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
		munmap(at, bytes);
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
