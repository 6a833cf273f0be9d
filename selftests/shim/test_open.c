// SPDX-License-Identifier: MIT
/*
 * Opening: choice of backend, device and context, what is measured, and a
 * clear sentence with an errno of its own for each way it can fail.
 */
#include "fixture.h"

#include <sys/mman.h>
#include <sys/stat.h>

static int try_open(struct kvmm_gpu **gpu, const struct kvmm_gpu_opts *opts,
		    int want, const char *text)
{
	char err[256] = "";
	int r = kvmm_gpu_open(gpu, opts, err, sizeof(err));

	if (r != want || (text && !strstr(err, text)))
		fail_msg("%d, \"%s\"; want %d, \"%s\"", r, err, want, text);
	if (r)
		assert_int_equal(fake.leaks(1), 0);
	return r;
}

static void refused(const char *const *env, const struct kvmm_gpu_opts *opts,
		    int want, const char *text)
{
	struct kvmm_gpu *gpu;

	fx_fake(env);
	try_open(&gpu, opts, want, text);
}

#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct kvmm_gpu_opts defaults(void)
{
	return (struct kvmm_gpu_opts){
		.backend = KVMM_GPU_CUDA,
		.flags = KVMM_GPU_NO_CALIBRATION,
		.libcuda = fake.path,
	};
}

static void test_options(void **state)
{
	struct kvmm_gpu_opts o = defaults();
	struct kvmm_gpu *gpu;

	(void)state;
	o.flags = 1U << 31;
	try_open(&gpu, &o, -EINVAL, "flags");
	o = defaults();
	o.backend = 9;
	try_open(&gpu, &o, -EINVAL, "backend");
	o = defaults();
	o.path = 9;
	try_open(&gpu, &o, -EINVAL, "path");
	o = defaults();
	o.max_chunk = 1000;
	try_open(&gpu, &o, -EINVAL, "whole pages");
	o.max_chunk = 2UL << 30;
	try_open(&gpu, &o, -EINVAL, "1 GiB");
	o = defaults();
	o.pci = "banana";
	try_open(&gpu, &o, -EINVAL, "PCI address");
	o.pci = "0000:a1:00.0 ";
	try_open(&gpu, &o, -EINVAL, "PCI address");
	o.pci = "a1:00.0";
	o.flags |= KVMM_GPU_BY_INDEX;
	try_open(&gpu, &o, -EINVAL, "by index and by PCI");
	o.pci = NULL;
	o.index = -1;
	try_open(&gpu, &o, -EINVAL, "negative");
	/* without a place for the sentence */
	assert_int_equal(kvmm_gpu_open(&gpu, &o, NULL, 0), -EINVAL);
}

static void test_no_driver(void **state)
{
	struct kvmm_gpu_opts o = defaults();

	(void)state;
	o.libcuda = "/nonexistent/libcuda.so.1";
	refused(NULL, &o, -ENOENT, "no CUDA driver");
	o = defaults();
	refused(ENV("FAIL=cuInit:1:34"), &o, -ENOENT, "stub");
	refused(ENV("FAIL=cuInit:1:803"), &o, -EPROTONOSUPPORT,
		"different versions");
}

static void test_old_driver(void **state)
{
	struct kvmm_gpu_opts o = defaults();

	(void)state;
	refused(ENV("VERSION=10020"), &o, -EPROTONOSUPPORT, "CUDA 10.2");
	o.path = KVMM_GPU_PATH_BATCH;
	refused(ENV("VERSION=12070"), &o, -EOPNOTSUPP, "12.8 is needed");
}

static void test_no_device(void **state)
{
	struct kvmm_gpu_opts o = defaults();

	(void)state;
	refused(ENV("DEVICES=0"), &o, -ENODEV, "CUDA_ERROR_NO_DEVICE");
	o.flags |= KVMM_GPU_BY_INDEX;
	o.index = 3;
	refused(ENV("DEVICES=2"), &o, -ENODEV, "no CUDA device 3, there are 2");
	o = defaults();
	o.pci = "0000:65:00.0";
	refused(ENV("DEVICES=2"), &o, -ENODEV, "no CUDA device at 0000:65");
	o = defaults();
	refused(ENV("DEVICES=2"), &o, -EINVAL, "say which");
}

static void test_busy(void **state)
{
	struct kvmm_gpu_opts o = defaults();

	(void)state;
	refused(ENV("BUSY=1"), &o, -EBUSY, "another process");
}

static void test_no_memory(void **state)
{
	struct kvmm_gpu_opts o = defaults();

	(void)state;
	refused(ENV("FAIL=cuDevicePrimaryCtxRetain:1:2"), &o, -ENOMEM,
		"CUDA_ERROR_OUT_OF_MEMORY");
}

/* Every entry point that is needed, missing: said by name. */
static void test_missing_symbols(void **state)
{
	static const char *const names[] = {
#define X(field, symbol, since, args) #symbol,
		CUDA_REQUIRED(X)
#undef X
	};
	struct kvmm_gpu_opts o = defaults();
	char env[100];
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(env, sizeof(env), "MISSING=%s", names[i]);
		refused(ENV(env), &o, -ENOSYS, names[i]);
	}
}

static void test_auto(void **state)
{
	struct kvmm_gpu_opts o = defaults();
	struct kvmm_gpu_info info;
	struct kvmm_gpu *gpu;

	(void)state;
	o.backend = KVMM_GPU_AUTO;
	fx_fake(NULL);
	try_open(&gpu, &o, 0, NULL);
	kvmm_gpu_info(gpu, &info);
	assert_string_equal(info.backend, "cuda");
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	/* no driver, no device: the host */
	fx_fake(ENV("DEVICES=0"));
	try_open(&gpu, &o, 0, NULL);
	kvmm_gpu_info(gpu, &info);
	assert_string_equal(info.backend, "host");
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	o.libcuda = "/nonexistent/libcuda.so.1";
	try_open(&gpu, &o, 0, NULL);
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	/* a device that was asked for, or a driver that fails: not the host */
	o.pci = "a1:00.0";
	try_open(&gpu, &o, -ENOENT, "no CUDA driver");
	o = defaults();
	o.backend = KVMM_GPU_AUTO;
	refused(ENV("BUSY=1"), &o, -EBUSY, "another process");
}

static void test_host(void **state)
{
	struct kvmm_gpu_opts o = {.backend = KVMM_GPU_HOST};
	struct kvmm_gpu *gpu;

	(void)state;
	o.path = KVMM_GPU_PATH_KERNEL;
	try_open(&gpu, &o, -EOPNOTSUPP, "plain path");
	o.path = KVMM_GPU_PATH_AUTO;
	o.pci = "a1:00.0";
	try_open(&gpu, &o, -ENODEV, "one device");
	assert_int_equal(kvmm_gpu_close(NULL), 0);
}

/* The engine's context is used; no other device gets one by accident. */
static void test_context(void **state)
{
	struct kvmm_gpu_opts o = defaults();
	struct kvmm_gpu_info info;
	struct kvmm_gpu *gpu;
	cu_context_t mine, now;

	(void)state;
	fx_fake(ENV("DEVICES=3"));
	assert_int_equal(fake.api.init(0), 0);
	assert_int_equal(fake.ctx_create(&mine, 0, 2), 0);
	try_open(&gpu, &o, 0, NULL);
	kvmm_gpu_info(gpu, &info);
	assert_int_equal(info.index, 2);
	assert_false(info.own_context);
	assert_int_equal(fake.calls("cuDevicePrimaryCtxRetain"), 0);
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	/* another device than the current context's: its primary context */
	o.pci = "0000:a2:00.0";
	try_open(&gpu, &o, 0, NULL);
	kvmm_gpu_info(gpu, &info);
	assert_int_equal(info.index, 1);
	assert_string_equal(info.pci, "0000:a2:00.0");
	assert_true(info.own_context);
	assert_int_equal(fake.calls("cuDevicePrimaryCtxRetain"), 1);
	assert_int_equal(fake.leaks(0), 3); /* two contexts and a module */
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	/* the caller's context is current still */
	assert_int_equal(fake.api.ctx_current(&now), 0);
	assert_ptr_equal(now, mine);
	assert_int_equal(fake.ctx_destroy(mine), 0);
	/* none is current, one is named */
	o = defaults();
	o.flags |= KVMM_GPU_BY_INDEX;
	o.index = 1;
	try_open(&gpu, &o, 0, NULL);
	assert_int_equal(fake.api.ctx_current(&now), 0);
	assert_null(now);
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	assert_int_equal(fake.leaks(1), 0);
	assert_int_equal(fake.violations(), 0);
}

static void test_context_destroyed(void **state)
{
	struct kvmm_gpu_opts o = defaults();
	struct kvmm_gpu_stream *s;
	struct kvmm_gpu *gpu;
	cu_context_t mine;
	char text[256];

	(void)state;
	fx_fake(NULL);
	assert_int_equal(fake.api.init(0), 0);
	assert_int_equal(fake.ctx_create(&mine, 0, 0), 0);
	try_open(&gpu, &o, 0, NULL);
	/* the engine pulls its context from under us: an error, no crash */
	assert_int_equal(fake.ctx_destroy(mine), 0);
	assert_int_equal(kvmm_gpu_stream_create(gpu, &s), -EIO);
	kvmm_gpu_error(gpu, text, sizeof(text));
	assert_non_null(strstr(text, "cuCtxPushCurrent"));
	assert_int_equal(kvmm_gpu_close(gpu), 0);
}

/* 11.3: the four-argument cuGetProcAddress, no batches. */
static void test_oldest_driver(void **state)
{
	struct kvmm_gpu_opts o = defaults();
	struct kvmm_gpu_info info;
	struct kvmm_gpu *gpu;
	char err[256] = "";

	(void)state;
	setenv("FAKECUDA_VERSION", "11030", 1);
	o.libcuda = fake.old_path;
	if (kvmm_gpu_open(&gpu, &o, err, sizeof(err)))
		fail_msg("%s", err);
	kvmm_gpu_info(gpu, &info);
	assert_int_equal(info.driver_version, 11030);
	assert_false(info.has_batch);
	assert_true(info.has_kernel);
	assert_int_equal(info.dma_path, KVMM_GPU_PATH_PLAIN);
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	unsetenv("FAKECUDA_VERSION");
}

static void test_numa(void **state)
{
	struct kvmm_gpu_opts o = defaults();
	char dir[] = "/tmp/kvmm-shim-XXXXXX", path[256];
	static const char *const parts[] = {
		"bus", "bus/pci", "bus/pci/devices",
		"bus/pci/devices/0000:a1:00.0",
	};
	struct kvmm_gpu_info info;
	struct kvmm_gpu *gpu;
	FILE *f;
	int i;

	(void)state;
	assert_non_null(mkdtemp(dir));
	for (i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, parts[i]);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	snprintf(path, sizeof(path), "%s/%s/numa_node", dir, parts[3]);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs("3\n", f);
	fclose(f);

	fx_fake(NULL);
	o.sysfs = dir;
	o.libdrm = fake.drm_path;
	try_open(&gpu, &o, 0, NULL);
	kvmm_gpu_info(gpu, &info);
	assert_int_equal(info.numa_node, 3);
	assert_string_equal(info.drm_node, "/dev/zero");
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	unlink(path);
	for (i = 3; i >= 0; i--) {
		snprintf(path, sizeof(path), "%s/%s", dir, parts[i]);
		rmdir(path);
	}
	rmdir(dir);
	o.sysfs = dir;
	try_open(&gpu, &o, 0, NULL);
	kvmm_gpu_info(gpu, &info);
	assert_int_equal(info.numa_node, -1);
	assert_int_equal(kvmm_gpu_close(gpu), 0);
}

static void test_pageable(void **state)
{
	struct kvmm_gpu_opts o = defaults();
	struct kvmm_gpu_info info;
	struct kvmm_gpu *gpu;

	(void)state;
	fx_fake(ENV("PAGEABLE=hmm", "SAME_POINTER=1"));
	try_open(&gpu, &o, 0, NULL);
	kvmm_gpu_info(gpu, &info);
	assert_int_equal(info.pageable, KVMM_GPU_PAGEABLE_HMM);
	assert_true(info.same_pointer);
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	fx_fake(ENV("PAGEABLE=ats"));
	try_open(&gpu, &o, 0, NULL);
	kvmm_gpu_info(gpu, &info);
	assert_int_equal(info.pageable, KVMM_GPU_PAGEABLE_ATS);
	assert_false(info.same_pointer);
	assert_int_equal(kvmm_gpu_close(gpu), 0);
}

static void test_calibration(void **state)
{
	struct kvmm_gpu_opts o = defaults();
	struct kvmm_gpu_info info;
	struct kvmm_gpu *gpu;
	int dir;

	(void)state;
	o.flags = 0;
	fx_fake(NULL);
	try_open(&gpu, &o, 0, NULL);
	kvmm_gpu_info(gpu, &info);
	assert_true(info.calibrated);
	for (dir = 0; dir < 2; dir++)
		assert_true(info.crossover[dir] <= 512UL << 10);
	assert_true(fake.calls("cuLaunchKernel") > 0);
	assert_true(fake.calls("cuMemcpyBatchAsync") > 0);
	assert_true(fake.calls("cuMemcpyHtoDAsync") > 0);
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	assert_int_equal(fake.leaks(1), 0);
	assert_int_equal(fake.violations(), 0);
	/* the engine left no memory: the default, and it is said */
	fx_fake(ENV("MEMORY=1000000"));
	try_open(&gpu, &o, 0, NULL);
	kvmm_gpu_info(gpu, &info);
	assert_false(info.calibrated);
	assert_non_null(strstr(info.note, "measuring the copy paths"));
	assert_int_equal(info.crossover[0], 32UL << 10);
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	/* overridden: nothing is measured */
	o.crossover = 12345;
	fx_fake(NULL);
	try_open(&gpu, &o, 0, NULL);
	kvmm_gpu_info(gpu, &info);
	assert_false(info.calibrated);
	assert_int_equal(info.crossover[1], 12345);
	assert_int_equal(fake.calls("cuMemAlloc"), 0);
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	/* the kernel doesn't compile: everything by DMA, and it is said */
	fx_fake(ENV("FAIL=cuModuleLoadDataEx:1:222"));
	try_open(&gpu, &o, 0, NULL);
	kvmm_gpu_info(gpu, &info);
	assert_false(info.has_kernel);
	assert_int_equal(info.crossover[0], 0);
	assert_non_null(strstr(info.note, "JIT log"));
	assert_non_null(strstr(info.note, "UNSUPPORTED_PTX_VERSION"));
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	o.path = KVMM_GPU_PATH_KERNEL;
	refused(ENV("FAIL=cuModuleLoadDataEx:1:222"), &o, -EIO,
		"compiling the copy kernel");
}

static void rdonly_device(const char *const *env, bool can, const char *why)
{
	struct kvmm_gpu_opts o = {
		.backend = KVMM_GPU_CUDA,
		.flags = KVMM_GPU_NO_CALIBRATION,
		.libcuda = fake.path,
	};
	struct kvmm_gpu_info info;
	struct kvmm_gpu *gpu;
	char *p = fx_map(MiB), text[256];

	fx_fake(env);
	try_open(&gpu, &o, 0, NULL);
	kvmm_gpu_info(gpu, &info);
	assert_int_equal(info.reg_rdonly, can);
	assert_int_equal(mprotect(p, MiB, PROT_READ), 0);
	assert_int_equal(kvmm_gpu_register_rdonly(gpu, p, MiB),
			 can ? 0 : -EOPNOTSUPP);
	kvmm_gpu_error(gpu, text, sizeof(text));
	assert_non_null(strstr(text, why));
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	fx_unmap(p, MiB);
}

/* Can the device register memory that is mapped for reading only. */
static void test_rdonly(void **state)
{
	(void)state;
	rdonly_device(NULL, true, "");
	rdonly_device(ENV("RDONLY=0"), false,
		      "can't register memory that is mapped for reading only");
	rdonly_device(ENV("RDONLY=0", "PAGEABLE=hmm"), false, "reading only");
	rdonly_device(ENV("RDONLY=0", "PAGEABLE=ats"), true, "");
}

int open_tests(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_no_driver),
		cmocka_unit_test(test_old_driver),
		cmocka_unit_test(test_no_device),
		cmocka_unit_test(test_busy),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_missing_symbols),
		cmocka_unit_test(test_auto),
		cmocka_unit_test(test_host),
		cmocka_unit_test(test_context),
		cmocka_unit_test(test_context_destroyed),
		cmocka_unit_test(test_oldest_driver),
		cmocka_unit_test(test_numa),
		cmocka_unit_test(test_pageable),
		cmocka_unit_test(test_rdonly),
		cmocka_unit_test(test_calibration),
	};

	return cmocka_run_group_tests_name("open", tests, NULL, NULL);
}
