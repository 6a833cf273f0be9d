// SPDX-License-Identifier: MIT
/*
 * The offload filter: which of the blocks that an engine offers are stored.
 *
 * How often a key was offered is kept in a table of two-way sets.  A key that
 * finds both ways taken lowers the smaller count, and takes its place when that
 * is used up: what is offered often stays, what came once goes.
 */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_ENTRIES	65536
#define MAX_ENTRIES	(1U << 28)
#define COUNT_BITS	16
#define COUNT_MAX	((1U << COUNT_BITS) - 1)

/**
 * struct filter - what was offered
 * @opts: what is wanted
 * @lock: guards @entry
 * @mask: sets - 1
 * @entry: pairs; the upper bits are of the key, the lower ones its count
 */
struct filter {
	struct kvmm_filter opts;
	pthread_mutex_t lock;
	uint64_t mask;
	uint64_t entry[];
};

int filter_new(struct filter **out, const struct kvmm_filter *opts)
{
	unsigned int n = opts->entries ? opts->entries : DEFAULT_ENTRIES;
	struct filter *f;

	if (n < 2 || n > MAX_ENTRIES || n & (n - 1) ||
	    opts->min_uses > COUNT_MAX)
		return -EINVAL;
	f = calloc(1, sizeof(*f) + n * sizeof(f->entry[0]));
	if (!f)
		return -ENOMEM;
	f->opts = *opts;
	f->mask = n / 2 - 1;
	pthread_mutex_init(&f->lock, NULL);
	*out = f;
	return 0;
}

void filter_free(struct filter *f)
{
	if (!f)
		return;
	pthread_mutex_destroy(&f->lock);
	free(f);
}

unsigned int filter_slower_than(const struct filter *f)
{
	return f ? f->opts.slower_than : 0;
}

/* One more time; returns how often by now, as far as is known. */
static unsigned int bump(struct filter *f, const uint8_t *key)
{
	uint64_t h, tag, *set, *low;
	unsigned int way;

	/* keys are hashes: any part of them will do */
	memcpy(&h, key, sizeof(h));
	set = &f->entry[2 * (h & f->mask)];
	memcpy(&h, key + 8, sizeof(h));
	tag = h >> COUNT_BITS;
	for (way = 0; way < 2; way++) {
		if (!(set[way] & COUNT_MAX) || set[way] >> COUNT_BITS != tag)
			continue;
		if ((set[way] & COUNT_MAX) < COUNT_MAX)
			set[way]++;
		return set[way] & COUNT_MAX;
	}
	low = (set[0] & COUNT_MAX) <= (set[1] & COUNT_MAX) ? &set[0] : &set[1];
	if (*low & COUNT_MAX)
		--*low;
	if (!(*low & COUNT_MAX))
		*low = tag << COUNT_BITS | 1;
	return 1;
}

unsigned int filter_keep(struct filter *f, const uint8_t *keys,
			 const struct kvmm_block_ref *refs, unsigned int n,
			 unsigned int position)
{
	unsigned int i, keep = n;

	pthread_mutex_lock(&f->lock);
	for (i = 0; i < n && f->opts.min_uses > 1; i++) {
		if (refs[i].result >= 0)
			continue;
		if (bump(f, &keys[(size_t)i * KVMM_KEY_LEN]) <
			    f->opts.min_uses && keep == n)
			keep = i;
	}
	pthread_mutex_unlock(&f->lock);
	if ((uint64_t)position + n < f->opts.min_blocks)
		keep = 0;
	return keep;
}
