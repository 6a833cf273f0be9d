// SPDX-License-Identifier: MIT
/*
 * Block bytes.  Word w of block id is mix(seed(id) + w * STEP).  STEP is odd
 * and mix() a bijection, so all words of a block differ, and so do the words
 * at one place of two blocks; the seeds are spread by a 64-bit hash, so blocks
 * don't overlap by a shift either.  Addition, shift and xor are all that the
 * inner loops need; they are written with vector types, since how well plain
 * loops are turned into vector code depends on the compiler.
 */
#include "content.h"

#define STEP	0x9e3779b97f4a7c15ULL
#define LANES	8

/* eight words, at any address that is good for one of them */
typedef uint64_t vec __attribute__((vector_size(LANES * 8)));
typedef uint64_t vec_at __attribute__((vector_size(LANES * 8), aligned(8),
				       may_alias));

#define MIX(x)	((x) ^ ((x) >> 29))

static uint64_t seed(uint64_t id)
{
	/* the finaliser of splitmix64, a bijection */
	id += STEP;
	id = (id ^ (id >> 30)) * 0xbf58476d1ce4e5b9ULL;
	id = (id ^ (id >> 27)) * 0x94d049bb133111ebULL;
	return id ^ (id >> 31);
}

void content_fill(void *data, size_t bytes, uint64_t id)
{
	vec_at *p = data, *end = p + bytes / sizeof(*p);
	vec x;

	for (int l = 0; l < LANES; l++)
		x[l] = seed(id) + (uint64_t)l * STEP;
	for (; p < end; p++, x += LANES * STEP)
		*p = MIX(x);
}

/* Any difference, in one pass without branches. */
static bool same(const void *data, size_t bytes, uint64_t id)
{
	const vec_at *p = data, *end = p + bytes / sizeof(*p);
	vec x, diff = { 0 };
	uint64_t any = 0;

	for (int l = 0; l < LANES; l++)
		x[l] = seed(id) + (uint64_t)l * STEP;
	for (; p < end; p++, x += LANES * STEP)
		diff |= *p ^ MIX(x);
	for (int l = 0; l < LANES; l++)
		any |= diff[l];
	return !any;
}

bool content_check(const void *data, size_t bytes, uint64_t id,
		   struct content_error *err)
{
	const uint64_t *p = data;
	uint64_t x = seed(id);

	if (same(data, bytes, id))
		return true;
	*err = (struct content_error){ 0 };
	for (size_t i = 0; i < bytes / sizeof(*p); i++, x += STEP) {
		if (p[i] != MIX(x)) {
			err->offset = i * sizeof(*p);
			err->expected = MIX(x);
			err->got = p[i];
			break;
		}
	}
	return false;
}
