// SPDX-License-Identifier: MIT
/*
 * The arena as memory: made of huge pages, good for registered buffers and
 * direct I/O, and defended: no client can punch, grow or outlive it.
 */
#include <fcntl.h>
#include <liburing.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "kt_harness.h"

#define FRAMES	128			/* of 64 KiB: 8 MiB */
#define BYTES	(FRAMES * (size_t)KT_BLOCK)

FIXTURE(arena) {
	struct kt t;
};

FIXTURE_SETUP(arena)
{
	kt_wipe();
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 0));
}

FIXTURE_TEARDOWN(arena)
{
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
}

/*
 * A field of /proc/self/smaps in KiB for the mapping at @addr, or -1; with
 * @flags the text of its VmFlags.
 */
static long smaps(const void *addr, const char *field, char *flags)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long start, end;
	char line[512], name[64];
	bool ours = false;
	long kib, found = -1;

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			ours = (unsigned long)addr >= start &&
				(unsigned long)addr < end;
		else if (ours && flags && !strncmp(line, "VmFlags:", 8))
			strcpy(flags, line);
		else if (ours && sscanf(line, "%63[^:]: %ld", name, &kib) == 2 &&
			 !strcmp(name, field))
			found = kib;
	}
	fclose(f);
	return found;
}

static void touch_all(struct kt *t)
{
	size_t i;

	for (i = 0; i < t->arena_size; i += 4096)
		((volatile unsigned char *)t->arena)[i] = 1;
}

/* Does a tmpfs that asks for huge pages get one?  Some debug kernels have none. */
static bool huge_at_all(void)
{
	static char buf[2 << 20];
	const char *dir = "/tmp/kvmm-huge", *file = "/tmp/kvmm-huge/x";
	char line[128];
	long kib = 0;
	FILE *f;
	int fd;

	mkdir(dir, 0700);
	if (mount("tmpfs", dir, "tmpfs", 0, "huge=always"))
		return false;
	fd = open(file, O_RDWR | O_CREAT, 0600);
	if (fd >= 0 && write(fd, buf, sizeof(buf)) == sizeof(buf)) {
		f = fopen("/proc/meminfo", "r");
		while (f && fgets(line, sizeof(line), f))
			sscanf(line, "ShmemHugePages: %ld", &kib);
		if (f)
			fclose(f);
	}
	close(fd);
	umount(dir);
	rmdir(dir);
	return kib > 0;
}

/* All of it is mapped by huge pages, whatever the system's own setting is. */
TEST_F(arena, huge_pages)
{
	long kib;

	if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK))
		SKIP(return, "no transparent huge pages");
	if (!huge_at_all())
		SKIP(return, "this kernel has no huge pages for tmpfs");
	touch_all(&self->t);
	EXPECT_EQ(0, (uintptr_t)self->t.arena & ((2 << 20) - 1)) {
		TH_LOG("not aligned for huge pages: %p", self->t.arena);
	}
	kib = smaps(self->t.arena, "ShmemPmdMapped", NULL);
	if (kib <= 0)
		kib = smaps(self->t.arena, "FilePmdMapped", NULL);
	EXPECT_EQ(BYTES >> 10, kib);
}

/* And the same with the system's setting for shared memory at "never". */
TEST_F(arena, huge_pages_never)
{
	const char *file = "/sys/kernel/mm/transparent_hugepage/enabled";
	struct kvmm_pool_create spec = kt_spec("never", KT_BLOCK, FRAMES, 0);
	char old[64] = "";
	struct kt u;
	long kib;
	int fd = open(file, O_RDWR);

	if (fd < 0)
		SKIP(return, "no transparent huge pages");
	if (!huge_at_all())
		SKIP(return, "this kernel has no huge pages for tmpfs");
	ASSERT_LT(0, read(fd, old, sizeof(old) - 1));
	ASSERT_EQ(5, pwrite(fd, "never", 5, 0));
	ASSERT_EQ(0, kt_create_spec(&u, &spec));
	touch_all(&u);
	kib = smaps(u.arena, "ShmemPmdMapped", NULL);
	EXPECT_EQ(BYTES >> 10, kib);
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("never", 0));
	/* the one in brackets was chosen */
	old[strcspn(old, "]")] = 0;
	ASSERT_LT(0, pwrite(fd, strchr(old, '[') + 1,
			    strlen(strchr(old, '[') + 1), 0));
	close(fd);
}

TEST_F(arena, same_bytes)
{
	unsigned char *again;
	struct kt u;

	kt_fill(&self->t, 100, 5);
	ASSERT_EQ(0, kt_join(&u, self->t.name, 0));
	EXPECT_TRUE(kt_good(&u, 100, 5));
	kt_fill(&u, 101, 6);
	EXPECT_TRUE(kt_good(&self->t, 101, 6));
	kt_close(&u);
	again = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, self->t.fd, 0);
	ASSERT_NE(MAP_FAILED, (void *)again);
	EXPECT_TRUE(kt_good_mem(again + 101 * KT_BLOCK, KT_BLOCK, 6));
	munmap(again, BYTES);
}

/* Moves eight frames out to a file and into others, both ways directly. */
TEST_F(arena, direct_io)
{
	char path[128];
	int fd, i;

	if (!kt_disk_dir())
		SKIP(return, "no disk to test on");
	snprintf(path, sizeof(path), "%s/direct", kt_disk_dir());
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	ASSERT_LE(0, fd);
	for (i = 0; i < 8; i++) {
		kt_fill(&self->t, i, 10 + i);
		ASSERT_EQ(KT_BLOCK, pwrite(fd, self->t.arena + i * KT_BLOCK,
					   KT_BLOCK, i * KT_BLOCK));
	}
	ASSERT_EQ(8 * KT_BLOCK, pread(fd, self->t.arena + 50 * KT_BLOCK,
				      8 * KT_BLOCK, 0));
	for (i = 0; i < 8; i++)
		EXPECT_TRUE(kt_good(&self->t, 50 + i, 10 + i));
	close(fd);
	unlink(path);
}

TEST_F(arena, registered_buffers)
{
	struct iovec iov[2] = {
		{ self->t.arena, BYTES / 2 },
		{ self->t.arena + BYTES / 2, BYTES / 2 },
	};
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe;
	struct io_uring ring;
	char path[128];
	int fd, i, round;

	if (!kt_disk_dir())
		SKIP(return, "no disk to test on");
	snprintf(path, sizeof(path), "%s/fixed", kt_disk_dir());
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, io_uring_queue_init(16, &ring, 0));
	ASSERT_EQ(0, io_uring_register_buffers(&ring, iov, 2));
	for (i = 0; i < 8; i++)
		kt_fill(&self->t, i, 20 + i);
	for (round = 0; round < 2; round++) {
		for (i = 0; i < 8; i++) {
			sqe = io_uring_get_sqe(&ring);
			if (!round)
				io_uring_prep_write_fixed(sqe, fd,
					self->t.arena + i * KT_BLOCK, KT_BLOCK,
					i * KT_BLOCK, 0);
			else
				io_uring_prep_read_fixed(sqe, fd,
					self->t.arena + (80 + i) * KT_BLOCK,
					KT_BLOCK, i * KT_BLOCK, 1);
		}
		ASSERT_EQ(8, io_uring_submit(&ring));
		for (i = 0; i < 8; i++) {
			ASSERT_EQ(0, io_uring_wait_cqe(&ring, &cqe));
			EXPECT_EQ(KT_BLOCK, cqe->res);
			io_uring_cqe_seen(&ring, cqe);
		}
	}
	for (i = 0; i < 8; i++)
		EXPECT_TRUE(kt_good(&self->t, 80 + i, 20 + i));
	io_uring_queue_exit(&ring);
	close(fd);
	unlink(path);
}

/* Buffers registered when the pool goes: writing to them harms nobody. */
TEST_F(arena, registered_then_destroyed)
{
	struct iovec iov = { self->t.arena, BYTES };
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe;
	struct kvmm_info info;
	struct io_uring ring;
	struct kt u;
	int fd;

	ASSERT_EQ(0, io_uring_queue_init(4, &ring, 0));
	ASSERT_EQ(0, io_uring_register_buffers(&ring, &iov, 1));
	ASSERT_EQ(0, kt_destroy(self->t.name, KVMM_POOL_FORCE));
	EXPECT_EQ(0, kt_info(&info));
	EXPECT_EQ(0, info.pinned_bytes);
	ASSERT_EQ(0, kt_create(&u, KT_BLOCK, FRAMES, 0));
	fd = open("/dev/zero", O_RDONLY);
	kt_fill(&u, 3, 33);
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_read_fixed(sqe, fd, self->t.arena, BYTES, 0, 0);
	ASSERT_EQ(1, io_uring_submit(&ring));
	ASSERT_EQ(0, io_uring_wait_cqe(&ring, &cqe));
	io_uring_cqe_seen(&ring, cqe);
	/* the new pool's memory is its own */
	EXPECT_TRUE(kt_good(&u, 3, 33));
	io_uring_queue_exit(&ring);
	close(fd);
	kt_close(&self->t);
	KT_FINISH(&u);
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, 4, 0));
}

/* What would give its memory back, or change its size, is refused. */
TEST_F(arena, punching)
{
	char path[128];
	int fd;

	kt_fill(&self->t, 0, 1);
	kt_fill(&self->t, 64, 2);
	EXPECT_NE(0, madvise(self->t.arena, BYTES, MADV_REMOVE));
	EXPECT_NE(0, madvise(self->t.arena + 64 * KT_BLOCK, KT_BLOCK,
			     MADV_REMOVE));
	EXPECT_TRUE(kt_good(&self->t, 0, 1));
	EXPECT_TRUE(kt_good(&self->t, 64, 2));
	/* these are allowed, and lose nothing */
	madvise(self->t.arena, BYTES, MADV_DONTNEED);
	madvise(self->t.arena, BYTES, MADV_COLD);
	madvise(self->t.arena, BYTES, MADV_PAGEOUT);
	madvise(self->t.arena, BYTES, MADV_FREE);
	EXPECT_TRUE(kt_good(&self->t, 0, 1));
	EXPECT_TRUE(kt_good(&self->t, 64, 2));

	/* the file behind it, for those who may look it up */
	snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx",
		 (unsigned long)self->t.arena,
		 (unsigned long)self->t.arena + BYTES);
	fd = open(path, O_RDWR);
	if (fd >= 0) {
		EXPECT_NE(0, ftruncate(fd, 0));
		EXPECT_NE(0, ftruncate(fd, BYTES * 2));
		EXPECT_NE(0, fallocate(fd, FALLOC_FL_PUNCH_HOLE |
				       FALLOC_FL_KEEP_SIZE, 0, KT_BLOCK));
		EXPECT_NE(0, fallocate(fd, 0, 0, BYTES * 2));
		EXPECT_GE(0, pwrite(fd, "x", 1, 0));
		close(fd);
	}
	EXPECT_NE(0, truncate(path, 0));
	EXPECT_TRUE(kt_good(&self->t, 0, 1));
	EXPECT_TRUE(kt_good(&self->t, 64, 2));
}

/* A mapping covers the arena and no more, and stays out of core dumps. */
TEST_F(arena, limits)
{
	char flags[512] = "";
	void *mem;

	mem = mremap(self->t.arena, BYTES, BYTES * 2, MREMAP_MAYMOVE);
	EXPECT_EQ(MAP_FAILED, mem);
	mem = mmap(NULL, BYTES * 2, PROT_READ | PROT_WRITE, MAP_SHARED,
		   self->t.fd, 0);
	if (mem != MAP_FAILED) {
		EXPECT_TRUE(kt_sigbus((char *)mem + BYTES, true));
		munmap(mem, BYTES * 2);
	}
	mem = mmap(NULL, 4096, PROT_READ, MAP_SHARED, self->t.fd, BYTES);
	if (mem != MAP_FAILED) {
		EXPECT_TRUE(kt_sigbus(mem, false));
		munmap(mem, 4096);
	}
	smaps(self->t.arena, "Rss", flags);
	EXPECT_NE(NULL, strstr(flags, " dd")) {
		TH_LOG("in core dumps: %s", flags);
	}
	EXPECT_NE(NULL, strstr(flags, " de")) {
		TH_LOG("may grow: %s", flags);
	}
}

/* Frames without memory raise SIGBUS; nothing a client does brings memory. */
TEST_F(arena, offline)
{
	struct kvmm_pool_create spec = kt_spec("bare", KT_BLOCK, FRAMES, 0);
	struct kvmm_pool_stat st;
	struct kvmm_info before, after;
	unsigned char *mem, *more;
	struct kt u = { .fd = kt_dev(O_RDWR), .block_size = KT_BLOCK,
			.nr_frames = FRAMES };
	int fd;

	ASSERT_EQ(0, kt_ioctl(u.fd, KVMM_POOL_CREATE, &spec));
	mem = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, u.fd, 0);
	ASSERT_NE(MAP_FAILED, (void *)mem);
	EXPECT_TRUE(kt_sigbus(mem, false));
	EXPECT_TRUE(kt_sigbus(mem, true));

	/* the first 2 MiB and no more */
	ASSERT_EQ(0, kt_populate(&u, 0, 32, NULL));
	ASSERT_EQ(0, kt_stat(&u, &st));
	ASSERT_EQ(0, kt_info(&before));
	EXPECT_FALSE(kt_sigbus(mem, true));
	EXPECT_FALSE(kt_sigbus(mem + 32 * KT_BLOCK - 1, true));
	if (st.frames_online < FRAMES) {
		more = mem + st.frames_online * KT_BLOCK;
		EXPECT_TRUE(kt_sigbus(more, false));
		EXPECT_TRUE(kt_sigbus(more, true));
		EXPECT_TRUE(kt_sigbus(mem + BYTES - 1, true));
		EXPECT_NE(0, madvise(more, KT_BLOCK, MADV_POPULATE_WRITE));
		EXPECT_NE(0, mlock(more, KT_BLOCK));
		/* a system call that reads from it fails, and does not hang */
		fd = open("/dev/zero", O_RDONLY);
		EXPECT_EQ(-1, read(fd, more, 4096));
		EXPECT_EQ(EFAULT, errno);
		close(fd);
	}
	more = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_POPULATE, u.fd, 0);
	if (more != MAP_FAILED)
		munmap(more, BYTES);
	ASSERT_EQ(0, kt_info(&after));
	EXPECT_EQ(before.pinned_bytes, after.pinned_bytes);
	ASSERT_EQ(0, kt_populate(&u, 0, FRAMES, NULL));
	EXPECT_FALSE(kt_sigbus(mem + BYTES - 1, true));
	munmap(mem, BYTES);
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("bare", 0));
}

static int touches(void *arg)
{
	unsigned char *mem = arg;
	unsigned int seed = 1;
	size_t page;

	do {
		page = rand_r(&seed) / 7 % (BYTES / 4096);
		kt_sigbus(mem + page * 4096, true);
	} while (mem);
	return 0;
}

/*
 * While memory comes in for some frames, a client touches others, again and
 * again: each either stays without memory, or gives back what it got.
 */
TEST_F(arena, touched_while_populating)
{
	struct kvmm_pool_create spec = kt_spec("bare", KT_BLOCK, FRAMES, 0);
	struct kt u = { .fd = kt_dev(O_RDWR) };
	struct kvmm_pool_stat st;
	struct kvmm_info info;
	unsigned char *mem;
	uint32_t f, n;
	pid_t pid[2];
	int ret;

	ASSERT_EQ(0, kt_ioctl(u.fd, KVMM_POOL_CREATE, &spec));
	mem = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, u.fd, 0);
	ASSERT_NE(MAP_FAILED, (void *)mem);
	pid[0] = kt_spawn(touches, mem);
	pid[1] = kt_spawn(touches, mem);
	for (f = 0; f < FRAMES; f += n) {
		n = f % 5 + 1 < FRAMES - f ? f % 5 + 1 : FRAMES - f;
		ret = kt_populate(&u, f, n, NULL);
		EXPECT_EQ(0, ret) {
			TH_LOG("frame %u", f);
		}
		if (ret)
			break;
		EXPECT_EQ(0, kt_stat(&u, &st));
		EXPECT_EQ(f + n, st.frames_online);
		EXPECT_EQ(0, kt_info(&info));
		EXPECT_EQ(BYTES + st.frames_online * KT_BLOCK,
			  info.pinned_bytes);
	}
	for (f = 0; f < 2; f++) {
		kill(pid[f], SIGKILL);
		EXPECT_EQ(-ECHILD, kt_reap(pid[f]));
	}
	EXPECT_EQ(!!ret, kt_sigbus(mem + BYTES - 1, true));
	munmap(mem, BYTES);
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("bare", 0));
}

/* It outlives the file it was mapped from, and ends with the pool. */
TEST_F(arena, outlives_fd)
{
	unsigned char *mem = self->t.arena;
	struct kvmm_info info;
	char name[KVMM_NAME_LEN];

	kt_fill(&self->t, 7, 70);
	memcpy(name, self->t.name, sizeof(name));
	close(self->t.fd);
	self->t.fd = -1;
	EXPECT_TRUE(kt_good(&self->t, 7, 70));
	kt_fill(&self->t, 8, 80);
	EXPECT_TRUE(kt_good(&self->t, 8, 80));
	/* a mapping is not a client: nothing has to be forced */
	EXPECT_EQ(0, kt_destroy(name, 0));
	EXPECT_TRUE(kt_sigbus(mem + 7 * KT_BLOCK, false));
	EXPECT_TRUE(kt_sigbus(mem, true));
	EXPECT_EQ(0, kt_info(&info));
	EXPECT_EQ(0, info.pinned_bytes);
	munmap(mem, BYTES);
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, 4, 0));
}

/* With blocks smaller and larger than a page of either kind. */
TEST_F(arena, block_sizes)
{
	static const uint32_t sizes[] = { 4096, 8192, 1 << 20, 2 << 20,
					  4 << 20, 16 << 20 };
	struct kvmm_pool_create spec;
	struct kt u;
	uint32_t i, f;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		spec = kt_spec("sized", sizes[i], 3, 0);
		ASSERT_EQ(0, kt_create_spec(&u, &spec));
		EXPECT_EQ(3ULL * sizes[i], u.arena_size);
		for (f = 0; f < 3; f++)
			kt_fill(&u, f, 900 + f);
		for (f = 0; f < 3; f++)
			EXPECT_TRUE(kt_good(&u, f, 900 + f));
		kt_close(&u);
		EXPECT_EQ(0, kt_destroy("sized", 0));
	}
}

KT_MAIN
