// SPDX-License-Identifier: MIT
/*
 * Offload: which blocks of a job have to be stored, frames for them, and their
 * publication when the copies have ended.
 */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

int kvmm_offload(struct kvmm_engine *eng, const struct kvmm_transfer *req,
		 uint64_t *id)
{
	struct job *job;
	int err;

	if (!id)
		return kvmm_ret(-EINVAL);
	job = job_new(eng, req, true, &err);
	return kvmm_ret(job ? job_submit(job, id) : err);
}

static void stop_job(struct job *job, int err)
{
	pthread_mutex_lock(&job->eng->lock);
	if (!job->stop)
		job->stop = err;
	pthread_mutex_unlock(&job->eng->lock);
}

/* Is loading so slow that these blocks are not worth their memory? */
static bool too_cheap(struct job *job)
{
	struct kvmm_engine *eng = job->eng;
	unsigned int permille = filter_slower_than(eng->filter);
	struct kvmm_plan_input in = {
		.n = job->req.position + job->n,
		.block_tokens = eng->lay.tokens,
		.block_bytes = eng->lay.bytes,
		.lot = restore_lot(eng),
		.lots = eng->nr_io,
	};
	struct kvmm_plan plan;
	unsigned char *where;
	int err;

	if (!permille || in.n < job->n)
		return false;
	where = malloc(in.n);
	if (!where)
		return false;
	memset(where, eng->pool->nr_slots ? KVMM_SWAP : KVMM_MEMORY, in.n);
	in.where = where;
	in.tokens = in.n * in.block_tokens;
	pthread_mutex_lock(&eng->lock);
	in.cost = eng->cost;
	in.copy = way_speed(&eng->stat[KVMM_WAY_IN], KVMM_WAY_IN);
	in.disk = way_speed(&eng->stat[KVMM_WAY_DISK], KVMM_WAY_DISK);
	err = eng->have_cost ? 0 : -EAGAIN;
	pthread_mutex_unlock(&eng->lock);
	if (!err)
		err = kvmm_plan_choose(&in, &plan);
	free(where);
	return !err && plan.compute_us * 1000 < plan.all_us * permille;
}

/* Those that the pool has; and those that the filter doesn't want. */
static int sort_out(struct job *job, struct kvmm_block_ref *refs)
{
	struct kvmm_engine *eng = job->eng;
	unsigned int keep = job->n, i;
	long ret = kvmm_lookup(eng->pool, job->keys, refs, job->n, 0);

	if (ret < 0)
		return (int)ret;
	for (i = 0; i < job->n; i++)
		refs[i].result = refs[i].result > KVMM_MISS ? KVMM_BLOCK_THERE
							    : -EINPROGRESS;
	if (eng->filter) {
		keep = filter_keep(eng->filter, job->keys, refs, job->n,
				   job->req.position);
		if (too_cheap(job))
			keep = 0;
	}
	for (i = keep; i < job->n; i++)
		if (refs[i].result == -EINPROGRESS)
			refs[i].result = -EPERM;
	return 0;
}

/* Frames for those in progress; *@why: what the others have to say. */
static unsigned int take_frames(struct job *job, struct kvmm_block_ref *got,
				unsigned int want, unsigned int timeout_ms,
				int *why)
{
	struct kvmm_block_ref pin;
	unsigned int nr = 0, i;
	long ret;

	*why = 0;
	while (nr < want) {
		ret = kvmm_alloc(job->eng->pool, &got[nr], want - nr, 1,
				 timeout_ms);
		if (ret <= 0) {
			*why = ret ? (int)ret : -EAGAIN;
			break;
		}
		nr += (unsigned int)ret;
		timeout_ms = 0;
	}
	for (i = 0; i < nr; i++)
		got[i].result = 0;
	eng_reach(job->eng, got, nr);
	/* one that can't be had ends the chain */
	for (i = 1; i < nr; i++) {
		if (got[i - 1].result >= 0 || got[i].result < 0)
			continue;
		pin = got[i];
		eng_unpin(job->eng, &pin, 1);
		got[i].result = got[i - 1].result;
	}
	return nr;
}

/* What has come of the blocks in state @from, in order. */
static void settle_locked(struct job *job, enum blk from,
			  const struct kvmm_block_ref *got, unsigned int nr,
			  int why, bool wait)
{
	unsigned int i, k = 0;

	for (i = 0; i < job->n; i++) {
		if (job->st[i] != from)
			continue;
		if (k < nr && got[k].result >= 0) {
			job->ref[i].handle = got[k].handle;
			job->ref[i].frame = got[k].frame;
			job->st[i] = BLK_HAVE;
		} else if (k >= nr && wait) {
			job->st[i] = BLK_WANT;
		} else {
			job->ref[i].result = k < nr ? got[k].result : why;
			job->st[i] = BLK_END;
		}
		k++;
	}
}

static void start_own(struct job *job, struct kvmm_block_ref *refs,
		      struct kvmm_block_ref *got)
{
	struct kvmm_engine *eng = job->eng;
	unsigned int i, want = 0, nr;
	int why = 0;
	bool wait;

	why = sort_out(job, refs);
	if (why) {
		stop_job(job, why);
		return;
	}
	for (i = 0; i < job->n; i++)
		want += refs[i].result == -EINPROGRESS;
	nr = take_frames(job, got, want, 0, &why);
	wait = nr < want && job->req.timeout_us &&
	       (why == -EAGAIN || why == -ENOSPC);

	pthread_mutex_lock(&eng->lock);
	for (i = 0; i < job->n; i++) {
		if (refs[i].result == -EINPROGRESS)
			continue;
		job->st[i] = BLK_END;
		job->ref[i].result = refs[i].result;
		job->ref[i].handle = refs[i].result < 0 ? 0 : refs[i].handle;
	}
	settle_locked(job, BLK_OPEN, got, nr, why, wait);
	if (wait)
		job_io_locked(job);
	pthread_mutex_unlock(&eng->lock);
}

/*
 * Pins by handle, and makes sure of the state: only blocks that are still
 * being filled may be written to, and only published ones are whole.
 */
long pin_given(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
	       unsigned int n, bool filling)
{
	struct kvmm_block_ref *q = malloc(n * sizeof(*q)), one;
	unsigned int i;
	long ret;

	if (!q)
		return -ENOMEM;
	ret = kvmm_pin(pool, refs, n);
	if (ret >= 0) {
		memcpy(q, refs, n * sizeof(*q));
		ret = kvmm_query(pool, q, n);
	}
	for (i = 0; i < n && ret >= 0; i++) {
		if (refs[i].result ||
		    (q[i].result >= 0 &&
		     (q[i].result == KVMM_FILLING) == filling))
			continue;
		one = refs[i];
		kvmm_unpin(pool, &one, 1);
		refs[i].result = q[i].result < 0 ? q[i].result : -EBUSY;
	}
	free(q);
	return ret;
}

/* Blocks that another client has allocated, and holds. */
static void start_given(struct job *job, struct kvmm_block_ref *refs)
{
	struct kvmm_engine *eng = job->eng;
	unsigned int i;
	long ret;

	memcpy(refs, job->ref, job->n * sizeof(*refs));
	ret = pin_given(eng->pool, refs, job->n, true);
	if (ret < 0) {
		stop_job(job, (int)ret);
		return;
	}
	eng_reach(eng, refs, job->n);
	pthread_mutex_lock(&eng->lock);
	for (i = 0; i < job->n; i++) {
		bool good = refs[i].result >= 0;

		job->st[i] = good ? BLK_HAVE : BLK_END;
		job->ref[i].frame = refs[i].frame;
		if (!good)
			job->ref[i].result = refs[i].result;
	}
	pthread_mutex_unlock(&eng->lock);
}

void offload_start(struct job *job)
{
	struct kvmm_block_ref *refs = calloc(2 * (size_t)job->n, sizeof(*refs));

	if (!refs) {
		stop_job(job, -ENOMEM);
		return;
	}
	if (job->by_handle)
		start_given(job, refs);
	else
		start_own(job, refs, refs + job->n);
	free(refs);
}

/* In an io thread: waits for frames. */
void offload_alloc(struct job *job)
{
	struct kvmm_engine *eng = job->eng;
	uint64_t ms = (job->req.timeout_us + 999) / 1000;
	struct kvmm_block_ref *got = calloc(job->n, sizeof(*got));
	unsigned int i, k, want = 0, nr = 0;
	int why = -ENOMEM;

	if (ms > KVMM_MAX_WAIT_MS)
		ms = KVMM_MAX_WAIT_MS;
	pthread_mutex_lock(&eng->lock);
	for (i = 0; i < job->n; i++)
		if (job->st[i] == BLK_WANT) {
			job->st[i] = BLK_IO;
			want++;
		}
	pthread_mutex_unlock(&eng->lock);

	if (got && want)
		nr = take_frames(job, got, want, (unsigned int)ms, &why);

	pthread_mutex_lock(&eng->lock);
	for (i = 0, k = 0; i < job->n; i++)
		k += job->st[i] == BLK_IO;
	/* the job has been ended meanwhile, all of it or nothing */
	if (k) {
		settle_locked(job, BLK_IO, got, nr, why, false);
		nr = 0;
	}
	job_kick_locked(job);
	pthread_mutex_unlock(&eng->lock);

	for (i = 0, k = 0; i < nr; i++)
		if (got[i].result >= 0)
			got[k++] = got[i];
	eng_unpin(eng, got, k);
	free(got);
}

/* ---- publication ---- */

static void fill_entry(struct job *job, unsigned int i,
		       struct kvmm_publish_entry *e)
{
	struct kvmm_engine *eng = job->eng;
	const struct kvmm_transfer *r = &job->req;

	memset(e, 0, sizeof(*e));
	memcpy(e->key, &job->keys[(size_t)i * KVMM_KEY_LEN], KVMM_KEY_LEN);
	e->handle = job->ref[i].handle;
	e->parent = i ? job->ref[i - 1].handle : r->parent;
	e->position = r->position + i;
	e->length = (uint32_t)(job_part_bytes(job, i) * eng->nr_parts);
	e->expiry_ms = r->expiry_ms;
	e->cost_us = r->cost_us;
	e->part = (uint16_t)eng->part;
	e->priority = r->priority;
	e->flags = r->block_flags;
	if (job_tokens(job, i) < eng->lay.tokens)
		e->flags |= KVMM_BLOCK_PARTIAL;
}

/* An error that leaves the pin with us. */
static bool keeps_pin(int result)
{
	return result < 0 && result != -EEXIST;
}

static int result_of(const struct kvmm_publish_entry *e)
{
	if (e->result == -EEXIST)
		return KVMM_BLOCK_THERE;
	return e->result == 1 ? KVMM_BLOCK_PART : e->result;
}

/* In the lane's thread: the copies have ended, nobody can cancel any more. */
int offload_publish(struct job *job)
{
	struct kvmm_engine *eng = job->eng;
	struct kvmm_publish_entry *e;
	struct kvmm_block_ref *pins;
	unsigned int i, k = 0, nr = 0;
	long ret = 0;

	e = calloc(job->n, sizeof(*e));
	pins = calloc(job->n, sizeof(*pins));
	for (i = 0; i < job->n; i++) {
		if (job->st[i] != BLK_SENT)
			continue;
		eng_reached(eng, job->ref[i].frame);
		if (e)
			fill_entry(job, i, &e[k]);
		k++;
	}
	if (!e || !pins)
		ret = -ENOMEM;
	else if (k)
		ret = kvmm_publish(eng->pool, e, k, 0);

	pthread_mutex_lock(&eng->lock);
	for (i = 0, k = 0; i < job->n; i++) {
		if (job->st[i] != BLK_SENT)
			continue;
		if (pins && (ret < 0 || keeps_pin(e[k].result)))
			pins[nr++] = job->ref[i];
		job->ref[i].result = ret < 0 ? (int)ret : result_of(&e[k]);
		if (ret >= 0 && e[k].result == -EEXIST)
			job->ref[i].handle = e[k].existing;
		k++;
	}
	pthread_mutex_unlock(&eng->lock);
	if (nr)
		kvmm_unpin(eng->pool, pins, nr);
	free(pins);
	free(e);
	return ret < 0 ? (int)ret : 0;
}
