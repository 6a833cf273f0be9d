/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the shim share: a device on the host backend or on the
 * stand-in driver, device memory, and the driver's own calls.
 */
#ifndef SHIM_FIXTURE_H
#define SHIM_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the above */
#include <cmocka.h>

#include "gpu-shim/cuda_abi.h"
#include "gpu-shim/gpu.h"
#include "selftests/fakecuda/fakecuda.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MiB (1UL << 20)

/* The stand-in: its controls, and entry points that only an engine calls. */
struct fake_lib {
	char path[4096];
	char old_path[4096];
	char drm_path[4096];
	__typeof__(&fakecuda_reset) reset;
	__typeof__(&fakecuda_leaks) leaks;
	__typeof__(&fakecuda_violations) violations;
	__typeof__(&fakecuda_calls) calls;
	__typeof__(&fakecuda_failed) failed;
	__typeof__(&fakecuda_peek) peek;
	__typeof__(&fakecuda_poke) poke;
	__typeof__(&fakecuda_hold) hold;
	cu_result_t (*ctx_create)(cu_context_t *ctx, unsigned int flags,
				cu_device_t device);
	cu_result_t (*ctx_destroy)(cu_context_t ctx);
	cu_result_t (*ctx_set)(cu_context_t ctx);
	struct cuda_api api;
};

extern struct fake_lib fake;

/* Loads the stand-in; paths are found from the program's own. */
void fx_load(void);

/* Starts the stand-in afresh with "NAME=value" options, NULL at the end; what
 * the test before leaked is a failure.
 */
void fx_fake(const char *const *env);

/* One way to run a test. */
struct fx_config {
	const char *name;
	enum kvmm_gpu_backend backend;
	enum kvmm_gpu_path path;
	size_t crossover;
	const char *env[6];
	bool default_stream;
	bool unregistered;
};

struct fx {
	const struct fx_config *cfg;
	struct kvmm_gpu *gpu;
	struct kvmm_gpu_opts opts;
	bool held_ctx;
};

/* cmocka's setup and teardown; the initial state is a struct fx_config. */
int fx_setup(void **state);
int fx_teardown(void **state);

/* Device memory of the fixture's device. */
uint64_t fx_dev_alloc(struct fx *fx, size_t bytes);
void fx_dev_free(struct fx *fx, uint64_t dev);
void fx_peek(struct fx *fx, void *to, uint64_t dev, size_t n);
void fx_poke(struct fx *fx, uint64_t dev, const void *from, size_t n);

/* Host memory in whole pages, not registered. */
char *fx_map(size_t bytes);
void fx_unmap(char *p, size_t bytes);

/* Fails the test with the device's own sentence. */
void fx_ok(struct kvmm_gpu *gpu, int r, const char *what);

uint64_t fx_random(void);
void fx_fill(char *p, size_t n);

/* Test groups. */
int ops_tests(void);
int copy_tests(void);
int order_tests(void);
int open_tests(void);
int inject_tests(void);
int strict_tests(void);
int drm_tests(void);

#endif /* SHIM_FIXTURE_H */
