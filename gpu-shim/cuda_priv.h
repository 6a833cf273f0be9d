/* SPDX-License-Identifier: MIT */
/*
 * Shared by the files of the cuda backend: cuda.c (device, context, memory,
 * streams, events), cuda_api.c (loading the driver, its errors) and
 * cuda_copy.c (ways to copy, and measuring them).
 */
#ifndef KVMM_GPU_CUDA_PRIV_H
#define KVMM_GPU_CUDA_PRIV_H

#include "cuda_abi.h"
#include "ops.h"

enum cuda_unit {
	CUDA_UNIT_16,
	CUDA_UNIT_4,
	CUDA_UNIT_1,
	CUDA_UNITS,
};

/* Written at open, read-only afterwards: no lock. */
struct cuda_gpu {
	struct kvmm_gpu gpu;
	struct cuda_api api;
	cu_device_t device;
	cu_context_t ctx;
	bool retained;
	cu_module_t module;
	cu_function_t copy_fn[CUDA_UNITS];
	enum kvmm_gpu_path path;
};

static inline struct cuda_gpu *to_cuda(struct kvmm_gpu *gpu)
{
	return (struct cuda_gpu *)gpu;
}

/* Loads the driver; on failure nothing stays loaded. */
int gpu_cuda_load(struct cuda_gpu *c, const char *path);
void gpu_cuda_unload(struct cuda_gpu *c);

/* Sets the sentence for a result of the driver; returns -errno. */
int gpu_cuda_fail(struct cuda_gpu *c, cu_result_t res, const char *call,
		  const char *doing);

/* Makes the device's context the thread's current one, and back. */
int gpu_cuda_enter(struct cuda_gpu *c);
void gpu_cuda_leave(struct cuda_gpu *c);

/* Loads the kernel, chooses the paths.  Inside enter and leave, as below. */
int gpu_cuda_copy_init(struct cuda_gpu *c, const struct kvmm_gpu_opts *opts);
void gpu_cuda_copy_exit(struct cuda_gpu *c);
int gpu_cuda_calibrate(struct cuda_gpu *c);

/* Submits by one given path (not AUTO), or by the chosen ones. */
int gpu_cuda_submit(struct cuda_gpu *c, cu_stream_t stream,
		    enum kvmm_gpu_path path, enum kvmm_gpu_dir dir,
		    const struct gpu_copy *copies, size_t nr);

#endif /* KVMM_GPU_CUDA_PRIV_H */
