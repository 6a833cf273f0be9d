// SPDX-License-Identifier: MIT
/*
 * Events: choosing, reading, polling, waiting, on both backends.
 */
#include "lt.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define FRAMES		4
#define BIT(type)	(1ULL << (type))
#define EVICTED		BIT(KVMM_EVENT_EVICTED)
#define PURGED		BIT(KVMM_EVENT_PURGED)
#define DEGRADED	BIT(KVMM_EVENT_DEGRADED)
#define MAX		32

static struct kvmm_pool *event_pool(struct lt *lt, const char *name,
				    unsigned int slots)
{
	struct kvmm_pool *pool = lt_pool(lt, name, FRAMES, slots,
					 KVMM_POOL_MANUAL_CLOCK);

	assert_int_equal(kvmm_pool_clock(pool, 1000), 0);
	return pool;
}

/* Each is younger than the one before it. */
static void store(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		  uint64_t id, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		lt_store(pool, refs + i, id + i, 1, 0);
}

static void assert_block(const struct kvmm_event *ev, uint32_t type,
			 uint64_t handle, uint64_t id)
{
	uint8_t key[KVMM_KEY_LEN];

	lt_key(key, id);
	assert_int_equal(ev->type, type);
	assert_int_equal(ev->flags, 0);
	assert_int_equal(ev->handle, handle);
	assert_int_equal(ev->value, 0);
	assert_memory_equal(ev->key, key, sizeof(key));
}

static int ready(struct kvmm_pool *pool)
{
	struct pollfd p = { .fd = kvmm_event_fd(pool), .events = POLLIN };

	assert_true(p.fd >= 0);
	assert_true(poll(&p, 1, 0) >= 0);
	return p.revents;
}

static void chosen_or_not(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = event_pool(lt, "lt-event", 0);
	struct kvmm_event ev;
	struct kvmm_info info;

	assert_int_equal(kvmm_info(lt->kv, &info), 0);
	assert_true(info.features & KVMM_FEATURE_EVENTS);
	assert_fails(kvmm_event_read(pool, &ev, 1, 0), ENOTCONN);
	assert_fails(kvmm_event_read(pool, &ev, 1, -1), ENOTCONN);
	assert_fails(kvmm_events(pool, BIT(KVMM_NR_EVENTS), 0), EINVAL);
	assert_fails(kvmm_events(pool, PURGED, KVMM_MAX_EVENTS + 1), EINVAL);
	assert_int_equal(kvmm_events(pool, PURGED, KVMM_MAX_EVENTS), 0);
	assert_fails(kvmm_event_read(pool, NULL, 1, 0), EFAULT);
	assert_fails(kvmm_event_read(pool, &ev, 0, 0), EINVAL);
	assert_fails(kvmm_event_read(pool, &ev, 1, -2), EINVAL);
	assert_int_equal(kvmm_event_read(pool, &ev, 1, 0), 0);
	assert_int_equal(kvmm_events(pool, 0, 0), 0);
	assert_fails(kvmm_event_read(pool, &ev, 1, 0), ENOTCONN);
	lt_end(lt, pool, "lt-event");
}

static void fd_is_an_eventfd(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = event_pool(lt, "lt-event", 0);
	int fd;

	assert_fails(kvmm_event_fd(pool), ENOTCONN);
	assert_int_equal(kvmm_events(pool, PURGED, 0), 0);
	fd = kvmm_event_fd(pool);
	assert_true(fd >= 0 && fd != kvmm_pool_fd(pool));
	assert_int_equal(kvmm_events(pool, 0, 0), 0);
	assert_int_equal(kvmm_events(pool, PURGED, 0), 0);
	assert_int_equal(kvmm_event_fd(pool), fd);
	lt_end(lt, pool, "lt-event");
}

static void purges(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = event_pool(lt, "lt-event", 0);
	struct kvmm_block_ref refs[FRAMES + 3];
	struct kvmm_event ev[MAX];
	unsigned int i;

	assert_int_equal(kvmm_events(pool, PURGED, 0), 0);
	store(pool, refs, 1, FRAMES);
	assert_int_equal(ready(pool), 0);
	store(pool, refs + FRAMES, 1 + FRAMES, 3);
	assert_int_equal(ready(pool), POLLIN);
	assert_int_equal(kvmm_event_read(pool, ev, 2, 0), 2);
	assert_int_equal(ready(pool), POLLIN);
	assert_int_equal(kvmm_event_read(pool, ev + 2, MAX - 2, -1), 1);
	assert_int_equal(ready(pool), 0);
	for (i = 0; i < 3; i++) {
		assert_block(&ev[i], KVMM_EVENT_PURGED, refs[i].handle, 1 + i);
		assert_int_equal(ev[i].time_ms, 1000);
	}
	/* what clients do themselves is no event */
	assert_int_equal(kvmm_drop(pool, refs + 3, 1), 1);
	assert_int_equal(kvmm_event_read(pool, ev, MAX, 0), 0);
	assert_int_equal(lt_stat(pool).events, 3);
	lt_end(lt, pool, "lt-event");
}

/* Two clients, of which one may only read, each told what it chose. */
static void evictions(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = event_pool(lt, "lt-event", FRAMES);
	struct kvmm_block_ref refs[2];
	struct kvmm_event ev[MAX];
	struct kvmm_pool *other;

	lt_attach(pool, lt_path(lt), 0);
	assert_int_equal(kvmm_pool_open(lt->kv, "lt-event", KVMM_POOL_RDONLY,
					&other), 0);
	assert_int_equal(kvmm_events(pool, PURGED, 0), 0);
	assert_int_equal(kvmm_events(other, EVICTED, 0), 0);
	store(pool, refs, 1, 2);
	assert_int_equal(kvmm_swap_out(pool, refs, 2, 0), 2);
	assert_int_equal(kvmm_event_read(other, ev, MAX, 0), 0);
	assert_int_equal(kvmm_reclaim(pool, 0, NULL), 0);
	assert_int_equal(kvmm_event_read(pool, ev, MAX, 0), 0);
	assert_int_equal(kvmm_event_read(other, ev, MAX, 0), 2);
	assert_block(&ev[0], KVMM_EVENT_EVICTED, refs[0].handle, 1);
	assert_block(&ev[1], KVMM_EVENT_EVICTED, refs[1].handle, 2);
	assert_int_equal(kvmm_swap_detach(pool, KVMM_SWAP_DISCARD), 0);
	assert_int_equal(kvmm_event_read(other, ev, MAX, 0), 0);
	assert_int_equal(kvmm_event_read(pool, ev, MAX, 0), 2);
	assert_block(&ev[0], KVMM_EVENT_PURGED, refs[0].handle, 1);
	kvmm_pool_close(other);
	lt_end(lt, pool, "lt-event");
}

static void losses(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = event_pool(lt, "lt-event", 0);
	struct kvmm_block_ref refs[FRAMES + 8];
	struct kvmm_event ev[MAX];

	assert_int_equal(kvmm_events(pool, PURGED, 3), 0);
	store(pool, refs, 1, FRAMES + 3);
	assert_int_equal(kvmm_pool_clock(pool, 1001), 0);
	store(pool, refs, 100, 2);
	assert_int_equal(lt_stat(pool).events, 3);
	assert_int_equal(lt_stat(pool).events_lost, 2);
	assert_int_equal(kvmm_event_read(pool, ev, 1, 0), 1);
	assert_int_equal(kvmm_event_read(pool, ev, MAX, 0), 3);
	assert_int_equal(ev[1].type, KVMM_EVENT_PURGED);
	assert_int_equal(ev[2].type, KVMM_EVENT_LOST);
	assert_int_equal(ev[2].value, 2);
	assert_int_equal(ev[2].time_ms, 1001);
	assert_int_equal(kvmm_event_read(pool, ev, MAX, 0), 0);
	assert_int_equal(ready(pool), 0);
	store(pool, refs, 200, 2);
	assert_int_equal(kvmm_event_read(pool, ev, MAX, 0), 2);
	/* another choice begins with nothing */
	store(pool, refs, 300, 2);
	assert_int_equal(kvmm_events(pool, PURGED, 3), 0);
	assert_int_equal(ready(pool), 0);
	assert_int_equal(kvmm_event_read(pool, ev, MAX, 0), 0);
	lt_end(lt, pool, "lt-event");
}

static void listeners_are_limited(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = event_pool(lt, "lt-event", 0);
	struct kvmm_pool *other[KVMM_MAX_LISTENERS];
	unsigned int i;

	for (i = 0; i < KVMM_MAX_LISTENERS; i++) {
		assert_int_equal(kvmm_pool_open(lt->kv, "lt-event", 0,
						&other[i]), 0);
		assert_int_equal(kvmm_events(other[i], EVICTED, 1), 0);
	}
	assert_fails(kvmm_events(pool, PURGED, 1), EUSERS);
	assert_int_equal(kvmm_events(pool, DEGRADED, 1), 0);
	kvmm_pool_close(other[0]);
	assert_int_equal(kvmm_events(pool, PURGED, 1), 0);
	for (i = 1; i < KVMM_MAX_LISTENERS; i++)
		kvmm_pool_close(other[i]);
	lt_end(lt, pool, "lt-event");
}

static void waits_no_longer(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = event_pool(lt, "lt-event", 0);
	struct timespec from, to;
	struct kvmm_event ev;
	long ms;

	assert_int_equal(kvmm_events(pool, PURGED, 0), 0);
	clock_gettime(CLOCK_MONOTONIC, &from);
	assert_int_equal(kvmm_event_read(pool, &ev, 1, 30), 0);
	clock_gettime(CLOCK_MONOTONIC, &to);
	ms = (to.tv_sec - from.tv_sec) * 1000 +
	     (to.tv_nsec - from.tv_nsec) / 1000000;
	assert_true(ms >= 28);
	lt_end(lt, pool, "lt-event");
}

/* ---- who waits ---- */

struct waiter {
	struct kvmm_pool *pool;
	uint64_t events, lost;
	long ret;
	bool ended;		/* atomic */
	pthread_t thread;
};

static void *wait_on(void *arg)
{
	struct waiter *w = arg;
	struct kvmm_event ev[2];
	long i;

	while ((w->ret = kvmm_event_read(w->pool, ev, 2, -1)) > 0)
		for (i = 0; i < w->ret; i++) {
			if (ev[i].type == KVMM_EVENT_LOST)
				w->lost += ev[i].value;
			else
				w->events++;
		}
	__atomic_store_n(&w->ended, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static void start_waiter(struct waiter *w, struct kvmm_pool *pool)
{
	memset(w, 0, sizeof(*w));
	w->pool = pool;
	assert_int_equal(pthread_create(&w->thread, NULL, wait_on, w), 0);
}

/* Each event goes to one of them, and the end of the pool to all. */
static void several_wait(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = event_pool(lt, "lt-event", 0);
	struct kvmm_block_ref refs[FRAMES];
	uint64_t events = 0, lost = 0;
	struct kvmm_pool_stat st;
	struct waiter w[3];
	unsigned int i;

	assert_int_equal(kvmm_events(pool, PURGED, 8), 0);
	for (i = 0; i < 3; i++)
		start_waiter(&w[i], pool);
	for (i = 0; i < 100; i++)
		store(pool, refs, 1 + i * FRAMES, FRAMES);
	st = lt_stat(pool);
	assert_int_equal(st.purged, 99 * FRAMES);
	assert_int_equal(kvmm_pool_destroy(lt->kv, "lt-event",
					   KVMM_POOL_FORCE), 0);
	for (i = 0; i < 3; i++) {
		pthread_join(w[i].thread, NULL);
		assert_int_equal(w[i].ret, -ENODEV);
		events += w[i].events;
		lost += w[i].lost;
	}
	assert_int_equal(events, st.events);
	assert_int_equal(lost, st.events_lost);
	assert_int_equal(events + lost, st.purged);
	assert_true(ready(pool));
	assert_fails(kvmm_events(pool, PURGED, 0), ENODEV);
	kvmm_pool_close(pool);
}

static void the_queue_outlives_the_pool(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = event_pool(lt, "lt-event", 0);
	struct kvmm_block_ref refs[FRAMES + 1];
	struct kvmm_event ev[MAX];

	assert_int_equal(kvmm_events(pool, PURGED, 8), 0);
	store(pool, refs, 1, FRAMES + 1);
	assert_int_equal(kvmm_pool_destroy(lt->kv, "lt-event",
					   KVMM_POOL_FORCE), 0);
	assert_int_equal(kvmm_event_read(pool, ev, MAX, -1), 1);
	assert_true(ready(pool));
	assert_fails(kvmm_event_read(pool, ev, MAX, -1), ENODEV);
	assert_true(ready(pool));
	kvmm_pool_close(pool);
}

static void on_signal(int sig)
{
	(void)sig;
}

static void a_signal_ends_the_wait(void **state)
{
	struct sigaction act = { .sa_handler = on_signal };
	const struct timespec pause = { .tv_nsec = 5000000 };
	struct lt *lt = *state;
	struct kvmm_pool *pool = event_pool(lt, "lt-event", 0);
	struct waiter w;

	sigaction(SIGUSR1, &act, NULL);
	assert_int_equal(kvmm_events(pool, PURGED, 0), 0);
	start_waiter(&w, pool);
	while (!__atomic_load_n(&w.ended, __ATOMIC_SEQ_CST)) {
		pthread_kill(w.thread, SIGUSR1);
		nanosleep(&pause, NULL);
	}
	pthread_join(w.thread, NULL);
	assert_int_equal(w.ret, -EINTR);
	lt_end(lt, pool, "lt-event");
}

static const struct lt_test tests[] = {
	LT_TEST(chosen_or_not),
	LT_TEST_ON(fd_is_an_eventfd, LT_USER),
	LT_TEST(purges),
	LT_TEST(evictions),
	LT_TEST(losses),
	LT_TEST(listeners_are_limited),
	LT_TEST(waits_no_longer),
	LT_TEST(several_wait),
	LT_TEST(the_queue_outlives_the_pool),
	LT_TEST(a_signal_ends_the_wait),
};

int main(void)
{
	return LT_RUN("event", tests);
}
