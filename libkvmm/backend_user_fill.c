// SPDX-License-Identifier: MIT
/*
 * User backend: populates in progress: how far they are, how they are told to
 * end, and those that threads of the library carry out in the background.
 *
 * These, a crew, take piece after piece from one cursor, so that the lowest
 * frames come online first.  A crew belongs to the pool: it goes on when the
 * client that asked closes, and is waited for when the pool is destroyed.  Its
 * threads are joined by whoever next waits, starts another or destroys.
 */
#include "backend_user.h"

#include <stdlib.h>
#include <time.h>

/* A piece at a time, so that the pool works while the rest is on its way. */
#define PIECE	((size_t)32 << 20)

/**
 * struct user_crew - a populate in the background
 * @fill: what it has in common with others
 * @up: the pool
 * @next: first frame of the piece to take next; under user_pool.lock, as below
 * @end: frame after the last one
 * @running: threads that have not ended, and who still starts some
 * @err: the first error, 0 while there is none
 * @nr: threads that were started; constant when @running is 0
 * @thread: they
 */
struct user_crew {
	struct user_fill fill;
	struct user_pool *up;
	unsigned int next;
	unsigned int end;
	unsigned int running;
	int err;
	unsigned int nr;
	pthread_t thread[];
};

static unsigned int piece_frames(const struct user_pool *up)
{
	unsigned int n = (unsigned int)(PIECE >> up->block_shift);

	return n ? n : 1;
}

/* Frames that are online from @first on without a gap, at most @count. */
static unsigned int online_run(struct user_pool *up, unsigned int first,
			       unsigned int count)
{
	unsigned int i = 0, stop;

	while (i < count) {
		stop = count - i > KVMM_CORE_BATCH ? i + KVMM_CORE_BATCH
						   : count;
		pthread_mutex_lock(&up->lock);
		while (i < stop &&
		       kvmm_core_frame_is_online(&up->core, first + i))
			i++;
		pthread_mutex_unlock(&up->lock);
		if (i < stop)
			break;
	}
	return i;
}

static void fill_add(struct user_pool *up, struct user_fill *fill,
		     unsigned int frames)
{
	fill->left = frames;
	fill->cancelled = false;
	fill->next = up->fills;
	up->fills = fill;
	up->frames_populating += frames;
}

static void fill_del(struct user_pool *up, struct user_fill *fill)
{
	struct user_fill **link = &up->fills;

	while (*link != fill)
		link = &(*link)->next;
	*link = fill->next;
	up->frames_populating -= fill->left;
	pthread_cond_broadcast(&up->fill_cond);
}

static void fill_step(struct user_pool *up, struct user_fill *fill,
		      unsigned int frames)
{
	fill->left -= frames;
	up->frames_populating -= frames;
}

int user_populate(struct kvmm_pool *pool, unsigned int first,
		  unsigned int count, unsigned int *done)
{
	struct user_pool *up = user_client(pool)->up;
	unsigned int step = piece_frames(up), i = first, m;
	unsigned int end = first + count;
	struct user_fill fill;
	int err = 0;

	*done = 0;
	if (pool->rdonly)
		return -EACCES;
	pthread_mutex_lock(&up->lock);
	fill_add(up, &fill, count);
	while (i < end && !err) {
		err = fill.cancelled ? -ECANCELED : 0;
		pthread_mutex_unlock(&up->lock);
		m = end - i < step ? end - i : step;
		if (!err && online_run(up, i, m) < m)
			err = user_arena_fill(up, i, m);
		pthread_mutex_lock(&up->lock);
		if (!err)
			fill_step(up, &fill, m);
		if (up->gone && !err)
			err = -ENODEV;
		i += m;
	}
	fill_del(up, &fill);
	pthread_mutex_unlock(&up->lock);
	*done = online_run(up, first, count);
	return err;
}

/* One less in the crew; the last one ends the populate.  Locked. */
static void crew_leave(struct user_crew *crew)
{
	struct user_pool *up = crew->up;

	if (--crew->running)
		return;
	up->crew_err = crew->err;
	if (!up->gone)
		user_event_flags(up, KVMM_EVENT_POPULATED,
				 up->core.frames_online,
				 (uint32_t)-crew->err);
	fill_del(up, &crew->fill);
}

static void *crew_work(void *arg)
{
	struct user_crew *crew = arg;
	struct user_pool *up = crew->up;
	unsigned int step = piece_frames(up), first, m;
	int err;

	pthread_mutex_lock(&up->lock);
	while (crew->next < crew->end && !crew->err) {
		if (crew->fill.cancelled) {
			crew->err = -ECANCELED;
			break;
		}
		first = crew->next;
		m = crew->end - first < step ? crew->end - first : step;
		crew->next += m;
		pthread_mutex_unlock(&up->lock);
		err = 0;
		if (online_run(up, first, m) < m)
			err = user_arena_fill(up, first, m);
		pthread_mutex_lock(&up->lock);
		if (!err)
			fill_step(up, &crew->fill, m);
		else if (!crew->err)
			crew->err = err;
		if (up->gone && !crew->err)
			crew->err = -ENODEV;
	}
	crew_leave(crew);
	pthread_mutex_unlock(&up->lock);
	return NULL;
}

/* What is left of a crew that has ended; may be NULL. */
static void crew_free(struct user_crew *crew)
{
	unsigned int i;

	if (!crew)
		return;
	for (i = 0; i < crew->nr; i++)
		pthread_join(crew->thread[i], NULL);
	free(crew);
}

/* Takes a crew that has ended out of the pool; locked. */
static struct user_crew *crew_take(struct user_pool *up)
{
	struct user_crew *crew = up->crew;

	if (!crew || crew->running)
		return NULL;
	up->crew = NULL;
	return crew;
}

static int crew_start(struct user_crew *crew, unsigned int threads)
{
	struct user_pool *up = crew->up;
	int err = 0;

	while (crew->nr < threads && !err) {
		err = kvmm_thread_start(&crew->thread[crew->nr], crew_work,
					crew);
		if (!err)
			crew->nr++;
	}
	pthread_mutex_lock(&up->lock);
	/* Fewer do it as well, but none does not. */
	crew->running -= threads - crew->nr;
	if (crew->nr)
		err = 0;
	else
		crew->err = -EAGAIN;
	crew_leave(crew);
	pthread_mutex_unlock(&up->lock);
	return err ? -EAGAIN : 0;
}

int user_populate_start(struct kvmm_pool *pool, unsigned int first,
			unsigned int count, unsigned int threads)
{
	struct user_client *cl = user_client(pool);
	struct user_pool *up = cl->up;
	struct user_crew *crew, *old = NULL;
	int err = 0;

	if (pool->rdonly)
		return -EACCES;
	threads = kvmm_populate_threads(threads,
					(count - 1) / piece_frames(up) + 1);
	crew = calloc(1, sizeof(*crew) + threads * sizeof(crew->thread[0]));
	if (!crew)
		return -ENOMEM;
	crew->up = up;
	crew->next = first;
	crew->end = first + count;
	crew->running = threads + 1;

	pthread_mutex_lock(&up->lock);
	old = crew_take(up);
	if (up->gone) {
		err = -ENODEV;
	} else if (up->crew) {
		err = -EBUSY;
	} else {
		up->crew = crew;
		cl->crew_seen = ++up->crew_nr;
		fill_add(up, &crew->fill, count);
	}
	pthread_mutex_unlock(&up->lock);
	crew_free(old);
	if (err) {
		free(crew);
		return err;
	}
	return crew_start(crew, threads);
}

static void until(struct timespec *ts, int timeout_ms)
{
	clock_gettime(CLOCK_MONOTONIC, ts);
	ts->tv_sec += timeout_ms / 1000;
	ts->tv_nsec += timeout_ms % 1000 * 1000000L;
	if (ts->tv_nsec >= 1000000000L) {
		ts->tv_sec++;
		ts->tv_nsec -= 1000000000L;
	}
}

int user_populate_wait(struct kvmm_pool *pool, int timeout_ms)
{
	struct user_client *cl = user_client(pool);
	struct user_pool *up = cl->up;
	struct user_crew *ended;
	struct timespec ts;
	int err = 0;

	if (timeout_ms > 0)
		until(&ts, timeout_ms);
	pthread_mutex_lock(&up->lock);
	while (up->fills && !up->gone && !err) {
		if (up->crew && up->crew->running)
			cl->crew_seen = up->crew_nr;
		if (!timeout_ms)
			err = ETIMEDOUT;
		else if (timeout_ms < 0)
			pthread_cond_wait(&up->fill_cond, &up->lock);
		else
			err = pthread_cond_timedwait(&up->fill_cond, &up->lock,
						     &ts);
	}
	if (up->gone)
		err = -ENODEV;
	else if (up->fills)
		err = -ETIMEDOUT;
	else
		err = cl->crew_seen == up->crew_nr ? up->crew_err : 0;
	ended = crew_take(up);
	pthread_mutex_unlock(&up->lock);
	crew_free(ended);
	return err;
}

static bool any_cancelled(const struct user_pool *up)
{
	const struct user_fill *fill = up->fills;

	while (fill && !fill->cancelled)
		fill = fill->next;
	return fill;
}

int user_populate_cancel(struct kvmm_pool *pool)
{
	struct user_pool *up = user_client(pool)->up;
	struct user_fill *fill;
	int err;

	if (pool->rdonly)
		return -EACCES;
	pthread_mutex_lock(&up->lock);
	for (fill = up->fills; fill; fill = fill->next)
		fill->cancelled = true;
	while (any_cancelled(up))
		pthread_cond_wait(&up->fill_cond, &up->lock);
	err = up->gone ? -ENODEV : 0;
	pthread_mutex_unlock(&up->lock);
	return err;
}

void user_fill_drain(struct user_pool *up)
{
	struct user_crew *crew;

	pthread_mutex_lock(&up->lock);
	while (up->crew && up->crew->running)
		pthread_cond_wait(&up->fill_cond, &up->lock);
	crew = crew_take(up);
	pthread_mutex_unlock(&up->lock);
	crew_free(crew);
}
