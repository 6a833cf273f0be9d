// SPDX-License-Identifier: MIT
/*
 * Kernel backend: the device, and the pools behind it.
 */
#include "backend_kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A client; who may only read the device is a read-only one. */
static int open_device(const char *device, bool rdonly)
{
	int fd = -1;

	if (!rdonly)
		fd = open(device, O_RDWR | O_CLOEXEC);
	if (rdonly || (fd < 0 && errno == EACCES))
		fd = open(device, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int kernel_open_device(struct kvmm *kv, bool rdonly)
{
	return open_device(kernel_backend(kv)->device, rdonly);
}

static void probe_uring(struct kvmm *kv, uint64_t features)
{
	int err = kv->no_uring ? -ECANCELED : kernel_uring_probe();

	if (!err && !(features & KVMM_FEATURE_URING))
		err = -EOPNOTSUPP;
	kernel_backend(kv)->uring = !err;
	if (kv->no_uring)
		kvmm_log_once(kv, ONCE_NO_URING, KVMM_LOG_INFO,
			      "io_uring is not to be used: ioctls do swap I/O");
	else if (err)
		kvmm_log_once(kv, ONCE_NO_URING, KVMM_LOG_WARNING,
			      "no io_uring here (%s): ioctls do swap I/O",
			      strerror(-err));
}

static int kernel_open(struct kvmm *kv, const char *device)
{
	struct kvmm_info info = { .size = sizeof(info) };
	struct kernel_backend *kb = calloc(1, sizeof(*kb));
	int err;

	if (!kb)
		return -ENOMEM;
	kb->device = strdup(device);
	kb->fd = kb->device ? open_device(device, false) : -ENOMEM;
	err = kb->fd < 0 ? kb->fd : 0;
	if (err)
		goto fail;
	err = kernel_command(kb->fd, KVMM_INFO, &info);
	/* Not our device, or not our version of it. */
	if (err == -ENOTTY || (!err && info.abi != KVMM_ABI))
		err = -EPROTO;
	if (err)
		goto fail_fd;
	kb->features = info.features;
	kv->priv = kb;
	probe_uring(kv, info.features);
	return 0;

fail_fd:
	close(kb->fd);
fail:
	free(kb->device);
	free(kb);
	return err;
}

static void kernel_close(struct kvmm *kv)
{
	struct kernel_backend *kb = kernel_backend(kv);

	close(kb->fd);
	free(kb->device);
	free(kb);
}

static const char *kernel_io_name(const struct kvmm *kv)
{
	return kernel_backend(kv)->uring ? "io_uring" : "ioctl";
}

static int kernel_info(struct kvmm *kv, struct kvmm_info *info)
{
	return kernel_command(kernel_backend(kv)->fd, KVMM_INFO, info);
}

static struct kernel_client *client_alloc(struct kvmm *kv, const char *name,
					  bool rdonly)
{
	struct kernel_client *cl = calloc(1, sizeof(*cl));

	if (!cl)
		return NULL;
	cl->pool.kv = kv;
	cl->pool.rdonly = rdonly;
	cl->watch = -1;
	memcpy(cl->name, name, sizeof(cl->name));
	pthread_mutex_init(&cl->lock, NULL);
	return cl;
}

static void client_free(struct kernel_client *cl)
{
	kernel_uring_exit(cl);
	kernel_watch_end(cl);
	if (cl->pool.arena)
		munmap(cl->pool.arena, cl->pool.arena_bytes);
	if (cl->pool.fd >= 0)
		close(cl->pool.fd);
	pthread_mutex_destroy(&cl->lock);
	free(cl);
}

static int client_map(struct kernel_client *cl, size_t bytes,
		      unsigned int block_size)
{
	void *arena = kvmm_map_arena(cl->pool.fd, bytes, cl->pool.rdonly);

	if (!arena)
		return -errno;
	cl->pool.arena = arena;
	cl->pool.arena_bytes = bytes;
	cl->pool.block_shift = (unsigned int)__builtin_ctz(block_size);
	return 0;
}

static int kernel_pool_destroy(struct kvmm *kv, struct kvmm_pool_destroy *arg)
{
	return kernel_command(kernel_backend(kv)->fd, KVMM_POOL_DESTROY, arg);
}

static int kernel_pool_create(struct kvmm *kv, struct kvmm_pool_create *arg,
			      struct kvmm_pool **out)
{
	struct kernel_client *cl = client_alloc(kv, arg->name, false);
	int err;

	if (!cl)
		return -ENOMEM;
	cl->pool.fd = kernel_open_device(kv, false);
	err = cl->pool.fd < 0 ? cl->pool.fd : 0;
	if (!err)
		err = kernel_command(cl->pool.fd, KVMM_POOL_CREATE, arg);
	if (err) {
		client_free(cl);
		return err;
	}
	err = client_map(cl, arg->arena_size, arg->block_size);
	if (err) {
		kvmm_pool_unmake(&cl->pool, arg->name);
		return err;
	}
	cl->pool.nr_frames = arg->nr_frames;
	cl->pool.nr_slots = arg->nr_slots;
	*out = &cl->pool;
	return 0;
}

static int kernel_pool_open(struct kvmm *kv, struct kvmm_pool_open *arg,
			    struct kvmm_pool **out)
{
	bool rdonly = arg->flags & KVMM_POOL_RDONLY;
	struct kernel_client *cl = client_alloc(kv, arg->name, rdonly);
	int err, flags;

	if (!cl)
		return -ENOMEM;
	cl->pool.fd = kernel_open_device(kv, rdonly);
	err = cl->pool.fd < 0 ? cl->pool.fd : 0;
	if (!err)
		err = kernel_command(cl->pool.fd, KVMM_POOL_OPEN, arg);
	if (!err) {
		flags = fcntl(cl->pool.fd, F_GETFL);
		if ((flags & O_ACCMODE) == O_RDONLY)
			cl->pool.rdonly = true;
		err = client_map(cl, arg->arena_size, arg->block_size);
	}
	if (err) {
		client_free(cl);
		return err;
	}
	cl->pool.nr_frames = arg->nr_frames;
	cl->pool.nr_slots = arg->nr_slots;
	*out = &cl->pool;
	return 0;
}

static void kernel_pool_close(struct kvmm_pool *pool)
{
	client_free(kernel_client(pool));
}

static long kernel_pool_list(struct kvmm *kv, uint64_t *cursor,
			     struct kvmm_pool_entry *entries, unsigned int n)
{
	struct kvmm_pool_list arg = {
		.size = sizeof(arg),
		.cursor = *cursor,
		.entries = kernel_ptr(entries),
		.count = kernel_lot(n),
	};
	int err = kernel_command(kernel_backend(kv)->fd, KVMM_POOL_LIST, &arg);

	if (err)
		return err;
	*cursor = arg.cursor;
	return arg.done;
}

static int kernel_pool_reset(struct kvmm_pool *pool, uint64_t *epoch)
{
	struct kvmm_pool_reset arg = { .size = sizeof(arg) };
	int err = kernel_command(pool->fd, KVMM_POOL_RESET, &arg);

	if (!err)
		*epoch = arg.epoch;
	return err;
}

static int kernel_lease(struct kvmm_pool *pool, struct kvmm_lease *arg)
{
	return kernel_command(pool->fd, KVMM_LEASE, arg);
}

static int kernel_pool_stat(struct kvmm_pool *pool, struct kvmm_pool_stat *st)
{
	return kernel_command(pool->fd, KVMM_POOL_STAT, st);
}

static int kernel_pool_clock(struct kvmm_pool *pool, uint64_t now_ms)
{
	struct kvmm_pool_clock arg = { .size = sizeof(arg), .now_ms = now_ms };

	return kernel_command(pool->fd, KVMM_POOL_CLOCK, &arg);
}

static int kernel_populate(struct kvmm_pool *pool, unsigned int first,
			   unsigned int count, unsigned int *done)
{
	struct kvmm_populate arg = {
		.size = sizeof(arg),
		.first = first,
		.count = count,
	};
	int err;

	/* What is there already is passed over: an interruption costs little */
	do {
		err = kernel_command(pool->fd, KVMM_POPULATE, &arg);
	} while (err == -EINTR);
	*done = arg.done;
	return err;
}

static int kernel_export(struct kvmm_pool *pool, unsigned int first,
			 unsigned int count, unsigned int flags)
{
	struct kvmm_export arg = {
		.size = sizeof(arg),
		.flags = flags,
		.first = first,
		.count = count,
	};
	int err = kernel_command(pool->fd, KVMM_EXPORT, &arg);

	/* A kernel without dma-buf, or a module that is older. */
	if (err == -ENOTTY)
		err = -EOPNOTSUPP;
	return err ? err : arg.fd;
}

const struct kvmm_ops kvmm_kernel_ops = {
	.name = "kernel",
	.open = kernel_open,
	.close = kernel_close,
	.io_name = kernel_io_name,
	.info = kernel_info,
	.pool_create = kernel_pool_create,
	.pool_open = kernel_pool_open,
	.pool_close = kernel_pool_close,
	.pool_destroy = kernel_pool_destroy,
	.pool_list = kernel_pool_list,
	.pool_reset = kernel_pool_reset,
	.pool_stat = kernel_pool_stat,
	.pool_clock = kernel_pool_clock,
	.lease = kernel_lease,
	.populate = kernel_populate,
	.populate_start = kernel_populate_start,
	.populate_wait = kernel_populate_wait,
	.populate_cancel = kernel_populate_cancel,
	.export = kernel_export,
	.swap_attach = kernel_swap_attach,
	.swap_detach = kernel_swap_detach,
	.alloc = kernel_alloc,
	.publish = kernel_publish,
	.lookup = kernel_lookup,
	.batch = kernel_batch,
	.swap_out = kernel_swap_out,
	.swap_in = kernel_swap_in,
	.keys = kernel_keys,
	.request_end = kernel_request_end,
	.hint = kernel_hint,
	.reclaim = kernel_reclaim,
	.events = kernel_events,
	.event_fd = kernel_event_fd,
	.event_read = kernel_event_read,
};
