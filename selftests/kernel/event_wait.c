// SPDX-License-Identifier: MIT
/*
 * Waiting for events in every way there is, several who read them, and how it
 * all ends with the pool.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "event.h"
#include "kt_ring.h"

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

KT_MAIN
