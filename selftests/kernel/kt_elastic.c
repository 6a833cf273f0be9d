// SPDX-License-Identifier: MIT
/*
 * Elastic pools and leases for the kernel tests, and pressure on memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvmm_test.h"

#define PRESSURE	"/sys/module/kvmm/parameters/pressure_ms"

struct kvmm_pool_create kt_elastic_spec(const char *name, uint32_t block_size,
					uint32_t units, uint32_t elastic,
					uint32_t nr_slots)
{
	uint32_t unit = block_size < KT_UNIT ? KT_UNIT / block_size : 1;
	struct kvmm_pool_create spec = kt_spec(name, block_size, units * unit,
					       nr_slots);

	spec.nr_elastic = elastic * unit;
	spec.chunk_frames = unit;
	return spec;
}

int kt_lease(struct kt *t, uint32_t first, uint32_t count, uint32_t flags,
	     uint32_t *done)
{
	struct kvmm_lease arg = {
		.size = sizeof(arg),
		.flags = flags,
		.first = first,
		.count = count,
	};
	int ret = kt_ioctl(t->fd, KVMM_LEASE, &arg);

	if (done)
		*done = arg.done;
	return ret;
}

static int drop_caches(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, "2", 1) != 1)
		ret = -errno;
	close(fd);
	return ret;
}

/* The worker goes through all pools in each of its runs. */
static int squeeze_once(struct kt *canary)
{
	uint64_t deadline = kt_now_ms() + 60000;
	struct kvmm_pool_stat st;
	int ret;

	ret = kt_populate(canary, 0, canary->nr_frames, NULL);
	while (!ret) {
		ret = drop_caches();
		if (!ret)
			ret = kt_stat(canary, &st);
		if (ret || !st.frames_online)
			break;
		if (kt_now_ms() > deadline)
			ret = -ETIMEDOUT;
		kt_sleep_ms(5);
	}
	return ret;
}

int kt_squeeze(void)
{
	struct kvmm_pool_create spec;
	struct kt canary;
	char name[32];
	int ret;

	snprintf(name, sizeof(name), "canary-%d", (int)getpid());
	spec = kt_elastic_spec(name, KT_UNIT, 2, 2, 0);
	ret = kt_create_spec(&canary, &spec);
	if (ret)
		return ret;
	ret = squeeze_once(&canary);
	if (!ret)
		ret = squeeze_once(&canary);
	kt_close(&canary);
	/* its end waits for what was asked for and not yet done */
	kt_destroy(name, 0);
	return ret;
}

int kt_want(struct kt *t, uint32_t chunks)
{
	uint64_t deadline = kt_now_ms() + 60000;
	struct kvmm_pool_stat st;
	int ret;

	for (;;) {
		ret = drop_caches();
		if (!ret)
			ret = kt_stat(t, &st);
		if (ret || st.chunks_wanted >= chunks)
			return ret;
		if (kt_now_ms() > deadline)
			return -ETIMEDOUT;
		kt_sleep_ms(5);
	}
}

long kt_pressure_ms(long ms)
{
	char text[32] = "";
	int fd = open(PRESSURE, O_RDWR);
	long was = -1;

	if (fd < 0)
		return -errno;
	if (read(fd, text, sizeof(text) - 1) > 0)
		was = strtol(text, NULL, 10);
	snprintf(text, sizeof(text), "%ld", ms);
	if (pwrite(fd, text, strlen(text), 0) < 0)
		was = -errno;
	close(fd);
	return was;
}

long kt_meminfo(const char *name)
{
	FILE *f = fopen("/proc/meminfo", "r");
	size_t len = strlen(name);
	long kib = -1;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, len) && line[len] == ':')
			kib = strtol(line + len + 1, NULL, 10);
	if (f)
		fclose(f);
	return kib;
}
