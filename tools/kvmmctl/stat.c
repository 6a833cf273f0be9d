// SPDX-License-Identifier: MIT
/*
 * kvmmctl stat: counters of the machine's pools, of one pool, and what changes.
 */
#include "counters.h"
#include "hist.h"
#include "kvmmctl.h"
#include "output.h"
#include "pool.h"
#include "size.h"

#include <errno.h>
#include <string.h>
#include <time.h>

static const struct opt opts[] = {
	{ OPT_WATCH, "watch", "SECONDS",
	  "a line every so often: what happened meanwhile; needs NAME" },
	{ OPT_COUNT, "count", "N", "end after N lines of --watch" },
	{ 0, NULL, NULL, NULL },
};

/* Names of KVMM_FEATURE_*, by bit. */
static const char *const feature_names[] = {
	"io_uring", "checksums", "elastic", "events", "export", "writeback",
	"numa", "deadlines", "workers",
};

#define FEATURES_TEXT	128

static const char *features(uint64_t bits, char buf[FEATURES_TEXT])
{
	size_t at = 0;

	buf[0] = 0;
	for (size_t i = 0; i < ARRAY_SIZE(feature_names); i++) {
		if (bits >> i & 1)
			at += (size_t)snprintf(buf + at, FEATURES_TEXT - at,
					       "%s%s", at ? ", " : "",
					       feature_names[i]);
	}
	return buf;
}

static int add_pool(const struct kvmm_pool_entry *e, void *arg)
{
	return json_array_append_new(arg, pool_entry_json(e)) ?
		fail("out of memory") : 0;
}

static int print_pool(const struct kvmm_pool_entry *e, void *arg)
{
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];

	(void)arg;
	output_row("pool", "%s: %s frames and %s slots of %s, %u clients",
		   e->name, count_text(e->nr_frames, a),
		   count_text(e->nr_slots, b), size_text(e->block_size, c),
		   e->nr_clients);
	return 0;
}

/* Without NAME: the backend and an overview of its pools. */
static int overview(struct ctx *ctx)
{
	struct kvmm_info info = { 0 };
	char a[SIZE_TEXT], feat[FEATURES_TEXT];
	json_t *list;
	int rc;

	rc = kvmm_info(ctx->kv, &info);
	if (rc)
		return fail("can't ask what this backend offers: %s",
			    strerror(-rc));
	if (ctx->json) {
		list = json_array();
		if (!list)
			return fail("out of memory");
		if (pool_each(ctx, add_pool, list)) {
			json_decref(list);
			return EXIT_ERROR;
		}
		return output_json(json_pack(
			"{s:s, s:s, s:s, s:I, s:I, s:s, s:I, s:o}",
			"backend", kvmm_backend_name(ctx->kv),
			"io", kvmm_io_name(ctx->kv),
			"version", info.version,
			"abi", (json_int_t)info.abi,
			"max_block_size", (json_int_t)info.max_block_size,
			"features", features(info.features, feat),
			"pinned_bytes", (json_int_t)info.pinned_bytes,
			"pools", list), true);
	}
	output_row("backend", "%s, I/O by %s", kvmm_backend_name(ctx->kv),
		   kvmm_io_name(ctx->kv));
	output_row("version", "%s, interface %u", info.version, info.abi);
	output_row("features", "%s", features(info.features, feat));
	output_row("largest block", "%s", size_text(info.max_block_size, a));
	output_row("memory", "%s in %u pool%s", size_text(info.pinned_bytes, a),
		   info.nr_pools, info.nr_pools == 1 ? "" : "s");
	return pool_each(ctx, print_pool, NULL);
}

static int one(struct ctx *ctx, const char *name)
{
	struct kvmm_pool_stat st;
	json_t *obj;

	if (pool_read(ctx, name, &st))
		return EXIT_ERROR;
	if (ctx->json) {
		obj = counters_json(&st);
		if (obj && (json_object_set_new(obj, "backend", json_string(
				kvmm_backend_name(ctx->kv))) ||
			    json_object_set_new(obj, "name",
						json_string(name)) ||
			    hists_json(obj, name))) {
			json_decref(obj);
			obj = NULL;
		}
		return output_json(obj, true);
	}
	printf("%-20s %12s\n", "backend", kvmm_backend_name(ctx->kv));
	printf("%-20s %12s\n", "name", name);
	counters_text(&st);
	hists_text(name);
	return 0;
}

static void watch_head(void)
{
	printf("%9s %9s %9s %9s %9s %10s %10s %12s %12s\n", "lookups/s",
	       "memory/s", "swap/s", "misses/s", "evicted/s", "out", "in",
	       "frames", "slots");
}

static uint64_t per_second(uint64_t now, uint64_t before, double seconds)
{
	return (uint64_t)((double)(now - before) / seconds + 0.5);
}

static int watch_line(struct ctx *ctx, const struct kvmm_pool_stat *a,
		      const struct kvmm_pool_stat *b, double seconds)
{
	char out[SIZE_TEXT], in[SIZE_TEXT], frames[SIZE_TEXT],
		slots[SIZE_TEXT];

	if (ctx->json) {
		json_t *obj = counters_json(b);

		if (obj && (json_object_set_new(obj, "backend", json_string(
				kvmm_backend_name(ctx->kv))) ||
			    json_object_set_new(obj, "interval_seconds",
						json_real(seconds)))) {
			json_decref(obj);
			obj = NULL;
		}
		return output_json(obj, false);
	}
	printf("%9llu %9llu %9llu %9llu %9llu %10s %10s %12s %12s\n",
	       (unsigned long long)per_second(b->lookups, a->lookups, seconds),
	       (unsigned long long)per_second(b->hits_memory, a->hits_memory,
					      seconds),
	       (unsigned long long)per_second(b->hits_swap + b->hits_pending,
					      a->hits_swap + a->hits_pending,
					      seconds),
	       (unsigned long long)per_second(b->misses, a->misses, seconds),
	       (unsigned long long)per_second(b->evicted + b->purged,
					      a->evicted + a->purged, seconds),
	       rate_text(b->swap_out_bytes - a->swap_out_bytes, seconds, out),
	       rate_text(b->swap_in_bytes - a->swap_in_bytes, seconds, in),
	       count_text(frames_used(b), frames),
	       count_text(slots_used(b), slots));
	return 0;
}

static int watch(struct ctx *ctx, const char *name, uint64_t seconds,
		 uint64_t count)
{
	struct kvmm_pool_stat a, b;
	double before = now_seconds();

	if (pool_read(ctx, name, &a))
		return EXIT_ERROR;
	if (!ctx->json)
		output_row("backend", "%s", kvmm_backend_name(ctx->kv));
	for (uint64_t i = 0; i < count; i++) {
		struct timespec ts = { .tv_sec = (time_t)seconds };
		double now;

		if (!ctx->json && i % 20 == 0)
			watch_head();
		fflush(stdout);
		/* a signal that asks to stop ends the sleep and the watch */
		if (nanosleep(&ts, NULL) && signal_seen())
			return 0;
		if (pool_read(ctx, name, &b))
			return EXIT_ERROR;
		now = now_seconds();
		if (watch_line(ctx, &a, &b, now - before))
			return EXIT_ERROR;
		before = now;
		a = b;
	}
	return 0;
}

static int run(struct ctx *ctx, const struct args *args)
{
	const char *name = args->nr_pos ? args->pos[0] : NULL;
	uint64_t seconds = 0, count = UINT64_MAX;

	if (opt_count(args, OPT_WATCH, 1, 86400, &seconds) ||
	    opt_count(args, OPT_COUNT, 1, UINT64_MAX, &count))
		return EXIT_ERROR;
	if (!seconds && args->value[OPT_COUNT])
		return fail("--count needs --watch");
	if (!name) {
		if (seconds)
			return fail("--watch needs the NAME of a pool");
		return session_open(ctx) ? EXIT_ERROR : overview(ctx);
	}
	if (pool_check_name(name) ||
	    session_open_kernel(ctx, "there is none to look at"))
		return EXIT_ERROR;
	return seconds ? watch(ctx, name, seconds, count) : one(ctx, name);
}

const struct command cmd_stat = {
	.name = "stat",
	.pos = "[NAME]",
	.min_pos = 0,
	.max_pos = 1,
	.summary = "Print the counters of a pool, or an overview of all.",
	.details = "Counters of pools are there with the kernel backend only: "
		   "pools of the user backend live in the process that makes "
		   "them.",
	.opts = opts,
	.run = run,
};
