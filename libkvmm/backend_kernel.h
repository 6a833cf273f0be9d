/* SPDX-License-Identifier: MIT */
/*
 * The kernel backend: every call is a command of <linux/kvmm.h>.
 *
 * backend_kernel.c		the device and its pools
 * backend_kernel_fill.c	memory that workers bring in
 * backend_kernel_block.c	commands on blocks
 * backend_kernel_swap.c	the swap area; swapping, by ioctl or
 * backend_kernel_uring.c	through io_uring
 * backend_kernel_event.c	events
 */
#ifndef LIBKVMM_BACKEND_KERNEL_H
#define LIBKVMM_BACKEND_KERNEL_H

#include "backend.h"

#include <pthread.h>
#include <sys/ioctl.h>

struct kernel_ring;

/**
 * struct kernel_backend - kvmm.priv; constant once open
 * @fd: client for commands that need no pool
 * @uring: swap commands go through io_uring
 * @features: KVMM_FEATURE_* of the module
 * @device: path of the device, for more clients
 */
struct kernel_backend {
	int fd;
	bool uring;
	uint64_t features;
	char *device;
};

/**
 * struct kernel_client - what a struct kvmm_pool is here
 * @pool: the public part; its fd is the client
 * @name: the pool's, padded with zeros
 * @lock: guards what is below
 * @idle: rings that no thread uses now
 * @watch: a client that is told how populates end; -1: none now
 * @watchers: calls that use it
 * @watch_over: it goes with the last of them
 * @populate_err: how the last one that it was told of ended
 */
struct kernel_client {
	struct kvmm_pool pool;
	char name[KVMM_NAME_LEN];
	pthread_mutex_t lock;
	struct kernel_ring *idle;
	int watch;
	unsigned int watchers;
	bool watch_over;
	int populate_err;
};

static inline struct kernel_client *kernel_client(struct kvmm_pool *pool)
{
	return (struct kernel_client *)pool;
}

static inline struct kernel_backend *kernel_backend(const struct kvmm *kv)
{
	return kv->priv;
}

/* One command; -errno. */
static inline int kernel_command(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) < 0 ? -errno : 0;
}

/* What of @left fits into one command. */
static inline unsigned int kernel_lot(unsigned int left)
{
	return left < KVMM_MAX_BATCH ? left : KVMM_MAX_BATCH;
}

static inline uint64_t kernel_ptr(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

/* backend_kernel.c */

/** kernel_open_device() - a new client, or -errno */
int kernel_open_device(struct kvmm *kv, bool rdonly);

/* backend_kernel_fill.c */
int kernel_populate_start(struct kvmm_pool *pool, unsigned int first,
			  unsigned int count, unsigned int threads);
int kernel_populate_wait(struct kvmm_pool *pool, int timeout_ms);
int kernel_populate_cancel(struct kvmm_pool *pool);
/** kernel_watch_end() - close the watch; locked, or nobody uses the client */
void kernel_watch_end(struct kernel_client *cl);

/* backend_kernel_block.c */
long kernel_alloc(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		  unsigned int n, unsigned int nr_parts,
		  unsigned int timeout_ms);
long kernel_publish(struct kvmm_pool *pool,
		    struct kvmm_publish_entry *e, unsigned int n,
		    unsigned int flags);
long kernel_batch(struct kvmm_pool *pool, unsigned int cmd,
		  struct kvmm_block_ref *refs, unsigned int n);
long kernel_lookup(struct kvmm_pool *pool, const uint8_t *keys,
		   struct kvmm_block_ref *refs, unsigned int n,
		   unsigned int flags);
long kernel_keys(struct kvmm_pool *pool, uint64_t *cursor,
		 struct kvmm_key_entry *e, unsigned int n);
long kernel_request_end(struct kvmm_pool *pool, uint64_t handle,
			unsigned int output_tokens);
long kernel_hint(struct kvmm_pool *pool, uint64_t handle,
		 unsigned int permille, unsigned int delay_ms);
int kernel_reclaim(struct kvmm_pool *pool, struct kvmm_reclaim *arg);
/**
 * kernel_one_batch() - kernel_batch() of at most KVMM_MAX_BATCH entries
 * @done: entries whose result is not an error
 */
int kernel_one_batch(struct kvmm_pool *pool, unsigned int cmd,
		     struct kvmm_block_ref *refs, unsigned int n,
		     unsigned int *done);

/* backend_kernel_swap.c */
int kernel_swap_attach(struct kvmm_pool *pool, struct kvmm_swap_attach *arg);
int kernel_swap_detach(struct kvmm_pool *pool, unsigned int flags);
long kernel_swap_out(struct kvmm_pool *pool,
		     struct kvmm_block_ref *refs, unsigned int n,
		     unsigned int flags);
long kernel_swap_in(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		    unsigned int n, unsigned int flags);

/* backend_kernel_event.c */
int kernel_events(struct kvmm_pool *pool, uint64_t mask, unsigned int count);
int kernel_event_fd(struct kvmm_pool *pool);
long kernel_event_read(struct kvmm_pool *pool, struct kvmm_event *events,
		       unsigned int n);

/* backend_kernel_uring.c */

/** kernel_uring_probe() - 0, or why io_uring can't be used here */
int kernel_uring_probe(void);

/**
 * kernel_uring_swap() - move blocks, one command for each
 * @op: KVMM_URING_SWAP_OUT or KVMM_URING_SWAP_IN
 *
 * Sets the results, not the frames.  Return: 0; -errno: nothing was done.
 */
int kernel_uring_swap(struct kvmm_pool *pool, unsigned int op,
		      struct kvmm_block_ref *refs, unsigned int n,
		      unsigned int flags);

/** kernel_uring_exit() - let go of all rings */
void kernel_uring_exit(struct kernel_client *cl);

#endif /* LIBKVMM_BACKEND_KERNEL_H */
