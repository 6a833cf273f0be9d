// SPDX-License-Identifier: MIT
/*
 * The dispatcher, which puts copies into the lanes' streams, and the lanes'
 * threads, which wait for them.
 *
 * Copies of blocks that are there go at once.  The last ones of a job go group
 * by group, each followed by its event: so the first layers are ready first.
 */
#include "engine.h"

#include <string.h>

/* ---- copies ---- */

/**
 * struct lot - copies that go in one call
 * @job: whose
 * @stream: where to
 * @copies: how many
 * @runs: of all of them
 */
struct lot {
	struct job *job;
	struct kvmm_gpu_stream *stream;
	size_t copies;
	size_t runs;
};

static int lot_flush(struct lot *lot)
{
	struct kvmm_engine *eng = lot->job->eng;
	int err = 0;

	if (lot->copies)
		err = kvmm_gpu_copy(lot->stream, lot->job->out ? KVMM_GPU_OUT
							       : KVMM_GPU_IN,
				    eng->copies, lot->copies);
	lot->copies = 0;
	lot->runs = 0;
	return err;
}

/* Groups @g to @end - 1 of block @i. */
static int lot_add(struct lot *lot, unsigned int i, unsigned int g,
		   unsigned int end)
{
	struct job *job = lot->job;
	struct kvmm_engine *eng = job->eng;
	const struct lay *lay = &eng->lay;
	unsigned int first = lay->first[g], last = lay->first[end];
	unsigned int tokens = job_tokens(job, i);
	size_t room = (size_t)(last - first) * lay->gpu_blocks;
	struct kvmm_gpu_copy *copy;
	int err = 0;

	if (lot->copies == COPY_LOT || lot->runs + room > eng->max_runs)
		err = lot_flush(lot);
	if (err)
		return err;
	copy = &eng->copies[lot->copies++];
	copy->host = (char *)eng->pool->arena +
		     ((size_t)job->ref[i].frame << eng->pool->block_shift) +
		     eng->part * job_part_bytes(job, i) +
		     lay_offset(lay, g, tokens);
	copy->runs = &eng->runs[lot->runs];
	copy->nr_runs = lay_copy(lay, first, last, tokens,
				 &job->ids[(size_t)i * lay->gpu_blocks],
				 &eng->runs[lot->runs]);
	lot->runs += copy->nr_runs;
	return 0;
}

static int send_groups(struct job *job, struct lane *lane, unsigned int nr,
		       unsigned int g, unsigned int end)
{
	struct lot lot = { .job = job, .stream = lane->stream };
	unsigned int i;
	int err = 0;

	for (i = g; job->group_wait && i < end && !err; i++)
		if (job->group_wait[i])
			err = kvmm_gpu_stream_wait(lane->stream,
						   job->group_wait[i]);
	for (i = 0; i < nr && !err; i++)
		err = lot_add(&lot, job->pick[i], g, end);
	return err ? err : lot_flush(&lot);
}

static void set_marked(struct job *job, unsigned int marked)
{
	pthread_mutex_lock(&job->eng->lock);
	job->marked = marked;
	pthread_cond_broadcast(&job->eng->changed);
	pthread_mutex_unlock(&job->eng->lock);
}

/* The first @nr blocks of pick. */
static int send(struct job *job, struct lane *lane, unsigned int nr, bool final)
{
	unsigned int g, groups = job->eng->lay.nr_groups;
	int err = 0;

	if (!job->fenced && job->start)
		err = kvmm_gpu_stream_wait(lane->stream, job->start);
	if (!err && !job->fenced && job->wait)
		err = kvmm_gpu_stream_wait(lane->stream, job->wait);
	job->fenced = true;
	if (!job->submit_ns)
		job->submit_ns = eng_now();
	if (!err && !final)
		return send_groups(job, lane, nr, 0, groups);
	for (g = 0; g < groups && !err; g++) {
		if (nr)
			err = send_groups(job, lane, nr, g, g + 1);
		if (!err)
			err = kvmm_gpu_event_record(job->ev[g], lane->stream);
		if (!err)
			set_marked(job, g + 1);
	}
	return err;
}

/* ---- which blocks ---- */

static void end_block(struct job *job, unsigned int i, int err)
{
	job->ref[i].result = err;
	job->st[i] = job->st[i] == BLK_HAVE ? BLK_DROP : BLK_END;
}

static bool is_open(const struct job *job, unsigned int i)
{
	return job->st[i] < BLK_SENT;
}

/* The engine can't use what is on the far side of a miss. */
static void close_holes(struct job *job)
{
	bool backwards = job->flags & KVMM_JOB_BACKWARDS, hole = false;
	unsigned int k, i;

	for (k = 0; k < job->n; k++) {
		i = backwards ? job->n - 1 - k : k;
		if (i < job->skip)
			continue;
		if (hole && is_open(job, i))
			end_block(job, i, -ENOENT);
		if (job->st[i] == BLK_END && job->ref[i].result < 0)
			hole = true;
	}
}

/* Ends the blocks that are no longer wanted. */
static void close_blocks(struct job *job)
{
	bool late = job->deadline_ns && eng_now() >= job->deadline_ns;
	unsigned int i;

	for (i = 0; i < job->n; i++) {
		if (!is_open(job, i))
			continue;
		if (job->stop)
			end_block(job, i, job->stop);
		else if (i < job->skip)
			end_block(job, i, -ECANCELED);
		else if (late && job->st[i] != BLK_HAVE)
			end_block(job, i, -ETIMEDOUT);
	}
	if (!job->out && !(job->flags & KVMM_JOB_HOLES))
		close_holes(job);
}

/* Drops the pins of blocks in state DROP; called and returns with the lock. */
static void drop_blocks(struct job *job)
{
	struct kvmm_engine *eng = job->eng;
	struct kvmm_block_ref refs[COPY_LOT];
	unsigned int i = 0, k;

	while (i < job->n) {
		for (k = 0; i < job->n && k < COPY_LOT; i++) {
			if (job->st[i] != BLK_DROP)
				continue;
			job->st[i] = BLK_END;
			refs[k++] = job->ref[i];
		}
		if (!k)
			continue;
		pthread_mutex_unlock(&eng->lock);
		eng_unpin(eng, refs, k);
		pthread_mutex_lock(&eng->lock);
	}
}

/* What will have to be computed, as soon as that is known. */
static void tell_recompute(struct job *job)
{
	struct kvmm_hooks *h = &job->eng->hooks;
	unsigned int i, first;

	if (!h->recompute || job->out || job->stop)
		return;
	if (!(job->flags & KVMM_JOB_HOLES)) {
		bool backwards = job->flags & KVMM_JOB_BACKWARDS;
		unsigned int end = job->n - (backwards ? job->prefix : 0);

		first = backwards ? job->skip : job->prefix;
		if (first < end)
			h->recompute(h->ctx, job->id, job->tag, first,
				     end - first);
		return;
	}
	for (i = job->skip; i < job->n; i++) {
		for (first = i; i < job->n && !job_good(job, i); i++)
			;
		if (i > first)
			h->recompute(h->ctx, job->id, job->tag, first,
				     i - first);
	}
}

/* ---- jobs ---- */

/* All that will be copied is in the stream, or there is nothing. */
static void decided(struct job *job, struct lane *lane, bool drained, int err)
{
	struct kvmm_engine *eng = job->eng;

	tell_recompute(job);
	if (drained) {
		job_finish(job, err);
		return;
	}
	pthread_mutex_lock(&eng->lock);
	TAILQ_INSERT_TAIL(&lane->queue, job, lane_link);
	pthread_cond_signal(&lane->more);
	pthread_mutex_unlock(&eng->lock);
}

/*
 * Part of a batch may be in the stream when putting it there failed.  What the
 * device still does must have ended before memory is used for something else.
 */
static void send_failed(struct job *job, struct lane *lane, int err)
{
	struct kvmm_engine *eng = job->eng;
	char why[256];

	kvmm_gpu_error(eng->gpu, why, sizeof(why));
	kvmm_log(eng->pool->kv, KVMM_LOG_ERROR, "copy failed: %s", why);
	if (kvmm_gpu_stream_sync(lane->stream)) {
		pthread_mutex_lock(&eng->lock);
		eng->lost = true;
		pthread_mutex_unlock(&eng->lock);
	}
	pthread_mutex_lock(&eng->lock);
	job->stop = err;
	job->state = KVMM_JOB_COPYING;
	pthread_mutex_unlock(&eng->lock);
}

/* One look at a job: sends what is there; true: look again. */
static bool pump(struct job *job, bool *drained)
{
	struct kvmm_engine *eng = job->eng;
	struct lane *lane = &eng->lane[job->out ? KVMM_WAY_OUT : KVMM_WAY_IN];
	unsigned int i, nr = 0, open = 0;
	int err = 0, stop;
	bool final;

	pthread_mutex_lock(&eng->lock);
	if (job->state >= KVMM_JOB_DRAINING) {
		pthread_mutex_unlock(&eng->lock);
		return false;
	}
	close_blocks(job);
	drop_blocks(job);
	for (i = 0; i < job->n; i++) {
		if (job->st[i] == BLK_HAVE) {
			job->pick[nr++] = i;
			job->bytes += job_part_bytes(job, i);
		}
		open += is_open(job, i) && job->st[i] != BLK_HAVE;
	}
	for (i = 0; i < nr; i++)
		job->st[job->pick[i]] = BLK_SENT;
	final = !open;
	stop = job->stop;
	if (nr) {
		job->state = KVMM_JOB_COPYING;
		job->nr_sends++;
		*drained = false;
	}
	if (final) {
		job->prefix = job_leading(job);
		job->state = KVMM_JOB_DRAINING;
		pthread_cond_broadcast(&eng->changed);
	}
	job_count_want_locked(job);
	pthread_mutex_unlock(&eng->lock);

	if (nr || (final && !*drained))
		err = send(job, lane, nr, final);
	if (err) {
		send_failed(job, lane, err);
		*drained = true;
		return true;
	}
	if (final)
		decided(job, lane, *drained, stop);
	return false;
}

static void run(struct job *job)
{
	bool drained = !job->nr_sends;

	if (!job->started) {
		bool stop;

		job->started = true;
		pthread_mutex_lock(&job->eng->lock);
		stop = job->stop;
		pthread_mutex_unlock(&job->eng->lock);
		if (!stop && job->out)
			offload_start(job);
		else if (!stop)
			restore_start(job);
	}
	while (pump(job, &drained))
		;
}

/* Kicks the jobs whose time is up; returns when to look again, 0: never. */
static uint64_t check_deadlines(struct kvmm_engine *eng)
{
	uint64_t now = eng_now(), next = 0;
	unsigned int i;

	for (i = 0; eng->nr_timed && i < eng->max_jobs; i++) {
		struct job *job = eng->table[i];

		if (!job || !job->deadline_ns ||
		    job->state >= KVMM_JOB_DRAINING)
			continue;
		if (job->deadline_ns <= now)
			job_kick_locked(job);
		else if (!next || job->deadline_ns < next)
			next = job->deadline_ns;
	}
	return next;
}

void *dispatcher_main(void *arg)
{
	struct kvmm_engine *eng = arg;
	uint64_t next = 0;
	struct job *job;

	pthread_mutex_lock(&eng->lock);
	for (;;) {
		if (next && eng_now() >= next)
			next = check_deadlines(eng);
		job = TAILQ_FIRST(&eng->ready);
		if (job) {
			TAILQ_REMOVE(&eng->ready, job, ready_link);
			job->in_ready = false;
			pthread_mutex_unlock(&eng->lock);
			run(job);
			pthread_mutex_lock(&eng->lock);
			if (job->deadline_ns &&
			    (!next || job->deadline_ns < next))
				next = job->deadline_ns;
			job_put_locked(job);
			continue;
		}
		if (eng->stop)
			break;
		if (next) {
			struct timespec ts = {
				.tv_sec = next / 1000000000,
				.tv_nsec = next % 1000000000,
			};

			pthread_cond_timedwait(&eng->work, &eng->lock, &ts);
		} else {
			pthread_cond_wait(&eng->work, &eng->lock);
		}
	}
	pthread_mutex_unlock(&eng->lock);
	return NULL;
}

/* ---- lanes ---- */

/* Waits for what the job's copies wait for; true: they could not begin before */
static bool wait_fences(struct job *job)
{
	bool late = false;
	unsigned int g;

	if (job->start && kvmm_gpu_event_query(job->start) == 0) {
		late = true;
		kvmm_gpu_event_wait(job->start);
	}
	if (job->wait && kvmm_gpu_event_query(job->wait) == 0) {
		late = true;
		kvmm_gpu_event_wait(job->wait);
	}
	for (g = 0; job->group_wait && g < job->eng->lay.nr_groups; g++)
		if (job->group_wait[g] &&
		    kvmm_gpu_event_query(job->group_wait[g]) == 0) {
			late = true;
			kvmm_gpu_event_wait(job->group_wait[g]);
		}
	return late;
}

/* Waits for all copies of a job. */
static int drain(struct lane *lane, struct job *job)
{
	struct kvmm_engine *eng = lane->eng;
	uint64_t from, now;
	bool lost;
	int err;

	from = wait_fences(job) ? eng_now() : job->submit_ns;
	if (from < lane->idle_ns)
		from = lane->idle_ns;
	err = kvmm_gpu_event_wait(job->ev[eng->lay.nr_groups - 1]);
	now = eng_now();
	lane->idle_ns = now;
	/* one event's failure, or the device's? */
	lost = err && kvmm_gpu_stream_sync(lane->stream);
	pthread_mutex_lock(&eng->lock);
	eng->lost |= lost;
	if (!err && job->nr_sends == 1 && now > from)
		way_add(&eng->stat[lane->way], job->bytes,
			(double)(now - from) / 1000);
	pthread_mutex_unlock(&eng->lock);
	return err;
}

void *lane_main(void *arg)
{
	struct lane *lane = arg;
	struct kvmm_engine *eng = lane->eng;
	struct job *job;
	int err;

	pthread_mutex_lock(&eng->lock);
	for (;;) {
		job = TAILQ_FIRST(&lane->queue);
		if (job) {
			TAILQ_REMOVE(&lane->queue, job, lane_link);
			pthread_mutex_unlock(&eng->lock);
			err = drain(lane, job);
			job_finish(job, err);
			pthread_mutex_lock(&eng->lock);
			continue;
		}
		if (eng->stop)
			break;
		pthread_cond_wait(&lane->more, &eng->lock);
	}
	pthread_mutex_unlock(&eng->lock);
	return NULL;
}
