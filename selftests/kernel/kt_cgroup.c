// SPDX-License-Identifier: MIT
/*
 * Values of files, and control groups (version 2), for the kernel tests.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvmm_test.h"

#define CGROUP	"/sys/fs/cgroup"

int kt_file_get(const char *path, char *value, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, value, size - 1);
	if (n < 0)
		n = -errno;
	close(fd);
	if (n < 0)
		return (int)n;
	value[n] = 0;
	value[strcspn(value, "\n")] = 0;
	return 0;
}

int kt_file_put(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

/* The number after the word @name in a file of such lines, or -1. */
long long kt_file_field(const char *path, const char *name)
{
	long long value, found = -1;
	char word[64];
	FILE *f = fopen(path, "re");

	if (!f)
		return -1;
	while (found < 0 && fscanf(f, "%63s %lld%*[^\n]", word, &value) == 2)
		if (!strcmp(word, name))
			found = value;
	fclose(f);
	return found;
}

int kt_cgroup_make(const char *group)
{
	char path[256];

	snprintf(path, sizeof(path), CGROUP "/%s", group);
	return mkdir(path, 0755) && errno != EEXIST ? -errno : 0;
}

int kt_cgroup_end(const char *group)
{
	char path[256];
	int i;

	snprintf(path, sizeof(path), CGROUP "/%s", group);
	/* a process that was reaped leaves its group a moment later */
	for (i = 0; i < 20000 && rmdir(path); i++) {
		if (errno != EBUSY)
			return -errno;
		kt_sleep_ms(1);
	}
	return i < 20000 ? 0 : -EBUSY;
}

int kt_cgroup_join(const char *group)
{
	return kt_cgroup_put(group, "cgroup.procs", "0");
}

int kt_cgroup_put(const char *group, const char *file, const char *value)
{
	char path[256];

	snprintf(path, sizeof(path), CGROUP "/%s/%s", group, file);
	return kt_file_put(path, value);
}

long long kt_cgroup_get(const char *group, const char *file)
{
	char path[256], value[64];

	snprintf(path, sizeof(path), CGROUP "/%s/%s", group, file);
	return kt_file_get(path, value, sizeof(value)) ? -1 : atoll(value);
}

long long kt_cgroup_field(const char *group, const char *file,
			  const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), CGROUP "/%s/%s", group, file);
	return kt_file_field(path, name);
}
