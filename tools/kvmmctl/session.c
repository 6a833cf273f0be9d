// SPDX-License-Identifier: MIT
/*
 * Opening kvmm: which backend, and what to say where it can't be had.
 */
#include "kvmmctl.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

/* A broken disk has as much to say as it has blocks. */
#define LOG_MAX		8

/* The library's last error, while it is kept; it may come from any thread. */
static pthread_mutex_t heard_lock = PTHREAD_MUTEX_INITIALIZER;
static char heard[512];
static bool keep_errors;

void session_keep_errors(void)
{
	pthread_mutex_lock(&heard_lock);
	keep_errors = true;
	*heard = 0;
	pthread_mutex_unlock(&heard_lock);
}

const char *session_kept_error(void)
{
	pthread_mutex_lock(&heard_lock);
	keep_errors = false;
	pthread_mutex_unlock(&heard_lock);
	return heard;
}

static bool kept(enum kvmm_log_level level, const char *text)
{
	bool keep;

	pthread_mutex_lock(&heard_lock);
	keep = keep_errors && level == KVMM_LOG_ERROR;
	if (keep)
		snprintf(heard, sizeof(heard), "%s", text);
	pthread_mutex_unlock(&heard_lock);
	return keep;
}

static void on_log(void *arg, enum kvmm_log_level level, const char *text)
{
	struct ctx *ctx = arg;
	unsigned int n;

	if (level == KVMM_LOG_INFO || kept(level, text))
		return;
	n = atomic_fetch_add(&ctx->nr_logged, 1);
	if (n < LOG_MAX)
		note("%s%s", level == KVMM_LOG_WARNING ? "warning: " : "",
		     text);
	else if (n == LOG_MAX)
		note("further warnings are not shown");
}

const char *device_name(const struct ctx *ctx)
{
	return ctx->device ? ctx->device : "/dev/kvmm";
}

static int open_backend(struct ctx *ctx, enum kvmm_backend backend)
{
	struct kvmm_open_opts opts = {
		.size = sizeof(opts),
		.backend = backend,
		.device = ctx->device,
		.log = on_log,
		.log_ctx = ctx,
	};

	atomic_store(&ctx->nr_logged, 0);
	return kvmm_open(&ctx->kv, &opts);
}

/* Why there is no kernel backend, in words that help. */
static const char *no_kernel(const struct ctx *ctx, int rc)
{
	if (rc == -EPROTO)
		return "not kvmm, or another version of its interface";
	/* a device that was named may also be misspelt */
	if (rc == -ENOENT && !ctx->device)
		return "No such file or directory (is kvmm.ko loaded?)";
	if (rc == -ENODEV || rc == -ENXIO)
		return "no driver has it (is kvmm.ko loaded?)";
	return strerror(-rc);
}

int session_open(struct ctx *ctx)
{
	int rc = open_backend(ctx, ctx->backend);

	if (!rc)
		return 0;
	if (ctx->backend == KVMM_BACKEND_KERNEL)
		return fail("no kernel backend: %s: %s", device_name(ctx),
			    no_kernel(ctx, rc));
	return fail("can't open kvmm: %s", strerror(-rc));
}

int session_open_kernel(struct ctx *ctx, const char *what)
{
	int rc;

	if (ctx->backend == KVMM_BACKEND_USER)
		return fail("pools of the user backend live in the process "
			    "that makes them and end with it: %s; use "
			    "--backend kernel", what);
	rc = open_backend(ctx, KVMM_BACKEND_KERNEL);
	if (!rc)
		return 0;
	if (ctx->backend == KVMM_BACKEND_KERNEL)
		return fail("no kernel backend: %s: %s", device_name(ctx),
			    no_kernel(ctx, rc));
	return fail("no kernel backend: %s: %s; and pools of the user backend "
		    "live in the process that makes them and end with it: %s",
		    device_name(ctx), no_kernel(ctx, rc), what);
}
