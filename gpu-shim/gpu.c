// SPDX-License-Identifier: MIT
/*
 * The front of the shim: chooses a backend, checks arguments, counts streams
 * and events.  Registered memory is chunks.c's.
 */
#include "chunks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int gpu_fail(struct kvmm_gpu *gpu, int err, const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&gpu->err_lock);
	va_start(ap, fmt);
	vsnprintf(gpu->err, sizeof(gpu->err), fmt, ap);
	va_end(ap);
	pthread_mutex_unlock(&gpu->err_lock);
	return -err;
}

void gpu_note(struct kvmm_gpu *gpu, const char *fmt, ...)
{
	char *note = gpu->info.note;
	size_t have = strlen(note), room = sizeof(gpu->info.note);
	va_list ap;

	if (have && have + 3 < room) {
		memcpy(note + have, "; ", 3);
		have += 2;
	}
	va_start(ap, fmt);
	vsnprintf(note + have, room - have, fmt, ap);
	va_end(ap);
}

bool gpu_pci_parse(const char *text, char out[16])
{
	unsigned int domain = 0, bus, dev, fn;
	int end = -1;

	if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &dev, &fn,
		   &end) != 4 ||
	    text[end]) {
		domain = 0;
		end = -1;
		if (sscanf(text, "%2x:%2x.%1x%n", &bus, &dev, &fn, &end) != 3 ||
		    text[end])
			return false;
	}
	if (domain > 0xffffff || dev > 31 || fn > 7)
		return false;
	snprintf(out, 16, "%04x:%02x:%02x.%x", domain, bus & 0xff, dev, fn);
	return true;
}

int gpu_pci_numa(const char *sysfs, const char *pci)
{
	char path[512];
	int node = -1;
	FILE *f;

	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/numa_node",
		 sysfs ? sysfs : "/sys", pci);
	f = fopen(path, "re");
	if (!f)
		return -1;
	if (fscanf(f, "%d", &node) != 1 || node < 0)
		node = -1;
	fclose(f);
	return node;
}

static void gpu_free(struct kvmm_gpu *gpu)
{
	pthread_rwlock_destroy(&gpu->chunks_lock);
	pthread_mutex_destroy(&gpu->err_lock);
	free(gpu->chunks);
	free(gpu);
}

static int gpu_open_with(struct kvmm_gpu **out, const struct kvmm_gpu_ops *ops,
			 const struct kvmm_gpu_opts *opts, char *err,
			 size_t err_len)
{
	struct kvmm_gpu *gpu = calloc(1, ops->size);
	int r;

	if (!gpu) {
		if (err_len)
			snprintf(err, err_len, "out of memory");
		return -ENOMEM;
	}
	gpu->ops = ops;
	gpu->info.backend = ops->name;
	gpu->info.numa_node = -1;
	gpu->chunk_limit = opts->max_chunk ? opts->max_chunk :
					     KVMM_GPU_MAX_CHUNK;
	pthread_rwlock_init(&gpu->chunks_lock, NULL);
	pthread_mutex_init(&gpu->err_lock, NULL);
	r = ops->open(gpu, opts);
	if (r) {
		if (err_len)
			snprintf(err, err_len, "%s", gpu->err);
		gpu_free(gpu);
		return r;
	}
	*out = gpu;
	return 0;
}

static const char *gpu_check_opts(const struct kvmm_gpu_opts *opts)
{
	long page = sysconf(_SC_PAGESIZE);
	char pci[16];

	if (opts->flags & ~(KVMM_GPU_BY_INDEX | KVMM_GPU_NO_CALIBRATION))
		return "unknown flags";
	if (opts->backend > KVMM_GPU_HOST)
		return "no such backend";
	if (opts->path > KVMM_GPU_PATH_PLAIN)
		return "no such copy path";
	if (opts->max_chunk % (size_t)page)
		return "the largest registration isn't whole pages";
	if (opts->max_chunk > KVMM_GPU_MAX_CHUNK)
		return "the largest registration is above 1 GiB";
	if (opts->flags & KVMM_GPU_BY_INDEX) {
		if (opts->pci)
			return "a device by index and by PCI address";
		if (opts->index < 0)
			return "the device's index is negative";
	}
	if (opts->pci && !gpu_pci_parse(opts->pci, pci))
		return "not a PCI address (0000:65:00.0)";
	return NULL;
}

int kvmm_gpu_open(struct kvmm_gpu **out, const struct kvmm_gpu_opts *opts,
		  char *err, size_t err_len)
{
	static const struct kvmm_gpu_opts defaults;
	const struct kvmm_gpu_ops *ops = &gpu_cuda_ops;
	const char *bad;
	int r;

	if (!opts)
		opts = &defaults;
	if (!err)
		err_len = 0;
	bad = gpu_check_opts(opts);
	if (bad) {
		if (err_len)
			snprintf(err, err_len, "%s", bad);
		return -EINVAL;
	}
	if (opts->backend == KVMM_GPU_HOST)
		ops = &gpu_host_ops;
	else if (opts->backend == KVMM_GPU_DRM)
		ops = &gpu_drm_ops;
	r = gpu_open_with(out, ops, opts, err, err_len);
	if (opts->backend == KVMM_GPU_AUTO && (r == -ENOENT || r == -ENODEV) &&
	    !opts->pci && !(opts->flags & KVMM_GPU_BY_INDEX))
		r = gpu_open_with(out, &gpu_host_ops, opts, err, err_len);
	return r;
}

int kvmm_gpu_close(struct kvmm_gpu *gpu)
{
	unsigned int live;

	if (!gpu)
		return 0;
	live = __atomic_load_n(&gpu->live, __ATOMIC_ACQUIRE);
	if (live)
		return gpu_fail(gpu, EBUSY, "%u streams and events are alive",
				live);
	gpu_chunks_drop(gpu);
	gpu->ops->close(gpu);
	gpu_free(gpu);
	return 0;
}

void kvmm_gpu_info(const struct kvmm_gpu *gpu, struct kvmm_gpu_info *info)
{
	*info = gpu->info;
}

void kvmm_gpu_error(struct kvmm_gpu *gpu, char *text, size_t len)
{
	if (!len)
		return;
	pthread_mutex_lock(&gpu->err_lock);
	snprintf(text, len, "%s", gpu->err);
	pthread_mutex_unlock(&gpu->err_lock);
}

static int gpu_no_copies(struct kvmm_gpu *gpu)
{
	return gpu_fail(gpu, EOPNOTSUPP, "a %s device doesn't copy",
			gpu->ops->name);
}

static void gpu_born(struct kvmm_gpu *gpu)
{
	__atomic_add_fetch(&gpu->live, 1, __ATOMIC_RELAXED);
}

static void gpu_died(struct kvmm_gpu *gpu)
{
	__atomic_sub_fetch(&gpu->live, 1, __ATOMIC_RELEASE);
}

static int gpu_new_stream(struct kvmm_gpu *gpu, struct kvmm_gpu_stream *stream,
			  bool wrapped)
{
	stream->gpu = gpu;
	stream->wrapped = wrapped;
	gpu_born(gpu);
	return 0;
}

int kvmm_gpu_stream_create(struct kvmm_gpu *gpu, struct kvmm_gpu_stream **out)
{
	int r;

	if (!gpu->ops->stream_create)
		return gpu_no_copies(gpu);
	r = gpu->ops->stream_create(gpu, out);
	return r ? r : gpu_new_stream(gpu, *out, false);
}

int kvmm_gpu_stream_wrap(struct kvmm_gpu *gpu, void *native,
			 struct kvmm_gpu_stream **out)
{
	int r;

	if (!gpu->ops->stream_wrap)
		return gpu_no_copies(gpu);
	r = gpu->ops->stream_wrap(gpu, native, out);
	return r ? r : gpu_new_stream(gpu, *out, true);
}

void *kvmm_gpu_stream_native(const struct kvmm_gpu_stream *stream)
{
	return stream->native;
}

int kvmm_gpu_stream_sync(struct kvmm_gpu_stream *stream)
{
	return stream->gpu->ops->stream_sync(stream);
}

void kvmm_gpu_stream_destroy(struct kvmm_gpu_stream *stream)
{
	struct kvmm_gpu *gpu;

	if (!stream)
		return;
	gpu = stream->gpu;
	gpu->ops->stream_destroy(stream);
	gpu_died(gpu);
}

static int gpu_new_event(struct kvmm_gpu *gpu, struct kvmm_gpu_event *event,
			 bool wrapped)
{
	event->gpu = gpu;
	event->wrapped = wrapped;
	gpu_born(gpu);
	return 0;
}

int kvmm_gpu_event_create(struct kvmm_gpu *gpu, struct kvmm_gpu_event **out)
{
	int r;

	if (!gpu->ops->event_create)
		return gpu_no_copies(gpu);
	r = gpu->ops->event_create(gpu, out);
	return r ? r : gpu_new_event(gpu, *out, false);
}

int kvmm_gpu_event_wrap(struct kvmm_gpu *gpu, void *native,
			struct kvmm_gpu_event **out)
{
	int r;

	if (!gpu->ops->event_wrap)
		return gpu_no_copies(gpu);
	if (!native)
		return gpu_fail(gpu, EINVAL, "no event to wrap");
	r = gpu->ops->event_wrap(gpu, native, out);
	return r ? r : gpu_new_event(gpu, *out, true);
}

void *kvmm_gpu_event_native(const struct kvmm_gpu_event *event)
{
	return event->native;
}

int kvmm_gpu_event_record(struct kvmm_gpu_event *event,
			  struct kvmm_gpu_stream *stream)
{
	struct kvmm_gpu *gpu = event->gpu;

	if (stream->gpu != gpu)
		return gpu_fail(gpu, EINVAL,
				"event and stream are of different devices");
	return gpu->ops->event_record(event, stream);
}

int kvmm_gpu_event_query(struct kvmm_gpu_event *event)
{
	return event->gpu->ops->event_query(event);
}

int kvmm_gpu_event_wait(struct kvmm_gpu_event *event)
{
	return event->gpu->ops->event_wait(event);
}

void kvmm_gpu_event_destroy(struct kvmm_gpu_event *event)
{
	struct kvmm_gpu *gpu;

	if (!event)
		return;
	gpu = event->gpu;
	gpu->ops->event_destroy(event);
	gpu_died(gpu);
}

int kvmm_gpu_stream_wait(struct kvmm_gpu_stream *stream,
			 struct kvmm_gpu_event *event)
{
	struct kvmm_gpu *gpu = stream->gpu;

	if (event->gpu != gpu)
		return gpu_fail(gpu, EINVAL,
				"event and stream are of different devices");
	return gpu->ops->stream_wait(stream, event);
}

int kvmm_gpu_import(struct kvmm_gpu *gpu, int dmabuf_fd, uint32_t *handle,
		    uint64_t *bytes)
{
	if (!gpu->ops->import)
		return gpu_fail(gpu, EOPNOTSUPP,
				"a %s device imports no dma-buf",
				gpu->ops->name);
	return gpu->ops->import(gpu, dmabuf_fd, handle, bytes);
}

int kvmm_gpu_import_release(struct kvmm_gpu *gpu, uint32_t handle)
{
	if (!gpu->ops->release)
		return gpu_fail(gpu, EOPNOTSUPP,
				"a %s device imports no dma-buf",
				gpu->ops->name);
	return gpu->ops->release(gpu, handle);
}
