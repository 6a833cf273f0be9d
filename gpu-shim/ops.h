/* SPDX-License-Identifier: MIT */
/*
 * Between gpu.c, which checks arguments and keeps the table of registered
 * memory, and the backends, which do the work.
 */
#ifndef KVMM_GPU_OPS_H
#define KVMM_GPU_OPS_H

#include "gpu.h"

#include <errno.h>
#include <pthread.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/**
 * struct gpu_frags - fragments at equal distances, as a backend copies them
 * @dev: device address of the first
 * @dev_stride: from one to the next on the device
 * @host: address of the first in this process
 * @host_dev: the same for the device
 * @bytes: of one fragment; they are packed on the host
 * @count: fragments
 */
struct gpu_frags {
	uint64_t dev;
	uint64_t dev_stride;
	char *host;
	uint64_t host_dev;
	size_t bytes;
	size_t count;
};

/* A copy whose host side has been found in the table. */
struct gpu_copy {
	const struct kvmm_gpu_copy *copy;
	uint64_t host_dev;
};

/* Walks the fragments of one copy, neighbours merged. */
struct gpu_walk {
	const struct kvmm_gpu_copy *copy;
	size_t run;
	char *host;
	uint64_t host_dev;
};

void gpu_walk_start(struct gpu_walk *w, const struct gpu_copy *copy);
bool gpu_walk_next(struct gpu_walk *w, struct gpu_frags *frags);

/**
 * struct kvmm_gpu_ops - a backend
 * @name: what it is called
 * @size: bytes of its struct, which begins with a struct kvmm_gpu
 * @open: fill in the rest of it; on failure nothing is left behind
 * @close: undo @open
 * @reg: register one piece, which may be mapped for reading only where @rdonly
 *	is set; sets its device pointer
 * @unreg: unregister one piece; it is gone also when this fails
 * @stream_create: NULL where the backend doesn't copy, as all below
 * @stream_wrap: use the caller's
 * @stream_sync: wait for all that is in it
 * @stream_destroy: drain (where it is ours) and free
 * @event_create: make one
 * @event_wrap: use the caller's
 * @event_record: record
 * @event_query: 1, 0 or -errno
 * @event_wait: block
 * @event_destroy: free
 * @stream_wait: order
 * @copy: submit
 * @import: PRIME import; may be NULL
 * @release: undo @import
 */
struct kvmm_gpu_ops {
	const char *name;
	size_t size;
	int (*open)(struct kvmm_gpu *gpu, const struct kvmm_gpu_opts *opts);
	void (*close)(struct kvmm_gpu *gpu);
	int (*reg)(struct kvmm_gpu *gpu, void *addr, size_t bytes, bool rdonly,
		   uint64_t *dev);
	int (*unreg)(struct kvmm_gpu *gpu, void *addr);
	int (*stream_create)(struct kvmm_gpu *gpu,
			     struct kvmm_gpu_stream **out);
	int (*stream_wrap)(struct kvmm_gpu *gpu, void *native,
			   struct kvmm_gpu_stream **out);
	int (*stream_sync)(struct kvmm_gpu_stream *stream);
	void (*stream_destroy)(struct kvmm_gpu_stream *stream);
	int (*event_create)(struct kvmm_gpu *gpu, struct kvmm_gpu_event **out);
	int (*event_wrap)(struct kvmm_gpu *gpu, void *native,
			  struct kvmm_gpu_event **out);
	int (*event_record)(struct kvmm_gpu_event *event,
			    struct kvmm_gpu_stream *stream);
	int (*event_query)(struct kvmm_gpu_event *event);
	int (*event_wait)(struct kvmm_gpu_event *event);
	void (*event_destroy)(struct kvmm_gpu_event *event);
	int (*stream_wait)(struct kvmm_gpu_stream *stream,
			   struct kvmm_gpu_event *event);
	int (*copy)(struct kvmm_gpu_stream *stream, enum kvmm_gpu_dir dir,
		    const struct gpu_copy *copies, size_t nr);
	int (*import)(struct kvmm_gpu *gpu, int fd, uint32_t *handle,
		      uint64_t *bytes);
	int (*release)(struct kvmm_gpu *gpu, uint32_t handle);
};

extern const struct kvmm_gpu_ops gpu_cuda_ops;
extern const struct kvmm_gpu_ops gpu_drm_ops;
extern const struct kvmm_gpu_ops gpu_host_ops;

/* One registered piece.  Busy: the driver is being called for it.  Rdonly: the
 * device must not write to it.
 */
struct gpu_chunk {
	uintptr_t addr;
	size_t bytes;
	uint64_t dev;
	bool busy;
	bool rdonly;
};

/*
 * chunks_lock protects chunks, nr_chunks and max_chunks; it is never held
 * while the driver registers memory, which takes long.  err_lock protects
 * err.  live is atomic.  All else is written at open only.
 */
struct kvmm_gpu {
	const struct kvmm_gpu_ops *ops;
	struct kvmm_gpu_info info;
	size_t chunk_limit;
	pthread_rwlock_t chunks_lock;
	struct gpu_chunk *chunks;
	size_t nr_chunks;
	size_t max_chunks;
	pthread_mutex_t err_lock;
	char err[256];
	unsigned int live;
};

struct kvmm_gpu_stream {
	struct kvmm_gpu *gpu;
	void *native;
	bool wrapped;
};

struct kvmm_gpu_event {
	struct kvmm_gpu *gpu;
	void *native;
	bool wrapped;
};

/* Sets the sentence of the device's error; returns -err. */
int gpu_fail(struct kvmm_gpu *gpu, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Adds a sentence to info.note. */
void gpu_note(struct kvmm_gpu *gpu, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Brings a PCI address into the form "0000:65:00.0"; false: it isn't one. */
bool gpu_pci_parse(const char *text, char out[16]);

/* Reads SYSFS/bus/pci/devices/PCI/numa_node; -1: unknown. */
int gpu_pci_numa(const char *sysfs, const char *pci);

/* drm.c: path of the render node of a PCI device; false: none. */
bool gpu_drm_find(const struct kvmm_gpu_opts *opts, const char *pci,
		  char node[KVMM_GPU_NAME_LEN]);

#endif /* KVMM_GPU_OPS_H */
