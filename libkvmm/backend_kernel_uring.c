// SPDX-License-Identifier: MIT
/*
 * Kernel backend: swapping through io_uring.
 *
 * One command a block (KVMM_SWAP_ONE): the completion is then the result of
 * that block, while a command on many tells a number only, and with
 * KVMM_SWAP_PIN nobody could say which of them carry the pin.  The commands are
 * submitted together, so a block costs an entry, not a system call.
 *
 * A thread takes an idle ring for a call and has it for itself; they need no
 * registered memory, so they are cheap, and there are as many as threads that
 * swapped at once.
 */
#include "backend_kernel.h"

#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Commands in flight for one call; completions to wait for at once. */
#define DEPTH		128
#define WAIT_BATCH	16
#define RETRY_US	200

struct kernel_ring {
	struct kernel_ring *next;
	struct io_uring ring;
};

static int ring_init(struct io_uring *ring, unsigned int entries)
{
	int err;

	/* Completions run when the submitter is in the kernel anyway. */
	err = io_uring_queue_init(entries, ring, IORING_SETUP_COOP_TASKRUN);
	if (err == -EINVAL)
		err = io_uring_queue_init(entries, ring, 0);
	return err;
}

int kernel_uring_probe(void)
{
	struct io_uring ring;
	int err = ring_init(&ring, 2);

	if (!err)
		io_uring_queue_exit(&ring);
	return err;
}

static struct kernel_ring *ring_get(struct kernel_client *cl, int *err)
{
	struct kernel_ring *r;

	pthread_mutex_lock(&cl->lock);
	r = cl->idle;
	if (r)
		cl->idle = r->next;
	pthread_mutex_unlock(&cl->lock);
	if (r)
		return r;
	r = calloc(1, sizeof(*r));
	*err = r ? ring_init(&r->ring, DEPTH) : -ENOMEM;
	if (*err) {
		free(r);
		return NULL;
	}
	return r;
}

static void ring_put(struct kernel_client *cl, struct kernel_ring *r)
{
	pthread_mutex_lock(&cl->lock);
	r->next = cl->idle;
	cl->idle = r;
	pthread_mutex_unlock(&cl->lock);
}

void kernel_uring_exit(struct kernel_client *cl)
{
	struct kernel_ring *r;

	while ((r = cl->idle)) {
		cl->idle = r->next;
		io_uring_queue_exit(&r->ring);
		free(r);
	}
}

/* liburing of Debian 12 has no io_uring_prep_* for this. */
static void prep(struct io_uring_sqe *sqe, int fd, unsigned int op,
		 uint64_t handle, unsigned int flags, unsigned int index)
{
	struct kvmm_swap_cmd cmd = {
		.addr = handle,
		.count = 1,
		.flags = flags | KVMM_SWAP_ONE,
	};

	_Static_assert(sizeof(cmd) == 16, "must fit into the entry");
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	sqe->cmd_op = op;
	sqe->user_data = index;
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
}

/* Takes completions; returns how many. */
static unsigned int reap(struct io_uring *ring, struct kvmm_block_ref *refs)
{
	struct io_uring_cqe *cqe[WAIT_BATCH];
	unsigned int n, i, all = 0;

	while ((n = io_uring_peek_batch_cqe(ring, cqe, WAIT_BATCH))) {
		for (i = 0; i < n; i++)
			/* One block: it is there, or the reason why not. */
			refs[cqe[i]->user_data].result =
				cqe[i]->res > 0 ? 0 :
				cqe[i]->res ? cqe[i]->res : -EAGAIN;
		io_uring_cq_advance(ring, n);
		all += n;
	}
	return all;
}

int kernel_uring_swap(struct kvmm_pool *pool, unsigned int op,
		      struct kvmm_block_ref *refs, unsigned int n,
		      unsigned int flags)
{
	struct kernel_client *cl = kernel_client(pool);
	unsigned int next = 0, inflight = 0, wait, ended;
	struct io_uring_sqe *sqe;
	struct kernel_ring *r;
	int err = 0, ret;

	r = ring_get(cl, &err);
	if (!r)
		return err;
	while (next < n || inflight) {
		while (next < n && inflight < DEPTH) {
			sqe = io_uring_get_sqe(&r->ring);
			if (!sqe)
				break;
			prep(sqe, pool->fd, op, refs[next].handle, flags, next);
			next++;
			inflight++;
		}
		wait = inflight < WAIT_BATCH ? inflight : WAIT_BATCH;
		ret = io_uring_submit_and_wait(&r->ring, wait);
		ended = reap(&r->ring, refs);
		inflight -= ended;
		/*
		 * An error is of the moment (no memory, a signal): what was not
		 * submitted is still in the queue.
		 */
		if (ret < 0 && !ended)
			usleep(RETRY_US);
	}
	ring_put(cl, r);
	return 0;
}
