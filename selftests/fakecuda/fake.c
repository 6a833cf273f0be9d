// SPDX-License-Identifier: MIT
/*
 * A strict stand-in for libcuda.so.1: options from the environment, failure
 * injection, objects and the report of what was leaked.  See README.md.
 */
#include "fake.h"
#include "fakecuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_NAMES 64

struct fake_state fake = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.done = PTHREAD_COND_INITIALIZER,
};

/* Calls by entry point; protected by fake.lock. */
static struct {
	const char *name;
	unsigned int calls;
} counts[MAX_NAMES];

static const char *const type_names[FAKE_TYPES] = {
	"contexts", "streams", "events", "modules", "functions",
	"allocations", "registrations",
};

static long env_long(const char *name, long missing)
{
	const char *s = getenv(name);

	return s && *s ? strtol(s, NULL, 0) : missing;
}

/* FAKECUDA_FAIL=name:n[:code],...: the n-th call of name fails with code. */
static void read_fails(void)
{
	const char *s = getenv("FAKECUDA_FAIL");
	int i;

	memset(fake.fail, 0, sizeof(fake.fail));
	for (i = 0; s && *s && i < FAKE_FAILS; i++) {
		unsigned int nth = 1, code = CU_ERROR_UNKNOWN;

		if (sscanf(s, "%63[A-Za-z0-9_]:%u:%u", fake.fail[i].name, &nth,
			   &code) < 1)
			break;
		fake.fail[i].nth = nth;
		fake.fail[i].code = code;
		s = strchr(s, ',');
		if (s)
			s++;
	}
}

static void read_env(void)
{
	const char *pageable = getenv("FAKECUDA_PAGEABLE");
	const char *missing = getenv("FAKECUDA_MISSING");
	const char *flip = getenv("FAKECUDA_FLIP");

	fake.seed = env_long("FAKECUDA_SEED", 1);
	fake.delay_us = env_long("FAKECUDA_DELAY_US", 0);
	fake.devices = env_long("FAKECUDA_DEVICES", 1);
	if (fake.devices > FAKE_DEVICES)
		fake.devices = FAKE_DEVICES;
	fake.version = env_long("FAKECUDA_VERSION", 13000);
	fake.same_pointer = env_long("FAKECUDA_SAME_POINTER", 0);
	fake.busy = env_long("FAKECUDA_BUSY", 0);
	fake.reg_rdonly = env_long("FAKECUDA_RDONLY", 1);
	fake.max_register = env_long("FAKECUDA_MAX_REGISTER", 1L << 30);
	fake.memory = env_long("FAKECUDA_MEMORY", 256L << 20);
	fake.pageable = 0;
	if (pageable && !strcmp(pageable, "hmm"))
		fake.pageable = 1;
	else if (pageable && !strcmp(pageable, "ats"))
		fake.pageable = 2;
	fake.flip_name[0] = 0;
	fake.flip_nth = 0;
	if (flip && sscanf(flip, "%63[^:]:%u", fake.flip_name,
			   &fake.flip_nth) != 2)
		fake.flip_name[0] = 0;
	snprintf(fake.missing, sizeof(fake.missing), ",%s,",
		 missing ? missing : "");
	read_fails();
}

void fake_violation(const char *fmt, ...)
{
	va_list ap;

	fputs("fakecuda: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	fake.violations++;
}

unsigned int fake_random(unsigned int below)
{
	return below ? rand_r(&fake.seed) % below : 0;
}

static unsigned int count_call(const char *name)
{
	int i;

	for (i = 0; i < MAX_NAMES; i++) {
		if (!counts[i].name)
			counts[i].name = name;
		if (!strcmp(counts[i].name, name))
			return ++counts[i].calls;
	}
	return 0;
}

cu_result_t fake_call(const char *name)
{
	unsigned int nth = count_call(name);
	int i;

	fake.flip_next = fake_flips(name, nth);
	for (i = 0; i < FAKE_FAILS; i++)
		if (fake.fail[i].nth == nth &&
		    !strcmp(fake.fail[i].name, name)) {
			fake.failed++;
			return fake.fail[i].code;
		}
	return CU_SUCCESS;
}

bool fake_flips(const char *name, unsigned int nth)
{
	return !strcmp(fake.flip_name, name) &&
	       (!fake.flip_nth || fake.flip_nth == nth);
}

cu_result_t fake_enter(const char *name, struct fake_ctx **ctx)
{
	cu_result_t res = fake_call(name);

	if (res)
		return res;
	if (!fake.init)
		return CU_ERROR_NOT_INITIALIZED;
	*ctx = fake_current();
	if (!*ctx)
		return CU_ERROR_INVALID_CONTEXT;
	if (!(*ctx)->obj.alive)
		return CU_ERROR_CONTEXT_IS_DESTROYED;
	return (*ctx)->sticky;
}

void *fake_new(enum fake_type type, size_t size, struct fake_ctx *ctx)
{
	struct fake_obj *obj = calloc(1, size);

	if (!obj)
		abort();
	obj->type = type;
	obj->alive = true;
	obj->ctx = ctx;
	obj->next = fake.objs[type];
	fake.objs[type] = obj;
	return obj;
}

void *fake_find(enum fake_type type, const void *handle)
{
	struct fake_obj *obj;

	for (obj = fake.objs[type]; obj; obj = obj->next)
		if (obj == handle)
			return obj->alive ? obj : NULL;
	return NULL;
}

static unsigned int count_alive(enum fake_type type)
{
	const struct fake_obj *obj;
	unsigned int n = 0;

	for (obj = fake.objs[type]; obj; obj = obj->next) {
		/* a context's own default stream is nobody's leak */
		if (type == FAKE_STREAM &&
		    obj == (struct fake_obj *)obj->ctx->null_stream)
			continue;
		/* functions go with their module */
		n += obj->alive && type != FAKE_FUNCTION;
	}
	return n;
}

FAKE_EXPORT unsigned int fakecuda_leaks(int say)
{
	unsigned int total = 0, n;
	int type;

	pthread_mutex_lock(&fake.lock);
	for (type = 0; type < FAKE_TYPES; type++) {
		n = count_alive(type);
		total += n;
		if (n && say)
			fprintf(stderr, "fakecuda: %u %s leaked\n", n,
				type_names[type]);
	}
	pthread_mutex_unlock(&fake.lock);
	return total;
}

FAKE_EXPORT unsigned int fakecuda_violations(void)
{
	unsigned int n;

	pthread_mutex_lock(&fake.lock);
	n = fake.violations;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

FAKE_EXPORT unsigned int fakecuda_calls(const char *name)
{
	unsigned int n = 0;
	int i;

	pthread_mutex_lock(&fake.lock);
	for (i = 0; i < MAX_NAMES && counts[i].name; i++)
		if (!strcmp(counts[i].name, name))
			n = counts[i].calls;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

FAKE_EXPORT int fakecuda_failed(void)
{
	int n;

	pthread_mutex_lock(&fake.lock);
	n = fake.failed;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

FAKE_EXPORT void fakecuda_fail(const char *name, unsigned int nth,
			       unsigned int code)
{
	unsigned int i, calls = fakecuda_calls(name);

	pthread_mutex_lock(&fake.lock);
	for (i = 0; i < FAKE_FAILS && fake.fail[i].nth; i++)
		;
	if (i < FAKE_FAILS) {
		snprintf(fake.fail[i].name, sizeof(fake.fail[i].name), "%s",
			 name);
		fake.fail[i].nth = calls + nth;
		fake.fail[i].code = code;
	}
	pthread_mutex_unlock(&fake.lock);
}

FAKE_EXPORT void fakecuda_lose(unsigned int code)
{
	struct fake_obj *obj;

	pthread_mutex_lock(&fake.lock);
	for (obj = fake.objs[FAKE_CTX]; obj; obj = obj->next)
		((struct fake_ctx *)obj)->sticky = code;
	pthread_mutex_unlock(&fake.lock);
}

static void free_obj(struct fake_obj *obj)
{
	struct fake_range *range = (struct fake_range *)obj;

	switch (obj->type) {
	case FAKE_MEM:
		munmap((void *)(uintptr_t)range->base, range->bytes);
		free(range->data);
		break;
	case FAKE_REG:
		if ((char *)(uintptr_t)range->base != range->data)
			munmap((void *)(uintptr_t)range->base, range->bytes);
		break;
	case FAKE_EVENT:
		fake_record_put(((struct fake_event *)obj)->record);
		break;
	case FAKE_MODULE:
		free(((struct fake_module *)obj)->image);
		break;
	default:
		break;
	}
	free(obj);
}

/* Drains and joins every stream; caller holds the lock. */
static void stop_streams(void)
{
	struct fake_obj *obj;

	for (obj = fake.objs[FAKE_STREAM]; obj; obj = obj->next)
		fake_stream_stop((struct fake_stream *)obj);
}

FAKE_EXPORT unsigned int fakecuda_reset(void)
{
	unsigned int leaks = fakecuda_leaks(1);
	struct fake_obj *obj;
	int type;

	pthread_mutex_lock(&fake.lock);
	stop_streams();
	for (type = FAKE_TYPES - 1; type >= 0; type--)
		while ((obj = fake.objs[type])) {
			fake.objs[type] = obj->next;
			free_obj(obj);
		}
	memset(fake.primary, 0, sizeof(fake.primary));
	memset(counts, 0, sizeof(counts));
	fake.init = false;
	fake.generation++;
	fake.allocated = 0;
	fake.violations = 0;
	fake.failed = 0;
	read_env();
	pthread_mutex_unlock(&fake.lock);
	return leaks;
}

__attribute__((constructor)) static void fake_start(void)
{
	read_env();
}

/* The report of a program that doesn't ask; with FAKECUDA_STRICT it fails. */
__attribute__((destructor)) static void fake_stop(void)
{
	unsigned int leaks = fakecuda_reset();

	if (leaks && env_long("FAKECUDA_STRICT", 0))
		_exit(66);
}
