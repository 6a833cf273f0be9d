// SPDX-License-Identifier: MIT
/*
 * Events: choosing them, reading and waiting for them in every way there is,
 * what is lost, and how it all ends with the pool.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "kt_harness.h"
#include "kt_ring.h"

#define FRAMES	8
#define SLOTS	16
#define AREA	"event-area"
#define BIT(type)	(1ULL << (type))
#define EVICTED	BIT(KVMM_EVENT_EVICTED)
#define PURGED	BIT(KVMM_EVENT_PURGED)
#define DEGRADED	BIT(KVMM_EVENT_DEGRADED)
#define MAX	64

FIXTURE(event) {
	struct kt t;
	struct kvmm_event ev[MAX];
};

/* A pool without an area: what is stored beyond the frames is purged. */
FIXTURE_SETUP(event)
{
	struct kvmm_pool_create spec = kt_spec("event", 4096, FRAMES, SLOTS);

	kt_wipe();
	spec.flags = KVMM_POOL_MANUAL_CLOCK;
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	ASSERT_EQ(0, kt_clock(&self->t, 5));
}

FIXTURE_TEARDOWN(event)
{
	if (self->t.fd >= 0)
		KT_FINISH(&self->t);
}

static int choose(struct kt *t, uint64_t mask, uint32_t count)
{
	struct kvmm_events a = {
		.size = sizeof(a), .mask = mask, .count = count,
	};

	return kt_ioctl(t->fd, KVMM_EVENTS, &a);
}

/* Events read, at most @max; or -errno. */
static int take(struct kt *t, struct kvmm_event *ev, int max)
{
	ssize_t n = read(t->fd, ev, max * sizeof(*ev));

	if (n < 0)
		return -errno;
	return n % sizeof(*ev) ? -EBADMSG : (int)(n / sizeof(*ev));
}

static int nonblock(struct kt *t, bool on)
{
	return fcntl(t->fd, F_SETFL, on ? O_NONBLOCK : 0);
}

/* What poll() says right now. */
static int ready(struct kt *t)
{
	struct pollfd p = { .fd = t->fd, .events = POLLIN };

	return poll(&p, 1, 0) < 0 ? -errno : p.revents;
}

static bool is_block(const struct kvmm_event *ev, uint32_t type,
		     uint64_t handle, uint64_t id)
{
	uint8_t key[KVMM_KEY_LEN];

	kt_key(key, id);
	return ev->type == type && ev->handle == handle && !ev->value &&
	       !ev->flags && !memcmp(ev->key, key, sizeof(key));
}

/* Blocks id, id + 1 ..., each younger than the one before it. */
static int store_refs(struct kt *t, uint64_t id, uint32_t n,
		      struct kvmm_block_ref *refs)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < n && !ret; i++)
		ret = kt_store(t, id + i, 1, &refs[i]);
	return ret;
}

static int store(struct kt *t, uint64_t id, uint32_t n)
{
	struct kvmm_block_ref refs[2 * FRAMES];

	return store_refs(t, id, n, refs);
}

TEST_F(event, offered)
{
	struct kvmm_info info;

	ASSERT_EQ(0, kt_info(&info));
	EXPECT_NE(0, info.features & KVMM_FEATURE_EVENTS);
}

TEST_F(event, nothing_chosen)
{
	struct kt other = { .fd = kt_dev(O_RDWR) };

	ASSERT_LE(0, other.fd);
	EXPECT_EQ(-ENOTCONN, take(&other, self->ev, 1));
	EXPECT_EQ(0, ready(&other));
	close(other.fd);
	EXPECT_EQ(-ENOTCONN, take(&self->t, self->ev, 1));
	EXPECT_EQ(0, ready(&self->t));
	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, choose(&self->t, 0, 0));
	EXPECT_EQ(-ENOTCONN, take(&self->t, self->ev, 1));
}

TEST_F(event, refused)
{
	EXPECT_EQ(-EINVAL, choose(&self->t, BIT(KVMM_NR_EVENTS), 0));
	EXPECT_EQ(-EINVAL, choose(&self->t, BIT(63), 0));
	EXPECT_EQ(-EINVAL, choose(&self->t, PURGED, KVMM_MAX_EVENTS + 1));
	EXPECT_EQ(-ENOTCONN, take(&self->t, self->ev, 1));
	EXPECT_EQ(0, choose(&self->t, BIT(KVMM_NR_EVENTS) - 1,
			    KVMM_MAX_EVENTS));
}

TEST_F(event, purged)
{
	struct kvmm_block_ref refs[FRAMES + 3];
	int i;

	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, store_refs(&self->t, 1, FRAMES, refs));
	EXPECT_EQ(0, ready(&self->t));
	ASSERT_EQ(0, store_refs(&self->t, 1 + FRAMES, 3, refs + FRAMES));
	EXPECT_EQ(POLLIN, ready(&self->t));
	ASSERT_EQ(3, take(&self->t, self->ev, MAX));
	for (i = 0; i < 3; i++) {
		EXPECT_TRUE(is_block(&self->ev[i], KVMM_EVENT_PURGED,
				     refs[i].handle, 1 + i));
		EXPECT_EQ(5, self->ev[i].time_ms);
	}
	EXPECT_EQ(0, ready(&self->t));
	EXPECT_EQ(3, kt_stat_of(&self->t).events);
	EXPECT_EQ(0, kt_stat_of(&self->t).events_lost);
}

TEST_F(event, expired)
{
	struct kvmm_publish_entry e;
	struct kvmm_block_ref ref;

	ASSERT_EQ(0, choose(&self->t, PURGED | EVICTED, 0));
	ASSERT_EQ(0, kt_alloc(&self->t, &ref, 1));
	e = kt_entry(&self->t, ref.handle, 7);
	e.expiry_ms = 10;
	ASSERT_EQ(0, kt_publish(&self->t, &e, 1, 0));
	ASSERT_EQ(0, kt_clock(&self->t, 15));
	EXPECT_EQ(KVMM_MISS, kt_where1(&self->t, 7, NULL));
	ASSERT_EQ(1, take(&self->t, self->ev, MAX));
	EXPECT_TRUE(is_block(self->ev, KVMM_EVENT_PURGED, ref.handle, 7));
	EXPECT_EQ(15, self->ev->time_ms);
}

/* What clients do themselves is no event. */
TEST_F(event, dropped)
{
	struct kvmm_block_ref refs[2];

	ASSERT_EQ(0, choose(&self->t, BIT(KVMM_NR_EVENTS) - 1, 0));
	ASSERT_EQ(0, store_refs(&self->t, 1, 2, refs));
	ASSERT_EQ(0, kt_drop1(&self->t, refs[0].handle));
	ASSERT_EQ(0, kt_reset(&self->t, NULL));
	EXPECT_EQ(KVMM_MISS, kt_where1(&self->t, 2, NULL));
	EXPECT_EQ(0, ready(&self->t));
}

TEST_F(event, evicted)
{
	struct kvmm_block_ref refs[FRAMES];
	int area, i;

	ASSERT_NE(NULL, kt_disk_dir());
	area = kt_area_file(AREA, 4096, SLOTS);
	ASSERT_LE(0, area);
	ASSERT_EQ(0, kt_attach(&self->t, area, 0, 0, 0, NULL));
	ASSERT_EQ(0, choose(&self->t, PURGED | EVICTED, 0));
	ASSERT_EQ(0, store_refs(&self->t, 1, FRAMES, refs));
	/* written, but still in memory */
	ASSERT_EQ(FRAMES, kt_swap(&self->t, KVMM_SWAP_OUT, refs, FRAMES, 0));
	EXPECT_EQ(0, ready(&self->t));
	ASSERT_EQ(2, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 2,
			     KVMM_SWAP_DROP));
	ASSERT_EQ(0, kt_reclaim(&self->t, FRAMES - 4, NULL));
	ASSERT_EQ(4, take(&self->t, self->ev, MAX));
	for (i = 0; i < 4; i++) {
		EXPECT_TRUE(is_block(&self->ev[i], KVMM_EVENT_EVICTED,
				     refs[i].handle, 1 + i));
	}
	/* with the area goes what is only there */
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	ASSERT_EQ(4, take(&self->t, self->ev, MAX));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(KVMM_EVENT_PURGED, self->ev[i].type);
	close(area);
	kt_area_unlink(AREA);
}

/* Only what was chosen, by each client for itself; read-only ones, too. */
TEST_F(event, mask)
{
	struct kt reader, deaf;
	int area;

	ASSERT_NE(NULL, kt_disk_dir());
	area = kt_area_file(AREA, 4096, SLOTS);
	ASSERT_LE(0, area);
	ASSERT_EQ(0, kt_attach(&self->t, area, 0, 0, 0, NULL));
	ASSERT_EQ(0, kt_join(&reader, "event", KVMM_POOL_RDONLY));
	ASSERT_EQ(0, kt_join(&deaf, "event", 0));
	ASSERT_EQ(0, choose(&reader, EVICTED, 0));
	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, choose(&deaf, DEGRADED, 0));
	ASSERT_EQ(0, store(&self->t, 1, 2));
	ASSERT_EQ(0, kt_reclaim(&self->t, 0, NULL));
	EXPECT_EQ(0, ready(&self->t));
	EXPECT_EQ(0, ready(&deaf));
	EXPECT_EQ(2, take(&reader, self->ev, MAX));
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	EXPECT_EQ(0, ready(&reader));
	EXPECT_EQ(0, ready(&deaf));
	EXPECT_EQ(2, take(&self->t, self->ev, MAX));
	EXPECT_EQ(4, kt_stat_of(&self->t).events);
	kt_close(&reader);
	kt_close(&deaf);
	close(area);
	kt_area_unlink(AREA);
}

/* Whole events, as many as fit. */
TEST_F(event, sizes)
{
	struct iovec iov[3] = {
		{ &self->ev[0], 100 }, { (char *)self->ev + 100, 28 },
		{ &self->ev[2], sizeof(self->ev[0]) + 10 },
	};

	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, nonblock(&self->t, true));
	EXPECT_EQ(-1, read(self->t.fd, self->ev, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, read(self->t.fd, self->ev, sizeof(self->ev[0]) - 1));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-EAGAIN, take(&self->t, self->ev, 1));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 8));
	EXPECT_EQ(2 * 64, read(self->t.fd, self->ev, 3 * 64 - 1));
	EXPECT_EQ(64, read(self->t.fd, self->ev, 64));
	/* in pieces that are no events */
	EXPECT_EQ(3 * 64, readv(self->t.fd, iov, 3));
	EXPECT_EQ(2, take(&self->t, self->ev, MAX));
	EXPECT_EQ(-EAGAIN, take(&self->t, self->ev, MAX));
}

/* An event that can't be handed over stays. */
TEST_F(event, bad_address)
{
	char *mem = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_EQ(0, mprotect(mem + 4096, 4096, PROT_NONE));
	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 3));
	EXPECT_EQ(-1, read(self->t.fd, mem + 4096, 64));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-1, read(self->t.fd, mem + 4096 - 32, 64));
	EXPECT_EQ(EFAULT, errno);
	/* the second one hits the page that isn't there */
	EXPECT_EQ(64, read(self->t.fd, mem + 4096 - 96, 3 * 64));
	ASSERT_EQ(2, take(&self->t, self->ev, MAX));
	EXPECT_TRUE(is_block(self->ev, KVMM_EVENT_PURGED, self->ev->handle, 2));
	munmap(mem, 2 * 4096);
}

/* A full queue keeps the oldest, and counts the others. */
TEST_F(event, lost)
{
	struct kvmm_event *ev = self->ev;

	ASSERT_EQ(0, choose(&self->t, PURGED, 4));
	ASSERT_EQ(0, nonblock(&self->t, true));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 4));
	ASSERT_EQ(0, kt_clock(&self->t, 6));
	ASSERT_EQ(0, store(&self->t, 100, 3));
	EXPECT_EQ(4, kt_stat_of(&self->t).events);
	EXPECT_EQ(3, kt_stat_of(&self->t).events_lost);
	/* with room comes the count, where the lost ones would be */
	ASSERT_EQ(1, take(&self->t, ev, 1));
	ASSERT_EQ(0, kt_clock(&self->t, 7));
	ASSERT_EQ(0, store(&self->t, 200, 1));
	ASSERT_EQ(5, take(&self->t, ev, MAX));
	EXPECT_EQ(KVMM_EVENT_PURGED, ev[2].type);
	EXPECT_EQ(KVMM_EVENT_LOST, ev[3].type);
	EXPECT_EQ(3, ev[3].value);
	EXPECT_EQ(6, ev[3].time_ms);
	EXPECT_EQ(0, ev[3].handle);
	/* the next one found it full again */
	EXPECT_EQ(KVMM_EVENT_LOST, ev[4].type);
	EXPECT_EQ(1, ev[4].value);
	EXPECT_EQ(7, ev[4].time_ms);
	EXPECT_EQ(-EAGAIN, take(&self->t, ev, MAX));
	/* and then all is well again */
	ASSERT_EQ(0, store(&self->t, 300, 2));
	ASSERT_EQ(2, take(&self->t, ev, MAX));
	EXPECT_EQ(KVMM_EVENT_PURGED, ev[0].type);
	EXPECT_EQ(KVMM_EVENT_PURGED, ev[1].type);
}

TEST_F(event, room_for_one)
{
	ASSERT_EQ(0, choose(&self->t, PURGED, 1));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 5));
	ASSERT_EQ(2, take(&self->t, self->ev, MAX));
	EXPECT_EQ(KVMM_EVENT_PURGED, self->ev[0].type);
	EXPECT_EQ(KVMM_EVENT_LOST, self->ev[1].type);
	EXPECT_EQ(4, self->ev[1].value);
	EXPECT_EQ(0, ready(&self->t));
}

/* Another choice replaces the one before, and what it had collected. */
TEST_F(event, chosen_again)
{
	ASSERT_EQ(0, choose(&self->t, PURGED, 2));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 5));
	EXPECT_EQ(POLLIN, ready(&self->t));
	ASSERT_EQ(0, choose(&self->t, PURGED, 8));
	EXPECT_EQ(0, ready(&self->t));
	ASSERT_EQ(0, store(&self->t, 100, 6));
	EXPECT_EQ(6, take(&self->t, self->ev, MAX));
	ASSERT_EQ(0, choose(&self->t, EVICTED, 8));
	ASSERT_EQ(0, store(&self->t, 200, 6));
	EXPECT_EQ(0, ready(&self->t));
}

TEST_F(event, listeners)
{
	struct kt t[KVMM_MAX_LISTENERS + 1];
	int i;

	for (i = 0; i <= KVMM_MAX_LISTENERS; i++)
		ASSERT_EQ(0, kt_join(&t[i], "event", 0));
	for (i = 0; i < KVMM_MAX_LISTENERS; i++)
		ASSERT_EQ(0, choose(&t[i], i % 2 ? PURGED : EVICTED | PURGED,
				    16));
	EXPECT_EQ(-EUSERS, choose(&t[i], EVICTED, 16));
	EXPECT_EQ(-ENOTCONN, take(&t[i], self->ev, 1));
	/* one that is there may choose again, and others are no trouble */
	EXPECT_EQ(0, choose(&t[0], PURGED, 8));
	EXPECT_EQ(0, choose(&t[i], DEGRADED, 16));
	EXPECT_EQ(-EUSERS, choose(&t[i], DEGRADED | PURGED, 16));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 2));
	EXPECT_EQ(2 * KVMM_MAX_LISTENERS, kt_stat_of(&self->t).events);
	EXPECT_EQ(0, choose(&t[1], 0, 0));
	EXPECT_EQ(0, choose(&t[i], PURGED, 16));
	kt_close(&t[2]);
	EXPECT_EQ(0, choose(&t[1], PURGED, 16));
	for (i = 0; i <= KVMM_MAX_LISTENERS; i++)
		kt_close(&t[i]);
}

/* ---- waiting ---- */

static struct waiter {
	struct kt *t;
	struct kvmm_event ev;
	int ret;
	int signals;		/* atomic, as the two below */
	bool ended;
	pthread_t thread;
} waiter;

static void on_signal(int sig)
{
	(void)sig;
	__atomic_add_fetch(&waiter.signals, 1, __ATOMIC_SEQ_CST);
}

static void *wait_for_one(void *arg)
{
	struct waiter *w = arg;

	w->ret = take(w->t, &w->ev, 1);
	__atomic_store_n(&w->ended, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static int start_waiter(struct kt *t)
{
	memset(&waiter, 0, sizeof(waiter));
	waiter.t = t;
	return pthread_create(&waiter.thread, NULL, wait_for_one, &waiter);
}

static int end_waiter(void)
{
	pthread_join(waiter.thread, NULL);
	return waiter.ret;
}

/* Signals go on until the thread was surely in its wait, or has ended. */
static void disturb(int flags, int most)
{
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = flags };
	int i;

	sigaction(SIGUSR1, &act, NULL);
	for (i = 0; i < most; i++) {
		if (__atomic_load_n(&waiter.ended, __ATOMIC_SEQ_CST))
			break;
		pthread_kill(waiter.thread, SIGUSR1);
		kt_sleep_ms(10);
	}
}

TEST_F(event, read_waits)
{
	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, start_waiter(&self->t));
	kt_sleep_ms(50);
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 1));
	ASSERT_EQ(1, end_waiter());
	EXPECT_TRUE(is_block(&waiter.ev, KVMM_EVENT_PURGED, waiter.ev.handle,
			     1));
}

TEST_F(event, read_is_interrupted)
{
	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, start_waiter(&self->t));
	disturb(0, 10000);
	EXPECT_EQ(-EINTR, end_waiter());
}

TEST_F(event, read_goes_on_after_a_signal)
{
	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, start_waiter(&self->t));
	disturb(SA_RESTART, 20);
	EXPECT_FALSE(waiter.ended);
	EXPECT_LT(0, waiter.signals);
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 1));
	EXPECT_EQ(1, end_waiter());
}

TEST_F(event, read_ends_with_the_choice)
{
	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, start_waiter(&self->t));
	kt_sleep_ms(50);
	ASSERT_EQ(0, choose(&self->t, 0, 0));
	EXPECT_EQ(-ENOTCONN, end_waiter());
}

/* What was queued is still read, then there is the end. */
TEST_F(event, read_ends_with_the_pool)
{
	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, start_waiter(&self->t));
	kt_sleep_ms(50);
	ASSERT_EQ(0, kt_destroy("event", KVMM_POOL_FORCE));
	EXPECT_EQ(0, end_waiter());
	EXPECT_EQ(POLLHUP, ready(&self->t));
	EXPECT_EQ(0, take(&self->t, self->ev, 1));
	EXPECT_EQ(-ENODEV, choose(&self->t, PURGED, 0));
	kt_close(&self->t);
}

TEST_F(event, queue_outlives_the_pool)
{
	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 2));
	ASSERT_EQ(0, kt_destroy("event", KVMM_POOL_FORCE));
	EXPECT_EQ(POLLHUP | POLLIN, ready(&self->t));
	EXPECT_EQ(1, take(&self->t, self->ev, 1));
	EXPECT_EQ(1, take(&self->t, self->ev, MAX));
	EXPECT_EQ(0, take(&self->t, self->ev, MAX));
	EXPECT_EQ(POLLHUP, ready(&self->t));
	kt_close(&self->t);
}

static int poll_hangup(void *arg)
{
	struct kt *t = arg;
	struct pollfd p = { .fd = t->fd, .events = POLLIN };

	return poll(&p, 1, 60000) == 1 ? p.revents : -ETIMEDOUT;
}

/* Who polls finds out, also without having chosen anything. */
TEST_F(event, poll_ends_with_the_pool)
{
	pid_t pid = kt_spawn(poll_hangup, &self->t);

	kt_sleep_ms(50);
	ASSERT_EQ(0, kt_destroy("event", KVMM_POOL_FORCE));
	EXPECT_EQ(POLLHUP, kt_reap(pid));
	kt_close(&self->t);
}

TEST_F(event, epoll_edges)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLET };
	int ep = epoll_create1(EPOLL_CLOEXEC);

	ASSERT_LE(0, ep);
	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, nonblock(&self->t, true));
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, self->t.fd, &e));
	EXPECT_EQ(0, epoll_wait(ep, &e, 1, 0));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 2));
	EXPECT_EQ(1, epoll_wait(ep, &e, 1, 60000));
	EXPECT_EQ(EPOLLIN, e.events);
	EXPECT_EQ(0, epoll_wait(ep, &e, 1, 0));
	EXPECT_EQ(2, take(&self->t, self->ev, MAX));
	EXPECT_EQ(-EAGAIN, take(&self->t, self->ev, MAX));
	/* read to the end: the next one is an edge again */
	ASSERT_EQ(0, store(&self->t, 100, 1));
	EXPECT_EQ(1, epoll_wait(ep, &e, 1, 60000));
	EXPECT_EQ(1, take(&self->t, self->ev, MAX));
	ASSERT_EQ(0, kt_destroy("event", KVMM_POOL_FORCE));
	EXPECT_EQ(1, epoll_wait(ep, &e, 1, 60000));
	EXPECT_EQ(EPOLLHUP, e.events);
	kt_close(&self->t);
	close(ep);
}

TEST_F(event, read_without_waiting)
{
	struct iovec iov = { self->ev, sizeof(self->ev) };

	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	EXPECT_EQ(-1, preadv2(self->t.fd, &iov, 1, -1, RWF_NOWAIT));
	EXPECT_EQ(EAGAIN, errno);
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 2));
	EXPECT_EQ(2 * 64, preadv2(self->t.fd, &iov, 1, -1, RWF_NOWAIT));
}

/* A read and a poll that wait in a ring. */
TEST_F(event, io_uring)
{
	struct io_uring_sqe *sqe;
	struct kt_ring r;
	uint64_t data;

	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, kt_ring_init(&r, &self->t, 8, 0, false));
	sqe = io_uring_get_sqe(&r.ring);
	io_uring_prep_read(sqe, self->t.fd, self->ev, sizeof(self->ev), -1);
	io_uring_sqe_set_data64(sqe, 1);
	ASSERT_EQ(1, kt_ring_submit(&r));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 1));
	EXPECT_EQ(64, kt_ring_wait(&r, &data));
	EXPECT_EQ(1, data);

	sqe = io_uring_get_sqe(&r.ring);
	io_uring_prep_poll_add(sqe, self->t.fd, POLLIN);
	io_uring_sqe_set_data64(sqe, 2);
	ASSERT_EQ(1, kt_ring_submit(&r));
	ASSERT_EQ(0, store(&self->t, 100, 1));
	EXPECT_EQ(POLLIN, kt_ring_wait(&r, &data) & POLLIN);
	EXPECT_EQ(2, data);
	EXPECT_EQ(1, take(&self->t, self->ev, MAX));

	/* one that the end of the pool ends */
	sqe = io_uring_get_sqe(&r.ring);
	io_uring_prep_read(sqe, self->t.fd, self->ev, sizeof(self->ev), -1);
	io_uring_sqe_set_data64(sqe, 3);
	ASSERT_EQ(1, kt_ring_submit(&r));
	ASSERT_EQ(0, kt_destroy("event", KVMM_POOL_FORCE));
	EXPECT_EQ(0, kt_ring_wait(&r, &data));
	EXPECT_EQ(3, data);
	kt_ring_exit(&r);
	kt_close(&self->t);
}

/* ---- several readers ---- */

#define READERS	4
#define ROUNDS	200

static struct reader {
	struct kt *t;
	uint64_t events, lost;
	int ret;
	pthread_t thread;
} readers[READERS];

/* Until the pool ends. */
static void *read_on(void *arg)
{
	struct reader *r = arg;
	struct kvmm_event ev[3];
	int i;

	while ((r->ret = take(r->t, ev, 3)) > 0) {
		for (i = 0; i < r->ret; i++) {
			if (ev[i].type == KVMM_EVENT_PURGED)
				r->events++;
			else
				r->lost += ev[i].value;
		}
	}
	return NULL;
}

/* Each event once, whoever reads it; none is forgotten. */
TEST_F(event, readers)
{
	struct kvmm_pool_stat st;
	uint64_t events = 0, lost = 0;
	int i;

	ASSERT_EQ(0, choose(&self->t, PURGED, 16));
	memset(readers, 0, sizeof(readers));
	for (i = 0; i < READERS; i++) {
		readers[i].t = &self->t;
		ASSERT_EQ(0, pthread_create(&readers[i].thread, NULL, read_on,
					    &readers[i]));
	}
	for (i = 0; i < ROUNDS; i++)
		ASSERT_EQ(0, store(&self->t, 1 + i * FRAMES, FRAMES));
	st = kt_stat_of(&self->t);
	EXPECT_EQ((ROUNDS - 1) * FRAMES, st.purged);
	ASSERT_EQ(0, kt_destroy("event", KVMM_POOL_FORCE));
	for (i = 0; i < READERS; i++) {
		pthread_join(readers[i].thread, NULL);
		EXPECT_EQ(0, readers[i].ret);
		events += readers[i].events;
		lost += readers[i].lost;
	}
	EXPECT_EQ(st.events, events);
	EXPECT_EQ(st.events_lost, lost);
	EXPECT_EQ(st.purged, events + lost);
	kt_close(&self->t);
}

static int read_one(void *arg)
{
	struct kvmm_event ev;
	int ret = take(arg, &ev, 1);

	return ret < 0 ? ret : ret ? (int)ev.key[0] : 0;
}

/* A child has the same file: they share what there is. */
TEST_F(event, fork)
{
	ASSERT_EQ(0, choose(&self->t, PURGED, 0));
	ASSERT_EQ(0, store(&self->t, 1, FRAMES + 2));
	EXPECT_EQ(1, kt_child(read_one, &self->t) > 0);
	ASSERT_EQ(1, take(&self->t, self->ev, MAX));
	EXPECT_TRUE(is_block(self->ev, KVMM_EVENT_PURGED, self->ev->handle, 2));
}

/* Choosing, reading and the end of the pool, all at once. */
static void *choose_on(void *arg)
{
	struct kt *t = arg;
	int i;

	for (i = 0; choose(t, i % 3 ? PURGED : 0, 1 + i % 7) == 0; i++)
		;
	return NULL;
}

static void *read_any(void *arg)
{
	struct kvmm_event ev[2];
	int ret;

	do {
		ret = take(arg, ev, 2);
	} while (ret > 0 || (ret == -ENOTCONN && ready(arg) != POLLHUP));
	return NULL;
}

TEST_F(event, all_at_once)
{
	pthread_t thread[4];
	int i;

	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, pthread_create(&thread[i], NULL,
					    i < 2 ? choose_on : read_any,
					    &self->t));
	for (i = 0; i < ROUNDS; i++)
		ASSERT_EQ(0, store(&self->t, 1 + i * FRAMES, FRAMES));
	ASSERT_EQ(0, kt_destroy("event", KVMM_POOL_FORCE));
	for (i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	kt_close(&self->t);
}

/* ---- a disk that fails ---- */

TEST_F(event, degraded)
{
	struct kvmm_block_ref refs[4];
	int disk, i;

	disk = kt_nullb(8, 0);
	if (disk == -ENODEV)
		SKIP(return, "no null_blk");
	ASSERT_LE(0, disk);
	ASSERT_EQ(0, kt_attach(&self->t, disk, 0, 0, 0, NULL));
	ASSERT_EQ(0, store_refs(&self->t, 1, 4, refs));
	ASSERT_EQ(1, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 1,
			     KVMM_SWAP_DROP));
	ASSERT_EQ(0, choose(&self->t, DEGRADED | PURGED, 0));
	ASSERT_EQ(0, kt_nullb_fail(true));
	EXPECT_EQ(0, kt_swap(&self->t, KVMM_SWAP_OUT, refs + 1, 3, 0));
	/* once, however many writes failed */
	ASSERT_EQ(1, take(&self->t, self->ev, MAX));
	EXPECT_EQ(KVMM_EVENT_DEGRADED, self->ev->type);
	EXPECT_EQ(EIO, self->ev->value);
	EXPECT_EQ(0, self->ev->handle);
	/* and what can't be read back is lost */
	EXPECT_EQ(-ESTALE, kt_swap1(&self->t, KVMM_SWAP_IN, refs[0].handle,
				    0));
	ASSERT_EQ(1, take(&self->t, self->ev, MAX));
	EXPECT_TRUE(is_block(self->ev, KVMM_EVENT_PURGED, refs[0].handle, 1));
	/* a new area: it may fail again */
	ASSERT_EQ(0, kt_nullb_fail(false));
	ASSERT_EQ(0, kt_detach(&self->t, 0));
	ASSERT_EQ(0, kt_attach(&self->t, disk, 0, 0, 0, NULL));
	ASSERT_EQ(0, kt_nullb_fail(true));
	EXPECT_EQ(0, kt_swap(&self->t, KVMM_SWAP_OUT, refs + 1, 3, 0));
	EXPECT_EQ(1, take(&self->t, self->ev, MAX));
	for (i = 1; i < 4; i++)
		EXPECT_EQ(0, kt_drop1(&self->t, refs[i].handle));
	ASSERT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	close(disk);
	kt_nullb_end();
}

KT_MAIN
