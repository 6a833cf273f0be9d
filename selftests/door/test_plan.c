// SPDX-License-Identifier: MIT
/*
 * Load or compute.  A machine is simulated block by block: a disk that reads
 * several at a time, copies to the device behind it, and the engine.  It shares
 * no formula with the planner, which knows it by what it measures.  Over a grid
 * of disks, engines and lengths the plan is within 5 % of the best split there
 * is, and never slower than loading all or computing all.
 */
#include "door.h"

#include <math.h>

#define BLOCK_TOKENS	64
#define MAX_BLOCKS	512
#define LOT		16	/* blocks read at a time */
#define DEPTH		2	/* lots in flight */

/**
 * struct machine - what is simulated
 * @disk_us: of a lot, whatever it has
 * @disk: bytes a us
 * @copy_us: of a copy
 * @copy: bytes a us
 * @block_bytes: of a block
 * @token_us: of computing one
 * @pair_us: of attention, for each pair
 * @fixed_us: of a call
 */
struct machine {
	double disk_us, disk;
	double copy_us, copy;
	double block_bytes;
	double token_us, pair_us, fixed_us;
};

static double later(double a, double b)
{
	return a > b ? a : b;
}

/* Token by token: each attends to those before it. */
static double sim_compute(const struct machine *m, unsigned int from,
			  unsigned int to)
{
	double us = m->fixed_us;
	unsigned int t;

	if (from >= to)
		return 0;
	for (t = from; t < to; t++)
		us += m->token_us + m->pair_us * t;
	return us;
}

/*
 * Lot by lot: the disk's latencies overlap as far as DEPTH lots do, its
 * bandwidth is one; a lot is copied when it is there.
 */
static double sim_load(const struct machine *m, const unsigned char *where,
		       unsigned int first, unsigned int end)
{
	double wire = 0, device = 0, issue[DEPTH] = { 0 }, there;
	unsigned int i, n, lots = 0, memory = 0, disk = 0;

	for (i = first; i < end; i++) {
		memory += where[i] == KVMM_MEMORY;
		disk += where[i] == KVMM_SWAP;
	}
	if (memory)
		device = m->copy_us + memory * m->block_bytes / m->copy;
	for (i = 0; i < disk; i += n, lots++) {
		n = disk - i < LOT ? disk - i : LOT;
		wire = later(wire, issue[lots % DEPTH] + m->disk_us) +
		       n * m->block_bytes / m->disk;
		there = wire;
		issue[lots % DEPTH] = there;
		device = later(device, there) + m->copy_us +
			 n * m->block_bytes / m->copy;
	}
	return device;
}

static double sim_split(const struct machine *m, const unsigned char *where,
			unsigned int hits, unsigned int tokens,
			unsigned int first, unsigned int count)
{
	unsigned int end = first + count;
	double load = sim_load(m, where, first, end);

	if (!count)
		return sim_compute(m, 0, tokens);
	if (!first)
		return load + sim_compute(m, end * BLOCK_TOKENS, tokens);
	return later(load, sim_compute(m, 0, first * BLOCK_TOKENS)) +
	       sim_compute(m, hits * BLOCK_TOKENS, tokens);
}

/* What an engine would have measured by now: transfers of several sizes. */
static void measure(const struct machine *m, struct kvmm_plan_input *in)
{
	struct way_stat disk = { 0 }, copy = { 0 };
	unsigned char where[MAX_BLOCKS];
	unsigned int i, n;
	double us;

	memset(where, KVMM_MEMORY, sizeof(where));
	for (i = 0; i < 20; i++) {
		n = 1 + i * 7 % LOT;
		us = m->disk_us + n * m->block_bytes / m->disk;
		way_add(&disk, (uint64_t)(n * m->block_bytes), us);
		us = sim_load(m, where, 0, n);
		way_add(&copy, (uint64_t)(n * m->block_bytes), us);
	}
	in->disk = way_speed(&disk, KVMM_WAY_DISK);
	in->copy = way_speed(&copy, KVMM_WAY_IN);
	in->block_bytes = (uint64_t)m->block_bytes;
	in->cost.fixed_us = m->fixed_us;
	in->cost.token_us = m->token_us;
	in->cost.token2_us = m->pair_us;
	in->block_tokens = BLOCK_TOKENS;
	in->lot = LOT;
	in->lots = DEPTH;
}

struct worst {
	double over_best;
	double over_pure;
	unsigned int cells;
	unsigned int mixed;	/* plans that are neither all nor nothing */
	unsigned int both;
};

static void check_cell(const struct machine *m, const unsigned char *where,
		       unsigned int hits, unsigned int tokens,
		       unsigned int flags, struct worst *w)
{
	struct kvmm_plan_input in = { .flags = flags, .n = hits };
	double best = INFINITY, us, all, none;
	struct kvmm_plan plan;
	unsigned int i;

	in.where = where;
	in.tokens = tokens;
	measure(m, &in);
	assert_int_equal(kvmm_plan_choose(&in, &plan), 0);
	assert_int_equal(plan.hits, hits);
	assert_true(plan.first + plan.count <= hits);
	if (!(flags & KVMM_PLAN_BOTH))
		assert_int_equal(plan.first, 0);
	else if (plan.first)
		assert_int_equal(plan.first + plan.count, hits);

	for (i = 0; i <= hits; i++) {
		us = sim_split(m, where, hits, tokens, 0, i);
		best = us < best ? us : best;
		if (i && i < hits && flags & KVMM_PLAN_BOTH) {
			us = sim_split(m, where, hits, tokens, i, hits - i);
			best = us < best ? us : best;
		}
	}
	us = sim_split(m, where, hits, tokens, plan.first, plan.count);
	none = sim_split(m, where, hits, tokens, 0, 0);
	all = sim_split(m, where, hits, tokens, 0, hits);
	if (us > 1.05 * best)
		fail_msg("disk %g, token %g us, %u blocks, flags %u: %u+%u takes %g, best %g",
			 m->disk, m->token_us, hits, flags, plan.first,
			 plan.count, us, best);
	w->over_best = later(w->over_best, us / best);
	w->over_pure = later(w->over_pure, us / (all < none ? all : none));
	w->mixed += plan.count && (plan.count < hits || plan.first);
	w->both += plan.first > 0;
	w->cells++;
}

/* Which blocks are in memory: all, none, the front, the back, here and there */
static void place(unsigned char *where, unsigned int n, unsigned int kind)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		bool memory = kind == 0 || (kind == 2 && i < n / 3) ||
			      (kind == 3 && i >= n / 3) ||
			      (kind == 4 && i % 3 == 0);

		where[i] = memory ? KVMM_MEMORY : KVMM_SWAP;
	}
}

static void grid(void **state)
{
	static const double disks[] = { 0.5, 20, 100, 500, 2000, 7000, 25000 };
	static const double latency[] = { 60, 8000 };
	static const double tokens_us[] = { 2, 20, 100, 400, 2000 };
	static const unsigned int lengths[] = { 1, 4, 31, 120, 400 };
	static const unsigned int tails[] = { 1, 2000 };
	struct worst w = { 0 };
	unsigned char where[MAX_BLOCKS];
	unsigned int a, b, c, n, t, kind, flags;

	(void)state;
	for (a = 0; a < ARRAY_SIZE(disks); a++)
	for (b = 0; b < ARRAY_SIZE(latency); b++)
	for (c = 0; c < ARRAY_SIZE(tokens_us); c++)
	for (n = 0; n < ARRAY_SIZE(lengths); n++)
	for (t = 0; t < ARRAY_SIZE(tails); t++)
	for (kind = 0; kind < 5; kind++)
	for (flags = 0; flags <= KVMM_PLAN_BOTH; flags += KVMM_PLAN_BOTH) {
		struct machine m = {
			.disk_us = latency[b],
			.disk = disks[a],
			.copy_us = 15,
			.copy = 25000,
			.block_bytes = 2 << 20,
			.token_us = tokens_us[c],
			.pair_us = tokens_us[c] / 30000,
			.fixed_us = 3000,
		};

		place(where, lengths[n], kind);
		check_cell(&m, where, lengths[n],
			   lengths[n] * BLOCK_TOKENS + tails[t], flags, &w);
	}
	printf("# %u cells: at most %.3f of the best, %.4f of the better pure choice; %u mixed, %u both\n",
	       w.cells, w.over_best, w.over_pure, w.mixed, w.both);
	assert_true(w.over_pure <= 1.0001);
	assert_true(w.mixed > 200);
	assert_true(w.both > 100);
}

/* ---- the parts ---- */

static void learns(void **state)
{
	struct way_stat s = { 0 };
	struct kvmm_speed v;
	unsigned int i;

	(void)state;
	v = way_speed(&s, KVMM_WAY_DISK);
	assert_int_equal(v.samples, 0);
	assert_true(v.bytes_per_us > 0);
	/* one size only: all of it is speed */
	way_add(&s, 1000000, 1000);
	v = way_speed(&s, KVMM_WAY_DISK);
	assert_true(fabs(v.bytes_per_us - 1000) < 1e-6);
	assert_true(v.latency_us == 0);
	/* several: a line */
	for (i = 0; i < 40; i++)
		way_add(&s, (i % 5 + 1) * 100000, 250 + (i % 5 + 1) * 50);
	v = way_speed(&s, KVMM_WAY_DISK);
	assert_int_equal(v.samples, 41);
	assert_true(fabs(v.latency_us - 250) < 30);
	assert_true(fabs(v.bytes_per_us - 2000) < 200);
	/* ten times slower from now on: soon known */
	for (i = 0; i < 60; i++)
		way_add(&s, (i % 5 + 1) * 100000, 250 + (i % 5 + 1) * 500);
	v = way_speed(&s, KVMM_WAY_DISK);
	assert_true(v.bytes_per_us < 250);
	/* larger ones that were quicker make no nonsense */
	memset(&s, 0, sizeof(s));
	way_add(&s, 1000, 500);
	way_add(&s, 100000, 100);
	v = way_speed(&s, KVMM_WAY_DISK);
	assert_true(v.bytes_per_us > 0 && v.latency_us >= 0);
}

static struct kvmm_plan_input input(void)
{
	return (struct kvmm_plan_input){
		.n = 10,
		.block_tokens = 16,
		.tokens = 170,
		.block_bytes = 1000000,
		.cost = { .fixed_us = 100, .token_us = 10 },
		.copy = { 10, 10000, 1 },
		.disk = { 100, 1000, 1 },
		.lot = 1,
		.lots = 4,
	};
}

static void arithmetic(void **state)
{
	struct kvmm_plan_input in = input();
	unsigned char where[10];
	struct kvmm_plan p;

	(void)state;
	assert_int_equal(kvmm_plan_choose(&in, &p), 0);
	assert_int_equal(p.count, 10);
	assert_int_equal(p.in_memory, 10);
	/* 10 blocks: 10 + 1000 us; then 10 tokens: 200 us; all: 1800 us */
	assert_true(fabs(p.load_us - 1010) < 1e-6);
	assert_true(fabs(p.us - 1210) < 1e-6);
	assert_true(fabs(p.all_us - 1210) < 1e-6);
	assert_true(fabs(p.compute_us - 1800) < 1e-6);
	assert_true(fabs(p.limit_us - 1600) < 1e-6);

	/* attention counts pairs */
	in.cost.token2_us = 2;
	assert_int_equal(kvmm_plan_choose(&in, &p), 0);
	assert_true(fabs(p.compute_us - (1800 + 170 * 170)) < 1e-6);
	assert_true(fabs(p.us - (1210 + 2 * (10 * 160 + 50))) < 1e-6);

	/* ten ms from the disk is more than computing takes */
	memset(where, KVMM_SWAP, sizeof(where));
	in = input();
	in.where = where;
	assert_int_equal(kvmm_plan_choose(&in, &p), 0);
	assert_int_equal(p.count, 0);
	assert_int_equal(p.hits, 10);
	assert_int_equal(p.in_memory, 0);
	assert_true(p.us == p.compute_us && p.limit_us == 0);

	/* what is in memory in front is loaded all the same */
	memset(where, KVMM_MEMORY, 4);
	assert_int_equal(kvmm_plan_choose(&in, &p), 0);
	assert_int_equal(p.count, 4);
	assert_int_equal(p.in_memory, 4);

	/* a disk that is broken, or busy for long */
	in.disk.bytes_per_us = 0;
	in.cost.token_us = 1e6;
	assert_int_equal(kvmm_plan_choose(&in, &p), 0);
	assert_int_equal(p.count, 4);
	in.disk.bytes_per_us = 1000;
	assert_int_equal(kvmm_plan_choose(&in, &p), 0);
	assert_int_equal(p.count, 10);
	in.disk_busy_us = 1e12;
	assert_int_equal(kvmm_plan_choose(&in, &p), 0);
	assert_int_equal(p.count, 4);

	/* the prefix ends where the first one is missing */
	in = input();
	in.where = where;
	memset(where, KVMM_MEMORY, sizeof(where));
	where[6] = KVMM_MISS;
	assert_int_equal(kvmm_plan_choose(&in, &p), 0);
	assert_int_equal(p.hits, 6);
	assert_int_equal(p.count, 6);

	/* a request shorter than what there is of it */
	in = input();
	in.tokens = 40;
	in.cost.token_us = 1000;
	assert_int_equal(kvmm_plan_choose(&in, &p), 0);
	assert_int_equal(p.hits, 3);
	assert_int_equal(p.count, 3);
	assert_true(fabs(p.us - 310) < 1e-6);

	in = input();
	in.n = 0;
	assert_int_equal(kvmm_plan_choose(&in, &p), 0);
	assert_int_equal(p.count, 0);
	assert_true(p.us == p.compute_us);
}

static void both_at_once(void **state)
{
	struct kvmm_plan_input in = input();
	unsigned char where[10];
	struct kvmm_plan p;

	(void)state;
	memset(where, KVMM_SWAP, sizeof(where));
	in.where = where;
	in.flags = KVMM_PLAN_BOTH;
	/* a block: 1000 us from the disk, 1600 us to compute */
	in.cost = (struct kvmm_cost){ .token_us = 100 };
	assert_int_equal(kvmm_plan_choose(&in, &p), 0);
	assert_int_equal(p.first, 4);
	assert_int_equal(p.count, 6);
	assert_true(fabs(p.us - (6400 + 1000)) < 1e-6);
	in.flags = 0;
	assert_int_equal(kvmm_plan_choose(&in, &p), 0);
	assert_int_equal(p.first, 0);
	assert_int_equal(p.count, 10);
	assert_true(p.us > 11000);
}

static void bad_input(void **state)
{
	struct kvmm_plan_input in;
	struct kvmm_plan p;

	(void)state;
#define BAD(what) do {							\
		in = input();						\
		what;							\
		assert_fails(kvmm_plan_choose(&in, &p), EINVAL);	\
	} while (0)
	BAD(in.flags = 2);
	BAD(in.block_tokens = 0);
	BAD(in.block_bytes = 0);
	BAD(in.cost.fixed_us = -1);
	BAD(in.cost.token_us = NAN);
	BAD(in.cost.token2_us = INFINITY);
	assert_fails(kvmm_plan_choose(NULL, &p), EINVAL);
	in = input();
	assert_fails(kvmm_plan_choose(&in, NULL), EINVAL);
}

/* ---- on a pool ---- */

static void query(void **state)
{
	struct kvmm_cost cost = { .token_us = 1e6 };
	struct kvmm_plan p;
	struct kvmm_pool_stat st;
	struct door d;
	struct seq *s = malloc(sizeof(*s));

	door_start(&d, *state, NULL);
	door_simple(&d, 2, 1, 16, 32, 1, 64);
	door_pool(&d, 32, 64);
	lt_attach(d.pool, lt_path(d.lt), KVMM_SWAP_UNLINK);
	d.eng = door_open(&d, d.pool, NULL);
	seq_new(&d, s, 12, 100, 0);
	assert_int_equal(kvmm_plan(d.eng, s->keys, 12, 200, 0, &p), 0);
	assert_int_equal(p.hits, 0);
	assert_int_equal(p.count, 0);
	seq_fill(&d, s);
	s->n = 8;
	assert_int_equal(door_offload(&d, s), 8);
	st = lt_stat(d.pool);
	/* without figures: all that is there */
	assert_int_equal(kvmm_plan(d.eng, s->keys, 12, 200, 0, &p), 0);
	assert_int_equal(p.hits, 8);
	assert_int_equal(p.in_memory, 8);
	assert_int_equal(p.count, 8);
	assert_true(p.limit_us == 0);
	assert_int_equal(kvmm_engine_cost(d.eng, &cost), 0);
	assert_int_equal(kvmm_plan(d.eng, s->keys, 12, 200, 0, &p), 0);
	assert_int_equal(p.count, 8);
	assert_true(p.limit_us > 0);
	/* asking is not using */
	assert_int_equal(lt_stat(d.pool).lookups, st.lookups);
	assert_int_equal(lt_stat(d.pool).pins, 0);
	/* computing is free */
	cost.token_us = 0;
	assert_int_equal(kvmm_engine_cost(d.eng, &cost), 0);
	assert_int_equal(kvmm_plan(d.eng, s->keys, 12, 200, 0, &p), 0);
	assert_int_equal(p.count, 0);
	assert_int_equal(p.hits, 8);
	assert_int_equal(kvmm_reclaim(d.pool, 5, NULL), 0);
	assert_int_equal(kvmm_engine_cost(d.eng, NULL), 0);
	assert_int_equal(kvmm_plan(d.eng, s->keys, 12, 200, 0, &p), 0);
	assert_int_equal(p.hits, 8);
	assert_int_equal(p.in_memory, 5);
	assert_int_equal(p.count, 8);
	assert_fails(kvmm_plan(d.eng, s->keys, 0, 200, 0, &p), EINVAL);
	assert_fails(kvmm_plan(d.eng, NULL, 12, 200, 0, &p), EINVAL);
	assert_fails(kvmm_plan(d.eng, s->keys, 12, 200, 2, &p), EINVAL);
	assert_fails(kvmm_plan(d.eng, s->keys, 12, 200, 0, NULL), EINVAL);
	door_end(&d);
	free(s);
}

static const struct lt_test tests[] = {
	LT_TEST(grid),
	LT_TEST(learns),
	LT_TEST(arithmetic),
	LT_TEST(both_at_once),
	LT_TEST(bad_input),
	LT_TEST(query),
};

int main(void)
{
	return LT_RUN("plan", tests);
}
