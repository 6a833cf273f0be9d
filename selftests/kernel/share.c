// SPDX-License-Identifier: MIT
/*
 * Several processes on one pool: what one publishes others find; open files and
 * handles are passed around; and what a process held when it died comes back.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

#include "kt_harness.h"

#define FRAMES	64
#define POOL	"shared"

FIXTURE(share) {
	struct kt t;
	int to[2], from[2];	/* pipes to and from a child */
};

FIXTURE_SETUP(share)
{
	struct kvmm_pool_create spec = kt_spec(POOL, KT_BLOCK, FRAMES, 0);

	kt_wipe();
	ASSERT_EQ(0, pipe2(self->to, O_CLOEXEC));
	ASSERT_EQ(0, pipe2(self->from, O_CLOEXEC));
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
}

FIXTURE_TEARDOWN(share)
{
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
}

static uint64_t pins(struct kt *t)
{
	struct kvmm_pool_stat st;

	return kt_stat(t, &st) ? ~0ULL : st.pins;
}

static int tell(int fd)
{
	return write(fd, "x", 1) == 1 ? 0 : -EPIPE;
}

static int hear(int fd)
{
	char c;

	return read(fd, &c, 1) == 1 ? 0 : -EPIPE;
}

static int publisher(void *arg)
{
	FIXTURE_DATA(share) *self = arg;
	struct kvmm_block_ref refs[16];
	struct kt t;
	int ret = kt_join(&t, POOL, 0);

	if (!ret)
		ret = kt_store(&t, 1, 16, refs);
	if (!ret)
		ret = tell(self->from[1]);
	if (!ret)
		ret = hear(self->to[0]);
	if (!ret && kt_load_all(&t, 100, 16) != 16)
		ret = -ENODATA;
	return ret;
}

TEST_F(share, two_processes)
{
	struct kvmm_block_ref refs[16];
	pid_t pid = kt_spawn(publisher, self);

	ASSERT_EQ(0, hear(self->from[0]));
	EXPECT_EQ(16, kt_load_all(&self->t, 1, 16));
	EXPECT_EQ(0, kt_store(&self->t, 100, 16, refs));
	ASSERT_EQ(0, tell(self->to[1]));
	EXPECT_EQ(0, kt_reap(pid));
	EXPECT_EQ(16, kt_load_all(&self->t, 1, 16));
}

static int read_mapping(void *arg)
{
	struct kt *t = arg;

	return kt_good(t, 3, 77) ? 0 : -EBADMSG;
}

/* A child of fork() has the mapping and the client of its parent. */
TEST_F(share, fork)
{
	struct kvmm_block_ref refs[4];

	ASSERT_EQ(0, kt_alloc(&self->t, refs, 4));
	kt_fill(&self->t, 3, 77);
	EXPECT_EQ(0, kt_child(read_mapping, &self->t));
	/* its exit was not the last close */
	EXPECT_EQ(4, pins(&self->t));
	EXPECT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, 4, NULL));
}

static int send_fd(int sock, int fd)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = "f", .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	return sendmsg(sock, &msg, 0) == 1 ? 0 : -errno;
}

static int receive_fd(int sock)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control),
	};
	int fd;

	if (recvmsg(sock, &msg, 0) != 1 || !CMSG_FIRSTHDR(&msg))
		return -EPIPE;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* Has no client of its own: uses the one it is sent. */
static int uses_sent_client(void *arg)
{
	int sock = *(int *)arg;
	struct kvmm_block_ref refs[4];
	struct kt t = { .block_size = KT_BLOCK, .nr_frames = FRAMES,
			.arena_size = FRAMES * KT_BLOCK };

	t.fd = receive_fd(sock);
	if (t.fd < 0)
		return t.fd;
	t.arena = mmap(NULL, t.arena_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		       t.fd, 0);
	if (t.arena == MAP_FAILED)
		return -errno;
	/* the sender has closed it: we are the last */
	if (hear(sock) || pins(&t) != 4)
		return -EPROTO;
	if (kt_lookup(&t, 1, 4, 0, refs) != 4)
		return -ENODATA;
	if (!kt_good(&t, refs[2].frame, 3))
		return -EBADMSG;
	/* the same client: it may drop what the sender pinned */
	if (kt_unpin1(&t, refs[0].handle))
		return -EPERM;
	return pins(&t) == 3 ? 0 : -EPROTO;
}

TEST_F(share, passed_file)
{
	struct kvmm_block_ref refs[4];
	struct kt u;
	int sock[2];
	pid_t pid;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	pid = kt_spawn(uses_sent_client, &sock[1]);
	ASSERT_EQ(0, kt_store(&self->t, 1, 4, refs));
	ASSERT_EQ(0, kt_join(&u, POOL, 0));
	ASSERT_EQ(4, kt_lookup(&u, 1, 4, KVMM_LOOKUP_PIN, refs));
	ASSERT_EQ(0, send_fd(sock[0], u.fd));
	kt_close(&u);
	ASSERT_EQ(0, tell(sock[0]));
	EXPECT_EQ(0, kt_reap(pid));
	/* and with it went what it held */
	EXPECT_EQ(0, kt_wait_unpinned(&self->t));
}

struct work {
	uint64_t handle;
	uint32_t frame;
	uint32_t part;
	uint64_t id;
};

/* A worker of a tensor-parallel pair: fills its half of each block. */
static int worker(void *arg)
{
	int in = *(int *)arg, ret;
	struct kvmm_publish_entry e;
	struct work w;
	struct kt t;
	unsigned char *mem;

	ret = kt_join(&t, POOL, 0);
	if (ret)
		return ret;
	while (read(in, &w, sizeof(w)) == sizeof(w) && w.handle) {
		ret = kt_pin1(&t, w.handle);
		if (ret)
			return ret;
		mem = malloc(KT_BLOCK);
		kt_fill_mem(mem, KT_BLOCK, w.id);
		memcpy(t.arena + (size_t)w.frame * KT_BLOCK +
		       w.part * KT_BLOCK / 2, mem + w.part * KT_BLOCK / 2,
		       KT_BLOCK / 2);
		free(mem);
		e = kt_entry(&t, w.handle, w.id);
		e.part = w.part;
		ret = kt_publish(&t, &e, 1, 0);
		if (ret || e.result < 0)
			return ret ? ret : e.result;
	}
	return 0;
}

/* A scheduler allocates and passes handles; two workers fill and publish. */
TEST_F(share, scheduler_and_workers)
{
	struct kvmm_block_ref refs[32];
	int a[2], b[2];
	struct work end = { 0 };
	uint32_t i;
	pid_t pa, pb;

	ASSERT_EQ(0, pipe(a));
	ASSERT_EQ(0, pipe(b));
	pa = kt_spawn(worker, &a[0]);
	pb = kt_spawn(worker, &b[0]);
	ASSERT_EQ(0, kt_alloc_parts(&self->t, refs, 32, 2));
	for (i = 0; i < 32; i++) {
		struct work w = { refs[i].handle, refs[i].frame, 0, 500 + i };

		ASSERT_EQ(sizeof(w), write(a[1], &w, sizeof(w)));
		w.part = 1;
		ASSERT_EQ(sizeof(w), write(b[1], &w, sizeof(w)));
	}
	ASSERT_EQ(sizeof(end), write(a[1], &end, sizeof(end)));
	ASSERT_EQ(sizeof(end), write(b[1], &end, sizeof(end)));
	EXPECT_EQ(0, kt_reap(pa));
	EXPECT_EQ(0, kt_reap(pb));
	EXPECT_EQ(32, kt_load_all(&self->t, 500, 32));
	/* what is left is the scheduler's own pins */
	EXPECT_EQ(32, pins(&self->t));
	EXPECT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, 32, NULL));
}

/* Holds pins, unpublished blocks and a mapping until it is killed. */
static int holder(void *arg)
{
	FIXTURE_DATA(share) *self = arg;
	struct kvmm_block_ref refs[20];
	uint32_t frame;
	struct kt t;
	int ret = kt_join(&t, POOL, 0);

	if (!ret)
		ret = kt_alloc(&t, refs, 20);
	frame = refs[0].frame;
	if (!ret && kt_lookup(&t, 1, 8, KVMM_LOOKUP_PIN, refs) != 8)
		ret = -ENODATA;
	if (!ret && kt_lookup(&t, 1, 8, KVMM_LOOKUP_PIN, refs) != 8)
		ret = -ENODATA;
	if (ret || tell(self->from[1]))
		return ret;
	for (;;)
		memset(t.arena + (size_t)frame * KT_BLOCK, 0, KT_BLOCK);
}

TEST_F(share, killed)
{
	struct kvmm_block_ref refs[FRAMES];
	struct kvmm_pool_stat st;
	unsigned int round;
	pid_t pid;

	ASSERT_EQ(0, kt_store(&self->t, 1, 8, refs));
	for (round = 1; round <= 3; round++) {
		pid = kt_spawn(holder, self);
		ASSERT_EQ(0, hear(self->from[0]));
		ASSERT_EQ(0, kt_stat(&self->t, &st));
		EXPECT_EQ(36, st.pins);
		EXPECT_EQ(28, st.blocks_pinned);
		EXPECT_EQ(20, st.blocks[KVMM_FILLING]);
		EXPECT_EQ(2, st.nr_clients);
		ASSERT_EQ(0, kill(pid, SIGKILL));
		EXPECT_EQ(-ECHILD, kt_reap(pid));
		ASSERT_EQ(0, kt_wait_unpinned(&self->t));
		ASSERT_EQ(0, kt_stat(&self->t, &st));
		EXPECT_EQ(0, st.blocks_pinned);
		EXPECT_EQ(1, st.nr_clients);
		EXPECT_EQ(round, st.clients_dead);
		/* no time of rest was asked for */
		EXPECT_EQ(FRAMES - 8, st.frames_free + st.frames_quarantined);
		KT_CONSISTENT(&self->t);
	}
	/* all frames can be had */
	EXPECT_EQ(8, kt_load_all(&self->t, 1, 8));
	ASSERT_EQ(0, kt_alloc(&self->t, refs, FRAMES));
	EXPECT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, FRAMES, NULL));
}

/* A block filled by two is freed when the last of them is gone. */
static int joins_filling(void *arg)
{
	struct kt t;
	int ret = kt_join(&t, POOL, 0);

	return ret ? ret : kt_pin1(&t, *(uint64_t *)arg);
}

TEST_F(share, filling_of_two)
{
	struct kvmm_block_ref ref;

	ASSERT_EQ(0, kt_alloc_parts(&self->t, &ref, 1, 2));
	EXPECT_EQ(0, kt_child(joins_filling, &ref.handle));
	EXPECT_EQ(KVMM_FILLING, kt_query1(&self->t, ref.handle));
	EXPECT_EQ(1, kt_publish1(&self->t, ref.handle, 1, KVMM_PUBLISH_KEEP));
	EXPECT_EQ(0, kt_unpin1(&self->t, ref.handle));
	EXPECT_EQ(-ESTALE, kt_query1(&self->t, ref.handle));
	EXPECT_EQ(0, kt_load(&self->t, 1));
}

static int races_to_publish(void *arg)
{
	struct kvmm_block_ref ref;
	int won = 0, ret;
	struct kt t;
	uint64_t id;

	(void)arg;
	ret = kt_join(&t, POOL, 0);
	for (id = 1000; id < 1030 && !ret; id++) {
		do {
			ret = kt_alloc(&t, &ref, 1);
		} while (ret == -EAGAIN);
		if (ret)
			break;
		kt_fill(&t, ref.frame, id);
		ret = kt_publish1(&t, ref.handle, id, 0);
		won += !ret;
		if (ret == -EEXIST)
			ret = 0;
	}
	return ret ? ret : won;
}

/* Four processes publish the same keys: each key is won once. */
TEST_F(share, one_wins)
{
	int i, won = 0, ret;
	pid_t pid[4];

	for (i = 0; i < 4; i++)
		pid[i] = kt_spawn(races_to_publish, NULL);
	for (i = 0; i < 4; i++) {
		ret = kt_reap(pid[i]);
		EXPECT_LE(0, ret);
		won += ret;
	}
	EXPECT_EQ(30, won);
	EXPECT_EQ(30, kt_load_all(&self->t, 1000, 30));
}

KT_MAIN
