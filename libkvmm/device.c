// SPDX-License-Identifier: MIT
/*
 * The device of an engine, before there is an engine: which one, and which
 * memory is near it.
 */
#include "engine.h"

int eng_gpu_opts(const struct kvmm_engine_opts *o, struct kvmm_gpu_opts *gpu)
{
	static const enum kvmm_gpu_backend backend[] = {
		[KVMM_DEVICE_AUTO] = KVMM_GPU_AUTO,
		[KVMM_DEVICE_CUDA] = KVMM_GPU_CUDA,
		[KVMM_DEVICE_HOST] = KVMM_GPU_HOST,
	};

	if (o->device > KVMM_DEVICE_HOST)
		return -EINVAL;
	gpu->backend = backend[o->device];
	gpu->flags = o->flags & KVMM_ENGINE_BY_INDEX ? KVMM_GPU_BY_INDEX : 0;
	gpu->index = o->index;
	gpu->pci = o->pci;
	gpu->libcuda = o->libcuda;
	return 0;
}

int eng_node_on(struct kvmm *kv, const struct kvmm_gpu_opts *opts)
{
	struct kvmm_gpu_info info;
	struct kvmm_gpu *gpu;
	char why[256] = "";
	int err = kvmm_gpu_open(&gpu, opts, why, sizeof(why));

	if (err) {
		kvmm_log(kv, KVMM_LOG_ERROR, "no device: %s", why);
		return err;
	}
	kvmm_gpu_info(gpu, &info);
	kvmm_gpu_close(gpu);
	return info.numa_node < 0 ? -ENODATA : info.numa_node;
}

int kvmm_device_node(struct kvmm *kv, const struct kvmm_engine_opts *opts)
{
	struct kvmm_gpu_opts gpu = { 0 };
	struct kvmm_engine_opts o = { .size = sizeof(o) };
	int err = 0;

	if (!kv)
		return kvmm_ret(-EINVAL);
	if (opts)
		err = kvmm_copy_opts(&o, sizeof(o), opts, sizeof(o));
	if (!err)
		err = eng_gpu_opts(&o, &gpu);
	if (err)
		return kvmm_ret(err);
	/* It copies nothing. */
	gpu.flags |= KVMM_GPU_NO_CALIBRATION;
	return kvmm_ret(eng_node_on(kv, &gpu));
}
