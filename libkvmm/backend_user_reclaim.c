// SPDX-License-Identifier: MIT
/*
 * User backend: making room.
 *
 * kvmm_reclaim() goes in lockstep: 64 moves are handed out, carried out and
 * finished before the core is asked again, so that who is chosen depends on
 * nothing but the order of the commands, and is the same as in the kernel.
 *
 * There is no background writer.  An allocation that finds nothing to take
 * without I/O therefore does it itself: with a timeout it writes out as much
 * as it needs and waits for it; without one it starts the writes, says
 * -EAGAIN, and a later call on the pool takes their completions.
 */
#include "backend_user.h"

#include <time.h>

/* Ends of other commands' I/O that a reclaim waits for in vain. */
#define MAX_IDLE	64

/**
 * struct lot - up to KVMM_CORE_BATCH moves of one reclaim
 * @up: the pool
 * @area: with a reference, or NULL
 * @spare: requests for it
 * @handle: blocks that are being written
 * @nr: how many
 * @count: what the core gave up at once
 */
struct lot {
	struct user_pool *up;
	struct user_area *area;
	struct io_list spare;
	uint64_t handle[KVMM_CORE_BATCH];
	unsigned int nr;
	struct kvmm_reclaim_count count;
};

static void lot_begin(struct lot *lot, struct user_pool *up)
{
	lot->up = up;
	lot->area = NULL;
	lot->spare = (struct io_list){ 0 };
	pthread_mutex_lock(&up->lock);
	lot->area = user_area_get(up, NULL);
	pthread_mutex_unlock(&up->lock);
}

static void lot_end(struct lot *lot)
{
	if (lot->area)
		io_give_back(lot->area, &lot->spare);
	user_area_put(lot->area);
}

/*
 * Gets @least requests or more, all at once: two commands that each hold a part
 * of what they need would wait for each other.
 */
static void lot_requests(struct lot *lot, uint32_t least)
{
	if (!lot->area || lot->spare.nr >= least)
		return;
	io_give_back(lot->area, &lot->spare);
	io_take_wait(lot->area, &lot->spare, least);
}

/*
 * Asks the core for moves that bring the frames in use down to @keep, or down
 * by @down where that is not 0, and starts them.  @group: NULL for moves that
 * nobody waits for.  Return: moves started.
 */
static unsigned int lot_start(struct lot *lot, uint32_t keep, uint32_t down,
			      struct io_group *group)
{
	struct user_pool *up = lot->up;
	struct kvmm_io io[KVMM_CORE_BATCH];
	struct io_list go = { 0 };
	struct io_req *req;
	uint32_t n, i, used;

	pthread_mutex_lock(&up->lock);
	/* Attached just now: the requests are not there yet; the next time. */
	n = lot->area ? lot->spare.nr : 0;
	if (!lot->area && up->area)
		goto none;
	/* It has nothing written then, and all requests may be late. */
	if (up->core.degraded)
		n = KVMM_CORE_BATCH;
	if (down) {
		used = kvmm_core_frames_used(&up->core);
		keep = used > down ? used - down : 0;
	}
	lot->count = (struct kvmm_reclaim_count){ 0 };
	n = kvmm_core_reclaim(&up->core, keep, user_now(up), io,
			      lot->area ? n : KVMM_CORE_BATCH, &lot->count);
	for (i = 0; i < n; i++) {
		req = io_list_take(&lot->spare);
		req->io = io[i];
		io_prepare(lot->area, req, true, group, 0);
		io_list_add(&go, req);
		lot->handle[i] = io[i].handle;
	}
	lot->nr = n;
	pthread_mutex_unlock(&up->lock);
	if (n)
		lot->area->engine->start(lot->area, &go);
	return n;

none:
	pthread_mutex_unlock(&up->lock);
	lot->count = (struct kvmm_reclaim_count){ 0 };
	lot->nr = 0;
	return 0;
}

/* Of the blocks that were written, those that then lost their frame. */
static unsigned int lot_evicted(struct lot *lot)
{
	struct kvmm_block_ref q[KVMM_CORE_BATCH];
	struct user_pool *up = lot->up;
	unsigned int i, gone = 0;

	if (!lot->nr)
		return 0;
	for (i = 0; i < lot->nr; i++)
		q[i].handle = lot->handle[i];
	pthread_mutex_lock(&up->lock);
	kvmm_core_query(&up->core, user_now(up), q, lot->nr);
	pthread_mutex_unlock(&up->lock);
	for (i = 0; i < lot->nr; i++)
		gone += q[i].result == KVMM_SWAPPED;
	return gone;
}

int user_reclaim(struct kvmm_pool *pool, struct kvmm_reclaim *arg)
{
	struct user_pool *up = user_client(pool)->up;
	struct io_group group = { 0 };
	bool others, progress = true;
	unsigned int idle = 0;
	struct lot lot;
	uint64_t seq;
	int err = 0;

	if (pool->rdonly)
		return -EACCES;
	lot_begin(&lot, up);
	for (;;) {
		pthread_mutex_lock(&up->lock);
		if (up->gone)
			err = -ENODEV;
		arg->in_use = kvmm_core_frames_used(&up->core);
		others = kvmm_core_moving(&up->core);
		seq = up->io_seq;
		pthread_mutex_unlock(&up->lock);
		if (err || arg->in_use <= arg->keep)
			break;
		if (!progress) {
			/* What others are moving may make the difference. */
			if (!others || !lot.area || idle++ == MAX_IDLE)
				break;
			io_wait(lot.area, seq, 1);
		}
		lot_requests(&lot, KVMM_CORE_BATCH);
		progress = lot_start(&lot, arg->keep, 0, &group);
		if (progress)
			io_group_wait(lot.area, &group);
		arg->evicted += lot.count.evicted + lot_evicted(&lot);
		arg->purged += lot.count.purged;
		/* Also where it only came past pinned or expired blocks. */
		if (lot.count.evicted || lot.count.purged || lot.count.more)
			progress = true;
	}
	lot_end(&lot);
	return err;
}

bool user_make_room(struct user_pool *up, uint32_t want)
{
	struct io_group group = { 0 };
	bool busy, done = false;
	struct lot lot;
	uint64_t seq;

	if (want > KVMM_CORE_BATCH)
		want = KVMM_CORE_BATCH;
	lot_begin(&lot, up);
	pthread_mutex_lock(&up->lock);
	seq = up->io_seq;
	pthread_mutex_unlock(&up->lock);
	lot_requests(&lot, want);
	if (lot_start(&lot, 0, want, &group)) {
		io_group_wait(lot.area, &group);
		done = true;
	} else if (lot.count.evicted || lot.count.purged || lot.count.more) {
		done = true;
	} else if (lot.area) {
		/* Nothing to start: what is in flight will free frames. */
		pthread_mutex_lock(&up->lock);
		busy = kvmm_core_moving(&up->core);
		pthread_mutex_unlock(&up->lock);
		if (busy) {
			io_wait(lot.area, seq, 1);
			done = true;
		}
	}
	lot_end(&lot);
	return done;
}

/* Starts writing out for whoever asks later; takes what has been written. */
static void start_writing(struct user_pool *up, uint32_t want)
{
	struct lot lot;

	if (want > KVMM_CORE_BATCH)
		want = KVMM_CORE_BATCH;
	lot_begin(&lot, up);
	if (lot.area && io_take(lot.area, &lot.spare, 1, want) &&
	    lot_start(&lot, 0, want, NULL)) {
		/* A sleeper may now have to be the one who waits for these. */
		pthread_mutex_lock(&up->lock);
		up->io_seq++;
		pthread_cond_broadcast(&up->io_cond);
		pthread_mutex_unlock(&up->lock);
	}
	if (lot.area)
		io_poll(lot.area);
	lot_end(&lot);
}

/* One lot of an allocation: number had, or why none. */
static int alloc_lot(struct user_client *cl, struct kvmm_block_ref *refs,
		     unsigned int n, unsigned int nr_parts)
{
	struct user_pool *up = cl->up;
	int ret = -ENODEV;

	if (n > KVMM_CORE_BATCH)
		n = KVMM_CORE_BATCH;
	pthread_mutex_lock(&up->lock);
	if (!up->gone)
		ret = kvmm_core_alloc(&up->core, cl->id, nr_parts,
				      user_now(up), refs, n);
	pthread_mutex_unlock(&up->lock);
	return ret;
}

long user_alloc(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		unsigned int n, unsigned int nr_parts, unsigned int timeout_ms)
{
	struct user_client *cl = user_client(pool);
	const struct timespec pause = { .tv_nsec = 50000 };
	struct user_pool *up = cl->up;
	uint64_t until = 0;
	bool started = false;
	unsigned int got = 0;
	int ret = 0;

	if (pool->rdonly)
		return -EACCES;
	while (got < n) {
		ret = alloc_lot(cl, &refs[got], n - got, nr_parts);
		if (ret > 0) {
			got += (unsigned int)ret;
			continue;
		}
		if (ret != -EAGAIN)
			break;
		if (!timeout_ms) {
			if (started)
				break;
			start_writing(up, n - got);
			started = true;
			continue;
		}
		/* The caller's patience is real time, whatever the pool's. */
		if (!until)
			until = user_mono_ms() + timeout_ms;
		else if (user_mono_ms() >= until)
			ret = -ETIMEDOUT;
		if (ret == -ETIMEDOUT)
			break;
		/* Nothing to start or wait for: the next ask looks further. */
		if (!user_make_room(up, n - got))
			nanosleep(&pause, NULL);
	}
	return got ? (long)got : ret;
}
