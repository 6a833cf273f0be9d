// SPDX-License-Identifier: MIT
/*
 * The stand-in's devices and contexts.  A thread has a stack of contexts, as
 * with the real driver; most calls fail without one.
 */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STACK 16

/* A reset elsewhere makes it stale, which the generation tells. */
static __thread struct {
	unsigned int generation;
	int depth;
	struct fake_ctx *ctx[STACK];
} stack;

static void stack_sync(void)
{
	if (stack.generation != fake.generation) {
		stack.generation = fake.generation;
		stack.depth = 0;
	}
}

struct fake_ctx *fake_current(void)
{
	stack_sync();
	return stack.depth ? stack.ctx[stack.depth - 1] : NULL;
}

static cu_result_t device_enter(const char *name, cu_device_t device)
{
	cu_result_t res = fake_call(name);

	if (res)
		return res;
	if (!fake.init)
		return CU_ERROR_NOT_INITIALIZED;
	if (device < 0 || device >= fake.devices)
		return CU_ERROR_INVALID_DEVICE;
	return CU_SUCCESS;
}

FAKE_EXPORT cu_result_t cuInit(unsigned int flags);
FAKE_EXPORT cu_result_t cuDriverGetVersion(int *version);
FAKE_EXPORT cu_result_t cuDeviceGetCount(int *count);
FAKE_EXPORT cu_result_t cuDeviceGet(cu_device_t *device, int ordinal);
FAKE_EXPORT cu_result_t cuDeviceGetName(char *name, int len,
					cu_device_t device);
FAKE_EXPORT cu_result_t cuDeviceGetAttribute(int *value, unsigned int attr,
					     cu_device_t device);
FAKE_EXPORT cu_result_t cuDeviceGetPCIBusId(char *pci, int len,
					    cu_device_t device);
FAKE_EXPORT cu_result_t cuDevicePrimaryCtxRetain(cu_context_t *ctx,
						 cu_device_t device);
FAKE_EXPORT cu_result_t cuDevicePrimaryCtxRelease_v2(cu_device_t device);
FAKE_EXPORT cu_result_t cuCtxCreate_v2(cu_context_t *ctx, unsigned int flags,
				       cu_device_t device);
FAKE_EXPORT cu_result_t cuCtxDestroy_v2(cu_context_t ctx);
FAKE_EXPORT cu_result_t cuCtxGetCurrent(cu_context_t *ctx);
FAKE_EXPORT cu_result_t cuCtxSetCurrent(cu_context_t ctx);
FAKE_EXPORT cu_result_t cuCtxPushCurrent_v2(cu_context_t ctx);
FAKE_EXPORT cu_result_t cuCtxPopCurrent_v2(cu_context_t *ctx);
FAKE_EXPORT cu_result_t cuCtxGetDevice(cu_device_t *device);

cu_result_t cuInit(unsigned int flags)
{
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_call("cuInit");
	if (!res && flags)
		res = CU_ERROR_INVALID_VALUE;
	if (!res && !fake.devices)
		res = CU_ERROR_NO_DEVICE;
	if (!res)
		fake.init = true;
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuDriverGetVersion(int *version)
{
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_call("cuDriverGetVersion");
	if (!res)
		*version = fake.version;
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuDeviceGetCount(int *count)
{
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_call("cuDeviceGetCount");
	if (!res && !fake.init)
		res = CU_ERROR_NOT_INITIALIZED;
	if (!res)
		*count = fake.devices;
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuDeviceGet(cu_device_t *device, int ordinal)
{
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = device_enter("cuDeviceGet", ordinal);
	if (!res)
		*device = ordinal;
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuDeviceGetName(char *name, int len, cu_device_t device)
{
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = device_enter("cuDeviceGetName", device);
	if (!res)
		snprintf(name, len, "Stand-in GPU %d", device);
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuDeviceGetPCIBusId(char *pci, int len, cu_device_t device)
{
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = device_enter("cuDeviceGetPCIBusId", device);
	if (!res)
		snprintf(pci, len, "0000:%02X:00.0", 0xa1 + device);
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuDeviceGetAttribute(int *value, unsigned int attr,
				 cu_device_t device)
{
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = device_enter("cuDeviceGetAttribute", device);
	if (res)
		goto out;
	switch (attr) {
	case CU_ATTR_UNIFIED_ADDRESSING:
	case CU_ATTR_CAN_MAP_HOST_MEMORY:
		*value = 1;
		break;
	case CU_ATTR_PAGEABLE_MEMORY_ACCESS:
		*value = fake.pageable > 0;
		break;
	case CU_ATTR_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
		*value = fake.pageable == 2;
		break;
	case CU_ATTR_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
		*value = fake.same_pointer;
		break;
	case CU_ATTR_READ_ONLY_HOST_REGISTER_SUPPORTED:
		*value = fake.reg_rdonly;
		break;
	default:
		res = CU_ERROR_INVALID_VALUE;
	}
out:
	pthread_mutex_unlock(&fake.lock);
	return res;
}

static struct fake_ctx *ctx_new(int device)
{
	struct fake_ctx *ctx = fake_new(FAKE_CTX, sizeof(*ctx), NULL);

	ctx->device = device;
	ctx->refs = 1;
	return ctx;
}

/* What a context leaves behind is gone with it; that it does is a mistake. */
void fake_ctx_end(struct fake_ctx *ctx)
{
	struct fake_obj *obj;
	int type;

	ctx->obj.alive = false;
	for (type = 0; type < FAKE_TYPES; type++)
		for (obj = fake.objs[type]; obj; obj = obj->next) {
			if (obj->ctx != ctx || !obj->alive)
				continue;
			/* portable registrations outlive it */
			if (type == FAKE_REG)
				continue;
			if (type != FAKE_FUNCTION &&
			    obj != (struct fake_obj *)ctx->null_stream)
				fake_violation("context ended with objects in it, type %d",
					       type);
			obj->alive = false;
		}
}

cu_result_t cuDevicePrimaryCtxRetain(cu_context_t *ctx, cu_device_t device)
{
	struct fake_ctx *primary;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = device_enter("cuDevicePrimaryCtxRetain", device);
	if (!res && fake.busy)
		res = CU_ERROR_DEVICE_UNAVAILABLE;
	if (!res) {
		primary = fake.primary[device];
		if (primary)
			primary->refs++;
		else
			primary = ctx_new(device);
		fake.primary[device] = primary;
		*ctx = (cu_context_t)primary;
	}
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuDevicePrimaryCtxRelease_v2(cu_device_t device)
{
	struct fake_ctx *primary;
	cu_result_t injected, res = CU_SUCCESS;

	pthread_mutex_lock(&fake.lock);
	injected = device_enter("cuDevicePrimaryCtxRelease", device);
	primary = device >= 0 && device < fake.devices ? fake.primary[device]
						       : NULL;
	if (!primary) {
		res = CU_ERROR_INVALID_CONTEXT;
	} else if (!--primary->refs) {
		fake.primary[device] = NULL;
		fake_ctx_end(primary);
	}
	pthread_mutex_unlock(&fake.lock);
	return injected ? injected : res;
}

cu_result_t cuCtxCreate_v2(cu_context_t *ctx, unsigned int flags,
			   cu_device_t device)
{
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = device_enter("cuCtxCreate", device);
	if (!res && flags)
		res = CU_ERROR_INVALID_VALUE;
	if (!res) {
		*ctx = (cu_context_t)ctx_new(device);
		stack_sync();
		stack.ctx[stack.depth++] = (struct fake_ctx *)*ctx;
	}
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuCtxDestroy_v2(cu_context_t handle)
{
	struct fake_ctx *ctx;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_call("cuCtxDestroy");
	ctx = fake_find(FAKE_CTX, handle);
	if (!ctx) {
		res = CU_ERROR_INVALID_CONTEXT;
	} else {
		fake_ctx_end(ctx);
		if (fake_current() == ctx)
			stack.depth--;
	}
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuCtxGetCurrent(cu_context_t *ctx)
{
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_call("cuCtxGetCurrent");
	if (!res && !fake.init)
		res = CU_ERROR_NOT_INITIALIZED;
	if (!res)
		*ctx = (cu_context_t)fake_current();
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuCtxSetCurrent(cu_context_t handle)
{
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_call("cuCtxSetCurrent");
	stack_sync();
	if (!res && handle && !fake_find(FAKE_CTX, handle))
		res = CU_ERROR_INVALID_CONTEXT;
	if (!res) {
		if (stack.depth)
			stack.depth--;
		if (handle)
			stack.ctx[stack.depth++] = (struct fake_ctx *)handle;
	}
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuCtxPushCurrent_v2(cu_context_t handle)
{
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_call("cuCtxPushCurrent");
	stack_sync();
	if (!res && !fake_find(FAKE_CTX, handle))
		res = CU_ERROR_INVALID_CONTEXT;
	if (!res && stack.depth == STACK)
		res = CU_ERROR_INVALID_VALUE;
	if (!res)
		stack.ctx[stack.depth++] = (struct fake_ctx *)handle;
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuCtxPopCurrent_v2(cu_context_t *ctx)
{
	cu_result_t injected, res = CU_SUCCESS;

	pthread_mutex_lock(&fake.lock);
	injected = fake_call("cuCtxPopCurrent");
	if (!fake_current())
		res = CU_ERROR_INVALID_CONTEXT;
	else
		*ctx = (cu_context_t)stack.ctx[--stack.depth];
	pthread_mutex_unlock(&fake.lock);
	return injected ? injected : res;
}

cu_result_t cuCtxGetDevice(cu_device_t *device)
{
	struct fake_ctx *ctx;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuCtxGetDevice", &ctx);
	if (!res)
		*device = ctx->device;
	pthread_mutex_unlock(&fake.lock);
	return res;
}
