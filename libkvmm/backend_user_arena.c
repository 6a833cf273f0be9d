// SPDX-License-Identifier: MIT
/*
 * User backend: the arena, one sealed memfd, mapped whole.
 *
 * Memory comes in by madvise(), which reports what is missing as an error
 * where a plain access would be SIGBUS, or the OOM killer's business.
 *
 * 2 MiB pages.  Many systems forbid huge pages for shmem on a fault
 * (shmem_enabled=never is the kernel's default) but not MADV_COLLAPSE: bring in
 * the first page of each 2 MiB, then collapse.  It is also the fastest way to
 * zeroed memory: 0.13 s a GiB against 1.1 s in small pages, measured.
 */
#include "backend_user.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif

#define HUGE		((size_t)2 << 20)
#define PAGE		((size_t)4096)
/* The system keeps this much: the arena is not to take the last page. */
#define KEEP_FREE	((uint64_t)64 << 20)

static uint32_t nr_chunks(const struct user_pool *up)
{
	return (uint32_t)((up->arena_bytes - 1) >> USER_CHUNK_SHIFT) + 1;
}

/* First number in @path, or on its line that begins with @key. */
static bool read_number(const char *path, const char *key, uint64_t *value)
{
	FILE *f = fopen(path, "re");
	unsigned long long v;
	char line[256];
	bool found = false;

	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f)) {
		if (strncmp(line, key, strlen(key)))
			continue;
		found = sscanf(line + strlen(key), "%llu", &v) == 1;
		if (!found)
			break;
		*value = v;
	}
	fclose(f);
	return found;
}

/* One cgroup's files: the limit, what is used, and which of it is cache. */
struct cgroup_files {
	const char *max;
	const char *used;
	const char *stat;
	const char *cache[2];
};

static const struct cgroup_files cgroup_v2 = {
	"/sys/fs/cgroup%s/memory.max",
	"/sys/fs/cgroup%s/memory.current",
	"/sys/fs/cgroup%s/memory.stat",
	{ "inactive_file ", "active_file " },
};

static const struct cgroup_files cgroup_v1 = {
	"/sys/fs/cgroup/memory%s/memory.limit_in_bytes",
	"/sys/fs/cgroup/memory%s/memory.usage_in_bytes",
	"/sys/fs/cgroup/memory%s/memory.stat",
	{ "total_inactive_file ", "total_active_file " },
};

static bool cgroup_number(const char *format, const char *name,
			  const char *key, uint64_t *value)
{
	char path[640];

	snprintf(path, sizeof(path), format, name);
	return read_number(path, key, value);
}

/* What one cgroup still allows; the cache in it makes way. */
static uint64_t cgroup_level(const struct cgroup_files *f, const char *name)
{
	uint64_t limit, used = 0, cache;
	unsigned int i;

	if (!cgroup_number(f->max, name, "", &limit))
		return UINT64_MAX;
	cgroup_number(f->used, name, "", &used);
	for (i = 0; i < 2; i++)
		if (cgroup_number(f->stat, name, f->cache[i], &cache))
			used -= cache < used ? cache : used;
	return limit > used ? limit - used : 0;
}

/* What the memory cgroup still allows, and every one above it. */
static uint64_t cgroup_room(void)
{
	const struct cgroup_files *files;
	uint64_t room = UINT64_MAX, level;
	char line[512], *name, *end;
	FILE *f = fopen("/proc/self/cgroup", "re");

	if (!f)
		return room;
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "0::", 3))
			files = &cgroup_v2;
		else if (strstr(line, ":memory:"))
			files = &cgroup_v1;
		else
			continue;
		name = strchr(line, '/');
		while (name) {
			level = cgroup_level(files, name);
			if (level < room)
				room = level;
			if (!*name)
				break;
			/* Up to the root, which is a limit in a container. */
			end = strrchr(name, '/');
			*(end ? end : name) = 0;
		}
	}
	fclose(f);
	return room;
}

/*
 * Could @bytes more be had?  Asked before each piece, since running into the
 * limit itself would not fail: it would wake the OOM killer.
 */
static int check_room(struct user_pool *up, size_t bytes)
{
	uint64_t avail, cgroup, room = UINT64_MAX;

	if (read_number("/proc/meminfo", "MemAvailable:", &avail)) {
		avail *= 1024;
		room = avail > KEEP_FREE ? avail - KEEP_FREE : 0;
	}
	cgroup = cgroup_room();
	if (cgroup < room)
		room = cgroup;
	if (bytes <= room)
		return 0;
	kvmm_log(up->kv, KVMM_LOG_ERROR,
		 "pool %s: %zu more bytes of memory are needed, %llu can be had",
		 up->name, bytes, (unsigned long long)room);
	return -ENOMEM;
}

int user_arena_init(struct user_pool *up)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	size_t bytes = up->arena_bytes;
	struct rlimit fsize;
	void *map;
	int err;

	/* Beyond this limit ftruncate() would be a SIGXFSZ. */
	if (!getrlimit(RLIMIT_FSIZE, &fsize) && fsize.rlim_cur < bytes) {
		kvmm_log(up->kv, KVMM_LOG_ERROR,
			 "pool %s: RLIMIT_FSIZE forbids an arena of %zu bytes",
			 up->name, bytes);
		return -ENOMEM;
	}
	/* What can't fit is refused now, not when the machine is full. */
	if (check_room(up, bytes))
		return -ENOMEM;
	up->chunk_online = calloc(nr_chunks(up), sizeof(*up->chunk_online));
	if (!up->chunk_online)
		return -ENOMEM;
	up->arena_fd = memfd_create("kvmm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (up->arena_fd < 0) {
		err = errno;
		goto fail;
	}
	if (ftruncate(up->arena_fd, (off_t)bytes) ||
	    fcntl(up->arena_fd, F_ADD_SEALS, seals))
		goto fail_fd;
	map = kvmm_map_arena(up->arena_fd, bytes, false);
	if (!map)
		goto fail_fd;
	madvise(map, bytes, MADV_HUGEPAGE);
	up->arena = map;
	up->huge = true;
	return 0;

fail_fd:
	err = errno;
	close(up->arena_fd);
fail:
	kvmm_log(up->kv, KVMM_LOG_ERROR,
		 "pool %s: no arena of %zu bytes: %s", up->name, bytes,
		 strerror(err));
	free(up->chunk_online);
	return -ENOMEM;
}

void user_arena_exit(struct user_pool *up)
{
	munmap(up->arena, up->arena_bytes);
	close(up->arena_fd);
	free(up->chunk_online);
}

size_t user_chunk_bytes(const struct user_pool *up, uint32_t chunk)
{
	size_t start = (size_t)chunk << USER_CHUNK_SHIFT;
	size_t bytes = up->arena_bytes - start;
	uint32_t online = __atomic_load_n(&up->chunk_online[chunk],
					  __ATOMIC_ACQUIRE);

	if (bytes > (size_t)1 << USER_CHUNK_SHIFT)
		bytes = (size_t)1 << USER_CHUNK_SHIFT;
	return online == bytes >> up->block_shift ? bytes : 0;
}

int user_room(struct kvmm_pool *pool)
{
	struct user_pool *up = user_client(pool)->up;

	return check_room(up, up->arena_bytes);
}

/*
 * Not only signals interrupt: what a ring that was closed leaves behind does,
 * too.
 */
static int populate_write(void *at, size_t bytes)
{
	int err;

	do {
		err = madvise(at, bytes, MADV_POPULATE_WRITE) ? -errno : 0;
	} while (err == -EINTR);
	return err;
}

static int reserve(int fd, size_t start, size_t bytes)
{
	int err;

	do {
		err = fallocate(fd, 0, (off_t)start, (off_t)bytes) ? -errno : 0;
	} while (err == -EINTR);
	return err;
}

/* Makes whole huge pages of @start to @end; what fails stays small pages. */
static int collapse(struct user_pool *up, size_t start, size_t end)
{
	size_t at;
	int err;

	start = (start + HUGE - 1) & ~(HUGE - 1);
	end &= ~(HUGE - 1);
	for (at = start; at < end; at += HUGE) {
		err = populate_write(up->arena + at, PAGE);
		if (err)
			return err;
		if (!madvise(up->arena + at, HUGE, MADV_COLLAPSE)) {
			__atomic_fetch_add(&up->nr_huge, 1, __ATOMIC_RELAXED);
			continue;
		}
		/* EAGAIN and ENOMEM are of this moment, for this place. */
		if (errno != EINVAL)
			continue;
		if (__atomic_exchange_n(&up->huge, false, __ATOMIC_RELAXED))
			kvmm_log_once(up->kv, ONCE_NO_HUGE, KVMM_LOG_INFO,
				      "no MADV_COLLAPSE here: 2 MiB pages only if the system gives them to shmem by itself");
		break;
	}
	return 0;
}

/* Memory for one range; a range that is there already costs little. */
static int bring_in(struct user_pool *up, size_t start, size_t end)
{
	size_t at;
	int err;

	if (__atomic_load_n(&up->huge, __ATOMIC_RELAXED)) {
		err = collapse(up, start, end);
		if (err && err != -EINVAL)
			return -ENOMEM;
	}
	err = populate_write(up->arena + start, end - start);
	if (!err)
		return 0;
	if (err != -EINVAL)
		return -ENOMEM;
	/* Linux before 5.14: first make sure that no access can fail. */
	if (reserve(up->arena_fd, start, end - start))
		return -ENOMEM;
	for (at = start; at < end; at += PAGE)
		(void)*(volatile unsigned char *)(up->arena + at);
	return 0;
}

/* Gives back what came in for frames that did not come online. */
static void roll_back(struct user_pool *up, unsigned int first,
		      unsigned int count)
{
	unsigned int i;
	bool online;

	pthread_rwlock_wrlock(&up->populate);
	for (i = first; i < first + count; i++) {
		pthread_mutex_lock(&up->lock);
		online = kvmm_core_frame_is_online(&up->core, i);
		pthread_mutex_unlock(&up->lock);
		if (!online)
			fallocate(up->arena_fd,
				  FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				  (off_t)i << up->block_shift,
				  (off_t)1 << up->block_shift);
	}
	pthread_rwlock_unlock(&up->populate);
}

/*
 * They have memory: tell the core, and count for the chunks.  Return: 1 if these
 * were the last.
 */
static int set_online(struct user_pool *up, unsigned int first,
		      unsigned int count)
{
	bool last = false;
	unsigned int per_chunk = 1U << (USER_CHUNK_SHIFT - up->block_shift);
	unsigned int i, m;
	uint32_t n;

	for (i = first; i < first + count; i += m) {
		m = first + count - i;
		if (m > KVMM_CORE_BATCH)
			m = KVMM_CORE_BATCH;
		if (m > per_chunk - i % per_chunk)
			m = per_chunk - i % per_chunk;
		pthread_mutex_lock(&up->lock);
		if (up->gone) {
			pthread_mutex_unlock(&up->lock);
			return -ENODEV;
		}
		n = kvmm_core_frames_online(&up->core, i, m);
		last = n && up->core.frames_online == up->core.cfg.nr_frames;
		__atomic_fetch_add(&up->chunk_online[i / per_chunk], n,
				   __ATOMIC_RELEASE);
		pthread_mutex_unlock(&up->lock);
	}
	return last;
}

/* The last frame has come online: say what kind of memory it was. */
static void tell_memory(struct user_pool *up)
{
	unsigned int huge = __atomic_load_n(&up->nr_huge, __ATOMIC_RELAXED);

	kvmm_log(up->kv, KVMM_LOG_INFO,
		 "pool %s: %zu KiB of memory, %zu KiB of it in 2 MiB pages",
		 up->name, up->arena_bytes >> 10, huge * (HUGE >> 10));
}

int user_arena_fill(struct user_pool *up, unsigned int first,
		    unsigned int count)
{
	int err = check_room(up, (size_t)count << up->block_shift);

	if (err)
		return err;
	pthread_rwlock_rdlock(&up->populate);
	err = bring_in(up, (size_t)first << up->block_shift,
		       (size_t)(first + count) << up->block_shift);
	if (!err)
		err = set_online(up, first, count);
	pthread_rwlock_unlock(&up->populate);
	if (err < 0) {
		roll_back(up, first, count);
		return err;
	}
	if (err)
		tell_memory(up);
	return 0;
}
