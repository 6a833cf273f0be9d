// SPDX-License-Identifier: MIT
/*
 * Restore: which blocks of a request the pool has, and bringing in those that
 * are in the area, some at a time, so that reading and copying overlap.
 */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

/* Read at a time. */
#define READ_BYTES	(32UL << 20)
#define READ_BLOCKS	128

int kvmm_restore(struct kvmm_engine *eng, const struct kvmm_transfer *req,
		 uint64_t *id)
{
	struct job *job;
	int err;

	if (!id)
		return kvmm_ret(-EINVAL);
	job = job_new(eng, req, false, &err);
	return kvmm_ret(job ? job_submit(job, id) : err);
}

/* Finds the blocks; results: 0: pinned, -EAGAIN: in the area, others: lost. */
static long find(struct job *job, struct kvmm_block_ref *refs)
{
	struct kvmm_pool *pool = job->eng->pool;
	unsigned int flags = KVMM_LOOKUP_PIN, i;
	long ret;

	if (job->by_handle) {
		memcpy(refs, job->ref, job->n * sizeof(*refs));
		return pin_given(pool, refs, job->n, false);
	}
	if (!(job->flags & (KVMM_JOB_HOLES | KVMM_JOB_BACKWARDS)))
		flags |= KVMM_LOOKUP_PREFIX;
	ret = kvmm_lookup(pool, job->keys, refs, job->n, flags);
	for (i = 0; i < job->n && ret >= 0; i++) {
		switch (refs[i].result) {
		case KVMM_MEMORY:
			refs[i].result = 0;
			break;
		case KVMM_PENDING:
			/* pinned by its read, or lost */
			kvmm_unpin(pool, &refs[i], 1);
			refs[i].result = -EAGAIN;
			break;
		case KVMM_SWAP:
			refs[i].result = -EAGAIN;
			break;
		case KVMM_MISS:
			refs[i].result = -ENOENT;
			refs[i].handle = 0;
			break;
		}
	}
	return ret;
}

void restore_start(struct job *job)
{
	struct kvmm_engine *eng = job->eng;
	struct kvmm_block_ref *refs = calloc(job->n, sizeof(*refs));
	long ret = refs ? find(job, refs) : -ENOMEM;
	bool want = false;
	unsigned int i;

	if (ret >= 0)
		eng_reach(eng, refs, job->n);
	pthread_mutex_lock(&eng->lock);
	if (ret < 0 && !job->stop)
		job->stop = (int)ret;
	for (i = 0; i < job->n && ret >= 0; i++) {
		job->ref[i].handle = refs[i].handle;
		job->ref[i].frame = refs[i].frame;
		if (refs[i].result >= 0) {
			job->st[i] = BLK_HAVE;
		} else if (refs[i].result == -EAGAIN) {
			job->st[i] = BLK_WANT;
			want = true;
		} else {
			job->st[i] = BLK_END;
			job->ref[i].result = refs[i].result;
		}
	}
	if (want)
		job_io_locked(job);
	pthread_mutex_unlock(&eng->lock);
	free(refs);
}

unsigned int restore_lot(const struct kvmm_engine *eng)
{
	size_t lot = READ_BYTES / eng->block_size;

	if (lot > READ_BLOCKS)
		return READ_BLOCKS;
	return lot ? (unsigned int)lot : 1;
}

/* The next blocks to read, in the order in which they are wanted. */
static unsigned int take_lot(struct job *job, struct kvmm_block_ref *refs,
			     unsigned int *which)
{
	unsigned int max = restore_lot(job->eng), nr = 0, k, i;
	bool more = false;

	for (k = 0; k < job->n && !more; k++) {
		i = job->flags & KVMM_JOB_BACKWARDS ? job->n - 1 - k : k;
		if (job->st[i] != BLK_WANT)
			continue;
		if (nr == max) {
			more = true;
			break;
		}
		job->st[i] = BLK_IO;
		refs[nr] = job->ref[i];
		which[nr++] = i;
	}
	/* to the end of the queue: other jobs have their turn, too */
	if (more)
		job_io_locked(job);
	return nr;
}

/* Results that are about the disk, and not about frames or the block. */
static bool is_broken(int result)
{
	return result == -EIO || result == -ESTALE || result == -ETIMEDOUT;
}

static void learn(struct io_thread *io, const struct kvmm_block_ref *refs,
		  unsigned int nr, uint64_t ns)
{
	struct kvmm_engine *eng = io->eng;
	unsigned int i, good = 0, bad = 0;

	for (i = 0; i < nr; i++) {
		good += refs[i].result >= 0;
		bad += is_broken(refs[i].result);
	}
	if (good)
		way_add(&eng->stat[KVMM_WAY_DISK],
			(uint64_t)good * eng->block_size, (double)ns / 1000);
	if (good || bad)
		disk_result_locked(eng, good);
}

/* In an io thread: one lot of the job's blocks. */
void restore_read(struct io_thread *io, struct job *job)
{
	struct kvmm_block_ref refs[READ_BLOCKS], drop[READ_BLOCKS];
	struct kvmm_engine *eng = job->eng;
	unsigned int which[READ_BLOCKS];
	unsigned int i, nr, nr_drop = 0;
	uint64_t begin = eng_now();
	long ret;

	pthread_mutex_lock(&eng->lock);
	nr = take_lot(job, refs, which);
	if (nr) {
		io->since_ns = begin;
		io->bytes = (uint64_t)nr * eng->block_size;
	}
	pthread_mutex_unlock(&eng->lock);
	if (!nr)
		return;

	ret = kvmm_swap_in(eng->pool, refs, nr, KVMM_SWAP_PIN);
	for (i = 0; i < nr && ret < 0; i++)
		refs[i].result = (int)ret;
	eng_reach(eng, refs, nr);

	pthread_mutex_lock(&eng->lock);
	learn(io, refs, nr, eng_now() - begin);
	io->since_ns = 0;
	for (i = 0; i < nr; i++) {
		unsigned int b = which[i];

		if (job->st[b] != BLK_IO) {
			if (refs[i].result >= 0)
				drop[nr_drop++] = refs[i];
		} else if (refs[i].result >= 0) {
			job->ref[b].frame = refs[i].frame;
			job->st[b] = BLK_HAVE;
		} else {
			job->ref[b].result = refs[i].result;
			job->st[b] = BLK_END;
		}
	}
	job_kick_locked(job);
	pthread_mutex_unlock(&eng->lock);
	eng_unpin(eng, drop, nr_drop);
}

void *io_main(void *arg)
{
	struct io_thread *io = arg;
	struct kvmm_engine *eng = io->eng;
	struct job *job;

	pthread_mutex_lock(&eng->lock);
	for (;;) {
		job = TAILQ_FIRST(&eng->io_queue);
		if (job) {
			TAILQ_REMOVE(&eng->io_queue, job, io_link);
			job->in_io = false;
			pthread_mutex_unlock(&eng->lock);
			if (job->out)
				offload_alloc(job);
			else
				restore_read(io, job);
			pthread_mutex_lock(&eng->lock);
			job_put_locked(job);
			continue;
		}
		if (eng->stop)
			break;
		pthread_cond_wait(&eng->io_work, &eng->lock);
	}
	pthread_mutex_unlock(&eng->lock);
	return NULL;
}
