/* SPDX-License-Identifier: MIT */
/*
 * What is in a block of the tests: a function of its id, different in every
 * word.  Also for programs without a C library.
 */
#ifndef KT_PATTERN_H
#define KT_PATTERN_H

#include <linux/kvmm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KT_STEP	0x9e3779b97f4a7c15ULL

static inline uint64_t kt_mix(uint64_t x)
{
	x += KT_STEP;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static inline void kt_pattern_key(uint8_t key[KVMM_KEY_LEN], uint64_t id)
{
	uint64_t words[4] = { id, kt_mix(id), kt_mix(~id), 0x6b766d6d };

	__builtin_memcpy(key, words, KVMM_KEY_LEN);
}

static inline void kt_pattern_fill(void *mem, size_t bytes, uint64_t id)
{
	uint64_t word = kt_mix(id), *p = mem;
	size_t i;

	for (i = 0; i < bytes / sizeof(word); i++)
		p[i] = word + i * KT_STEP;
}

static inline bool kt_pattern_good(const void *mem, size_t bytes, uint64_t id)
{
	uint64_t word = kt_mix(id);
	const uint64_t *p = mem;
	size_t i;

	for (i = 0; i < bytes / sizeof(word); i++) {
		if (p[i] != word + i * KT_STEP)
			return false;
	}
	return true;
}

#endif /* KT_PATTERN_H */
