/* SPDX-License-Identifier: MIT */
/*
 * Replaying a trace through a pool, with every byte of every hit checked.
 * replay.c is the command, runner.c owns the pool and the loop, request.c is
 * what happens to one request.
 */
#ifndef KVMMCTL_REPLAY_H
#define KVMMCTL_REPLAY_H

#include "area.h"
#include "kvmmctl.h"
#include "trace.h"

/**
 * struct replay_opts - how to replay
 * @policy: enum kvmm_policy
 * @block_size: bytes
 * @frames: blocks kept in memory between requests
 * @slots: blocks kept in the swap area, 0: none
 * @swap: its path; NULL: a file without a name
 * @expiry_ms: blocks are lost when not hit for so long, in the trace's time;
 *	0: never
 * @no_checksum: data read back isn't checked by the pool
 * @io_timeout_ms: deadline of a block's I/O, 0: the default
 * @max_seconds: end early after so long, 0: never
 * @memory_hint: what helps where memory is short
 */
struct replay_opts {
	unsigned int policy;
	unsigned int block_size;
	unsigned int frames;
	unsigned int slots;
	const char *swap;
	unsigned int expiry_ms;
	bool no_checksum;
	unsigned int io_timeout_ms;
	unsigned int max_seconds;
	const char *memory_hint;
};

/**
 * struct replay_result - what came of it
 * @requests: requests replayed
 * @blocks: blocks of their prompts
 * @hits_memory: of those, found in memory
 * @hits_swap: found in the swap area and brought back
 * @corrupt: found blocks with a wrong byte
 * @stored: blocks filled and published
 * @present: blocks behind a gap in the prefix that were there already
 * @unstored: blocks that got no frame or no place in the index
 * @seconds: time of the requests
 * @setup_seconds: time to make the pool and its area
 * @pool_frames: frames of the pool
 * @place: where the area is, "" without one
 * @io: how the area is driven
 * @stat: the pool's counters at the end
 */
struct replay_result {
	uint64_t requests;
	uint64_t blocks;
	uint64_t hits_memory;
	uint64_t hits_swap;
	uint64_t corrupt;
	uint64_t stored;
	uint64_t present;
	uint64_t unstored;
	double seconds;
	double setup_seconds;
	unsigned int pool_frames;
	char place[PATH_MAX + 32];
	const char *io;
	struct kvmm_pool_stat stat;
};

/**
 * replay_check() - is there memory for the pool
 * @longest: blocks of the longest request
 *
 * Return: 0, or EXIT_ERROR, told.
 */
int replay_check(const struct replay_opts *opts, unsigned int longest);

/**
 * replay_run() - make a pool, replay @trace, take the pool away again
 * @ctx: open
 *
 * Return: 0, also with corrupt blocks; or EXIT_ERROR, told.
 */
int replay_run(struct ctx *ctx, const struct trace *trace,
	       const struct replay_opts *opts, struct replay_result *res);

/** replay_json() - print the result as JSON; 0 or EXIT_ERROR, told */
int replay_json(const struct ctx *ctx, const struct replay_opts *o,
		const struct replay_result *r);

struct replayer;

/**
 * replayer_new() - what replaying requests needs
 * @longest: blocks of the longest request
 * @res: counted in
 *
 * Return: NULL when out of memory.
 */
struct replayer *replayer_new(struct kvmm_pool *pool,
			      const struct replay_opts *opts,
			      unsigned int longest, struct replay_result *res);

/** replayer_free() - NULL is fine */
void replayer_free(struct replayer *rp);

/** replayer_request() - one request; 0, or EXIT_ERROR, told */
int replayer_request(struct replayer *rp, const struct request *req,
		     const uint64_t *ids);

#endif /* KVMMCTL_REPLAY_H */
