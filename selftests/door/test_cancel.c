// SPDX-License-Identifier: MIT
/*
 * Jobs that are not wanted any more, or take too long: cancelled at any point,
 * out of time, skipped, closed over.  Reads of the area stand at a gate.
 */
#include "door.h"

#include <pthread.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool closed;
	unsigned int inside;	/* reads that wait */
} gate = { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };

long __real_kvmm_swap_in(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
			 unsigned int n, unsigned int flags);
long __wrap_kvmm_swap_in(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
			 unsigned int n, unsigned int flags);

long __wrap_kvmm_swap_in(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
			 unsigned int n, unsigned int flags)
{
	pthread_mutex_lock(&gate.lock);
	gate.inside++;
	pthread_cond_broadcast(&gate.cond);
	while (gate.closed)
		pthread_cond_wait(&gate.cond, &gate.lock);
	gate.inside--;
	pthread_mutex_unlock(&gate.lock);
	return __real_kvmm_swap_in(pool, refs, n, flags);
}

static void gate_close(void)
{
	pthread_mutex_lock(&gate.lock);
	gate.closed = true;
	pthread_mutex_unlock(&gate.lock);
}

static void gate_open(void)
{
	pthread_mutex_lock(&gate.lock);
	gate.closed = false;
	pthread_cond_broadcast(&gate.cond);
	pthread_mutex_unlock(&gate.lock);
}

/* Waits until so many reads stand at the gate. */
static void gate_wait(unsigned int n)
{
	pthread_mutex_lock(&gate.lock);
	while (gate.inside < n)
		pthread_cond_wait(&gate.cond, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
}

static struct seq *begin(struct door *d, void **state, unsigned int frames)
{
	door_start(d, *state, NULL);
	door_simple(d, 2, 2, 8, 64, 1, 512);
	door_pool(d, frames, 4 * frames);
	lt_attach(d->pool, lt_path(d->lt), KVMM_SWAP_UNLINK);
	return malloc(sizeof(struct seq));
}

/* @n blocks, of which the first @memory are in memory, the others are not. */
static void store(struct door *d, struct seq *s, unsigned int n,
		  unsigned int memory, uint64_t id)
{
	struct kvmm_block_ref refs[512];

	seq_new(d, s, n, id, 0);
	seq_fill(d, s);
	assert_int_equal(door_offload(d, s), n);
	assert_int_equal(kvmm_lookup(d->pool, s->keys, refs, n, 0), n);
	if (memory < n)
		assert_int_equal(kvmm_swap_out(d->pool, refs + memory,
					       n - memory, KVMM_SWAP_DROP),
				 n - memory);
	seq_clear(d, s);
}

/* Cancelled: nothing is published.  Too late: all is. */
static void cancel_anywhere(void **state)
{
	unsigned int seed = door_seed(), round, i, cancelled = 0;
	struct kvmm_job_info info;
	struct kvmm_transfer t;
	struct door d;
	struct seq *s = begin(&d, state, 64);
	uint64_t job;

	d.eng = door_open(&d, d.pool, NULL);
	for (round = 0; round < 150; round++) {
		unsigned int us = (unsigned int)rand_r(&seed) % 400;
		int ret, status;

		seq_new(&d, s, 8, 1000 + round * 8, 0);
		t = seq_transfer(&d, s);
		assert_int_equal(kvmm_offload(d.eng, &t, &job), 0);
		if (us > 50)
			usleep(us);
		ret = kvmm_job_cancel(d.eng, job);
		status = door_done(d.eng, job, &info);
		if (!ret) {
			assert_int_equal(status, -ECANCELED);
			assert_int_equal(info.good, 0);
			cancelled++;
		} else {
			assert_int_equal(ret, -EALREADY);
			assert_int_equal(status, 0);
		}
		for (i = 0; i < 8; i++)
			assert_int_equal(lt_find(d.pool, s->first + i, 0, NULL),
					 ret ? KVMM_MEMORY : KVMM_MISS);
		door_no_pins(d.pool);
		if (ret)
			kvmm_reclaim(d.pool, 0, NULL);
	}
	assert_true(cancelled);
	door_end(&d);
	free(s);
}

/* The same for restores, from memory and from the area. */
static void cancel_restores(void **state)
{
	unsigned int seed = door_seed(), round;
	struct kvmm_job_info info;
	struct kvmm_transfer t;
	struct door d;
	struct seq *s = begin(&d, state, 64);
	uint64_t job;

	d.eng = door_open(&d, d.pool, NULL);
	store(&d, s, 48, 48, 100);
	t = seq_transfer(&d, s);
	for (round = 0; round < 60; round++) {
		int ret;

		kvmm_reclaim(d.pool, (unsigned int)rand_r(&seed) % 50, NULL);
		seq_clear(&d, s);
		assert_int_equal(kvmm_restore(d.eng, &t, &job), 0);
		usleep((unsigned int)rand_r(&seed) % 3000);
		ret = kvmm_job_cancel(d.eng, job);
		kvmm_job_wait(d.eng, job, -1);
		assert_int_equal(kvmm_job_info(d.eng, job, &info), 0);
		if (!ret) {
			assert_int_equal(info.status, -ECANCELED);
			assert_int_equal(info.prefix, 0);
		} else {
			assert_int_equal(info.prefix, 48);
			seq_check(&d, s, 0, 48);
		}
		assert_int_equal(kvmm_job_end(d.eng, job), 0);
	}
	/* reads that nobody waits for leave no pins either */
	kvmm_engine_close(d.eng);
	d.eng = NULL;
	door_end(&d);
	free(s);
}

/* A job is done only when the device has let go of its memory. */
static void waits_for_the_device(void **state)
{
	struct kvmm_transfer t;
	struct door d;
	struct seq *s = begin(&d, state, 64);
	struct kvmm_job_info info;
	uint64_t job;
	void *lane;

	d.eng = door_open(&d, d.pool, NULL);
	lane = kvmm_gpu_stream_native(d.eng->lane[KVMM_WAY_OUT].stream);
	seq_new(&d, s, 8, 100, 0);
	seq_fill(&d, s);
	t = seq_transfer(&d, s);
	fake.hold(lane, 1);
	assert_int_equal(kvmm_offload(d.eng, &t, &job), 0);
	do {
		assert_int_equal(kvmm_job_info(d.eng, job, &info), 0);
	} while (info.state < KVMM_JOB_DRAINING);
	assert_int_equal(kvmm_job_cancel(d.eng, job), 0);
	assert_int_equal(kvmm_job_wait(d.eng, job, 60), -ETIMEDOUT);
	/* its frames are not given to anyone else meanwhile */
	assert_int_equal(lt_stat(d.pool).blocks[KVMM_FILLING], 8);
	fake.hold(lane, 0);
	assert_int_equal(door_done(d.eng, job, NULL), -ECANCELED);
	assert_int_equal(lt_stat(d.pool).blocks[KVMM_FILLING], 0);
	assert_int_equal(lt_find(d.pool, 100, 0, NULL), KVMM_MISS);
	door_end(&d);
	free(s);
}

/* A read that hangs holds up its own blocks only, and not the cancelled job. */
static void cancel_while_reading(void **state)
{
	struct kvmm_block_ref refs[16];
	struct kvmm_job_info info;
	struct kvmm_transfer t;
	struct door d;
	struct seq *s = begin(&d, state, 64);
	uint64_t job;

	d.eng = door_open(&d, d.pool, NULL);
	store(&d, s, 16, 4, 100);
	t = seq_transfer(&d, s);
	gate_close();
	assert_int_equal(kvmm_restore(d.eng, &t, &job), 0);
	gate_wait(1);
	assert_int_equal(kvmm_job_wait(d.eng, job, 20), -ETIMEDOUT);
	assert_int_equal(kvmm_job_fence(d.eng, job, 0, NULL, 0), -ETIMEDOUT);
	assert_int_equal(kvmm_job_cancel(d.eng, job), 0);
	assert_int_equal(kvmm_job_wait(d.eng, job, -1), -ECANCELED);
	assert_int_equal(kvmm_job_blocks(d.eng, job, refs, 16), 16);
	assert_int_equal(refs[15].result, -ECANCELED);
	assert_int_equal(kvmm_job_info(d.eng, job, &info), 0);
	assert_int_equal(info.good, 0);
	assert_int_equal(kvmm_job_fence(d.eng, job, 0, NULL, -1), -ECANCELED);
	assert_fails(kvmm_job_cancel(d.eng, job), EALREADY);
	assert_int_equal(kvmm_job_end(d.eng, job), 0);
	door_no_pins(d.pool);
	gate_open();
	door_end(&d);
	free(s);
}

struct told {
	unsigned int first, n, calls;
};

static void on_recompute(void *ctx, uint64_t job, uint64_t tag,
			 unsigned int first, unsigned int n)
{
	struct told *told = ctx;

	(void)job;
	(void)tag;
	told->first = first;
	told->n = n;
	told->calls++;
}

/* Out of time: what is in memory is there, the rest is a miss. */
static void deadline(void **state)
{
	struct kvmm_hooks hooks = { .recompute = on_recompute };
	struct kvmm_engine_opts o = { .hooks = &hooks };
	struct kvmm_block_ref refs[16];
	struct kvmm_job_info info;
	struct told told = { 0 };
	struct kvmm_transfer t;
	struct door d;
	struct seq *s = begin(&d, state, 64);
	uint64_t job;

	hooks.ctx = &told;
	d.eng = door_open(&d, d.pool, &o);
	store(&d, s, 16, 5, 100);
	t = seq_transfer(&d, s);
	t.timeout_us = 30000;
	gate_close();
	assert_int_equal(kvmm_restore(d.eng, &t, &job), 0);
	assert_int_equal(kvmm_job_fence(d.eng, job, 1, NULL, -1), 5);
	assert_int_equal(kvmm_job_wait(d.eng, job, -1), 0);
	assert_int_equal(kvmm_job_blocks(d.eng, job, refs, 16), 16);
	assert_int_equal(kvmm_job_info(d.eng, job, &info), 0);
	assert_int_equal(info.prefix, 5);
	assert_int_equal(info.good, 5);
	assert_int_equal(refs[4].result, 0);
	assert_int_equal(refs[5].result, -ETIMEDOUT);
	assert_int_equal(kvmm_job_end(d.eng, job), 0);
	seq_check(&d, s, 0, 5);
	assert_int_equal(told.calls, 1);
	assert_int_equal(told.first, 5);
	assert_int_equal(told.n, 11);
	gate_open();
	/* time enough */
	t.timeout_us = 60000000;
	assert_int_equal(kvmm_restore(d.eng, &t, &job), 0);
	assert_int_equal(door_done(d.eng, job, NULL), 0);
	seq_check(&d, s, 0, 16);
	door_end(&d);
	free(s);
}

/* A disk that hangs holds up no hit in memory, and is not planned with. */
static void stuck_disk(void **state)
{
	struct kvmm_cost cost = { .token_us = 1000 };
	struct kvmm_engine_opts o = { .cost = &cost, .io_threads = 2 };
	struct kvmm_job_info info;
	struct kvmm_transfer t;
	struct kvmm_plan plan;
	struct door d;
	struct seq *s = begin(&d, state, 128);
	struct seq *cold = malloc(sizeof(*cold));
	uint64_t stuck[3], job;
	unsigned int i;

	d.eng = door_open(&d, d.pool, &o);
	store(&d, cold, 20, 0, 500);
	store(&d, s, 10, 10, 100);
	assert_int_equal(kvmm_plan(d.eng, cold->keys, 20, 200, 0, &plan), 0);
	assert_int_equal(plan.hits, 20);
	assert_int_equal(plan.in_memory, 0);
	assert_int_equal(plan.count, 20);
	gate_close();
	t = seq_transfer(&d, cold);
	for (i = 0; i < 3; i++)
		assert_int_equal(kvmm_restore(d.eng, &t, &stuck[i]), 0);
	gate_wait(2);
	assert_int_equal(door_restore(&d, s), 10);
	seq_check(&d, s, 0, 10);
	/* one that needs the disk, in the queue: its deadline is kept */
	t.timeout_us = 20000;
	assert_int_equal(kvmm_restore(d.eng, &t, &job), 0);
	assert_int_equal(door_done(d.eng, job, &info), 0);
	assert_int_equal(info.prefix, 0);
	/* computing takes 0.2 s: with a disk that hangs longer, all of it */
	for (i = 0; i < 600; i++) {
		assert_int_equal(kvmm_plan(d.eng, cold->keys, 20, 200, 0,
					   &plan), 0);
		if (!plan.count)
			break;
		usleep(10000);
	}
	assert_int_equal(plan.count, 0);
	assert_int_equal(plan.hits, 20);
	/* memory is as good as ever */
	assert_int_equal(kvmm_plan(d.eng, s->keys, 10, 200, 0, &plan), 0);
	assert_int_equal(plan.count, 10);
	gate_open();
	for (i = 0; i < 3; i++)
		assert_int_equal(door_done(d.eng, stuck[i], NULL), 0);
	door_end(&d);
	free(cold);
	free(s);
}

/* The engine computes from the front, and meets what comes from the back. */
static void skip_front(void **state)
{
	struct kvmm_block_ref refs[16];
	struct kvmm_job_info info;
	struct kvmm_transfer t;
	struct door d;
	struct seq *s = begin(&d, state, 64);
	uint64_t job;
	unsigned int i;

	d.eng = door_open(&d, d.pool, NULL);
	store(&d, s, 16, 0, 100);
	t = seq_transfer(&d, s);
	t.flags = KVMM_JOB_BACKWARDS;
	gate_close();
	assert_int_equal(kvmm_restore(d.eng, &t, &job), 0);
	gate_wait(1);
	assert_int_equal(kvmm_job_skip(d.eng, job, 6), 0);
	assert_int_equal(kvmm_job_skip(d.eng, job, 4), 0);
	gate_open();
	assert_int_equal(kvmm_job_wait(d.eng, job, -1), 0);
	assert_int_equal(kvmm_job_blocks(d.eng, job, refs, 16), 16);
	assert_int_equal(kvmm_job_info(d.eng, job, &info), 0);
	assert_int_equal(info.prefix, 10);
	for (i = 0; i < 16; i++)
		assert_int_equal(refs[i].result, i < 6 ? -ECANCELED : 0);
	assert_int_equal(kvmm_job_end(d.eng, job), 0);
	seq_check(&d, s, 6, 10);
	for (i = 0; i < 6; i++)
		assert_false(door_is(&d, &s->ids[i], 8, 100 + i));
	door_end(&d);
	free(s);
}

/* Ended or closed over while they run: no leak, no pin, no late result. */
static void close_over_jobs(void **state)
{
	struct kvmm_transfer t;
	struct door d;
	struct seq *s = begin(&d, state, 128);
	uint64_t job;
	unsigned int i, round;

	for (round = 0; round < 5; round++) {
		d.eng = door_open(&d, d.pool, NULL);
		store(&d, s, 32, 10, 100 + round * 1000);
		t = seq_transfer(&d, s);
		for (i = 0; i < 12; i++) {
			assert_int_equal(i % 3 ? kvmm_restore(d.eng, &t, &job)
					       : kvmm_offload(d.eng, &t, &job),
					 0);
			if (i % 2)
				assert_int_equal(kvmm_job_end(d.eng, job), 0);
		}
		kvmm_engine_close(d.eng);
		d.eng = NULL;
		door_no_pins(d.pool);
		assert_int_equal(kvmm_pool_reset(d.pool, NULL), 0);
	}
	door_end(&d);
	free(s);
}

static const struct lt_test host_tests[] = {
	LT_TEST(cancel_anywhere),
	LT_TEST(cancel_restores),
	LT_TEST(cancel_while_reading),
	LT_TEST(deadline),
	LT_TEST(stuck_disk),
	LT_TEST(skip_front),
	LT_TEST(close_over_jobs),
};

static const struct lt_test cuda_tests[] = {
	LT_TEST(cancel_anywhere),
	LT_TEST(cancel_restores),
	LT_TEST(waits_for_the_device),
	LT_TEST(cancel_while_reading),
	LT_TEST(deadline),
	LT_TEST(stuck_disk),
	LT_TEST(skip_front),
	LT_TEST(close_over_jobs),
};

int main(void)
{
	return door_cuda() ? LT_RUN("cancel", cuda_tests)
			   : LT_RUN("cancel", host_tests);
}
