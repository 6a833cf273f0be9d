// SPDX-License-Identifier: MIT
/*
 * User backend: swap I/O by io_uring, one ring for an area.
 *
 * One ring, because registering the arena pins and accounts all of it for each
 * ring.  There is no thread behind it: of the threads that wait for I/O, one
 * waits in the kernel for completions, of whosever requests, and finishes them;
 * the others sleep until I/O has ended, and one of them takes over when the
 * first has what it came for.  The ring's memory is touched under the area's
 * lock only; waiting in the kernel happens without it.
 */
#include "backend_user.h"

#include <liburing.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Completions to wait for at once: wake-ups cost more than a little delay. */
#define WAIT_BATCH	16
/* The kernel was short of something when it was given requests. */
#define RETRY_US	200

/* What has become of a chunk of the arena. */
enum chunk_state {
	CHUNK_UNKNOWN,
	CHUNK_REGISTERED,
	CHUNK_PLAIN,
};

/**
 * struct uring - user_area.priv; all of it under user_area.lock
 * @ring: the ring; its file 0 is the area
 * @inflight: requests whose completion has not been taken
 * @reaping: a thread waits in the kernel
 * @table: the kernel took a table of buffers
 * @nr_chunks: pieces of the arena
 * @chunk: enum chunk_state of each
 */
struct uring {
	struct io_uring ring;
	uint32_t inflight;
	bool reaping;
	bool table;
	uint32_t nr_chunks;
	unsigned char chunk[];
};

static int ring_init(struct io_uring *ring, unsigned int entries)
{
	int err;

	/* Completions run when the submitter is in the kernel anyway. */
	err = io_uring_queue_init(entries, ring, IORING_SETUP_COOP_TASKRUN);
	if (err == -EINVAL)
		err = io_uring_queue_init(entries, ring, 0);
	/* Without it nobody can wait until a deadline. */
	if (!err && !(ring->features & IORING_FEAT_EXT_ARG)) {
		io_uring_queue_exit(ring);
		err = -EOPNOTSUPP;
	}
	return err;
}

int io_uring_probe(void)
{
	struct io_uring ring;
	int err = ring_init(&ring, 2);

	if (!err)
		io_uring_queue_exit(&ring);
	return err;
}

static int uring_init(struct user_area *a)
{
	uint32_t nr = (uint32_t)((a->up->arena_bytes - 1) >>
				 USER_CHUNK_SHIFT) + 1;
	struct uring *u = calloc(1, sizeof(*u) + nr);
	int err;

	if (!u)
		return -ENOMEM;
	u->nr_chunks = nr;
	err = ring_init(&u->ring, USER_DEPTH);
	if (!err) {
		err = io_uring_register_files(&u->ring, &a->fd, 1);
		if (err)
			io_uring_queue_exit(&u->ring);
	}
	if (err) {
		free(u);
		return err;
	}
	u->table = !io_uring_register_buffers_sparse(&u->ring, nr);
	a->priv = u;
	return 0;
}

static void uring_exit(struct user_area *a)
{
	struct uring *u = a->priv;

	/* The ring goes in the background; pinned memory goes now. */
	if (u->table)
		io_uring_unregister_buffers(&u->ring);
	io_uring_unregister_files(&u->ring);
	io_uring_queue_exit(&u->ring);
	free(u);
}

/* Is this piece registered?  It is tried once all of its memory is there. */
static bool chunk_registered(struct user_area *a, struct uring *u,
			     uint32_t chunk)
{
	struct iovec iov;
	__u64 tag = 0;
	int err;

	if (u->chunk[chunk] != CHUNK_UNKNOWN || !u->table)
		return u->chunk[chunk] == CHUNK_REGISTERED;
	iov.iov_len = user_chunk_bytes(a->up, chunk);
	if (!iov.iov_len)
		return false;
	iov.iov_base = a->up->arena + ((size_t)chunk << USER_CHUNK_SHIFT);
	err = io_uring_register_buffers_update_tag(&u->ring, chunk, &iov, &tag,
						   1);
	if (err >= 0) {
		u->chunk[chunk] = CHUNK_REGISTERED;
		return true;
	}
	u->chunk[chunk] = CHUNK_PLAIN;
	kvmm_log_once(a->up->kv, ONCE_NO_REGISTER, KVMM_LOG_WARNING,
		      "arena not registered with io_uring (%s%s): swapping costs more CPU",
		      strerror(-err),
		      err == -ENOMEM ? ", see RLIMIT_MEMLOCK" : "");
	return false;
}

/* Puts what is left of @req into the submission queue, where there is room. */
static void queue(struct user_area *a, struct uring *u, struct io_req *req)
{
	unsigned int shift = a->up->block_shift;
	size_t frame = (size_t)req->io.frame << shift;
	uint32_t chunk = (uint32_t)(frame >> USER_CHUNK_SHIFT);
	unsigned char *data = a->up->arena + frame + req->moved;
	unsigned int bytes = req->bytes - req->moved;
	uint64_t at = a->offset + ((uint64_t)req->io.slot << shift) +
		      req->moved;
	bool fixed = chunk_registered(a, u, chunk);
	/* One for each request: there are as many entries. */
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (fixed && req->write)
		io_uring_prep_write_fixed(sqe, 0, data, bytes, at, (int)chunk);
	else if (fixed)
		io_uring_prep_read_fixed(sqe, 0, data, bytes, at, (int)chunk);
	else if (req->write)
		io_uring_prep_write(sqe, 0, data, bytes, at);
	else
		io_uring_prep_read(sqe, 0, data, bytes, at);
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	io_uring_sqe_set_data(sqe, req);
	u->inflight++;
}

/*
 * What the kernel does not take now stays in the queue, and goes with the next
 * submission; waiting submits again, so nothing is forgotten.
 */
static void submit(struct uring *u)
{
	while (io_uring_sq_ready(&u->ring))
		if (io_uring_submit(&u->ring) <= 0)
			break;
}

static void uring_start(struct user_area *a, struct io_list *list)
{
	struct uring *u = a->priv;
	struct io_req *req;

	pthread_mutex_lock(&a->lock);
	while ((req = io_list_take(list)))
		queue(a, u, req);
	submit(u);
	pthread_mutex_unlock(&a->lock);
}

/*
 * One completion.  Parts of a transfer, and what was cancelled because the
 * thread that submitted it has ended, go on, but not once they are late.
 * Return: it has ended.
 */
static bool complete(struct user_area *a, struct uring *u, struct io_req *req,
		     int res)
{
	if (!req->late &&
	    (res == -EAGAIN || res == -EINTR || res == -ECANCELED)) {
		queue(a, u, req);
		return false;
	}
	if (res <= 0) {
		req->err = res ? res : -EIO;
		return true;
	}
	req->moved += (uint32_t)res;
	if (req->moved >= req->bytes)
		return true;
	if (req->late) {
		req->err = -ETIMEDOUT;
		return true;
	}
	queue(a, u, req);
	return false;
}

/* Takes what has completed; the area's lock is held. */
static void reap(struct user_area *a, struct uring *u, struct io_list *done)
{
	struct io_uring_cqe *cqe[WAIT_BATCH];
	unsigned int n, i;

	while ((n = io_uring_peek_batch_cqe(&u->ring, cqe, WAIT_BATCH))) {
		struct io_req *req[WAIT_BATCH];
		int res[WAIT_BATCH];

		for (i = 0; i < n; i++) {
			req[i] = io_uring_cqe_get_data(cqe[i]);
			res[i] = cqe[i]->res;
		}
		io_uring_cq_advance(&u->ring, n);
		u->inflight -= n;
		for (i = 0; i < n; i++)
			if (complete(a, u, req[i], res[i]))
				io_list_add(done, req[i]);
	}
	submit(u);
}

/* Waits in the kernel for @want completions, or until @until if not 0. */
static void sleep_in_kernel(struct uring *u, uint32_t want, uint64_t until)
{
	uint64_t now = user_mono_us(), us = until > now ? until - now : 0;
	struct __kernel_timespec ts = {
		.tv_sec = (long long)(us / 1000000),
		.tv_nsec = (long long)(us % 1000000 * 1000),
	};
	struct io_uring_getevents_arg arg = {
		.sigmask_sz = _NSIG / 8,
		.ts = until ? (uintptr_t)&ts : 0,
	};

	if (until && !us)
		want = 0;
	io_uring_enter2((unsigned int)u->ring.ring_fd, 0, want,
			IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
			(sigset_t *)&arg, sizeof(arg));
}

static void uring_wait(struct user_area *a, uint64_t seq, uint32_t want,
		       uint64_t until)
{
	struct uring *u = a->priv;
	struct io_list done = { 0 };

	pthread_mutex_lock(&a->lock);
	if (u->reaping || !u->inflight) {
		/* Someone else takes them, or is finishing the last. */
		pthread_mutex_unlock(&a->lock);
		io_seq_wait(a->up, seq, until);
		return;
	}
	reap(a, u, &done);
	if (!done.nr) {
		if (want > WAIT_BATCH)
			want = WAIT_BATCH;
		if (want > u->inflight)
			want = u->inflight;
		/* What could not be submitted will not complete: try again */
		if (io_uring_sq_ready(&u->ring))
			want = 0;
		u->reaping = true;
		pthread_mutex_unlock(&a->lock);
		if (!want)
			usleep(RETRY_US);
		sleep_in_kernel(u, want, until);
		pthread_mutex_lock(&a->lock);
		u->reaping = false;
		reap(a, u, &done);
	}
	pthread_mutex_unlock(&a->lock);
	io_finish(a, &done);
}

static void uring_poll(struct user_area *a)
{
	struct uring *u = a->priv;
	struct io_list done = { 0 };

	pthread_mutex_lock(&a->lock);
	if (!u->reaping && u->inflight)
		reap(a, u, &done);
	pthread_mutex_unlock(&a->lock);
	io_finish(a, &done);
}

const struct io_engine io_engine_uring = {
	.name = "io_uring",
	.init = uring_init,
	.exit = uring_exit,
	.start = uring_start,
	.wait = uring_wait,
	.poll = uring_poll,
};
