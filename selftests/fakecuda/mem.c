// SPDX-License-Identifier: MIT
/*
 * The stand-in's address space: device memory, at addresses that the CPU
 * can't touch, and registered host memory, which the device sees elsewhere
 * than the CPU does (unless FAKECUDA_SAME_POINTER).
 */
#include "fake.h"
#include "fakecuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

FAKE_EXPORT cu_result_t cuMemGetInfo_v2(size_t *free, size_t *total);
FAKE_EXPORT cu_result_t cuMemAlloc_v2(cu_deviceptr_t *dev, size_t bytes);
FAKE_EXPORT cu_result_t cuMemFree_v2(cu_deviceptr_t dev);
FAKE_EXPORT cu_result_t cuMemHostRegister_v2(void *addr, size_t bytes,
					     unsigned int flags);
FAKE_EXPORT cu_result_t cuMemHostUnregister(void *addr);
FAKE_EXPORT cu_result_t cuMemHostGetDevicePointer_v2(cu_deviceptr_t *dev,
						     void *addr,
						     unsigned int flags);

static char *reserve(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* How a range covers [ptr, ptr + bytes): not at all 0, partly -1, wholly 1. */
static int covers(uint64_t start, size_t len, cu_deviceptr_t ptr, size_t bytes)
{
	if (ptr >= start + len || ptr + bytes <= start)
		return 0;
	return ptr >= start && ptr + bytes <= start + len ? 1 : -1;
}

static struct fake_range *in_ranges(enum fake_type type, cu_deviceptr_t ptr,
				    size_t bytes, bool by_data, int *how)
{
	struct fake_obj *obj;

	*how = 0;
	for (obj = fake.objs[type]; obj; obj = obj->next) {
		struct fake_range *r = (struct fake_range *)obj;
		uint64_t start = by_data ? (uintptr_t)r->data : r->base;

		/* host addresses may be registered anew, device ones may not */
		if (by_data && !obj->alive)
			continue;
		*how = covers(start, r->bytes, ptr, bytes);
		if (*how && !obj->alive)
			*how = -1;
		if (*how)
			return r;
	}
	return NULL;
}

enum fake_place fake_resolve(cu_deviceptr_t ptr, size_t bytes, bool as_host,
			     struct fake_range **range, char **data)
{
	struct fake_range *r;
	int how;

	*range = NULL;
	r = in_ranges(FAKE_MEM, ptr, bytes, false, &how);
	if (r) {
		*range = r;
		*data = r->data + (ptr - r->base);
		return how > 0 ? PLACE_DEVICE : PLACE_BAD;
	}
	if (!as_host && !fake.same_pointer) {
		r = in_ranges(FAKE_REG, ptr, bytes, false, &how);
		if (r) {
			*range = r;
			*data = r->data + (ptr - r->base);
			return how > 0 ? PLACE_MAPPED : PLACE_BAD;
		}
	}
	r = in_ranges(FAKE_REG, ptr, bytes, true, &how);
	*data = (char *)(uintptr_t)ptr;
	if (r) {
		*range = r;
		if (how < 0)
			return PLACE_BAD;
		return fake.same_pointer && !as_host ? PLACE_MAPPED
						     : PLACE_HOST;
	}
	return PLACE_PAGEABLE;
}

cu_result_t cuMemGetInfo_v2(size_t *free, size_t *total)
{
	struct fake_ctx *ctx;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuMemGetInfo", &ctx);
	*total = fake.memory;
	*free = fake.memory - fake.allocated;
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuMemAlloc_v2(cu_deviceptr_t *dev, size_t bytes)
{
	struct fake_ctx *ctx;
	struct fake_range *r;
	char *data = NULL, *base = NULL;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuMemAlloc", &ctx);
	if (!res && !bytes)
		res = CU_ERROR_INVALID_VALUE;
	if (!res && fake.allocated + bytes > fake.memory)
		res = CU_ERROR_OUT_OF_MEMORY;
	if (!res) {
		data = calloc(1, bytes);
		base = reserve(bytes);
		if (!data || !base)
			abort();
		r = fake_new(FAKE_MEM, sizeof(*r), ctx);
		r->base = (uintptr_t)base;
		r->data = data;
		r->bytes = bytes;
		fake.allocated += bytes;
		*dev = r->base;
	}
	pthread_mutex_unlock(&fake.lock);
	return res;
}

/* Ends a range; one that is in use is a mistake, and what runs is awaited. */
static void range_end(struct fake_range *r, const char *what)
{
	if (r->inflight)
		fake_violation("%s while %u operations use it", what,
			       r->inflight);
	r->obj.alive = false;
	while (r->running)
		pthread_cond_wait(&fake.done, &fake.lock);
}

static struct fake_range *range_at(enum fake_type type, const void *start)
{
	struct fake_obj *obj;

	for (obj = fake.objs[type]; obj; obj = obj->next) {
		struct fake_range *r = (struct fake_range *)obj;

		if (!obj->alive)
			continue;
		if (type == FAKE_MEM ? r->base == (uintptr_t)start
				     : r->data == start)
			return r;
	}
	return NULL;
}

cu_result_t cuMemFree_v2(cu_deviceptr_t dev)
{
	struct fake_range *r;
	struct fake_ctx *ctx;
	cu_result_t injected, res = CU_SUCCESS;

	pthread_mutex_lock(&fake.lock);
	injected = fake_enter("cuMemFree", &ctx);
	r = range_at(FAKE_MEM, (void *)(uintptr_t)dev);
	if (fake_refused(injected)) {
		res = injected;
	} else if (!r) {
		res = CU_ERROR_INVALID_VALUE;
	} else {
		range_end(r, "device memory freed");
		fake.allocated -= r->bytes;
	}
	pthread_mutex_unlock(&fake.lock);
	return injected ? injected : res;
}

/* The real driver pins the pages: they have to be there. */
static bool is_mapped(void *addr, size_t bytes)
{
	unsigned char *vec = malloc(bytes / sysconf(_SC_PAGESIZE) + 1);
	int r = mincore(addr, bytes, vec);

	free(vec);
	return !r;
}

/* Pinned for a device that may write, each page has to be writable here. */
static bool is_writable(void *addr, size_t bytes)
{
	uintptr_t at = (uintptr_t)addr, end = at + bytes, from, to;
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], mode[8];

	if (!maps)
		abort();
	while (at < end && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) != 3 ||
		    to <= at)
			continue;
		if (from > at || mode[1] != 'w')
			break;
		at = to;
	}
	fclose(maps);
	return at >= end;
}

static cu_result_t check_register(void *addr, size_t bytes, unsigned int flags)
{
	size_t page = sysconf(_SC_PAGESIZE);
	int how;

	if (!addr || !bytes || (uintptr_t)addr % page || bytes % page)
		return CU_ERROR_INVALID_VALUE;
	if (flags & ~(CU_HOSTREG_PORTABLE | CU_HOSTREG_DEVICEMAP |
		      CU_HOSTREG_RDONLY))
		return CU_ERROR_INVALID_VALUE;
	if (flags & CU_HOSTREG_RDONLY && !fake.reg_rdonly)
		return CU_ERROR_NOT_SUPPORTED;
	if (bytes > fake.max_register)
		return CU_ERROR_OUT_OF_MEMORY;
	if (in_ranges(FAKE_REG, (uintptr_t)addr, bytes, true, &how))
		return CU_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (!is_mapped(addr, bytes))
		return CU_ERROR_INVALID_VALUE;
	if (!(flags & CU_HOSTREG_RDONLY) && fake.pageable != 2 &&
	    !is_writable(addr, bytes))
		return CU_ERROR_INVALID_VALUE;
	return CU_SUCCESS;
}

cu_result_t cuMemHostRegister_v2(void *addr, size_t bytes, unsigned int flags)
{
	struct fake_ctx *ctx;
	struct fake_range *r;
	char *base;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuMemHostRegister", &ctx);
	if (!res)
		res = check_register(addr, bytes, flags);
	if (!res && (flags & ~CU_HOSTREG_RDONLY) !=
			    (CU_HOSTREG_PORTABLE | CU_HOSTREG_DEVICEMAP))
		fake_violation("registration with flags %u: not mapped or not portable",
			       flags);
	if (!res) {
		base = fake.same_pointer ? addr : reserve(bytes);
		if (!base)
			abort();
		r = fake_new(FAKE_REG, sizeof(*r), ctx);
		r->base = (uintptr_t)base;
		r->data = addr;
		r->bytes = bytes;
		r->rdonly = flags & CU_HOSTREG_RDONLY ||
			    !is_writable(addr, bytes);
	}
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuMemHostUnregister(void *addr)
{
	struct fake_range *r;
	struct fake_ctx *ctx;
	cu_result_t injected, res = CU_SUCCESS;

	pthread_mutex_lock(&fake.lock);
	injected = fake_enter("cuMemHostUnregister", &ctx);
	r = range_at(FAKE_REG, addr);
	if (fake_refused(injected))
		res = injected;
	else if (!r)
		res = CU_ERROR_HOST_MEMORY_NOT_REGISTERED;
	else
		range_end(r, "memory unregistered");
	pthread_mutex_unlock(&fake.lock);
	return injected ? injected : res;
}

cu_result_t cuMemHostGetDevicePointer_v2(cu_deviceptr_t *dev, void *addr,
					 unsigned int flags)
{
	struct fake_range *r;
	struct fake_ctx *ctx;
	cu_result_t res;
	int how;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuMemHostGetDevicePointer", &ctx);
	if (!res) {
		r = in_ranges(FAKE_REG, (uintptr_t)addr, 1, true, &how);
		if (!r || flags)
			res = CU_ERROR_INVALID_VALUE;
		else
			*dev = r->base + ((char *)addr - r->data);
	}
	pthread_mutex_unlock(&fake.lock);
	return res;
}

static char *device_data(cu_deviceptr_t dev, size_t n)
{
	struct fake_range *r;
	char *data;

	if (fake_resolve(dev, n, false, &r, &data) != PLACE_DEVICE)
		return NULL;
	return data;
}

FAKE_EXPORT int fakecuda_peek(void *to, cu_deviceptr_t dev, size_t n)
{
	char *data;

	pthread_mutex_lock(&fake.lock);
	data = device_data(dev, n);
	if (data)
		memcpy(to, data, n);
	pthread_mutex_unlock(&fake.lock);
	return data ? 0 : -1;
}

FAKE_EXPORT int fakecuda_poke(cu_deviceptr_t dev, const void *from, size_t n)
{
	char *data;

	pthread_mutex_lock(&fake.lock);
	data = device_data(dev, n);
	if (data)
		memcpy(data, from, n);
	pthread_mutex_unlock(&fake.lock);
	return data ? 0 : -1;
}
