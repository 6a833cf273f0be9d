// SPDX-License-Identifier: MIT
/*
 * kvmmctl pool events: what happens to a pool, as it happens.
 */
#include "kvmmctl.h"
#include "output.h"
#include "pool.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define PART	64

/* Longest wait: a signal that comes just before it is seen after it. */
#define WAIT_MS	500

static const struct opt opts[] = {
	{ OPT_TYPE, "type", "TYPE,...",
	  "only these: pressure, chunk-wanted, evicted, purged, degraded, "
	  "populated, given-back (default all)" },
	{ OPT_COUNT, "count", "N", "end after N events" },
	{ 0, NULL, NULL, NULL },
};

static const char *const names[KVMM_NR_EVENTS] = {
	[KVMM_EVENT_LOST] = "lost",
	[KVMM_EVENT_PRESSURE] = "pressure",
	[KVMM_EVENT_CHUNK_WANTED] = "chunk-wanted",
	[KVMM_EVENT_EVICTED] = "evicted",
	[KVMM_EVENT_PURGED] = "purged",
	[KVMM_EVENT_DEGRADED] = "degraded",
	[KVMM_EVENT_POPULATED] = "populated",
	[KVMM_EVENT_GIVEN_BACK] = "given-back",
};

static int parse_types(const struct args *args, uint64_t *mask)
{
	const char *text = args->value[OPT_TYPE];
	size_t len;
	int i;

	*mask = (1ULL << KVMM_NR_EVENTS) - 1;
	if (!text)
		return 0;
	for (*mask = 0; *text; text += text[len] == ',' ? len + 1 : len) {
		len = strcspn(text, ",");
		for (i = KVMM_EVENT_PRESSURE; i < KVMM_NR_EVENTS; i++)
			if (strlen(names[i]) == len &&
			    !strncmp(names[i], text, len))
				break;
		if (i == KVMM_NR_EVENTS)
			return fail("--type: '%.*s' is unknown; see kvmmctl "
				    "pool events --help", (int)len, text);
		*mask |= 1ULL << i;
	}
	return *mask ? 0 : fail("--type: no type is given");
}

static const char *key_text(const struct kvmm_event *ev,
			    char buf[2 * KVMM_KEY_LEN + 1])
{
	for (int i = 0; i < KVMM_KEY_LEN; i++)
		snprintf(buf + 2 * i, 3, "%02x", ev->key[i]);
	return buf;
}

static int print_json(const struct ctx *ctx, const char *name,
		      const struct kvmm_event *ev)
{
	char key[2 * KVMM_KEY_LEN + 1], handle[20];
	json_t *obj = json_pack("{s:s, s:s, s:s, s:I, s:I}",
				"backend", kvmm_backend_name(ctx->kv),
				"pool", name, "event", names[ev->type],
				"time_ms", (json_int_t)ev->time_ms,
				"value", (json_int_t)ev->value);
	int bad = !obj;

	if (obj && ev->flags)
		bad = json_object_set_new(obj, "flags",
					  json_integer(ev->flags));
	if (obj && ev->handle) {
		/* 64 bits: more than most readers' numbers have */
		snprintf(handle, sizeof(handle), "%#" PRIx64,
			 (uint64_t)ev->handle);
		bad |= json_object_set_new(obj, "handle", json_string(handle));
		bad |= json_object_set_new(obj, "key",
					   json_string(key_text(ev, key)));
	}
	if (bad) {
		json_decref(obj);
		obj = NULL;
	}
	return output_json(obj, false);
}

static void print_line(const struct kvmm_event *ev)
{
	char key[2 * KVMM_KEY_LEN + 1];

	printf("%10llu.%03u  %-12s  ",
	       (unsigned long long)(ev->time_ms / 1000),
	       (unsigned int)(ev->time_ms % 1000), names[ev->type]);
	if (ev->handle)
		printf("%s\n", key_text(ev, key));
	else if (ev->type == KVMM_EVENT_DEGRADED)
		printf("%s\n", strerror((int)ev->value));
	else if (ev->flags)
		printf("%llu, %s\n", (unsigned long long)ev->value,
		       strerror((int)ev->flags));
	else
		printf("%llu\n", (unsigned long long)ev->value);
}

/* What there is to print, until @count events, a signal or the pool's end. */
static int follow(struct ctx *ctx, struct kvmm_pool *pool, const char *name,
		  uint64_t count)
{
	struct kvmm_event ev[PART];
	long n = 0;

	while (count && !signal_seen()) {
		n = kvmm_event_read(pool, ev, count < PART ? (unsigned int)count
							   : PART, WAIT_MS);
		if (n < 0 && n != -EINTR)
			break;
		for (long i = 0; i < n; i++, count--) {
			if (ev[i].type >= KVMM_NR_EVENTS)
				continue;
			if (!ctx->json)
				print_line(&ev[i]);
			else if (print_json(ctx, name, &ev[i]))
				return EXIT_ERROR;
		}
		if (n > 0 && (fflush(stdout) || ferror(stdout)))
			return EXIT_ERROR;
	}
	if (n == -ENODEV)
		note("%s was destroyed", name);
	else if (n < 0 && n != -EINTR)
		return fail("can't read events of %s: %s", name,
			    strerror((int)-n));
	return 0;
}

static int run(struct ctx *ctx, const struct args *args)
{
	const char *name = args->pos[0];
	uint64_t count = UINT64_MAX, mask;
	struct kvmm_pool *pool;
	int rc;

	if (pool_check_name(name) || parse_types(args, &mask) ||
	    opt_count(args, OPT_COUNT, 1, UINT64_MAX, &count) ||
	    session_open_kernel(ctx, "there is none to watch"))
		return EXIT_ERROR;
	rc = kvmm_pool_open(ctx->kv, name, KVMM_POOL_RDONLY, &pool);
	if (rc == -ENOENT)
		return fail("there is no pool %s", name);
	if (rc)
		return fail("can't open %s: %s", name, strerror(-rc));
	rc = kvmm_events(pool, mask, KVMM_MAX_EVENTS);
	if (rc) {
		rc = fail("can't be told of events of %s: %s", name,
			  strerror(-rc));
	} else {
		if (!ctx->json)
			output_row("backend", "%s",
				   kvmm_backend_name(ctx->kv));
		fflush(stdout);
		rc = follow(ctx, pool, name, count);
	}
	kvmm_pool_close(pool);
	return rc;
}

const struct command cmd_pool_events = {
	.name = "pool events",
	.pos = "NAME",
	.min_pos = 1,
	.max_pos = 1,
	.summary = "Print what happens to a pool, as it happens.",
	.details = "Kernel backend only.  A line for each block that leaves "
		   "memory (evicted) or is lost (purged), with its key, for a "
		   "failing swap area (degraded), and for memory that is "
		   "asked for, given back or brought in.  lost: so many events "
		   "came faster than they could be printed.  Ends with the "
		   "pool, or at a signal.",
	.opts = opts,
	.run = run,
};
