// SPDX-License-Identifier: MIT
/* See fixture.h. */
#include "fixture.h"

#include <dlfcn.h>
#include <libgen.h>
#include <sys/mman.h>

struct fake_lib fake;

static uint64_t rng = 0x9e3779b97f4a7c15;

uint64_t fx_random(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

void fx_fill(char *p, size_t n)
{
	uint64_t word;
	size_t i, len;

	for (i = 0; i < n; i += len) {
		word = fx_random() * 0x2545f4914f6cdd1d;
		len = n - i < sizeof(word) ? n - i : sizeof(word);
		memcpy(p + i, &word, len);
	}
}

static void fx_symbol(void *dl, const char *name, void *field)
{
	void *fn = dlsym(dl, name);

	if (!fn) {
		fprintf(stderr, "the stand-in lacks %s\n", name);
		exit(1);
	}
	memcpy(field, &fn, sizeof(fn));
}

void fx_load(void)
{
	char exe[2048];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	const char *dir;
	void *dl;

	if (n < 0)
		exit(1);
	exe[n] = 0;
	dir = dirname(exe);
	snprintf(fake.path, sizeof(fake.path),
		 "%s/../fakecuda/libcuda-fake.so.1", dir);
	snprintf(fake.old_path, sizeof(fake.old_path),
		 "%s/../fakecuda/libcuda-fake-old.so.1", dir);
	snprintf(fake.drm_path, sizeof(fake.drm_path), "%s/libdrm-fake.so.2",
		 dir);
	dl = dlopen(fake.path, RTLD_NOW | RTLD_LOCAL);
	if (!dl) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
#define X(name) fx_symbol(dl, "fakecuda_" #name, &fake.name);
	X(reset) X(leaks) X(violations) X(calls) X(failed) X(peek) X(poke)
	X(hold)
#undef X
	fx_symbol(dl, "cuCtxCreate_v2", &fake.ctx_create);
	fx_symbol(dl, "cuCtxDestroy_v2", &fake.ctx_destroy);
	fx_symbol(dl, "cuCtxSetCurrent", &fake.ctx_set);
	fx_symbol(dl, "cuInit", &fake.api.init);
	fx_symbol(dl, "cuDevicePrimaryCtxRetain", &fake.api.primary_retain);
	fx_symbol(dl, "cuDevicePrimaryCtxRelease_v2",
		  &fake.api.primary_release);
	fx_symbol(dl, "cuCtxGetCurrent", &fake.api.ctx_current);
	fx_symbol(dl, "cuCtxPushCurrent_v2", &fake.api.ctx_push);
	fx_symbol(dl, "cuCtxPopCurrent_v2", &fake.api.ctx_pop);
	fx_symbol(dl, "cuMemAlloc_v2", &fake.api.mem_alloc);
	fx_symbol(dl, "cuMemFree_v2", &fake.api.mem_free);
	fx_symbol(dl, "cuMemHostRegister_v2", &fake.api.host_register);
	fx_symbol(dl, "cuMemHostUnregister", &fake.api.host_unregister);
	fx_symbol(dl, "cuMemHostGetDevicePointer_v2", &fake.api.host_dev_ptr);
	fx_symbol(dl, "cuMemcpyHtoDAsync_v2", &fake.api.copy_in);
	fx_symbol(dl, "cuMemcpyDtoHAsync_v2", &fake.api.copy_out);
	fx_symbol(dl, "cuMemcpyBatchAsync_v2", &fake.api.batch_13);
	fx_symbol(dl, "cuStreamCreate", &fake.api.stream_create);
	fx_symbol(dl, "cuStreamDestroy_v2", &fake.api.stream_destroy);
	fx_symbol(dl, "cuStreamSynchronize", &fake.api.stream_sync);
	fx_symbol(dl, "cuStreamWaitEvent", &fake.api.stream_wait);
	fx_symbol(dl, "cuEventCreate", &fake.api.event_create);
	fx_symbol(dl, "cuEventDestroy_v2", &fake.api.event_destroy);
	fx_symbol(dl, "cuEventRecord", &fake.api.event_record);
	fx_symbol(dl, "cuEventQuery", &fake.api.event_query);
	fx_symbol(dl, "cuModuleLoadDataEx", &fake.api.module_load);
	fx_symbol(dl, "cuModuleGetFunction", &fake.api.module_function);
	fx_symbol(dl, "cuModuleUnload", &fake.api.module_unload);
	fx_symbol(dl, "cuLaunchKernel", &fake.api.launch);
}

void fx_fake(const char *const *env)
{
	static const char *const names[] = {
		"SEED", "DELAY_US", "DEVICES", "VERSION", "SAME_POINTER",
		"PAGEABLE", "RDONLY", "BUSY", "MAX_REGISTER", "MEMORY", "MISSING",
		"FAIL", NULL,
	};
	char name[64];
	int i;

	for (i = 0; names[i]; i++) {
		snprintf(name, sizeof(name), "FAKECUDA_%s", names[i]);
		unsetenv(name);
	}
	for (; env && *env; env++) {
		char option[512];
		char *value;

		snprintf(option, sizeof(option), "FAKECUDA_%s", *env);
		value = strchr(option, '=');
		*value++ = 0;
		setenv(option, value, 1);
	}
	assert_int_equal(fake.reset(), 0);
}

int fx_setup(void **state)
{
	const struct fx_config *cfg = *state;
	struct fx *fx = calloc(1, sizeof(*fx));
	char err[256] = "";
	cu_context_t ctx;
	int r;

	fx->cfg = cfg;
	fx->opts.backend = cfg->backend;
	fx->opts.path = cfg->path;
	fx->opts.crossover = cfg->crossover;
	fx->opts.max_chunk = MiB;
	fx->opts.libcuda = fake.path;
	fx->opts.flags = KVMM_GPU_NO_CALIBRATION;
	if (cfg->backend == KVMM_GPU_HOST)
		fx->opts.host_delay_us = 200;
	else
		fx_fake(cfg->env);
	r = kvmm_gpu_open(&fx->gpu, &fx->opts, err, sizeof(err));
	if (r) {
		fprintf(stderr, "open: %d, %s\n", r, err);
		free(fx);
		return -1;
	}
	if (cfg->backend == KVMM_GPU_CUDA) {
		/* the test is the engine: it has the primary context too */
		assert_int_equal(fake.api.primary_retain(&ctx, 0), 0);
		assert_int_equal(fake.api.ctx_push(ctx), 0);
		fx->held_ctx = true;
	}
	*state = fx;
	return 0;
}

int fx_teardown(void **state)
{
	struct fx *fx = *state;
	cu_context_t ctx;

	fx_ok(fx->gpu, kvmm_gpu_close(fx->gpu), "close");
	if (fx->held_ctx) {
		assert_int_equal(fake.api.ctx_pop(&ctx), 0);
		assert_int_equal(fake.api.primary_release(0), 0);
		assert_int_equal(fake.leaks(1), 0);
		assert_int_equal(fake.violations(), 0);
	}
	free(fx);
	return 0;
}

uint64_t fx_dev_alloc(struct fx *fx, size_t bytes)
{
	cu_deviceptr_t dev;

	if (fx->cfg->backend == KVMM_GPU_HOST)
		return (uintptr_t)calloc(1, bytes);
	assert_int_equal(fake.api.mem_alloc(&dev, bytes), 0);
	return dev;
}

void fx_dev_free(struct fx *fx, uint64_t dev)
{
	if (fx->cfg->backend == KVMM_GPU_HOST)
		free((void *)(uintptr_t)dev);
	else
		assert_int_equal(fake.api.mem_free(dev), 0);
}

void fx_peek(struct fx *fx, void *to, uint64_t dev, size_t n)
{
	if (fx->cfg->backend == KVMM_GPU_HOST)
		memcpy(to, (void *)(uintptr_t)dev, n);
	else
		assert_int_equal(fake.peek(to, dev, n), 0);
}

void fx_poke(struct fx *fx, uint64_t dev, const void *from, size_t n)
{
	if (fx->cfg->backend == KVMM_GPU_HOST)
		memcpy((void *)(uintptr_t)dev, from, n);
	else
		assert_int_equal(fake.poke(dev, from, n), 0);
}

char *fx_map(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

void fx_unmap(char *p, size_t bytes)
{
	munmap(p, bytes);
}

void fx_ok(struct kvmm_gpu *gpu, int r, const char *what)
{
	char text[256];

	if (!r)
		return;
	kvmm_gpu_error(gpu, text, sizeof(text));
	fail_msg("%s: %d, %s", what, r, text);
}
