/* SPDX-License-Identifier: MIT */
/*
 * How much memory and disk there is, so that a job that can't fit says so
 * before it starts.
 */
#ifndef KVMMCTL_ROOM_H
#define KVMMCTL_ROOM_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/** room_number() - what a file says; UINT64_MAX: nothing, or no number */
uint64_t room_number(const char *path);

/**
 * struct room_cgroup - the control group that leaves this process least memory
 * @path: of its memory.max
 * @limit: what that says, bytes
 * @left: of it
 */
struct room_cgroup {
	char path[PATH_MAX];
	uint64_t limit;
	uint64_t left;
};

/** room_cgroup() - false: none limits it */
bool room_cgroup(struct room_cgroup *cg);

/** room_machine() - bytes that the machine has available; UINT64_MAX: not known */
uint64_t room_machine(void);

/**
 * room_disk() - bytes free to this user on the file system of @path, which
 * need not exist yet; an existing file counts as free; UINT64_MAX: not known
 */
uint64_t room_disk(const char *path);

/** room_disk_fd() - the same for an open file */
uint64_t room_disk_fd(int fd);

#endif /* KVMMCTL_ROOM_H */
