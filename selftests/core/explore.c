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

/* The model, for pools no larger than these: states are copied by the million. */
#define SIM_FRAMES	2
#define SIM_SLOTS	2
#define SIM_CLIENTS	2
#include "sim.c"
#include "sim_block.c"
#include "sim_check.c"
#include "sim_move.c"

#define ARENA		4096
#define TICK		10	/* ms; also quarantine and expiry of key 2 */
#define HASH_SIZE	(1U << 23)

/**
 * struct shape - a pool to explore
 * @what: in words
 * @frames: its frames
 * @slots: its slots
 * @clients: how many may come
 * @keys: keys in use
 * @parts: of each block
 * @errors: I/O may fail
 */
struct shape {
	const char *what;
	u32 frames;
	u32 slots;
	u32 clients;
	u32 keys;
	u32 parts;
	bool errors;
};

static const struct shape shapes[] = {
	{ "1 frame, 1 slot, 1 client, 1 key", 1, 1, 1, 1, 1, true },
	{ "1 frame, 1 slot, 2 clients, 1 key", 1, 1, 2, 1, 1, true },
	{ "1 frame, 1 slot, 1 client, 2 keys, 2 parts", 1, 1, 1, 2, 2, true },
	{ "2 frames, 1 slot, 1 client, 1 key", 2, 1, 1, 1, 1, true },
	{ "1 frame, 2 slots, 1 client, 2 keys", 1, 2, 1, 2, 1, true },
	{ "2 frames, 1 slot, 1 client, 2 keys", 2, 1, 1, 2, 1, true },
	{ "2 frames, 2 slots, 2 clients, 2 keys", 2, 2, 2, 2, 1, true },
};

enum kind {
	ALLOC, PUBLISH, LOOKUP, PIN, UNPIN, DROP, TOUCH, SWAP_OUT, SWAP_IN,
	DONE, RECLAIM, HINT, CHAIN, ATTACH, DETACH, RESET, CLIENT_ADD,
	CLIENT_DEL, TIME, NR_KINDS
};

static const char *const kind_name[NR_KINDS] = {
	"alloc", "publish", "lookup", "pin", "unpin", "drop", "touch",
	"swap_out", "swap_in", "done", "reclaim", "hint", "chain", "attach",
	"detach", "reset", "client_add", "client_del", "time"
};

struct op {
	u8 kind;
	u8 a;
	u8 b;
	u8 c;
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

static struct sim now;
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

static void print_op(const struct op *op)
{
	printf("#   %s %u %u %u\n", kind_name[op->kind], op->a, op->b, op->c);
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

/* ---- what makes a state ---- */

struct hash {
	u64 h;
};

static void mix(struct hash *x, u64 v)
{
	x->h = (x->h ^ v) * 0x9e3779b97f4a7c15ULL;
	x->h ^= x->h >> 29;
}

static u64 age(const struct sim *s, u64 since, u64 most)
{
	u64 d = s->now - since;

	return d < most ? d : most;
}

static void hash_block(struct hash *x, const struct sim *s, u32 i)
{
	const struct m_block *b = &s->block[i];
	u32 k, p;

	mix(x, b->used);
	if (!b->used)
		return;
	mix(x, b->doomed | b->keyed << 1 | b->evicting << 2 | b->child << 3 |
	    b->orphan << 4 | b->state << 5 | b->nr_parts << 9);
	mix(x, (u64)b->frame << 32 | b->slot);
	mix(x, b->state == KVMM_FILLING && !b->parts ? 0 : b->id);
	mix(x, b->parts << 8 | b->position);
	mix(x, b->epoch == s->epoch);
	for (k = 1; k <= SIM_CLIENTS; k++)
		mix(x, b->pins[k] << 1 | b->extra[k]);
	if (b->ttl && b->state != KVMM_FILLING)
		mix(x, 1 + age(s, b->touched, b->ttl));
	if (b->orphan && b->state == KVMM_FILLING)
		mix(x, 1 + age(s, b->died, TICK));
	for (p = 0; p < SIM_BLOCKS; p++)
		mix(x, s->block[p].used && b->parent == s->block[p].handle);
}

static void hash_order(struct hash *x, const struct m_order *o)
{
	u32 k;

	mix(x, o->n);
	for (k = 0; k < o->n; k++)
		mix(x, o->at[k]);
}

/* Lists whose order is the core's own choice, but decides what comes next. */
static void hash_lists(struct hash *x, const struct kvmm_core *c)
{
	u32 i;

	mix(x, c->next_block << 8 | c->next_slot);
	for (i = c->free_block; i != KVMM_NONE; i = block_at(c, i)->link)
		mix(x, i + 1);
	mix(x, 100);
	for (i = c->free_frame; i != KVMM_NONE; i = frame_at(c, i)->link)
		mix(x, i + 1);
	mix(x, 100);
	if (c->nr_slots)
		for (i = c->free_slot; i != KVMM_NONE; i = slot_at(c, i)->next)
			mix(x, i + 1);
	mix(x, 100);
	for (i = c->slots_clean.head; i != KVMM_NONE; i = slot_at(c, i)->next)
		mix(x, i + 1);
}

static u64 hash_state(const struct sim *s)
{
	struct hash x = { 1 };
	u32 i;

	for (i = 0; i < s->c.nr_blocks; i++)
		hash_block(&x, s, i);
	hash_order(&x, &s->mem);
	hash_order(&x, &s->swp);
	hash_order(&x, &s->rest);
	hash_lists(&x, &s->c);
	for (i = 0; i < s->nr_frames; i++) {
		mix(&x, s->frame[i]);
		if (s->frame[i] == M_RESTING)
			mix(&x, s->now >= s->due[i] ? 0 : s->due[i] - s->now);
	}
	for (i = 1; i <= SIM_CLIENTS; i++)
		mix(&x, s->client[i]);
	mix(&x, s->nr_slots | s->degraded << 8 | s->detaching << 9);
	return x.h ? x.h : 1;
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

/* ---- commands ---- */

static u64 handle_at(u32 i)
{
	return now.block[i].used ? now.block[i].handle : 0;
}

static void publish_op(const struct op *op)
{
	struct kvmm_publish_entry e = {
		.handle = handle_at(op->a),
		.length = SIM_BLOCK_SIZE,
		.flags = op->b == 1 ? KVMM_BLOCK_RECOMPUTABLE : 0,
		.expiry_ms = op->b == 2 ? TICK : 0,
		.cost_us = 1,
		.position = op->b - 1,
	};
	struct kvmm_cursor cur = { 0 };
	struct m_block *other = m_find(&now, 3 - op->b);
	u32 client = 1 + (op->c & 1);

	sim_key(e.key, op->b);
	e.parent = other ? other->handle : 0;
	e.part = op->c >> 2;
	sim_publish(&now, client, op->c & 2 ? KVMM_PUBLISH_KEEP : 0, &cur, &e,
		    1);
}

static void ref_op(const struct op *op)
{
	struct kvmm_block_ref ref = { .handle = handle_at(op->a) };
	struct kvmm_cursor cur = { 0 };
	u64 id = op->a;

	switch (op->kind) {
	case ALLOC:
		sim_alloc(&now, op->a, op->b, 1, &ref);
		break;
	case LOOKUP:
		sim_lookup(&now, op->b, op->c, &cur, &id, &ref, 1);
		break;
	case PIN:
		sim_pin(&now, op->b, true, &ref, 1);
		break;
	case UNPIN:
		sim_unpin(&now, op->b, &ref, 1);
		break;
	case DROP:
		sim_drop(&now, op->b, &ref, 1);
		break;
	case TOUCH:
		sim_touch(&now, &cur, &ref, 1);
		break;
	}
}

static void do_op(const struct op *op)
{
	switch (op->kind) {
	case PUBLISH:
		publish_op(op);
		break;
	case SWAP_OUT:
		sim_swap_out(&now, handle_at(op->a), op->b);
		break;
	case SWAP_IN:
		sim_swap_in(&now, op->b, handle_at(op->a), op->c);
		break;
	case DONE:
		sim_done(&now, op->a, op->b ? -EIO : 0);
		break;
	case RECLAIM:
		sim_reclaim(&now, op->a, 2);
		break;
	case HINT:
		sim_hint(&now, 0, handle_at(op->a));
		break;
	case CHAIN:
		sim_chain(&now, handle_at(op->a));
		break;
	case ATTACH:
		sim_attach(&now, op->a);
		break;
	case DETACH:
		sim_detach(&now, op->a);
		break;
	case RESET:
		sim_reset(&now);
		break;
	case CLIENT_ADD:
		sim_client_add(&now);
		break;
	case CLIENT_DEL:
		sim_client_del(&now, op->a);
		break;
	case TIME:
		now.now += TICK;
		break;
	default:
		ref_op(op);
	}
	sim_compare_all(&now);
}

static struct op make_op(const u8 v[4])
{
	return (struct op){ v[0], v[1], v[2], v[3] };
}

/* kind, then up to three arguments */
#define ADD(...) (ops[n++] = make_op((const u8[4]){ __VA_ARGS__ }))

static u32 ops_of_block(struct op *ops, const struct shape *sh, u32 i)
{
	const struct m_block *b = &now.block[i];
	u32 n = 0, c, k, p;

	ADD(TOUCH, i);
	ADD(SWAP_OUT, i, 0);
	ADD(SWAP_OUT, i, KVMM_SWAP_DROP);
	ADD(HINT, i);
	ADD(CHAIN, i);
	for (c = 1; c <= sh->clients; c++) {
		if (!now.client[c])
			continue;
		if (b->pins[c] < 2) {
			ADD(PIN, i, c);
			ADD(SWAP_IN, i, c, KVMM_SWAP_PIN);
		}
		ADD(UNPIN, i, c);
		ADD(DROP, i, c);
		ADD(SWAP_IN, i, c, 0);
		for (k = 1; k <= sh->keys && b->state == KVMM_FILLING; k++)
			for (p = 0; p < sh->parts; p++) {
				ADD(PUBLISH, i, k, p << 2 | (c - 1));
				ADD(PUBLISH, i, k, p << 2 | 2 | (c - 1));
			}
	}
	return n;
}

static u32 all_ops(struct op *ops, const struct shape *sh)
{
	u32 n = 0, i, c, k;

	for (i = 0; i < now.c.nr_blocks; i++)
		if (now.block[i].used)
			n += ops_of_block(ops + n, sh, i);
	for (i = 0; i < now.nr_io; i++) {
		ADD(DONE, i, 0);
		if (sh->errors)
			ADD(DONE, i, 1);
	}
	for (c = 1; c <= sh->clients; c++) {
		if (!now.client[c]) {
			ADD(CLIENT_ADD);
			continue;
		}
		ADD(ALLOC, c, sh->parts);
		ADD(CLIENT_DEL, c);
		for (k = 1; k <= sh->keys; k++) {
			const struct m_block *b = m_find(&now, k);

			ADD(LOOKUP, k, c, 0);
			/* two pins of a client are as good as more */
			if (!b || b->pins[c] < 2)
				ADD(LOOKUP, k, c, KVMM_LOOKUP_PIN);
		}
	}
	ADD(RECLAIM, 0);
	ADD(RECLAIM, 1);
	ADD(DETACH, 0);
	ADD(DETACH, 1);
	if (!now.nr_slots)
		for (k = 1; k <= sh->slots; k++)
			ADD(ATTACH, k);
	ADD(RESET);
	ADD(TIME);
	return n;
}

/* ---- the search ---- */

static void restore(const struct snapshot *snap)
{
	now = snap->s;
	memcpy(arena, snap->arena, arena_used);
}

static void keep(struct op op)
{
	struct snapshot *snap;

	if (nr_next == room || nr_states == max_states)
		return;
	steps[nr_states] = (struct step){ at_state, op };
	snap = &next_frontier[nr_next++];
	snap->s = now;
	memcpy(snap->arena, arena, arena_used);
	snap->state = nr_states++;
}

/* Whatever happened, the pool comes to rest. */
static void check_end(void)
{
	u32 c;

	at_op = (struct op){ .kind = TIME };
	while (now.nr_io)
		sim_done(&now, 0, 0);
	for (c = 1; c <= SIM_CLIENTS; c++)
		if (now.client[c])
			sim_client_del(&now, c);
	now.now += TICK;
	if (now.detaching)
		sim_detach(&now, true);
	sim_assert(&now, !now.detaching);
	sim_reset(&now);
	sim_reclaim(&now, 0, 2);
	sim_assert(&now, !kvmm_core_frames_used(&now.c));
	if (now.nr_slots) {
		sim_detach(&now, false);
		sim_assert(&now, !now.nr_slots);
	}
	sim_compare_all(&now);
}

static void expand(const struct snapshot *from, const struct shape *sh)
{
	static struct op ops[512];
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
		if (is_new(hash_state(&now)))
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
		.alloc = arena_alloc,
		.free = arena_free,
	};
	u32 depth, k;

	memset(seen, 0, HASH_SIZE * sizeof(*seen));
	memset(arena, 0, sizeof(arena));
	arena_used = 0;
	nr_states = nr_frontier = nr_next = at_state = 0;
	nr_transitions = 0;
	sim_open(&now, &cfg);
	sim_frames_online(&now, 0, sh->frames);
	/* key 1 is cheap to recompute while loads are slow: both are explored */
	now.c.load_us = now.load_us = sh->keys > 1 ? 100 : 0;
	is_new(hash_state(&now));
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
