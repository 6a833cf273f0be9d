// SPDX-License-Identifier: MIT
/*
 * kvmmctl replay: a request trace through a pool, and what was found where.
 */
#include "replay.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "output.h"
#include "size.h"

static const struct opt opts[] = {
	{ OPT_POLICY, "policy", "lru", "who is evicted first (default lru)" },
	{ OPT_BLOCK_SIZE, "block-size", "SIZE",
	  "bytes of a block, a power of two from 4K to 256M (default "
	  "64K)" },
	{ OPT_FRAMES, "frames", "N",
	  "blocks kept in memory between requests (default 5000)" },
	{ OPT_SLOTS, "slots", "N",
	  "blocks kept in a swap area (default 0, or with --swap four times "
	  "--frames)" },
	{ OPT_SWAP, "swap", "FILE",
	  "the swap area: a file, made anew without a name, or a block "
	  "device, whose content is lost; without it a file without a name in "
	  "$TMPDIR, /var/tmp or the current folder" },
	{ OPT_NO_CHECKSUM, "no-checksum", NULL,
	  "don't let the pool check what it reads back; the replay still "
	  "checks every byte" },
	{ OPT_IO_TIMEOUT, "io-timeout", "MS",
	  "how long the swap area may take to move a block (default 30000)" },
	{ OPT_EXPIRY, "expiry", "MS",
	  "lose blocks not used for so many milliseconds of the trace's time" },
	{ OPT_LIMIT, "limit", "N", "replay only the first N requests" },
	{ 0, NULL, NULL, NULL },
};

/* The area is made anew and goes: not of what is to be read. */
static int check_not_trace(const char *swap, const char *trace)
{
	struct stat a, b;

	if (stat(swap, &a))
		return 0;
	if (strcmp(trace, "-") ? stat(trace, &b) : fstat(STDIN_FILENO, &b))
		return 0;
	if (a.st_dev != b.st_dev || a.st_ino != b.st_ino)
		return 0;
	return fail("--swap: %s is the trace, and would be lost", swap);
}

static int parse(const struct args *args, struct replay_opts *o,
		 uint64_t *limit)
{
	uint64_t frames = 5000, slots = 0, size = 64 << 10, expiry = 0;
	uint64_t io_timeout = 0;

	*limit = UINT64_MAX;
	if (opt_policy(args, &o->policy) || opt_block_size(args, &size) ||
	    opt_count(args, OPT_FRAMES, 1, KVMM_MAX_BLOCKS, &frames) ||
	    opt_count(args, OPT_SLOTS, 0, KVMM_MAX_BLOCKS, &slots) ||
	    opt_count(args, OPT_EXPIRY, 1, UINT32_MAX, &expiry) ||
	    opt_count(args, OPT_IO_TIMEOUT, 1, KVMM_MAX_IO_TIMEOUT_MS,
		      &io_timeout) ||
	    opt_count(args, OPT_LIMIT, 1, UINT64_MAX, limit))
		return EXIT_ERROR;
	o->swap = args->value[OPT_SWAP];
	if (o->swap && !*o->swap)
		return fail("--swap: the name is empty");
	if (o->swap && check_not_trace(o->swap, args->pos[0]))
		return EXIT_ERROR;
	if (o->swap && !args->value[OPT_SLOTS])
		slots = frames * 4;
	if (o->swap && !slots)
		return fail("--swap needs --slots of at least 1");
	if (slots > KVMM_MAX_BLOCKS)
		return fail("--slots is missing, and four times --frames is "
			    "more than a pool can have");
	o->block_size = (unsigned int)size;
	o->frames = (unsigned int)frames;
	o->slots = (unsigned int)slots;
	o->expiry_ms = (unsigned int)expiry;
	o->io_timeout_ms = (unsigned int)io_timeout;
	o->no_checksum = args->value[OPT_NO_CHECKSUM];
	o->memory_hint =
		"use fewer --frames or --slots, or a smaller --block-size";
	return 0;
}

int replay_json(const struct ctx *ctx, const struct replay_opts *o,
		const struct replay_result *r)
{
	const struct kvmm_pool_stat *st = &r->stat;
	uint64_t hits = r->hits_memory + r->hits_swap;
	json_t *obj = json_pack(
		"{s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:f}",
		"backend", kvmm_backend_name(ctx->kv),
		"requests", (json_int_t)r->requests,
		"blocks", (json_int_t)r->blocks,
		"hits", (json_int_t)hits,
		"hits_memory", (json_int_t)r->hits_memory,
		"hits_swap", (json_int_t)r->hits_swap,
		"hit_rate", r->blocks ? (double)hits / (double)r->blocks : 0.0,
		"corrupt", (json_int_t)r->corrupt,
		"swap_out_bytes", (json_int_t)st->swap_out_bytes,
		"swap_in_bytes", (json_int_t)st->swap_in_bytes,
		"seconds", r->seconds);
	json_t *more = json_pack(
		"{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
		"s:I, s:I, s:I, s:I, s:f}",
		"io", r->io,
		"policy", policy_name(o->policy),
		"block_size", (json_int_t)o->block_size,
		"frames", (json_int_t)o->frames,
		"slots", (json_int_t)o->slots,
		"pool_frames", (json_int_t)r->pool_frames,
		"stored", (json_int_t)r->stored,
		"present", (json_int_t)r->present,
		"unstored", (json_int_t)r->unstored,
		"evicted", (json_int_t)st->evicted,
		"purged", (json_int_t)(st->purged + st->slots_evicted),
		"expired", (json_int_t)st->expired,
		"checksum_errors", (json_int_t)st->checksum_errors,
		"read_errors", (json_int_t)st->read_errors,
		"write_errors", (json_int_t)st->write_errors,
		"io_timeouts", (json_int_t)st->io_timeouts,
		"setup_seconds", r->setup_seconds);

	if (!obj || !more || json_object_update(obj, more)) {
		json_decref(obj);
		obj = NULL;
	}
	json_decref(more);
	return output_json(obj, true);
}

static void print_text(const struct ctx *ctx, const struct replay_opts *o,
		       const struct replay_result *r)
{
	const struct kvmm_pool_stat *st = &r->stat;
	uint64_t hits = r->hits_memory + r->hits_swap;
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];

	output_row("backend", "%s, I/O by %s", kvmm_backend_name(ctx->kv),
		   r->io);
	output_row("pool", "%s frames of %s, %s kept between requests; "
		   "policy %s", count_text(r->pool_frames, a),
		   size_text(o->block_size, b), count_text(o->frames, c),
		   policy_name(o->policy));
	if (o->slots)
		output_row("swap area", "%s slots, %s%s; %s",
			   count_text(o->slots, a),
			   size_text((uint64_t)o->slots * o->block_size, b),
			   o->no_checksum ? ", no checksums" : "", r->place);
	else
		output_row("swap area", "none");
	output_row("requests", "%s", count_text(r->requests, a));
	output_row("blocks", "%s", count_text(r->blocks, a));
	output_row("hits", "%s blocks, %s", count_text(hits, a),
		   percent_text(hits, r->blocks, b));
	output_row("  in memory", "%s blocks, %s",
		   count_text(r->hits_memory, a),
		   percent_text(r->hits_memory, r->blocks, b));
	output_row("  in swap", "%s blocks, %s", count_text(r->hits_swap, a),
		   percent_text(r->hits_swap, r->blocks, b));
	output_row("hit rate", "%.4f", r->blocks ?
		   (double)hits / (double)r->blocks : 0.0);
	output_row("corrupt", "%s blocks; every byte of %s was checked",
		   count_text(r->corrupt, a),
		   size_text(hits * o->block_size, b));
	output_row("swapped out", "%s, %s blocks",
		   size_text(st->swap_out_bytes, a),
		   count_text(st->swap_outs, b));
	output_row("swapped in", "%s, %s blocks",
		   size_text(st->swap_in_bytes, a),
		   count_text(st->swap_ins, b));
	output_row("lost", "%s blocks for want of room, %s expired",
		   count_text(st->purged + st->slots_evicted, a),
		   count_text(st->expired, b));
	if (st->checksum_errors || st->read_errors || st->write_errors)
		output_row("I/O errors", "%s reads, %s writes, %s wrong "
			   "checksums; each a miss",
			   count_text(st->read_errors, a),
			   count_text(st->write_errors, b),
			   count_text(st->checksum_errors, c));
	if (r->unstored)
		output_row("not stored", "%s blocks",
			   count_text(r->unstored, a));
	output_row("time", "%.2f s, and %.2f s to set up", r->seconds,
		   r->setup_seconds);
	output_row("throughput", "%s checked or filled, %s requests/s",
		   rate_text(r->blocks * o->block_size, r->seconds, a),
		   count_text(r->seconds > 0 ?
			      (uint64_t)((double)r->requests / r->seconds) : 0,
			      b));
}

static int run(struct ctx *ctx, const struct args *args)
{
	struct trace trace = { 0 };
	struct replay_opts o = { 0 };
	struct replay_result res;
	uint64_t limit;
	int ret;

	if (parse(args, &o, &limit) || session_open(ctx))
		return EXIT_ERROR;
	ret = trace_read(&trace, args->pos[0], limit);
	if (!ret)
		ret = replay_run(ctx, &trace, &o, &res);
	trace_free(&trace);
	if (ret)
		return ret;
	if (ctx->json)
		ret = replay_json(ctx, &o, &res);
	else
		print_text(ctx, &o, &res);
	return ret ? ret : res.corrupt ? EXIT_CORRUPT : 0;
}

const struct command cmd_replay = {
	.name = "replay",
	.pos = "TRACE",
	.min_pos = 1,
	.max_pos = 1,
	.summary = "Replay a request trace through a pool and check every byte "
		   "found.",
	.details =
		"TRACE has a JSON object a line: timestamp (ms), hash_ids (the "
		"blocks of the prompt in order) and optionally input_length "
		"and output_length (tokens); - is standard input.  For each "
		"request the longest prefix is looked up, swapped blocks are "
		"brought back, every byte of every block found is compared "
		"with what was stored, and the rest is stored.\n"
		"The pool gets --frames and the blocks of the longest request; "
		"after each request the least recently used blocks beyond "
		"--frames move to the swap area, or are lost without one.  A "
		"block is named by its id and all ids before it: the same id "
		"behind other blocks, or twice in one request, is another "
		"block with the same bytes.",
	.opts = opts,
	.run = run,
};
