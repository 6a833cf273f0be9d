// SPDX-License-Identifier: MIT
/*
 * The cuda backend: device and context, registered memory, streams, events.
 * Every call makes the device's context current for as long as it takes and
 * leaves the caller's thread as it was.
 */
#include "cuda_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int cuda_attr(struct cuda_gpu *c, unsigned int attr)
{
	int value = 0;

	/* an attribute that this driver doesn't know is one it hasn't */
	if (c->api.device_attr(&value, attr, c->device))
		return 0;
	return value;
}

/* The device's PCI address; empty: the driver doesn't say. */
static void cuda_pci(struct cuda_gpu *c, cu_device_t device, char pci[16])
{
	char text[32] = "";

	pci[0] = 0;
	if (!c->api.device_pci(text, sizeof(text), device) &&
	    !gpu_pci_parse(text, pci))
		pci[0] = 0;
}

static int cuda_by_pci(struct cuda_gpu *c, const char *pci, int nr, int *index)
{
	char want[16], have[16];
	cu_device_t device;
	int i;

	gpu_pci_parse(pci, want);
	for (i = 0; i < nr; i++) {
		if (c->api.device_get(&device, i))
			continue;
		cuda_pci(c, device, have);
		if (!strcmp(want, have)) {
			*index = i;
			return 0;
		}
	}
	return gpu_fail(&c->gpu, ENODEV, "no CUDA device at %s", want);
}

/* Index of a device handle. */
static int cuda_index(struct cuda_gpu *c, cu_device_t want, int nr)
{
	cu_device_t device;
	int i;

	for (i = 0; i < nr; i++)
		if (!c->api.device_get(&device, i) && device == want)
			return i;
	return -1;
}

/* Which device: the named one, the current context's, or the only one. */
static int cuda_choose(struct cuda_gpu *c, const struct kvmm_gpu_opts *opts,
		       cu_context_t current, cu_device_t current_device)
{
	int nr = 0, index = 0, r;
	cu_result_t res = c->api.device_count(&nr);

	if (res)
		return gpu_cuda_fail(c, res, "cuDeviceGetCount",
				     "counting devices");
	if (!nr)
		return gpu_fail(&c->gpu, ENODEV,
				"the CUDA driver has no device");
	if (opts->pci) {
		r = cuda_by_pci(c, opts->pci, nr, &index);
		if (r)
			return r;
	} else if (opts->flags & KVMM_GPU_BY_INDEX) {
		index = opts->index;
		if (index >= nr)
			return gpu_fail(&c->gpu, ENODEV,
					"no CUDA device %d, there are %d",
					index, nr);
	} else if (current) {
		index = cuda_index(c, current_device, nr);
		if (index < 0)
			return gpu_fail(&c->gpu, ENODEV,
					"the current context's device is not in the driver's list");
	} else if (nr > 1) {
		return gpu_fail(&c->gpu, EINVAL,
				"%d CUDA devices and no current context: say which device",
				nr);
	}
	res = c->api.device_get(&c->device, index);
	if (res)
		return gpu_cuda_fail(c, res, "cuDeviceGet",
				     "opening the device");
	c->gpu.info.index = index;
	return 0;
}

/* The caller's context where there is one on the device, else the primary. */
static int cuda_context(struct cuda_gpu *c, const struct kvmm_gpu_opts *opts)
{
	cu_context_t current = NULL;
	cu_device_t device = 0;
	cu_result_t res = c->api.ctx_current(&current);
	int r;

	if (res)
		return gpu_cuda_fail(c, res, "cuCtxGetCurrent",
				     "looking for a context");
	if (current) {
		res = c->api.ctx_device(&device);
		if (res)
			return gpu_cuda_fail(c, res, "cuCtxGetDevice",
					     "asking the current context");
	}
	r = cuda_choose(c, opts, current, device);
	if (r)
		return r;
	if (current && device == c->device) {
		c->ctx = current;
		return 0;
	}
	res = c->api.primary_retain(&c->ctx, c->device);
	if (res)
		return gpu_cuda_fail(c, res, "cuDevicePrimaryCtxRetain",
				     "making a context");
	c->retained = true;
	c->gpu.info.own_context = true;
	return 0;
}

/* Where the device walks the CPU's page tables they say what may be written. */
static bool cuda_needs_rdonly(const struct cuda_gpu *c)
{
	return c->gpu.info.pageable != KVMM_GPU_PAGEABLE_ATS;
}

static void cuda_describe(struct cuda_gpu *c, const struct kvmm_gpu_opts *opts)
{
	struct kvmm_gpu_info *info = &c->gpu.info;

	if (c->api.device_name(info->name, sizeof(info->name), c->device))
		snprintf(info->name, sizeof(info->name), "CUDA device %d",
			 info->index);
	cuda_pci(c, c->device, info->pci);
	if (info->pci[0]) {
		info->numa_node = gpu_pci_numa(opts->sysfs, info->pci);
		if (!gpu_drm_find(opts, info->pci, info->drm_node))
			info->drm_node[0] = 0;
	}
	info->driver_version = c->api.version;
	info->unified = cuda_attr(c, CU_ATTR_UNIFIED_ADDRESSING);
	info->same_pointer =
		cuda_attr(c, CU_ATTR_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
	if (cuda_attr(c, CU_ATTR_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES))
		info->pageable = KVMM_GPU_PAGEABLE_ATS;
	else if (cuda_attr(c, CU_ATTR_PAGEABLE_MEMORY_ACCESS))
		info->pageable = KVMM_GPU_PAGEABLE_HMM;
	info->reg_rdonly = !cuda_needs_rdonly(c) ||
			   cuda_attr(c, CU_ATTR_READ_ONLY_HOST_REGISTER_SUPPORTED);
}

static void cuda_drop_context(struct cuda_gpu *c)
{
	if (c->retained)
		(void)c->api.primary_release(c->device);
	c->retained = false;
}

static int cuda_open(struct kvmm_gpu *gpu, const struct kvmm_gpu_opts *opts)
{
	struct cuda_gpu *c = to_cuda(gpu);
	int r = gpu_cuda_load(c, opts->libcuda);

	if (r)
		return r;
	r = cuda_context(c, opts);
	if (r)
		goto unload;
	cuda_describe(c, opts);
	if (!cuda_attr(c, CU_ATTR_CAN_MAP_HOST_MEMORY) || !gpu->info.unified) {
		r = gpu_fail(gpu, EOPNOTSUPP,
			     "%s doesn't share the host's address space",
			     gpu->info.name);
		goto drop;
	}
	r = gpu_cuda_enter(c);
	if (r)
		goto drop;
	r = gpu_cuda_copy_init(c, opts);
	gpu_cuda_leave(c);
	if (!r)
		return 0;
drop:
	cuda_drop_context(c);
unload:
	gpu_cuda_unload(c);
	return r;
}

static void cuda_close(struct kvmm_gpu *gpu)
{
	struct cuda_gpu *c = to_cuda(gpu);

	if (!gpu_cuda_enter(c)) {
		gpu_cuda_copy_exit(c);
		gpu_cuda_leave(c);
	}
	cuda_drop_context(c);
	gpu_cuda_unload(c);
}

static int cuda_reg(struct kvmm_gpu *gpu, void *addr, size_t bytes,
		    bool rdonly, uint64_t *dev)
{
	unsigned int flags = CU_HOSTREG_PORTABLE | CU_HOSTREG_DEVICEMAP;
	struct cuda_gpu *c = to_cuda(gpu);
	cu_deviceptr_t ptr = 0;
	cu_result_t res;
	int r;

	if (rdonly && !gpu->info.reg_rdonly)
		return gpu_fail(gpu, EOPNOTSUPP,
				"%s can't register memory that is mapped for reading only",
				gpu->info.name);
	if (rdonly && cuda_needs_rdonly(c))
		flags |= CU_HOSTREG_RDONLY;
	r = gpu_cuda_enter(c);
	if (r)
		return r;
	res = c->api.host_register(addr, bytes, flags);
	if (res) {
		r = gpu_cuda_fail(c, res, "cuMemHostRegister",
				  "registering memory");
		goto out;
	}
	res = c->api.host_dev_ptr(&ptr, addr, 0);
	if (res) {
		r = gpu_cuda_fail(c, res, "cuMemHostGetDevicePointer",
				  "registering memory");
		(void)c->api.host_unregister(addr);
		goto out;
	}
	*dev = ptr;
out:
	gpu_cuda_leave(c);
	return r;
}

static int cuda_unreg(struct kvmm_gpu *gpu, void *addr)
{
	struct cuda_gpu *c = to_cuda(gpu);
	cu_result_t res;
	int r = gpu_cuda_enter(c);

	if (r)
		return r;
	res = c->api.host_unregister(addr);
	if (res)
		r = gpu_cuda_fail(c, res, "cuMemHostUnregister",
				  "unregistering memory");
	gpu_cuda_leave(c);
	return r;
}

static int cuda_stream_new(struct kvmm_gpu *gpu, void *native,
			   struct kvmm_gpu_stream **out)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return gpu_fail(gpu, ENOMEM, "out of memory");
	(*out)->native = native;
	return 0;
}

static int cuda_stream_create(struct kvmm_gpu *gpu,
			      struct kvmm_gpu_stream **out)
{
	struct cuda_gpu *c = to_cuda(gpu);
	cu_stream_t native;
	cu_result_t res;
	int r = gpu_cuda_enter(c);

	if (r)
		return r;
	res = c->api.stream_create(&native, CU_STREAM_NONBLOCK);
	if (res) {
		r = gpu_cuda_fail(c, res, "cuStreamCreate", "making a stream");
	} else {
		r = cuda_stream_new(gpu, native, out);
		if (r)
			(void)c->api.stream_destroy(native);
	}
	gpu_cuda_leave(c);
	return r;
}

static int cuda_stream_wrap(struct kvmm_gpu *gpu, void *native,
			    struct kvmm_gpu_stream **out)
{
	struct cuda_gpu *c = to_cuda(gpu);
	cu_context_t ctx = c->ctx;
	cu_stream_t stream = native;
	cu_result_t res = CU_SUCCESS;
	int r = gpu_cuda_enter(c);

	if (r)
		return r;
	/* the default streams belong to whichever context is current */
	if (stream && stream != CU_LEGACY_STREAM && stream != CU_THREAD_STREAM)
		res = c->api.stream_ctx(stream, &ctx);
	gpu_cuda_leave(c);
	/* a green context's stream has no answer to give: taken on trust */
	if (res && res != CU_ERROR_NOT_SUPPORTED)
		return gpu_cuda_fail(c, res, "cuStreamGetCtx",
				     "using the caller's stream");
	if (!res && ctx != c->ctx)
		return gpu_fail(gpu, EINVAL,
				"the stream belongs to another context");
	return cuda_stream_new(gpu, native, out);
}

static int cuda_stream_sync(struct kvmm_gpu_stream *stream)
{
	struct cuda_gpu *c = to_cuda(stream->gpu);
	cu_result_t res;
	int r = gpu_cuda_enter(c);

	if (r)
		return r;
	res = c->api.stream_sync(stream->native);
	if (res)
		r = gpu_cuda_fail(c, res, "cuStreamSynchronize",
				  "waiting for a stream");
	gpu_cuda_leave(c);
	return r;
}

static void cuda_stream_destroy(struct kvmm_gpu_stream *stream)
{
	struct cuda_gpu *c = to_cuda(stream->gpu);

	if (!stream->wrapped && !gpu_cuda_enter(c)) {
		(void)c->api.stream_sync(stream->native);
		(void)c->api.stream_destroy(stream->native);
		gpu_cuda_leave(c);
	}
	free(stream);
}

static int cuda_event_wrap(struct kvmm_gpu *gpu, void *native,
			   struct kvmm_gpu_event **out)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return gpu_fail(gpu, ENOMEM, "out of memory");
	(*out)->native = native;
	return 0;
}

static int cuda_event_create(struct kvmm_gpu *gpu, struct kvmm_gpu_event **out)
{
	struct cuda_gpu *c = to_cuda(gpu);
	cu_event_t native;
	cu_result_t res;
	int r = gpu_cuda_enter(c);

	if (r)
		return r;
	res = c->api.event_create(&native,
				  CU_EVENT_BLOCKING | CU_EVENT_UNTIMED);
	if (res) {
		r = gpu_cuda_fail(c, res, "cuEventCreate", "making an event");
	} else {
		r = cuda_event_wrap(gpu, native, out);
		if (r)
			(void)c->api.event_destroy(native);
	}
	gpu_cuda_leave(c);
	return r;
}

static int cuda_event_record(struct kvmm_gpu_event *event,
			     struct kvmm_gpu_stream *stream)
{
	struct cuda_gpu *c = to_cuda(event->gpu);
	cu_result_t res;
	int r = gpu_cuda_enter(c);

	if (r)
		return r;
	res = c->api.event_record(event->native, stream->native);
	if (res)
		r = gpu_cuda_fail(c, res, "cuEventRecord",
				  "recording an event");
	gpu_cuda_leave(c);
	return r;
}

static int cuda_event_query(struct kvmm_gpu_event *event)
{
	struct cuda_gpu *c = to_cuda(event->gpu);
	cu_result_t res;
	int r = gpu_cuda_enter(c);

	if (r)
		return r;
	res = c->api.event_query(event->native);
	if (res && res != CU_ERROR_NOT_READY)
		r = gpu_cuda_fail(c, res, "cuEventQuery", "querying an event");
	else
		r = !res;
	gpu_cuda_leave(c);
	return r;
}

static int cuda_event_wait(struct kvmm_gpu_event *event)
{
	struct cuda_gpu *c = to_cuda(event->gpu);
	cu_result_t res;
	int r = gpu_cuda_enter(c);

	if (r)
		return r;
	res = c->api.event_sync(event->native);
	if (res)
		r = gpu_cuda_fail(c, res, "cuEventSynchronize",
				  "waiting for an event");
	gpu_cuda_leave(c);
	return r;
}

static void cuda_event_destroy(struct kvmm_gpu_event *event)
{
	struct cuda_gpu *c = to_cuda(event->gpu);

	if (!event->wrapped && !gpu_cuda_enter(c)) {
		(void)c->api.event_destroy(event->native);
		gpu_cuda_leave(c);
	}
	free(event);
}

static int cuda_stream_wait(struct kvmm_gpu_stream *stream,
			    struct kvmm_gpu_event *event)
{
	struct cuda_gpu *c = to_cuda(stream->gpu);
	cu_result_t res;
	int r = gpu_cuda_enter(c);

	if (r)
		return r;
	res = c->api.stream_wait(stream->native, event->native, 0);
	if (res)
		r = gpu_cuda_fail(c, res, "cuStreamWaitEvent",
				  "ordering a stream");
	gpu_cuda_leave(c);
	return r;
}

static int cuda_copy(struct kvmm_gpu_stream *stream, enum kvmm_gpu_dir dir,
		     const struct gpu_copy *copies, size_t nr)
{
	struct cuda_gpu *c = to_cuda(stream->gpu);
	int r = gpu_cuda_enter(c);

	if (r)
		return r;
	r = gpu_cuda_submit(c, stream->native, c->path, dir, copies, nr);
	gpu_cuda_leave(c);
	return r;
}

const struct kvmm_gpu_ops gpu_cuda_ops = {
	.name = "cuda",
	.size = sizeof(struct cuda_gpu),
	.open = cuda_open,
	.close = cuda_close,
	.reg = cuda_reg,
	.unreg = cuda_unreg,
	.stream_create = cuda_stream_create,
	.stream_wrap = cuda_stream_wrap,
	.stream_sync = cuda_stream_sync,
	.stream_destroy = cuda_stream_destroy,
	.event_create = cuda_event_create,
	.event_wrap = cuda_event_wrap,
	.event_record = cuda_event_record,
	.event_query = cuda_event_query,
	.event_wait = cuda_event_wait,
	.event_destroy = cuda_event_destroy,
	.stream_wait = cuda_stream_wait,
	.copy = cuda_copy,
};
