// SPDX-License-Identifier: MIT
/*
 * Bringing in a pool's memory: by the caller and threads that it waits for, or
 * in the background.
 *
 * The time goes into zeroing pages, so several threads do it, each taking the
 * next piece of the arena.
 */
#include "backend.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

/* What one thread takes at a time: whole huge pages, and not too few. */
#define POPULATE_PIECE		(32UL << 20)
#define POPULATE_MAX_THREADS	16

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

int kvmm_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

unsigned int kvmm_populate_threads(unsigned int asked, unsigned int pieces)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (!asked && cpus > POPULATE_MAX_THREADS)
		asked = POPULATE_MAX_THREADS;
	else if (!asked)
		asked = cpus < 1 ? 1 : (unsigned int)cpus;
	return asked < pieces ? asked : pieces;
}

int kvmm_populate_all(struct kvmm_pool *pool, unsigned int threads)
{
	struct populate job = {
		.pool = pool,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.step = POPULATE_PIECE >> pool->block_shift,
	};
	pthread_t thread[POPULATE_LIMIT_THREADS];
	unsigned int i, started = 0;
	int err;

	/* Better told at once than when most of the memory is taken. */
	err = pool->kv->ops->room ? pool->kv->ops->room(pool) : 0;
	if (err)
		return err;
	if (!job.step)
		job.step = 1;
	threads = kvmm_populate_threads(threads,
					(pool->nr_frames - 1) / job.step + 1);

	/* The caller is one of them: it works on when none can be started. */
	for (i = 1; i < threads; i++) {
		if (kvmm_thread_start(&thread[started], populate_worker, &job))
			break;
		started++;
	}
	populate_worker(&job);
	for (i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
	pthread_mutex_destroy(&job.lock);
	return job.err;
}

static bool in_arena(const struct kvmm_pool *pool, unsigned int first,
		     unsigned int count)
{
	return count && first < pool->nr_frames &&
	       count <= pool->nr_frames - first;
}

long kvmm_pool_populate(struct kvmm_pool *pool, unsigned int first,
			unsigned int count)
{
	unsigned int done = 0;
	int err;

	if (!in_arena(pool, first, count))
		return kvmm_ret(-EINVAL);
	err = pool->kv->ops->populate(pool, first, count, &done);
	return kvmm_ret(done ? (long)done : err);
}

int kvmm_populate_start(struct kvmm_pool *pool, unsigned int first,
			unsigned int count, unsigned int threads)
{
	if (!in_arena(pool, first, count) || threads > KVMM_MAX_WORKERS)
		return kvmm_ret(-EINVAL);
	return kvmm_ret(pool->kv->ops->populate_start(pool, first, count,
						      threads));
}

long kvmm_populate_left(struct kvmm_pool *pool)
{
	struct kvmm_pool_stat st;
	int err = kvmm_pool_stat(pool, &st);

	return err ? err : (long)st.frames_populating;
}

int kvmm_populate_wait(struct kvmm_pool *pool, int timeout_ms)
{
	if (timeout_ms < -1)
		return kvmm_ret(-EINVAL);
	return kvmm_ret(pool->kv->ops->populate_wait(pool, timeout_ms));
}

int kvmm_populate_cancel(struct kvmm_pool *pool)
{
	return kvmm_ret(pool->kv->ops->populate_cancel(pool));
}
