/* SPDX-License-Identifier: MIT */
/*
 * The part of the CUDA driver's ABI that the shim uses, written down here so
 * that building needs no toolkit.  selftests/shim/abi.c compares every type,
 * value and signature with cuda.h and cudaTypedefs.h where they are installed.
 *
 * Facts from "CUDA Driver API" (cuda.h of 13.0) and its comments:
 * - cuGetProcAddress(symbol, &fn, version): returns the variant of a function
 *   that belongs to that CUDA version; asking for a version above the
 *   driver's is an error.  The four-argument form came with 11.3, the one
 *   with a status with 12.0 as cuGetProcAddress_v2.
 * - cuMemcpyBatchAsync came with 12.8 and an argument failIdx, which 13.0
 *   dropped: the same name, another ABI.  It refuses the legacy default
 *   stream; attrsIdxs[k] is the first copy that attrs[k] is for.
 * - A copy's host memory is registered as a whole or not at all; across two
 *   registrations it is CUDA_ERROR_INVALID_VALUE.
 * - The address of registered memory equals its device pointer only where
 *   every device has CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM.
 * - A kernel's parameters take 4096 bytes on all devices.
 */
#ifndef KVMM_CUDA_ABI_H
#define KVMM_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

/* CUresult, and the other enums, have the size of unsigned int */
typedef unsigned int cu_result_t;
typedef int cu_device_t;
typedef unsigned long long cu_deviceptr_t;
typedef struct CUctx_st *cu_context_t;
typedef struct CUstream_st *cu_stream_t;
typedef struct CUevent_st *cu_event_t;
typedef struct CUmod_st *cu_module_t;
typedef struct CUfunc_st *cu_function_t;

/* name, value; CU_SUCCESS is CUDA_SUCCESS and so on */
#define CUDA_RESULTS(X)                                                        \
	X(SUCCESS, 0)                                                          \
	X(ERROR_INVALID_VALUE, 1)                                              \
	X(ERROR_OUT_OF_MEMORY, 2)                                              \
	X(ERROR_NOT_INITIALIZED, 3)                                            \
	X(ERROR_STUB_LIBRARY, 34)                                              \
	X(ERROR_DEVICE_UNAVAILABLE, 46)                                        \
	X(ERROR_NO_DEVICE, 100)                                                \
	X(ERROR_INVALID_DEVICE, 101)                                           \
	X(ERROR_INVALID_IMAGE, 200)                                            \
	X(ERROR_INVALID_CONTEXT, 201)                                          \
	X(ERROR_CONTEXT_ALREADY_IN_USE, 216)                                   \
	X(ERROR_INVALID_PTX, 218)                                              \
	X(ERROR_UNSUPPORTED_PTX_VERSION, 222)                                  \
	X(ERROR_INVALID_HANDLE, 400)                                           \
	X(ERROR_NOT_FOUND, 500)                                                \
	X(ERROR_NOT_READY, 600)                                                \
	X(ERROR_ILLEGAL_ADDRESS, 700)                                          \
	X(ERROR_CONTEXT_IS_DESTROYED, 709)                                     \
	X(ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                           \
	X(ERROR_HOST_MEMORY_NOT_REGISTERED, 713)                               \
	X(ERROR_NOT_PERMITTED, 800)                                            \
	X(ERROR_NOT_SUPPORTED, 801)                                            \
	X(ERROR_SYSTEM_DRIVER_MISMATCH, 803)                                   \
	X(ERROR_UNKNOWN, 999)

/* CUdevice_attribute */
#define CUDA_ATTRIBUTES(X)                                                     \
	X(UNIFIED_ADDRESSING, 41)                                              \
	X(CAN_MAP_HOST_MEMORY, 19)                                             \
	X(PAGEABLE_MEMORY_ACCESS, 88)                                          \
	X(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 91)                         \
	X(PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 100)                   \
	X(READ_ONLY_HOST_REGISTER_SUPPORTED, 113)

/* flags and small enums: ours, CUDA's, value */
#define CUDA_VALUES(X)                                                         \
	X(CU_HOSTREG_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE, 1)                 \
	X(CU_HOSTREG_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP, 2)               \
	X(CU_HOSTREG_RDONLY, CU_MEMHOSTREGISTER_READ_ONLY, 8)                  \
	X(CU_STREAM_NONBLOCK, CU_STREAM_NON_BLOCKING, 1)                       \
	X(CU_EVENT_BLOCKING, CU_EVENT_BLOCKING_SYNC, 1)                        \
	X(CU_EVENT_UNTIMED, CU_EVENT_DISABLE_TIMING, 2)                        \
	X(CU_PROC_LEGACY, CU_GET_PROC_ADDRESS_LEGACY_STREAM, 1)                \
	X(CU_PROC_FOUND, CU_GET_PROC_ADDRESS_SUCCESS, 0)                       \
	X(CU_ORDER_STREAM, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, 1)               \
	X(CU_PLACE_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE, 1)                     \
	X(CU_PLACE_HOST, CU_MEM_LOCATION_TYPE_HOST, 2)                         \
	X(CU_COPY_OVERLAP, CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE, 1)      \
	X(CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER, 5)                        \
	X(CU_JIT_ERROR_LOG_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 6)

enum {
#define X(name, value) CU_##name = value,
	CUDA_RESULTS(X)
#undef X
#define X(name, value) CU_ATTR_##name = value,
	CUDA_ATTRIBUTES(X)
#undef X
#define X(name, theirs, value) name = value,
	CUDA_VALUES(X)
#undef X
};

/* The default stream by its two names; handles of streams are pointers. */
#define CU_LEGACY_STREAM ((cu_stream_t)1)
#define CU_THREAD_STREAM ((cu_stream_t)2)

/* CUmemcpyAttributes; the locations are hints for managed memory only */
struct cu_memcpy_attrs {
	unsigned int src_access_order;
	unsigned int src_location_type;
	int src_location_id;
	unsigned int dst_location_type;
	int dst_location_id;
	unsigned int flags;
};

struct CUmemcpyAttributes_st;

/* cuGetProcAddress of 11.3 and of 12.0, found by dlsym */
typedef cu_result_t (*cu_get_proc_v1_fn)(const char *symbol, void **fn,
					 int version, uint64_t flags);
typedef cu_result_t (*cu_get_proc_v2_fn)(const char *symbol, void **fn,
					 int version, uint64_t flags,
					 unsigned int *status);

/*
 * Entry points: our name, the driver's, the version of the ABI, arguments.
 * The first group must be there, the second may be missing.
 */
#define CUDA_REQUIRED(X)                                                       \
	X(init, cuInit, 2000, (unsigned int))                                  \
	X(error_name, cuGetErrorName, 6000, (cu_result_t, const char **))      \
	X(error_string, cuGetErrorString, 6000, (cu_result_t, const char **))  \
	X(device_count, cuDeviceGetCount, 2000, (int *))                       \
	X(device_get, cuDeviceGet, 2000, (cu_device_t *, int))                 \
	X(device_name, cuDeviceGetName, 2000, (char *, int, cu_device_t))      \
	X(device_attr, cuDeviceGetAttribute, 2000,                             \
	  (int *, unsigned int, cu_device_t))                                  \
	X(device_pci, cuDeviceGetPCIBusId, 4010, (char *, int, cu_device_t))   \
	X(primary_retain, cuDevicePrimaryCtxRetain, 7000,                      \
	  (cu_context_t *, cu_device_t))                                       \
	X(primary_release, cuDevicePrimaryCtxRelease, 11000, (cu_device_t))    \
	X(ctx_current, cuCtxGetCurrent, 4000, (cu_context_t *))                \
	X(ctx_push, cuCtxPushCurrent, 4000, (cu_context_t))                    \
	X(ctx_pop, cuCtxPopCurrent, 4000, (cu_context_t *))                    \
	X(ctx_device, cuCtxGetDevice, 2000, (cu_device_t *))                   \
	X(host_register, cuMemHostRegister, 6050,                              \
	  (void *, size_t, unsigned int))                                      \
	X(host_unregister, cuMemHostUnregister, 4000, (void *))                \
	X(host_dev_ptr, cuMemHostGetDevicePointer, 3020,                       \
	  (cu_deviceptr_t *, void *, unsigned int))                            \
	X(mem_alloc, cuMemAlloc, 3020, (cu_deviceptr_t *, size_t))             \
	X(mem_free, cuMemFree, 3020, (cu_deviceptr_t))                         \
	X(copy_in, cuMemcpyHtoDAsync, 3020,                                    \
	  (cu_deviceptr_t, const void *, size_t, cu_stream_t))                 \
	X(copy_out, cuMemcpyDtoHAsync, 3020,                                   \
	  (void *, cu_deviceptr_t, size_t, cu_stream_t))                       \
	X(stream_create, cuStreamCreate, 2000, (cu_stream_t *, unsigned int))  \
	X(stream_destroy, cuStreamDestroy, 4000, (cu_stream_t))                \
	X(stream_sync, cuStreamSynchronize, 2000, (cu_stream_t))               \
	X(stream_wait, cuStreamWaitEvent, 3020,                                \
	  (cu_stream_t, cu_event_t, unsigned int))                             \
	X(stream_ctx, cuStreamGetCtx, 9020, (cu_stream_t, cu_context_t *))     \
	X(event_create, cuEventCreate, 2000, (cu_event_t *, unsigned int))     \
	X(event_destroy, cuEventDestroy, 4000, (cu_event_t))                   \
	X(event_record, cuEventRecord, 2000, (cu_event_t, cu_stream_t))        \
	X(event_query, cuEventQuery, 2000, (cu_event_t))                       \
	X(event_sync, cuEventSynchronize, 2000, (cu_event_t))                  \
	X(module_load, cuModuleLoadDataEx, 2010,                               \
	  (cu_module_t *, const void *, unsigned int, unsigned int *,          \
	   void **))                                                           \
	X(module_function, cuModuleGetFunction, 2000,                          \
	  (cu_function_t *, cu_module_t, const char *))                        \
	X(module_unload, cuModuleUnload, 2000, (cu_module_t))                  \
	X(launch, cuLaunchKernel, 4000,                                        \
	  (cu_function_t, unsigned int, unsigned int, unsigned int,            \
	   unsigned int, unsigned int, unsigned int, unsigned int,             \
	   cu_stream_t, void **, void **))

#define CUDA_OPTIONAL(X)                                                       \
	X(batch_12, cuMemcpyBatchAsync, 12080,                                 \
	  (cu_deviceptr_t *, cu_deviceptr_t *, size_t *, size_t,               \
	   struct CUmemcpyAttributes_st *, size_t *, size_t, size_t *,         \
	   cu_stream_t))                                                       \
	X(batch_13, cuMemcpyBatchAsync, 13000,                                 \
	  (cu_deviceptr_t *, cu_deviceptr_t *, size_t *, size_t,               \
	   struct CUmemcpyAttributes_st *, size_t *, size_t, cu_stream_t))

/* The driver's entry points; cuda_api.c fills it in. */
struct cuda_api {
	void *dl;
	int version;
#define X(name, symbol, since, args) cu_result_t(*name) args;
	CUDA_REQUIRED(X)
	CUDA_OPTIONAL(X)
#undef X
};

/*
 * The gather/scatter kernel's argument: up to CU_COPY_DESCS groups of equal
 * fragments.  Block (x, y) of 256 threads copies fragments x, x + gridDim.x,
 * ... of group y.  Of its three entries kvmm_copy_16, _4 and _1 the number is
 * the bytes moved by one instruction: all addresses, strides and sizes are
 * multiples of it.
 */
#define CU_COPY_DESCS 100
#define CU_COPY_THREADS 256

struct cu_copy_desc {
	uint64_t src;
	uint64_t dst;
	uint64_t src_stride;
	uint64_t dst_stride;
	uint32_t bytes;
	uint32_t count;
};

struct cu_copy_args {
	uint32_t nr;
	uint32_t zero;
	struct cu_copy_desc desc[CU_COPY_DESCS];
};

_Static_assert(sizeof(struct cu_copy_desc) == 40, "the PTX counts on it");
_Static_assert(sizeof(struct cu_copy_args) == 4008, "the PTX counts on it");

/* cuda_ptx.c */
extern const char gpu_cuda_ptx[];

#endif /* KVMM_CUDA_ABI_H */
