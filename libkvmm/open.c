// SPDX-License-Identifier: MIT
/*
 * Opening and closing the library: which backend, what it offers, and the
 * messages it gives.  There is no global state: all of it hangs on struct kvmm.
 */
#include "backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPEN_FLAGS	KVMM_OPEN_NO_URING

static void vlog(struct kvmm *kv, enum kvmm_log_level level, const char *fmt,
		 va_list ap)
{
	char text[512];

	vsnprintf(text, sizeof(text), fmt, ap);
	kv->log(kv->log_ctx, level, text);
}

void kvmm_log(struct kvmm *kv, enum kvmm_log_level level, const char *fmt, ...)
{
	va_list ap;

	if (!kv->log)
		return;
	va_start(ap, fmt);
	vlog(kv, level, fmt, ap);
	va_end(ap);
}

void kvmm_log_once(struct kvmm *kv, enum kvmm_once what,
		   enum kvmm_log_level level, const char *fmt, ...)
{
	unsigned int bit = 1U << what;
	va_list ap;

	if (__atomic_fetch_or(&kv->said, bit, __ATOMIC_RELAXED) & bit)
		return;
	if (!kv->log)
		return;
	va_start(ap, fmt);
	vlog(kv, level, fmt, ap);
	va_end(ap);
}

/* No struct of options will ever be longer. */
#define MAX_OPTS	4096

int kvmm_copy_opts(void *to, size_t size, const void *from, size_t least)
{
	const unsigned char *tail = from;
	size_t given, i;

	memcpy(&given, from, sizeof(given));
	if (given < least)
		return -EINVAL;
	/* Not a size, but whatever was in memory: the tail isn't there. */
	if (given > MAX_OPTS)
		return -E2BIG;
	for (i = size; i < given; i++)
		if (tail[i])
			return -E2BIG;
	memset(to, 0, size);
	memcpy(to, from, given < size ? given : size);
	return 0;
}

/* The kernel's backend is the better one; say so where it can't be had. */
static int open_auto(struct kvmm *kv, const char *device)
{
	int err;

	kv->ops = &kvmm_kernel_ops;
	err = kv->ops->open(kv, device);
	if (!err)
		return 0;
	kvmm_log(kv, err == -ENOENT ? KVMM_LOG_INFO : KVMM_LOG_WARNING,
		 "%s: %s: pools are kept in this process (user backend)",
		 device, err == -EPROTO ?
			 "not kvmm, or another version of its interface" :
			 strerror(-err));
	kv->ops = &kvmm_user_ops;
	return kv->ops->open(kv, device);
}

int kvmm_open(struct kvmm **out, const struct kvmm_open_opts *opts)
{
	struct kvmm_open_opts o = { .backend = KVMM_BACKEND_AUTO };
	const char *device;
	struct kvmm *kv;
	int err = 0;

	if (!out)
		return kvmm_ret(-EINVAL);
	if (opts)
		err = kvmm_copy_opts(&o, sizeof(o), opts, sizeof(o));
	if (err)
		return kvmm_ret(err);
	if (o.flags & ~OPEN_FLAGS)
		return kvmm_ret(-EINVAL);

	kv = calloc(1, sizeof(*kv));
	if (!kv)
		return kvmm_ret(-ENOMEM);
	kv->no_uring = o.flags & KVMM_OPEN_NO_URING;
	kv->log = o.log;
	kv->log_ctx = o.log_ctx;
	device = o.device ? o.device : "/dev/kvmm";

	switch (o.backend) {
	case KVMM_BACKEND_AUTO:
		err = open_auto(kv, device);
		break;
	case KVMM_BACKEND_KERNEL:
		kv->ops = &kvmm_kernel_ops;
		err = kv->ops->open(kv, device);
		break;
	case KVMM_BACKEND_USER:
		kv->ops = &kvmm_user_ops;
		err = kv->ops->open(kv, device);
		break;
	default:
		err = -EINVAL;
	}
	if (err) {
		free(kv);
		return kvmm_ret(err);
	}
	*out = kv;
	return 0;
}

void kvmm_close(struct kvmm *kv)
{
	if (!kv)
		return;
	kv->ops->close(kv);
	free(kv);
}

const char *kvmm_backend_name(const struct kvmm *kv)
{
	return kv->ops->name;
}

const char *kvmm_io_name(const struct kvmm *kv)
{
	return kv->ops->io_name(kv);
}

const char *kvmm_version(void)
{
	return KVMM_VERSION;
}

int kvmm_info(struct kvmm *kv, struct kvmm_info *info)
{
	if (!info)
		return kvmm_ret(-EFAULT);
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	return kvmm_ret(kv->ops->info(kv, info));
}
