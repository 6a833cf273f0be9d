// SPDX-License-Identifier: MIT
/*
 * kvmmctl pool populate: memory for the frames of a pool that have none.  The
 * kernel's workers bring it in, so whoever asked may go.
 */
#include "populate.h"
#include "kvmmctl.h"
#include "limit.h"
#include "output.h"
#include "pool.h"
#include "size.h"

#include <errno.h>
#include <string.h>

#define STEP_MS		200

static const struct opt opts[] = {
	{ OPT_THREADS, "threads", "N",
	  "kernel threads that bring it in (default one a CPU, at most 16)" },
	{ OPT_ASYNC, "async", NULL, "don't wait for it" },
	{ OPT_WAIT, "wait", NULL,
	  "only wait for what is in progress, whoever asked for it" },
	{ OPT_CANCEL, "cancel", NULL,
	  "end what is in progress; memory that has come stays" },
	{ 0, NULL, NULL, NULL },
};

int populate_watch(struct kvmm_pool *pool, uint64_t frames)
{
	size_t block = kvmm_pool_block_size(pool);
	struct progress p;
	uint64_t done;
	long left;
	int rc;

	progress_start(&p, "frames", frames);
	for (;;) {
		rc = kvmm_populate_wait(pool, STEP_MS);
		if (rc == -ETIMEDOUT || rc == -EINTR)
			rc = signal_seen() ? -EINTR : -EAGAIN;
		if (rc != -EAGAIN)
			break;
		left = kvmm_populate_left(pool);
		if (left < 0)
			continue;
		done = (uint64_t)left < frames ? frames - (uint64_t)left : 0;
		progress_step(&p, done, done * block);
	}
	progress_end(&p);
	return rc;
}

int populate_no_memory(struct ctx *ctx, const char *name,
		       struct kvmm_pool *pool, unsigned int flags)
{
	uint64_t block = kvmm_pool_block_size(pool), online = 0;
	struct kvmm_pool_stat st;
	size_t bytes;

	kvmm_pool_arena(pool, &bytes);
	if (!kvmm_pool_stat(pool, &st))
		online = st.frames_online;
	return limit_memory(ctx, name, bytes - online * block,
			    flags | (online ? LIMIT_MORE : 0));
}

static int tell(struct ctx *ctx, const char *name, struct kvmm_pool *pool,
		uint64_t frames)
{
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];
	struct kvmm_pool_stat st;
	int rc = kvmm_pool_stat(pool, &st);

	if (rc)
		return fail("can't read the counters of %s: %s", name,
			    strerror(-rc));
	if (ctx->json)
		return output_json(json_pack("{s:s, s:s, s:I, s:I, s:I}",
			"backend", kvmm_backend_name(ctx->kv), "name", name,
			"frames", (json_int_t)frames,
			"frames_online", (json_int_t)st.frames_online,
			"frames_populating",
			(json_int_t)st.frames_populating), true);
	output_row("backend", "%s", kvmm_backend_name(ctx->kv));
	output_row("pool", "%s: %s of %s frames have memory, %s are to come",
		   name, count_text(st.frames_online, a), count_text(frames, b),
		   count_text(st.frames_populating, c));
	return 0;
}

static int start(struct kvmm_pool *pool, const char *name, uint64_t frames,
		 uint64_t threads)
{
	int rc = kvmm_populate_start(pool, 0, (unsigned int)frames,
				     (unsigned int)threads);

	if (rc == -EBUSY)
		return fail("%s is being populated already; --wait waits for "
			    "it, --cancel ends it", name);
	if (rc)
		return fail("can't populate %s: %s", name, strerror(-rc));
	return 0;
}

/* @ours: we began it, so it ends with us. */
static int wait_for(struct ctx *ctx, struct kvmm_pool *pool, const char *name,
		    uint64_t frames, bool ours)
{
	int rc = populate_watch(pool, frames);

	if (rc == -EINTR && ours) {
		rc = kvmm_populate_cancel(pool);
		return rc ? fail("can't end the populate of %s: %s", name,
				 strerror(-rc))
			  : fail("interrupted: %s keeps the memory that has "
				 "come, and all blocks", name);
	}
	switch (rc) {
	case 0:
		return 0;
	case -EINTR:
		return fail("interrupted: %s goes on being populated", name);
	case -ENOMEM:
		return populate_no_memory(ctx, name, pool, LIMIT_OTHERS);
	case -ECANCELED:
		return fail("someone ended it: not all frames of %s have "
			    "memory", name);
	case -ENODEV:
		return fail("%s was destroyed", name);
	default:
		return fail("can't populate %s: %s", name, strerror(-rc));
	}
}

static int act(struct ctx *ctx, const struct args *args, const char *name,
	       struct kvmm_pool *pool)
{
	uint64_t threads = 0, frames;
	bool ours = !args->value[OPT_WAIT];
	size_t bytes;
	long left;
	int rc;

	if (opt_count(args, OPT_THREADS, 1, KVMM_MAX_WORKERS, &threads))
		return EXIT_ERROR;
	kvmm_pool_arena(pool, &bytes);
	frames = bytes / kvmm_pool_block_size(pool);
	if (args->value[OPT_CANCEL]) {
		rc = kvmm_populate_cancel(pool);
		if (rc)
			return fail("can't end the populate of %s: %s", name,
				    strerror(-rc));
		return tell(ctx, name, pool, frames);
	}
	if (ours && start(pool, name, frames, threads))
		return EXIT_ERROR;
	if (!args->value[OPT_ASYNC]) {
		left = ours ? (long)frames : kvmm_populate_left(pool);
		if (wait_for(ctx, pool, name, left < 0 ? 0 : (uint64_t)left,
			     ours))
			return EXIT_ERROR;
	}
	return tell(ctx, name, pool, frames);
}

static int run(struct ctx *ctx, const struct args *args)
{
	bool wait = args->value[OPT_WAIT], cancel = args->value[OPT_CANCEL];
	const char *name = args->pos[0];
	struct kvmm_pool *pool;
	int rc;

	if (pool_check_name(name))
		return EXIT_ERROR;
	if (wait + cancel + !!args->value[OPT_ASYNC] > 1)
		return fail("only one of --async, --wait and --cancel can be "
			    "given");
	if (args->value[OPT_THREADS] && (wait || cancel))
		return fail("--threads is for a new populate");
	if (session_open_kernel(ctx, "there is none to populate"))
		return EXIT_ERROR;
	rc = kvmm_pool_open(ctx->kv, name, wait ? KVMM_POOL_RDONLY : 0, &pool);
	if (rc == -ENOENT)
		return fail("there is no pool %s", name);
	if (rc)
		return fail("can't open %s: %s", name, strerror(-rc));
	rc = act(ctx, args, name, pool);
	kvmm_pool_close(pool);
	return rc;
}

const struct command cmd_pool_populate = {
	.name = "pool populate",
	.pos = "NAME",
	.min_pos = 1,
	.max_pos = 1,
	.summary = "Bring in the memory that a pool does not have yet.",
	.details = "Kernel backend only.  The pool works meanwhile; frames "
		   "that have memory, and all blocks, stay as they are.  A "
		   "signal ends what this command began, and keeps the memory "
		   "that has come.",
	.opts = opts,
	.run = run,
};
