// SPDX-License-Identifier: MIT
/*
 * KVMM_EXPORT: frames as a dma-buf.  The bytes are the arena's own, for
 * processes, for the kernel and for a device; the memory is there until the last
 * who has the dma-buf is gone, in whatever order things end, and is counted
 * until then.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

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

static void buf_close(FIXTURE_DATA(dmabuf) *self)
{
	if (self->mem)
		munmap(self->mem, self->bytes);
	if (self->fd >= 0)
		close(self->fd);
	self->mem = NULL;
	self->fd = -1;
}

static int buf_open(FIXTURE_DATA(dmabuf) *self, uint32_t first, uint32_t count,
		    uint32_t flags)
{
	int prot = PROT_READ | (flags & KVMM_EXPORT_RDONLY ? 0 : PROT_WRITE);

	self->bytes = (size_t)count * self->t.block_size;
	self->fd = kt_export(&self->t, first, count, flags);
	if (self->fd < 0)
		return self->fd;
	self->mem = kt_buf_map(self->fd, self->bytes, prot);
	return self->mem ? 0 : -ENOMEM;
}

static long long pinned(void)
{
	struct kvmm_info info;

	return kt_info(&info) ? -1 : (long long)info.pinned_bytes;
}

static long long exports(struct kt *t)
{
	struct kvmm_pool_stat st;

	return kt_stat(t, &st) ? -1 : (long long)st.exports;
}

static int try_unload(void)
{
	return syscall(SYS_delete_module, "kvmm", O_NONBLOCK) ? -errno : 0;
}

FIXTURE_TEARDOWN(dmabuf)
{
	buf_close(self);
	KT_FINISH(&self->t);
	EXPECT_EQ(0, pinned());
}

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

/* ---- ends, in every order ---- */

enum { CLIENT, ARENA, BUFFER, MAPPING, DESTROY, HANDLE, STEPS };

struct ends {
	struct kt t;
	int fd, vgem;
	unsigned char *mem;
	uint32_t handle;
	uint32_t left;		/* bit N: step N is to come */
};

static int ends_begin(struct ends *e, bool vgem)
{
	int ret = kt_create(&e->t, 4096, 2, 0);

	e->left = (1 << (vgem ? STEPS : HANDLE)) - 1;
	e->vgem = -1;
	if (ret)
		return ret;
	kt_fill(&e->t, 1, 5);
	e->fd = kt_export(&e->t, 1, 1, 0);
	if (e->fd < 0)
		return e->fd;
	e->mem = kt_buf_map(e->fd, 4096, PROT_READ | PROT_WRITE);
	if (!e->mem)
		return -ENOMEM;
	if (!vgem)
		return 0;
	e->vgem = kt_vgem_open();
	if (e->vgem < 0)
		return e->vgem;
	return kt_vgem_import(e->vgem, e->fd, &e->handle);
}

static void ends_step(struct ends *e, int step)
{
	e->left &= ~(1U << step);
	switch (step) {
	case CLIENT:
		close(e->t.fd);
		break;
	case ARENA:
		munmap(e->t.arena, e->t.arena_size);
		break;
	case BUFFER:
		close(e->fd);
		break;
	case MAPPING:
		munmap(e->mem, 4096);
		break;
	case DESTROY:
		kt_destroy(e->t.name, KVMM_POOL_FORCE);
		break;
	case HANDLE:
		kt_vgem_close(e->vgem, e->handle);
		close(e->vgem);
		break;
	}
}

/* What must hold between two steps; NULL, or what does not. */
static const char *ends_wrong(struct ends *e)
{
	uint32_t holders = 1U << BUFFER | 1U << MAPPING | 1U << HANDLE;
	bool pool = e->left & 1U << DESTROY;
	bool held = e->left & holders;
	long long want = pool ? 2 * 4096 : held ? 4096 : 0;

	if (pinned() != want)
		return "pinned bytes";
	if (e->left & 1U << MAPPING && !kt_good_mem(e->mem, 4096, 5))
		return "bytes of the mapping";
	if (e->left & 1U << ARENA &&
	    kt_sigbus(e->t.arena + 4096, false) != !pool)
		return "the arena's mapping";
	if (held && !pool && !(e->left & 1U << CLIENT) && try_unload() == 0)
		return "the module was unloaded";
	return NULL;
}

/* All orders of the steps in @left, by choosing one after the other. */
static int ends_all(struct __test_metadata *_metadata, int *order, int depth,
		    uint32_t left, bool vgem)
{
	struct ends e;
	int i, n = 0;

	for (i = 0; i < STEPS; i++) {
		if (!(left & 1U << i))
			continue;
		order[depth] = i;
		n += ends_all(_metadata, order, depth + 1, left & ~(1U << i),
			      vgem);
	}
	if (left)
		return n;
	EXPECT_EQ(0, ends_begin(&e, vgem));
	for (i = 0; i < depth; i++) {
		const char *wrong;

		ends_step(&e, order[i]);
		wrong = ends_wrong(&e);
		EXPECT_EQ(NULL, wrong) {
			TH_LOG("%s after step %d of %d%d%d%d%d%d", wrong, i,
			       order[0], order[1], order[2], order[3],
			       order[4], vgem ? order[5] : 9);
		}
	}
	return 1;
}

TEST_F_TIMEOUT(dmabuf, ends, 280)
{
	bool vgem = !kt_no_devices();
	int order[STEPS] = {};

	kt_close(&self->t);
	kt_wipe();
	ASSERT_EQ(0, pinned());
	EXPECT_EQ(vgem ? 720 : 120,
		  ends_all(_metadata, order, 0,
			   (1 << (vgem ? STEPS : HANDLE)) - 1, vgem));
}

/* ---- processes ---- */

static int child_writes(void *arg)
{
	unsigned char *mem = arg;

	if (!kt_good_mem(mem, KT_BLOCK, 1))
		return -EBADMSG;
	kt_fill_mem(mem, KT_BLOCK, 2);
	return 0;
}

TEST_F(dmabuf, fork)
{
	ASSERT_EQ(0, buf_open(self, 9, 1, 0));
	kt_fill(&self->t, 9, 1);
	EXPECT_EQ(0, kt_child(child_writes, self->mem));
	EXPECT_TRUE(kt_good_mem(self->mem, KT_BLOCK, 2));
	EXPECT_TRUE(kt_good(&self->t, 9, 2));
}

static int send_fd(int sock, int fd)
{
	char buf[CMSG_SPACE(sizeof(int))] = {};
	struct iovec iov = { .iov_base = "x", .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = buf, .msg_controllen = sizeof(buf),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	return sendmsg(sock, &msg, 0) < 0 ? -errno : 0;
}

static int receive_fd(int sock)
{
	char buf[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = buf, .msg_controllen = sizeof(buf),
	};
	int fd;

	if (recvmsg(sock, &msg, 0) < 1 || !CMSG_FIRSTHDR(&msg))
		return -EIO;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

static int child_receives(void *arg)
{
	int *sock = arg;
	int fd = receive_fd(sock[1]);
	unsigned char *mem;
	char go;

	if (fd < 0)
		return fd;
	/* the pool is gone when the other side says so */
	if (read(sock[1], &go, 1) != 1)
		return -EIO;
	mem = kt_buf_map(fd, KT_BLOCK, PROT_READ | PROT_WRITE);
	if (!mem)
		return -ENOMEM;
	return kt_good_mem(mem, KT_BLOCK, 77) ? 0 : -EBADMSG;
}

/* Handed to another process, by which it outlives the pool. */
TEST_F(dmabuf, passed)
{
	int sock[2];
	pid_t pid;

	kt_fill(&self->t, 5, 77);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	pid = kt_spawn(child_receives, sock);
	ASSERT_LT(0, pid);
	self->fd = kt_export(&self->t, 5, 1, 0);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, send_fd(sock[0], self->fd));
	buf_close(self);
	ASSERT_EQ(0, kt_destroy(self->t.name, KVMM_POOL_FORCE));
	EXPECT_EQ(KT_BLOCK, pinned());
	ASSERT_EQ(1, write(sock[0], "g", 1));
	EXPECT_EQ(0, kt_reap(pid));
	EXPECT_EQ(0, pinned());
	close(sock[0]);
	close(sock[1]);
	kt_close(&self->t);
}

/* ---- several, and many ---- */

/* Frames in two exports count once, until the last is gone. */
TEST_F(dmabuf, overlap)
{
	int a = kt_export(&self->t, 0, 10, 0);
	int b = kt_export(&self->t, 5, 10, 0);
	int c = kt_export(&self->t, 20, 2, 0);
	int d = kt_export(&self->t, 0, 30, KVMM_EXPORT_RDONLY);

	ASSERT_LE(0, a);
	ASSERT_LE(0, b);
	ASSERT_LE(0, c);
	ASSERT_LE(0, d);
	EXPECT_EQ(4, exports(&self->t));
	EXPECT_EQ((long long)BYTES, pinned());
	close(c);
	EXPECT_EQ((long long)BYTES, pinned());
	c = kt_export(&self->t, 20, 2, 0);
	ASSERT_EQ(0, kt_destroy(self->t.name, KVMM_POOL_FORCE));
	EXPECT_EQ(30 * KT_BLOCK, pinned());
	close(d);
	EXPECT_EQ(17 * KT_BLOCK, pinned());
	close(a);
	EXPECT_EQ(12 * KT_BLOCK, pinned());
	close(c);
	EXPECT_EQ(10 * KT_BLOCK, pinned());
	close(b);
	EXPECT_EQ(0, pinned());
	kt_close(&self->t);
}

TEST_F(dmabuf, limit)
{
	struct rlimit old, lim = { 2048, 4096 };
	int fds[KVMM_MAX_EXPORTS + 1];
	int i, n;

	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &old));
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &lim));
	for (n = 0; n < KVMM_MAX_EXPORTS; n++) {
		fds[n] = kt_export(&self->t, n % FRAMES, 1, 0);
		ASSERT_LE(0, fds[n]);
	}
	EXPECT_EQ(-EUSERS, kt_export(&self->t, 0, 1, 0));
	EXPECT_EQ(KVMM_MAX_EXPORTS, exports(&self->t));
	close(fds[17]);
	fds[17] = kt_export(&self->t, 0, 1, 0);
	EXPECT_LE(0, fds[17]);
	EXPECT_EQ(-EUSERS, kt_export(&self->t, 0, 1, 0));
	for (i = 0; i < n; i++)
		close(fds[i]);
	EXPECT_EQ(0, exports(&self->t));

	/* no file descriptor left: nothing stays behind */
	lim.rlim_cur = 3;
	lim.rlim_max = 4096;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &lim));
	EXPECT_EQ(-EMFILE, kt_export(&self->t, 0, 1, 0));
	lim.rlim_cur = 1024;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &lim));
	EXPECT_EQ(0, exports(&self->t));
}

/* ---- a descriptor that nobody is told of ---- */

struct trap {
	struct kvmm_export *arg;
	int go;
	int delay;
};

static void *close_trap(void *p)
{
	struct trap *trap = p;
	volatile int spin;

	for (;;) {
		int go = __atomic_load_n(&trap->go, __ATOMIC_ACQUIRE);

		if (go < 0)
			return NULL;
		if (!go)
			continue;
		for (spin = 0; spin < trap->delay; spin++)
			;
		mprotect(trap->arg, 4096, PROT_READ);
		__atomic_store_n(&trap->go, 0, __ATOMIC_RELEASE);
	}
}

/*
 * The struct becomes read-only while the command runs: it fails, and what it
 * made is gone.
 */
TEST_F(dmabuf, untold)
{
	struct trap trap = { 0 };
	pthread_t thread;
	int i, ret, failed = 0, good = 0;

	trap.arg = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, trap.arg);
	ASSERT_EQ(0, pthread_create(&thread, NULL, close_trap, &trap));
	for (i = 0; i < 2000; i++) {
		ASSERT_EQ(0, mprotect(trap.arg, 4096, PROT_READ | PROT_WRITE));
		*trap.arg = (struct kvmm_export){
			.size = sizeof(*trap.arg), .count = FRAMES,
		};
		trap.delay = i * 7 % 20000;
		__atomic_store_n(&trap.go, 1, __ATOMIC_RELEASE);
		ret = kt_ioctl(self->t.fd, KVMM_EXPORT, trap.arg);
		while (__atomic_load_n(&trap.go, __ATOMIC_ACQUIRE))
			;
		if (!ret)
			close(trap.arg->fd);
		else
			ASSERT_EQ(-EFAULT, ret);
		failed += !!ret;
		good += !ret;
		/* the file is released when the task returns to its program */
		ASSERT_EQ(0, exports(&self->t)) {
			TH_LOG("left behind by command %d", i);
		}
	}
	__atomic_store_n(&trap.go, -1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	EXPECT_LT(0, failed);
	EXPECT_LT(0, good);
	munmap(trap.arg, 4096);
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

/* ---- exporting while the pool is destroyed ---- */

struct racer {
	const char *name;
	int stop;
	int made;
};

static void *race_export(void *arg)
{
	struct racer *r = arg;

	while (!__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE)) {
		struct kt t;
		int i, fd;

		if (kt_join(&t, r->name, 0))
			continue;
		for (i = 0; i < 20; i++) {
			fd = kt_export(&t, i % 8, 1 + i % 8, 0);
			if (fd < 0)
				break;
			__atomic_add_fetch(&r->made, 1, __ATOMIC_RELAXED);
			close(fd);
		}
		kt_close(&t);
	}
	return NULL;
}

TEST_F(dmabuf, race)
{
	struct kvmm_pool_create spec = kt_spec("raced", 4096, 16, 0);
	struct racer r = { .name = "raced" };
	pthread_t thread[2];
	struct kt t;
	int round, i;

	kt_close(&self->t);
	kt_wipe();
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, race_export, &r));
	for (round = 0; round < 200 || !r.made; round++) {
		spec.size = sizeof(spec);
		ASSERT_EQ(0, kt_create_spec(&t, &spec));
		if (round % 3)
			kt_sleep_ms(round % 3);
		ASSERT_EQ(0, kt_destroy("raced", KVMM_POOL_FORCE));
		kt_close(&t);
	}
	__atomic_store_n(&r.stop, 1, __ATOMIC_RELEASE);
	for (i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	EXPECT_LT(0, r.made);
	EXPECT_EQ(0, pinned());
}

KT_MAIN
