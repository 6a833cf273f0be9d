// SPDX-License-Identifier: MIT
/*
 * Jobs: made, numbered, ended and freed.
 *
 * A number is a serial and a place in the engine's table.  The serial is never
 * used again, so a number that is kept too long means nothing, and never the
 * job that came after.
 */
#include "engine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOB_FLAGS	(KVMM_JOB_UNORDERED | KVMM_JOB_HOLES | KVMM_JOB_BACKWARDS)
#define MAX_JOB_BLOCKS	(1U << 20)

/* ---- events, which are used again and again ---- */

struct kvmm_gpu_event *event_get_locked(struct kvmm_engine *eng)
{
	struct kvmm_gpu_event *ev = NULL;

	if (eng->nr_events)
		return eng->events[--eng->nr_events];
	kvmm_gpu_event_create(eng->gpu, &ev);
	return ev;
}

static void event_put_locked(struct kvmm_engine *eng,
			     struct kvmm_gpu_event *ev)
{
	if (!ev)
		return;
	if (eng->nr_events == EVENT_CACHE) {
		kvmm_gpu_event_destroy(ev);
		return;
	}
	eng->events[eng->nr_events++] = ev;
}

/* ---- life ---- */

static void job_free_locked(struct job *job)
{
	struct kvmm_engine *eng = job->eng;
	unsigned int g;

	event_put_locked(eng, job->start);
	for (g = 0; g < eng->lay.nr_groups; g++) {
		if (job->ev)
			event_put_locked(eng, job->ev[g]);
		if (job->group_wait)
			kvmm_gpu_event_destroy(job->group_wait[g]);
	}
	kvmm_gpu_event_destroy(job->wait);
	if (job->fd >= 0)
		close(job->fd);
	free(job->ev);
	free(job->group_wait);
	free(job->keys);
	free(job->ids);
	free(job->ref);
	free(job->st);
	free(job->pick);
	free(job);
}

void job_put_locked(struct job *job)
{
	struct kvmm_engine *eng = job->eng;

	if (--job->refs)
		return;
	job_free_locked(job);
	eng->nr_jobs--;
	pthread_cond_broadcast(&eng->changed);
}

static void job_abort(struct job *job)
{
	struct kvmm_engine *eng = job->eng;

	pthread_mutex_lock(&eng->lock);
	job_put_locked(job);
	pthread_mutex_unlock(&eng->lock);
}

static int check_ids(const struct lay *lay, const struct kvmm_transfer *r,
		     unsigned int last_tokens)
{
	unsigned int used = (last_tokens - 1) / lay->block_tokens + 1;
	size_t i, nr = (size_t)(r->n - 1) * lay->gpu_blocks + used;

	for (i = 0; i < nr; i++)
		if (r->gpu_blocks[i] >= lay->nr_gpu_blocks)
			return -EINVAL;
	return 0;
}

static int check_req(struct kvmm_engine *eng, const struct kvmm_transfer *r,
		     bool out, unsigned int *last_tokens)
{
	uint64_t full = (uint64_t)r->n * eng->lay.tokens;

	if (r->flags & ~JOB_FLAGS || !r->n || r->n > MAX_JOB_BLOCKS ||
	    !r->gpu_blocks || (!r->keys && (out || !r->handles)))
		return -EINVAL;
	if (out && r->flags & (KVMM_JOB_HOLES | KVMM_JOB_BACKWARDS))
		return -EINVAL;
	if (r->block_flags & ~KVMM_BLOCK_RECOMPUTABLE)
		return -EINVAL;
	if (eng->host && (r->event || r->group_events))
		return -EINVAL;
	if (r->tokens && (r->tokens > full ||
			  r->tokens <= full - eng->lay.tokens))
		return -EINVAL;
	*last_tokens = r->tokens ? r->tokens - (full - eng->lay.tokens)
				 : eng->lay.tokens;
	if (out && eng->pool->rdonly)
		return -EACCES;
	/* several parts of a block are made by several engines: by handle */
	if (out && eng->nr_parts > 1 && !r->handles)
		return -EINVAL;
	return check_ids(&eng->lay, r, *last_tokens);
}

static int copy_arrays(struct job *job, const struct kvmm_transfer *r)
{
	const struct lay *lay = &job->eng->lay;
	size_t n = r->n, nr_ids = n * lay->gpu_blocks, used, i;

	used = (n - 1) * lay->gpu_blocks +
	       (job->last_tokens - 1) / lay->block_tokens + 1;
	job->ids = calloc(nr_ids, sizeof(*job->ids));
	job->ref = calloc(n, sizeof(*job->ref));
	job->st = calloc(n, 1);
	job->pick = calloc(n, sizeof(*job->pick));
	job->ev = calloc(lay->nr_groups, sizeof(*job->ev));
	if (r->keys)
		job->keys = malloc(n * KVMM_KEY_LEN);
	if (!job->ids || !job->ref || !job->st || !job->pick || !job->ev ||
	    (r->keys && !job->keys))
		return -ENOMEM;
	memcpy(job->ids, r->gpu_blocks, used * sizeof(*job->ids));
	if (r->keys)
		memcpy(job->keys, r->keys, n * KVMM_KEY_LEN);
	for (i = 0; i < n; i++) {
		job->ref[i].handle = r->handles ? r->handles[i] : 0;
		job->ref[i].frame = KVMM_NO_FRAME;
		job->ref[i].result = -EINPROGRESS;
	}
	return 0;
}

static int take_events(struct job *job)
{
	struct kvmm_engine *eng = job->eng;
	unsigned int g;
	int err = 0;

	pthread_mutex_lock(&eng->lock);
	if (!eng->host && !(job->flags & KVMM_JOB_UNORDERED)) {
		job->start = event_get_locked(eng);
		err = job->start ? 0 : -EIO;
	}
	for (g = 0; g < eng->lay.nr_groups && !err; g++) {
		job->ev[g] = event_get_locked(eng);
		err = job->ev[g] ? 0 : -EIO;
	}
	pthread_mutex_unlock(&eng->lock);
	return err;
}

/* What the job's copies wait for: as it is now, in the caller's thread. */
static int take_fences(struct job *job, const struct kvmm_transfer *r)
{
	struct kvmm_engine *eng = job->eng;
	struct kvmm_gpu_stream *s;
	unsigned int g;
	int err = 0;

	if (job->start) {
		err = kvmm_gpu_stream_wrap(eng->gpu, r->stream, &s);
		if (err)
			return err;
		err = kvmm_gpu_event_record(job->start, s);
		kvmm_gpu_stream_destroy(s);
	}
	if (!err && r->event)
		err = kvmm_gpu_event_wrap(eng->gpu, r->event, &job->wait);
	if (err || !r->group_events)
		return err;
	job->group_wait = calloc(eng->lay.nr_groups, sizeof(*job->group_wait));
	if (!job->group_wait)
		return -ENOMEM;
	for (g = 0; g < eng->lay.nr_groups && !err; g++)
		if (r->group_events[g])
			err = kvmm_gpu_event_wrap(eng->gpu, r->group_events[g],
						  &job->group_wait[g]);
	return err;
}

struct job *job_new(struct kvmm_engine *eng, const struct kvmm_transfer *req,
		    bool out, int *err)
{
	struct kvmm_transfer r;
	unsigned int last = 0;
	struct job *job;

	*err = req ? kvmm_copy_opts(&r, sizeof(r), req, sizeof(r)) : -EINVAL;
	if (!*err)
		*err = check_req(eng, &r, out, &last);
	if (*err)
		return NULL;
	*err = -ENOMEM;
	job = calloc(1, sizeof(*job));
	if (!job)
		return NULL;
	job->eng = eng;
	job->refs = 1;
	job->fd = -1;
	job->out = out;
	job->n = r.n;
	job->flags = r.flags;
	job->last_tokens = last;
	job->tag = r.tag;
	job->by_handle = r.handles;
	job->req = r;
	pthread_mutex_lock(&eng->lock);
	*err = eng->lost ? -EIO : eng->nr_jobs >= eng->max_jobs ? -EAGAIN : 0;
	eng->nr_jobs++;
	pthread_mutex_unlock(&eng->lock);
	if (!*err)
		*err = copy_arrays(job, &r);
	if (!*err)
		*err = take_events(job);
	if (!*err)
		*err = take_fences(job, &r);
	if (!*err)
		return job;
	job_abort(job);
	return NULL;
}

int job_submit(struct job *job, uint64_t *id)
{
	struct kvmm_engine *eng = job->eng;
	unsigned int slot, tries;

	pthread_mutex_lock(&eng->lock);
	slot = eng->next_slot;
	for (tries = 0; eng->table[slot] && tries < eng->max_jobs; tries++)
		slot = (slot + 1) % eng->max_jobs;
	if (eng->table[slot]) {
		job_put_locked(job);
		pthread_mutex_unlock(&eng->lock);
		return -EAGAIN;
	}
	eng->next_slot = (slot + 1) % eng->max_jobs;
	eng->table[slot] = job;
	job->id = ++eng->serial << SLOT_BITS | slot;
	if (!job->out && job->req.timeout_us) {
		job->deadline_ns = eng_now() + job->req.timeout_us * 1000;
		eng->nr_timed++;
	}
	*id = job->id;
	job_kick_locked(job);
	pthread_mutex_unlock(&eng->lock);
	return 0;
}

/* For the dispatcher to look at. */
void job_kick_locked(struct job *job)
{
	if (job->in_ready || job->state >= KVMM_JOB_DRAINING)
		return;
	job->in_ready = true;
	job->refs++;
	TAILQ_INSERT_TAIL(&job->eng->ready, job, ready_link);
	pthread_cond_signal(&job->eng->work);
}

/* For the io threads. */
void job_io_locked(struct job *job)
{
	if (job->in_io)
		return;
	job->in_io = true;
	job->refs++;
	TAILQ_INSERT_TAIL(&job->eng->io_queue, job, io_link);
	pthread_cond_signal(&job->eng->io_work);
}

unsigned int job_tokens(const struct job *job, unsigned int i)
{
	return i + 1 == job->n ? job->last_tokens : job->eng->lay.tokens;
}

size_t job_part_bytes(const struct job *job, unsigned int i)
{
	return lay_bytes(&job->eng->lay, job_tokens(job, i));
}

/* Bytes that the job still wants from the disk, for whoever plans. */
void job_count_want_locked(struct job *job)
{
	uint64_t bytes = 0;
	unsigned int i;

	for (i = 0; !job->out && i < job->n; i++)
		if (job->st[i] == BLK_WANT || job->st[i] == BLK_IO)
			bytes += job->eng->block_size;
	job->eng->want_bytes += bytes - job->want_bytes;
	job->want_bytes = bytes;
}

/* Drops the pins of all that was copied; it is what the results are about. */
static void unpin_sent(struct job *job)
{
	struct kvmm_block_ref refs[COPY_LOT];
	unsigned int i, k = 0;

	for (i = 0; i < job->n; i++) {
		if (job->st[i] != BLK_SENT)
			continue;
		refs[k++] = job->ref[i];
		if (k < COPY_LOT)
			continue;
		eng_unpin(job->eng, refs, k);
		k = 0;
	}
	eng_unpin(job->eng, refs, k);
}

/* Is, or will be, where it was asked to be. */
bool job_good(const struct job *job, unsigned int i)
{
	return job->st[i] == BLK_END ? job->ref[i].result >= 0
				     : job->st[i] == BLK_HAVE ||
					       job->st[i] == BLK_SENT;
}

unsigned int job_leading(const struct job *job)
{
	unsigned int i;

	if (job->flags & KVMM_JOB_BACKWARDS) {
		for (i = job->n; i > job->skip; i--)
			if (!job_good(job, i - 1))
				break;
		return job->n - i;
	}
	for (i = 0; i < job->n; i++)
		if (i >= job->skip && !job_good(job, i))
			break;
	return i;
}

void job_remove_locked(struct job *job)
{
	struct kvmm_engine *eng = job->eng;

	if (!job->told) {
		uint64_t count;

		TAILQ_REMOVE(&eng->done, job, done_link);
		job->told = true;
		if (TAILQ_EMPTY(&eng->done) &&
		    read(eng->fd, &count, sizeof(count)) < 0)
			pthread_cond_broadcast(&eng->changed);
	}
	eng->table[job->id & ((1U << SLOT_BITS) - 1)] = NULL;
	job_put_locked(job);
}

static void signal_fd(int fd)
{
	const uint64_t one = 1;

	/* it can't be full, and there is nobody to tell */
	if (fd >= 0 && write(fd, &one, sizeof(one)) < 0)
		return;
}

/*
 * The end of every job: in the lane's thread when its copies have ended, or in
 * the dispatcher when it has none.
 */
void job_finish(struct job *job, int err)
{
	struct kvmm_engine *eng = job->eng;
	unsigned int i;

	pthread_mutex_lock(&eng->lock);
	if (!err)
		err = job->stop;
	job->publishing = true;
	pthread_mutex_unlock(&eng->lock);

	if (job->out && !err)
		err = offload_publish(job);
	else
		unpin_sent(job);
	if (!job->out && err && err != -ECANCELED && eng->hooks.recompute)
		eng->hooks.recompute(eng->hooks.ctx, job->id, job->tag, 0,
				     job->n);

	pthread_mutex_lock(&eng->lock);
	for (i = 0; i < job->n; i++) {
		if (job->st[i] == BLK_SENT && (err || !job->out))
			job->ref[i].result = err;
		if (job->out && job->ref[i].result < 0 && !job->by_handle)
			job->ref[i].handle = 0;
		job->ref[i].frame = KVMM_NO_FRAME;
		job->st[i] = BLK_END;
	}
	job_count_want_locked(job);
	if (job->deadline_ns)
		eng->nr_timed--;
	job->status = err;
	job->prefix = err ? 0 : job_leading(job);
	job->state = KVMM_JOB_DONE;
	if (TAILQ_EMPTY(&eng->done))
		signal_fd(eng->fd);
	TAILQ_INSERT_TAIL(&eng->done, job, done_link);
	signal_fd(job->fd);
	pthread_cond_broadcast(&eng->changed);
	if (job->ended)
		job_remove_locked(job);
	pthread_mutex_unlock(&eng->lock);
}
