/* SPDX-License-Identifier: MIT */
/*
 * How much memory and disk there is, so that a job that can't fit says so
 * before it starts.
 */
#ifndef KVMMCTL_ROOM_H
#define KVMMCTL_ROOM_H

#include <stdint.h>

/**
 * room_memory() - bytes that this process can still take: what the machine has
 * available, or less where a control group limits it; UINT64_MAX: not known
 */
uint64_t room_memory(void);

/**
 * room_disk() - bytes free to this user on the file system of @path, which
 * need not exist yet; an existing file counts as free; UINT64_MAX: not known
 */
uint64_t room_disk(const char *path);

/** room_disk_fd() - the same for an open file */
uint64_t room_disk_fd(int fd);

#endif /* KVMMCTL_ROOM_H */
