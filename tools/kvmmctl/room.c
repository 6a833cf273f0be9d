// SPDX-License-Identifier: MIT
/*
 * Reads /proc/meminfo, the limits of the process's control groups (version 2,
 * the whole path, since each level limits) and statvfs().  Estimates: the job
 * itself may still run out, which is then an error of its own.
 */
#include "room.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

static uint64_t meminfo_available(void)
{
	uint64_t kib = UINT64_MAX;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "re");

	if (!f)
		return UINT64_MAX;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
			break;
	fclose(f);
	return kib == UINT64_MAX ? kib : kib << 10;
}

/* UINT64_MAX where the file is missing or reads "max". */
static uint64_t read_number(const char *dir, const char *name)
{
	char path[PATH_MAX];
	uint64_t v = UINT64_MAX;
	FILE *f;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >=
	    (int)sizeof(path))
		return v;
	f = fopen(path, "re");
	if (!f)
		return v;
	if (fscanf(f, "%" SCNu64, &v) != 1)
		v = UINT64_MAX;
	fclose(f);
	return v;
}

static uint64_t cgroup_available(void)
{
	static const char root[] = "/sys/fs/cgroup";
	char dir[PATH_MAX], line[PATH_MAX - sizeof(root)];
	uint64_t least = UINT64_MAX;
	FILE *f = fopen("/proc/self/cgroup", "re");
	char *end, *path = NULL;

	if (!f)
		return least;
	while (!path && fgets(line, sizeof(line), f))
		if (!strncmp(line, "0::/", 4))
			path = line + 3;
	fclose(f);
	if (!path)
		return least;
	path[strcspn(path, "\n")] = 0;
	snprintf(dir, sizeof(dir), "%s%s", root, path);
	while (strlen(dir) > strlen(root)) {
		uint64_t max = read_number(dir, "memory.max");
		uint64_t used = read_number(dir, "memory.current");

		if (max != UINT64_MAX && used != UINT64_MAX) {
			uint64_t left = max > used ? max - used : 0;

			if (left < least)
				least = left;
		}
		end = strrchr(dir, '/');
		*end = 0;
	}
	return least;
}

uint64_t room_memory(void)
{
	uint64_t a = meminfo_available(), b = cgroup_available();

	return a < b ? a : b;
}

static uint64_t vfs_room(const struct statvfs *v)
{
	return (uint64_t)v->f_bavail * v->f_frsize;
}

uint64_t room_disk(const char *path)
{
	char dir[PATH_MAX];
	struct statvfs v;
	struct stat st;
	char *slash;

	if (!lstat(path, &st) && S_ISREG(st.st_mode) && !statvfs(path, &v))
		return vfs_room(&v) + (uint64_t)st.st_blocks * 512;
	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (!slash)
		strcpy(dir, ".");
	else
		slash[slash == dir] = 0;
	return statvfs(dir, &v) ? UINT64_MAX : vfs_room(&v);
}

uint64_t room_disk_fd(int fd)
{
	struct statvfs v;

	return fstatvfs(fd, &v) ? UINT64_MAX : vfs_room(&v);
}
