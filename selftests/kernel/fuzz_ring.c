// SPDX-License-Identifier: MIT
/*
 * The fuzzer's io_uring: rings of every kind, commands good and bad, links,
 * cancellation, rings closed with commands in flight.
 */
#include <errno.h>
#include <string.h>

#include "fuzz.h"

static void start(struct fz *z)
{
	static const unsigned int kinds[] = {
		0, 0, 0,
		IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER,
		IORING_SETUP_COOP_TASKRUN,
		IORING_SETUP_SQPOLL,
		IORING_SETUP_IOPOLL,
		IORING_SETUP_SQE128,
		IORING_SETUP_CQE32,
		IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CLAMP,
	};
	struct io_uring_params p = {
		.flags = kinds[fz_below(z, sizeof(kinds) / sizeof(*kinds))],
		.sq_thread_idle = 5,
	};
	int ret = io_uring_queue_init_params(1 << fz_below(z, 6), &z->ring, &p);

	z->ring_up = !ret;
	z->registered = false;
	fz_say(z, "ring", ret);
}

void fz_ring_end(struct fz *z)
{
	if (z->ring_up)
		io_uring_queue_exit(&z->ring);
	z->ring_up = false;
	fz_say(z, "ring exit", 0);
}

static void command(struct fz *z, struct io_uring_sqe *sqe)
{
	struct kvmm_swap_cmd cmd = fz_swap_cmd(z);
	uint64_t flags = sqe->flags;

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fz_client(z, true)->fd;
	sqe->cmd_op = fz_one_in(z, 30) ? fz_junk(z) :
		fz_one_in(z, 2) ? KVMM_URING_SWAP_IN : KVMM_URING_SWAP_OUT;
	sqe->flags = flags;
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
	if (fz_one_in(z, 4))
		sqe->flags |= IOSQE_ASYNC;
	if (fz_one_in(z, 8))
		sqe->flags |= fz_one_in(z, 2) ? IOSQE_IO_LINK :
			IOSQE_IO_HARDLINK;
	if (fz_one_in(z, 16))
		sqe->flags |= IOSQE_IO_DRAIN;
	if (fz_one_in(z, 16))
		sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
	sqe->user_data = fz_below(z, 4);
}

static void submit(struct fz *z)
{
	uint32_t n = fz_one_in(z, 8) ? 32 : 1 + fz_below(z, 4);
	struct io_uring_sqe *sqe;
	int ret;

	while (n-- && (sqe = io_uring_get_sqe(&z->ring))) {
		sqe->flags = 0;
		if (fz_one_in(z, 12)) {
			io_uring_prep_nop(sqe);
			memset(sqe, 0, sizeof(*sqe));
			sqe->opcode = IORING_OP_ASYNC_CANCEL;
			sqe->addr = fz_below(z, 4);
			continue;
		}
		command(z, sqe);
		z->shared->calls[FZ_CMDS - 1]++;
	}
	ret = io_uring_submit(&z->ring);
	fz_say(z, "submit", ret);
}

static void reap(struct fz *z)
{
	struct __kernel_timespec limit = { .tv_nsec = 1000000 };
	struct io_uring_cqe *cqe;
	int n = 0;

	if (fz_one_in(z, 2))
		io_uring_wait_cqe_timeout(&z->ring, &cqe, &limit);
	while (!io_uring_peek_cqe(&z->ring, &cqe)) {
		if (cqe->res > 0)
			z->shared->good[FZ_CMDS - 1]++;
		io_uring_cqe_seen(&z->ring, cqe);
		n++;
	}
	fz_say(z, "reap", n);
}

/* Pins every page of a mapping, as a driver's registration does. */
static void register_buffers(struct fz *z)
{
	struct fz_client *c = fz_client(z, true);
	struct iovec vec = { c->map, c->len };
	int ret;

	if (z->registered) {
		ret = io_uring_unregister_buffers(&z->ring);
		z->registered = false;
		fz_say(z, "unregister", ret);
		return;
	}
	if (!c->map)
		return;
	ret = io_uring_register_buffers(&z->ring, &vec, 1);
	z->registered = !ret;
	fz_say(z, "register", ret);
}

void fz_ring(struct fz *z)
{
	if (!z->ring_up) {
		start(z);
		return;
	}
	switch (fz_below(z, 16)) {
	case 0:
		fz_ring_end(z);
		break;
	case 1:
		register_buffers(z);
		break;
	case 2 ... 7:
		reap(z);
		break;
	default:
		submit(z);
	}
}
