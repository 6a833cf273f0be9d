// SPDX-License-Identifier: MIT
/*
 * Memory errors for the tests: see kt_poison.h.
 */
#include <fcntl.h>
#include <linux/kernel-page-flags.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kt_poison.h"

#define PAGE	4096
#define OFFLINE	"/sys/devices/system/memory/hard_offline_page"

bool kt_can_strike(void)
{
	return access(OFFLINE, W_OK) == 0;
}

uint64_t kt_address(const void *at)
{
	uint64_t entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (pread(fd, &entry, 8, (uintptr_t)at / PAGE * 8) != 8)
		entry = 0;
	close(fd);
	return (entry & ((1ULL << 55) - 1)) * PAGE;
}

void kt_strike(uint64_t address)
{
	char value[32];

	snprintf(value, sizeof(value), "%#llx", (unsigned long long)address);
	kt_file_put(OFFLINE, value);
}

int kt_marked(struct kt *t)
{
	int fd = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
	uint64_t flags;
	size_t at;
	int n = 0;

	for (at = 0; at < t->arena_size && n >= 0; at += PAGE) {
		*(volatile unsigned char *)(t->arena + at);
		if (pread(fd, &flags, 8, kt_address(t->arena + at) / PAGE *
			  8) != 8)
			n = -1;
		else
			n += flags >> KPF_HWPOISON & 1;
	}
	close(fd);
	return n;
}

long long kt_kept(void)
{
	char value[32];

	return kt_file_get(KT_SYSFS "/poisoned_bytes", value, sizeof(value)) ?
		-1 : atoll(value);
}
