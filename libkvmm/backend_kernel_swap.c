// SPDX-License-Identifier: MIT
/*
 * Kernel backend: the swap area, and swapping by ioctl or through io_uring.
 */
#include "backend_kernel.h"

#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

/* How often, 1 ms apart, a swap-in asks again for a frame without progress. */
#define ROOM_TRIES	1000

/*
 * The module holds on to this open file, and so to the lock on it, as long as
 * the pool has the area: nobody takes the file for unused meanwhile.
 */
int kernel_swap_attach(struct kvmm_pool *pool, struct kvmm_swap_attach *arg)
{
	int err;

	if (flock(arg->fd, LOCK_EX | LOCK_NB))
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	err = kernel_command(pool->fd, KVMM_SWAP_ATTACH, arg);
	/* -EBUSY: the pool's present area may be this very file */
	if (err && err != -EBUSY)
		flock(arg->fd, LOCK_UN);
	return err;
}

int kernel_swap_detach(struct kvmm_pool *pool, unsigned int flags)
{
	struct kvmm_swap_detach arg = { .size = sizeof(arg), .flags = flags };

	return kernel_command(pool->fd, KVMM_SWAP_DETACH, &arg);
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
		err = kernel_one_batch(pool, KVMM_QUERY, q, m, &done);
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
			.cmd.addr = kernel_ptr(&refs[i]),
			.cmd.count = kernel_lot(n - i),
			.cmd.flags = flags,
		};

		m = arg.cmd.count;
		err = kernel_command(pool->fd, cmd, &arg);
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

long kernel_swap_out(struct kvmm_pool *pool,
		     struct kvmm_block_ref *refs, unsigned int n,
		     unsigned int flags)
{
	/* The command would say so for each entry; this is about the client */
	if (pool->rdonly)
		return -EACCES;
	return swap(pool, true, refs, n, flags);
}

long kernel_swap_in(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		    unsigned int n, unsigned int flags)
{
	return swap(pool, false, refs, n, flags);
}
