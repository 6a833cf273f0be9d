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

uint64_t room_machine(void)
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

uint64_t room_number(const char *path)
{
	uint64_t v = UINT64_MAX;
	FILE *f = fopen(path, "re");

	if (!f)
		return v;
	if (fscanf(f, "%" SCNu64, &v) != 1)
		v = UINT64_MAX;
	fclose(f);
	return v;
}

static uint64_t number_in(const char *dir, const char *name)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >=
	    (int)sizeof(path))
		return UINT64_MAX;
	return room_number(path);
}

/* Bytes of page cache in a group; they make way for what is needed. */
static uint64_t cache_in(const char *dir)
{
	char path[PATH_MAX], word[64];
	uint64_t v, sum = 0;
	FILE *f;

	if (snprintf(path, sizeof(path), "%s/memory.stat", dir) >=
	    (int)sizeof(path))
		return 0;
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (fscanf(f, "%63s %" SCNu64, word, &v) == 2)
		if (!strcmp(word, "active_file") ||
		    !strcmp(word, "inactive_file"))
			sum += v;
	fclose(f);
	return sum;
}

/*
 * In a container the folder that the path names may not be there, and the top
 * one be the container's own: that one is looked at, too.
 */
bool room_cgroup(struct room_cgroup *cg)
{
	static const char root[] = "/sys/fs/cgroup";
	char dir[PATH_MAX], line[PATH_MAX - sizeof(root)];
	FILE *f = fopen("/proc/self/cgroup", "re");
	char *end, *path = NULL;

	cg->left = UINT64_MAX;
	if (!f)
		return false;
	while (!path && fgets(line, sizeof(line), f))
		if (!strncmp(line, "0::/", 4))
			path = line + 3;
	fclose(f);
	if (!path)
		return false;
	path[strcspn(path, "\n")] = 0;
	snprintf(dir, sizeof(dir), "%s%s", root, path);
	for (;;) {
		uint64_t max = number_in(dir, "memory.max");
		uint64_t used = number_in(dir, "memory.current");

		if (max != UINT64_MAX && used != UINT64_MAX) {
			uint64_t cache = cache_in(dir), left;

			used -= cache < used ? cache : used;
			left = max > used ? max - used : 0;
			if (left < cg->left) {
				snprintf(cg->path, sizeof(cg->path),
					 "%.*s/memory.max",
					 (int)(sizeof(cg->path) - 12), dir);
				cg->limit = max;
				cg->left = left;
			}
		}
		if (strlen(dir) <= strlen(root))
			break;
		end = strrchr(dir, '/');
		*end = 0;
	}
	return cg->left != UINT64_MAX;
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
