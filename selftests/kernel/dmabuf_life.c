// SPDX-License-Identifier: MIT
/*
 * How long a dma-buf lives: the memory is there until the last who has it is
 * gone, in whatever order things end, and is counted until then; many of them,
 * ones that nobody is told of, and ones that are made while the pool goes.
 */
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "dmabuf.h"

/* ---- ends, in every order ---- */

static int try_unload(void)
{
	return syscall(SYS_delete_module, "kvmm", O_NONBLOCK) ? -errno : 0;
}

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
	/* With one CPU it takes luck; there failnth_mem has each copy fail. */
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		EXPECT_LT(0, failed);
	EXPECT_LT(0, good);
	munmap(trap.arg, 4096);
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
