// SPDX-License-Identifier: MIT
/*
 * Order by events: a copy is not there before its fence and is there after
 * it, on both sides of a job.
 */
#include "fixture.h"

#include <time.h>

#define FRAME (64UL << 10)
#define ROUNDS 30

static const struct fx_config host = {
	.name = "host",
	.backend = KVMM_GPU_HOST,
};

static const struct fx_config kernel = {
	.name = "kernel",
	.backend = KVMM_GPU_CUDA,
	.path = KVMM_GPU_PATH_KERNEL,
	.env = {"DELAY_US=3000"},
};

static const struct fx_config batch = {
	.name = "batch",
	.backend = KVMM_GPU_CUDA,
	.path = KVMM_GPU_PATH_BATCH,
	.env = {"DELAY_US=3000"},
};

static const struct fx_config plain = {
	.name = "plain",
	.backend = KVMM_GPU_CUDA,
	.path = KVMM_GPU_PATH_PLAIN,
	.env = {"DELAY_US=3000"},
};

struct pair {
	char *p;
	uint64_t dev;
	struct kvmm_gpu_stream *a, *b;
	struct kvmm_gpu_event *fence, *done;
	struct kvmm_gpu_run run;
};

static void pair_init(struct pair *t, struct fx *fx)
{
	t->p = fx_map(4 * FRAME);
	t->dev = fx_dev_alloc(fx, 4 * FRAME);
	t->run = (struct kvmm_gpu_run){t->dev, 4096, 2048, 16};
	fx_ok(fx->gpu, kvmm_gpu_register(fx->gpu, t->p, 4 * FRAME),
	      "register");
	fx_ok(fx->gpu, kvmm_gpu_stream_create(fx->gpu, &t->a), "stream");
	fx_ok(fx->gpu, kvmm_gpu_stream_create(fx->gpu, &t->b), "stream");
	fx_ok(fx->gpu, kvmm_gpu_event_create(fx->gpu, &t->fence), "event");
	fx_ok(fx->gpu, kvmm_gpu_event_create(fx->gpu, &t->done), "event");
}

static void pair_exit(struct pair *t, struct fx *fx)
{
	kvmm_gpu_event_destroy(t->fence);
	kvmm_gpu_event_destroy(t->done);
	kvmm_gpu_stream_destroy(t->a);
	kvmm_gpu_stream_destroy(t->b);
	fx_ok(fx->gpu, kvmm_gpu_unregister(fx->gpu, t->p, 4 * FRAME),
	      "unregister");
	fx_dev_free(fx, t->dev);
	fx_unmap(t->p, 4 * FRAME);
}

/* Restore on one stream, offload of the same on another, ordered by a fence:
 * the second always sees the first's bytes.
 */
static void test_after_fence(void **state)
{
	struct fx *fx = *state;
	struct pair t;
	int i;

	pair_init(&t, fx);
	for (i = 0; i < ROUNDS; i++) {
		struct kvmm_gpu_copy in = {t.p, &t.run, 1};
		struct kvmm_gpu_copy out = {t.p + FRAME, &t.run, 1};

		fx_fill(t.p, 32768);
		memset(t.p + FRAME, 0, 32768);
		fx_ok(fx->gpu, kvmm_gpu_copy(t.a, KVMM_GPU_IN, &in, 1), "in");
		fx_ok(fx->gpu, kvmm_gpu_event_record(t.fence, t.a), "record");
		fx_ok(fx->gpu, kvmm_gpu_stream_wait(t.b, t.fence), "wait");
		fx_ok(fx->gpu, kvmm_gpu_copy(t.b, KVMM_GPU_OUT, &out, 1),
		      "out");
		fx_ok(fx->gpu, kvmm_gpu_event_record(t.done, t.b), "record");
		/* recorded again meanwhile: the wait is for the record then */
		fx_ok(fx->gpu, kvmm_gpu_event_record(t.fence, t.b), "record");
		fx_ok(fx->gpu, kvmm_gpu_event_wait(t.done), "wait");
		assert_memory_equal(t.p, t.p + FRAME, 32768);
	}
	pair_exit(&t, fx);
}

static void pause_ms(long ms)
{
	struct timespec ts = {0, ms * 1000000};

	nanosleep(&ts, NULL);
}

/* The fence's stream is held: what waits for it must not have happened. */
static void test_before_fence(void **state)
{
	struct fx *fx = *state;
	char zero[32768] = {0};
	struct pair t;
	int dir;

	pair_init(&t, fx);
	for (dir = KVMM_GPU_OUT; dir <= KVMM_GPU_IN; dir++) {
		struct kvmm_gpu_copy copy = {t.p, &t.run, 1};
		char now[2048];

		memset(t.p, dir == KVMM_GPU_IN ? 7 : 0, 32768);
		memset(now, dir == KVMM_GPU_IN ? 0 : 7, sizeof(now));
		fx_poke(fx, t.dev, now, sizeof(now));
		fake.hold(kvmm_gpu_stream_native(t.a), 1);
		fx_ok(fx->gpu, kvmm_gpu_event_record(t.fence, t.a), "record");
		fx_ok(fx->gpu, kvmm_gpu_stream_wait(t.b, t.fence), "wait");
		fx_ok(fx->gpu, kvmm_gpu_copy(t.b, dir, &copy, 1), "copy");
		fx_ok(fx->gpu, kvmm_gpu_event_record(t.done, t.b), "record");
		pause_ms(20);
		assert_int_equal(kvmm_gpu_event_query(t.fence), 0);
		assert_int_equal(kvmm_gpu_event_query(t.done), 0);
		if (dir == KVMM_GPU_OUT) {
			assert_memory_equal(t.p, zero, 2048);
		} else {
			fx_peek(fx, now, t.dev, sizeof(now));
			assert_memory_equal(now, zero, sizeof(now));
		}
		fake.hold(kvmm_gpu_stream_native(t.a), 0);
		fx_ok(fx->gpu, kvmm_gpu_event_wait(t.done), "wait");
		fx_peek(fx, now, t.dev, sizeof(now));
		assert_int_equal(t.p[0], 7);
		assert_memory_equal(now, t.p, sizeof(now));
	}
	pair_exit(&t, fx);
}

/* With delays, an event is seen not done before it is seen done. */
static void test_asynchronous(void **state)
{
	struct fx *fx = *state;
	struct pair t;
	int i, pending = 0;

	pair_init(&t, fx);
	for (i = 0; i < ROUNDS; i++) {
		struct kvmm_gpu_copy in = {t.p, &t.run, 1};

		fx_ok(fx->gpu, kvmm_gpu_copy(t.a, KVMM_GPU_IN, &in, 1), "in");
		fx_ok(fx->gpu, kvmm_gpu_event_record(t.done, t.a), "record");
		pending += !kvmm_gpu_event_query(t.done);
		while (!kvmm_gpu_event_query(t.done))
			pause_ms(1);
		assert_int_equal(kvmm_gpu_event_query(t.done), 1);
	}
	assert_true(pending > 0);
	pair_exit(&t, fx);
}

#define TEST(cfg, fn)                                                          \
	{#cfg ": " #fn, fn, fx_setup, fx_teardown, (void *)&cfg}

int order_tests(void)
{
	const struct CMUnitTest tests[] = {
		TEST(host, test_after_fence),
		TEST(kernel, test_after_fence),
		TEST(batch, test_after_fence),
		TEST(plain, test_after_fence),
		TEST(kernel, test_before_fence),
		TEST(batch, test_before_fence),
		TEST(plain, test_before_fence),
		TEST(host, test_asynchronous),
		TEST(kernel, test_asynchronous),
	};

	return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
