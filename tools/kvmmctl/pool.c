// SPDX-License-Identifier: MIT
/*
 * kvmmctl pool list, show, destroy.  Pools that outlive kvmmctl are the kernel
 * backend's alone.
 */
#include "counters.h"
#include "kvmmctl.h"
#include "output.h"
#include "pool.h"
#include "size.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#define LIST_PART	32

static const struct opt destroy_opts[] = {
	{ OPT_FORCE, "force", NULL, "also while clients use it" },
	{ 0, NULL, NULL, NULL },
};

int pool_check_name(const char *name)
{
	static const char chars[] = "0123456789._-"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "abcdefghijklmnopqrstuvwxyz";

	if (!*name || strlen(name) >= KVMM_NAME_LEN)
		return fail("a pool's name has 1 to %d characters",
			    KVMM_NAME_LEN - 1);
	if (*name == '.' || *name == '-' ||
	    strspn(name, chars) != strlen(name))
		return fail("'%s' can't be a pool's name: letters, digits, "
			    "'.', '_' and '-', not starting with '.' or '-'",
			    name);
	return 0;
}

int pool_each(struct ctx *ctx, int (*each)(const struct kvmm_pool_entry *e,
					   void *arg), void *arg)
{
	struct kvmm_pool_entry entries[LIST_PART];
	uint64_t cursor = 0;
	int ret = 0;
	long n;

	do {
		n = kvmm_pool_list(ctx->kv, &cursor, entries, LIST_PART);
		if (n < 0)
			return fail("can't list pools: %s", strerror((int)-n));
		for (long i = 0; i < n && !ret; i++)
			ret = each(&entries[i], arg);
	} while (n && !ret);
	return ret;
}

json_t *pool_entry_json(const struct kvmm_pool_entry *e)
{
	char m[8];

	snprintf(m, sizeof(m), "%04o", e->mode & 0777);
	return json_pack("{s:s, s:I, s:I, s:s, s:I, s:I, s:I, s:s, s:I}",
			 "name", e->name, "uid", (json_int_t)e->uid,
			 "gid", (json_int_t)e->gid, "mode", m,
			 "block_size", (json_int_t)e->block_size,
			 "frames", (json_int_t)e->nr_frames,
			 "slots", (json_int_t)e->nr_slots,
			 "policy", policy_name(e->policy),
			 "clients", (json_int_t)e->nr_clients);
}

static int add_json(const struct kvmm_pool_entry *e, void *arg)
{
	return json_array_append_new(arg, pool_entry_json(e)) ?
		fail("out of memory") : 0;
}

static const char *owner(unsigned int uid, char buf[SIZE_TEXT])
{
	const struct passwd *pw = getpwuid(uid);

	if (pw)
		snprintf(buf, SIZE_TEXT, "%s", pw->pw_name);
	else
		snprintf(buf, SIZE_TEXT, "%u", uid);
	return buf;
}

static int print_line(const struct kvmm_pool_entry *e, void *arg)
{
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT], d[SIZE_TEXT];
	unsigned int *n = arg;

	if (!(*n)++)
		printf("%-24s %-10s %4s %10s %12s %12s %8s %7s\n", "NAME",
		       "OWNER", "MODE", "BLOCK", "FRAMES", "SLOTS", "POLICY",
		       "CLIENTS");
	printf("%-24s %-10s %04o %10s %12s %12s %8s %7u\n", e->name,
	       owner(e->uid, a), e->mode & 0777, size_text(e->block_size, b),
	       count_text(e->nr_frames, c), count_text(e->nr_slots, d),
	       policy_name(e->policy), e->nr_clients);
	return 0;
}

static int pool_list(struct ctx *ctx, const struct args *args)
{
	unsigned int n = 0;
	json_t *list;
	int ret;

	(void)args;
	if (session_open(ctx))
		return EXIT_ERROR;
	if (!strcmp(kvmm_backend_name(ctx->kv), "user"))
		note("pools of the user backend live in the process that makes "
		     "them and end with it: there are none to list");
	if (!ctx->json) {
		output_row("backend", "%s", kvmm_backend_name(ctx->kv));
		ret = pool_each(ctx, print_line, &n);
		if (!ret && !n)
			puts("no pools");
		return ret;
	}
	list = json_array();
	ret = list ? pool_each(ctx, add_json, list) : fail("out of memory");
	if (ret) {
		json_decref(list);
		return ret;
	}
	return output_json(json_pack("{s:s, s:o}", "backend",
				     kvmm_backend_name(ctx->kv), "pools",
				     list), true);
}

struct search {
	const char *name;
	struct kvmm_pool_entry entry;
	bool found;
};

static int match(const struct kvmm_pool_entry *e, void *arg)
{
	struct search *s = arg;

	if (!strcmp(e->name, s->name)) {
		s->entry = *e;
		s->found = true;
	}
	return 0;
}

int pool_read(struct ctx *ctx, const char *name, struct kvmm_pool_stat *st)
{
	struct kvmm_pool *pool;
	int rc = kvmm_pool_open(ctx->kv, name, KVMM_POOL_RDONLY, &pool);

	if (rc == -ENOENT)
		return fail("there is no pool %s", name);
	if (rc)
		return fail("can't open %s: %s", name, strerror(-rc));
	rc = kvmm_pool_stat(pool, st);
	kvmm_pool_close(pool);
	if (rc)
		return fail("can't read the counters of %s: %s", name,
			    strerror(-rc));
	/* this reader was a client too */
	st->nr_clients -= !!st->nr_clients;
	return 0;
}

static int pool_show(struct ctx *ctx, const struct args *args)
{
	struct search s = { .name = args->pos[0] };
	const struct group *gr;
	struct kvmm_pool_stat st;
	char a[SIZE_TEXT];
	json_t *obj;

	if (pool_check_name(s.name) ||
	    session_open_kernel(ctx, "there is none to show") ||
	    pool_each(ctx, match, &s))
		return EXIT_ERROR;
	if (!s.found)
		return fail("there is no pool %s", s.name);
	if (pool_read(ctx, s.name, &st))
		return EXIT_ERROR;
	if (ctx->json) {
		obj = pool_entry_json(&s.entry);
		if (obj && (json_object_set_new(obj, "backend", json_string(
				kvmm_backend_name(ctx->kv))) ||
			    json_object_set_new(obj, "counters",
						counters_json(&st)))) {
			json_decref(obj);
			obj = NULL;
		}
		return output_json(obj, true);
	}
	gr = getgrgid(s.entry.gid);
	printf("%-20s %12s\n", "backend", kvmm_backend_name(ctx->kv));
	printf("%-20s %12s\n", "name", s.entry.name);
	printf("%-20s %12s\n", "owner", owner(s.entry.uid, a));
	if (gr)
		printf("%-20s %12s\n", "group", gr->gr_name);
	else
		printf("%-20s %12u\n", "group", s.entry.gid);
	printf("%-20s %8s%04o\n", "mode", "", s.entry.mode & 0777);
	printf("%-20s %12s\n", "policy", policy_name(s.entry.policy));
	counters_text(&st);
	return 0;
}

static int pool_destroy(struct ctx *ctx, const struct args *args)
{
	const char *name = args->pos[0];
	int rc;

	if (pool_check_name(name) ||
	    session_open_kernel(ctx, "there is none to destroy"))
		return EXIT_ERROR;
	rc = kvmm_pool_destroy(ctx->kv, name,
			       args->value[OPT_FORCE] ? KVMM_POOL_FORCE : 0);
	if (rc == -ENOENT)
		return fail("there is no pool %s", name);
	if (rc == -EBUSY)
		return fail("%s has clients; --force destroys it all the same",
			    name);
	if (rc == -EPERM)
		return fail("%s is someone else's", name);
	if (rc)
		return fail("can't destroy %s: %s", name, strerror(-rc));
	if (ctx->json)
		return output_json(json_pack("{s:s, s:s}", "backend",
					     kvmm_backend_name(ctx->kv),
					     "destroyed", name), true);
	output_row("backend", "%s", kvmm_backend_name(ctx->kv));
	output_row("destroyed", "%s", name);
	return 0;
}

const struct command cmd_pool_list = {
	.name = "pool list",
	.pos = "",
	.summary = "List the pools of this machine.",
	.run = pool_list,
};

const struct command cmd_pool_show = {
	.name = "pool show",
	.pos = "NAME",
	.min_pos = 1,
	.max_pos = 1,
	.summary = "Show a pool: owner, size, counters.",
	.details = "Kernel backend only.",
	.run = pool_show,
};

const struct command cmd_pool_destroy = {
	.name = "pool destroy",
	.pos = "NAME",
	.min_pos = 1,
	.max_pos = 1,
	.summary = "Destroy a pool and give its memory back.",
	.details = "Kernel backend only.  A file that was its swap area stays.",
	.opts = destroy_opts,
	.run = pool_destroy,
};
