// SPDX-License-Identifier: MIT
/*
 * kvmmctl pool create.  A pool is there with all that it needs, or not at all.
 */
#include "area.h"
#include "kvmmctl.h"
#include "limit.h"
#include "output.h"
#include "pool.h"
#include "populate.h"
#include "size.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct opt create_opts[] = {
	{ OPT_BLOCK_SIZE, "block-size", "SIZE",
	  "bytes of a block, a power of two from 4K to 256M; must be given" },
	{ OPT_FRAMES, "frames", "N", "blocks in memory; must be given" },
	{ OPT_SLOTS, "slots", "N", "blocks in a swap area, at most (default 0)" },
	{ OPT_SWAP, "swap", "FILE",
	  "the swap area: a file, made anew, or a block device, whose content "
	  "is lost; it stays in use as long as the pool" },
	{ OPT_NO_CHECKSUM, "no-checksum", NULL,
	  "don't check what is read back" },
	{ OPT_IO_TIMEOUT, "io-timeout", "MS",
	  "how long the swap area may take to move a block (default 30000)" },
	{ OPT_POLICY, "policy", "lru", "who is evicted first (default lru)" },
	{ OPT_MODE, "mode", "MODE",
	  "who may open the pool, octal like a file's (default 0600)" },
	{ OPT_HOLDS, "holds", "N",
	  "pins that second and further clients can hold at once (default a "
	  "quarter of the frames, at least 1024)" },
	{ OPT_QUARANTINE, "quarantine", "MS",
	  "how long frames rest that a dead client was filling (default 0)" },
	{ OPT_THREADS, "threads", "N",
	  "threads that bring the memory in (default one a CPU, at most 16)" },
	{ OPT_POPULATE, "populate", "wait|async|none",
	  "wait until the memory is there, let it come in the background, or "
	  "leave it to pool populate (default wait)" },
	{ OPT_CLEAN, "clean", "LOW:HIGH",
	  "write cold blocks out in the background when less than LOW permille "
	  "of the frames can be had at once, until HIGH can (default 0:0, "
	  "never)" },
	{ OPT_ELASTIC, "elastic", "N",
	  "frames that are given back to the system when it is short of memory "
	  "(default 0)" },
	{ OPT_CHUNK, "chunk", "N",
	  "frames of a chunk, the unit of leases (default at most 64 MiB)" },
	{ OPT_NODES, "nodes", "LIST",
	  "NUMA nodes that the memory comes from, as in 0 or 0-1,3 (default: "
	  "where kvmmctl runs)" },
	{ OPT_PREFER_NODES, "prefer-nodes", NULL,
	  "other nodes, too, when those are full" },
	{ 0, NULL, NULL, NULL },
};

static int parse_mode(const struct args *args, unsigned int *out)
{
	const char *text = args->value[OPT_MODE];
	unsigned long v;
	char *end;

	if (!text)
		return 0;
	v = strtoul(text, &end, 8);
	if (!*text || *end || v > 0777 || strspn(text, "01234567") == 0)
		return fail("--mode: '%s' is not an octal number up to 0777",
			    text);
	if (!v)
		return fail("--mode: 0 would let nobody open the pool");
	*out = (unsigned int)v;
	return 0;
}

/* How the memory comes; *@wait: created only when all of it is there. */
static int parse_populate(const struct args *args, struct kvmm_pool_opts *o,
			  bool *wait)
{
	const char *text = args->value[OPT_POPULATE];

	*wait = !text || !strcmp(text, "wait");
	if (text && !strcmp(text, "none")) {
		if (args->value[OPT_THREADS])
			return fail("--threads: with --populate none there is "
				    "nothing for them to do");
		o->populate_threads = -1;
		return 0;
	}
	if (!*wait && strcmp(text, "async"))
		return fail("--populate: '%s' is unknown; there are: wait, "
			    "async, none", text);
	o->flags |= KVMM_POOL_POPULATE_ASYNC;
	return 0;
}

/* "LOW:HIGH", permille. */
static int parse_clean(const struct args *args, struct kvmm_pool_opts *o)
{
	const char *text = args->value[OPT_CLEAN];
	unsigned int low, high;
	int end = 0;

	if (!text)
		return 0;
	if (text[strspn(text, "0123456789:")] ||
	    sscanf(text, "%4u:%4u%n", &low, &high, &end) != 2 || text[end])
		return fail("--clean: '%s' is not LOW:HIGH, in permille, as in "
			    "100:200", text);
	if (low > high || high > 1000)
		return fail("--clean: LOW is at most HIGH, and HIGH at most "
			    "1000");
	o->clean_low = (unsigned short)low;
	o->clean_high = (unsigned short)high;
	return 0;
}

/* Nodes below 64, as ranges: "0-1,3". */
static int parse_nodes(const struct args *args, struct kvmm_pool_opts *o)
{
	const char *text = args->value[OPT_NODES], *p = text;
	unsigned int first, last;
	int end;

	if (args->value[OPT_PREFER_NODES]) {
		if (!text)
			return fail("--prefer-nodes needs --nodes");
		o->flags |= KVMM_POOL_NODES_PREFER;
	}
	while (p) {
		end = 0;
		if (sscanf(p, "%2u%n", &first, &end) != 1 || *p < '0')
			break;
		p += end;
		last = first;
		if (*p == '-') {
			end = 0;
			if (sscanf(++p, "%2u%n", &last, &end) != 1 || *p < '0')
				break;
			p += end;
		}
		if (last < first || last > 63)
			break;
		for (; first <= last; first++)
			o->nodes |= 1ULL << first;
		if (!*p)
			return 0;
		if (*p++ != ',')
			break;
	}
	return text ? fail("--nodes: '%s' is not a list of nodes up to 63, as "
			   "in 0-1,3", text) : 0;
}

static int create_args(const struct args *args, struct kvmm_pool_opts *o)
{
	uint64_t size = 0, frames = 0, slots = 0, holds = 0, rest = 0;
	uint64_t threads = 0, elastic = 0, chunk = 0;

	if (!args->value[OPT_BLOCK_SIZE])
		return fail("--block-size is missing");
	if (!args->value[OPT_FRAMES])
		return fail("--frames is missing");
	if (pool_check_name(args->pos[0]) || opt_block_size(args, &size) ||
	    opt_count(args, OPT_FRAMES, 1, KVMM_MAX_BLOCKS, &frames) ||
	    opt_count(args, OPT_SLOTS, 0, KVMM_MAX_BLOCKS, &slots) ||
	    opt_count(args, OPT_HOLDS, 1, UINT32_MAX, &holds) ||
	    opt_count(args, OPT_QUARANTINE, 0, KVMM_MAX_QUARANTINE_MS, &rest) ||
	    opt_count(args, OPT_THREADS, 1, KVMM_MAX_WORKERS, &threads) ||
	    opt_count(args, OPT_ELASTIC, 0, KVMM_MAX_BLOCKS, &elastic) ||
	    opt_count(args, OPT_CHUNK, 1, KVMM_MAX_BLOCKS, &chunk) ||
	    opt_policy(args, &o->policy) || parse_mode(args, &o->mode) ||
	    parse_clean(args, o) || parse_nodes(args, o))
		return EXIT_ERROR;
	if (args->value[OPT_SWAP] && !slots)
		return fail("--swap needs --slots");
	if (frames + slots > KVMM_MAX_BLOCKS)
		return fail("frames and slots together can be at most %d",
			    KVMM_MAX_BLOCKS);
	if (elastic > frames)
		return fail("--elastic: there are only %llu frames",
			    (unsigned long long)frames);
	if (chunk & (chunk - 1))
		return fail("--chunk: %llu is not a power of two",
			    (unsigned long long)chunk);
	if (elastic && chunk && (frames % chunk || elastic % chunk))
		return fail("--elastic: frames and elastic frames must be "
			    "whole chunks of %llu", (unsigned long long)chunk);
	o->block_size = (unsigned int)size;
	o->nr_frames = (unsigned int)frames;
	o->nr_slots = (unsigned int)slots;
	o->nr_holds = (unsigned int)holds;
	o->quarantine_ms = (unsigned int)rest;
	o->populate_threads = (int)threads;
	o->nr_elastic = (unsigned int)elastic;
	o->chunk_frames = (unsigned int)chunk;
	return 0;
}

static int created(const struct ctx *ctx, const struct kvmm_pool_opts *o,
		   const struct area *area, const struct kvmm_pool_stat *st)
{
	uint64_t bytes = (uint64_t)o->block_size * o->nr_frames;
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];

	if (ctx->json)
		return output_json(json_pack(
			"{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o?}",
			"backend", kvmm_backend_name(ctx->kv),
			"name", o->name,
			"block_size", (json_int_t)o->block_size,
			"frames", (json_int_t)o->nr_frames,
			"slots", (json_int_t)o->nr_slots,
			"memory_bytes", (json_int_t)bytes,
			"frames_online", (json_int_t)st->frames_online,
			"frames_populating", (json_int_t)st->frames_populating,
			"swap", output_text(area->path)), true);
	output_row("backend", "%s", kvmm_backend_name(ctx->kv));
	output_row("pool", "%s: %s frames of %s, %s of memory", o->name,
		   count_text(o->nr_frames, a), size_text(o->block_size, b),
		   size_text(bytes, c));
	if (st->frames_populating)
		output_row("memory", "%s frames are to come; kvmmctl pool "
			   "populate %s --wait waits for them",
			   count_text(st->frames_populating, a), o->name);
	else if (st->frames_online < o->nr_frames)
		output_row("memory", "%s frames have none; kvmmctl pool "
			   "populate %s brings it in",
			   count_text(o->nr_frames - st->frames_online, a),
			   o->name);
	if (area->path)
		output_row("swap area", "%s slots, %s: %s",
			   count_text(o->nr_slots, a),
			   size_text(area->bytes, b), area->path);
	else
		output_row("swap area", "none%s", o->nr_slots ?
			   "; its owner can attach one" : "");
	return 0;
}

static int was_destroyed(const struct kvmm_pool_opts *o)
{
	return fail("someone destroyed %s before it was complete", o->name);
}

/* All of the memory; a signal takes back what has come, and the pool. */
static int await_memory(struct ctx *ctx, struct kvmm_pool *pool,
			const struct kvmm_pool_opts *o)
{
	int rc = populate_watch(pool, o->nr_frames);

	if (rc == -EINTR) {
		kvmm_populate_cancel(pool);
		return fail("interrupted: %s was not made", o->name);
	}
	if (rc == -ENOMEM)
		return populate_no_memory(ctx, o->name, pool, 0);
	if (rc == -ENODEV)
		return was_destroyed(o);
	return rc ? fail("can't create %s: %s", o->name, strerror(-rc)) : 0;
}

/* What the new pool needs beside itself. */
static int complete(struct ctx *ctx, struct kvmm_pool *pool,
		    const struct kvmm_pool_opts *o, struct area *area,
		    bool wait, struct kvmm_pool_stat *st)
{
	int rc;

	if (wait && await_memory(ctx, pool, o))
		return EXIT_ERROR;
	if (area->path && area_attach(area, pool))
		return EXIT_ERROR;
	rc = kvmm_pool_stat(pool, st);
	return rc ? fail("can't read the counters of %s: %s", o->name,
			 strerror(-rc)) : 0;
}

/* Not one that has the name now because someone else has destroyed ours. */
static void take_back(struct ctx *ctx, struct kvmm_pool *pool, const char *name)
{
	struct kvmm_pool_stat st;

	if (kvmm_pool_stat(pool, &st) != -ENODEV)
		kvmm_pool_destroy(ctx->kv, name, KVMM_POOL_FORCE);
}

static int pool_create(struct ctx *ctx, const struct args *args)
{
	struct kvmm_pool_opts o = { .size = sizeof(o), .name = args->pos[0] };
	struct area area = { .fd = -1 };
	struct kvmm_pool_stat st;
	struct kvmm_pool *pool;
	uint64_t timeout = 0;
	bool wait;
	int rc, ret;

	if (create_args(args, &o) || parse_populate(args, &o, &wait) ||
	    opt_count(args, OPT_IO_TIMEOUT, 1, KVMM_MAX_IO_TIMEOUT_MS,
		      &timeout) ||
	    session_open_kernel(ctx, "nothing would be left to use"))
		return EXIT_ERROR;
	if (args->value[OPT_SWAP] &&
	    area_prepare(&area, args->value[OPT_SWAP], o.nr_slots,
			 o.block_size, args->value[OPT_NO_CHECKSUM]))
		return EXIT_ERROR;
	area.io_timeout_ms = (unsigned int)timeout;
	area.keep = true;
	rc = kvmm_pool_create(ctx->kv, &o, &pool);
	if (rc == -EEXIST)
		return fail("there is a pool %s already", o.name);
	if (rc == -ENOMEM)
		return limit_memory(ctx, o.name, o.block_size *
				    (uint64_t)(o.nr_frames - o.nr_elastic),
				    0);
	if (rc == -EUSERS)
		return limit_pools(ctx, o.name);
	if (rc == -EPERM)
		return limit_creators();
	if (rc == -ENODEV)
		return was_destroyed(&o);
	if (rc == -EINVAL && o.nodes)
		return fail("--nodes: a node does not exist, has no memory, or "
			    "may not be used here");
	if (rc)
		return fail("can't create %s: %s", o.name, strerror(-rc));
	ret = complete(ctx, pool, &o, &area, wait, &st);
	if (ret)
		take_back(ctx, pool, o.name);
	kvmm_pool_close(pool);
	area_end(&area, ret != 0);
	return ret ? ret : created(ctx, &o, &area, &st);
}

const struct command cmd_pool_create = {
	.name = "pool create",
	.pos = "NAME",
	.min_pos = 1,
	.max_pos = 1,
	.summary = "Create a pool; it lives until it is destroyed.",
	.details = "Kernel backend only: pools of the user backend live in the "
		   "process that makes them and end with it.",
	.opts = create_opts,
	.run = pool_create,
};
