// SPDX-License-Identifier: MIT
/*
 * User backend: how pools and their clients begin and end.
 *
 * A pool lives as long as its struct kvmm, or until it is destroyed; with
 * KVMM_POOL_FORCE its clients get -ENODEV from then on, while the arena stays
 * mapped for them until they close, so that no access of theirs can fault.
 */
#include "backend_user.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

/* Tables from this size on are worth pages of their own, huge ones if any. */
#define TABLE_MMAP	(1UL << 20)

/* A chunk is not smaller, as with the kernel's backend. */
#define HUGE_BYTES	(2U << 20)

/* Descriptors are read one by one all over the tables: TLB misses count. */
static void *table_alloc(void *ctx, size_t bytes)
{
	void *mem;

	(void)ctx;
	if (bytes >= TABLE_MMAP) {
		mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (mem == MAP_FAILED)
			return NULL;
		madvise(mem, bytes, MADV_HUGEPAGE);
		return mem;
	}
	if (posix_memalign(&mem, 64, bytes))
		return NULL;
	return memset(mem, 0, bytes);
}

static void table_free(void *ctx, void *mem, size_t bytes)
{
	(void)ctx;
	if (bytes >= TABLE_MMAP)
		munmap(mem, bytes);
	else
		free(mem);
}

/* The last user is gone. */
static void pool_free(struct user_pool *up)
{
	user_area_end(up);
	kvmm_core_exit(&up->core);
	user_arena_exit(up);
	pthread_cond_destroy(&up->fill_cond);
	pthread_cond_destroy(&up->io_cond);
	pthread_mutex_destroy(&up->lock);
	pthread_rwlock_destroy(&up->populate);
	free(up);
}

void user_pool_put(struct user_pool *up)
{
	struct user_backend *ub = user_backend(up->kv);
	bool last;

	pthread_mutex_lock(&ub->lock);
	last = !--up->users;
	pthread_mutex_unlock(&ub->lock);
	if (last)
		pool_free(up);
}

/* [A-Za-z0-9._-], not starting with '.' or '-', with a NUL at the end. */
static int check_name(const char *name)
{
	const char *c;

	if (strnlen(name, KVMM_NAME_LEN) == KVMM_NAME_LEN)
		return -ENAMETOOLONG;
	if (!*name || *name == '.' || *name == '-')
		return -EINVAL;
	for (c = name; *c; c++)
		if (!(*c >= 'a' && *c <= 'z') && !(*c >= 'A' && *c <= 'Z') &&
		    !(*c >= '0' && *c <= '9') && !strchr("._-", *c))
			return -EINVAL;
	return 0;
}

static unsigned int chunk_frames(const struct kvmm_pool_create *arg)
{
	return kvmm_core_chunk_frames(arg->block_size, HUGE_BYTES,
				      arg->nr_frames, arg->nr_elastic,
				      arg->chunk_frames);
}

static int check_create(const struct kvmm_pool_create *arg)
{
	int err = check_name(arg->name);

	if (err)
		return err;
	if (arg->flags & ~(KVMM_POOL_MANUAL_CLOCK | KVMM_POOL_NODES_PREFER) ||
	    (arg->flags & KVMM_POOL_NODES_PREFER && !arg->nodes) ||
	    arg->mode & ~0777U ||
	    arg->block_size < KVMM_MIN_BLOCK_SIZE ||
	    arg->block_size > KVMM_MAX_BLOCK_SIZE ||
	    arg->block_size & (arg->block_size - 1) || !arg->nr_frames ||
	    (uint64_t)arg->nr_frames + arg->nr_slots > KVMM_MAX_BLOCKS ||
	    arg->quarantine_ms > KVMM_MAX_QUARANTINE_MS)
		return -EINVAL;
	if (arg->clean_low > arg->clean_high || arg->clean_high > 1000)
		return -EINVAL;
	/* There is no thread of ours to do it; nodes are numactl's affair. */
	if (arg->clean_high || arg->nodes)
		return -EOPNOTSUPP;
	if (!chunk_frames(arg))
		return -EINVAL;
	/* The memory is this process's own, and the kernel's to swap. */
	if (arg->nr_elastic)
		return -EOPNOTSUPP;
	return arg->policy == KVMM_POLICY_LRU ? 0 : -EOPNOTSUPP;
}

/* Under user_backend.lock. */
static struct user_pool *find_pool(struct user_backend *ub, const char *name)
{
	struct user_pool *up;

	for (up = ub->pools; up; up = up->next)
		if (!strcmp(up->name, name))
			return up;
	return NULL;
}

static int pool_core(struct user_pool *up, const struct kvmm_pool_create *arg)
{
	struct kvmm_core_config cfg = {
		.nr_frames = arg->nr_frames,
		.nr_slots = arg->nr_slots,
		.nr_holds = arg->nr_holds,
		.max_clients = KVMM_MAX_CLIENTS,
		.quarantine_ms = arg->quarantine_ms,
		.block_size = arg->block_size,
		.alloc = table_alloc,
		.free = table_free,
		.note = user_note,
		.ctx = up,
	};

	if (getrandom(cfg.secret, sizeof(cfg.secret), 0) != sizeof(cfg.secret))
		return -EIO;
	return kvmm_core_init(&up->core, &cfg);
}

/* A pool that nobody knows of yet. */
static int pool_new(struct kvmm *kv, const struct kvmm_pool_create *arg,
		    struct user_pool **out)
{
	struct user_pool *up = calloc(1, sizeof(*up));
	pthread_condattr_t attr;
	int err;

	if (!up)
		return -ENOMEM;
	up->kv = kv;
	strcpy(up->name, arg->name);
	up->mode = arg->mode;
	up->uid = geteuid();
	up->gid = getegid();
	up->flags = arg->flags;
	up->block_shift = (unsigned int)__builtin_ctz(arg->block_size);
	up->arena_bytes = (size_t)arg->nr_frames << up->block_shift;
	up->chunk_frames = chunk_frames(arg);
	pthread_mutex_init(&up->lock, NULL);
	pthread_rwlock_init(&up->populate, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&up->io_cond, &attr);
	pthread_cond_init(&up->fill_cond, &attr);
	pthread_condattr_destroy(&attr);

	err = pool_core(up, arg);
	if (err)
		goto fail;
	err = user_arena_init(up);
	if (err)
		goto fail_core;
	*out = up;
	return 0;

fail_core:
	kvmm_core_exit(&up->core);
fail:
	pthread_cond_destroy(&up->fill_cond);
	pthread_cond_destroy(&up->io_cond);
	pthread_rwlock_destroy(&up->populate);
	pthread_mutex_destroy(&up->lock);
	free(up);
	return err;
}

/* A client of @up, for which the caller has taken up->users. */
static struct user_client *client_new(struct user_pool *up, bool rdonly,
				      int *err)
{
	struct user_client *cl = calloc(1, sizeof(*cl));

	*err = -ENOMEM;
	if (!cl)
		return NULL;
	cl->up = up;
	user_event_init(&cl->queue);
	cl->pool.kv = up->kv;
	cl->pool.arena = up->arena;
	cl->pool.arena_bytes = up->arena_bytes;
	cl->pool.block_shift = up->block_shift;
	cl->pool.nr_frames = up->core.cfg.nr_frames;
	cl->pool.nr_slots = up->core.cfg.nr_slots;
	cl->pool.fd = up->arena_fd;
	cl->pool.rdonly = rdonly;
	if (rdonly) {
		cl->pool.arena = kvmm_map_arena(up->arena_fd, up->arena_bytes,
						true);
		if (!cl->pool.arena) {
			free(cl);
			return NULL;
		}
	}
	pthread_mutex_lock(&up->lock);
	cl->id = kvmm_core_client_add(&up->core);
	pthread_mutex_unlock(&up->lock);
	if (!cl->id) {
		if (rdonly)
			munmap(cl->pool.arena, up->arena_bytes);
		free(cl);
		*err = -EUSERS;
		return NULL;
	}
	*err = 0;
	return cl;
}

int user_pool_create(struct kvmm *kv, struct kvmm_pool_create *arg,
		     struct kvmm_pool **out)
{
	struct user_backend *ub = user_backend(kv);
	struct user_pool *up = NULL, **link;
	int err = check_create(arg);
	struct user_client *cl;

	if (err)
		return err;
	pthread_mutex_lock(&ub->lock);
	if (find_pool(ub, arg->name))
		err = -EEXIST;
	else if (ub->nr_pools >= KVMM_MAX_POOLS)
		err = -EUSERS;
	else
		err = pool_new(kv, arg, &up);
	if (err)
		goto out;
	cl = client_new(up, false, &err);
	if (err) {
		pool_free(up);
		goto out;
	}
	up->users = 2;
	up->id = ++ub->next_id;
	for (link = &ub->pools; *link; link = &(*link)->next)
		;
	*link = up;
	ub->nr_pools++;
	arg->arena_size = up->arena_bytes;
	arg->chunk_frames = up->chunk_frames;
	*out = &cl->pool;
out:
	pthread_mutex_unlock(&ub->lock);
	return err;
}

/* As for a file: the owner's, the group's or the others' bits; root may all. */
static bool may_open(const struct user_pool *up, bool rdonly)
{
	unsigned int need = rdonly ? 04 : 06;
	unsigned int have = up->mode;

	if (geteuid() == 0)
		return true;
	if (geteuid() == up->uid)
		have >>= 6;
	else if (getegid() == up->gid)
		have >>= 3;
	return (have & need) == need;
}

int user_pool_open(struct kvmm *kv, struct kvmm_pool_open *arg,
		   struct kvmm_pool **out)
{
	struct user_backend *ub = user_backend(kv);
	bool rdonly = arg->flags & KVMM_POOL_RDONLY;
	struct user_client *cl = NULL;
	struct user_pool *up;
	int err = check_name(arg->name);

	if (err)
		return err;
	pthread_mutex_lock(&ub->lock);
	up = find_pool(ub, arg->name);
	if (!up)
		err = -ENOENT;
	else if (!may_open(up, rdonly))
		err = -EACCES;
	else
		cl = client_new(up, rdonly, &err);
	if (cl) {
		up->users++;
		*out = &cl->pool;
	}
	pthread_mutex_unlock(&ub->lock);
	return err;
}

void user_pool_close(struct kvmm_pool *pool)
{
	struct user_client *cl = user_client(pool);
	struct user_pool *up = cl->up;
	bool done;

	user_event_exit(cl);
	do {
		pthread_mutex_lock(&up->lock);
		done = kvmm_core_client_del(&up->core, cl->id, user_now(up));
		pthread_mutex_unlock(&up->lock);
	} while (!done);
	if (pool->rdonly)
		munmap(pool->arena, up->arena_bytes);
	free(cl);
	user_pool_put(up);
}

/* Its clients find out, and so do the threads that bring memory in. */
static void pool_gone(struct user_pool *up)
{
	pthread_mutex_lock(&up->lock);
	up->gone = true;
	user_event_hangup(up);
	pthread_cond_broadcast(&up->fill_cond);
	pthread_mutex_unlock(&up->lock);
}

void user_pool_end(struct user_pool *up)
{
	pool_gone(up);
	user_fill_drain(up);
	user_pool_put(up);
}

int user_pool_destroy(struct kvmm *kv, struct kvmm_pool_destroy *arg)
{
	struct user_backend *ub = user_backend(kv);
	struct user_pool *up, **link;
	int err = check_name(arg->name);

	if (err)
		return err;
	pthread_mutex_lock(&ub->lock);
	up = find_pool(ub, arg->name);
	if (!up)
		err = -ENOENT;
	else if (geteuid() != up->uid && geteuid() != 0)
		err = -EPERM;
	else if (up->users > 1 && !(arg->flags & KVMM_POOL_FORCE))
		err = -EBUSY;
	if (!err) {
		for (link = &ub->pools; *link != up; link = &(*link)->next)
			;
		*link = up->next;
		ub->nr_pools--;
		pool_gone(up);
	}
	pthread_mutex_unlock(&ub->lock);
	if (!err) {
		user_fill_drain(up);
		user_pool_put(up);
	}
	return err;
}

long user_pool_list(struct kvmm *kv, uint64_t *cursor,
		    struct kvmm_pool_entry *e, unsigned int n)
{
	struct user_backend *ub = user_backend(kv);
	struct user_pool *up;
	unsigned int k = 0;

	pthread_mutex_lock(&ub->lock);
	for (up = ub->pools; up && k < n; up = up->next) {
		if (up->id <= *cursor)
			continue;
		*cursor = up->id;
		memset(&e[k], 0, sizeof(e[k]));
		strcpy(e[k].name, up->name);
		e[k].mode = up->mode;
		e[k].uid = up->uid;
		e[k].gid = up->gid;
		e[k].block_size = 1U << up->block_shift;
		e[k].nr_frames = up->core.cfg.nr_frames;
		e[k].nr_slots = up->core.cfg.nr_slots;
		e[k].policy = KVMM_POLICY_LRU;
		e[k].nr_clients = up->users - 1;
		k++;
	}
	pthread_mutex_unlock(&ub->lock);
	return k;
}
