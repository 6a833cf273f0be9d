// SPDX-License-Identifier: MIT
/*
 * What callers ask of jobs: how they are, to wait for them, to put their own
 * work behind them, to cancel and to forget them.
 */
#include "engine.h"

#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static struct job *find_locked(struct kvmm_engine *eng, uint64_t id)
{
	unsigned int slot = id & ((1U << SLOT_BITS) - 1);
	struct job *job = slot < eng->max_jobs ? eng->table[slot] : NULL;

	return job && job->id == id && !job->ended ? job : NULL;
}

int kvmm_job_info(struct kvmm_engine *eng, uint64_t id,
		  struct kvmm_job_info *info)
{
	struct job *job;
	unsigned int i;

	if (!info)
		return kvmm_ret(-EFAULT);
	memset(info, 0, sizeof(*info));
	pthread_mutex_lock(&eng->lock);
	job = find_locked(eng, id);
	if (job) {
		info->tag = job->tag;
		info->state = job->state;
		info->status = job->status;
		info->n = job->n;
		info->prefix = job->prefix;
		info->bytes = job->bytes;
		for (i = 0; i < job->n; i++)
			info->good += job->ref[i].result >= 0;
	}
	pthread_mutex_unlock(&eng->lock);
	return kvmm_ret(job ? 0 : -ESTALE);
}

long kvmm_job_blocks(struct kvmm_engine *eng, uint64_t id,
		     struct kvmm_block_ref *refs, unsigned int n)
{
	struct job *job;
	long ret = -ESTALE;
	unsigned int i;

	if (n && !refs)
		return kvmm_ret(-EFAULT);
	pthread_mutex_lock(&eng->lock);
	job = find_locked(eng, id);
	if (job) {
		ret = job->n;
		if (n > job->n)
			n = job->n;
		for (i = 0; i < n; i++) {
			refs[i] = job->ref[i];
			refs[i].frame = KVMM_NO_FRAME;
		}
	}
	pthread_mutex_unlock(&eng->lock);
	return kvmm_ret(ret);
}

/* Waits on @changed; false: the time is up.  until_ns 0: no limit. */
static bool wait_locked(struct kvmm_engine *eng, uint64_t until_ns)
{
	struct timespec ts = {
		.tv_sec = until_ns / 1000000000,
		.tv_nsec = until_ns % 1000000000,
	};

	if (!until_ns)
		return !pthread_cond_wait(&eng->changed, &eng->lock);
	return !pthread_cond_timedwait(&eng->changed, &eng->lock, &ts);
}

static uint64_t until(int timeout_ms)
{
	return timeout_ms < 0 ? 0 : eng_now() + timeout_ms * 1000000ULL;
}

int kvmm_job_wait(struct kvmm_engine *eng, uint64_t id, int timeout_ms)
{
	uint64_t end = until(timeout_ms);
	bool time_left = true;
	struct job *job;
	int ret;

	pthread_mutex_lock(&eng->lock);
	for (;;) {
		job = find_locked(eng, id);
		ret = job ? job->status : -ESTALE;
		if (!job || job->state == KVMM_JOB_DONE)
			break;
		ret = -ETIMEDOUT;
		if (!time_left)
			break;
		time_left = wait_locked(eng, end);
	}
	pthread_mutex_unlock(&eng->lock);
	return kvmm_ret(ret);
}

/* The group's event is recorded: put it in front of what comes in @stream. */
static int fence(struct job *job, unsigned int group, void *stream)
{
	struct kvmm_engine *eng = job->eng;
	struct kvmm_gpu_stream *s;
	int err;

	if (eng->host)
		return kvmm_gpu_event_wait(job->ev[group]);
	err = kvmm_gpu_stream_wrap(eng->gpu, stream, &s);
	if (err)
		return err;
	err = kvmm_gpu_stream_wait(s, job->ev[group]);
	kvmm_gpu_stream_destroy(s);
	return err;
}

long kvmm_job_fence(struct kvmm_engine *eng, uint64_t id, unsigned int group,
		    void *stream, int timeout_ms)
{
	uint64_t end = until(timeout_ms);
	bool time_left = true, marked = false;
	struct job *job;
	long ret;
	int err;

	if (group >= eng->lay.nr_groups)
		return kvmm_ret(-EINVAL);
	pthread_mutex_lock(&eng->lock);
	for (;;) {
		job = find_locked(eng, id);
		ret = -ESTALE;
		if (!job)
			break;
		marked = job->marked > group && !job->stop;
		ret = job->status ? job->status : (long)job->prefix;
		if (marked || job->state == KVMM_JOB_DONE)
			break;
		ret = -ETIMEDOUT;
		if (!time_left)
			break;
		time_left = wait_locked(eng, end);
	}
	if (!marked) {
		pthread_mutex_unlock(&eng->lock);
		return kvmm_ret(ret);
	}
	job->refs++;
	pthread_mutex_unlock(&eng->lock);
	err = fence(job, group, stream);
	pthread_mutex_lock(&eng->lock);
	job_put_locked(job);
	pthread_mutex_unlock(&eng->lock);
	return kvmm_ret(err ? err : ret);
}

/* Too late only when the result is out, or an offload is being published. */
static int cancel_locked(struct job *job)
{
	if (job->state == KVMM_JOB_DONE || job->publishing)
		return -EALREADY;
	if (!job->stop)
		job->stop = -ECANCELED;
	job_kick_locked(job);
	return 0;
}

int kvmm_job_cancel(struct kvmm_engine *eng, uint64_t id)
{
	struct job *job;
	int ret;

	pthread_mutex_lock(&eng->lock);
	job = find_locked(eng, id);
	ret = job ? cancel_locked(job) : -ESTALE;
	pthread_mutex_unlock(&eng->lock);
	return kvmm_ret(ret);
}

int kvmm_job_skip(struct kvmm_engine *eng, uint64_t id, unsigned int first)
{
	struct job *job;
	int ret = -ESTALE;

	pthread_mutex_lock(&eng->lock);
	job = find_locked(eng, id);
	if (job) {
		ret = job->out ? -EINVAL : 0;
		if (first > job->n)
			first = job->n;
		if (!ret && first > job->skip &&
		    job->state < KVMM_JOB_DRAINING) {
			job->skip = first;
			job_kick_locked(job);
		}
	}
	pthread_mutex_unlock(&eng->lock);
	return kvmm_ret(ret);
}

int kvmm_job_fd(struct kvmm_engine *eng, uint64_t id)
{
	struct job *job;
	int ret = -ESTALE;

	pthread_mutex_lock(&eng->lock);
	job = find_locked(eng, id);
	if (job && job->fd < 0) {
		job->fd = eventfd(job->state == KVMM_JOB_DONE ? 1 : 0,
				  EFD_CLOEXEC | EFD_NONBLOCK);
		ret = job->fd < 0 ? -errno : 0;
	}
	if (job && job->fd >= 0)
		ret = job->fd;
	pthread_mutex_unlock(&eng->lock);
	return kvmm_ret(ret);
}

long kvmm_job_next(struct kvmm_engine *eng, uint64_t *jobs, unsigned int n)
{
	struct job *job;
	uint64_t count;
	long nr = 0;

	if (n && !jobs)
		return kvmm_ret(-EFAULT);
	pthread_mutex_lock(&eng->lock);
	while (nr < n) {
		job = TAILQ_FIRST(&eng->done);
		if (!job)
			break;
		TAILQ_REMOVE(&eng->done, job, done_link);
		job->told = true;
		jobs[nr++] = job->id;
		if (TAILQ_EMPTY(&eng->done) &&
		    read(eng->fd, &count, sizeof(count)) < 0)
			break;
	}
	pthread_mutex_unlock(&eng->lock);
	return nr;
}

int kvmm_job_end(struct kvmm_engine *eng, uint64_t id)
{
	struct job *job;

	pthread_mutex_lock(&eng->lock);
	job = find_locked(eng, id);
	if (job) {
		cancel_locked(job);
		job->ended = true;
		pthread_cond_broadcast(&eng->changed);
		if (job->state == KVMM_JOB_DONE)
			job_remove_locked(job);
	}
	pthread_mutex_unlock(&eng->lock);
	return kvmm_ret(job ? 0 : -ESTALE);
}
