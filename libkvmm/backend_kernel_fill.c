// SPDX-License-Identifier: MIT
/*
 * Kernel backend: memory that workers of the kernel bring in.
 *
 * How they ended is told by an event.  What the program wants to be told of is
 * its own affair, so a second client listens for that: from a start, or the
 * begin of a wait, until the end was seen.
 */
#include "backend_kernel.h"

#include <poll.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Populates that are not by workers tell nobody of their end. */
#define LOOK_MS		100

static uint64_t mono_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static int watch_open(struct kernel_client *cl)
{
	struct kvmm_pool_open open = {
		.size = sizeof(open),
		.flags = KVMM_POOL_RDONLY,
	};
	struct kvmm_events choose = {
		.size = sizeof(choose),
		.mask = 1ULL << KVMM_EVENT_POPULATED,
	};
	int fd = kernel_open_device(cl->pool.kv, true), err;

	if (fd < 0)
		return fd;
	memcpy(open.name, cl->name, sizeof(open.name));
	err = kernel_command(fd, KVMM_POOL_OPEN, &open);
	if (!err)
		err = kernel_command(fd, KVMM_EVENTS, &choose);
	if (err) {
		close(fd);
		/* The name is free: the pool is not there any more. */
		return err == -ENOENT ? -ENODEV : err;
	}
	return fd;
}

static int watch_get(struct kernel_client *cl)
{
	int err = 0;

	pthread_mutex_lock(&cl->lock);
	if (cl->watch < 0) {
		cl->watch = watch_open(cl);
		if (cl->watch < 0) {
			err = cl->watch;
			cl->watch = -1;
		}
	}
	if (!err) {
		cl->watchers++;
		cl->watch_over = false;
	}
	pthread_mutex_unlock(&cl->lock);
	return err;
}

/* @over: there is nothing left to be told, as far as the caller knows. */
static void watch_put(struct kernel_client *cl, bool over)
{
	pthread_mutex_lock(&cl->lock);
	cl->watchers--;
	if (over)
		cl->watch_over = true;
	if (!cl->watchers && cl->watch_over)
		kernel_watch_end(cl);
	pthread_mutex_unlock(&cl->lock);
}

void kernel_watch_end(struct kernel_client *cl)
{
	if (cl->watch >= 0)
		close(cl->watch);
	cl->watch = -1;
}

/* What has ended until now: the last one counts. */
static void watch_read(struct kernel_client *cl)
{
	struct kvmm_event ev;
	struct iovec iov = { &ev, sizeof(ev) };

	pthread_mutex_lock(&cl->lock);
	while (preadv2(cl->watch, &iov, 1, -1, RWF_NOWAIT) == sizeof(ev))
		if (ev.type == KVMM_EVENT_POPULATED)
			cl->populate_err = -(int)ev.flags;
	pthread_mutex_unlock(&cl->lock);
}

int kernel_populate_start(struct kvmm_pool *pool, unsigned int first,
			  unsigned int count, unsigned int threads)
{
	struct kernel_client *cl = kernel_client(pool);
	struct kvmm_populate arg = {
		.size = sizeof(arg),
		.flags = KVMM_POPULATE_ASYNC,
		.first = first,
		.count = count,
		.workers = threads,
	};
	int err;

	if (!(kernel_backend(pool->kv)->features & KVMM_FEATURE_WORKERS))
		return -EOPNOTSUPP;
	err = watch_get(cl);
	if (err)
		return err;
	/* Of what ended before, nothing is to be told any more. */
	watch_read(cl);
	pthread_mutex_lock(&cl->lock);
	cl->populate_err = 0;
	pthread_mutex_unlock(&cl->lock);
	err = kernel_command(pool->fd, KVMM_POPULATE, &arg);
	watch_put(cl, err && err != -EBUSY);
	return err;
}

/* One look: 0 or how it ended; -EAGAIN: populates are in progress. */
static int look(struct kernel_client *cl)
{
	struct kvmm_pool_stat st = { .size = sizeof(st) };
	int err = kernel_command(cl->pool.fd, KVMM_POOL_STAT, &st);

	if (err)
		return err;
	/* The kernel tells of the end before it counts none in progress. */
	watch_read(cl);
	if (st.frames_populating)
		return -EAGAIN;
	pthread_mutex_lock(&cl->lock);
	err = cl->populate_err;
	pthread_mutex_unlock(&cl->lock);
	return err;
}

int kernel_populate_wait(struct kvmm_pool *pool, int timeout_ms)
{
	struct kernel_client *cl = kernel_client(pool);
	uint64_t until = timeout_ms > 0 ? mono_ms() + (uint64_t)timeout_ms : 0;
	struct pollfd p = { .events = POLLIN };
	uint64_t now;
	int err, ms;

	err = watch_get(cl);
	if (err)
		return err;
	/* Open for as long as it is ours. */
	p.fd = cl->watch;
	while ((err = look(cl)) == -EAGAIN) {
		ms = LOOK_MS;
		if (timeout_ms >= 0) {
			now = mono_ms();
			if (now >= until) {
				err = -ETIMEDOUT;
				break;
			}
			if (until - now < LOOK_MS)
				ms = (int)(until - now);
		}
		if (poll(&p, 1, ms) < 0) {
			err = -errno;
			break;
		}
	}
	watch_put(cl, err != -ETIMEDOUT && err != -EINTR);
	return err;
}

int kernel_populate_cancel(struct kvmm_pool *pool)
{
	struct kvmm_populate arg = {
		.size = sizeof(arg),
		.flags = KVMM_POPULATE_CANCEL,
	};
	int err;

	if (!(kernel_backend(pool->kv)->features & KVMM_FEATURE_WORKERS))
		return -EOPNOTSUPP;
	do {
		err = kernel_command(pool->fd, KVMM_POPULATE, &arg);
	} while (err == -EINTR);
	return err;
}
