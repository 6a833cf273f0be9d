/* SPDX-License-Identifier: MIT */
/*
 * Swap commands through io_uring, for the kernel tests.
 */
#ifndef KT_RING_H
#define KT_RING_H

#include <liburing.h>

#include "kvmm_test.h"

/**
 * struct kt_ring - a ring and how commands go into it
 * @ring: liburing's
 * @fd: what sqe->fd is: the client's file, or 0 for the registered one
 * @sqe_flags: IOSQE_* of each command
 */
struct kt_ring {
	struct io_uring ring;
	int fd;
	unsigned int sqe_flags;
};

/* Sets a ring up with IORING_SETUP_* @flags; @fixed: registers @t's file. */
int kt_ring_init(struct kt_ring *r, struct kt *t, unsigned int entries,
		 unsigned int flags, bool fixed);
void kt_ring_exit(struct kt_ring *r);

/* Prepares a command, whatever it is; NULL: the ring is full. */
struct io_uring_sqe *kt_ring_cmd(struct kt_ring *r, uint32_t op,
				 const struct kvmm_swap_cmd *cmd,
				 uint64_t user_data);

/* One block by its handle. */
int kt_ring_one(struct kt_ring *r, uint32_t op, uint64_t handle,
		uint32_t flags, uint64_t user_data);

int kt_ring_submit(struct kt_ring *r);

/* Waits for one completion, at most 30 s; user_data where not NULL. */
int kt_ring_wait(struct kt_ring *r, uint64_t *user_data);

/* Prepares, submits and waits: cqe->res. */
int kt_ring_do(struct kt_ring *r, uint32_t op, const struct kvmm_swap_cmd *cmd);

/* The same for one block. */
int kt_ring_do1(struct kt_ring *r, uint32_t op, uint64_t handle,
		uint32_t flags);

#endif /* KT_RING_H */
