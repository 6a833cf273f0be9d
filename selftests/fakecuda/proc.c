// SPDX-License-Identifier: MIT
/*
 * The stand-in's entry points by name and version, and error texts.  Built
 * twice: with FAKE_OLD only the four-argument cuGetProcAddress of 11.3 is
 * there.
 */
#include "fake.h"

#include <stdio.h>
#include <string.h>

FAKE_EXPORT cu_result_t cuGetProcAddress(const char *symbol, void **fn,
				       int version, uint64_t flags);
FAKE_EXPORT cu_result_t cuGetErrorName(cu_result_t error, const char **text);
FAKE_EXPORT cu_result_t cuGetErrorString(cu_result_t error, const char **text);

/* Names as the library exports them: what cuda.h calls them by macro. */
#define EXPORTS(X)                                                             \
	X(cuInit, cuInit, 2000)                                                \
	X(cuDriverGetVersion, cuDriverGetVersion, 2020)                        \
	X(cuGetErrorName, cuGetErrorName, 6000)                                \
	X(cuGetErrorString, cuGetErrorString, 6000)                            \
	X(cuDeviceGetCount, cuDeviceGetCount, 2000)                            \
	X(cuDeviceGet, cuDeviceGet, 2000)                                      \
	X(cuDeviceGetName, cuDeviceGetName, 2000)                              \
	X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000)                    \
	X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010)                      \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)            \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000)      \
	X(cuCtxCreate, cuCtxCreate_v2, 3020)                                   \
	X(cuCtxDestroy, cuCtxDestroy_v2, 4000)                                 \
	X(cuCtxGetCurrent, cuCtxGetCurrent, 4000)                              \
	X(cuCtxSetCurrent, cuCtxSetCurrent, 4000)                              \
	X(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000)                         \
	X(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000)                           \
	X(cuCtxGetDevice, cuCtxGetDevice, 2000)                                \
	X(cuMemHostRegister, cuMemHostRegister_v2, 6050)                       \
	X(cuMemHostUnregister, cuMemHostUnregister, 4000)                      \
	X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020)       \
	X(cuMemGetInfo, cuMemGetInfo_v2, 3020)                                 \
	X(cuMemAlloc, cuMemAlloc_v2, 3020)                                     \
	X(cuMemFree, cuMemFree_v2, 3020)                                       \
	X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020)                       \
	X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020)                       \
	X(cuMemcpyBatchAsync, cuMemcpyBatchAsync, 12080)                       \
	X(cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2, 13000)                    \
	X(cuStreamCreate, cuStreamCreate, 2000)                                \
	X(cuStreamDestroy, cuStreamDestroy_v2, 4000)                           \
	X(cuStreamSynchronize, cuStreamSynchronize, 2000)                      \
	X(cuStreamWaitEvent, cuStreamWaitEvent, 3020)                          \
	X(cuStreamGetCtx, cuStreamGetCtx, 9020)                                \
	X(cuEventCreate, cuEventCreate, 2000)                                  \
	X(cuEventDestroy, cuEventDestroy_v2, 4000)                             \
	X(cuEventRecord, cuEventRecord, 2000)                                  \
	X(cuEventQuery, cuEventQuery, 2000)                                    \
	X(cuEventSynchronize, cuEventSynchronize, 2000)                        \
	X(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010)                        \
	X(cuModuleGetFunction, cuModuleGetFunction, 2000)                      \
	X(cuModuleUnload, cuModuleUnload, 2000)                                \
	X(cuLaunchKernel, cuLaunchKernel, 4000)

/* Only their addresses matter here: any function type will do. */
#define X(name, symbol, since) extern void fake_##symbol(void) __asm__(#symbol);
EXPORTS(X)
#undef X

static const struct {
	const char *name;
	void (*fn)(void);
	int since;
} exports[] = {
#define X(name, symbol, since) {#name, fake_##symbol, since},
	EXPORTS(X)
#undef X
};

#define NR_EXPORTS ARRAY_SIZE(exports)

static bool is_missing(const char *name)
{
	char want[80];

	snprintf(want, sizeof(want), ",%s,", name);
	return strstr(fake.missing, want);
}

/* The newest variant that the asked version knows. */
static cu_result_t find(const char *symbol, void **fn, int version,
		      uint64_t flags, unsigned int *status)
{
	size_t i, best = NR_EXPORTS;
	cu_result_t res = fake_call("cuGetProcAddress");

	*fn = NULL;
	*status = 1; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
	if (res)
		return res;
	if (version > fake.version || flags != CU_PROC_LEGACY)
		return CU_ERROR_INVALID_VALUE;
	if (is_missing(symbol))
		return CU_SUCCESS;
	for (i = 0; i < NR_EXPORTS; i++) {
		if (strcmp(exports[i].name, symbol))
			continue;
		*status = 2; /* CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT */
		if (exports[i].since <= version &&
		    (best == NR_EXPORTS ||
		     exports[best].since < exports[i].since))
			best = i;
	}
	if (best != NR_EXPORTS) {
		*status = CU_PROC_FOUND;
		memcpy(fn, &exports[best].fn, sizeof(*fn));
	}
	return CU_SUCCESS;
}

cu_result_t cuGetProcAddress(const char *symbol, void **fn, int version,
			   uint64_t flags)
{
	unsigned int status;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = find(symbol, fn, version, flags, &status);
	if (!res && status != CU_PROC_FOUND)
		res = CU_ERROR_NOT_FOUND; /* as 11.3 did */
	pthread_mutex_unlock(&fake.lock);
	return res;
}

#ifndef FAKE_OLD
FAKE_EXPORT cu_result_t cuGetProcAddress_v2(const char *symbol, void **fn,
					  int version, uint64_t flags,
					  unsigned int *status);

cu_result_t cuGetProcAddress_v2(const char *symbol, void **fn, int version,
			      uint64_t flags, unsigned int *status)
{
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = find(symbol, fn, version, flags, status);
	pthread_mutex_unlock(&fake.lock);
	return res;
}
#endif

static const struct {
	cu_result_t code;
	const char *name;
} results[] = {
#define X(name, value) {value, "CUDA_" #name},
	CUDA_RESULTS(X)
#undef X
};

cu_result_t cuGetErrorName(cu_result_t error, const char **text)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(results); i++)
		if (results[i].code == error) {
			*text = results[i].name;
			return CU_SUCCESS;
		}
	*text = NULL;
	return CU_ERROR_INVALID_VALUE;
}

cu_result_t cuGetErrorString(cu_result_t error, const char **text)
{
	(void)error;
	*text = "the stand-in says no";
	return CU_SUCCESS;
}
