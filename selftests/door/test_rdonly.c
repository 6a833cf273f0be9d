// SPDX-License-Identifier: MIT
/*
 * Engines on pools that were opened for reading only: their arena is mapped
 * without write permission, which a device has to be told when it is
 * registered.
 */
#include "door.h"

#include <stdlib.h>

/* A pool with ten blocks that an engine which may write has stored. */
static struct seq *begin(struct door *d, void **state, const char *const *env,
			 struct kvmm_pool **reader)
{
	struct seq *s = malloc(sizeof(*s));

	door_start(d, *state, env);
	door_simple(d, 2, 1, 8, 64, 1, 64);
	door_pool(d, 32, 0);
	d->eng = door_open(d, d->pool, NULL);
	seq_new(d, s, 10, 100, 0);
	seq_fill(d, s);
	assert_int_equal(door_offload(d, s), 10);
	kvmm_engine_close(d->eng);
	d->eng = NULL;
	seq_clear(d, s);
	assert_int_equal(kvmm_pool_open(d->lt->kv, "door", KVMM_POOL_RDONLY,
					reader), 0);
	return s;
}

static void end(struct door *d, struct seq *s, struct kvmm_pool *reader)
{
	kvmm_engine_close(d->eng);
	d->eng = NULL;
	kvmm_pool_close(reader);
	door_end(d);
	free(s);
}

static void restores_with(void **state, const char *const *env)
{
	struct kvmm_pool *reader;
	struct kvmm_transfer t;
	struct door d;
	struct seq *s = begin(&d, state, env, &reader);
	uint64_t job;

	d.eng = door_open(&d, reader, NULL);
	t = seq_transfer(&d, s);
	assert_fails(kvmm_offload(d.eng, &t, &job), EACCES);
	assert_int_equal(door_restore(&d, s), 10);
	seq_check(&d, s, 0, 10);
	end(&d, s, reader);
}

static void restores(void **state)
{
	restores_with(state, NULL);
}

/* What a device can that can't register it, but reads memory as it is. */
static void reads_as_it_is(void **state)
{
	restores_with(state, (const char *const[]){
		"RDONLY=0", "PAGEABLE=hmm", NULL });
	restores_with(state, (const char *const[]){
		"RDONLY=0", "PAGEABLE=ats", NULL });
}

static void device_cannot(void **state)
{
	struct kvmm_engine_opts o = { .size = sizeof(o) };
	struct kvmm_gpu_opts gpu = {
		.backend = KVMM_GPU_CUDA,
		.flags = KVMM_GPU_NO_CALIBRATION,
		.libcuda = fake.path,
	};
	struct kvmm_engine *eng = NULL;
	struct kvmm_pool *reader;
	struct door d;
	struct seq *s = begin(&d, state, (const char *const[]){
		"RDONLY=0", NULL }, &reader);

	if (d.cuda) {
		o.layout = &d.lay;
		assert_int_equal(eng_open_on(reader, &o, &gpu, &eng),
				 -EOPNOTSUPP);
		assert_null(eng);
		assert_non_null(strstr(d.lt->log, "reading only; open the pool "
				       "for writing"));
		/* and that helps */
		d.eng = door_open(&d, d.pool, NULL);
		assert_int_equal(door_restore(&d, s), 10);
		seq_check(&d, s, 0, 10);
	}
	end(&d, s, reader);
}

static const struct lt_test tests[] = {
	LT_TEST(restores),
	LT_TEST(reads_as_it_is),
	LT_TEST(device_cannot),
};

int main(void)
{
	return LT_RUN("rdonly", tests);
}
