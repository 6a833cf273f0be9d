/* SPDX-License-Identifier: MIT */
/*
 * The kernel backend: every call is a command of <linux/kvmm.h>.
 *
 * backend_kernel.c		the device and its pools
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
 * @device: path of the device, for more clients
 */
struct kernel_backend {
	int fd;
	bool uring;
	char *device;
};

/**
 * struct kernel_client - what a struct kvmm_pool is here
 * @pool: the public part; its fd is the client
 * @lock: guards @idle
 * @idle: rings that no thread uses now
 */
struct kernel_client {
	struct kvmm_pool pool;
	pthread_mutex_t lock;
	struct kernel_ring *idle;
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
