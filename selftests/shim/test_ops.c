// SPDX-License-Identifier: MIT
/* Every operation of the shim, on the host backend and on the stand-in. */
#include "fixture.h"

#include <pthread.h>
#include <sys/mman.h>

static const struct fx_config host = {
	.name = "host",
	.backend = KVMM_GPU_HOST,
};

static const struct fx_config cuda = {
	.name = "cuda",
	.backend = KVMM_GPU_CUDA,
	.env = {"DELAY_US=200"},
};

static void assert_error(struct kvmm_gpu *gpu, int r, int want,
			 const char *text)
{
	char have[256];

	kvmm_gpu_error(gpu, have, sizeof(have));
	if (r != want || !strstr(have, text))
		fail_msg("%d, \"%s\"; want %d, \"%s\"", r, have, want, text);
}

static void test_info(void **state)
{
	struct fx *fx = *state;
	struct kvmm_gpu_info info;

	kvmm_gpu_info(fx->gpu, &info);
	assert_string_equal(info.backend, fx->cfg->name);
	assert_true(info.unified);
	assert_string_equal(info.note, "");
	if (fx->cfg == &host) {
		assert_int_equal(info.pageable, KVMM_GPU_PAGEABLE_ATS);
		assert_string_equal(info.name, "host memory");
		return;
	}
	assert_string_equal(info.name, "Stand-in GPU 0");
	assert_string_equal(info.pci, "0000:a1:00.0");
	assert_int_equal(info.driver_version, 13000);
	assert_int_equal(info.pageable, KVMM_GPU_PAGEABLE_NONE);
	assert_true(info.has_kernel);
	assert_true(info.has_batch);
	assert_true(info.own_context);
	assert_int_equal(info.dma_path, KVMM_GPU_PATH_BATCH);
	assert_false(info.calibrated);
	assert_true(info.crossover[KVMM_GPU_IN] > 0);
}

static void test_register(void **state)
{
	struct fx *fx = *state;
	char *p = fx_map(8 * MiB), *mid = p + 2 * MiB;
	uint64_t a, b;

	/* in pieces of 1 MiB: two and a half */
	fx_ok(fx->gpu, kvmm_gpu_register(fx->gpu, mid, 5 * MiB / 2),
	      "register");
	if (fx->cfg == &cuda)
		assert_int_equal(fake.calls("cuMemHostRegister"), 3);
	assert_error(fx->gpu, kvmm_gpu_register(fx->gpu, mid, MiB), -EEXIST,
		     "registered already");
	assert_error(fx->gpu, kvmm_gpu_register(fx->gpu, p, 2 * MiB + 4096),
		     -EEXIST, "registered already");
	assert_error(fx->gpu, kvmm_gpu_register(fx->gpu, p + 1, 4096), -EINVAL,
		     "not whole pages");
	assert_error(fx->gpu, kvmm_gpu_register(fx->gpu, p, 100), -EINVAL,
		     "not whole pages");
	assert_error(fx->gpu, kvmm_gpu_register(fx->gpu, p, 0), -EINVAL,
		     "not whole pages");

	fx_ok(fx->gpu, kvmm_gpu_dev_ptr(fx->gpu, mid, MiB, &a), "dev_ptr");
	fx_ok(fx->gpu, kvmm_gpu_dev_ptr(fx->gpu, mid + 100, 1, &b), "dev_ptr");
	assert_int_equal(b - a, 100);
	/* across two pieces */
	assert_error(fx->gpu,
		     kvmm_gpu_dev_ptr(fx->gpu, mid + MiB - 1, 2, &a), -EFAULT,
		     "not within one registered piece");
	/* partly outside */
	assert_error(fx->gpu, kvmm_gpu_dev_ptr(fx->gpu, mid - 1, 2, &a),
		     -EFAULT, "not within one registered piece");
	if (fx->cfg == &cuda)
		assert_error(fx->gpu, kvmm_gpu_dev_ptr(fx->gpu, p, 1, &a),
			     -EFAULT, "not within one registered piece");

	/* neighbours on both sides, then all in one go */
	fx_ok(fx->gpu, kvmm_gpu_register(fx->gpu, p, 2 * MiB), "register");
	fx_ok(fx->gpu, kvmm_gpu_register(fx->gpu, mid + 5 * MiB / 2, MiB),
	      "register");
	assert_error(fx->gpu, kvmm_gpu_unregister(fx->gpu, p, MiB / 2),
		     -ENOENT, "not what was registered");
	assert_error(fx->gpu, kvmm_gpu_unregister(fx->gpu, p + 4096, MiB),
		     -ENOENT, "not what was registered");
	assert_error(fx->gpu, kvmm_gpu_unregister(fx->gpu, p, 8 * MiB),
		     -ENOENT, "not what was registered");
	assert_error(fx->gpu, kvmm_gpu_unregister(fx->gpu, p, 0), -ENOENT,
		     "not what was registered");
	fx_ok(fx->gpu, kvmm_gpu_dev_ptr(fx->gpu, p, MiB, &a), "dev_ptr");
	fx_ok(fx->gpu, kvmm_gpu_unregister(fx->gpu, p, 11 * MiB / 2),
	      "unregister");
	assert_error(fx->gpu, kvmm_gpu_unregister(fx->gpu, p, 2 * MiB),
		     -ENOENT, "not what was registered");
	/* what is left is dropped at close */
	fx_ok(fx->gpu, kvmm_gpu_register(fx->gpu, p, 3 * MiB), "register");
	fx_ok(fx->gpu, kvmm_gpu_unregister(fx->gpu, p, 3 * MiB), "unregister");
	fx_ok(fx->gpu, kvmm_gpu_register(fx->gpu, p + 5 * MiB, MiB),
	      "register");
	/* (the mapping stays until the process ends) */
}

static void test_events(void **state)
{
	struct fx *fx = *state;
	struct kvmm_gpu_stream *s, *wrapped;
	struct kvmm_gpu_event *ev, *wev;

	fx_ok(fx->gpu, kvmm_gpu_stream_create(fx->gpu, &s), "stream");
	fx_ok(fx->gpu, kvmm_gpu_event_create(fx->gpu, &ev), "event");
	/* never recorded: done, and holds up nothing */
	assert_int_equal(kvmm_gpu_event_query(ev), 1);
	fx_ok(fx->gpu, kvmm_gpu_event_wait(ev), "wait");
	fx_ok(fx->gpu, kvmm_gpu_stream_wait(s, ev), "stream wait");
	fx_ok(fx->gpu, kvmm_gpu_event_record(ev, s), "record");
	fx_ok(fx->gpu, kvmm_gpu_event_wait(ev), "wait");
	assert_int_equal(kvmm_gpu_event_query(ev), 1);
	/* recorded twice: the latest counts */
	fx_ok(fx->gpu, kvmm_gpu_event_record(ev, s), "record");
	fx_ok(fx->gpu, kvmm_gpu_event_record(ev, s), "record");
	fx_ok(fx->gpu, kvmm_gpu_stream_sync(s), "sync");
	assert_int_equal(kvmm_gpu_event_query(ev), 1);

	assert_error(fx->gpu, kvmm_gpu_close(fx->gpu), -EBUSY,
		     "2 streams and events");
	fx_ok(fx->gpu,
	      kvmm_gpu_stream_wrap(fx->gpu, kvmm_gpu_stream_native(s),
				   &wrapped), "wrap");
	fx_ok(fx->gpu,
	      kvmm_gpu_event_wrap(fx->gpu, kvmm_gpu_event_native(ev), &wev),
	      "wrap");
	assert_error(fx->gpu, kvmm_gpu_event_wrap(fx->gpu, NULL, &wev),
		     -EINVAL, "no event");
	fx_ok(fx->gpu, kvmm_gpu_event_record(wev, wrapped), "record");
	fx_ok(fx->gpu, kvmm_gpu_event_wait(ev), "wait");
	kvmm_gpu_event_destroy(wev);
	kvmm_gpu_stream_destroy(wrapped);
	/* the wrapped ones are still there */
	fx_ok(fx->gpu, kvmm_gpu_event_record(ev, s), "record");
	/* destroyed while it is pending, as CUDA allows */
	fx_ok(fx->gpu, kvmm_gpu_stream_wait(s, ev), "stream wait");
	kvmm_gpu_event_destroy(ev);
	kvmm_gpu_stream_destroy(s);
	kvmm_gpu_event_destroy(NULL);
	kvmm_gpu_stream_destroy(NULL);
}

static void test_wrap(void **state)
{
	struct fx *fx = *state;
	struct kvmm_gpu_stream *s;
	cu_context_t other, old;
	cu_stream_t theirs;

	if (fx->cfg == &host) {
		assert_error(fx->gpu, kvmm_gpu_stream_wrap(fx->gpu, NULL, &s),
			     -EINVAL, "not a stream");
		return;
	}
	/* a stream of another context is refused, the default ones are not */
	assert_int_equal(fake.ctx_create(&other, 0, 0), 0);
	assert_int_equal(fake.api.stream_create(&theirs, 0), 0);
	assert_error(fx->gpu, kvmm_gpu_stream_wrap(fx->gpu, theirs, &s),
		     -EINVAL, "belongs to another context");
	assert_int_equal(fake.api.stream_destroy(theirs), 0);
	assert_error(fx->gpu, kvmm_gpu_stream_wrap(fx->gpu, theirs, &s),
		     -EINVAL, "cuStreamGetCtx");
	assert_int_equal(fake.ctx_destroy(other), 0);
	fx_ok(fx->gpu, kvmm_gpu_stream_wrap(fx->gpu, NULL, &s), "default");
	kvmm_gpu_stream_destroy(s);
	fx_ok(fx->gpu, kvmm_gpu_stream_wrap(fx->gpu, CU_LEGACY_STREAM, &s),
	      "legacy");
	kvmm_gpu_stream_destroy(s);
	/* the engine's own context is still the current one */
	assert_int_equal(fake.api.ctx_current(&old), 0);
	assert_non_null(old);
}

static void test_bad_copies(void **state)
{
	struct fx *fx = *state;
	char *p = fx_map(2 * MiB);
	uint64_t dev = fx_dev_alloc(fx, MiB);
	struct kvmm_gpu_run run = {dev, 4096, 4096, 2};
	struct kvmm_gpu_copy copy[2] = {{p, &run, 1},
					{p + MiB - 4096, &run, 1}};
	struct kvmm_gpu_stream *s;

	fx_ok(fx->gpu, kvmm_gpu_register(fx->gpu, p, 2 * MiB), "register");
	fx_ok(fx->gpu, kvmm_gpu_stream_create(fx->gpu, &s), "stream");
	fx_ok(fx->gpu, kvmm_gpu_copy(s, KVMM_GPU_IN, copy, 0), "nothing");
	/* the second spans two pieces: nothing at all is copied */
	memset(p, 1, 8192);
	assert_error(fx->gpu, kvmm_gpu_copy(s, KVMM_GPU_IN, copy, 2), -EFAULT,
		     "not within one registered piece");
	fx_ok(fx->gpu, kvmm_gpu_stream_sync(s), "sync");
	fx_peek(fx, p, dev, 1);
	assert_int_equal(p[0], 0);
	run.stride = 100; /* overlapping */
	assert_error(fx->gpu, kvmm_gpu_copy(s, KVMM_GPU_IN, copy, 1), -EINVAL,
		     "bad one");
	run = (struct kvmm_gpu_run){dev, 4096, 0, 1};
	assert_error(fx->gpu, kvmm_gpu_copy(s, KVMM_GPU_IN, copy, 1), -EINVAL,
		     "bad one");
	run = (struct kvmm_gpu_run){dev, 4096, 4096, 0};
	assert_error(fx->gpu, kvmm_gpu_copy(s, KVMM_GPU_IN, copy, 1), -EINVAL,
		     "bad one");
	run = (struct kvmm_gpu_run){0, 4096, 4096, 1};
	assert_error(fx->gpu, kvmm_gpu_copy(s, KVMM_GPU_IN, copy, 1), -EINVAL,
		     "bad one");
	run = (struct kvmm_gpu_run){dev, 1UL << 40, 1UL << 40, 1UL << 40};
	assert_error(fx->gpu, kvmm_gpu_copy(s, KVMM_GPU_IN, copy, 1), -EINVAL,
		     "bad one");
	copy[0].nr_runs = 0;
	assert_error(fx->gpu, kvmm_gpu_copy(s, KVMM_GPU_IN, copy, 1), -EINVAL,
		     "no runs");
	assert_error(fx->gpu, kvmm_gpu_copy(s, 7, copy, 1), -EINVAL,
		     "direction");
	kvmm_gpu_stream_destroy(s);
	fx_ok(fx->gpu, kvmm_gpu_unregister(fx->gpu, p, 2 * MiB), "unregister");
	fx_dev_free(fx, dev);
	fx_unmap(p, 2 * MiB);
}

/* Memory that may only be read goes to the device, and nothing comes back. */
static void test_rdonly(void **state)
{
	struct fx *fx = *state;
	char *p = fx_map(2 * MiB), back[4096];
	uint64_t dev = fx_dev_alloc(fx, MiB), ptr;
	struct kvmm_gpu_run run = {dev, 8192, 4096, 8};
	struct kvmm_gpu_copy copy = {p + MiB / 2, &run, 1};
	struct kvmm_gpu_info info;
	struct kvmm_gpu_stream *s;
	int i;

	kvmm_gpu_info(fx->gpu, &info);
	assert_true(info.reg_rdonly);
	fx_fill(p, 2 * MiB);
	assert_int_equal(mprotect(p, 2 * MiB, PROT_READ), 0);
	if (fx->cfg == &cuda)
		assert_error(fx->gpu, kvmm_gpu_register(fx->gpu, p, 2 * MiB),
			     -EINVAL, "cuMemHostRegister");
	fx_ok(fx->gpu, kvmm_gpu_register_rdonly(fx->gpu, p, 2 * MiB),
	      "register for reading");
	assert_error(fx->gpu, kvmm_gpu_register_rdonly(fx->gpu, p, MiB),
		     -EEXIST, "registered already");
	fx_ok(fx->gpu, kvmm_gpu_dev_ptr(fx->gpu, p, MiB, &ptr), "dev_ptr");
	fx_ok(fx->gpu, kvmm_gpu_stream_create(fx->gpu, &s), "stream");
	fx_ok(fx->gpu, kvmm_gpu_copy(s, KVMM_GPU_IN, &copy, 1), "in");
	assert_error(fx->gpu, kvmm_gpu_copy(s, KVMM_GPU_OUT, &copy, 1),
		     -EACCES, "registered for reading only");
	fx_ok(fx->gpu, kvmm_gpu_stream_sync(s), "sync");
	for (i = 0; i < 8; i++) {
		fx_peek(fx, back, dev + i * 8192, 4096);
		assert_memory_equal(back, p + MiB / 2 + i * 4096, 4096);
	}
	kvmm_gpu_stream_destroy(s);
	fx_ok(fx->gpu, kvmm_gpu_unregister(fx->gpu, p, 2 * MiB), "unregister");
	fx_dev_free(fx, dev);
	fx_unmap(p, 2 * MiB);
}

#define THREADS 4
#define FRAME (64UL << 10)

struct worker {
	struct fx *fx;
	char *frames;
	uint64_t dev;
	int bad;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct kvmm_gpu *gpu = w->fx->gpu;
	struct kvmm_gpu_run run = {w->dev, 8192, 4096, 8};
	struct kvmm_gpu_copy in = {w->frames, &run, 1};
	struct kvmm_gpu_copy out = {w->frames + FRAME, &run, 1};
	struct kvmm_gpu_stream *s;
	struct kvmm_gpu_event *ev;
	int i, r = 0;

	for (i = 0; i < 20 && !r; i++) {
		memset(w->frames, i + 1, 2 * FRAME);
		memset(w->frames + FRAME, 0, FRAME);
		r = kvmm_gpu_register(gpu, w->frames, 2 * FRAME);
		if (r)
			break;
		r = r ? r : kvmm_gpu_stream_create(gpu, &s);
		r = r ? r : kvmm_gpu_event_create(gpu, &ev);
		r = r ? r : kvmm_gpu_copy(s, KVMM_GPU_IN, &in, 1);
		r = r ? r : kvmm_gpu_copy(s, KVMM_GPU_OUT, &out, 1);
		r = r ? r : kvmm_gpu_event_record(ev, s);
		r = r ? r : kvmm_gpu_event_wait(ev);
		if (memcmp(w->frames, w->frames + FRAME, 8 * 4096))
			r = -EBADMSG;
		kvmm_gpu_event_destroy(ev);
		kvmm_gpu_stream_destroy(s);
		r = r ? r : kvmm_gpu_unregister(gpu, w->frames, 2 * FRAME);
	}
	w->bad = r;
	return NULL;
}

/* Threads that have no current context, on one device at once. */
static void test_threads(void **state)
{
	struct fx *fx = *state;
	struct worker w[THREADS];
	pthread_t t[THREADS];
	char *p = fx_map(THREADS * 2 * FRAME);
	int i;

	for (i = 0; i < THREADS; i++) {
		w[i].fx = fx;
		w[i].frames = p + i * 2 * FRAME;
		w[i].dev = fx_dev_alloc(fx, MiB);
		assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
		fx_ok(fx->gpu, w[i].bad, "thread");
		fx_dev_free(fx, w[i].dev);
	}
	fx_unmap(p, THREADS * 2 * FRAME);
}

#define TEST(cfg, fn)                                                          \
	{#cfg ": " #fn, fn, fx_setup, fx_teardown, (void *)&cfg}

int ops_tests(void)
{
	const struct CMUnitTest tests[] = {
		TEST(host, test_info),	     TEST(cuda, test_info),
		TEST(host, test_register),   TEST(cuda, test_register),
		TEST(host, test_events),     TEST(cuda, test_events),
		TEST(host, test_wrap),	     TEST(cuda, test_wrap),
		TEST(host, test_bad_copies), TEST(cuda, test_bad_copies),
		TEST(host, test_rdonly),     TEST(cuda, test_rdonly),
		TEST(host, test_threads),    TEST(cuda, test_threads),
	};

	return cmocka_run_group_tests_name("operations", tests, NULL, NULL);
}
