/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * /dev/kvmm-importer: a device that a test can have import a dma-buf.  One open
 * file holds one buffer.
 */
#ifndef KVMM_IMPORTER_H
#define KVMM_IMPORTER_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * struct importer_attach - import a buffer
 * @fd: the dma-buf
 * @dir: enum dma_data_direction, or -1: don't map it, for the kernel only
 * @max_seg: longest piece the device takes, bytes
 * @nents: out: pieces it got
 * @longest: out: bytes of the longest one
 */
struct importer_attach {
	__s32 fd;
	__s32 dir;
	__u32 max_seg;
	__u32 nents;
	__u64 longest;
};

/**
 * struct importer_copy - copy to or from the buffer
 * @addr: user memory
 * @offset: in the buffer
 * @len: bytes
 * @write: 1: to the buffer
 * @vmap: 1: through a mapping of the kernel's; 0: through the scatter list
 */
struct importer_copy {
	__u64 addr;
	__u64 offset;
	__u32 len;
	__u16 write;
	__u16 vmap;
};

#define IMPORTER_ATTACH	_IOWR('K', 0, struct importer_attach)
#define IMPORTER_COPY	_IOW('K', 1, struct importer_copy)
#define IMPORTER_DETACH	_IO('K', 2)

#endif /* KVMM_IMPORTER_H */
