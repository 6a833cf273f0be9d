// SPDX-License-Identifier: MIT
/*
 * A stand-in libdrm with two devices: a PCI one at 0000:a1:00.0 with a render
 * node, and a platform one with a primary node only.  Its nodes are files
 * that every machine has.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xf86drm.h>

#define EXPORT __attribute__((visibility("default")))
#define HANDLE 7

static drmPciBusInfo pci = {0, 0xa1, 0, 0};
static char *pci_nodes[DRM_NODE_MAX] = {
	[DRM_NODE_PRIMARY] = "/dev/full",
	[DRM_NODE_RENDER] = "/dev/zero",
};
static char *platform_nodes[DRM_NODE_MAX] = {
	[DRM_NODE_PRIMARY] = "/dev/null",
};
static drmDevice devices[] = {
	{
		.nodes = platform_nodes,
		.available_nodes = 1 << DRM_NODE_PRIMARY,
		.bustype = DRM_BUS_PLATFORM,
	},
	{
		.nodes = pci_nodes,
		.available_nodes = 1 << DRM_NODE_PRIMARY |
				   1 << DRM_NODE_RENDER,
		.bustype = DRM_BUS_PCI,
		.businfo.pci = &pci,
	},
};

EXPORT int drmGetDevices2(uint32_t flags, drmDevicePtr out[], int max)
{
	int i;

	for (i = 0; i < 2 && i < max && !flags; i++)
		out[i] = &devices[i];
	return i;
}

EXPORT void drmFreeDevices(drmDevicePtr out[], int count)
{
	(void)out;
	(void)count;
}

EXPORT drmVersionPtr drmGetVersion(int fd)
{
	drmVersionPtr v = calloc(1, sizeof(*v));

	(void)fd;
	if (v) {
		v->name = strdup("standin");
		v->name_len = 7;
	}
	return v;
}

EXPORT void drmFreeVersion(drmVersionPtr v)
{
	free(v->name);
	free(v);
}

EXPORT int drmPrimeFDToHandle(int fd, int prime_fd, uint32_t *handle)
{
	(void)fd;
	if (prime_fd < 0) {
		errno = EBADF;
		return -1;
	}
	*handle = HANDLE;
	return 0;
}

EXPORT int drmCloseBufferHandle(int fd, uint32_t handle)
{
	(void)fd;
	if (handle != HANDLE) {
		errno = EINVAL;
		return -1;
	}
	return 0;
}
