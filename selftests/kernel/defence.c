// SPDX-License-Identifier: MIT
/*
 * More ways at the arena from outside: userfaultfd, core dumps, the file behind
 * a mapping, and machines with memory for movable pages.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <liburing.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "kt_harness.h"

#define FRAMES	128			/* of 64 KiB: 8 MiB */
#define PATTERN	"/proc/sys/kernel/core_pattern"
#define IN_ARENA	0x6b766d6d2d617265ULL
#define BESIDE	0x6b766d6d2d73656eULL

FIXTURE(defence) {
	struct kt t;
};

FIXTURE_SETUP(defence)
{
	kt_wipe();
	ASSERT_EQ(0, kt_create(&self->t, KT_BLOCK, FRAMES, 0));
}

FIXTURE_TEARDOWN(defence)
{
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
}

/* A page that a client brings along would be one that the pool knows not of. */
TEST_F(defence, userfaultfd)
{
	static unsigned char data[4096] __attribute__((aligned(4096)));
	struct kvmm_pool_create spec = kt_spec("half", KT_BLOCK, FRAMES, 0);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	struct uffdio_copy copy = { .src = (uintptr_t)data, .len = 4096 };
	struct kvmm_info before, after;
	struct kvmm_pool_stat st;
	struct kt u;
	int fd, ufd, ret;

	fd = kt_dev(O_RDWR);
	ASSERT_EQ(0, kt_ioctl(fd, KVMM_POOL_CREATE, &spec));
	close(fd);
	ASSERT_EQ(0, kt_join(&u, "half", 0));
	ASSERT_EQ(0, kt_populate(&u, 0, FRAMES / 2, NULL));
	ASSERT_EQ(0, kt_info(&before));
	ufd = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (ufd < 0 || ioctl(ufd, UFFDIO_API, &api)) {
		kt_close(&u);
		kt_destroy("half", 0);
		SKIP(return, "no userfaultfd");
	}
	reg.range.start = (uintptr_t)u.arena;
	reg.range.len = u.arena_size;
	ret = ioctl(ufd, UFFDIO_REGISTER, &reg);
	if (!ret) {
		memset(data, 0x5a, sizeof(data));
		copy.dst = (uintptr_t)u.arena + (FRAMES - 1) * KT_BLOCK;
		EXPECT_NE(0, ioctl(ufd, UFFDIO_COPY, &copy));
		/* nor over a frame that is there */
		copy.dst = (uintptr_t)u.arena;
		EXPECT_NE(0, ioctl(ufd, UFFDIO_COPY, &copy));
	}
	close(ufd);
	EXPECT_TRUE(kt_sigbus(u.arena + (FRAMES - 1) * KT_BLOCK, false));
	ASSERT_EQ(0, kt_info(&after));
	EXPECT_EQ(before.pinned_bytes, after.pinned_bytes);
	ASSERT_EQ(0, kt_stat(&u, &st));
	EXPECT_EQ(FRAMES / 2, st.frames_online);
	/* what comes later is zero */
	EXPECT_EQ(0, kt_populate(&u, 0, FRAMES, NULL));
	EXPECT_EQ(0, u.arena[(FRAMES - 1) * KT_BLOCK]);
	EXPECT_EQ(0, u.arena[0]);
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("half", 0));
}

/* Dies with a word in the arena and another one beside it. */
static void dump_core(struct kt *t)
{
	struct rlimit no_limit = { RLIM_INFINITY, RLIM_INFINITY };
	uint64_t *beside;
	size_t at;

	prctl(PR_SET_DUMPABLE, 1);
	setrlimit(RLIMIT_CORE, &no_limit);
	kt_file_put("/proc/self/coredump_filter", "0x7f");
	beside = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	beside[0] = BESIDE;
	for (at = 0; at < t->arena_size; at += 4096)
		*(uint64_t *)(t->arena + at) = IN_ARENA;
	/* who asks for it does not get it either */
	madvise(t->arena, t->arena_size, MADV_DODUMP);
	signal(SIGABRT, SIG_DFL);
	abort();
}

/* How often the word stands at the start of a page of the file. */
static long words(const char *path, uint64_t word)
{
	uint64_t page[512];
	long found = 0;
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		return -1;
	while (read(fd, page, sizeof(page)) == sizeof(page))
		found += page[0] == word;
	close(fd);
	return found;
}

TEST_F(defence, core_dump)
{
	const char *core = "/tmp/kvmm-core";
	char pattern[256];
	int status = 0;
	pid_t pid;

	if (kt_file_get(PATTERN, pattern, sizeof(pattern)) ||
	    kt_file_put(PATTERN, core))
		SKIP(return, "no core dumps");
	unlink(core);
	pid = fork();
	if (!pid)
		dump_core(&self->t);
	EXPECT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, kt_file_put(PATTERN, pattern));
	EXPECT_TRUE(WIFSIGNALED(status) && WCOREDUMP(status));
	/* the dump is a good one, and has nothing of the pool */
	EXPECT_EQ(1, words(core, BESIDE));
	EXPECT_EQ(0, words(core, IN_ARENA));
	unlink(core);
}

/* The file behind the mapping, for those who may look it up. */
static int open_behind(struct kt *t, int flags)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx",
		 (unsigned long)t->arena,
		 (unsigned long)t->arena + t->arena_size);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/*
 * Root can read it, and make it mutable again, of which the file system does
 * not tell us.  Its size stays all the same: it is sealed.
 */
TEST_F(defence, sealed)
{
	int fd, flags = 0;

	kt_fill(&self->t, 0, 1);
	EXPECT_EQ(-EPERM, open_behind(&self->t, O_RDWR));
	fd = open_behind(&self->t, O_RDONLY);
	if (fd == -ENOENT)
		SKIP(return, "no /proc/PID/map_files");
	ASSERT_LE(0, fd);
	EXPECT_EQ(F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW,
		  fcntl(fd, F_GET_SEALS));
	if (!ioctl(fd, FS_IOC_SETFLAGS, &flags)) {
		int rw = open_behind(&self->t, O_RDWR);

		ASSERT_LE(0, rw);
		EXPECT_EQ(-1, ftruncate(rw, 0));
		EXPECT_EQ(EPERM, errno);
		EXPECT_EQ(-1, ftruncate(rw, self->t.arena_size * 2));
		EXPECT_EQ(EPERM, errno);
		EXPECT_EQ(-1, fcntl(rw, F_ADD_SEALS, F_SEAL_WRITE));
		EXPECT_EQ(EPERM, errno);
		close(rw);
	}
	close(fd);
	EXPECT_TRUE(kt_good(&self->t, 0, 1));
}

#ifndef CAP_CHECKPOINT_RESTORE
#define CAP_CHECKPOINT_RESTORE	40
#endif

/* A user who may look files of mappings up, and nothing else. */
static int opens_behind(void *arg)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct caps[2] = { 0 };
	struct kt *t = arg;
	int fd;

	caps[1].effective = 1U << (CAP_CHECKPOINT_RESTORE - 32);
	caps[1].permitted = caps[1].effective;
	if (prctl(PR_SET_KEEPCAPS, 1) || setresgid(1000, 1000, 1000) ||
	    setresuid(1000, 1000, 1000) || syscall(SYS_capset, &head, caps))
		return -ECANCELED;
	/* or /proc/self would be root's */
	prctl(PR_SET_DUMPABLE, 1);
	fd = open_behind(t, O_RDONLY);
	return fd < 0 ? fd : 0;
}

/* It is nobody's to open, so no way around the pool's mode. */
TEST_F(defence, nobody_opens_the_file)
{
	EXPECT_EQ(-EACCES, kt_child(opens_behind, &self->t));
}

/*
 * With memory set aside for movable pages, a page there can't be registered
 * where it is.  Needs a machine that has some: movablecore=.
 */
TEST_F(defence, movable_memory)
{
	struct iovec iov = { self->t.arena, self->t.arena_size };
	struct io_uring ring;
	char line[1024];
	bool movable;

	ASSERT_EQ(0, kt_file_get("/proc/cmdline", line, sizeof(line)));
	movable = strstr(line, "movablecore=");
	if (!movable)
		SKIP(return, "no memory is set aside for movable pages");
	ASSERT_EQ(0, io_uring_queue_init(4, &ring, 0));
	EXPECT_EQ(0, io_uring_register_buffers(&ring, &iov, 1));
	io_uring_queue_exit(&ring);
}

KT_MAIN
