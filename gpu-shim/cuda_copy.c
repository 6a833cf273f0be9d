// SPDX-License-Identifier: MIT
/*
 * The cuda backend's three ways to copy fragments: a gather/scatter kernel,
 * DMA in batches, DMA one call each.  Each stretch of a frame goes by the way
 * that suits its fragments' size; all are submitted to the caller's stream.
 */
#include "cuda_priv.h"

#include <stdio.h>
#include <string.h>

/* Fragments in one call of cuMemcpyBatchAsync: what fits on the stack. */
#define BATCH 256
/* Thread blocks of one launch: enough to fill the link, few enough to leave
 * room for the engine's kernels.
 */
#define MAX_BLOCKS 512
/* Where nothing was measured; published figures for H100 lie around it. */
#define DEFAULT_CROSSOVER (32UL << 10)

/* One call of submit: what has been gathered and not yet handed over. */
struct submit {
	struct cuda_gpu *c;
	cu_stream_t stream;
	enum kvmm_gpu_dir dir;
	bool default_stream;
	/* for the kernel */
	struct cu_copy_args args;
	uint64_t align;		/* all addresses, strides and sizes, or-ed */
	uint32_t most;		/* fragments of the longest group */
	/* for the batch */
	size_t nr;
	cu_deviceptr_t dst[BATCH];
	cu_deviceptr_t src[BATCH];
	size_t bytes[BATCH];
};

static int launch_flush(struct submit *s)
{
	struct cuda_gpu *c = s->c;
	void *params[] = {&s->args};
	enum cuda_unit unit = CUDA_UNIT_1;
	uint32_t nr = s->args.nr, x;
	cu_result_t res;

	if (!nr)
		return 0;
	if (!(s->align & 15))
		unit = CUDA_UNIT_16;
	else if (!(s->align & 3))
		unit = CUDA_UNIT_4;
	x = MAX_BLOCKS / nr;
	if (x > s->most)
		x = s->most;
	/* parameters are copied by the call */
	res = c->api.launch(c->copy_fn[unit], x, nr, 1, CU_COPY_THREADS, 1, 1,
			    0, s->stream, params, NULL);
	s->args.nr = 0;
	s->align = 0;
	s->most = 0;
	if (res)
		return gpu_cuda_fail(c, res, "cuLaunchKernel",
				     "copying by kernel");
	return 0;
}

static int launch_add(struct submit *s, const struct gpu_frags *f)
{
	struct cu_copy_desc d = {
		.bytes = f->bytes,
		.count = f->count,
	};

	if (s->dir == KVMM_GPU_OUT) {
		d.src = f->dev;
		d.src_stride = f->dev_stride;
		d.dst = f->host_dev;
		d.dst_stride = f->bytes;
	} else {
		d.src = f->host_dev;
		d.src_stride = f->bytes;
		d.dst = f->dev;
		d.dst_stride = f->dev_stride;
	}
	s->align |= d.src | d.dst | d.src_stride | d.dst_stride | d.bytes;
	if (s->most < d.count)
		s->most = d.count;
	s->args.desc[s->args.nr++] = d;
	return s->args.nr == CU_COPY_DESCS ? launch_flush(s) : 0;
}

static int batch_flush(struct submit *s)
{
	const struct cuda_api *api = &s->c->api;
	struct cu_memcpy_attrs attrs = {
		.src_access_order = CU_ORDER_STREAM,
		.flags = CU_COPY_OVERLAP,
	};
	struct CUmemcpyAttributes_st *a = (void *)&attrs;
	bool out = s->dir == KVMM_GPU_OUT;
	size_t from = 0, bad = SIZE_MAX, nr = s->nr;
	cu_result_t res;

	if (!nr)
		return 0;
	s->nr = 0;
	/* looked at only where pageable memory is copied (HMM, ATS) */
	attrs.src_location_type = out ? CU_PLACE_DEVICE : CU_PLACE_HOST;
	attrs.dst_location_type = out ? CU_PLACE_HOST : CU_PLACE_DEVICE;
	attrs.src_location_id = out ? s->c->device : 0;
	attrs.dst_location_id = out ? 0 : s->c->device;
	if (api->batch_13)
		res = api->batch_13(s->dst, s->src, s->bytes, nr, a, &from, 1,
				    s->stream);
	else
		res = api->batch_12(s->dst, s->src, s->bytes, nr, a, &from, 1,
				    &bad, s->stream);
	if (res)
		return gpu_cuda_fail(s->c, res, "cuMemcpyBatchAsync",
				     "copying a batch");
	return 0;
}

static int batch_add(struct submit *s, const struct gpu_frags *f)
{
	size_t i;
	int r;

	for (i = 0; i < f->count; i++) {
		uint64_t dev = f->dev + i * f->dev_stride;
		uint64_t host = f->host_dev + i * f->bytes;

		s->dst[s->nr] = s->dir == KVMM_GPU_OUT ? host : dev;
		s->src[s->nr] = s->dir == KVMM_GPU_OUT ? dev : host;
		s->bytes[s->nr++] = f->bytes;
		if (s->nr == BATCH) {
			r = batch_flush(s);
			if (r)
				return r;
		}
	}
	return 0;
}

static int plain_copy(struct submit *s, const struct gpu_frags *f)
{
	const struct cuda_api *api = &s->c->api;
	uint64_t dev = f->dev;
	char *host = f->host;
	cu_result_t res;
	size_t i;

	for (i = 0; i < f->count; i++) {
		if (s->dir == KVMM_GPU_OUT) {
			res = api->copy_out(host, dev, f->bytes, s->stream);
			if (res)
				return gpu_cuda_fail(s->c, res,
						     "cuMemcpyDtoHAsync",
						     "copying to the host");
		} else {
			res = api->copy_in(dev, host, f->bytes, s->stream);
			if (res)
				return gpu_cuda_fail(s->c, res,
						     "cuMemcpyHtoDAsync",
						     "copying to the device");
		}
		dev += f->dev_stride;
		host += f->bytes;
	}
	return 0;
}

static int submit_frags(struct submit *s, enum kvmm_gpu_path path,
			const struct gpu_frags *f)
{
	const struct kvmm_gpu_info *info = &s->c->gpu.info;

	if (path == KVMM_GPU_PATH_AUTO)
		path = f->bytes < info->crossover[s->dir] ?
			       KVMM_GPU_PATH_KERNEL :
			       info->dma_path;
	if (path == KVMM_GPU_PATH_BATCH && s->default_stream)
		path = KVMM_GPU_PATH_PLAIN; /* the driver refuses it */
	switch (path) {
	case KVMM_GPU_PATH_KERNEL:
		return launch_add(s, f);
	case KVMM_GPU_PATH_BATCH:
		return batch_add(s, f);
	default:
		return plain_copy(s, f);
	}
}

int gpu_cuda_submit(struct cuda_gpu *c, cu_stream_t stream,
		    enum kvmm_gpu_path path, enum kvmm_gpu_dir dir,
		    const struct gpu_copy *copies, size_t nr)
{
	struct submit s;
	struct gpu_frags f;
	struct gpu_walk w;
	size_t i;
	int r = 0;

	s.c = c;
	s.stream = stream;
	s.dir = dir;
	s.default_stream = !stream || stream == CU_LEGACY_STREAM;
	s.args.nr = 0;
	s.args.zero = 0;
	s.align = 0;
	s.most = 0;
	s.nr = 0;
	for (i = 0; i < nr && !r; i++) {
		gpu_walk_start(&w, &copies[i]);
		while (!r && gpu_walk_next(&w, &f))
			r = submit_frags(&s, path, &f);
	}
	if (!r)
		r = launch_flush(&s);
	if (!r)
		r = batch_flush(&s);
	return r;
}

static int copy_load_kernel(struct cuda_gpu *c)
{
	static const char *const names[CUDA_UNITS] = {
		[CUDA_UNIT_16] = "kvmm_copy_16",
		[CUDA_UNIT_4] = "kvmm_copy_4",
		[CUDA_UNIT_1] = "kvmm_copy_1",
	};
	char log[256] = "";
	unsigned int options[] = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BYTES};
	/* a number is passed as a pointer */
	void *values[] = {log, (void *)sizeof(log)};
	cu_result_t res;
	int i, r;

	res = c->api.module_load(&c->module, gpu_cuda_ptx, 2, options, values);
	if (res) {
		c->module = NULL;
		r = gpu_cuda_fail(c, res, "cuModuleLoadDataEx",
				  "compiling the copy kernel");
		log[strcspn(log, "\n")] = 0;
		if (log[0])
			gpu_note(&c->gpu, "%s", log);
		return r;
	}
	for (i = 0; i < CUDA_UNITS; i++) {
		res = c->api.module_function(&c->copy_fn[i], c->module,
					     names[i]);
		if (res) {
			r = gpu_cuda_fail(c, res, "cuModuleGetFunction",
					  "compiling the copy kernel");
			gpu_cuda_copy_exit(c);
			return r;
		}
	}
	c->gpu.info.has_kernel = true;
	return 0;
}

void gpu_cuda_copy_exit(struct cuda_gpu *c)
{
	if (c->module)
		(void)c->api.module_unload(c->module);
	c->module = NULL;
}

/* Something that can be done without failed: it is said, and not done. */
static void copy_without(struct cuda_gpu *c)
{
	char why[sizeof(c->gpu.err)];

	kvmm_gpu_error(&c->gpu, why, sizeof(why));
	gpu_note(&c->gpu, "%s", why);
}

int gpu_cuda_copy_init(struct cuda_gpu *c, const struct kvmm_gpu_opts *opts)
{
	struct kvmm_gpu_info *info = &c->gpu.info;
	int r;

	c->path = opts->path;
	info->has_batch = c->api.batch_13 || c->api.batch_12;
	info->dma_path = info->has_batch ? KVMM_GPU_PATH_BATCH :
					   KVMM_GPU_PATH_PLAIN;
	if (opts->path == KVMM_GPU_PATH_BATCH && !info->has_batch)
		return gpu_fail(&c->gpu, EOPNOTSUPP,
				"no batched copies: the driver supports CUDA %d.%d, 12.8 is needed",
				info->driver_version / 1000,
				info->driver_version % 1000 / 10);
	r = copy_load_kernel(c);
	if (r && opts->path == KVMM_GPU_PATH_KERNEL)
		return r;
	if (r)
		copy_without(c);
	if (opts->path != KVMM_GPU_PATH_AUTO)
		return 0;

	if (info->has_kernel) {
		info->crossover[KVMM_GPU_OUT] = DEFAULT_CROSSOVER;
		info->crossover[KVMM_GPU_IN] = DEFAULT_CROSSOVER;
	}
	if (opts->crossover) {
		if (info->has_kernel) {
			info->crossover[KVMM_GPU_OUT] = opts->crossover;
			info->crossover[KVMM_GPU_IN] = opts->crossover;
		}
	} else if (!(opts->flags & KVMM_GPU_NO_CALIBRATION)) {
		r = gpu_cuda_calibrate(c);
		if (r == -EIO) {
			gpu_cuda_copy_exit(c);
			return r;
		}
		if (r)
			copy_without(c);
	}
	return 0;
}
