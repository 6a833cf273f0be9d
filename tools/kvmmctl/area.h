/* SPDX-License-Identifier: MIT */
/*
 * The swap area of a pool that kvmmctl makes: a file the user names, a block
 * device, or a file without a name that ends with the process.
 */
#ifndef KVMMCTL_AREA_H
#define KVMMCTL_AREA_H

#include <kvmm.h>
#include <limits.h>
#include <stdbool.h>

/**
 * struct area - a swap area
 * @path: as given; NULL: without a name
 * @fd: of the file without a name, else -1
 * @slots: how many slots
 * @bytes: size of all slots
 * @no_checksum: data read back isn't checked
 * @io_timeout_ms: deadline of a block's I/O, 0: the default; the caller's
 * @keep: the file at @path is to stay; else it has no name while it is used;
 *	the caller's
 * @device: @path is a block device
 * @created: the file at @path is ours
 * @place: for people: the path, or where the nameless file is
 */
struct area {
	const char *path;
	int fd;
	unsigned int slots;
	uint64_t bytes;
	bool no_checksum;
	unsigned int io_timeout_ms;
	bool keep;
	bool device;
	bool created;
	char place[PATH_MAX + 32];
};

/**
 * area_prepare() - see that there is room
 * @path: NULL: choose a folder and make a file without a name there
 *
 * Return: 0 or EXIT_ERROR, told.
 */
int area_prepare(struct area *a, const char *path, unsigned int slots,
		 unsigned int block_size, bool no_checksum);

/** area_attach() - make the file and give it to @pool; 0 or EXIT_ERROR, told */
int area_attach(struct area *a, struct kvmm_pool *pool);

/** area_end() - close it; @remove: the named file goes */
void area_end(struct area *a, bool remove);

#endif /* KVMMCTL_AREA_H */
