// SPDX-License-Identifier: MIT
/*
 * Swap areas for the kernel tests, and moving blocks to and from them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvmm_test.h"

const char *kt_disk_dir(void)
{
	const char *dir = getenv("KVMM_DISK");
	struct stat st;

	if (!dir)
		dir = "/mnt/disk";
	return stat(dir, &st) ? NULL : dir;
}

const char *kt_disk_dev(void)
{
	const char *dev = getenv("KVMM_BLKDEV");
	struct stat st;

	if (!dev)
		dev = "/dev/vdb";
	return stat(dev, &st) || !S_ISBLK(st.st_mode) ? NULL : dev;
}

static void area_path(char *path, size_t size, const char *name)
{
	snprintf(path, size, "%s/%s", kt_disk_dir(), name);
}

int kt_area_file(const char *name, uint32_t block_size, uint32_t slots)
{
	size_t bytes = (size_t)block_size * slots, at;
	static char zero[1 << 20];
	char path[256];
	ssize_t n;
	int fd;

	area_path(path, sizeof(path), name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	for (at = 0; at < bytes; at += n) {
		size_t want = bytes - at;

		if (want > sizeof(zero))
			want = sizeof(zero);
		n = pwrite(fd, zero, want, at);
		if (n <= 0) {
			n = -errno;
			close(fd);
			return n;
		}
	}
	/* written extents: direct writes need no journal, so no detours */
	fsync(fd);
	return fd;
}

int kt_fill_disk(int fd)
{
	off_t step = 256 << 20, at = 0;

	while (step >= 4096) {
		if (fallocate(fd, 0, at, step))
			step /= 2;
		else
			at += step;
	}
	fsync(fd);
	return at ? 0 : -ENODATA;
}

void kt_area_unlink(const char *name)
{
	char path[256];

	area_path(path, sizeof(path), name);
	unlink(path);
}

int kt_attach(struct kt *t, int fd, uint32_t nr_slots, uint64_t offset,
	      uint32_t flags, uint32_t *got)
{
	struct kvmm_swap_attach arg = {
		.size = sizeof(arg),
		.flags = flags,
		.fd = fd,
		.nr_slots = nr_slots,
		.offset = offset,
	};
	int ret = kt_ioctl(t->fd, KVMM_SWAP_ATTACH, &arg);

	if (got)
		*got = arg.nr_slots;
	return ret;
}

int kt_attach_timeout(struct kt *t, int fd, uint32_t timeout_ms)
{
	struct kvmm_swap_attach arg = {
		.size = sizeof(arg), .fd = fd, .timeout_ms = timeout_ms,
	};

	return kt_ioctl(t->fd, KVMM_SWAP_ATTACH, &arg);
}

int kt_detach(struct kt *t, uint32_t flags)
{
	struct kvmm_swap_detach arg = { .size = sizeof(arg), .flags = flags };

	return kt_ioctl(t->fd, KVMM_SWAP_DETACH, &arg);
}

int kt_swap(struct kt *t, unsigned long cmd, struct kvmm_block_ref *refs,
	    uint32_t n, uint32_t flags)
{
	struct kvmm_swap arg = {
		.size = sizeof(arg),
		.cmd = {
			.addr = (uintptr_t)refs, .count = n, .flags = flags,
		},
	};
	int ret = kt_ioctl(t->fd, cmd, &arg);

	return ret ? ret : (int)arg.done;
}

int kt_swap1(struct kt *t, unsigned long cmd, uint64_t handle, uint32_t flags)
{
	struct kvmm_swap arg = {
		.size = sizeof(arg),
		.cmd = {
			.addr = handle,
			.count = 1,
			.flags = flags | KVMM_SWAP_ONE,
		},
	};
	int ret = kt_ioctl(t->fd, cmd, &arg);

	return ret ? ret : arg.result;
}

int kt_load(struct kt *t, uint64_t id)
{
	struct kvmm_block_ref ref = { 0 };
	bool good;
	int ret;

	ret = kt_lookup(t, id, 1, KVMM_LOOKUP_PIN, &ref);
	if (ret < 0)
		return ret;
	switch (ref.result) {
	case KVMM_MISS:
		return 0;
	case KVMM_MEMORY:
		break;
	case KVMM_SWAP:
		ret = kt_swap(t, KVMM_SWAP_IN, &ref, 1, KVMM_SWAP_PIN);
		if (ret < 0)
			return ret;
		if (ref.result < 0)
			return ref.result == -ESTALE ? 0 : ref.result;
		break;
	case KVMM_PENDING:
		/* pinned already; joins the read, and says how it ended */
		ret = kt_swap(t, KVMM_SWAP_IN, &ref, 1, 0);
		if (ret < 0)
			return ret;
		if (ref.result < 0)
			return ref.result == -ESTALE ? 0 : ref.result;
		break;
	default:
		return ref.result;
	}
	good = kt_good(t, ref.frame, id);
	ret = kt_unpin1(t, ref.handle);
	if (!good)
		return -EBADMSG;
	return ret ? ret : 1;
}

int kt_load_all(struct kt *t, uint64_t id, uint32_t n)
{
	int hits = 0, ret;
	uint32_t i;

	for (i = 0; i < n; i++) {
		ret = kt_load(t, id + i);
		if (ret < 0)
			return ret;
		hits += ret;
	}
	return hits;
}
