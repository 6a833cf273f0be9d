/* SPDX-License-Identifier: MIT */
/*
 * Frames as dma-bufs, and who imports them (kt_export.c).
 */
#ifndef KT_EXPORT_H
#define KT_EXPORT_H

#include "kvmm_test.h"

/* Directions of a device's mapping, as the kernel counts them. */
enum { KT_BOTH, KT_TO_DEVICE, KT_FROM_DEVICE, KT_NOT = -1 };

/* The dma-buf of frames, or -errno. */
int kt_export(struct kt *t, uint32_t first, uint32_t count, uint32_t flags);

/* Maps a dma-buf from its start; NULL. */
void *kt_buf_map(int fd, size_t bytes, int prot);

/* DMA_BUF_IOCTL_SYNC, begin or end */
int kt_buf_sync(int fd, bool begin);

/* This machine needs not have vgem, and devices that do DMA. */
bool kt_no_devices(void);

int kt_vgem_open(void);
int kt_vgem_import(int vgem, int fd, uint32_t *handle);
int kt_vgem_export(int vgem, uint32_t handle);
int kt_vgem_close(int vgem, uint32_t handle);

/* A device of ours, see importer/kvmm_importer.h; KT_NOT: not mapped. */
int kt_importer_open(void);
int kt_importer_attach(int im, int fd, int dir, uint32_t max_seg,
		       uint32_t *nents, uint64_t *longest);
int kt_importer_copy(int im, void *mem, uint64_t offset, uint32_t len,
		     bool write, bool vmap);
int kt_importer_detach(int im);

#endif /* KT_EXPORT_H */
