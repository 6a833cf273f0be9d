/* SPDX-License-Identifier: MIT */
/*
 * Serving requests with fewer slots than conversations.  A request is a whole
 * prompt, as engines' own interfaces have it: what of it needs no computing is
 * found here, in a slot or in the store.
 */
#ifndef KVMM_LLAMA_SERVER_H
#define KVMM_LLAMA_SERVER_H

#include "engine.h"
#include "store.h"

struct server;

/**
 * struct answer - what a request came to; counts are tokens
 * @tokens: generated
 * @nr: how many
 * @prompt: length of the prompt
 * @kept: of these, still in the slot
 * @memory: from the store's memory
 * @disk: from the store's area
 * @computed: the rest
 * @evicted: another conversation lost its slot
 * @saved: tokens put into the store afterwards
 * @refused: ranges from the store that the engine did not take
 * @store_error: the store failed with this -errno; it was done without
 * @ttft: seconds until the first token
 * @seconds: until the last one
 * @digest: hash of all logits that the tokens were chosen by
 */
struct answer {
	uint32_t *tokens;
	unsigned int nr;
	unsigned int prompt;
	unsigned int kept;
	unsigned int memory;
	unsigned int disk;
	unsigned int computed;
	unsigned int evicted;
	unsigned int saved;
	unsigned int refused;
	int store_error;
	double ttft;
	double seconds;
	uint64_t digest;
};

/**
 * server_new() - get ready
 * @e: the engine; stays the caller's
 * @st: the store; NULL: what left its slot is computed again
 *
 * Return: NULL without memory.
 */
struct server *server_new(struct engine *e, struct store *st);

/** server_free() - NULL is fine */
void server_free(struct server *srv);

/** server_forget() - empty all slots */
int server_forget(struct server *srv);

/**
 * server_request() - answer a prompt, always with the likeliest token
 * @srv: the server
 * @prompt: the tokens
 * @n: how many, at least 1
 * @predict: tokens wanted; fewer where one ends the answer
 * @a: the answer; @a->tokens has room for @predict
 *
 * Return: 0; -EINVAL: no or wrong tokens; -ENOSPC: prompt and answer are
 * longer than the context; -EIO.
 */
int server_request(struct server *srv, const uint32_t *prompt, unsigned int n,
		   unsigned int predict, struct answer *a);

/** server_error() - the latest error as a sentence */
const char *server_error(const struct server *srv);

/** server_seconds() - monotonic time */
double server_seconds(void);

#endif /* KVMM_LLAMA_SERVER_H */
