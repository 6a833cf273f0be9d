// SPDX-License-Identifier: MIT
/*
 * The CUDA driver: loading it at run time, its entry points, and its errors
 * as sentences and errno values.
 */
#include "cuda_priv.h"

#include <dlfcn.h>
#include <string.h>

/* cuGetProcAddress came with 11.3 */
#define OLDEST_DRIVER 11030

struct cuda_symbol {
	const char *name;
	int since;
	size_t field;
	bool required;
};

static const struct cuda_symbol symbols[] = {
#define X(field, symbol, since, args)                                          \
	{#symbol, since, offsetof(struct cuda_api, field), true},
	CUDA_REQUIRED(X)
#undef X
#define X(field, symbol, since, args)                                          \
	{#symbol, since, offsetof(struct cuda_api, field), false},
	CUDA_OPTIONAL(X)
#undef X
};

static int cuda_errno(cu_result_t res)
{
	switch (res) {
	case CU_ERROR_OUT_OF_MEMORY:
		return ENOMEM;
	case CU_ERROR_NO_DEVICE:
	case CU_ERROR_INVALID_DEVICE:
		return ENODEV;
	case CU_ERROR_STUB_LIBRARY:
		return ENOENT;
	case CU_ERROR_DEVICE_UNAVAILABLE:
	case CU_ERROR_CONTEXT_ALREADY_IN_USE:
		return EBUSY;
	case CU_ERROR_SYSTEM_DRIVER_MISMATCH:
		return EPROTONOSUPPORT;
	case CU_ERROR_INVALID_VALUE:
	case CU_ERROR_INVALID_HANDLE:
		return EINVAL;
	case CU_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
		return EEXIST;
	case CU_ERROR_HOST_MEMORY_NOT_REGISTERED:
		return ENOENT;
	case CU_ERROR_NOT_PERMITTED:
		return EPERM;
	case CU_ERROR_NOT_SUPPORTED:
		return EOPNOTSUPP;
	default:
		return EIO;
	}
}

/* What the user can do about it, where we know better than the driver. */
static const char *cuda_advice(cu_result_t res)
{
	switch (res) {
	case CU_ERROR_STUB_LIBRARY:
		return "; the toolkit's stub was loaded, not a driver";
	case CU_ERROR_NO_DEVICE:
		return "; no GPU, or CUDA_VISIBLE_DEVICES hides it";
	case CU_ERROR_DEVICE_UNAVAILABLE:
	case CU_ERROR_CONTEXT_ALREADY_IN_USE:
		return "; the device is busy: another process has it to itself";
	case CU_ERROR_SYSTEM_DRIVER_MISMATCH:
		return "; kernel module and library are of different versions";
	case CU_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
		return "; someone else in this process registered it";
	case CU_ERROR_CONTEXT_IS_DESTROYED:
		return "; the context was destroyed while it was in use here";
	case CU_ERROR_ILLEGAL_ADDRESS:
		return "; the context is lost, the process has to restart";
	default:
		return "";
	}
}

int gpu_cuda_fail(struct cuda_gpu *c, cu_result_t res, const char *call,
		  const char *doing)
{
	const char *name = NULL, *text = NULL;

	if (c->api.error_name && c->api.error_name(res, &name))
		name = NULL;
	if (c->api.error_string && c->api.error_string(res, &text))
		text = NULL;
	return gpu_fail(&c->gpu, cuda_errno(res), "%s: %s: %s (%s, %u)%s",
			doing, call, text ? text : "error",
			name ? name : "unnamed", res, cuda_advice(res));
}

/* A function pointer and what dlsym returns have the same size in POSIX. */
static void cuda_set(struct cuda_api *api, size_t field, void *fn)
{
	memcpy((char *)api + field, &fn, sizeof(fn));
}

struct cuda_lookup {
	cu_get_proc_v1_fn v1;
	cu_get_proc_v2_fn v2;
};

static void *cuda_lookup(const struct cuda_lookup *get, const char *name,
			 int version)
{
	unsigned int status = CU_PROC_FOUND;
	void *fn = NULL;
	cu_result_t res;

	if (get->v2)
		res = get->v2(name, &fn, version, CU_PROC_LEGACY, &status);
	else
		res = get->v1(name, &fn, version, CU_PROC_LEGACY);
	return res || status != CU_PROC_FOUND ? NULL : fn;
}

static int cuda_symbols(struct cuda_gpu *c)
{
	struct cuda_lookup get = {0};
	void *fn = dlsym(c->api.dl, "cuGetProcAddress_v2");
	size_t i;

	if (fn) {
		memcpy(&get.v2, &fn, sizeof(fn));
	} else {
		fn = dlsym(c->api.dl, "cuGetProcAddress");
		if (!fn)
			return gpu_fail(&c->gpu, ENOSYS,
					"the CUDA driver lacks cuGetProcAddress"
					);
		memcpy(&get.v1, &fn, sizeof(fn));
	}
	for (i = 0; i < ARRAY_SIZE(symbols); i++) {
		const struct cuda_symbol *s = &symbols[i];

		fn = NULL;
		if (s->since <= c->api.version)
			fn = cuda_lookup(&get, s->name, s->since);
		if (!fn && s->required)
			return gpu_fail(&c->gpu, ENOSYS,
					"the CUDA driver (%d.%d) lacks %s",
					c->api.version / 1000,
					c->api.version % 1000 / 10, s->name);
		cuda_set(&c->api, s->field, fn);
	}
	return 0;
}

static int cuda_version(struct cuda_gpu *c)
{
	void *fn = dlsym(c->api.dl, "cuDriverGetVersion");
	cu_result_t (*get)(int *version);
	cu_result_t res;

	if (!fn)
		return gpu_fail(&c->gpu, ENOSYS,
				"the CUDA driver lacks cuDriverGetVersion");
	memcpy(&get, &fn, sizeof(fn));
	res = get(&c->api.version);
	if (res)
		return gpu_cuda_fail(c, res, "cuDriverGetVersion",
				     "asking the driver's version");
	if (c->api.version < OLDEST_DRIVER)
		return gpu_fail(&c->gpu, EPROTONOSUPPORT,
				"the driver is too old: it supports CUDA %d.%d, 11.3 or newer is needed",
				c->api.version / 1000,
				c->api.version % 1000 / 10);
	return 0;
}

int gpu_cuda_load(struct cuda_gpu *c, const char *path)
{
	cu_result_t res;
	int r;

	/* a driver that runs threads must not be unmapped under them */
	c->api.dl = dlopen(path ? path : "libcuda.so.1",
			   RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!c->api.dl)
		return gpu_fail(&c->gpu, ENOENT, "no CUDA driver: %s",
				dlerror());
	r = cuda_version(c);
	if (!r)
		r = cuda_symbols(c);
	if (!r) {
		res = c->api.init(0);
		if (res)
			r = gpu_cuda_fail(c, res, "cuInit",
					  "starting the CUDA driver");
	}
	if (r)
		gpu_cuda_unload(c);
	return r;
}

void gpu_cuda_unload(struct cuda_gpu *c)
{
	dlclose(c->api.dl);
	memset(&c->api, 0, sizeof(c->api));
}

int gpu_cuda_enter(struct cuda_gpu *c)
{
	cu_result_t res = c->api.ctx_push(c->ctx);

	if (res)
		return gpu_cuda_fail(c, res, "cuCtxPushCurrent",
				     "using the device's context");
	return 0;
}

void gpu_cuda_leave(struct cuda_gpu *c)
{
	cu_context_t old;

	/* it can only fail where the context was destroyed under us, and then
	 * the next call says so
	 */
	(void)c->api.ctx_pop(&old);
}
