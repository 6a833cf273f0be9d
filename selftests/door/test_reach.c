// SPDX-License-Identifier: MIT
/*
 * Memory that may be given back to the system: leased before it is registered,
 * let go when it is asked back and no copy uses it, had again when needed.
 *
 * The pool is one of the user backend that is made to look elastic; leases are
 * counted here.
 */
#include "door.h"

#define CHUNK	4
#define CHUNKS	8

static struct {
	unsigned int held[CHUNKS];
	unsigned int taken, ended;
	int err;
} lease;

int __real_kvmm_pool_stat(struct kvmm_pool *pool, struct kvmm_pool_stat *st);
int __wrap_kvmm_pool_stat(struct kvmm_pool *pool, struct kvmm_pool_stat *st);
long __wrap_kvmm_lease(struct kvmm_pool *pool, unsigned int chunk,
		       unsigned int count, unsigned int flags);

int __wrap_kvmm_pool_stat(struct kvmm_pool *pool, struct kvmm_pool_stat *st)
{
	int err = __real_kvmm_pool_stat(pool, st);

	st->nr_elastic = CHUNK;
	st->chunk_frames = CHUNK;
	return err;
}

long __wrap_kvmm_lease(struct kvmm_pool *pool, unsigned int chunk,
		       unsigned int count, unsigned int flags)
{
	(void)pool;
	if (chunk >= CHUNKS || count != 1)
		return -EINVAL;
	if (flags & KVMM_LEASE_END) {
		lease.held[chunk] = 0;
		lease.ended++;
		return 1;
	}
	if (lease.err)
		return lease.err;
	lease.held[chunk]++;
	lease.taken++;
	return 1;
}

static struct seq *begin(struct door *d, void **state)
{
	struct seq *s = malloc(sizeof(*s));

	memset(&lease, 0, sizeof(lease));
	door_start(d, *state, NULL);
	door_simple(d, 2, 1, 8, 64, 1, 64);
	door_pool(d, CHUNK * CHUNKS, 0);
	d->eng = door_open(d, d->pool, NULL);
	return s;
}

static unsigned int held(void)
{
	unsigned int i, n = 0;

	for (i = 0; i < CHUNKS; i++) {
		assert_true(lease.held[i] <= 1);
		n += lease.held[i];
	}
	return n;
}

static void on_demand(void **state)
{
	struct door d;
	struct seq *s = begin(&d, state);
	unsigned int had;

	assert_int_equal(held(), 0);
	seq_new(&d, s, 10, 100, 0);
	seq_fill(&d, s);
	assert_int_equal(door_offload(&d, s), 10);
	had = held();
	assert_in_range(had, 3, CHUNKS);
	/* once is enough */
	assert_int_equal(lease.taken, had);
	seq_clear(&d, s);
	assert_int_equal(door_restore(&d, s), 10);
	assert_int_equal(lease.taken, had);
	assert_int_equal(lease.ended, 0);

	/* asked back: idle ones go at once, and are had again when needed */
	eng_chunk_wanted(d.eng, CHUNKS);
	assert_int_equal(lease.ended, 0);
	eng_chunk_wanted(d.eng, EVERY_CHUNK);
	assert_int_equal(held(), 0);
	assert_int_equal(lease.ended, had);
	seq_clear(&d, s);
	assert_int_equal(door_restore(&d, s), 10);
	seq_check(&d, s, 0, 10);
	assert_int_equal(held(), had);
	kvmm_engine_close(d.eng);
	d.eng = NULL;
	assert_int_equal(held(), 0);
	door_end(&d);
	free(s);
}

/* On its way out: what is in it can't be copied now, and nothing is left. */
static void refused(void **state)
{
	struct kvmm_block_ref refs[6];
	struct kvmm_transfer t;
	struct door d;
	struct seq *s = begin(&d, state);
	uint64_t job;

	seq_new(&d, s, 6, 100, 0);
	seq_fill(&d, s);
	lease.err = -EBUSY;
	assert_int_equal(door_offload(&d, s), 0);
	door_no_pins(d.pool);
	lease.err = 0;
	assert_int_equal(door_offload(&d, s), 6);
	eng_chunk_wanted(d.eng, EVERY_CHUNK);
	lease.err = -EBUSY;
	t = seq_transfer(&d, s);
	assert_int_equal(kvmm_restore(d.eng, &t, &job), 0);
	assert_int_equal(kvmm_job_wait(d.eng, job, -1), 0);
	assert_int_equal(kvmm_job_blocks(d.eng, job, refs, 6), 6);
	assert_int_equal(refs[0].result, -EBUSY);
	assert_int_equal(door_done(d.eng, job, NULL), 0);
	door_no_pins(d.pool);
	lease.err = 0;
	assert_int_equal(door_restore(&d, s), 6);
	door_end(&d);
	free(s);
}

/* In use: it goes when the last copy has ended, and not before. */
static void in_use(void **state)
{
	struct kvmm_job_info info;
	struct kvmm_transfer t;
	struct door d;
	struct seq *s = begin(&d, state);
	void *lane = kvmm_gpu_stream_native(d.eng->lane[KVMM_WAY_OUT].stream);
	uint64_t job[3];
	unsigned int i, had;

	seq_new(&d, s, 3, 100, 0);
	seq_fill(&d, s);
	t = seq_transfer(&d, s);
	fake.hold(lane, 1);
	for (i = 0; i < 3; i++) {
		lt_key(s->keys[0], 500 + i);
		assert_int_equal(kvmm_offload(d.eng, &t, &job[i]), 0);
		do {
			assert_int_equal(kvmm_job_info(d.eng, job[i], &info),
					 0);
		} while (info.state < KVMM_JOB_DRAINING);
	}
	had = held();
	assert_true(had);
	eng_chunk_wanted(d.eng, EVERY_CHUNK);
	assert_int_equal(held(), had);
	/* cancelled or not makes no difference */
	assert_int_equal(kvmm_job_cancel(d.eng, job[1]), 0);
	fake.hold(lane, 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(door_done(d.eng, job[i], NULL),
				 i == 1 ? -ECANCELED : 0);
	assert_int_equal(held(), 0);
	door_end(&d);
	free(s);
}

/* Asked back again and again while blocks move: no count is lost. */
static void under_way(void **state)
{
	unsigned int seed = door_seed(), round;
	struct kvmm_transfer t;
	struct door d;
	struct seq *s = begin(&d, state);
	uint64_t job;

	for (round = 0; round < 200; round++) {
		seq_new(&d, s, 1 + (unsigned int)rand_r(&seed) % 12,
			(unsigned int)rand_r(&seed) % 20, 0);
		t = seq_transfer(&d, s);
		assert_int_equal(round % 2 ? kvmm_restore(d.eng, &t, &job)
					   : kvmm_offload(d.eng, &t, &job), 0);
		eng_chunk_wanted(d.eng, (unsigned int)rand_r(&seed) % CHUNKS);
		if (rand_r(&seed) % 4 == 0)
			kvmm_job_cancel(d.eng, job);
		door_done(d.eng, job, NULL);
		if (rand_r(&seed) % 8 == 0)
			kvmm_pool_reset(d.pool, NULL);
	}
	eng_chunk_wanted(d.eng, EVERY_CHUNK);
	assert_int_equal(held(), 0);
	assert_true(lease.ended > 50);
	door_end(&d);
	free(s);
}

static const struct lt_test host_tests[] = {
	LT_TEST_ON(on_demand, LT_USER),
	LT_TEST_ON(refused, LT_USER),
	LT_TEST_ON(under_way, LT_USER),
};

static const struct lt_test cuda_tests[] = {
	LT_TEST_ON(on_demand, LT_USER),
	LT_TEST_ON(refused, LT_USER),
	LT_TEST_ON(in_use, LT_USER),
	LT_TEST_ON(under_way, LT_USER),
};

int main(void)
{
	return door_cuda() ? LT_RUN("reach", cuda_tests)
			   : LT_RUN("reach", host_tests);
}
