// SPDX-License-Identifier: MIT
/*
 * Generation of the demo's requests.  Conversations begin as a Poisson process;
 * a turn adds a few blocks and the next one comes after an exponential time.
 * Ids: conversation and position, so none is kept track of.
 */
#include "workload.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define PAUSE_MS	60000.0	/* mean time between two turns */
#define MIN_TURNS	2
#define MAX_TURNS	8
#define MIN_GROWTH	2	/* blocks that a turn adds */
#define MAX_GROWTH	6
#define MIN_PROMPT	4	/* blocks of a system prompt */
#define MAX_PROMPT	12
#define MEAN_TURNS	((MIN_TURNS + MAX_TURNS) / 2.0)
#define MEAN_HISTORY	12.0	/* blocks of its own that a turn sends */

/**
 * struct turn - one request before they are put in order
 * @time_ms: when it comes
 * @conversation: whose
 * @prompt: which system prompt
 * @own: blocks of the conversation so far
 */
struct turn {
	uint64_t time_ms;
	uint32_t conversation;
	uint32_t prompt;
	uint32_t own;
};

static uint64_t next(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static uint32_t between(uint64_t *state, uint32_t min, uint32_t max)
{
	return min + (uint32_t)(next(state) % (max - min + 1));
}

static double exponential(uint64_t *state, double mean)
{
	/* 53 random bits, never 0 */
	double u = ((double)(next(state) >> 11) + 1) / 9007199254740993.0;

	return -mean * log(u);
}

static int by_time(const void *a, const void *b)
{
	const struct turn *x = a, *y = b;

	if (x->time_ms != y->time_ms)
		return x->time_ms < y->time_ms ? -1 : 1;
	if (x->conversation != y->conversation)
		return x->conversation < y->conversation ? -1 : 1;
	return x->own < y->own ? -1 : x->own > y->own;
}

static struct turn *make_turns(struct workload *w)
{
	/* turns a ms that touch working_set blocks in one pause */
	double rate = w->working_set / MEAN_HISTORY / PAUSE_MS;
	struct turn *turns = calloc((size_t)w->conversations * MAX_TURNS,
				    sizeof(*turns));
	uint64_t state = w->seed;
	double start = 0;

	if (!turns)
		return NULL;
	w->turns = 0;
	for (uint32_t c = 0; c < w->conversations; c++) {
		uint32_t n = between(&state, MIN_TURNS, MAX_TURNS), own = 0;
		uint32_t prompt = between(&state, 0, WORKLOAD_PROMPTS - 1);
		double time;

		start += exponential(&state, MEAN_TURNS / rate);
		time = start;
		for (uint32_t i = 0; i < n; i++) {
			own += between(&state, MIN_GROWTH, MAX_GROWTH);
			turns[w->turns++] = (struct turn){
				.time_ms = (uint64_t)time,
				.conversation = c,
				.prompt = prompt,
				.own = own,
			};
			time += exponential(&state, PAUSE_MS);
		}
	}
	qsort(turns, w->turns, sizeof(*turns), by_time);
	return turns;
}

static int add_turn(struct trace *t, const struct turn *turn,
		    const uint32_t *prompts)
{
	int rc = trace_begin(t, turn->time_ms, 256);

	for (uint32_t i = 0; i < prompts[turn->prompt] && !rc; i++)
		rc = trace_add(t, (uint64_t)turn->prompt << 32 | i);
	for (uint32_t i = 0; i < turn->own && !rc; i++)
		rc = trace_add(t, (uint64_t)(WORKLOAD_PROMPTS +
					     turn->conversation) << 32 | i);
	return rc;
}

int workload_make(struct workload *w, struct trace *t)
{
	uint64_t state = ~w->seed;
	uint32_t prompts[WORKLOAD_PROMPTS];
	struct turn *turns = make_turns(w);
	int rc = 0;

	if (!turns)
		return -ENOMEM;
	for (int i = 0; i < WORKLOAD_PROMPTS; i++)
		prompts[i] = between(&state, MIN_PROMPT, MAX_PROMPT);
	for (uint64_t i = 0; i < w->turns && !rc; i++)
		rc = add_turn(t, &turns[i], prompts);
	free(turns);
	if (rc)
		return -ENOMEM;
	w->distinct = workload_distinct(t, t->nr);
	return 0;
}

static int by_id(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

uint64_t workload_distinct(const struct trace *t, size_t nr)
{
	size_t n = nr == t->nr ? t->nr_ids : t->reqs[nr].first;
	uint64_t *ids = malloc((n + 1) * sizeof(*ids)), distinct = 0;

	if (!ids)
		return 0;
	for (size_t i = 0; i < n; i++)
		ids[i] = t->ids[i];
	qsort(ids, n, sizeof(*ids), by_id);
	for (size_t i = 0; i < n; i++)
		distinct += !i || ids[i] != ids[i - 1];
	free(ids);
	return distinct;
}
