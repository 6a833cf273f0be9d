// SPDX-License-Identifier: MIT
/*
 * Measures, on the device at hand and in well under a second, from which size
 * of fragment DMA beats the kernel, each way, and whether batches beat single
 * calls.  Wall time from the first call to the last byte is what counts: with
 * small fragments it is the calls that are slow.
 */
#include "cuda_priv.h"

#include <sys/mman.h>
#include <time.h>

#define SMALLEST (2UL << 10)
#define SIZES 8			/* up to 256 KiB */
#define HOST_BYTES (4UL << 20)
#define DEV_BYTES (2 * HOST_BYTES) /* fragments and as large gaps */
#define MAX_FRAGMENTS 256
#define ROUNDS 3
/* The kernel takes compute units from the engine: it has to be worth it. */
#define KERNEL_MARGIN_PERCENT 110

struct calibration {
	struct cuda_gpu *c;
	cu_stream_t stream;
	cu_deviceptr_t dev;
	char *host;
	uint64_t host_dev;
	/* best time in ns, by direction, size and path */
	uint64_t ns[2][SIZES][KVMM_GPU_PATH_PLAIN + 1];
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static int measure(struct calibration *cal, enum kvmm_gpu_dir dir, int size,
		   enum kvmm_gpu_path path)
{
	struct cuda_gpu *c = cal->c;
	size_t bytes = SMALLEST << size;
	struct kvmm_gpu_run run = {
		.dev = cal->dev,
		.stride = 2 * bytes,
		.bytes = bytes,
		.count = HOST_BYTES / bytes < MAX_FRAGMENTS ?
				 HOST_BYTES / bytes :
				 MAX_FRAGMENTS,
	};
	struct kvmm_gpu_copy copy = {cal->host, &run, 1};
	struct gpu_copy found = {&copy, cal->host_dev};
	uint64_t best = UINT64_MAX;
	int i, r;

	for (i = 0; i <= ROUNDS; i++) {
		uint64_t start = now_ns(), ns;
		cu_result_t res;

		r = gpu_cuda_submit(c, cal->stream, path, dir, &found, 1);
		if (r)
			return r;
		res = c->api.stream_sync(cal->stream);
		if (res)
			return gpu_cuda_fail(c, res, "cuStreamSynchronize",
					     "measuring the copy paths");
		ns = now_ns() - start;
		/* the first round warms up */
		if (i && ns < best)
			best = ns;
	}
	cal->ns[dir][size][path] = best;
	return 0;
}

static int measure_all(struct calibration *cal)
{
	const struct kvmm_gpu_info *info = &cal->c->gpu.info;
	int dir, size, path, r;

	for (dir = 0; dir < 2; dir++)
		for (size = 0; size < SIZES; size++)
			for (path = KVMM_GPU_PATH_KERNEL;
			     path <= KVMM_GPU_PATH_PLAIN; path++) {
				if (path == KVMM_GPU_PATH_KERNEL &&
				    !info->has_kernel)
					continue;
				if (path == KVMM_GPU_PATH_BATCH &&
				    !info->has_batch)
					continue;
				r = measure(cal, dir, size, path);
				if (r)
					return r;
			}
	return 0;
}

static uint64_t total(const struct calibration *cal, enum kvmm_gpu_path path)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < SIZES; i++)
		sum += cal->ns[KVMM_GPU_OUT][i][path] +
		       cal->ns[KVMM_GPU_IN][i][path];
	return sum;
}

static void decide(struct calibration *cal)
{
	struct kvmm_gpu_info *info = &cal->c->gpu.info;
	int dir, size;

	if (info->has_batch && total(cal, KVMM_GPU_PATH_PLAIN) <
				       total(cal, KVMM_GPU_PATH_BATCH))
		info->dma_path = KVMM_GPU_PATH_PLAIN;
	for (dir = 0; dir < 2 && info->has_kernel; dir++) {
		for (size = SIZES - 1; size >= 0; size--) {
			const uint64_t *ns = cal->ns[dir][size];

			if (ns[KVMM_GPU_PATH_KERNEL] * KERNEL_MARGIN_PERCENT <
			    ns[info->dma_path] * 100)
				break;
		}
		/* the kernel wins at this size, and not at the next */
		info->crossover[dir] = size < 0 ? 0 : SMALLEST << (size + 1);
	}
	info->calibrated = true;
}

static int calibrate_memory(struct calibration *cal)
{
	struct cuda_gpu *c = cal->c;
	cu_deviceptr_t host_dev;
	cu_result_t res;
	int r;

	res = c->api.mem_alloc(&cal->dev, DEV_BYTES);
	if (res)
		return gpu_cuda_fail(c, res, "cuMemAlloc",
				     "measuring the copy paths");
	res = c->api.host_register(cal->host, HOST_BYTES,
				   CU_HOSTREG_PORTABLE | CU_HOSTREG_DEVICEMAP);
	if (res) {
		r = gpu_cuda_fail(c, res, "cuMemHostRegister",
				  "measuring the copy paths");
		goto free;
	}
	res = c->api.host_dev_ptr(&host_dev, cal->host, 0);
	if (res) {
		r = gpu_cuda_fail(c, res, "cuMemHostGetDevicePointer",
				  "measuring the copy paths");
		goto unregister;
	}
	cal->host_dev = host_dev;
	r = measure_all(cal);
	/* what was submitted before a failure must not outlive its memory */
	if (r)
		(void)c->api.stream_sync(cal->stream);
unregister:
	(void)c->api.host_unregister(cal->host);
free:
	(void)c->api.mem_free(cal->dev);
	return r;
}

int gpu_cuda_calibrate(struct cuda_gpu *c)
{
	struct calibration cal = {.c = c};
	cu_result_t res;
	int r;

	cal.host = mmap(NULL, HOST_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (cal.host == MAP_FAILED)
		return gpu_fail(&c->gpu, ENOMEM,
				"measuring the copy paths: out of memory");
	res = c->api.stream_create(&cal.stream, CU_STREAM_NONBLOCK);
	if (res) {
		r = gpu_cuda_fail(c, res, "cuStreamCreate",
				  "measuring the copy paths");
		goto unmap;
	}
	r = calibrate_memory(&cal);
	(void)c->api.stream_destroy(cal.stream);
	if (!r)
		decide(&cal);
unmap:
	munmap(cal.host, HOST_BYTES);
	return r;
}
