// SPDX-License-Identifier: MIT
/*
 * Host memory for the checks: a memfd, as libkvmm's user backend has it and,
 * seen from a driver, the kernel's pool too.
 */
#include "check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE	23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE		25
#endif
#define MPOL_PREFERRED		1

/* Bytes of a mapping that are mapped by huge pages. */
static size_t count_huge(const void *data)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[256], want[32];
	size_t kb = 0, n;
	bool in = false;

	if (!f)
		return 0;
	snprintf(want, sizeof(want), "%lx-", (unsigned long)data);
	while (fgets(line, sizeof(line), f)) {
		if (strchr(line, '-') && !strchr(line, ':'))
			in = !strncmp(line, want, strlen(want));
		else if (!strncmp(line, want, strlen(want)))
			in = true;
		if (in && (sscanf(line, "ShmemPmdMapped: %zu", &n) == 1 ||
			   sscanf(line, "AnonHugePages: %zu", &n) == 1))
			kb += n;
		if (in && !strncmp(line, "VmFlags", 7))
			in = false;
	}
	fclose(f);
	return kb * KIB;
}

/* Aligned to huge pages: @fd is mapped in the middle of a larger reservation. */
static char *map_aligned(int fd, size_t bytes)
{
	size_t all = bytes + 2 * MIB;
	char *p = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *at, *end;

	if (p == MAP_FAILED)
		return NULL;
	at = (char *)(((uintptr_t)p + 2 * MIB - 1) & ~(2 * MIB - 1));
	end = at + bytes;
	if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		 0) == MAP_FAILED) {
		munmap(p, all);
		return NULL;
	}
	if (at > p)
		munmap(p, (size_t)(at - p));
	if (end < p + all)
		munmap(end, (size_t)(p + all - end));
	return at;
}

int arena_make(struct arena *a, size_t bytes, bool huge)
{
	int err = 0;

	*a = (struct arena){ .bytes = bytes };
	a->fd = memfd_create("kvmm-gpu-check", MFD_CLOEXEC);
	if (a->fd < 0)
		return -errno;
	if (ftruncate(a->fd, (off_t)bytes))
		goto fail;
	a->data = map_aligned(a->fd, bytes);
	if (!a->data)
		goto fail;
	madvise(a->data, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	if (madvise(a->data, bytes, MADV_POPULATE_WRITE)) {
		if (errno != EINVAL)
			goto fail;
		/* before 5.14: touching does it, if need be by SIGBUS */
		memset(a->data, 0, bytes);
	}
	/* where the system has them only on demand; 6.1 and newer */
	if (huge)
		(void)madvise(a->data, bytes, MADV_COLLAPSE);
	a->huge = count_huge(a->data);
	return 0;
fail:
	err = errno ? -errno : -ENOMEM;
	arena_end(a);
	return err;
}

void arena_end(struct arena *a)
{
	if (a->data)
		munmap(a->data, a->bytes);
	if (a->fd >= 0)
		close(a->fd);
	*a = (struct arena){ .fd = -1 };
}

void memory_near(int node)
{
	unsigned long mask[16] = { 0 };

	if (node < 0 || node >= (int)(8 * sizeof(mask)))
		return;
	mask[node / 64] = 1UL << (node % 64);
	/* a wish: where it can't be had, memory is elsewhere */
	(void)syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask,
		      8 * sizeof(mask));
}

size_t memory_available(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];
	size_t kb = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %zu", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb * KIB;
}
