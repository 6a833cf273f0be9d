// SPDX-License-Identifier: MIT
/*
 * Leases: memory that a client has registered with a device stays where it is,
 * is asked back when the system is short, and goes when the lease ends.
 */
#include <fcntl.h>
#include <liburing.h>
#include <signal.h>

#include "kt_export.h"
#include "kt_harness.h"

#define UNITS	4
#define UNIT	(KT_UNIT / KT_BLOCK)
#define FRAMES	(UNITS * UNIT)

FIXTURE(lease) {
	struct kt t;
	long pressure;
	struct kvmm_pool_stat st;
};

FIXTURE_SETUP(lease)
{
	struct kvmm_pool_create spec =
		kt_elastic_spec("leased", KT_BLOCK, UNITS, UNITS - 1, 0);

	kt_wipe();
	self->pressure = kt_pressure_ms(600000);
	ASSERT_LE(0, self->pressure);
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
}

FIXTURE_TEARDOWN(lease)
{
	KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	EXPECT_LE(0, kt_pressure_ms(self->pressure));
}

#define STAT() ASSERT_EQ(0, kt_stat(&self->t, &self->st))

/* Waits until the pool has @units online; the worker is not ours to wait for. */
static bool comes_to(struct kt *t, uint32_t units)
{
	uint64_t deadline = kt_now_ms() + 30000;
	struct kvmm_pool_stat st;

	do {
		if (kt_stat(t, &st))
			return false;
		/* a frame is offline first, and then without memory */
		if (st.frames_online == units * UNIT &&
		    st.given_back - st.taken_again == FRAMES - units * UNIT)
			return true;
		kt_sleep_ms(2);
	} while (kt_now_ms() < deadline);
	return false;
}

/* A chunk that was on its way out a moment ago can be had soon. */
static int lease_soon(struct kt *t, uint32_t chunk)
{
	uint64_t deadline = kt_now_ms() + 30000;
	int ret;

	do {
		ret = kt_lease(t, chunk, 1, 0, NULL);
		if (ret != -EBUSY)
			break;
		kt_sleep_ms(2);
	} while (kt_now_ms() < deadline);
	return ret;
}

static bool has_memory(struct kt *t, uint32_t unit)
{
	return !kt_sigbus(t->arena + (size_t)unit * KT_UNIT + 12345, false);
}

TEST_F(lease, arguments)
{
	struct kvmm_lease arg = { .size = sizeof(arg), .count = UNITS };
	struct kt *t = &self->t;
	uint32_t done;

	EXPECT_EQ(-EINVAL, kt_lease(t, 0, 0, 0, NULL));
	EXPECT_EQ(-EINVAL, kt_lease(t, 0, UNITS + 1, 0, NULL));
	EXPECT_EQ(-EINVAL, kt_lease(t, UNITS, 1, 0, NULL));
	EXPECT_EQ(-EINVAL, kt_lease(t, 1, UINT32_MAX, 0, NULL));
	EXPECT_EQ(-EINVAL, kt_lease(t, UINT32_MAX, 1, 0, NULL));
	EXPECT_EQ(-EINVAL, kt_lease(t, 0, 1, 2, NULL));
	arg.__reserved = 1;
	EXPECT_EQ(-EINVAL, kt_ioctl(t->fd, KVMM_LEASE, &arg));
	STAT();
	EXPECT_EQ(0, self->st.chunks_leased);
	/* ending what is not there is fine, and so is taking it twice */
	EXPECT_EQ(0, kt_lease(t, 0, UNITS, KVMM_LEASE_END, &done));
	EXPECT_EQ(UNITS, done);
	EXPECT_EQ(0, kt_lease(t, 1, 2, 0, &done));
	EXPECT_EQ(2, done);
	EXPECT_EQ(0, kt_lease(t, 0, UNITS, 0, &done));
	EXPECT_EQ(UNITS, done);
	STAT();
	EXPECT_EQ(UNITS, self->st.chunks_leased);
	EXPECT_EQ(0, kt_lease(t, 0, 3, KVMM_LEASE_END, NULL));
	STAT();
	EXPECT_EQ(1, self->st.chunks_leased);
}

/* Pools without elastic frames have chunks too, and many of them. */
TEST_F(lease, firm_pool)
{
	struct kvmm_pool_create spec = kt_spec("firm", 4096, 35900, 0);
	struct kt u = { .fd = kt_dev(O_RDWR) };
	uint32_t done;

	spec.chunk_frames = 512;
	ASSERT_EQ(0, kt_ioctl(u.fd, KVMM_POOL_CREATE, &spec));
	EXPECT_EQ(0, kt_lease(&u, 0, 71, 0, &done));
	EXPECT_EQ(71, done);
	EXPECT_EQ(-EINVAL, kt_lease(&u, 0, 72, 0, NULL));
	kt_close(&u);
	ASSERT_EQ(0, kt_join(&u, "firm", KVMM_POOL_RDONLY));
	/* who only reads may have registered it as well */
	EXPECT_EQ(0, kt_lease(&u, 70, 1, 0, NULL));
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("firm", 0));
}

/* What is leased stays and is asked back; when the lease ends it goes. */
TEST_F(lease, holds_and_gives)
{
	struct kt *t = &self->t, u;
	uint32_t done;

	ASSERT_EQ(0, kt_join(&u, t->name, 0));
	kt_fill(t, 2 * UNIT, 22);
	ASSERT_EQ(0, kt_lease(t, 2, 1, 0, NULL));
	ASSERT_EQ(0, kt_squeeze());
	ASSERT_EQ(0, kt_want(t, 1));
	EXPECT_TRUE(comes_to(t, 2));
	EXPECT_TRUE(has_memory(t, 2));
	EXPECT_FALSE(has_memory(t, 1));
	EXPECT_FALSE(has_memory(t, 3));
	EXPECT_TRUE(kt_good(t, 2 * UNIT, 22));
	STAT();
	EXPECT_EQ(1, self->st.chunks_leased);
	EXPECT_EQ(1, self->st.chunks_wanted);
	/* nobody else gets it now; who has it has it */
	EXPECT_EQ(-EBUSY, kt_lease(&u, 2, 1, 0, NULL));
	EXPECT_EQ(-EBUSY, kt_lease(&u, 0, UNITS, 0, &done));
	EXPECT_EQ(2, done);
	EXPECT_EQ(0, kt_lease(&u, 0, 2, KVMM_LEASE_END, NULL));
	EXPECT_EQ(0, kt_lease(t, 2, 1, 0, NULL));
	EXPECT_EQ(0, kt_lease(t, 2, 1, KVMM_LEASE_END, NULL));
	EXPECT_TRUE(comes_to(t, 1));
	EXPECT_FALSE(has_memory(t, 2));
	STAT();
	EXPECT_EQ(0, self->st.chunks_wanted);
	EXPECT_EQ(3 * UNIT, self->st.given_back);
	/* it can be leased and come back */
	EXPECT_EQ(0, lease_soon(&u, 2));
	EXPECT_EQ(0, kt_populate(t, 0, FRAMES, NULL));
	EXPECT_TRUE(has_memory(&u, 2));
	kt_close(&u);
}

/* Only the last of several leases on a chunk lets it go. */
TEST_F(lease, shared)
{
	struct kt *t = &self->t, u;

	ASSERT_EQ(0, kt_join(&u, t->name, 0));
	ASSERT_EQ(0, kt_lease(t, 1, 3, 0, NULL));
	ASSERT_EQ(0, kt_lease(&u, 3, 1, 0, NULL));
	STAT();
	EXPECT_EQ(3, self->st.chunks_leased);
	ASSERT_EQ(0, kt_lease(t, 3, 1, KVMM_LEASE_END, NULL));
	ASSERT_EQ(0, kt_squeeze());
	ASSERT_EQ(0, kt_want(t, 3));
	STAT();
	EXPECT_EQ(FRAMES, self->st.frames_online);
	/* with its client */
	kt_close(&u);
	EXPECT_TRUE(comes_to(t, 3));
	EXPECT_FALSE(has_memory(t, 3));
	EXPECT_EQ(0, kt_lease(t, 1, 2, KVMM_LEASE_END, NULL));
	EXPECT_TRUE(comes_to(t, 1));
}

static int listen_to(struct kt *t)
{
	struct kvmm_events arg = {
		.size = sizeof(arg),
		.mask = 1 << KVMM_EVENT_PRESSURE | 1 << KVMM_EVENT_CHUNK_WANTED |
			1 << KVMM_EVENT_GIVEN_BACK,
	};

	fcntl(t->fd, F_SETFL, O_NONBLOCK);
	return kt_ioctl(t->fd, KVMM_EVENTS, &arg);
}

/* Events of each type since the last time, and the sum of their values. */
static void hear(struct kt *t, uint64_t n[KVMM_NR_EVENTS],
		 uint64_t sum[KVMM_NR_EVENTS])
{
	struct kvmm_event ev;

	memset(n, 0, KVMM_NR_EVENTS * sizeof(*n));
	memset(sum, 0, KVMM_NR_EVENTS * sizeof(*sum));
	while (read(t->fd, &ev, sizeof(ev)) == sizeof(ev)) {
		n[ev.type]++;
		sum[ev.type] += ev.value;
	}
}

/* All are told of the pressure and of what went, holders that they are asked. */
TEST_F(lease, events)
{
	uint64_t n[KVMM_NR_EVENTS], sum[KVMM_NR_EVENTS];
	struct kt *t = &self->t, u;

	ASSERT_EQ(0, kt_join(&u, t->name, 0));
	ASSERT_EQ(0, listen_to(t));
	ASSERT_EQ(0, listen_to(&u));
	ASSERT_EQ(0, kt_lease(t, 1, 1, 0, NULL));
	ASSERT_EQ(0, kt_lease(t, 3, 1, 0, NULL));
	ASSERT_EQ(0, kt_squeeze());
	ASSERT_EQ(0, kt_want(t, 2));
	hear(t, n, sum);
	EXPECT_EQ(2, n[KVMM_EVENT_CHUNK_WANTED]);
	EXPECT_EQ(1 + 3, sum[KVMM_EVENT_CHUNK_WANTED]);
	EXPECT_EQ(UNIT, sum[KVMM_EVENT_GIVEN_BACK]);
	EXPECT_LE(1, n[KVMM_EVENT_PRESSURE]);
	EXPECT_LE(n[KVMM_EVENT_PRESSURE], sum[KVMM_EVENT_PRESSURE]);
	hear(&u, n, sum);
	EXPECT_EQ(0, n[KVMM_EVENT_CHUNK_WANTED]);
	EXPECT_EQ(UNIT, sum[KVMM_EVENT_GIVEN_BACK]);
	EXPECT_LE(1, n[KVMM_EVENT_PRESSURE]);
	/* asked once, not again and again */
	ASSERT_EQ(0, kt_squeeze());
	hear(t, n, sum);
	EXPECT_EQ(0, n[KVMM_EVENT_CHUNK_WANTED]);
	ASSERT_EQ(0, kt_lease(t, 0, UNITS, KVMM_LEASE_END, NULL));
	EXPECT_TRUE(comes_to(t, 1));
	/* the worker tells after it gave */
	EXPECT_EQ(0, kt_squeeze());
	hear(t, n, sum);
	EXPECT_EQ(2 * UNIT, sum[KVMM_EVENT_GIVEN_BACK]);
	kt_close(&u);
}

/* Asked back a while ago, and nobody wants it any more. */
TEST_F(lease, wish_lapses)
{
	struct kt *t = &self->t, u;

	ASSERT_EQ(0, kt_join(&u, t->name, 0));
	ASSERT_EQ(0, kt_lease(t, 1, 2, 0, NULL));
	ASSERT_EQ(0, kt_squeeze());
	ASSERT_EQ(0, kt_want(t, 2));
	ASSERT_EQ(0, kt_squeeze());
	ASSERT_LE(0, kt_pressure_ms(0));
	STAT();
	EXPECT_EQ(0, self->st.chunks_wanted);
	EXPECT_EQ(0, kt_lease(&u, 1, 1, 0, NULL));
	EXPECT_EQ(0, kt_lease(t, 1, 2, KVMM_LEASE_END, NULL));
	kt_close(&u);
	ASSERT_LE(0, kt_pressure_ms(600000));
	STAT();
	EXPECT_EQ(3 * UNIT, self->st.frames_online);
	/* and it can be wanted again */
	ASSERT_EQ(0, kt_lease(t, 1, 1, 0, NULL));
	ASSERT_EQ(0, kt_squeeze());
	ASSERT_EQ(0, kt_want(t, 1));
	STAT();
	EXPECT_EQ(2 * UNIT, self->st.frames_online);
}

static int holds_for_ever(void *arg)
{
	struct kt u;

	if (kt_join(&u, arg, 0) || kt_lease(&u, 1, 3, 0, NULL))
		return 1;
	for (;;)
		pause();
}

TEST_F(lease, dies_with_its_client)
{
	pid_t pid = kt_spawn(holds_for_ever, self->t.name);
	uint64_t deadline = kt_now_ms() + 30000;

	do {
		kt_sleep_ms(2);
		STAT();
	} while (self->st.chunks_leased < 3 && kt_now_ms() < deadline);
	ASSERT_EQ(3, self->st.chunks_leased);
	ASSERT_EQ(0, kt_squeeze());
	ASSERT_EQ(0, kt_want(&self->t, 3));
	STAT();
	EXPECT_EQ(FRAMES, self->st.frames_online);
	kill(pid, SIGKILL);
	EXPECT_EQ(-ECHILD, kt_reap(pid));
	EXPECT_TRUE(comes_to(&self->t, 1));
	STAT();
	EXPECT_EQ(0, self->st.chunks_leased);
}

/* Reads a frame's bytes through the ring's registered buffer into a file. */
static int ring_io(struct io_uring *ring, struct kt *t, int fd, uint32_t frame,
		   bool write)
{
	unsigned char *mem = t->arena + (size_t)frame * KT_BLOCK;
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe;
	int ret;

	sqe = io_uring_get_sqe(ring);
	if (write)
		io_uring_prep_write_fixed(sqe, fd, mem, KT_BLOCK, 0, 0);
	else
		io_uring_prep_read_fixed(sqe, fd, mem, KT_BLOCK, 0, 0);
	ret = io_uring_submit(ring);
	if (ret < 0)
		return ret;
	ret = io_uring_wait_cqe(ring, &cqe);
	if (ret)
		return ret;
	ret = cqe->res == KT_BLOCK ? 0 : cqe->res < 0 ? cqe->res : -EIO;
	io_uring_cqe_seen(ring, cqe);
	return ret;
}

/*
 * Registered memory under pressure: what the device writes is what the CPU
 * reads, and the other way round.
 */
static void registered(struct __test_metadata *_metadata,
		       FIXTURE_DATA(lease) *self, bool lease)
{
	struct kt *t = &self->t;
	struct iovec iov = { t->arena + 2 * (size_t)KT_UNIT, KT_UNIT };
	struct io_uring ring;
	char path[128];
	int fd;

	if (!kt_disk_dir())
		SKIP(return, "no disk to test on");
	snprintf(path, sizeof(path), "%s/registered", kt_disk_dir());
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, io_uring_queue_init(4, &ring, 0));
	if (lease)
		ASSERT_EQ(0, kt_lease(t, 2, 1, 0, NULL));
	ASSERT_EQ(0, io_uring_register_buffers(&ring, &iov, 1));
	kt_fill(t, 2 * UNIT + 1, 1);
	ASSERT_EQ(0, kt_squeeze());
	STAT();
	EXPECT_EQ(2 * UNIT, self->st.frames_online);
	EXPECT_FALSE(has_memory(t, 3));

	ASSERT_EQ(0, ring_io(&ring, t, fd, 2 * UNIT + 1, true));
	ASSERT_EQ(0, ring_io(&ring, t, fd, 2 * UNIT + 5, false));
	EXPECT_TRUE(kt_good(t, 2 * UNIT + 5, 1));
	kt_fill(t, 2 * UNIT + 5, 2);
	ASSERT_EQ(0, ring_io(&ring, t, fd, 2 * UNIT + 5, true));
	ASSERT_EQ(0, ring_io(&ring, t, fd, 2 * UNIT + 1, false));
	EXPECT_TRUE(kt_good(t, 2 * UNIT + 1, 2));

	ASSERT_EQ(0, io_uring_unregister_buffers(&ring));
	if (lease)
		ASSERT_EQ(0, kt_lease(t, 2, 1, KVMM_LEASE_END, NULL));
	ASSERT_EQ(0, kt_squeeze());
	EXPECT_TRUE(comes_to(t, 1));
	io_uring_queue_exit(&ring);
	close(fd);
	unlink(path);
}

/* Memory behind a dma-buf stays until that is closed. */
TEST_F(lease, exported)
{
	struct kt *t = &self->t;
	struct kvmm_info info;
	int fd;

	ASSERT_EQ(0, kt_info(&info));
	if (!(info.features & KVMM_FEATURE_EXPORT))
		SKIP(return, "no dma-bufs");
	fd = kt_export(t, 2 * UNIT + 5, 3, 0);
	ASSERT_LE(0, fd);
	kt_fill(t, 2 * UNIT + 6, 6);
	ASSERT_EQ(0, kt_squeeze());
	EXPECT_TRUE(comes_to(t, 2));
	EXPECT_TRUE(kt_good(t, 2 * UNIT + 6, 6));
	EXPECT_EQ(-EAGAIN, kt_export(t, 3 * UNIT, 1, 0));
	close(fd);
	ASSERT_EQ(0, kt_squeeze());
	EXPECT_TRUE(comes_to(t, 1));
}

TEST_F(lease, registered_with_a_lease)
{
	registered(_metadata, self, true);
}

TEST_F(lease, registered_without_one)
{
	registered(_metadata, self, false);
}

KT_MAIN
