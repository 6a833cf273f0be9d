/* SPDX-License-Identifier: MIT */
/*
 * KVMM_EXPORT: frames as a dma-buf.  What dmabuf*.c have in common: a pool, a
 * dma-buf with its mapping, and what is counted.
 */
#ifndef KVMM_DMABUF_H
#define KVMM_DMABUF_H

#include <fcntl.h>
#include <sys/mman.h>

#include "kt_export.h"
#include "kt_harness.h"

#define FRAMES	64
#define BYTES	((size_t)FRAMES * KT_BLOCK)

FIXTURE(dmabuf) {
	struct kt t;
	int fd;			/* a dma-buf */
	unsigned char *mem;	/* its mapping */
	size_t bytes;
};

FIXTURE_SETUP(dmabuf)
{
	kt_wipe();
	self->fd = -1;
	self->mem = NULL;
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 0));
}

static inline void buf_close(FIXTURE_DATA(dmabuf) *self)
{
	if (self->mem)
		munmap(self->mem, self->bytes);
	if (self->fd >= 0)
		close(self->fd);
	self->mem = NULL;
	self->fd = -1;
}

static inline int buf_open(FIXTURE_DATA(dmabuf) *self, uint32_t first,
			   uint32_t count, uint32_t flags)
{
	int prot = PROT_READ | (flags & KVMM_EXPORT_RDONLY ? 0 : PROT_WRITE);

	self->bytes = (size_t)count * self->t.block_size;
	self->fd = kt_export(&self->t, first, count, flags);
	if (self->fd < 0)
		return self->fd;
	self->mem = kt_buf_map(self->fd, self->bytes, prot);
	return self->mem ? 0 : -ENOMEM;
}

static inline long long pinned(void)
{
	struct kvmm_info info;

	return kt_info(&info) ? -1 : (long long)info.pinned_bytes;
}

static inline long long exports(struct kt *t)
{
	struct kvmm_pool_stat st;

	return kt_stat(t, &st) ? -1 : (long long)st.exports;
}

FIXTURE_TEARDOWN(dmabuf)
{
	buf_close(self);
	KT_FINISH(&self->t);
	EXPECT_EQ(0, pinned());
}

#endif /* KVMM_DMABUF_H */
