/* SPDX-License-Identifier: MIT */
/*
 * A made-up chat service: conversations that share system prompts, arrive at
 * random, and send their whole history again with every turn.
 */
#ifndef KVMMCTL_WORKLOAD_H
#define KVMMCTL_WORKLOAD_H

#include "trace.h"

/**
 * struct workload - how much is going on
 * @seed: the same seed makes the same requests
 * @conversations: how many
 * @working_set: blocks touched, on average, between two turns of one
 *	conversation: what decides where its blocks are by then
 * @turns: out: requests made
 * @distinct: out: different blocks
 */
struct workload {
	uint64_t seed;
	unsigned int conversations;
	unsigned int working_set;
	uint64_t turns;
	uint64_t distinct;
};

#define WORKLOAD_PROMPTS	4	/* system prompts */
#define WORKLOAD_BLOCKS		20	/* a conversation's blocks, about */

/** workload_make() - fill @t, zeroed; 0 or -ENOMEM */
int workload_make(struct workload *w, struct trace *t);

/** workload_distinct() - different blocks in the first @nr requests */
uint64_t workload_distinct(const struct trace *t, size_t nr);

#endif /* KVMMCTL_WORKLOAD_H */
