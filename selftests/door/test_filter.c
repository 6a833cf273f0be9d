// SPDX-License-Identifier: MIT
/*
 * The offload filter: which blocks are stored.
 */
#include "door.h"

static struct seq *begin(struct door *d, void **state, unsigned int frames,
			 unsigned int slots, const struct kvmm_filter *filter)
{
	struct kvmm_engine_opts o = { .filter = filter };
	struct seq *s = malloc(sizeof(*s));

	door_start(d, *state, NULL);
	door_simple(d, 2, 1, 8, 32, 1, 512);
	door_pool(d, frames, slots);
	if (slots)
		lt_attach(d->pool, lt_path(d->lt), KVMM_SWAP_UNLINK);
	d->eng = door_open(d, d->pool, &o);
	return s;
}

/* Offers a sequence; the results of its blocks. */
static unsigned int offer(struct door *d, const struct seq *s,
			  unsigned int position, struct kvmm_block_ref *refs)
{
	struct kvmm_transfer t = seq_transfer(d, s);
	struct kvmm_job_info info;
	uint64_t job;

	t.position = position;
	assert_int_equal(kvmm_offload(d->eng, &t, &job), 0);
	assert_int_equal(kvmm_job_wait(d->eng, job, -1), 0);
	assert_int_equal(kvmm_job_blocks(d->eng, job, refs, s->n), s->n);
	assert_int_equal(kvmm_job_info(d->eng, job, &info), 0);
	assert_int_equal(kvmm_job_end(d->eng, job), 0);
	return info.good;
}

static void by_uses(void **state)
{
	struct kvmm_filter f = { .min_uses = 3 };
	struct kvmm_block_ref refs[16];
	struct door d;
	struct seq *s = begin(&d, state, 64, 0, &f);
	struct seq *fork = malloc(sizeof(*fork));

	seq_new(&d, s, 8, 100, 0);
	assert_int_equal(offer(&d, s, 0, refs), 0);
	assert_int_equal(refs[0].result, -EPERM);
	assert_int_equal(refs[7].result, -EPERM);
	/* another one that begins alike */
	seq_new(&d, fork, 12, 100, 20);
	assert_int_equal(offer(&d, fork, 0, refs), 0);
	assert_int_equal(lt_stat(d.pool).allocs, 0);
	/* the third time for what they have in common, the second for the rest */
	assert_int_equal(offer(&d, fork, 0, refs), 8);
	assert_int_equal(refs[7].result, KVMM_BLOCK_COPIED);
	assert_int_equal(refs[8].result, -EPERM);
	assert_int_equal(offer(&d, fork, 0, refs), 12);
	assert_int_equal(refs[7].result, KVMM_BLOCK_THERE);
	assert_int_equal(refs[8].result, KVMM_BLOCK_COPIED);
	door_end(&d);
	free(fork);
	free(s);
}

/* What isn't stored ends its chain, however often the rest was seen. */
static void ends_the_chain(void **state)
{
	struct kvmm_filter f = { .min_uses = 2 };
	struct kvmm_block_ref refs[16];
	struct door d;
	struct seq *s = begin(&d, state, 64, 0, &f);

	seq_new(&d, s, 4, 104, 0);
	assert_int_equal(offer(&d, s, 4, refs), 0);
	seq_new(&d, s, 8, 100, 0);
	assert_int_equal(offer(&d, s, 0, refs), 0);
	assert_int_equal(offer(&d, s, 0, refs), 8);
	door_end(&d);
	free(s);
}

static void by_length(void **state)
{
	struct kvmm_filter f = { .min_blocks = 6 };
	struct kvmm_block_ref refs[16];
	struct door d;
	struct seq *s = begin(&d, state, 64, 0, &f);

	seq_new(&d, s, 5, 100, 0);
	assert_int_equal(offer(&d, s, 0, refs), 0);
	assert_int_equal(refs[4].result, -EPERM);
	/* as the end of a longer one it is welcome */
	assert_int_equal(offer(&d, s, 1, refs), 5);
	seq_new(&d, s, 6, 200, 0);
	assert_int_equal(offer(&d, s, 0, refs), 6);
	door_end(&d);
	free(s);
}

static void by_cost(void **state)
{
	struct kvmm_filter f = { .slower_than = 1000 };
	struct kvmm_cost cost = { .token_us = 1e-6 };
	struct kvmm_block_ref refs[16];
	struct door d;
	struct seq *s = begin(&d, state, 64, 64, &f);

	seq_new(&d, s, 8, 100, 0);
	assert_int_equal(kvmm_engine_cost(d.eng, &cost), 0);
	assert_int_equal(offer(&d, s, 0, refs), 0);
	assert_int_equal(refs[0].result, -EPERM);
	cost.token_us = 1e6;
	assert_int_equal(kvmm_engine_cost(d.eng, &cost), 0);
	assert_int_equal(offer(&d, s, 0, refs), 8);
	/* not known: all */
	assert_int_equal(kvmm_engine_cost(d.eng, NULL), 0);
	seq_new(&d, s, 8, 200, 0);
	assert_int_equal(offer(&d, s, 0, refs), 8);
	door_end(&d);
	free(s);
}

/* A small memory forgets what came once, and keeps what comes often. */
static void remembers_what_counts(void **state)
{
	struct kvmm_filter o = { .min_uses = 3, .entries = 64 };
	struct kvmm_block_ref refs[8] = { 0 };
	uint8_t keys[8][KVMM_KEY_LEN], noise[KVMM_KEY_LEN];
	unsigned int i, k, round, kept = 0;
	struct kvmm_block_ref one = { .result = -EINPROGRESS };
	struct filter *f;

	(void)state;
	o.entries = 63;
	assert_int_equal(filter_new(&f, &o), -EINVAL);
	o.entries = 1;
	assert_int_equal(filter_new(&f, &o), -EINVAL);
	o.entries = 64;
	o.min_uses = 70000;
	assert_int_equal(filter_new(&f, &o), -EINVAL);
	o.min_uses = 3;
	assert_int_equal(filter_new(&f, &o), 0);
	srand(door_seed());
	for (i = 0; i < 8; i++) {
		refs[i].result = -EINPROGRESS;
		for (k = 0; k < KVMM_KEY_LEN; k++)
			keys[i][k] = (uint8_t)rand();
	}
	for (round = 0; round < 50; round++) {
		kept = filter_keep(f, keys[0], refs, 8, 0);
		for (i = 0; i < 16; i++) {
			for (k = 0; k < KVMM_KEY_LEN; k++)
				noise[k] = (uint8_t)rand();
			assert_int_equal(filter_keep(f, noise, &one, 1, 0), 0);
		}
	}
	assert_true(kept >= 6);
	filter_free(f);
	filter_free(NULL);
}

static const struct lt_test tests[] = {
	LT_TEST(by_uses),
	LT_TEST(ends_the_chain),
	LT_TEST(by_length),
	LT_TEST(by_cost),
	LT_TEST(remembers_what_counts),
};

int main(void)
{
	return LT_RUN("filter", tests);
}
