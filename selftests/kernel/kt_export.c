// SPDX-License-Identifier: MIT
/*
 * Exports of frames for the kernel tests, and two devices that import them:
 * vgem, the kernel's own, and kvmm-importer (importer/).
 */
#include <drm.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "importer/kvmm_importer.h"
#include "kvmm_test.h"

#define IMPORTER	"/dev/kvmm-importer"
#define VGEM		"/dev/dri/renderD128"

int kt_export(struct kt *t, uint32_t first, uint32_t count, uint32_t flags)
{
	struct kvmm_export arg = {
		.size = sizeof(arg), .flags = flags, .first = first,
		.count = count,
	};
	int ret = kt_ioctl(t->fd, KVMM_EXPORT, &arg);

	return ret ? ret : arg.fd;
}

void *kt_buf_map(int fd, size_t bytes, int prot)
{
	void *mem = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);

	return mem == MAP_FAILED ? NULL : mem;
}

int kt_buf_sync(int fd, bool begin)
{
	struct dma_buf_sync arg = {
		.flags = DMA_BUF_SYNC_RW |
			 (begin ? DMA_BUF_SYNC_START : DMA_BUF_SYNC_END),
	};

	return kt_ioctl(fd, DMA_BUF_IOCTL_SYNC, &arg);
}

bool kt_no_devices(void)
{
	const char *accel = getenv("KVMM_VM_ACCEL");

	return !accel || !strcmp(accel, "uml");
}

int kt_vgem_open(void)
{
	int fd = open(VGEM, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int kt_vgem_import(int vgem, int fd, uint32_t *handle)
{
	struct drm_prime_handle arg = { .fd = fd };
	int ret = kt_ioctl(vgem, DRM_IOCTL_PRIME_FD_TO_HANDLE, &arg);

	*handle = arg.handle;
	return ret;
}

int kt_vgem_export(int vgem, uint32_t handle)
{
	struct drm_prime_handle arg = {
		.handle = handle, .flags = DRM_CLOEXEC | DRM_RDWR,
	};
	int ret = kt_ioctl(vgem, DRM_IOCTL_PRIME_HANDLE_TO_FD, &arg);

	return ret ? ret : arg.fd;
}

int kt_vgem_close(int vgem, uint32_t handle)
{
	struct drm_gem_close arg = { .handle = handle };

	return kt_ioctl(vgem, DRM_IOCTL_GEM_CLOSE, &arg);
}

int kt_importer_open(void)
{
	int fd = open(IMPORTER, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int kt_importer_attach(int im, int fd, int dir, uint32_t max_seg,
		       uint32_t *nents, uint64_t *longest)
{
	struct importer_attach arg = {
		.fd = fd, .dir = dir, .max_seg = max_seg,
	};
	int ret = kt_ioctl(im, IMPORTER_ATTACH, &arg);

	if (nents)
		*nents = arg.nents;
	if (longest)
		*longest = arg.longest;
	return ret;
}

int kt_importer_copy(int im, void *mem, uint64_t offset, uint32_t len,
		     bool write, bool vmap)
{
	struct importer_copy arg = {
		.addr = (uintptr_t)mem, .offset = offset, .len = len,
		.write = write, .vmap = vmap,
	};

	return kt_ioctl(im, IMPORTER_COPY, &arg);
}

int kt_importer_detach(int im)
{
	return kt_ioctl(im, IMPORTER_DETACH, NULL);
}
