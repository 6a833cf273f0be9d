// SPDX-License-Identifier: MIT
/*
 * User backend: opening, what it offers, a pool's clock and counters.
 */
#include "backend_user.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t user_mono_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t user_mono_ms(void)
{
	return user_mono_us() / 1000;
}

uint64_t user_now(const struct user_pool *up)
{
	if (up->flags & KVMM_POOL_MANUAL_CLOCK)
		return up->manual_now;
	return user_mono_ms();
}

static int user_open(struct kvmm *kv, const char *device)
{
	struct user_backend *ub = calloc(1, sizeof(*ub));
	int err;

	(void)device;
	if (!ub)
		return -ENOMEM;
	pthread_mutex_init(&ub->lock, NULL);
	kv->priv = ub;
	if (kv->no_uring) {
		ub->threads = true;
		kvmm_log_once(kv, ONCE_NO_URING, KVMM_LOG_INFO,
			      "io_uring is not to be used: threads do swap I/O");
		return 0;
	}
	err = io_uring_probe();
	if (err) {
		ub->threads = true;
		kvmm_log_once(kv, ONCE_NO_URING, KVMM_LOG_WARNING,
			      "no io_uring here (%s): threads do swap I/O, which costs more CPU",
			      strerror(-err));
	}
	return 0;
}

static void user_close(struct kvmm *kv)
{
	struct user_backend *ub = user_backend(kv);
	struct user_pool *up;

	while ((up = ub->pools)) {
		ub->pools = up->next;
		user_pool_end(up);
	}
	pthread_mutex_destroy(&ub->lock);
	free(ub);
}

static const char *user_io_name(const struct kvmm *kv)
{
	bool threads = __atomic_load_n(&user_backend(kv)->threads,
				       __ATOMIC_RELAXED);

	return threads ? io_engine_threads.name : io_engine_uring.name;
}

static int user_info(struct kvmm *kv, struct kvmm_info *info)
{
	struct user_backend *ub = user_backend(kv);
	struct user_pool *up;

	info->abi = KVMM_ABI;
	info->features = KVMM_FEATURE_CHECKSUM | KVMM_FEATURE_EVENTS |
			 KVMM_FEATURE_DEADLINE | KVMM_FEATURE_WORKERS;
	info->policies = 1ULL << KVMM_POLICY_LRU;
	info->max_block_size = KVMM_MAX_BLOCK_SIZE;
	info->max_batch = KVMM_MAX_BATCH;
	strncpy(info->version, KVMM_VERSION, sizeof(info->version) - 1);
	pthread_mutex_lock(&ub->lock);
	info->nr_pools = ub->nr_pools;
	for (up = ub->pools; up; up = up->next) {
		pthread_mutex_lock(&up->lock);
		info->pinned_bytes += (uint64_t)up->core.frames_online <<
				      up->block_shift;
		pthread_mutex_unlock(&up->lock);
	}
	pthread_mutex_unlock(&ub->lock);
	return 0;
}

static int user_pool_reset(struct kvmm_pool *pool, uint64_t *epoch)
{
	struct user_pool *up = user_client(pool)->up;
	int err = 0;

	if (pool->rdonly)
		return -EACCES;
	pthread_mutex_lock(&up->lock);
	if (up->gone)
		err = -ENODEV;
	else
		*epoch = kvmm_core_reset(&up->core);
	pthread_mutex_unlock(&up->lock);
	return err;
}

/* Memory is never given back, so there is nothing to keep. */
static int user_lease(struct kvmm_pool *pool, struct kvmm_lease *arg)
{
	struct user_pool *up = user_client(pool)->up;
	unsigned int chunks = (pool->nr_frames - 1) / up->chunk_frames + 1;
	int err = 0;

	arg->done = 0;
	if (arg->flags & ~KVMM_LEASE_END || !arg->count ||
	    (uint64_t)arg->first + arg->count > chunks)
		return -EINVAL;
	pthread_mutex_lock(&up->lock);
	if (up->gone)
		err = -ENODEV;
	else
		arg->done = arg->count;
	pthread_mutex_unlock(&up->lock);
	return err;
}

static int user_pool_stat(struct kvmm_pool *pool, struct kvmm_pool_stat *st)
{
	struct user_pool *up = user_client(pool)->up;
	int err = 0;

	pthread_mutex_lock(&up->lock);
	if (up->gone) {
		err = -ENODEV;
	} else {
		kvmm_core_stat(&up->core, st);
		st->checksums = up->area && up->area->checksums;
		st->events = up->events;
		st->events_lost = up->events_lost;
		st->frames_populating = up->frames_populating;
		st->chunk_frames = up->chunk_frames;
	}
	pthread_mutex_unlock(&up->lock);
	return err;
}

static int user_pool_clock(struct kvmm_pool *pool, uint64_t now_ms)
{
	struct user_pool *up = user_client(pool)->up;
	int err = 0;

	if (pool->rdonly)
		return -EACCES;
	pthread_mutex_lock(&up->lock);
	if (up->gone)
		err = -ENODEV;
	else if (!(up->flags & KVMM_POOL_MANUAL_CLOCK) ||
		 now_ms < up->manual_now)
		err = -EINVAL;
	else
		up->manual_now = now_ms;
	pthread_mutex_unlock(&up->lock);
	return err;
}

const struct kvmm_ops kvmm_user_ops = {
	.name = "user",
	.open = user_open,
	.close = user_close,
	.io_name = user_io_name,
	.info = user_info,
	.pool_create = user_pool_create,
	.pool_open = user_pool_open,
	.pool_close = user_pool_close,
	.pool_destroy = user_pool_destroy,
	.pool_list = user_pool_list,
	.pool_reset = user_pool_reset,
	.pool_stat = user_pool_stat,
	.pool_clock = user_pool_clock,
	.lease = user_lease,
	.room = user_room,
	.populate = user_populate,
	.populate_start = user_populate_start,
	.populate_wait = user_populate_wait,
	.populate_cancel = user_populate_cancel,
	.swap_attach = user_swap_attach,
	.swap_detach = user_swap_detach,
	.alloc = user_alloc,
	.publish = user_publish,
	.lookup = user_lookup,
	.batch = user_batch,
	.swap_out = user_swap_out,
	.swap_in = user_swap_in,
	.keys = user_keys,
	.request_end = user_request_end,
	.hint = user_hint,
	.reclaim = user_reclaim,
	.events = user_events,
	.event_fd = user_event_fd,
	.event_read = user_event_read,
};
