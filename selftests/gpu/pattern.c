// SPDX-License-Identifier: MIT
/*
 * Random bytes that follow from a seed and their place, so that what should be
 * where need not be kept.
 */
#include "check.h"

#include <string.h>

static uint64_t word(uint64_t seed, uint64_t index)
{
	uint64_t x = (seed + index) * 0x9e3779b97f4a7c15ULL;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

void pattern_fill(void *data, size_t bytes, uint64_t seed, uint64_t offset)
{
	uint64_t *p = data;

	for (size_t i = 0; i < bytes / 8; i++)
		p[i] = word(seed, offset / 8 + i);
}

size_t pattern_wrong(const void *data, size_t bytes, uint64_t seed,
		     uint64_t offset)
{
	const uint64_t *p = data;
	size_t wrong = 0;

	for (size_t i = 0; i < bytes / 8; i++)
		wrong += p[i] != word(seed, offset / 8 + i);
	return wrong;
}
