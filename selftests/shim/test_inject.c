// SPDX-License-Identifier: MIT
/*
 * Each entry point of the driver fails at its n-th call, for every n that a
 * whole life of a device has: the error arrives with a sentence, nothing is
 * leaked, nothing is freed while it is in use.
 */
#include "fixture.h"

#define MEM (4 * MiB)

/* What failed first: in which call of ours, with what. */
struct outcome {
	int r;
	char text[256];
	bool ending;	/* what was made was being ended when it failed */
};

static void note(struct outcome *o, struct kvmm_gpu *gpu, int r)
{
	if (r >= 0 || o->r)
		return;
	o->r = r;
	kvmm_gpu_error(gpu, o->text, sizeof(o->text));
}

/* A failure that only teardown met. */
static void mark_ending(struct outcome *o)
{
	if (!fake.failed())
		o->ending = true;
}

/* What an offload does, up to the first failure. */
static int run_copies(struct kvmm_gpu *gpu, const struct kvmm_gpu_copy *copy,
		      struct kvmm_gpu_stream *a, struct kvmm_gpu_stream *b,
		      struct kvmm_gpu_event *ev, struct kvmm_gpu_stream **w)
{
	int r = kvmm_gpu_stream_wrap(gpu, kvmm_gpu_stream_native(a), w);

	r = r ? r : kvmm_gpu_copy(*w, KVMM_GPU_OUT, copy, 1);
	r = r ? r : kvmm_gpu_event_record(ev, a);
	r = r ? r : kvmm_gpu_stream_wait(b, ev);
	r = r ? r : kvmm_gpu_copy(b, KVMM_GPU_IN, copy, 1);
	r = r ? r : kvmm_gpu_event_record(ev, b);
	r = r ? r : kvmm_gpu_event_query(ev);
	return r < 0 ? r : kvmm_gpu_event_wait(ev);
}

static void copies(struct outcome *o, struct kvmm_gpu *gpu, char *p,
		   uint64_t dev)
{
	struct kvmm_gpu_run runs[] = {
		{dev, 4096, 1024, 16},		/* kernel */
		{dev + MiB, 16384, 8192, 4},	/* DMA */
		{dev + 2 * MiB, 101, 100, 3},	/* kernel, odd */
	};
	struct kvmm_gpu_copy copy = {p, runs, 3};
	struct kvmm_gpu_stream *a = NULL, *b = NULL, *w = NULL;
	struct kvmm_gpu_event *ev = NULL;

	note(o, gpu, kvmm_gpu_stream_create(gpu, &a));
	note(o, gpu, kvmm_gpu_stream_create(gpu, &b));
	note(o, gpu, kvmm_gpu_event_create(gpu, &ev));
	if (!o->r)
		note(o, gpu, run_copies(gpu, &copy, a, b, ev, &w));
	/* whatever happened, memory is freed after what was submitted */
	if (a)
		note(o, gpu, kvmm_gpu_stream_sync(a));
	if (b)
		note(o, gpu, kvmm_gpu_stream_sync(b));
	mark_ending(o);
	kvmm_gpu_event_destroy(ev);
	kvmm_gpu_stream_destroy(w);
	kvmm_gpu_stream_destroy(a);
	kvmm_gpu_stream_destroy(b);
}

static void scenario(struct outcome *o, const struct kvmm_gpu_opts *opts,
		     char *p)
{
	struct kvmm_gpu *gpu;
	cu_deviceptr_t dev;
	cu_context_t ctx, old;
	int r;

	memset(o, 0, sizeof(*o));
	r = kvmm_gpu_open(&gpu, opts, o->text, sizeof(o->text));
	if (r) {
		o->r = r;
		return;
	}
	/* the engine's own memory; its calls may be the ones that fail */
	strcpy(o->text, "the engine failed");
	o->r = -EIO;
	if (fake.api.primary_retain(&ctx, 0))
		goto close;
	if (fake.api.ctx_push(ctx))
		goto release;
	if (fake.api.mem_alloc(&dev, MEM))
		goto pop;
	o->text[0] = 0;
	o->r = 0;
	r = kvmm_gpu_register(gpu, p, MEM);
	note(o, gpu, r);
	if (!r) {
		copies(o, gpu, p, dev);
		note(o, gpu, kvmm_gpu_unregister(gpu, p, MEM));
	}
	mark_ending(o);
	fake.api.mem_free(dev);
pop:
	fake.api.ctx_pop(&old);
release:
	fake.api.primary_release(0);
close:
	assert_int_equal(kvmm_gpu_close(gpu), 0);
}

#define X(field, symbol, since, args) REQUIRED_##field,
enum { CUDA_REQUIRED(X) NR_REQUIRED };
#undef X

/* Their failure costs something, but doesn't stop anything. */
static bool tolerated(const char *name, unsigned int n)
{
	static const char *const names[] = {
		"cuDeviceGetName", "cuDeviceGetPCIBusId", "cuModuleLoadDataEx",
		"cuModuleGetFunction", "cuModuleUnload", "cuStreamDestroy",
		"cuEventDestroy", "cuDevicePrimaryCtxRelease",
		"cuCtxPopCurrent", "cuMemFree", "cuDeviceGetAttribute",
		NULL,
	};
	int i;

	for (i = 0; names[i]; i++)
		if (!strcmp(names[i], name))
			return true;
	/* the entry points after the required ones may be missing */
	return !strcmp(name, "cuGetProcAddress") && n > NR_REQUIRED;
}

static unsigned int sweep(const char *name, const struct kvmm_gpu_opts *opts,
			  char *p, unsigned int step, unsigned int code)
{
	unsigned int n, failures = 0;
	struct outcome o;
	char env[100];

	for (n = 1; ; n += n < 12 ? 1 : step) {
		snprintf(env, sizeof(env), "FAIL=%s:%u:%u", name, n, code);
		fx_fake((const char *const[]){env, "DELAY_US=10", NULL});
		scenario(&o, opts, p);
		if (!fake.failed())
			break;
		failures++;
		if (o.r > 0 || (!o.r && !tolerated(name, n) && !o.ending))
			fail_msg("%s, call %u: no error", name, n);
		if (o.r && !o.text[0])
			fail_msg("%s, call %u: no sentence", name, n);
		/* with no context to do it in, nothing can be ended */
		if (o.ending && !strcmp(name, "cuCtxPushCurrent")) {
			fake.reset();
			continue;
		}
		if (fake.leaks(1) || fake.violations())
			fail_msg("%s, call %u: leaks %u, violations %u, %s",
				 name, n, fake.leaks(0), fake.violations(),
				 o.text);
	}
	return failures;
}

static const char *const names[] = {
	"cuDriverGetVersion",
	"cuGetProcAddress",
#define X(field, symbol, since, args) #symbol,
	CUDA_REQUIRED(X)
#undef X
	"cuMemcpyBatchAsync",
};

#define NR_NAMES ARRAY_SIZE(names)

static void sweep_all(const struct kvmm_gpu_opts *opts, unsigned int step,
		      unsigned int code)
{
	char *p = fx_map(MEM);
	unsigned int total = 0;
	size_t i;

	for (i = 0; i < NR_NAMES; i++)
		total += sweep(names[i], opts, p, step, code);
	assert_true(total > 60);
	fx_fake(NULL);
	fx_unmap(p, MEM);
}

static void test_every_call(void **state)
{
	struct kvmm_gpu_opts o = {
		.backend = KVMM_GPU_CUDA,
		.libcuda = fake.path,
		.crossover = 4096,
		.max_chunk = MiB,
	};

	(void)state;
	sweep_all(&o, 1, CU_ERROR_UNKNOWN);
}

static void test_every_call_plain(void **state)
{
	struct kvmm_gpu_opts o = {
		.backend = KVMM_GPU_CUDA,
		.libcuda = fake.path,
		.path = KVMM_GPU_PATH_PLAIN,
		.max_chunk = MiB,
	};

	(void)state;
	sweep_all(&o, 1, CU_ERROR_OUT_OF_MEMORY);
}

/* With the measurement at open, which makes thousands of calls. */
static void test_calibration(void **state)
{
	struct kvmm_gpu_opts o = {
		.backend = KVMM_GPU_CUDA,
		.libcuda = fake.path,
		.max_chunk = MiB,
	};
	static const char *const some[] = {
		"cuMemAlloc", "cuMemHostRegister", "cuMemHostUnregister",
		"cuMemHostGetDevicePointer", "cuStreamCreate", "cuMemFree",
		"cuStreamSynchronize", "cuLaunchKernel", "cuMemcpyHtoDAsync",
		"cuMemcpyBatchAsync",
	};
	char *p = fx_map(MEM);
	struct outcome out;
	char env[100];
	size_t i;
	int n;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(some); i++)
		for (n = 1; n <= 5; n += 4) {
			snprintf(env, sizeof(env), "FAIL=%s:%d", some[i], n);
			fx_fake((const char *const[]){env, NULL});
			scenario(&out, &o, p);
			if (fake.leaks(1) || fake.violations() ||
			    (out.r && !out.text[0]))
				fail_msg("%s, call %d: leaks %u, %s", some[i],
					 n, fake.leaks(0), out.text);
		}
	fx_fake(NULL);
	fx_unmap(p, MEM);
}

/* A registration that fails in the middle leaves nothing behind. */
static void test_rollback(void **state)
{
	struct kvmm_gpu_opts o = {
		.backend = KVMM_GPU_CUDA,
		.libcuda = fake.path,
		.crossover = 1,
		.max_chunk = MiB,
	};
	char *p = fx_map(MEM), text[256];
	struct kvmm_gpu *gpu;
	uint64_t dev;

	(void)state;
	fx_fake((const char *const[]){"FAIL=cuMemHostRegister:3:2", NULL});
	assert_int_equal(kvmm_gpu_open(&gpu, &o, text, sizeof(text)), 0);
	assert_int_equal(kvmm_gpu_register(gpu, p, MEM), -ENOMEM);
	kvmm_gpu_error(gpu, text, sizeof(text));
	assert_non_null(strstr(text, "cuMemHostRegister"));
	assert_int_equal(fake.calls("cuMemHostUnregister"), 2);
	assert_int_equal(kvmm_gpu_dev_ptr(gpu, p, 1, &dev), -EFAULT);
	assert_int_equal(kvmm_gpu_unregister(gpu, p, MEM), -ENOENT);
	/* and it can be tried again */
	fx_ok(gpu, kvmm_gpu_register(gpu, p, MEM), "register");
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	assert_int_equal(fake.leaks(1), 0);
	/* somebody else in the process has registered a part of it */
	fx_fake(NULL);
	assert_int_equal(kvmm_gpu_open(&gpu, &o, text, sizeof(text)), 0);
	{
		cu_context_t ctx;

		assert_int_equal(fake.api.primary_retain(&ctx, 0), 0);
		assert_int_equal(fake.api.ctx_push(ctx), 0);
		assert_int_equal(fake.api.host_register(p + MiB, 4096, 3), 0);
		assert_int_equal(kvmm_gpu_register(gpu, p, MEM), -EEXIST);
		kvmm_gpu_error(gpu, text, sizeof(text));
		assert_non_null(strstr(text, "someone else"));
		assert_int_equal(fake.api.host_unregister(p + MiB), 0);
		assert_int_equal(fake.api.ctx_pop(&ctx), 0);
		assert_int_equal(fake.api.primary_release(0), 0);
	}
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	assert_int_equal(fake.leaks(1), 0);
	/* one piece is above what the driver takes at once */
	fx_fake((const char *const[]){"MAX_REGISTER=65536", NULL});
	assert_int_equal(kvmm_gpu_open(&gpu, &o, text, sizeof(text)), 0);
	assert_int_equal(kvmm_gpu_register(gpu, p, MEM), -ENOMEM);
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	fx_unmap(p, MEM);
}

int inject_tests(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rollback),
		cmocka_unit_test(test_every_call),
		cmocka_unit_test(test_every_call_plain),
		cmocka_unit_test(test_calibration),
	};

	return cmocka_run_group_tests_name("failures", tests, NULL, NULL);
}
