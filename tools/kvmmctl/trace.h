/* SPDX-License-Identifier: MIT */
/*
 * A request trace: which blocks each request's prompt is made of, and when.
 */
#ifndef KVMMCTL_TRACE_H
#define KVMMCTL_TRACE_H

#include <stddef.h>
#include <stdint.h>

/**
 * struct request - one request
 * @time_ms: when it came, ms since the start of the trace
 * @first: its first id in trace.ids
 * @nr: how many blocks its prompt has
 * @output_tokens: tokens generated, 0 where not told
 */
struct request {
	uint64_t time_ms;
	size_t first;
	uint32_t nr;
	uint32_t output_tokens;
};

/**
 * struct trace - requests in order of time
 * @reqs: the requests
 * @nr: how many
 * @room: entries that @reqs has room for
 * @ids: the block ids of all requests
 * @nr_ids: how many
 * @ids_room: entries that @ids has room for
 * @longest: blocks of the longest request
 */
struct trace {
	struct request *reqs;
	size_t nr;
	size_t room;
	uint64_t *ids;
	size_t nr_ids;
	size_t ids_room;
	uint32_t longest;
};

/**
 * trace_read() - read JSON lines
 * @t: zeroed
 * @path: a file, "-": standard input
 * @limit: requests to read at most; what follows is not looked at
 *
 * Return: 0, or EXIT_ERROR after telling what is wrong, and in which line.
 */
int trace_read(struct trace *t, const char *path, uint64_t limit);

/** trace_begin() - append a request without blocks; 0 or -ENOMEM */
int trace_begin(struct trace *t, uint64_t time_ms, uint32_t output_tokens);

/** trace_add() - append a block to the last request; 0 or -ENOMEM, -E2BIG */
int trace_add(struct trace *t, uint64_t id);

/** trace_free() - give the memory back */
void trace_free(struct trace *t);

#endif /* KVMMCTL_TRACE_H */
