// SPDX-License-Identifier: MIT
/*
 * Our own CUDA header against the toolkit's: every value, type, layout and
 * signature.  Built only where cuda.h is; see abi.sh.
 */
#include <cuda.h>
#include <cudaTypedefs.h>

#include "gpu-shim/cuda_abi.h"

#include <stdio.h>
#include <stdlib.h>

static int nr, bad;

static void check(int good, const char *kind, const char *name)
{
	nr++;
	bad += !good;
	printf("%sok %d - %s %s\n", good ? "" : "not ", nr, kind, name);
}

#define SAME(kind, ours, theirs)                                               \
	check(__builtin_types_compatible_p(ours, theirs), kind, #theirs)

#define FIELD(ours, theirs)                                                    \
	check(offsetof(struct cu_memcpy_attrs, ours) ==                        \
		      offsetof(CUmemcpyAttributes, theirs) &&                  \
		      sizeof(((struct cu_memcpy_attrs *)0)->ours) ==           \
			      sizeof(((CUmemcpyAttributes *)0)->theirs),       \
	      "CUmemcpyAttributes", #theirs)

static void check_values(void)
{
#define X(name, value)                                                         \
	check((int)CU_##name == (int)CUDA_##name, "value", "CUDA_" #name);
	CUDA_RESULTS(X)
#undef X
#define X(name, value)                                                         \
	check((int)CU_ATTR_##name == (int)CU_DEVICE_ATTRIBUTE_##name, "value",      \
	      "CU_DEVICE_ATTRIBUTE_" #name);
	CUDA_ATTRIBUTES(X)
#undef X
#define X(name, theirs, value) check((int)name == (int)theirs, "value", #theirs);
	CUDA_VALUES(X)
#undef X
	check(CU_LEGACY_STREAM == CU_STREAM_LEGACY, "value",
	      "CU_STREAM_LEGACY");
	check(CU_THREAD_STREAM == CU_STREAM_PER_THREAD, "value",
	      "CU_STREAM_PER_THREAD");
}

static void check_types(void)
{
	SAME("type", cu_result_t, CUresult);
	SAME("type", cu_device_t, CUdevice);
	SAME("type", cu_deviceptr_t, CUdeviceptr);
	SAME("type", cu_context_t, CUcontext);
	SAME("type", cu_stream_t, CUstream);
	SAME("type", cu_event_t, CUevent);
	SAME("type", cu_module_t, CUmodule);
	SAME("type", cu_function_t, CUfunction);
	check(sizeof(struct cu_memcpy_attrs) == sizeof(CUmemcpyAttributes),
	      "size", "CUmemcpyAttributes");
	FIELD(src_access_order, srcAccessOrder);
	FIELD(src_location_type, srcLocHint.type);
	FIELD(src_location_id, srcLocHint.id);
	FIELD(dst_location_type, dstLocHint.type);
	FIELD(dst_location_id, dstLocHint.id);
	FIELD(flags, flags);
}

/* Pasted here and now: cuda.h makes macros of many of the names. */
#define X(field, symbol, since, args)                                          \
	check(__builtin_types_compatible_p(                                    \
		      __typeof__(((struct cuda_api *)0)->field),               \
		      PFN_##symbol##_v##since),                                \
	      "signature", #symbol " of " #since);

static void check_signatures(void)
{
	CUDA_REQUIRED(X)
#if CUDA_VERSION >= 13000
	CUDA_OPTIONAL(X)
#elif CUDA_VERSION >= 12080
	X(batch_12, cuMemcpyBatchAsync, 12080, ())
#endif
#undef X
	SAME("signature", cu_get_proc_v1_fn, PFN_cuGetProcAddress_v11030);
	SAME("signature", cu_get_proc_v2_fn, PFN_cuGetProcAddress_v12000);
}

/* The argument: number of the test before the first. */
int main(int argc, char **argv)
{
	if (argc > 1)
		nr = atoi(argv[1]);
	check_values();
	check_types();
	check_signatures();
	return bad != 0;
}
