/* SPDX-License-Identifier: MIT */
/*
 * The bytes of a block: a function of its id alone, cheap to make and to
 * check, with a different value in every 8-byte word of every block.
 */
#ifndef KVMMCTL_CONTENT_H
#define KVMMCTL_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct content_error - the first wrong word of a block
 * @offset: bytes into the block
 * @expected: what should be there
 * @got: what is there
 */
struct content_error {
	size_t offset;
	uint64_t expected;
	uint64_t got;
};

/** content_fill() - write block @id; @bytes is a multiple of 64 */
void content_fill(void *data, size_t bytes, uint64_t id);

/** content_check() - is every byte that of block @id; @err is set where not */
bool content_check(const void *data, size_t bytes, uint64_t id,
		   struct content_error *err);

#endif /* KVMMCTL_CONTENT_H */
