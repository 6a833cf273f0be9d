// SPDX-License-Identifier: MIT
/*
 * A replay from end to end: is there room, make the pool and its area, go
 * through the requests, and leave nothing behind.
 */
#include "limit.h"
#include "output.h"
#include "replay.h"
#include "room.h"
#include "size.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define DESCRIPTOR_BYTES 256	/* of a block, with its share of the tables */

int replay_check(const struct replay_opts *o, unsigned int longest)
{
	uint64_t frames = (uint64_t)o->frames + longest;
	uint64_t blocks = frames + o->slots, need, have;
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];
	const char *where = "";
	struct room_cgroup cg;

	if (blocks > KVMM_MAX_BLOCKS)
		return fail("the pool would have %s frames and slots, the most "
			    "is %s", count_text(blocks, a),
			    count_text(KVMM_MAX_BLOCKS, b));
	need = frames * o->block_size + blocks * DESCRIPTOR_BYTES;
	have = room_machine();
	if (room_cgroup(&cg) && cg.left < have) {
		have = cg.left;
		where = ", limited by ";
	}
	if (need > have)
		return fail("the pool needs %s of memory for %s frames, and %s "
			    "is available%s%s; %s", size_text(need, a),
			    count_text(frames, c), size_text(have, b),
			    where, *where ? cg.path : "", o->memory_hint);
	return 0;
}

static int make_pool(struct ctx *ctx, const struct replay_opts *o,
		     const char *name, struct replay_result *res,
		     struct kvmm_pool **pool)
{
	struct kvmm_pool_opts opts = {
		.size = sizeof(opts),
		.flags = KVMM_POOL_MANUAL_CLOCK,
		.name = name,
		.policy = o->policy,
		.block_size = o->block_size,
		.nr_frames = res->pool_frames,
		.nr_slots = o->slots,
	};
	char size[SIZE_TEXT], count[SIZE_TEXT];
	const char *why;
	int rc;

	session_keep_errors();
	rc = kvmm_pool_create(ctx->kv, &opts, pool);
	why = session_kept_error();
	if (!rc)
		return 0;
	if (!strcmp(kvmm_backend_name(ctx->kv), "user")) {
		if (*why)
			return fail("%s", why);
	} else if (rc == -ENOMEM) {
		return limit_memory(ctx, name, (uint64_t)o->block_size *
				    res->pool_frames, 0);
	} else if (rc == -EUSERS) {
		return limit_pools(ctx, name);
	} else if (rc == -EPERM) {
		return limit_creators();
	}
	return fail("can't make a pool of %s frames of %s: %s",
		    count_text(res->pool_frames, count),
		    size_text(o->block_size, size), strerror(-rc));
}

static int go_through(struct kvmm_pool *pool, struct replayer *rp,
		      const struct trace *trace, const struct replay_opts *o,
		      struct replay_result *res)
{
	uint64_t now = 0;
	struct progress p;
	int rc, ret = 0;

	progress_start(&p, "requests", trace->nr);
	for (size_t i = 0; i < trace->nr && !ret && !signal_seen(); i++) {
		const struct request *req = &trace->reqs[i];

		if (req->time_ms > now) {
			now = req->time_ms;
			rc = kvmm_pool_clock(pool, now);
			if (rc) {
				ret = fail("can't set the pool's clock: %s",
					   strerror(-rc));
				break;
			}
		}
		ret = replayer_request(rp, req, trace->ids + req->first);
		if (!ret)
			res->requests++;
		progress_step(&p, res->requests,
			      res->blocks * o->block_size);
		if (o->max_seconds && now_seconds() - p.start > o->max_seconds)
			break;
	}
	res->seconds = now_seconds() - p.start;
	progress_end(&p);
	if (!ret && signal_seen() && res->requests < trace->nr) {
		char a[SIZE_TEXT], b[SIZE_TEXT];

		ret = fail("interrupted after %s of %s requests",
			   count_text(res->requests, a),
			   count_text(trace->nr, b));
	}
	return ret;
}

static int with_pool(struct kvmm_pool *pool, const struct trace *trace,
		     const struct replay_opts *opts, struct area *area,
		     double start, struct replay_result *res)
{
	struct replayer *rp;
	int rc, ret = 0;

	rp = replayer_new(pool, opts, trace->longest, res);
	if (!rp)
		return fail("out of memory");
	if (opts->slots)
		ret = area_attach(area, pool);
	res->setup_seconds = now_seconds() - start;
	if (!ret)
		ret = go_through(pool, rp, trace, opts, res);
	replayer_free(rp);
	if (ret)
		return ret;
	rc = kvmm_pool_stat(pool, &res->stat);
	if (rc)
		return fail("can't read the pool's counters: %s",
			    strerror(-rc));
	if (res->stat.degraded)
		note("warning: the swap area failed, so blocks were lost "
		     "instead of written to it");
	return 0;
}

int replay_run(struct ctx *ctx, const struct trace *trace,
	       const struct replay_opts *opts, struct replay_result *res)
{
	struct kvmm_pool *pool = NULL;
	struct area area = { .fd = -1 };
	double start = now_seconds();
	char name[KVMM_NAME_LEN];
	int ret;

	*res = (struct replay_result){
		.io = kvmm_io_name(ctx->kv),
		.pool_frames = opts->frames + trace->longest,
	};
	if (replay_check(opts, trace->longest))
		return EXIT_ERROR;
	if (opts->slots && area_prepare(&area, opts->swap, opts->slots,
					opts->block_size, opts->no_checksum))
		return EXIT_ERROR;
	area.io_timeout_ms = opts->io_timeout_ms;
	strcpy(res->place, area.place);
	snprintf(name, sizeof(name), "replay-%d", (int)getpid());
	ret = make_pool(ctx, opts, name, res, &pool);
	if (!ret) {
		ret = with_pool(pool, trace, opts, &area, start, res);
		kvmm_pool_close(pool);
		kvmm_pool_destroy(ctx->kv, name, 0);
	}
	area_end(&area, true);
	return ret;
}
