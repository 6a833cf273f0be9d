// SPDX-License-Identifier: MIT
/*
 * Which slot a request gets, and where the state of its prompt comes from:
 * what the slot has, then what the store has, then computing.
 *
 * Only whole ranges that were computed in one go from their first token, as
 * part of a prompt, are kept and stored.  The tokens of an answer, which were
 * computed one at a time, are computed again as part of the next prompt: sums
 * are rounded differently then.  So the state of a prompt is the same bit for
 * bit whatever came from where, and with it every answer.
 */
#include "server.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/**
 * struct seat - what the server knows of a slot
 * @tokens: those of its whole ranges
 * @ranges: how many
 * @used: when it was last used, counting requests
 */
struct seat {
	uint32_t *tokens;
	unsigned int ranges;
	uint64_t used;
};

/**
 * struct server - slots and a store
 * @e: the engine
 * @st: the store, may be NULL
 * @info: the engine's
 * @seats: as many as the engine has slots
 * @requests: so far
 * @error: the latest
 */
struct server {
	struct engine *e;
	struct store *st;
	const struct engine_info *info;
	struct seat *seats;
	uint64_t requests;
	char error[300];
};

double server_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

const char *server_error(const struct server *srv)
{
	return srv->error;
}

static int __attribute__((format(printf, 3, 4)))
failed(struct server *srv, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(srv->error, sizeof(srv->error), fmt, ap);
	va_end(ap);
	return err;
}

static int engine_failed(struct server *srv, int err)
{
	return failed(srv, err, "%s", engine_error(srv->e));
}

struct server *server_new(struct engine *e, struct store *st)
{
	struct server *srv = calloc(1, sizeof(*srv));
	unsigned int i;

	if (!srv)
		return NULL;
	srv->e = e;
	srv->st = st;
	srv->info = engine_info(e);
	srv->seats = calloc(srv->info->slots, sizeof(*srv->seats));
	for (i = 0; srv->seats && i < srv->info->slots; i++) {
		srv->seats[i].tokens = calloc(srv->info->context,
					      sizeof(uint32_t));
		if (!srv->seats[i].tokens)
			break;
	}
	if (!srv->seats || i < srv->info->slots) {
		server_free(srv);
		return NULL;
	}
	return srv;
}

void server_free(struct server *srv)
{
	if (!srv)
		return;
	for (unsigned int i = 0; srv->seats && i < srv->info->slots; i++)
		free(srv->seats[i].tokens);
	free(srv->seats);
	free(srv);
}

int server_forget(struct server *srv)
{
	for (unsigned int i = 0; i < srv->info->slots; i++) {
		int err = engine_trim(srv->e, i, 0);

		if (err)
			return engine_failed(srv, err);
		srv->seats[i].ranges = 0;
	}
	return 0;
}

/* Whole ranges that a seat and a prompt begin with. */
static unsigned int in_common(const struct server *srv, const struct seat *seat,
			      const uint32_t *prompt, unsigned int max)
{
	unsigned int b = srv->info->block_tokens, r = 0;

	while (r < max && r < seat->ranges &&
	       !memcmp(seat->tokens + r * b, prompt + r * b,
		       b * sizeof(*prompt)))
		r++;
	return r;
}

/*
 * The seat whose conversation goes on, or begins as the prompt does all it
 * has; else an empty one; else the one that was used longest ago.
 */
static unsigned int choose_seat(const struct server *srv,
				const uint32_t *prompt, unsigned int max,
				unsigned int *common)
{
	unsigned int best = 0, i;

	*common = 0;
	for (i = 0; i < srv->info->slots; i++) {
		const struct seat *s = &srv->seats[i];
		unsigned int c = in_common(srv, s, prompt, max);

		if (c > *common && (c == s->ranges || c == max)) {
			*common = c;
			best = i;
		}
	}
	if (*common)
		return best;
	for (i = 1; i < srv->info->slots; i++) {
		const struct seat *s = &srv->seats[i], *b = &srv->seats[best];

		if (!s->ranges != !b->ranges ? !s->ranges : s->used < b->used)
			best = i;
	}
	return best;
}

static unsigned int likeliest(const float *logits, unsigned int n)
{
	unsigned int best = 0;

	for (unsigned int i = 1; i < n; i++)
		if (logits[i] > logits[best])
			best = i;
	return best;
}

/* FNV-1a, on 32 bits at a time. */
static uint64_t hash_logits(uint64_t hash, const float *logits, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		uint32_t bits;

		memcpy(&bits, &logits[i], sizeof(bits));
		hash = (hash ^ bits) * 0x100000001b3ULL;
	}
	return hash;
}

/* The prompt from the slot's length on, cut where ranges are cut. */
static int compute(struct server *srv, unsigned int slot,
		   const uint32_t *prompt, unsigned int n)
{
	unsigned int b = srv->info->block_tokens;
	unsigned int at = engine_held(srv->e, slot);

	while (at < n) {
		unsigned int len = n - at < b ? n - at : b;
		int err = engine_compute(srv->e, slot, prompt + at, at, len);

		if (err)
			return engine_failed(srv, err);
		at += len;
	}
	return 0;
}

static int generate(struct server *srv, unsigned int slot, unsigned int at,
		    unsigned int predict, double start, struct answer *a)
{
	a->digest = 0xcbf29ce484222325ULL;
	while (a->nr < predict) {
		const float *logits = engine_logits(srv->e, slot);
		uint32_t token;
		int err;

		if (!logits)
			return failed(srv, -EIO, "the engine has no logits");
		a->digest = hash_logits(a->digest, logits, srv->info->vocab);
		token = likeliest(logits, srv->info->vocab);
		if (!a->nr)
			a->ttft = server_seconds() - start;
		a->tokens[a->nr++] = token;
		if (engine_is_end(srv->e, token) || a->nr == predict)
			break;
		err = engine_compute(srv->e, slot, &token, at++, 1);
		if (err)
			return engine_failed(srv, err);
	}
	a->seconds = server_seconds() - start;
	return 0;
}

/* A store that fails costs time, not the answer. */
static void restore(struct server *srv, unsigned int slot,
		    const uint32_t *prompt, unsigned int first,
		    unsigned int end, struct answer *a)
{
	unsigned int b = srv->info->block_tokens;
	struct store_found found = { 0 };
	long r;

	if (!srv->st || first >= end)
		return;
	r = store_restore(srv->st, srv->e, slot, prompt, first, end, &found);
	if (r < 0)
		a->store_error = (int)r;
	a->memory = found.memory * b;
	a->disk = found.disk * b;
	a->refused = found.refused;
}

/* After the answer: keep what the next prompt can use. */
static int keep(struct server *srv, unsigned int slot, const uint32_t *prompt,
		unsigned int n, struct answer *a)
{
	unsigned int b = srv->info->block_tokens, ranges = n / b;
	struct seat *seat = &srv->seats[slot];
	int err;

	if (srv->st && ranges) {
		unsigned int cost = a->computed ?
			(unsigned int)(a->ttft * 1e6 * b / a->computed) : 0;
		long r = store_save(srv->st, srv->e, slot, prompt, ranges,
				    cost);

		if (r < 0)
			a->store_error = (int)r;
		else
			a->saved = (unsigned int)r * b;
	}
	err = engine_trim(srv->e, slot, ranges * b);
	if (err)
		return engine_failed(srv, err);
	memcpy(seat->tokens, prompt, (size_t)ranges * b * sizeof(*prompt));
	seat->ranges = ranges;
	seat->used = ++srv->requests;
	return 0;
}

static int answer(struct server *srv, unsigned int slot, unsigned int common,
		  const uint32_t *prompt, unsigned int n, unsigned int predict,
		  struct answer *a)
{
	unsigned int b = srv->info->block_tokens;
	double start = server_seconds();
	int err = engine_trim(srv->e, slot, common * b);

	if (err)
		return engine_failed(srv, err);
	a->prompt = n;
	a->kept = common * b;
	/* the last token is always computed: the first answer comes from it */
	restore(srv, slot, prompt, common, (n - 1) / b, a);
	a->computed = n - engine_held(srv->e, slot);
	err = compute(srv, slot, prompt, n);
	if (!err)
		err = generate(srv, slot, n, predict, start, a);
	if (!err)
		err = keep(srv, slot, prompt, n, a);
	return err;
}

int server_request(struct server *srv, const uint32_t *prompt, unsigned int n,
		   unsigned int predict, struct answer *a)
{
	uint32_t *tokens = a->tokens;
	unsigned int slot, common;
	int err;

	memset(a, 0, sizeof(*a));
	a->tokens = tokens;
	if (!n || !predict)
		return failed(srv, -EINVAL, "a request needs a prompt and at least one token to predict");
	if (n > srv->info->context || predict > srv->info->context - n)
		return failed(srv, -ENOSPC, "a prompt of %u tokens and %u more don't fit into a context of %u",
			      n, predict, srv->info->context);
	for (unsigned int i = 0; i < n; i++)
		if (prompt[i] >= srv->info->vocab)
			return failed(srv, -EINVAL, "token %u is not below %u",
				      prompt[i], srv->info->vocab);
	slot = choose_seat(srv, prompt, (n - 1) / srv->info->block_tokens,
			   &common);
	a->evicted = !common && srv->seats[slot].ranges;
	/* whatever happens, the slot is known to hold nothing until it is over */
	srv->seats[slot].ranges = 0;
	err = answer(srv, slot, common, prompt, n, predict, a);
	if (err)
		(void)engine_trim(srv->e, slot, 0);
	return err;
}
