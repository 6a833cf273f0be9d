// SPDX-License-Identifier: MIT
/*
 * kvmmctl demo: what kvmm is for, in half a minute.  A made-up chat service
 * runs through a pool that is too small for it, and a table says where the
 * blocks of each prompt were found.
 */
#include "output.h"
#include "replay.h"
#include "size.h"
#include "workload.h"

#define MAX_SECONDS	35	/* a slow machine must not make a long demo */

static const struct opt opts[] = {
	{ OPT_MEMORY, "memory", "SIZE", "memory of the pool (default 512M)" },
	{ OPT_DISK, "disk", "SIZE", "size of its swap area (default 1G)" },
	{ OPT_BLOCK_SIZE, "block-size", "SIZE",
	  "bytes of a block, a power of two from 4K to 256M (default "
	  "256K)" },
	{ OPT_SEED, "seed", "N", "makes other conversations (default 1)" },
	{ 0, NULL, NULL, NULL },
};

static int parse(const struct args *args, struct replay_opts *o,
		 struct workload *w)
{
	uint64_t memory = 512 << 20, disk = 1 << 30, size = 256 << 10;
	uint64_t seed = 1, blocks;

	if (opt_block_size(args, &size) ||
	    opt_size(args, OPT_MEMORY, 1 << 20, 1ULL << 44, &memory) ||
	    opt_size(args, OPT_DISK, 1 << 20, 1ULL << 44, &disk) ||
	    opt_count(args, OPT_SEED, 0, UINT64_MAX, &seed))
		return EXIT_ERROR;
	blocks = memory / size + disk / size;
	if (memory / size < 16 || disk / size < 16)
		return fail("memory and disk must each have room for 16 "
			    "blocks");
	if (blocks > KVMM_MAX_BLOCKS / 4)
		return fail("--memory and --disk have room for %llu blocks, "
			    "the most is %d", (unsigned long long)blocks,
			    KVMM_MAX_BLOCKS / 4);
	*o = (struct replay_opts){
		.block_size = (unsigned int)size,
		.frames = (unsigned int)(memory / size),
		.slots = (unsigned int)(disk / size),
		.max_seconds = MAX_SECONDS,
		.memory_hint = "give less --memory",
	};
	*w = (struct workload){
		.seed = seed,
		.conversations = (unsigned int)(blocks * 2 /
						WORKLOAD_BLOCKS) + 1,
		.working_set = (unsigned int)(blocks * 2),
	};
	return 0;
}

static void introduce(const struct ctx *ctx, const struct replay_opts *o,
		      const struct workload *w)
{
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT], d[SIZE_TEXT],
		e[SIZE_TEXT];

	printf("kvmm demo: backend %s, I/O by %s\n\n",
	       kvmm_backend_name(ctx->kv), kvmm_io_name(ctx->kv));
	printf("%s conversations with a language model, %s requests, %d system "
	       "prompts.\n", count_text(w->conversations, a),
	       count_text(w->turns, b), WORKLOAD_PROMPTS);
	printf("Each request sends its whole conversation again.  The model's "
	       "KV data of it\ncomes in blocks of %s: what is still at hand "
	       "need not be computed again.\nAll blocks together are %s; there "
	       "are %s of memory and %s of disk for them.\n\n",
	       size_text(o->block_size, a),
	       size_text(w->distinct * o->block_size, c),
	       size_text((uint64_t)o->frames * o->block_size, d),
	       size_text((uint64_t)o->slots * o->block_size, e));
	fflush(stdout);
}

static void line(const char *what, uint64_t n, uint64_t all, uint64_t size)
{
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];

	printf("  %-36s %12s %9s %12s\n", what, count_text(n, a),
	       percent_text(n, all, b), size_text(n * size, c));
}

static void report(const struct trace *trace, const struct replay_opts *o,
		   const struct replay_result *r)
{
	uint64_t hits = r->hits_memory + r->hits_swap;
	uint64_t fresh = workload_distinct(trace, r->requests);
	uint64_t size = o->block_size, missed = r->blocks - hits;
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT], d[SIZE_TEXT];

	if (r->requests < trace->nr)
		printf("Stopped after %d s, with %s of %s requests.\n\n",
		       MAX_SECONDS, count_text(r->requests, a),
		       count_text(trace->nr, b));
	printf("  %-36s %12s %9s %12s\n", "where a prompt's blocks were",
	       "blocks", "share", "data");
	line("in memory", r->hits_memory, r->blocks, size);
	line("on disk, brought back", r->hits_swap, r->blocks, size);
	line("given up before: computed again", missed - fresh, r->blocks,
	     size);
	line("never seen before: computed", fresh, r->blocks, size);
	line("all", r->blocks, r->blocks, size);
	printf("\nNot computed again: %s of all prompt blocks.\n",
	       percent_text(hits, r->blocks, a));
	if (r->corrupt)
		printf("WRONG BYTES in %s blocks of what was found.\n",
		       count_text(r->corrupt, a));
	else
		printf("Every byte of what was found was checked: %s, none "
		       "wrong.\n", size_text(hits * size, a));
	printf("Written to disk %s, read back %s; %s requests in %.1f s, %s "
	       "found or stored.\n",
	       size_text(r->stat.swap_out_bytes, a),
	       size_text(r->stat.swap_in_bytes, b),
	       count_text(r->requests, c), r->seconds,
	       rate_text(r->blocks * size, r->seconds, d));
}

static int run(struct ctx *ctx, const struct args *args)
{
	struct trace trace = { 0 };
	struct replay_result res;
	struct replay_opts o;
	struct workload w;
	int ret;

	if (parse(args, &o, &w) || replay_check(&o, 0) || session_open(ctx))
		return EXIT_ERROR;
	if (workload_make(&w, &trace)) {
		trace_free(&trace);
		return fail("out of memory");
	}
	if (!ctx->json)
		introduce(ctx, &o, &w);
	ret = replay_run(ctx, &trace, &o, &res);
	if (!ret && ctx->json)
		ret = replay_json(ctx, &o, &res);
	else if (!ret)
		report(&trace, &o, &res);
	trace_free(&trace);
	return ret ? ret : res.corrupt ? EXIT_CORRUPT : 0;
}

const struct command cmd_demo = {
	.name = "demo",
	.pos = "",
	.summary = "Show in half a minute what kvmm does.",
	.details = "Generated conversations, more than fit, run through a pool "
		   "and its swap area: a file without a name in $TMPDIR, "
		   "/var/tmp or the current folder.  Every byte of what is "
		   "found is checked.",
	.opts = opts,
	.run = run,
};
