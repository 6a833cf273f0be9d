// SPDX-License-Identifier: MIT
/*
 * Kernel backend: pools of /dev/kvmm, by ioctl.
 *
 * What does not fit into one command is split.  A chain that is split begins
 * anew with each command, and the part that comes last is the youngest: so
 * the parts of a chain are given last part first.
 */
#include "backend_kernel.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* How often, 1 ms apart, a swap-in asks again for a frame without progress. */
#define ROOM_TRIES	1000

static int command(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) < 0 ? -errno : 0;
}

static unsigned int lot(unsigned int left)
{
	return left < KVMM_MAX_BATCH ? left : KVMM_MAX_BATCH;
}

static uint64_t user_ptr(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

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
	err = command(kb->fd, KVMM_INFO, &info);
	/* Not our device, or not our version of it. */
	if (err == -ENOTTY || (!err && info.abi != KVMM_ABI))
		err = -EPROTO;
	if (err)
		goto fail_fd;
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
	return command(kernel_backend(kv)->fd, KVMM_INFO, info);
}

static struct kernel_client *client_alloc(struct kvmm *kv, bool rdonly)
{
	struct kernel_client *cl = calloc(1, sizeof(*cl));

	if (!cl)
		return NULL;
	cl->pool.kv = kv;
	cl->pool.rdonly = rdonly;
	pthread_mutex_init(&cl->lock, NULL);
	return cl;
}

static void client_free(struct kernel_client *cl)
{
	kernel_uring_exit(cl);
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
		return -ENOMEM;
	cl->pool.arena = arena;
	cl->pool.arena_bytes = bytes;
	cl->pool.block_shift = (unsigned int)__builtin_ctz(block_size);
	return 0;
}

static int kernel_pool_destroy(struct kvmm *kv, struct kvmm_pool_destroy *arg)
{
	return command(kernel_backend(kv)->fd, KVMM_POOL_DESTROY, arg);
}

static int kernel_pool_create(struct kvmm *kv, struct kvmm_pool_create *arg,
			      struct kvmm_pool **out)
{
	struct kvmm_pool_destroy destroy = {
		.size = sizeof(destroy),
		.flags = KVMM_POOL_FORCE,
	};
	struct kernel_client *cl = client_alloc(kv, false);
	int err;

	if (!cl)
		return -ENOMEM;
	cl->pool.fd = open_device(kernel_backend(kv)->device, false);
	err = cl->pool.fd < 0 ? cl->pool.fd : 0;
	if (!err)
		err = command(cl->pool.fd, KVMM_POOL_CREATE, arg);
	if (err) {
		client_free(cl);
		return err;
	}
	err = client_map(cl, arg->arena_size, arg->block_size);
	if (err) {
		client_free(cl);
		memcpy(destroy.name, arg->name, sizeof(arg->name));
		kernel_pool_destroy(kv, &destroy);
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
	struct kernel_client *cl = client_alloc(kv, rdonly);
	int err, flags;

	if (!cl)
		return -ENOMEM;
	cl->pool.fd = open_device(kernel_backend(kv)->device, rdonly);
	err = cl->pool.fd < 0 ? cl->pool.fd : 0;
	if (!err)
		err = command(cl->pool.fd, KVMM_POOL_OPEN, arg);
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
		.entries = user_ptr(entries),
		.count = lot(n),
	};
	int err = command(kernel_backend(kv)->fd, KVMM_POOL_LIST, &arg);

	if (err)
		return err;
	*cursor = arg.cursor;
	return arg.done;
}

static int kernel_pool_reset(struct kvmm_pool *pool, uint64_t *epoch)
{
	struct kvmm_pool_reset arg = { .size = sizeof(arg) };
	int err = command(pool->fd, KVMM_POOL_RESET, &arg);

	if (!err)
		*epoch = arg.epoch;
	return err;
}

static int kernel_pool_stat(struct kvmm_pool *pool, struct kvmm_pool_stat *st)
{
	return command(pool->fd, KVMM_POOL_STAT, st);
}

static int kernel_pool_clock(struct kvmm_pool *pool, uint64_t now_ms)
{
	struct kvmm_pool_clock arg = { .size = sizeof(arg), .now_ms = now_ms };

	return command(pool->fd, KVMM_POOL_CLOCK, &arg);
}

static int kernel_populate(struct kvmm_pool *pool, unsigned int first,
			   unsigned int count, unsigned int *done)
{
	struct kvmm_populate arg = {
		.size = sizeof(arg),
		.first = first,
		.count = count,
	};
	int err = command(pool->fd, KVMM_POPULATE, &arg);

	*done = arg.done;
	return err;
}

/*
 * The module holds on to this open file, and so to the lock on it, as long as
 * the pool has the area: nobody takes the file for unused meanwhile.
 */
static int kernel_swap_attach(struct kvmm_pool *pool,
			      struct kvmm_swap_attach *arg)
{
	int err;

	if (flock(arg->fd, LOCK_EX | LOCK_NB))
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	err = command(pool->fd, KVMM_SWAP_ATTACH, arg);
	/* -EBUSY: the pool's present area may be this very file */
	if (err && err != -EBUSY)
		flock(arg->fd, LOCK_UN);
	return err;
}

static int kernel_swap_detach(struct kvmm_pool *pool, unsigned int flags)
{
	struct kvmm_swap_detach arg = { .size = sizeof(arg), .flags = flags };

	return command(pool->fd, KVMM_SWAP_DETACH, &arg);
}

static uint64_t mono_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static long kernel_alloc(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
			 unsigned int n, unsigned int nr_parts,
			 unsigned int timeout_ms)
{
	uint64_t until = timeout_ms ? mono_ms() + timeout_ms : 0, now;
	unsigned int got = 0;
	int err = 0;

	while (got < n && !err) {
		struct kvmm_alloc arg = {
			.size = sizeof(arg),
			.flags = timeout_ms ? KVMM_ALLOC_WAIT : 0,
			.refs = user_ptr(&refs[got]),
			.count = lot(n - got),
			.nr_parts = nr_parts,
			.timeout_ms = timeout_ms,
		};

		err = command(pool->fd, KVMM_ALLOC, &arg);
		got += arg.done;
		if (!timeout_ms || got == n)
			continue;
		now = mono_ms();
		if (now >= until)
			break;
		timeout_ms = (unsigned int)(until - now);
	}
	return got ? (long)got : err;
}

static long kernel_publish(struct kvmm_pool *pool,
			   struct kvmm_publish_entry *e, unsigned int n,
			   unsigned int flags)
{
	unsigned int first = (n - 1) / KVMM_MAX_BATCH * KVMM_MAX_BATCH;
	long good = 0;
	int err;

	for (;; first -= KVMM_MAX_BATCH) {
		struct kvmm_publish arg = {
			.size = sizeof(arg),
			.flags = flags,
			.entries = user_ptr(&e[first]),
			.count = lot(n - first),
		};

		err = command(pool->fd, KVMM_PUBLISH, &arg);
		if (err)
			return err;
		good += arg.done;
		if (!first)
			return good;
	}
}

static int one_batch(struct kvmm_pool *pool, unsigned int cmd,
		     struct kvmm_block_ref *refs, unsigned int n,
		     unsigned int *done)
{
	struct kvmm_batch arg = {
		.size = sizeof(arg),
		.refs = user_ptr(refs),
		.count = n,
	};
	int err = command(pool->fd, cmd, &arg);

	*done = arg.done;
	return err;
}

static long kernel_batch(struct kvmm_pool *pool, unsigned int cmd,
			 struct kvmm_block_ref *refs, unsigned int n)
{
	unsigned int first = (n - 1) / KVMM_MAX_BATCH * KVMM_MAX_BATCH;
	unsigned int done;
	long good = 0;
	int err;

	for (;; first -= KVMM_MAX_BATCH) {
		err = one_batch(pool, cmd, &refs[first], lot(n - first), &done);
		if (err)
			return err;
		good += done;
		if (!first)
			return good;
	}
}

/*
 * A prefix is looked up front first; where that took several commands its
 * parts are put in order by touching all but the last, from the back.
 */
static void order_parts(struct kvmm_pool *pool,
			const struct kvmm_block_ref *refs, unsigned int last)
{
	struct kvmm_block_ref *copy;
	unsigned int done;

	copy = malloc(KVMM_MAX_BATCH * sizeof(*copy));
	while (copy && last) {
		last -= KVMM_MAX_BATCH;
		memcpy(copy, &refs[last], KVMM_MAX_BATCH * sizeof(*copy));
		if (one_batch(pool, KVMM_TOUCH, copy, KVMM_MAX_BATCH, &done))
			break;
	}
	free(copy);
}

static long kernel_lookup(struct kvmm_pool *pool, const uint8_t *keys,
			  struct kvmm_block_ref *refs, unsigned int n,
			  unsigned int flags)
{
	bool leading = true;
	unsigned int i, m;
	long prefix = 0;
	int err;

	for (i = 0; i < n; i += m) {
		struct kvmm_lookup arg = {
			.size = sizeof(arg),
			.flags = flags,
			.keys = user_ptr(keys + (size_t)i * KVMM_KEY_LEN),
			.refs = user_ptr(&refs[i]),
			.count = lot(n - i),
		};

		m = arg.count;
		if (!leading && flags & KVMM_LOOKUP_PREFIX) {
			memset(&refs[i], 0, (n - i) * sizeof(*refs));
			for (; i < n; i++)
				refs[i].frame = KVMM_NO_FRAME;
			break;
		}
		err = command(pool->fd, KVMM_LOOKUP, &arg);
		if (err)
			return err;
		if (leading)
			prefix += arg.prefix;
		if (arg.prefix < m)
			leading = false;
		if (i && !(flags & KVMM_LOOKUP_PEEK))
			order_parts(pool, refs, i);
	}
	return prefix;
}

/* Where the blocks are now: frames, and those that have gone elsewhere. */
static int locate(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		  unsigned int n, bool out)
{
	struct kvmm_block_ref q[256];
	unsigned int i, k, m, done;
	int err;

	for (i = 0; i < n; i += m) {
		m = n - i < 256 ? n - i : 256;
		memcpy(q, &refs[i], m * sizeof(*q));
		err = one_batch(pool, KVMM_QUERY, q, m, &done);
		if (err)
			return err;
		for (k = 0; k < m; k++) {
			struct kvmm_block_ref *r = &refs[i + k];

			r->frame = q[k].frame;
			if (r->result || (out && q[k].result >= 0))
				continue;
			if (q[k].result < 0)
				r->result = q[k].result;
			else if (q[k].frame == KVMM_NO_FRAME)
				r->result = -EAGAIN;
		}
	}
	return 0;
}

static long swap_by_ioctl(struct kvmm_pool *pool, unsigned int cmd,
			  struct kvmm_block_ref *refs, unsigned int n,
			  unsigned int flags)
{
	long good = 0;
	unsigned int i, m;
	int err;

	for (i = 0; i < n; i += m) {
		struct kvmm_swap arg = {
			.size = sizeof(arg),
			.cmd.addr = user_ptr(&refs[i]),
			.cmd.count = lot(n - i),
			.cmd.flags = flags,
		};

		m = arg.cmd.count;
		err = command(pool->fd, cmd, &arg);
		if (err)
			return err;
		good += arg.done;
	}
	return good;
}

/*
 * Entries without a frame.  The kernel has begun to write blocks out for them
 * and does not wait; a call that waits for I/O in any case does, bounded.
 */
static int retry_without_frame(struct kvmm_pool *pool,
			       struct kvmm_block_ref *refs, unsigned int n,
			       unsigned int flags)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	unsigned int tries = ROOM_TRIES, left, before, i;
	struct kvmm_block_ref *again;
	long ret = 0;

	for (before = 0, i = 0; i < n; i++)
		before += refs[i].result == -EAGAIN;
	if (!before)
		return 0;
	again = malloc(before * sizeof(*again));
	if (!again)
		return 0;
	while (before && tries) {
		nanosleep(&pause, NULL);
		for (left = 0, i = 0; i < n; i++)
			if (refs[i].result == -EAGAIN)
				again[left++] = refs[i];
		ret = swap_by_ioctl(pool, KVMM_SWAP_IN, again, left, flags);
		if (ret < 0)
			break;
		for (left = 0, i = 0; i < n; i++)
			if (refs[i].result == -EAGAIN)
				refs[i] = again[left++];
		for (left = 0, i = 0; i < n; i++)
			left += refs[i].result == -EAGAIN;
		tries = left < before ? ROOM_TRIES : tries - 1;
		before = left;
	}
	free(again);
	return ret < 0 ? (int)ret : 0;
}

/*
 * One block is one ioctl, which also tells its frame; for more, io_uring keeps
 * many commands in flight whatever their number, and asks for the frames last.
 */
static long swap(struct kvmm_pool *pool, bool out, struct kvmm_block_ref *refs,
		 unsigned int n, unsigned int flags)
{
	bool uring = false;
	unsigned int i;
	long good = 0;
	int err;

	if (n == 1 || !kernel_backend(pool->kv)->uring) {
		good = swap_by_ioctl(pool, out ? KVMM_SWAP_OUT : KVMM_SWAP_IN,
				     refs, n, flags);
		err = good < 0 ? (int)good : 0;
	} else {
		uring = true;
		err = kernel_uring_swap(pool, out ? KVMM_URING_SWAP_OUT
						  : KVMM_URING_SWAP_IN,
					refs, n, flags);
	}
	if (!err && !out)
		err = retry_without_frame(pool, refs, n, flags);
	if (!err && uring)
		err = locate(pool, refs, n, out);
	if (err)
		return err;
	for (i = 0, good = 0; i < n; i++)
		good += refs[i].result >= 0;
	return good;
}

static long kernel_swap_out(struct kvmm_pool *pool,
			    struct kvmm_block_ref *refs, unsigned int n,
			    unsigned int flags)
{
	/* The command would say so for each entry; this is about the client */
	if (pool->rdonly)
		return -EACCES;
	return swap(pool, true, refs, n, flags);
}

static long kernel_swap_in(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
			   unsigned int n, unsigned int flags)
{
	return swap(pool, false, refs, n, flags);
}

static long kernel_keys(struct kvmm_pool *pool, uint64_t *cursor,
			struct kvmm_key_entry *e, unsigned int n)
{
	unsigned int k = 0;
	int err;

	while (k < n) {
		struct kvmm_keys arg = {
			.size = sizeof(arg),
			.cursor = *cursor,
			.entries = user_ptr(&e[k]),
			.count = lot(n - k),
		};

		err = command(pool->fd, KVMM_KEYS, &arg);
		if (err)
			return err;
		*cursor = arg.cursor;
		if (!arg.done)
			break;
		k += arg.done;
	}
	return k;
}

static long kernel_request_end(struct kvmm_pool *pool, uint64_t handle,
			       unsigned int output_tokens)
{
	struct kvmm_request_end arg = {
		.size = sizeof(arg),
		.handle = handle,
		.output_tokens = output_tokens,
	};
	int err = command(pool->fd, KVMM_REQUEST_END, &arg);

	return err ? err : (long)arg.done;
}

static long kernel_hint(struct kvmm_pool *pool, uint64_t handle,
			unsigned int permille, unsigned int delay_ms)
{
	struct kvmm_hint arg = {
		.size = sizeof(arg),
		.handle = handle,
		.permille = permille,
		.delay_ms = delay_ms,
	};
	int err = command(pool->fd, KVMM_HINT, &arg);

	return err ? err : (long)arg.done;
}

static int kernel_reclaim(struct kvmm_pool *pool, struct kvmm_reclaim *arg)
{
	return command(pool->fd, KVMM_RECLAIM, arg);
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
	.populate = kernel_populate,
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
};
