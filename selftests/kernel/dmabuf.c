// SPDX-License-Identifier: MIT
/*
 * What a dma-buf is: which frames can be one, and that its bytes are the
 * arena's own, for processes, for the kernel and for a device.
 */
#include <sys/stat.h>

#include "dmabuf.h"

TEST_F(dmabuf, shape)
{
	struct kvmm_info info;

	ASSERT_EQ(0, kt_info(&info));
	EXPECT_NE(0, info.features & KVMM_FEATURE_EXPORT);
	EXPECT_EQ(0, exports(&self->t));
	ASSERT_EQ(0, buf_open(self, 3, 5, 0));
	EXPECT_EQ(1, exports(&self->t));
	EXPECT_EQ(5 * KT_BLOCK, lseek(self->fd, 0, SEEK_END));
	EXPECT_EQ(FD_CLOEXEC, fcntl(self->fd, F_GETFD));
	EXPECT_EQ(O_RDWR, fcntl(self->fd, F_GETFL) & O_ACCMODE);
	EXPECT_EQ(0, kt_buf_sync(self->fd, true));
	EXPECT_EQ(0, kt_buf_sync(self->fd, false));
	/* no memory of its own */
	EXPECT_EQ((long long)BYTES, pinned());
	buf_close(self);
	EXPECT_EQ(0, exports(&self->t));
	EXPECT_EQ((long long)BYTES, pinned());
}

TEST_F(dmabuf, refused)
{
	struct kvmm_pool_create spec = kt_spec("bare", KT_BLOCK, 4, 0);
	struct kvmm_export arg = { .size = sizeof(arg), .count = 4 };
	struct kt reader;
	uint32_t done;
	int fd;

	EXPECT_EQ(-EINVAL, kt_export(&self->t, 0, 0, 0));
	EXPECT_EQ(-EINVAL, kt_export(&self->t, 0, FRAMES + 1, 0));
	EXPECT_EQ(-EINVAL, kt_export(&self->t, FRAMES, 1, 0));
	EXPECT_EQ(-EINVAL, kt_export(&self->t, 1, UINT32_MAX, 0));
	EXPECT_EQ(-EINVAL, kt_export(&self->t, 0, 1, 2));

	ASSERT_EQ(0, kt_join(&reader, self->t.name, KVMM_POOL_RDONLY));
	EXPECT_EQ(-EACCES, kt_export(&reader, 0, 1, 0));
	kt_close(&reader);

	/* frames that have no memory yet, one of four */
	fd = kt_dev(O_RDWR);
	ASSERT_LE(0, fd);
	EXPECT_EQ(-ENOTCONN, kt_ioctl(fd, KVMM_EXPORT, &arg));
	ASSERT_EQ(0, kt_ioctl(fd, KVMM_POOL_CREATE, &spec));
	reader = (struct kt){ .fd = fd };
	EXPECT_EQ(-EAGAIN, kt_export(&reader, 0, 4, 0));
	ASSERT_EQ(0, kt_populate(&reader, 0, 3, &done));
	EXPECT_EQ(-EAGAIN, kt_export(&reader, 0, 4, 0));
	EXPECT_EQ(-EAGAIN, kt_export(&reader, 3, 1, 0));
	EXPECT_EQ(0, exports(&reader));
	ASSERT_EQ(0, kt_populate(&reader, 3, 1, &done));
	self->fd = kt_export(&reader, 0, 4, 0);
	EXPECT_LE(0, self->fd);
	buf_close(self);
	ASSERT_EQ(0, kt_destroy("bare", KVMM_POOL_FORCE));
	EXPECT_EQ(-ENODEV, kt_export(&reader, 0, 4, 0));
	close(fd);
	EXPECT_EQ(0, exports(&self->t));
}

/* What is written in one place is read in the other, for each page. */
TEST_F(dmabuf, bytes)
{
	uint32_t f;
	size_t at;

	ASSERT_EQ(0, buf_open(self, 0, FRAMES, 0));
	for (f = 0; f < FRAMES; f++)
		kt_fill(&self->t, f, 100 + f);
	for (f = 0; f < FRAMES; f++)
		EXPECT_TRUE(kt_good_mem(self->mem + (size_t)f * KT_BLOCK,
					KT_BLOCK, 100 + f));
	for (f = 0; f < FRAMES; f++)
		kt_fill_mem(self->mem + (size_t)f * KT_BLOCK, KT_BLOCK, f);
	for (f = 0; f < FRAMES; f++)
		EXPECT_TRUE(kt_good(&self->t, f, f));
	/* from the end, so that no page comes with the one before it */
	munmap(self->mem, self->bytes);
	self->mem = kt_buf_map(self->fd, self->bytes, PROT_READ);
	ASSERT_NE(NULL, self->mem);
	for (at = BYTES; at; at -= 4096)
		ASSERT_EQ(0, memcmp(self->mem + at - 4096,
				    self->t.arena + at - 4096, 4096));
}

/* A block's own frame, and a part of a buffer. */
TEST_F(dmabuf, block)
{
	struct kvmm_block_ref refs[8];
	unsigned char *part;
	int i;

	ASSERT_EQ(0, kt_store(&self->t, 1, 8, refs));
	ASSERT_EQ(8, kt_lookup(&self->t, 1, 8, KVMM_LOOKUP_PIN, refs));
	for (i = 0; i < 8; i++) {
		ASSERT_EQ(0, buf_open(self, refs[i].frame, 1, 0));
		EXPECT_TRUE(kt_good_mem(self->mem, KT_BLOCK, 1 + i));
		part = mmap(NULL, 8192, PROT_READ, MAP_SHARED, self->fd,
			    KT_BLOCK - 8192);
		ASSERT_NE(MAP_FAILED, part);
		EXPECT_EQ(0, memcmp(part, self->mem + KT_BLOCK - 8192, 8192));
		munmap(part, 8192);
		buf_close(self);
	}
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, 8, NULL));

	/* past the end, and a copy of its own: neither means anything */
	ASSERT_EQ(0, buf_open(self, 0, 1, 0));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 8192, PROT_READ, MAP_SHARED, self->fd,
				   KT_BLOCK - 4096));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE, self->fd, 0));
	EXPECT_EQ(EINVAL, errno);
}

/* Nobody writes through a read-only buffer: no process and no device. */
TEST_F(dmabuf, rdonly)
{
	unsigned char page[4096];
	struct kt reader;
	int im;

	kt_fill(&self->t, 7, 7);
	ASSERT_EQ(0, kt_join(&reader, self->t.name, KVMM_POOL_RDONLY));
	self->fd = kt_export(&reader, 7, 1, KVMM_EXPORT_RDONLY);
	ASSERT_LE(0, self->fd);
	kt_close(&reader);
	EXPECT_EQ(O_RDONLY, fcntl(self->fd, F_GETFL) & O_ACCMODE);
	EXPECT_EQ(NULL, kt_buf_map(self->fd, KT_BLOCK,
				   PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);
	self->bytes = KT_BLOCK;
	self->mem = kt_buf_map(self->fd, KT_BLOCK, PROT_READ);
	ASSERT_NE(NULL, self->mem);
	EXPECT_TRUE(kt_good_mem(self->mem, KT_BLOCK, 7));
	EXPECT_EQ(-1, mprotect(self->mem, KT_BLOCK, PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);

	im = kt_importer_open();
	ASSERT_LE(0, im) {
		TH_LOG("kvmm_importer.ko is not loaded");
	}
	EXPECT_EQ(-EACCES, kt_importer_attach(im, self->fd, KT_BOTH, 65536,
					      NULL, NULL));
	EXPECT_EQ(-EACCES, kt_importer_attach(im, self->fd, KT_FROM_DEVICE,
					      65536, NULL, NULL));
	if (!kt_no_devices()) {
		EXPECT_EQ(0, kt_importer_attach(im, self->fd, KT_TO_DEVICE,
						65536, NULL, NULL));
		EXPECT_EQ(0, kt_importer_copy(im, page, 0, 4096, false, false));
		EXPECT_EQ(0, memcmp(page, self->mem, 4096));
		EXPECT_EQ(0, kt_importer_detach(im));
	}
	EXPECT_EQ(0, kt_importer_attach(im, self->fd, KT_NOT, 0, NULL, NULL));
	memset(page, 0, sizeof(page));
	EXPECT_EQ(0, kt_importer_copy(im, page, 0, 4096, false, true));
	EXPECT_EQ(0, memcmp(page, self->mem, 4096));
	close(im);
}

/* The kernel's own mapping. */
TEST_F(dmabuf, vmap)
{
	static unsigned char mem[BYTES];
	int im = kt_importer_open();
	uint32_t f;

	ASSERT_LE(0, im) {
		TH_LOG("kvmm_importer.ko is not loaded");
	}
	self->fd = kt_export(&self->t, 0, FRAMES, 0);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, kt_importer_attach(im, self->fd, KT_NOT, 0, NULL, NULL));
	for (f = 0; f < FRAMES; f++)
		kt_fill(&self->t, f, f);
	EXPECT_EQ(0, kt_importer_copy(im, mem, 0, BYTES, false, true));
	EXPECT_EQ(0, memcmp(mem, self->t.arena, BYTES));
	for (f = 0; f < FRAMES; f++)
		kt_fill_mem(mem + (size_t)f * KT_BLOCK, KT_BLOCK, 1000 + f);
	EXPECT_EQ(0, kt_importer_copy(im, mem, 0, BYTES, true, true));
	for (f = 0; f < FRAMES; f++)
		EXPECT_TRUE(kt_good(&self->t, f, 1000 + f));
	close(im);
}

/* What a device gets: all of the memory, in pieces that it can take. */
TEST_F(dmabuf, device)
{
	static const uint32_t max[] = { 4096, 65536, 65536 + 2048, UINT32_MAX };
	static unsigned char mem[BYTES];
	uint32_t nents, f, i;
	uint64_t longest;
	int im;

	if (kt_no_devices())
		SKIP(return, "no device does DMA here");
	im = kt_importer_open();
	ASSERT_LE(0, im) {
		TH_LOG("kvmm_importer.ko is not loaded");
	}
	self->fd = kt_export(&self->t, 0, FRAMES, 0);
	ASSERT_LE(0, self->fd);
	for (i = 0; i < 4; i++) {
		ASSERT_EQ(0, kt_importer_attach(im, self->fd, KT_BOTH, max[i],
						&nents, &longest));
		EXPECT_GE(max[i], longest);
		EXPECT_LE(BYTES, nents * longest);
		/* what is contiguous is one piece: huge pages, or most of them */
		if (i == 3) {
			EXPECT_GT(BYTES / 4096 / 2, nents);
			EXPECT_LE(2097152, longest);
		}
		for (f = 0; f < FRAMES; f++)
			kt_fill(&self->t, f, i * 1000 + f);
		EXPECT_EQ(0, kt_importer_copy(im, mem, 0, BYTES, false,
					      false));
		EXPECT_EQ(0, memcmp(mem, self->t.arena, BYTES));
		for (f = 0; f < FRAMES; f++)
			kt_fill_mem(mem + (size_t)f * KT_BLOCK, KT_BLOCK,
				    i * 1000 + 500 + f);
		EXPECT_EQ(0, kt_importer_copy(im, mem, 0, BYTES, true, false));
		for (f = 0; f < FRAMES; f++)
			EXPECT_TRUE(kt_good(&self->t, f, i * 1000 + 500 + f));
		/* sync goes through the mappings of devices */
		EXPECT_EQ(0, kt_buf_sync(self->fd, true));
		EXPECT_EQ(0, kt_buf_sync(self->fd, false));
		ASSERT_EQ(0, kt_importer_detach(im));
	}
	close(im);
}

/* A file that was imported is the same when it is exported again. */
TEST_F(dmabuf, prime)
{
	struct stat one, two;
	uint32_t handle;
	int vgem, again;

	if (kt_no_devices())
		SKIP(return, "no vgem here");
	vgem = kt_vgem_open();
	ASSERT_LE(0, vgem);
	ASSERT_EQ(0, buf_open(self, 2, 8, 0));
	ASSERT_EQ(0, kt_vgem_import(vgem, self->fd, &handle));
	ASSERT_EQ(0, fstat(self->fd, &one));
	buf_close(self);

	/* the driver alone has it now */
	EXPECT_EQ(1, exports(&self->t));
	kt_fill(&self->t, 2, 42);
	again = kt_vgem_export(vgem, handle);
	ASSERT_LE(0, again);
	ASSERT_EQ(0, fstat(again, &two));
	EXPECT_EQ(one.st_ino, two.st_ino);
	self->fd = again;
	self->mem = kt_buf_map(again, self->bytes, PROT_READ | PROT_WRITE);
	ASSERT_NE(NULL, self->mem);
	EXPECT_TRUE(kt_good_mem(self->mem, KT_BLOCK, 42));
	kt_fill_mem(self->mem + KT_BLOCK, KT_BLOCK, 43);
	EXPECT_TRUE(kt_good(&self->t, 3, 43));
	EXPECT_EQ(0, kt_vgem_close(vgem, handle));
	buf_close(self);
	EXPECT_EQ(0, exports(&self->t));

	/*
	 * One that nobody may write to is not for a driver that maps it for
	 * both directions.  A newer vgem doesn't map it, and can't write either.
	 */
	self->fd = kt_export(&self->t, 2, 1, KVMM_EXPORT_RDONLY);
	ASSERT_LE(0, self->fd);
	again = kt_vgem_import(vgem, self->fd, &handle);
	if (!again) {
		again = kt_vgem_export(vgem, handle);
		ASSERT_LE(0, again);
		EXPECT_EQ(NULL, kt_buf_map(again, KT_BLOCK,
					   PROT_READ | PROT_WRITE));
		EXPECT_EQ(EACCES, errno);
		close(again);
		EXPECT_EQ(0, kt_vgem_close(vgem, handle));
	} else {
		EXPECT_EQ(-EACCES, again);
	}
	close(vgem);
}

/* What a device writes while the pool goes. */
TEST_F(dmabuf, revoked)
{
	static unsigned char mem[KT_BLOCK];
	int im;

	if (kt_no_devices())
		SKIP(return, "no device does DMA here");
	im = kt_importer_open();
	ASSERT_LE(0, im);
	ASSERT_EQ(0, buf_open(self, 8, 1, 0));
	ASSERT_EQ(0, kt_importer_attach(im, self->fd, KT_BOTH, UINT32_MAX, NULL,
					NULL));
	ASSERT_EQ(0, kt_destroy(self->t.name, KVMM_POOL_FORCE));
	EXPECT_TRUE(kt_sigbus(self->t.arena + 8 * KT_BLOCK, false));
	EXPECT_EQ(-ENODEV, kt_export(&self->t, 0, 1, 0));
	kt_fill_mem(mem, KT_BLOCK, 99);
	EXPECT_EQ(0, kt_importer_copy(im, mem, 0, KT_BLOCK, true, false));
	EXPECT_TRUE(kt_good_mem(self->mem, KT_BLOCK, 99));
	EXPECT_EQ(KT_BLOCK, pinned());
	buf_close(self);
	EXPECT_EQ(KT_BLOCK, pinned());
	close(im);
	EXPECT_EQ(0, pinned());
	kt_close(&self->t);
}

KT_MAIN
