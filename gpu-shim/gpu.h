/* SPDX-License-Identifier: MIT */
/*
 * gpu-shim: all that libkvmm needs from a GPU driver, and nothing more.
 *
 * A device is opened with one of three backends: "cuda" (the CUDA driver,
 * loaded at run time), "host" (host memory standing in for a GPU: what CPU
 * engines and tests use) and "drm" (a render node: where it is, and import of
 * a dma-buf; it copies nothing).  Frames of the arena are registered with the
 * device, then copied to and from device memory in stream order.
 *
 * Errors: functions that return int return 0 or a positive result, or -errno;
 * kvmm_gpu_error() has the sentence.  Errors that any of them may return:
 * -EIO (the device or its driver failed; after a fault inside the GPU every
 * later call fails too), -ENOMEM, -EOPNOTSUPP (not with this backend).
 *
 * Threads: everything may be called from any thread, on one device by many at
 * once.  Closing or destroying an object must be the last call on it.  A
 * stream runs its operations in the order of the calls.  A child of fork()
 * must not use what its parent opened.  The shim changes no thread's current
 * CUDA context beyond the call and keeps no global state.
 */
#ifndef KVMM_GPU_H
#define KVMM_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvmm_gpu;
struct kvmm_gpu_stream;
struct kvmm_gpu_event;

/**
 * enum kvmm_gpu_backend - whose device
 * @KVMM_GPU_AUTO: cuda where there is a driver with a device, else host; a
 *	driver that is there and fails is an error, not a reason for host
 * @KVMM_GPU_CUDA: the CUDA driver's
 * @KVMM_GPU_DRM: a DRM node
 * @KVMM_GPU_HOST: host memory
 */
enum kvmm_gpu_backend {
	KVMM_GPU_AUTO,
	KVMM_GPU_CUDA,
	KVMM_GPU_DRM,
	KVMM_GPU_HOST,
};

/**
 * enum kvmm_gpu_path - how fragments are copied
 * @KVMM_GPU_PATH_AUTO: by the kernel below the crossover, by DMA from it on
 * @KVMM_GPU_PATH_KERNEL: a gather/scatter kernel, many fragments a launch
 * @KVMM_GPU_PATH_BATCH: DMA, many fragments a call (CUDA 12.8 and newer)
 * @KVMM_GPU_PATH_PLAIN: DMA, one call a fragment
 */
enum kvmm_gpu_path {
	KVMM_GPU_PATH_AUTO,
	KVMM_GPU_PATH_KERNEL,
	KVMM_GPU_PATH_BATCH,
	KVMM_GPU_PATH_PLAIN,
};

/**
 * enum kvmm_gpu_dir - direction of a copy
 * @KVMM_GPU_OUT: device to host (offload)
 * @KVMM_GPU_IN: host to device (restore)
 */
enum kvmm_gpu_dir {
	KVMM_GPU_OUT,
	KVMM_GPU_IN,
};

/**
 * enum kvmm_gpu_pageable - use of host memory that is not registered
 * @KVMM_GPU_PAGEABLE_NONE: the device can't reach it
 * @KVMM_GPU_PAGEABLE_HMM: it can, pages move or fault (Linux HMM)
 * @KVMM_GPU_PAGEABLE_ATS: it can, through the CPU's own page tables
 */
enum kvmm_gpu_pageable {
	KVMM_GPU_PAGEABLE_NONE,
	KVMM_GPU_PAGEABLE_HMM,
	KVMM_GPU_PAGEABLE_ATS,
};

#define KVMM_GPU_NAME_LEN 64

/* The largest piece that is registered in one call of the driver: larger ones
 * were seen to fail from 512 GiB on, and one call holds locks all along.
 */
#define KVMM_GPU_MAX_CHUNK (1UL << 30)

/* kvmm_gpu_opts.flags */
#define KVMM_GPU_BY_INDEX (1U << 0)	  /* @index says which device */
#define KVMM_GPU_NO_CALIBRATION (1U << 1) /* use the default crossover */

/**
 * struct kvmm_gpu_opts - which device, and how; all zero is all defaults
 * @flags: KVMM_GPU_BY_INDEX, KVMM_GPU_NO_CALIBRATION
 * @backend: enum kvmm_gpu_backend
 * @index: CUDA ordinal, or place in the list of DRM nodes
 * @pci: PCI address, "0000:65:00.0"; NULL: any
 * @path: force one way of copying; -EOPNOTSUPP at open where it isn't there
 * @crossover: fragments of fewer bytes go by the kernel; 0: measured at open,
 *	1: none do
 * @max_chunk: largest registration at once, bytes; 0: KVMM_GPU_MAX_CHUNK
 * @libcuda: library to load; NULL: "libcuda.so.1"
 * @libdrm: library to load; NULL: "libdrm.so.2"
 * @sysfs: where sysfs is; NULL: "/sys"
 * @host_delay_us: host: sleep a random time up to this before each operation,
 *	so that tests see real asynchrony
 *
 * With neither @index nor @pci the device is that of the caller's current CUDA
 * context; without one, the only device there is.  The context is the current
 * one where it belongs to the chosen device (the caller keeps it until the
 * device is closed), else the device's primary one, retained.
 */
struct kvmm_gpu_opts {
	unsigned int flags;
	enum kvmm_gpu_backend backend;
	int index;
	const char *pci;
	enum kvmm_gpu_path path;
	size_t crossover;
	size_t max_chunk;
	const char *libcuda;
	const char *libdrm;
	const char *sysfs;
	unsigned int host_delay_us;
};

/**
 * struct kvmm_gpu_info - what was opened
 * @backend: "cuda", "drm" or "host"
 * @name: the device's name, or the DRM driver's
 * @pci: PCI address, empty where there is none
 * @drm_node: path of the DRM render node at @pci, empty where there is none
 * @index: CUDA ordinal or place in the list of DRM nodes
 * @numa_node: the host memory closest to it, -1: unknown
 * @driver_version: CUDA version of the driver, 1000 * major + 10 * minor
 * @unified: host and device share one address space
 * @same_pointer: a registered address is its own device pointer
 * @pageable: enum kvmm_gpu_pageable
 * @own_context: the primary context was retained, none was current
 * @reg_rdonly: memory that is mapped for reading only can be registered
 * @has_kernel: the gather/scatter kernel loaded
 * @has_batch: the driver copies in batches
 * @dma_path: KVMM_GPU_PATH_BATCH or _PLAIN, for what doesn't go by the kernel
 * @calibrated: the crossovers were measured
 * @crossover: by enum kvmm_gpu_dir: fragments of fewer bytes go by the kernel
 * @note: why something is missing that could be there, else empty
 */
struct kvmm_gpu_info {
	const char *backend;
	char name[KVMM_GPU_NAME_LEN];
	char pci[16];
	char drm_node[KVMM_GPU_NAME_LEN];
	int index;
	int numa_node;
	int driver_version;
	bool unified;
	bool same_pointer;
	enum kvmm_gpu_pageable pageable;
	bool own_context;
	bool reg_rdonly;
	bool has_kernel;
	bool has_batch;
	enum kvmm_gpu_path dma_path;
	bool calibrated;
	size_t crossover[2];
	char note[160];
};

/**
 * kvmm_gpu_open() - open a device
 * @out: set on success
 * @opts: NULL: all defaults
 * @err: what went wrong, as a sentence; may be NULL
 * @err_len: bytes at @err
 *
 * Return: 0, or
 * -EINVAL: bad options, or several devices and none named;
 * -ENOENT: no driver: the library can't be loaded;
 * -EPROTONOSUPPORT: the driver is too old (before CUDA 11.3);
 * -ENOSYS: the driver lacks an entry point that is needed;
 * -ENODEV: the driver has no such device;
 * -EBUSY: another process has the device to itself;
 * -ENOMEM: no memory, of the host or of the device.
 */
int kvmm_gpu_open(struct kvmm_gpu **out, const struct kvmm_gpu_opts *opts,
		  char *err, size_t err_len);

/**
 * kvmm_gpu_close() - close a device; what is registered is unregistered
 * @gpu: NULL is fine
 *
 * Return: 0; -EBUSY while it has streams or events: nothing is closed.
 */
int kvmm_gpu_close(struct kvmm_gpu *gpu);

/** kvmm_gpu_info() - see struct kvmm_gpu_info */
void kvmm_gpu_info(const struct kvmm_gpu *gpu, struct kvmm_gpu_info *info);

/**
 * kvmm_gpu_error() - sentence that belongs to the latest error on this device
 * @gpu: the device
 * @text: where to
 * @len: bytes there
 *
 * With several threads on one device it may be another thread's error.
 */
void kvmm_gpu_error(struct kvmm_gpu *gpu, char *text, size_t len);

/**
 * kvmm_gpu_register() - let the device reach a range of host memory
 * @gpu: the device
 * @addr: page-aligned
 * @bytes: whole pages; registered in pieces of at most opts.max_chunk
 *
 * The memory must be there and stay mapped.  A frame must lie within a piece:
 * @addr is frame-aligned, frames divide the piece.  On failure nothing of the
 * range stays registered.
 *
 * Return: 0; -EINVAL: not aligned; -EEXIST: (partly) registered already, by
 * this device or by someone else in the process; -ENOMEM: the driver can't
 * pin as much; -EPERM.
 */
int kvmm_gpu_register(struct kvmm_gpu *gpu, void *addr, size_t bytes);

/**
 * kvmm_gpu_register_rdonly() - the same for memory that the device only reads
 * @gpu: the device
 * @addr: page-aligned
 * @bytes: whole pages
 *
 * Memory that is mapped for reading only can't be registered otherwise; the
 * arena of a pool that was opened with KVMM_POOL_RDONLY is.  A copy to it is
 * refused: -EACCES.
 *
 * Return: as kvmm_gpu_register(); -EOPNOTSUPP where the device can't, see
 * @reg_rdonly of struct kvmm_gpu_info.  One that reaches @pageable memory reads
 * it without.
 */
int kvmm_gpu_register_rdonly(struct kvmm_gpu *gpu, void *addr, size_t bytes);

/**
 * kvmm_gpu_unregister() - undo kvmm_gpu_register(), or _rdonly()
 * @gpu: the device
 * @addr: start of a registered range
 * @bytes: its whole length, or several such ranges without a gap
 *
 * No copy to or from it may be under way.
 * Return: 0; -ENOENT: not what was registered, nothing is changed.
 */
int kvmm_gpu_unregister(struct kvmm_gpu *gpu, void *addr, size_t bytes);

/**
 * kvmm_gpu_dev_ptr() - the address by which the device reads host memory
 * @gpu: the device
 * @host: address in a registered range, or any where @pageable allows it
 * @bytes: all of it within one registered piece
 * @dev: set on success
 *
 * Return: 0; -EFAULT: not registered, or not within one piece.
 */
int kvmm_gpu_dev_ptr(struct kvmm_gpu *gpu, const void *host, size_t bytes,
		     uint64_t *dev);

/**
 * kvmm_gpu_stream_create() - a stream of our own, which waits for no other
 * @gpu: the device
 * @out: set on success
 */
int kvmm_gpu_stream_create(struct kvmm_gpu *gpu, struct kvmm_gpu_stream **out);

/**
 * kvmm_gpu_stream_wrap() - use the caller's stream
 * @gpu: the device
 * @native: CUstream (NULL: the default one), or what kvmm_gpu_stream_native()
 *	returned for a stream of the same host device
 * @out: set on success
 *
 * The stream stays the caller's and must live longer than the wrapper.
 * Return: 0; -EINVAL: not a stream of this device's context.
 */
int kvmm_gpu_stream_wrap(struct kvmm_gpu *gpu, void *native,
			 struct kvmm_gpu_stream **out);

/** kvmm_gpu_stream_native() - the driver's handle: CUstream */
void *kvmm_gpu_stream_native(const struct kvmm_gpu_stream *stream);

/**
 * kvmm_gpu_stream_sync() - wait until all that was put into the stream is done
 * @stream: the stream
 *
 * Return: 0, or the error of something that ran in it.
 */
int kvmm_gpu_stream_sync(struct kvmm_gpu_stream *stream);

/**
 * kvmm_gpu_stream_destroy() - done with a stream
 * @stream: NULL is fine.  One of our own is drained first.
 */
void kvmm_gpu_stream_destroy(struct kvmm_gpu_stream *stream);

/**
 * kvmm_gpu_event_create() - something to order streams by
 * @gpu: the device
 * @out: set on success
 */
int kvmm_gpu_event_create(struct kvmm_gpu *gpu, struct kvmm_gpu_event **out);

/**
 * kvmm_gpu_event_wrap() - use the caller's event, e.g. one recorded after the
 * computation that fills a block
 * @gpu: the device
 * @native: CUevent, or what kvmm_gpu_event_native() returned
 * @out: set on success
 *
 * The event stays the caller's and must live longer than the wrapper.
 */
int kvmm_gpu_event_wrap(struct kvmm_gpu *gpu, void *native,
			struct kvmm_gpu_event **out);

/** kvmm_gpu_event_native() - the driver's handle: CUevent */
void *kvmm_gpu_event_native(const struct kvmm_gpu_event *event);

/**
 * kvmm_gpu_event_record() - @event is done when what is in @stream now is done
 * @event: recording again forgets the record before; who waits keeps it
 * @stream: a stream of the same device
 */
int kvmm_gpu_event_record(struct kvmm_gpu_event *event,
			  struct kvmm_gpu_stream *stream);

/**
 * kvmm_gpu_event_query() - done? never blocks
 * @event: one that was never recorded is done
 *
 * Return: 1: done, 0: not yet, or -errno.
 */
int kvmm_gpu_event_query(struct kvmm_gpu_event *event);

/** kvmm_gpu_event_wait() - block (without spinning) until @event is done */
int kvmm_gpu_event_wait(struct kvmm_gpu_event *event);

/**
 * kvmm_gpu_stream_wait() - what is put into @stream from now on waits for
 * @event's record as it is now; the caller doesn't block
 * @stream: a stream of the same device
 * @event: one that was never recorded holds up nothing
 */
int kvmm_gpu_stream_wait(struct kvmm_gpu_stream *stream,
			 struct kvmm_gpu_event *event);

/** kvmm_gpu_event_destroy() - NULL is fine; what waits for it still does */
void kvmm_gpu_event_destroy(struct kvmm_gpu_event *event);

/**
 * struct kvmm_gpu_run - fragments at equal distances in device memory
 * @dev: device address of the first
 * @stride: bytes from one to the next; at least @bytes where @count > 1
 * @bytes: of one fragment, > 0
 * @count: fragments, > 0
 */
struct kvmm_gpu_run {
	uint64_t dev;
	uint64_t stride;
	size_t bytes;
	size_t count;
};

/**
 * struct kvmm_gpu_copy - one frame: its runs lie in it packed, in order
 * @host: where the first fragment is in host memory
 * @runs: what is copied
 * @nr_runs: how many
 */
struct kvmm_gpu_copy {
	void *host;
	const struct kvmm_gpu_run *runs;
	size_t nr_runs;
};

/**
 * kvmm_gpu_copy() - put a batch of copies into a stream
 * @stream: the stream
 * @dir: enum kvmm_gpu_dir
 * @copies: frames; no two may overlap, on either side
 * @nr: how many
 *
 * Returns at once; the arrays may go then.  Host memory must stay registered
 * and device memory allocated until an event recorded afterwards is done.
 * Fragments that lie next to each other on the device are copied as one.
 *
 * Return: 0; -EINVAL: a bad run; -EFAULT: host memory is not registered or not
 * within one registered piece; -EACCES: it is registered for reading only, and
 * would be written (nothing is copied in these cases).  With other
 * errors part of the batch may be in the stream: sync it before reusing memory.
 */
int kvmm_gpu_copy(struct kvmm_gpu_stream *stream, enum kvmm_gpu_dir dir,
		  const struct kvmm_gpu_copy *copies, size_t nr);

/**
 * kvmm_gpu_import() - give the device a dma-buf (drm backend, PRIME)
 * @gpu: the device
 * @dmabuf_fd: stays the caller's
 * @handle: GEM handle, set on success
 * @bytes: size of the buffer, set on success
 */
int kvmm_gpu_import(struct kvmm_gpu *gpu, int dmabuf_fd, uint32_t *handle,
		    uint64_t *bytes);

/** kvmm_gpu_import_release() - drop what kvmm_gpu_import() returned */
int kvmm_gpu_import_release(struct kvmm_gpu *gpu, uint32_t handle);

/**
 * struct kvmm_gpu_drm_node - a DRM device
 * @node: render node, or the primary one where it has none
 * @driver: name of the kernel driver
 * @pci: PCI address, empty for other buses
 * @numa_node: -1: unknown
 */
struct kvmm_gpu_drm_node {
	char node[KVMM_GPU_NAME_LEN];
	char driver[32];
	char pci[16];
	int numa_node;
};

/**
 * kvmm_gpu_drm_list() - list DRM devices
 * @opts: only @libdrm and @sysfs are used; NULL: defaults
 * @nodes: room for @n
 * @n: how many
 * @err: what went wrong, or why the list is empty; may be NULL
 * @err_len: bytes at @err
 *
 * Return: devices found, at most @n; 0: there is none; -ENOENT: no libdrm.
 */
int kvmm_gpu_drm_list(const struct kvmm_gpu_opts *opts,
		      struct kvmm_gpu_drm_node *nodes, int n, char *err,
		      size_t err_len);

#endif /* KVMM_GPU_H */
