// SPDX-License-Identifier: MIT
/*
 * Clients and pools for the kernel tests, and the checks through counters that
 * nothing leaked.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kvmm_test.h"

int kt_ioctl(int fd, unsigned long cmd, const void *arg)
{
	int ret = ioctl(fd, cmd, arg);

	return ret < 0 ? -errno : ret;
}

int kt_dev(int flags)
{
	int fd = open(KT_DEVICE, flags | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

struct kvmm_pool_create kt_spec(const char *name, uint32_t block_size,
				uint32_t nr_frames, uint32_t nr_slots)
{
	struct kvmm_pool_create spec = {
		.size = sizeof(spec),
		.mode = 0600,
		.policy = KVMM_POLICY_LRU,
		.block_size = block_size,
		.nr_frames = nr_frames,
		.nr_slots = nr_slots,
	};

	snprintf(spec.name, sizeof(spec.name), "%s", name);
	return spec;
}

static int map_arena(struct kt *t, int prot)
{
	void *mem = mmap(NULL, t->arena_size, prot, MAP_SHARED, t->fd, 0);

	if (mem == MAP_FAILED)
		return -errno;
	t->arena = mem;
	return 0;
}

int kt_create_spec(struct kt *t, struct kvmm_pool_create *spec)
{
	int ret;

	memset(t, 0, sizeof(*t));
	t->fd = kt_dev(O_RDWR);
	if (t->fd < 0)
		return t->fd;
	ret = kt_ioctl(t->fd, KVMM_POOL_CREATE, spec);
	if (ret < 0)
		goto fail;
	memcpy(t->name, spec->name, sizeof(t->name));
	t->block_size = spec->block_size;
	t->nr_frames = spec->nr_frames;
	t->arena_size = spec->arena_size;
	ret = kt_populate(t, 0, t->nr_frames, NULL);
	if (!ret)
		ret = map_arena(t, PROT_READ | PROT_WRITE);
	if (!ret)
		return 0;
	kt_close(t);
	kt_destroy(t->name, 0);
	return ret;
fail:
	kt_close(t);
	return ret;
}

int kt_create(struct kt *t, uint32_t block_size, uint32_t nr_frames,
	      uint32_t nr_slots)
{
	struct kvmm_pool_create spec;
	char name[32];

	snprintf(name, sizeof(name), "test-%d", (int)getpid());
	spec = kt_spec(name, block_size, nr_frames, nr_slots);
	return kt_create_spec(t, &spec);
}

int kt_join(struct kt *t, const char *name, uint32_t flags)
{
	struct kvmm_pool_open arg = { .size = sizeof(arg), .flags = flags };
	bool rdonly = flags & KVMM_POOL_RDONLY;
	int ret;

	memset(t, 0, sizeof(*t));
	snprintf(arg.name, sizeof(arg.name), "%s", name);
	t->fd = kt_dev(rdonly ? O_RDONLY : O_RDWR);
	if (t->fd < 0)
		return t->fd;
	ret = kt_ioctl(t->fd, KVMM_POOL_OPEN, &arg);
	if (!ret) {
		memcpy(t->name, arg.name, sizeof(t->name));
		t->block_size = arg.block_size;
		t->nr_frames = arg.nr_frames;
		t->arena_size = arg.arena_size;
		ret = map_arena(t, rdonly ? PROT_READ : PROT_READ | PROT_WRITE);
	}
	if (ret)
		kt_close(t);
	return ret;
}

void kt_close(struct kt *t)
{
	if (t->arena)
		munmap(t->arena, t->arena_size);
	if (t->fd >= 0)
		close(t->fd);
	t->arena = NULL;
	t->fd = -1;
}

int kt_destroy(const char *name, uint32_t flags)
{
	struct kvmm_pool_destroy arg = { .size = sizeof(arg), .flags = flags };
	int fd = kt_dev(O_RDWR);
	int ret;

	if (fd < 0)
		return fd;
	snprintf(arg.name, sizeof(arg.name), "%s", name);
	ret = kt_ioctl(fd, KVMM_POOL_DESTROY, &arg);
	close(fd);
	return ret;
}

int kt_populate(struct kt *t, uint32_t first, uint32_t count, uint32_t *done)
{
	struct kvmm_populate arg = {
		.size = sizeof(arg), .first = first, .count = count,
	};
	int ret = kt_ioctl(t->fd, KVMM_POPULATE, &arg);

	if (done)
		*done = arg.done;
	return ret;
}

int kt_stat(struct kt *t, struct kvmm_pool_stat *st)
{
	memset(st, 0, sizeof(*st));
	st->size = sizeof(*st);
	return kt_ioctl(t->fd, KVMM_POOL_STAT, st);
}

struct kvmm_pool_stat kt_stat_of(struct kt *t)
{
	struct kvmm_pool_stat st;

	if (kt_stat(t, &st))
		memset(&st, 0xff, sizeof(st));
	return st;
}

uint64_t kt_moving(struct kt *t)
{
	struct kvmm_pool_stat st = kt_stat_of(t);

	return st.blocks[KVMM_WRITING] + st.blocks[KVMM_READING];
}

int kt_info(struct kvmm_info *info)
{
	int fd = kt_dev(O_RDONLY);
	int ret;

	if (fd < 0)
		return fd;
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	ret = kt_ioctl(fd, KVMM_INFO, info);
	close(fd);
	return ret;
}

int kt_clock(struct kt *t, uint64_t now_ms)
{
	struct kvmm_pool_clock arg = {
		.size = sizeof(arg), .now_ms = now_ms,
	};

	return kt_ioctl(t->fd, KVMM_POOL_CLOCK, &arg);
}

int kt_reset(struct kt *t, uint64_t *epoch)
{
	struct kvmm_pool_reset arg = { .size = sizeof(arg) };
	int ret = kt_ioctl(t->fd, KVMM_POOL_RESET, &arg);

	if (epoch)
		*epoch = arg.epoch;
	return ret;
}

int kt_list(struct kvmm_pool_entry *entries, uint32_t max)
{
	struct kvmm_pool_list arg = {
		.size = sizeof(arg),
		.entries = (uintptr_t)entries,
		.count = max,
	};
	int fd = kt_dev(O_RDONLY);
	uint32_t n = 0;
	int ret;

	if (fd < 0)
		return fd;
	do {
		arg.entries = (uintptr_t)(entries + n);
		arg.count = max - n;
		ret = kt_ioctl(fd, KVMM_POOL_LIST, &arg);
		n += ret ? 0 : arg.done;
	} while (!ret && arg.done && n < max);
	close(fd);
	return ret ? ret : (int)n;
}

void kt_wipe(void)
{
	struct kvmm_pool_entry entries[64];
	int n = kt_list(entries, 64);

	while (n-- > 0)
		kt_destroy(entries[n].name, KVMM_POOL_FORCE);
}

const char *kt_inconsistent(const struct kvmm_pool_stat *st)
{
	const __u64 *b = st->blocks;
	uint64_t framed = b[KVMM_FILLING] + b[KVMM_RESIDENT] +
		b[KVMM_WRITING] + b[KVMM_CLEAN] + b[KVMM_READING];
	uint64_t slotted = b[KVMM_WRITING] + b[KVMM_CLEAN] + b[KVMM_SWAPPED] +
		b[KVMM_READING];

	if (st->frames_online > st->nr_frames)
		return "more frames online than there are";
	if (framed + st->frames_free + st->frames_quarantined !=
	    st->frames_online)
		return "frames got lost or counted twice";
	if (slotted + st->slots_free != st->nr_slots)
		return "slots got lost or counted twice";
	if (st->pins < st->blocks_pinned)
		return "fewer pins than pinned blocks";
	if (!st->pins != !st->blocks_pinned)
		return "pins without pinned blocks";
	return NULL;
}

const char *kt_finish(struct kt *t)
{
	struct kvmm_pool_stat st;
	struct kvmm_info info;
	char name[KVMM_NAME_LEN];
	struct kt last;
	uint64_t deadline;
	const char *bad;

	if (t->fd < 0)
		return NULL;
	memcpy(name, t->name, sizeof(name));
	kt_close(t);
	if (kt_join(&last, name, 0))
		return "the pool is gone";
	/* a ring that was closed lets go of a registered file in its own time */
	deadline = kt_now_ms() + 5000;
	do {
		kt_sleep_ms(1);
		kt_stat(&last, &st);
	} while (st.nr_clients > 1 && kt_now_ms() < deadline);
	bad = kt_inconsistent(&st);
	if (!bad && st.nr_clients != 1)
		bad = "a client stayed";
	if (!bad && (st.pins || st.blocks_pinned))
		bad = "pins stayed";
	if (!bad && st.blocks[KVMM_FILLING])
		bad = "FILLING blocks stayed";
	if (!bad && (st.blocks[KVMM_WRITING] || st.blocks[KVMM_READING]))
		bad = "I/O stayed";
	if (!bad && kt_info(&info))
		bad = "KVMM_INFO failed";
	if (!bad && info.pinned_bytes < st.frames_online * st.block_size)
		bad = "pinned_bytes is less than the pool holds";
	kt_close(&last);
	if (kt_destroy(name, 0) && !bad)
		bad = "the pool can't be destroyed";
	if (!bad && (kt_info(&info) || info.nr_pools || info.pinned_bytes))
		bad = "pools or pinned bytes stayed";
	return bad;
}

int kt_wait_unpinned(struct kt *t)
{
	struct kvmm_pool_stat st;
	int i, ret;

	for (i = 0; i < 20000; i++) {
		ret = kt_stat(t, &st);
		if (ret)
			return ret;
		if (!st.pins && !st.blocks[KVMM_FILLING] &&
		    !st.blocks[KVMM_WRITING] && !st.blocks[KVMM_READING])
			return 0;
		kt_sleep_ms(1);
	}
	return -ETIMEDOUT;
}
