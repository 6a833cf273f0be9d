// SPDX-License-Identifier: MIT
/*
 * Kernel backend: events are read from the client's file.
 */
#include "backend_kernel.h"

#include <sys/uio.h>

int kernel_events(struct kvmm_pool *pool, uint64_t mask, unsigned int count)
{
	struct kvmm_events arg = {
		.size = sizeof(arg),
		.mask = mask,
		.count = count,
	};

	return kernel_command(pool->fd, KVMM_EVENTS, &arg);
}

int kernel_event_fd(struct kvmm_pool *pool)
{
	return pool->fd;
}

/* Without waiting, though the file itself may: another thread may be faster. */
long kernel_event_read(struct kvmm_pool *pool, struct kvmm_event *events,
		       unsigned int n)
{
	struct iovec iov = { events, n * sizeof(*events) };
	ssize_t got = preadv2(pool->fd, &iov, 1, -1, RWF_NOWAIT);

	if (got < 0)
		return -errno;
	return got ? got / (long)sizeof(*events) : -ENODEV;
}
