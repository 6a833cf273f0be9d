/* SPDX-License-Identifier: MIT */
/*
 * The kernel backend: every call is a command of <linux/kvmm.h>.
 *
 * backend_kernel.c		pools and commands, by ioctl
 * backend_kernel_uring.c	swapping through io_uring
 */
#ifndef LIBKVMM_BACKEND_KERNEL_H
#define LIBKVMM_BACKEND_KERNEL_H

#include "backend.h"

#include <pthread.h>

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
