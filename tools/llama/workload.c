// SPDX-License-Identifier: MIT
/*
 * Made-up conversations.
 */
#include "workload.h"

#include <stdlib.h>
#include <string.h>

/**
 * struct conversation - one of them
 * @tokens: all that was said, room for the context
 * @n: how many
 * @turns: that are left
 */
struct conversation {
	uint32_t *tokens;
	unsigned int n;
	unsigned int turns;
};

/**
 * struct workload - all of them
 * @opts: as asked for
 * @all: the conversations
 * @tokens: of all of them
 * @left: how many have turns left
 * @current: whose turn it is
 * @state: of chance
 */
struct workload {
	struct workload_opts opts;
	struct conversation *all;
	uint32_t *tokens;
	unsigned int left;
	unsigned int current;
	uint64_t state;
};

static uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static unsigned int below(uint64_t *state, unsigned int n)
{
	return (unsigned int)(next_random(state) >> 33) % n;
}

static void say(struct workload *w, struct conversation *c, unsigned int n,
		uint64_t *state)
{
	while (n-- && c->n < w->opts.context)
		c->tokens[c->n++] = below(state, w->opts.vocab);
}

bool workload_fits(const struct workload_opts *o)
{
	uint64_t turn = (uint64_t)o->user_tokens + o->predict;

	return o->prompt_tokens + o->turns * turn <= o->context;
}

struct workload *workload_new(const struct workload_opts *opts)
{
	struct workload *w = calloc(1, sizeof(*w));
	unsigned int i;

	if (!w)
		return NULL;
	w->opts = *opts;
	w->state = opts->seed;
	w->left = opts->turns ? opts->conversations : 0;
	w->all = calloc(opts->conversations, sizeof(*w->all));
	w->tokens = calloc((size_t)opts->conversations * opts->context,
			   sizeof(*w->tokens));
	if (!w->all || !w->tokens) {
		workload_free(w);
		return NULL;
	}
	for (i = 0; i < opts->conversations; i++) {
		struct conversation *c = &w->all[i];
		uint64_t prompt = opts->seed ^
			(0x5851f42d4c957f2dULL * (1 + i % opts->prompts));

		c->tokens = w->tokens + (size_t)i * opts->context;
		c->turns = opts->turns;
		say(w, c, opts->prompt_tokens, &prompt);
	}
	return w;
}

void workload_free(struct workload *w)
{
	if (!w)
		return;
	free(w->all);
	free(w->tokens);
	free(w);
}

const uint32_t *workload_next(struct workload *w, unsigned int *conversation,
			      unsigned int *n)
{
	struct conversation *c;
	unsigned int nth, i;

	if (!w->left)
		return NULL;
	/* the nth of those that have not ended */
	nth = below(&w->state, w->left);
	for (i = 0; !w->all[i].turns || nth--; i++)
		;
	c = &w->all[i];
	w->current = i;
	if (!--c->turns)
		w->left--;
	say(w, c, w->opts.user_tokens -
	    below(&w->state, w->opts.user_tokens / 2 + 1), &w->state);
	*conversation = i;
	*n = c->n;
	return c->tokens;
}

void workload_answer(struct workload *w, const uint32_t *tokens, unsigned int n)
{
	struct conversation *c = &w->all[w->current];

	if (n > w->opts.context - c->n)
		n = w->opts.context - c->n;
	memcpy(c->tokens + c->n, tokens, n * sizeof(*tokens));
	c->n += n;
}
