/* SPDX-License-Identifier: MIT */
/*
 * Made-up conversations: each begins with one of a few system prompts, and goes
 * on with what a user says and what the model answers.  Who says something next
 * is drawn by chance.  The same seed makes the same conversations.
 */
#ifndef KVMM_LLAMA_WORKLOAD_H
#define KVMM_LLAMA_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>

/**
 * struct workload_opts - how much; lengths are tokens
 * @seed: of all that is made up
 * @vocab: tokens are below it
 * @context: what a conversation must fit into
 * @conversations: how many
 * @turns: of each
 * @prompts: system prompts
 * @prompt_tokens: of each
 * @user_tokens: said by the user in a turn: half of it to all of it
 * @predict: answered in a turn
 */
struct workload_opts {
	uint64_t seed;
	unsigned int vocab;
	unsigned int context;
	unsigned int conversations;
	unsigned int turns;
	unsigned int prompts;
	unsigned int prompt_tokens;
	unsigned int user_tokens;
	unsigned int predict;
};

struct workload;

/** workload_new() - NULL without memory */
struct workload *workload_new(const struct workload_opts *opts);

/** workload_free() - NULL is fine */
void workload_free(struct workload *w);

/** workload_fits() - do the longest conversations fit into the context? */
bool workload_fits(const struct workload_opts *opts);

/**
 * workload_next() - whose turn it is, and all that was said there
 * @w: the workload
 * @conversation: set: which, counting from 0
 * @n: set: tokens of the prompt
 *
 * Return: the prompt, until the next call; NULL: all have ended.
 */
const uint32_t *workload_next(struct workload *w, unsigned int *conversation,
			      unsigned int *n);

/** workload_answer() - the answer to the latest prompt */
void workload_answer(struct workload *w, const uint32_t *tokens,
		     unsigned int n);

#endif /* KVMM_LLAMA_WORKLOAD_H */
