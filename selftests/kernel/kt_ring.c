// SPDX-License-Identifier: MIT
/*
 * Swap commands through io_uring, for the kernel tests.
 */
#include <errno.h>
#include <string.h>

#include "kt_ring.h"

int kt_ring_init(struct kt_ring *r, struct kt *t, unsigned int entries,
		 unsigned int flags, bool fixed)
{
	struct io_uring_params p = { .flags = flags };
	int ret;

	memset(r, 0, sizeof(*r));
	p.sq_thread_idle = 50;
	ret = io_uring_queue_init_params(entries, &r->ring, &p);
	if (ret)
		return ret;
	r->fd = t->fd;
	if (fixed) {
		ret = io_uring_register_files(&r->ring, &t->fd, 1);
		if (ret) {
			kt_ring_exit(r);
			return ret;
		}
		r->fd = 0;
		r->sqe_flags = IOSQE_FIXED_FILE;
	}
	return 0;
}

void kt_ring_exit(struct kt_ring *r)
{
	io_uring_queue_exit(&r->ring);
}

struct io_uring_sqe *kt_ring_cmd(struct kt_ring *r, uint32_t op,
				 const struct kvmm_swap_cmd *cmd,
				 uint64_t user_data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

	if (!sqe)
		return NULL;
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->flags = r->sqe_flags;
	sqe->fd = r->fd;
	sqe->cmd_op = op;
	sqe->user_data = user_data;
	memcpy(sqe->cmd, cmd, sizeof(*cmd));
	return sqe;
}

int kt_ring_one(struct kt_ring *r, uint32_t op, uint64_t handle,
		uint32_t flags, uint64_t user_data)
{
	struct kvmm_swap_cmd cmd = {
		.addr = handle, .count = 1, .flags = flags | KVMM_SWAP_ONE,
	};

	return kt_ring_cmd(r, op, &cmd, user_data) ? 0 : -EBUSY;
}

/*
 * With a thread that polls, the library also counts what that thread has done
 * with but not yet said so, and not what it was quick to take.
 */
int kt_ring_submit(struct kt_ring *r)
{
	int n = (int)(r->ring.sq.sqe_tail - r->ring.sq.sqe_head);
	int ret = io_uring_submit(&r->ring);

	return ret >= 0 && r->ring.flags & IORING_SETUP_SQPOLL ? n : ret;
}

int kt_ring_wait(struct kt_ring *r, uint64_t *user_data)
{
	struct __kernel_timespec limit = { .tv_sec = 30 };
	struct io_uring_cqe *cqe;
	int ret;

	do {
		ret = io_uring_wait_cqe_timeout(&r->ring, &cqe, &limit);
	} while (ret == -EINTR);
	if (ret)
		return ret;
	ret = cqe->res;
	if (user_data)
		*user_data = cqe->user_data;
	io_uring_cqe_seen(&r->ring, cqe);
	return ret;
}

int kt_ring_do(struct kt_ring *r, uint32_t op, const struct kvmm_swap_cmd *cmd)
{
	int ret;

	if (!kt_ring_cmd(r, op, cmd, 0))
		return -EBUSY;
	ret = kt_ring_submit(r);
	if (ret < 0)
		return ret;
	return kt_ring_wait(r, NULL);
}

int kt_ring_do1(struct kt_ring *r, uint32_t op, uint64_t handle,
		uint32_t flags)
{
	struct kvmm_swap_cmd cmd = {
		.addr = handle, .count = 1, .flags = flags | KVMM_SWAP_ONE,
	};

	return kt_ring_do(r, op, &cmd);
}
