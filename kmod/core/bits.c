// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Sets of frames: a bit for each, and for each word of them a bit in the level
 * above.  So the lowest and the highest are found by looking at one word of each
 * level, of which there are five at most.
 */
#include "internal.h"

static u64 *word_at(const struct kvmm_bits *s, u32 level, u32 i)
{
	return table_at(&s->words, BITS_SHIFT, sizeof(u64), s->base[level] + i);
}

u64 bits_words(u32 n)
{
	u64 sum = 0;

	if (!n)
		return 0;
	do {
		n = (n + 63) / 64;
		sum += n;
	} while (n > 1);
	return sum;
}

void bits_init(struct kvmm_bits *s, u32 n)
{
	u32 base = 0;

	s->nr_levels = 0;
	if (!n)
		return;
	do {
		n = (n + 63) / 64;
		s->base[s->nr_levels++] = base;
		base += n;
	} while (n > 1);
}

bool bits_test(const struct kvmm_bits *s, u32 i)
{
	return *word_at(s, 0, i / 64) >> i % 64 & 1;
}

void bits_set(struct kvmm_bits *s, u32 i)
{
	u32 level;

	for (level = 0; level < s->nr_levels; level++, i /= 64) {
		u64 *w = word_at(s, level, i / 64);
		u64 old = *w;

		*w |= 1ULL << i % 64;
		if (old)
			break;
	}
}

void bits_clear(struct kvmm_bits *s, u32 i)
{
	u32 level;

	for (level = 0; level < s->nr_levels; level++, i /= 64) {
		u64 *w = word_at(s, level, i / 64);

		*w &= ~(1ULL << i % 64);
		if (*w)
			break;
	}
}

u32 bits_first(const struct kvmm_bits *s)
{
	u32 level = s->nr_levels, i = 0;

	while (level--) {
		u64 w = *word_at(s, level, i);

		/* Only the top one can be empty. */
		if (!w)
			return KVMM_NONE;
		i = i * 64 + core_first_bit(w);
	}
	return s->nr_levels ? i : KVMM_NONE;
}

u32 bits_last(const struct kvmm_bits *s, u32 i)
{
	u32 level;
	u64 w = 0;

	/* Up to the first level that has one before the place of @i. */
	for (level = 0; level < s->nr_levels; level++, i /= 64) {
		if (!(i % 64))
			continue;
		w = *word_at(s, level, i / 64) & ((1ULL << i % 64) - 1);
		if (w)
			break;
	}
	if (level == s->nr_levels)
		return KVMM_NONE;
	/* And down again, to the last of each. */
	i = i / 64 * 64 + core_last_bit(w);
	while (level--)
		i = i * 64 + core_last_bit(*word_at(s, level, i));
	return i;
}

bool bits_all(const struct kvmm_bits *s, u32 i, u32 shift)
{
	u32 k;

	if (shift < 6) {
		u64 mask = (1ULL << (1U << shift)) - 1;

		return (*word_at(s, 0, i / 64) >> i % 64 & mask) == mask;
	}
	for (k = i / 64; k < (i >> 6) + (1U << (shift - 6)); k++)
		if (~*word_at(s, 0, k))
			return false;
	return true;
}
