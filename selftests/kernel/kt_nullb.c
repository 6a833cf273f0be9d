// SPDX-License-Identifier: MIT
/*
 * A disk that is slow, or fails, when a test wants it to: the kernel's null_blk
 * driver, backed by memory, made through configfs.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvmm_test.h"

#define CONFIG	"/sys/kernel/config"
#define NULLB	CONFIG "/nullb/kvmmt"

static uint64_t sectors;

static int put(const char *name, const char *value)
{
	char path[128];
	int fd, ret = 0;

	snprintf(path, sizeof(path), NULLB "/%s", name);
	fd = open(path, O_WRONLY);
	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

static int put_number(const char *name, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return put(name, text);
}

static int open_disk(void)
{
	char path[64], index[16] = "";
	int fd, i;

	fd = open(NULLB "/index", O_RDONLY);
	if (fd < 0)
		return -errno;
	if (read(fd, index, sizeof(index) - 1) < 0)
		index[0] = 0;
	close(fd);
	index[strcspn(index, "\n")] = 0;
	/* named after the folder; after a number in older kernels */
	snprintf(path, sizeof(path), "/dev/nullb%s", index);
	for (i = 0; i < 1000; i++) {
		fd = open("/dev/kvmmt", O_RDWR | O_CLOEXEC);
		if (fd < 0)
			fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0)
			return fd;
		kt_sleep_ms(2);
	}
	return -errno;
}

int kt_nullb(uint32_t megabytes, uint32_t delay_us)
{
	int ret;

	if (access(CONFIG "/nullb", F_OK)) {
		if (system("modprobe configfs 2>/dev/null;"
			   "modprobe null_blk nr_devices=0 2>/dev/null"))
			return -ENODEV;
		mount("none", CONFIG, "configfs", 0, NULL);
	}
	kt_nullb_end();
	if (mkdir(NULLB, 0700))
		return errno == ENOENT ? -ENODEV : -errno;
	sectors = (uint64_t)megabytes << 11;
	ret = put_number("size", megabytes);
	ret = ret ? ret : put_number("blocksize", 4096);
	ret = ret ? ret : put("memory_backed", "1");
	if (delay_us) {
		ret = ret ? ret : put("irqmode", "2");
		ret = ret ? ret : put_number("completion_nsec",
					     delay_us * 1000ULL);
	}
	ret = ret ? ret : put_number("hw_queue_depth", 256);
	ret = ret ? ret : put("power", "1");
	return ret ? ret : open_disk();
}

int kt_create_slow(struct kt *t, struct kvmm_pool_create *spec, int *disk)
{
	int ret;

	*disk = kt_nullb(16, KT_DELAY_US);
	if (*disk < 0)
		return *disk;
	ret = kt_create_spec(t, spec);
	return ret ? ret : kt_attach(t, *disk, 0, 0, 0, NULL);
}

/* Piece by piece: older kernels mix up longer ranges. */
int kt_nullb_fail(bool fail)
{
	char range[64];
	uint64_t at;
	int ret = 0;

	for (at = 0; at < sectors && !ret; at += 512) {
		snprintf(range, sizeof(range), "%c%llu-%llu", fail ? '+' : '-',
			 (unsigned long long)at, (unsigned long long)at + 511);
		ret = put("badblocks", range);
	}
	return ret;
}

void kt_nullb_end(void)
{
	if (!access(NULLB, F_OK)) {
		put("power", "0");
		rmdir(NULLB);
	}
}
