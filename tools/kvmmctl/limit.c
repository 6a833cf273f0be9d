// SPDX-License-Identifier: MIT
/*
 * Looks through the limits that a pool has to keep: the module's, of the node
 * and of a user, the memory cgroup's, and what the machine has.  All can be
 * read by everyone, so who is refused can be told why.
 */
#include "limit.h"
#include "output.h"
#include "pool.h"
#include "room.h"
#include "size.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define SYS	"/sys/kernel/kvmm/"
#define PARAM	"/sys/module/kvmm/parameters/"

/* What was found to be too small. */
struct found {
	const char *what;	/* for --json */
	uint64_t limit;
	uint64_t left;
	const char *set_in;
};

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* All pools together. */
static bool of_node(uint64_t bytes, struct found *f)
{
	uint64_t held = room_number(SYS "pinned_bytes");

	f->limit = room_number(SYS "max_bytes");
	if (f->limit == UINT64_MAX || held == UINT64_MAX)
		return false;
	f->what = "node";
	f->left = less(f->limit, held);
	f->set_in = PARAM "max_bytes";
	return bytes > f->left;
}

struct owner {
	const char *name;
	unsigned int uid;
	uint64_t held;
};

static int find_owner(const struct kvmm_pool_entry *e, void *arg)
{
	struct owner *o = arg;

	if (!strcmp(e->name, o->name))
		o->uid = e->uid;
	return 0;
}

static int add_held(const struct kvmm_pool_entry *e, void *arg)
{
	char path[sizeof(SYS "pools//frames_online") + KVMM_NAME_LEN];
	struct owner *o = arg;
	uint64_t online;

	if (e->uid != o->uid)
		return 0;
	snprintf(path, sizeof(path), SYS "pools/%s/frames_online", e->name);
	online = room_number(path);
	/* gone meanwhile: it holds nothing */
	if (online != UINT64_MAX)
		o->held += online * e->block_size;
	return 0;
}

/* The pools of one user, who is not root. */
static bool of_user(struct ctx *ctx, const char *name, uint64_t bytes,
		    unsigned int flags, struct found *f)
{
	struct owner o = { .name = name, .uid = geteuid() };

	f->limit = room_number(PARAM "max_user_bytes");
	if (!f->limit || f->limit == UINT64_MAX)
		return false;
	if ((flags & LIMIT_OTHERS) && pool_each(ctx, find_owner, &o))
		return false;
	if (!o.uid || pool_each(ctx, add_held, &o))
		return false;
	f->what = "user";
	f->left = less(f->limit, o.held);
	f->set_in = PARAM "max_user_bytes";
	return bytes > f->left;
}

static bool of_cgroup(uint64_t bytes, struct room_cgroup *cg, struct found *f)
{
	if (!room_cgroup(cg))
		return false;
	*f = (struct found){ "cgroup", cg->limit, cg->left, cg->path };
	return bytes > f->left;
}

static bool of_machine(uint64_t bytes, struct found *f)
{
	uint64_t left = room_machine();

	*f = (struct found){ "machine", left, left, NULL };
	return bytes > left;
}

static void say(const struct found *f, const char *name, uint64_t bytes,
		unsigned int flags)
{
	const char *more = flags & LIMIT_MORE ? " more" : "", *why = "set in ";
	char need[SIZE_TEXT], limit[SIZE_TEXT], left[SIZE_TEXT];

	size_text(bytes, need);
	size_text(f->limit, limit);
	size_text(f->left, left);
	if (!f->what) {
		/* in a container it may be out of sight */
		fail("%s needs %s%s of memory, and the system had none%s, "
		     "though no limit that is seen here is in the way now",
		     name, need, more,
		     flags & LIMIT_OTHERS ?
		     ", or the memory cgroup that it was made in" : "");
	} else if (!strcmp(f->what, "machine")) {
		fail("%s needs %s%s of memory, and the machine has %s "
		     "available", name, need, more, left);
	} else if (!strcmp(f->what, "cgroup")) {
		fail("%s needs %s%s of memory, and this memory cgroup may have "
		     "%s, of which %s is left: set in %s", name, need, more,
		     limit, left, f->set_in);
	} else {
		if (!room_number(f->set_in))
			why = "80 % of the machine's memory, which is the "
			      "default of ";
		fail("%s needs %s%s of memory, and %s may have %s, of which %s "
		     "is left: %s%s", name, need, more,
		     strcmp(f->what, "user") ? "all pools together" :
					       "all pools of one user",
		     limit, left, why, f->set_in);
	}
}

int limit_memory(struct ctx *ctx, const char *name, uint64_t bytes,
		 unsigned int flags)
{
	struct room_cgroup cg;
	struct found f;

	if (!of_node(bytes, &f) && !of_user(ctx, name, bytes, flags, &f) &&
	    ((flags & LIMIT_OTHERS) || !of_cgroup(bytes, &cg, &f)) &&
	    !of_machine(bytes, &f))
		f = (struct found){ .what = NULL };
	say(&f, name, bytes, flags);
	if (ctx->json)
		output_json(f.what ?
			json_pack("{s:s, s:s, s:I, s:s, s:I, s:I, s:o?}",
				  "error", "no memory", "name", name,
				  "needed_bytes", (json_int_t)bytes,
				  "limit", f.what,
				  "limit_bytes", (json_int_t)f.limit,
				  "left_bytes", (json_int_t)f.left,
				  "set_in", output_text(f.set_in)) :
			json_pack("{s:s, s:s, s:I, s:n}",
				  "error", "no memory", "name", name,
				  "needed_bytes", (json_int_t)bytes,
				  "limit"), true);
	return EXIT_ERROR;
}

/* It can't be told which limit: there is no /sys, or a pool has just gone. */
static int too_many(struct ctx *ctx, const char *name)
{
	fail("%s can't be made: there are too many pools, see " PARAM
	     "max_pools and max_user_pools", name);
	if (ctx->json)
		output_json(json_pack("{s:s, s:s, s:n}",
				      "error", "too many pools", "name", name,
				      "limit"), true);
	return EXIT_ERROR;
}

int limit_pools(struct ctx *ctx, const char *name)
{
	uint64_t max = room_number(PARAM "max_pools");
	uint64_t nr = room_number(SYS "nr_pools");
	const char *where = PARAM "max_pools", *what = "node";

	if (max == UINT64_MAX || nr == UINT64_MAX)
		return too_many(ctx, name);
	if (max > KVMM_MAX_POOLS)
		max = KVMM_MAX_POOLS;
	if (nr < max) {
		max = room_number(PARAM "max_user_pools");
		where = PARAM "max_user_pools";
		what = "user";
		/* 0: there is none */
		if (!max || max == UINT64_MAX || !geteuid())
			return too_many(ctx, name);
	}
	fail("%s can't be made: %s may have %" PRIu64 " pool%s, set in %s, and "
	     "%s", name, strcmp(what, "user") ? "this machine" : "one user",
	     max, max == 1 ? "" : "s", where,
	     max == 1 ? "it is there" : "they are there");
	if (ctx->json)
		output_json(json_pack("{s:s, s:s, s:s, s:I, s:s}",
				      "error", "too many pools", "name", name,
				      "limit", what,
				      "limit_pools", (json_int_t)max,
				      "set_in", where), true);
	return EXIT_ERROR;
}

int limit_creators(void)
{
	return fail("only who has CAP_IPC_LOCK, or is in the group that "
		    PARAM "create_gid names, may make pools");
}
