// SPDX-License-Identifier: MIT
/*
 * Many jobs from many threads, on a pool too small for what they store: blocks
 * are evicted, read back, cancelled, ended early.  What is restored is right.
 */
#include "door.h"

#include <pthread.h>

#define THREADS		4
#define BLOCKS		48	/* of a thread on the device */
#define KEYS		160	/* of all of them */

struct worker {
	struct door *d;
	unsigned int id;
	unsigned int seed;
	unsigned int rounds;
	unsigned int restored;
	unsigned int wrong;
	unsigned int odd;
	pthread_t thread;
};

static unsigned int rnd(struct worker *w, unsigned int n)
{
	return (unsigned int)rand_r(&w->seed) % n;
}

/* cmocka's asserts are for the main thread: others count. */
#define EXPECT(w, cond) do { if (!(cond)) (w)->odd++; } while (0)

static void one(struct worker *w, struct seq *s)
{
	unsigned int n = 1 + rnd(w, 24), i;
	struct kvmm_job_info info;
	struct kvmm_transfer t;
	bool out = rnd(w, 2);
	uint64_t job;
	int ret;

	seq_new(w->d, s, n, rnd(w, KEYS - n), w->id * BLOCKS);
	t = seq_transfer(w->d, s);
	if (out)
		seq_fill(w->d, s);
	else
		seq_clear(w->d, s);
	if (rnd(w, 4) == 0)
		t.timeout_us = 1 + rnd(w, 3000);
	if (!out && rnd(w, 4) == 0)
		t.flags = rnd(w, 2) ? KVMM_JOB_HOLES : KVMM_JOB_BACKWARDS;
	ret = out ? kvmm_offload(w->d->eng, &t, &job)
		  : kvmm_restore(w->d->eng, &t, &job);
	EXPECT(w, !ret);
	if (ret)
		return;
	switch (rnd(w, 8)) {
	case 0:
		kvmm_job_cancel(w->d->eng, job);
		break;
	case 1:
		if (!out)
			kvmm_job_skip(w->d->eng, job, rnd(w, n));
		break;
	case 2:
		kvmm_job_fence(w->d->eng, job, rnd(w, 2), NULL, 1);
		break;
	}
	ret = kvmm_job_wait(w->d->eng, job, -1);
	EXPECT(w, ret == 0 || ret == -ECANCELED);
	EXPECT(w, !kvmm_job_info(w->d->eng, job, &info));
	if (!ret && !out) {
		struct kvmm_block_ref refs[24];

		EXPECT(w, kvmm_job_blocks(w->d->eng, job, refs, n) == n);
		for (i = 0; i < n; i++) {
			if (refs[i].result)
				continue;
			w->restored++;
			w->wrong += !door_is(w->d, seq_ids(w->d, s, i),
					     door_tokens(w->d), s->first + i);
		}
	}
	EXPECT(w, !kvmm_job_end(w->d->eng, job));
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct seq *s = malloc(sizeof(*s));
	unsigned int i;

	if (w->d->cuda)
		EXPECT(w, !fake.ctx_set(w->d->ctx));
	for (i = 0; i < w->rounds; i++)
		one(w, s);
	free(s);
	return NULL;
}

static void many_jobs(void **state)
{
	static const char *const env[] = { "DELAY_US=300", NULL };
	struct worker w[THREADS] = { 0 };
	unsigned int i, restored = 0;
	uint64_t jobs[64];
	struct door d;
	long got;

	door_start(&d, *state, env);
	door_simple(&d, 2, 2, 4, 64, 1, THREADS * BLOCKS);
	door_pool(&d, 96, 256);
	lt_attach(d.pool, lt_path(d.lt), KVMM_SWAP_UNLINK);
	d.eng = door_open(&d, d.pool, NULL);
	for (i = 0; i < THREADS; i++) {
		w[i].d = &d;
		w[i].id = i;
		w[i].seed = door_seed() * 100 + i;
		w[i].rounds = 120;
		assert_int_equal(pthread_create(&w[i].thread, NULL, work,
						&w[i]), 0);
	}
	for (i = 0; i < 50; i++) {
		struct kvmm_plan plan;
		uint8_t keys[8][KVMM_KEY_LEN];
		unsigned int k;

		for (k = 0; k < 8; k++)
			lt_key(keys[k], i + k);
		assert_int_equal(kvmm_plan(d.eng, keys, 8, 32, 0, &plan), 0);
		got = kvmm_job_next(d.eng, jobs, 64);
		assert_true(got >= 0);
		kvmm_reclaim(d.pool, 30, NULL);
		usleep(2000);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		assert_int_equal(w[i].wrong, 0);
		assert_int_equal(w[i].odd, 0);
		restored += w[i].restored;
	}
	assert_true(restored > 500);
	door_end(&d);
}

/* Engines come and go beside each other, on the same pool. */
static void *come_and_go(void *arg)
{
	struct worker *w = arg;
	struct kvmm_engine_opts o = { .size = sizeof(o),
				      .device = KVMM_DEVICE_HOST,
				      .layout = &w->d->lay };
	struct kvmm_pool *pool;
	struct seq *s = malloc(sizeof(*s));
	struct kvmm_engine *eng;
	struct kvmm_transfer t;
	unsigned int i;
	uint64_t job;

	for (i = 0; i < w->rounds; i++) {
		EXPECT(w, !kvmm_pool_open(w->d->lt->kv, "door", 0, &pool));
		EXPECT(w, !kvmm_engine_open(pool, &o, &eng));
		seq_new(w->d, s, 8, rnd(w, 50), w->id * BLOCKS);
		seq_fill(w->d, s);
		t = seq_transfer(w->d, s);
		EXPECT(w, !kvmm_offload(eng, &t, &job));
		if (rnd(w, 2))
			kvmm_job_wait(eng, job, -1);
		kvmm_engine_close(eng);
		kvmm_pool_close(pool);
	}
	free(s);
	return NULL;
}

static void many_engines(void **state)
{
	struct worker w[THREADS] = { 0 };
	unsigned int i;
	struct door d;

	door_start(&d, *state, NULL);
	d.cuda = false;
	door_simple(&d, 2, 2, 4, 64, 1, THREADS * BLOCKS);
	door_pool(&d, 64, 0);
	for (i = 0; i < THREADS; i++) {
		w[i].d = &d;
		w[i].id = i;
		w[i].seed = door_seed() * 100 + i;
		w[i].rounds = 15;
		assert_int_equal(pthread_create(&w[i].thread, NULL, come_and_go,
						&w[i]), 0);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		assert_int_equal(w[i].odd, 0);
	}
	d.cuda = door_cuda();
	if (d.cuda) {
		while (d.nr_mems)
			free((void *)(uintptr_t)d.mem[--d.nr_mems]);
	}
	door_end(&d);
}

static const struct lt_test tests[] = {
	LT_TEST(many_jobs),
	LT_TEST(many_engines),
};

int main(void)
{
	return LT_RUN("many", tests);
}
