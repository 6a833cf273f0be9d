// SPDX-License-Identifier: MIT
/*
 * Engines: a client of a pool joined with a device and a layout.  Opening and
 * closing.
 */
#include "backend.h"
#include "engine.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define ENGINE_FLAGS	(KVMM_ENGINE_BY_INDEX | KVMM_ENGINE_LAZY)
#define DEFAULT_JOBS	1024
#define DEFAULT_IO	2
#define MAX_IO		64

uint64_t eng_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static int open_gpu(struct kvmm_engine *eng, const struct kvmm_gpu_opts *opts)
{
	struct kvmm_gpu_info info;
	char why[256] = "";
	int err = kvmm_gpu_open(&eng->gpu, opts, why, sizeof(why));

	if (err) {
		kvmm_log(eng->pool->kv, KVMM_LOG_ERROR, "no device: %s", why);
		return err;
	}
	kvmm_gpu_info(eng->gpu, &info);
	eng->host = !strcmp(info.backend, "host");
	return 0;
}

static int copy_opts(struct kvmm_engine *eng,
		     const struct kvmm_engine_opts *o)
{
	size_t parts;
	int err;

	if (o->flags & ~ENGINE_FLAGS || o->device > KVMM_DEVICE_HOST)
		return -EINVAL;
	eng->nr_parts = o->nr_parts ? o->nr_parts : 1;
	eng->part = o->part;
	eng->max_jobs = o->max_jobs ? o->max_jobs : DEFAULT_JOBS;
	eng->nr_io = o->io_threads ? o->io_threads : DEFAULT_IO;
	if (eng->nr_parts > KVMM_MAX_PARTS || eng->part >= eng->nr_parts ||
	    eng->max_jobs > KVMM_MAX_JOBS || eng->nr_io > MAX_IO)
		return -EINVAL;
	if (o->hooks)
		eng->hooks = *o->hooks;
	err = kvmm_engine_cost(eng, o->cost);
	if (!err)
		err = lay_init(&eng->lay, o->layout);
	if (err)
		return err;
	if (__builtin_mul_overflow(eng->lay.bytes, eng->nr_parts, &parts) ||
	    parts > eng->block_size)
		return -E2BIG;
	return o->filter ? filter_new(&eng->filter, o->filter) : 0;
}

static int alloc_tables(struct kvmm_engine *eng)
{
	size_t runs = (size_t)eng->lay.nr_runs * eng->lay.gpu_blocks;

	eng->max_runs = runs > RUN_LOT ? runs : RUN_LOT;
	eng->table = calloc(eng->max_jobs, sizeof(*eng->table));
	eng->events = calloc(EVENT_CACHE, sizeof(*eng->events));
	eng->io = calloc(eng->nr_io, sizeof(*eng->io));
	eng->copies = calloc(COPY_LOT, sizeof(*eng->copies));
	eng->runs = calloc(eng->max_runs, sizeof(*eng->runs));
	if (!eng->table || !eng->events || !eng->io || !eng->copies ||
	    !eng->runs)
		return -ENOMEM;
	eng->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return eng->fd < 0 ? -errno : 0;
}

static int start_lane(struct kvmm_engine *eng, enum kvmm_way way)
{
	struct lane *lane = &eng->lane[way];
	int err;

	lane->eng = eng;
	lane->way = way;
	TAILQ_INIT(&lane->queue);
	err = kvmm_gpu_stream_create(eng->gpu, &lane->stream);
	if (err)
		return err;
	pthread_cond_init(&lane->more, NULL);
	err = kvmm_thread_start(&lane->thread, lane_main, lane);
	if (err) {
		pthread_cond_destroy(&lane->more);
		kvmm_gpu_stream_destroy(lane->stream);
		return err;
	}
	eng->nr_lanes++;
	return 0;
}

static int start_threads(struct kvmm_engine *eng)
{
	unsigned int want = eng->nr_io, i;
	int err;

	eng->nr_io = 0;
	err = start_lane(eng, KVMM_WAY_OUT);
	if (!err)
		err = start_lane(eng, KVMM_WAY_IN);
	for (i = 0; i < want && !err; i++) {
		eng->io[i].eng = eng;
		err = kvmm_thread_start(&eng->io[i].thread, io_main, &eng->io[i]);
		if (!err)
			eng->nr_io++;
	}
	if (!err)
		err = kvmm_thread_start(&eng->dispatcher, dispatcher_main, eng);
	if (err)
		return err;
	eng->have_dispatcher = true;
	return hooks_start(eng);
}

static void cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

int eng_open_on(struct kvmm_pool *pool, const struct kvmm_engine_opts *opts,
		const struct kvmm_gpu_opts *gpu_opts, struct kvmm_engine **out)
{
	struct kvmm_engine_opts o;
	struct kvmm_engine *eng;
	int err;

	if (!pool || !opts || !out)
		return kvmm_ret(-EINVAL);
	err = kvmm_copy_opts(&o, sizeof(o), opts, sizeof(o));
	if (err)
		return kvmm_ret(err);
	eng = calloc(1, sizeof(*eng));
	if (!eng)
		return kvmm_ret(-ENOMEM);
	eng->pool = pool;
	eng->block_size = kvmm_pool_block_size(pool);
	eng->fd = -1;
	pthread_mutex_init(&eng->lock, NULL);
	pthread_mutex_init(&eng->reg_lock, NULL);
	cond_init(&eng->changed);
	cond_init(&eng->work);
	cond_init(&eng->io_work);
	TAILQ_INIT(&eng->ready);
	TAILQ_INIT(&eng->io_queue);
	TAILQ_INIT(&eng->done);
	err = copy_opts(eng, &o);
	if (!err)
		err = alloc_tables(eng);
	if (!err)
		err = open_gpu(eng, gpu_opts);
	if (!err)
		err = reach_init(eng, o.flags & KVMM_ENGINE_LAZY);
	if (!err)
		err = start_threads(eng);
	if (err) {
		kvmm_engine_close(eng);
		return kvmm_ret(err);
	}
	*out = eng;
	return 0;
}

int kvmm_engine_open(struct kvmm_pool *pool,
		     const struct kvmm_engine_opts *opts,
		     struct kvmm_engine **out)
{
	struct kvmm_gpu_opts gpu = { 0 };
	struct kvmm_engine_opts o;
	int err;

	if (!opts)
		return kvmm_ret(-EINVAL);
	err = kvmm_copy_opts(&o, sizeof(o), opts, sizeof(o));
	if (!err)
		err = eng_gpu_opts(&o, &gpu);
	if (err)
		return kvmm_ret(err);
	return eng_open_on(pool, opts, &gpu, out);
}

/* Ends every job; those with copies under way end when these have. */
static void end_jobs(struct kvmm_engine *eng)
{
	unsigned int i;

	pthread_mutex_lock(&eng->lock);
	for (i = 0; i < eng->max_jobs && eng->table; i++) {
		struct job *job = eng->table[i];
		uint64_t id;

		if (!job || job->ended)
			continue;
		id = job->id;
		pthread_mutex_unlock(&eng->lock);
		kvmm_job_end(eng, id);
		pthread_mutex_lock(&eng->lock);
	}
	while (eng->nr_jobs)
		pthread_cond_wait(&eng->changed, &eng->lock);
	eng->stop = true;
	pthread_cond_broadcast(&eng->work);
	pthread_cond_broadcast(&eng->io_work);
	for (i = 0; i < eng->nr_lanes; i++)
		pthread_cond_broadcast(&eng->lane[i].more);
	pthread_mutex_unlock(&eng->lock);
}

void kvmm_engine_close(struct kvmm_engine *eng)
{
	unsigned int i;

	if (!eng)
		return;
	hooks_stop(eng);
	end_jobs(eng);
	if (eng->have_dispatcher)
		pthread_join(eng->dispatcher, NULL);
	for (i = 0; i < eng->nr_io && eng->nr_lanes; i++)
		pthread_join(eng->io[i].thread, NULL);
	for (i = 0; i < eng->nr_lanes; i++) {
		pthread_join(eng->lane[i].thread, NULL);
		pthread_cond_destroy(&eng->lane[i].more);
		kvmm_gpu_stream_destroy(eng->lane[i].stream);
	}
	for (i = 0; i < eng->nr_events; i++)
		kvmm_gpu_event_destroy(eng->events[i]);
	free(eng->events);
	if (eng->gpu && kvmm_gpu_close(eng->gpu))
		kvmm_log(eng->pool->kv, KVMM_LOG_ERROR,
			 "the device could not be closed");
	reach_exit(eng);
	if (eng->fd >= 0)
		close(eng->fd);
	filter_free(eng->filter);
	lay_free(&eng->lay);
	free(eng->table);
	free(eng->io);
	free(eng->copies);
	free(eng->runs);
	pthread_cond_destroy(&eng->changed);
	pthread_cond_destroy(&eng->work);
	pthread_cond_destroy(&eng->io_work);
	pthread_mutex_destroy(&eng->reg_lock);
	pthread_mutex_destroy(&eng->lock);
	free(eng);
}

const char *kvmm_engine_device(const struct kvmm_engine *eng)
{
	return eng->host ? "host" : "cuda";
}

int kvmm_engine_fd(const struct kvmm_engine *eng)
{
	return eng->fd;
}
