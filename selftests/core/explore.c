// SPDX-License-Identifier: MIT
/*
 * Model check: every command in every state that a tiny pool can be in, breadth
 * first, each compared with the model (sim.h).  I/O in flight may end at any
 * later point, well or badly, so all interleavings of moves with commands are
 * among the paths.
 *
 * Also, from every state the pool can be brought to rest: when I/O has ended
 * and the clients are gone nothing is in use that can't be had again.
 *
 * usage: explore [--states N]
 *
 * Two states are the same if they differ only in generations, counters and the
 * time of day.  A search ends when there is no new state, or after N states.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "explore.h"

#define ARENA		2560
#define HASH_SIZE	(1U << 23)

static const struct shape shapes[] = {
	{ "1 frame, 1 slot, 1 client, 1 key", 1, 1, 1, 1, 1, true, 0, 0, 0 },
	{ "1 frame, 1 slot, 2 clients, 1 key", 1, 1, 2, 1, 1, true, 0, 0, 0 },
	{ "1 frame, 1 slot, 1 client, 2 keys, 2 parts", 1, 1, 1, 2, 2, true, 0, 0, 0 },
	{ "2 frames, 1 slot, 1 client, 1 key", 2, 1, 1, 1, 1, true, 0, 0, 0 },
	{ "1 frame, 2 slots, 1 client, 2 keys", 1, 2, 1, 2, 1, true, 0, 0, 0 },
	{ "2 frames, 1 slot, 1 client, 2 keys", 2, 1, 1, 2, 1, true, 0, 0, 0 },
	{ "1 elastic frame, 1 slot, 1 client, 2 keys",
	  1, 1, 1, 2, 1, true, 1, 1, 0 },
	{ "2 frames, 1 elastic, 1 slot, 1 client, 1 key",
	  2, 1, 1, 1, 1, true, 1, 1, 0 },
	{ "2 elastic frames in one unit, 1 slot, 1 client, 2 keys",
	  2, 1, 1, 2, 1, true, 2, 2, 0 },
	{ "1 frame, which may break, 1 slot, 1 client, 1 key",
	  1, 1, 1, 1, 1, true, 0, 0, 1 },
	{ "2 frames, 1 may break, 1 slot, 2 clients, 1 key",
	  2, 1, 2, 1, 1, true, 0, 0, 1 },
	{ "2 elastic frames, 1 may break, 1 slot, 1 client, 2 keys",
	  2, 1, 1, 2, 1, true, 2, 1, 1 },
	{ "2 frames, 2 slots, 2 clients, 2 keys", 2, 2, 2, 2, 1, true, 0, 0, 0 },
};

struct step {
	u32 from;
	struct op op;
};

struct snapshot {
	struct sim s;
	u8 arena[ARENA];
	u32 state;
};

struct sim pool;
static u8 arena[ARENA] __aligned(64);
static size_t arena_used;

static struct step *steps;		/* how each state was first reached */
static u64 *seen;
static u32 nr_states, max_states = 150000;
static struct snapshot *frontier, *next_frontier;
static u32 nr_frontier, nr_next, room;
static u32 at_state;
static struct op at_op;
static u64 nr_transitions;

static void *arena_alloc(void *ctx, size_t bytes)
{
	void *mem = arena + arena_used;

	(void)ctx;
	arena_used += (bytes + 63) / 64 * 64;
	return arena_used <= ARENA ? mem : NULL;
}

static void arena_free(void *ctx, void *mem, size_t bytes)
{
	(void)ctx;
	(void)mem;
	(void)bytes;
}

/* The way from the empty pool to what failed. */
void sim_on_failure(const struct sim *s)
{
	u32 path[256], n = 0, state;

	(void)s;
	for (state = at_state; state && n < 256; state = steps[state].from)
		path[n++] = state;
	printf("# the commands that lead there:\n");
	while (n--)
		print_op(&steps[path[n]].op);
	print_op(&at_op);
	printf("not ok - differs from the model\n");
	fflush(stdout);
	exit(1);
}

void kvmm_core_report(const char *file, int line, const char *what)
{
	fprintf(stderr, "# %s:%d: the core found: %s\n", file, line, what);
	sim_on_failure(NULL);
}

static bool is_new(u64 h)
{
	u32 at = (u32)(h >> 20) & (HASH_SIZE - 1);

	while (seen[at]) {
		if (seen[at] == h)
			return false;
		at = (at + 1) & (HASH_SIZE - 1);
	}
	seen[at] = h;
	return true;
}

static void restore(const struct snapshot *snap)
{
	pool = snap->s;
	memcpy(arena, snap->arena, arena_used);
}

static void keep(struct op op)
{
	struct snapshot *snap;

	if (nr_next == room || nr_states == max_states)
		return;
	steps[nr_states] = (struct step){ at_state, op };
	snap = &next_frontier[nr_next++];
	snap->s = pool;
	memcpy(snap->arena, arena, arena_used);
	snap->state = nr_states++;
}

/* Whatever happened, the pool comes to rest. */
static void check_end(void)
{
	u32 c;

	at_op = (struct op){ .kind = TIME };
	while (pool.nr_io)
		sim_done(&pool, 0, 0);
	for (c = 1; c <= SIM_CLIENTS; c++)
		if (pool.client[c])
			sim_client_del(&pool, c);
	pool.now += TICK;
	if (pool.detaching)
		sim_detach(&pool, true);
	sim_assert(&pool, !pool.detaching);
	sim_reset(&pool);
	sim_reclaim(&pool, 0, 2);
	sim_assert(&pool, !kvmm_core_frames_used(&pool.c));
	for (c = 0; c < pool.nr_frames; c++)
		sim_assert(&pool, pool.frame[c] != M_BAD);
	if (pool.nr_slots) {
		sim_detach(&pool, false);
		sim_assert(&pool, !pool.nr_slots);
	}
	sim_compare_all(&pool);
}

static void expand(const struct snapshot *from, const struct shape *sh)
{
	static struct op ops[MAX_OPS];
	u32 n, k;

	at_state = from->state;
	restore(from);
	n = all_ops(ops, sh);
	for (k = 0; k < n; k++) {
		if (k)
			restore(from);
		at_op = ops[k];
		do_op(&ops[k]);
		nr_transitions++;
		if (is_new(hash_state(&pool)))
			keep(ops[k]);
	}
	restore(from);
	check_end();
}

static void explore(const struct shape *sh, u32 number)
{
	struct kvmm_core_config cfg = {
		.nr_frames = sh->frames,
		.nr_slots = sh->slots,
		.nr_holds = 1,
		.max_clients = sh->clients,
		.block_size = SIM_BLOCK_SIZE,
		.quarantine_ms = TICK,
		.nr_elastic = sh->elastic,
		.unit_frames = sh->unit,
		.alloc = arena_alloc,
		.free = arena_free,
	};
	u32 depth, k;

	memset(seen, 0, HASH_SIZE * sizeof(*seen));
	memset(arena, 0, sizeof(arena));
	arena_used = 0;
	nr_states = nr_frontier = nr_next = at_state = 0;
	nr_transitions = 0;
	sim_open(&pool, &cfg);
	sim_frames_online(&pool, 0, sh->frames);
	/* key 1 is cheap to recompute while loads are slow: both are explored */
	pool.c.load_us = pool.load_us = sh->keys > 1 ? 100 : 0;
	is_new(hash_state(&pool));
	keep((struct op){ .kind = TIME });
	for (depth = 0; nr_next; depth++) {
		struct snapshot *swap = frontier;

		frontier = next_frontier;
		next_frontier = swap;
		nr_frontier = nr_next;
		nr_next = 0;
		for (k = 0; k < nr_frontier; k++)
			expand(&frontier[k], sh);
	}
	printf("ok %u - %s: %u states, %llu commands, %s depth %u\n", number,
	       sh->what, nr_states, (unsigned long long)nr_transitions,
	       nr_states < max_states ? "all, to" : "the first, to", depth - 1);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "states", required_argument, NULL, 's' },
		{ NULL, 0, NULL, 0 },
	};
	u32 n = sizeof(shapes) / sizeof(shapes[0]), k;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		max_states = opt == 's' ? (u32)atoi(optarg) : 0;
		if (!max_states || max_states > HASH_SIZE / 2) {
			fprintf(stderr, "usage: explore [--states N]\n");
			return 2;
		}
	}
	room = max_states;
	steps = calloc(max_states, sizeof(*steps));
	seen = calloc(HASH_SIZE, sizeof(*seen));
	frontier = calloc(room, sizeof(*frontier));
	next_frontier = calloc(room, sizeof(*frontier));
	if (!steps || !seen || !frontier || !next_frontier) {
		fprintf(stderr, "explore: out of memory\n");
		return 1;
	}
	printf("1..%u\n", n);
	for (k = 0; k < n; k++)
		explore(&shapes[k], k + 1);
	free(steps);
	free(seen);
	free(frontier);
	free(next_frontier);
	return 0;
}
