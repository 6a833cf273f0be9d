// SPDX-License-Identifier: MIT
/*
 * Leases: what tells the kernel that a chunk is registered with a device.
 */
#include "engine.h"

#include <string.h>
#include <sys/ioctl.h>

int eng_lease(struct kvmm_pool *pool, unsigned int chunk, unsigned int flags)
{
	struct kvmm_lease arg = {
		.size = sizeof(arg),
		.flags = flags,
		.first = chunk,
		.count = 1,
	};

	/* the user backend gives nothing back */
	if (strcmp(kvmm_backend_name(pool->kv), "kernel"))
		return 0;
	while (ioctl(pool->fd, KVMM_LEASE, &arg))
		if (errno != EINTR)
			return -errno;
	return 0;
}
