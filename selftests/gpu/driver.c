// SPDX-License-Identifier: MIT
/*
 * The part of the CUDA driver that gpu-shim has no use for: memory of the
 * device, a current context, kernels.  Loaded at run time, as there.
 */
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* name here, in the library, arguments */
#define SYMBOLS(X)                                                             \
	X(init, cuInit, (unsigned int))                                        \
	X(error_name, cuGetErrorName, (cu_result_t, const char **))            \
	X(device_count, cuDeviceGetCount, (int *))                             \
	X(device_get, cuDeviceGet, (cu_device_t *, int))                       \
	X(primary_retain, cuDevicePrimaryCtxRetain,                            \
	  (cu_context_t *, cu_device_t))                                       \
	X(primary_release, cuDevicePrimaryCtxRelease_v2, (cu_device_t))        \
	X(ctx_push, cuCtxPushCurrent_v2, (cu_context_t))                       \
	X(ctx_pop, cuCtxPopCurrent_v2, (cu_context_t *))                       \
	X(mem_info, cuMemGetInfo_v2, (size_t *, size_t *))                     \
	X(mem_alloc, cuMemAlloc_v2, (cu_deviceptr_t *, size_t))                \
	X(mem_free, cuMemFree_v2, (cu_deviceptr_t))                            \
	X(module_load, cuModuleLoadDataEx,                                     \
	  (cu_module_t *, const void *, unsigned int, unsigned int *,          \
	   void **))                                                           \
	X(module_function, cuModuleGetFunction,                                \
	  (cu_function_t *, cu_module_t, const char *))                        \
	X(module_unload, cuModuleUnload, (cu_module_t))                        \
	X(launch, cuLaunchKernel,                                              \
	  (cu_function_t, unsigned int, unsigned int, unsigned int,            \
	   unsigned int, unsigned int, unsigned int, unsigned int,             \
	   cu_stream_t, void **, void **))

/**
 * struct driver - the library and a context
 * @dl: the library
 * @device: handle of the device
 * @ctx: its primary context, current for the thread that opened it
 * @module: our kernels
 * @read: kvmm_read
 * @product: kvmm_product
 * @error: the latest
 */
struct driver {
	void *dl;
	cu_device_t device;
	cu_context_t ctx;
	cu_module_t module;
	cu_function_t read;
	cu_function_t product;
	char error[300];
#define X(name, symbol, args) cu_result_t(*name) args;
	SYMBOLS(X)
#undef X
};

static int failed(struct driver *d, const char *what, cu_result_t res)
{
	const char *name = NULL;

	if (!res)
		return 0;
	if (d->error_name(res, &name) || !name)
		name = "an error without a name";
	snprintf(d->error, sizeof(d->error), "%s: %s (%u)", what, name, res);
	return -EIO;
}

const char *driver_error(const struct driver *d)
{
	return d->error;
}

static const char *load(struct driver *d, const char *libcuda)
{
	d->dl = dlopen(libcuda ? libcuda : "libcuda.so.1", RTLD_NOW);
	if (!d->dl)
		return "no NVIDIA driver here (libcuda.so.1 can't be loaded)";
#define X(name, symbol, args)                                                  \
	do {                                                                   \
		void *fn = dlsym(d->dl, #symbol);                              \
									       \
		if (!fn)                                                       \
			return "the NVIDIA driver is too old: no " #symbol;    \
		memcpy(&d->name, &fn, sizeof(fn));                             \
	} while (0);
	SYMBOLS(X)
#undef X
	return NULL;
}

/* What says that there is no GPU, not that one fails. */
static bool means_none(cu_result_t res)
{
	return res == CU_ERROR_NO_DEVICE || res == CU_ERROR_STUB_LIBRARY ||
	       res == CU_ERROR_SYSTEM_DRIVER_MISMATCH;
}

int driver_open(struct driver **out, const char *libcuda, int device, char *why,
		size_t len)
{
	struct driver *d = calloc(1, sizeof(*d));
	const char *missing;
	cu_result_t res;
	int n = 0, err;

	if (!d) {
		snprintf(why, len, "out of memory");
		return -ENOMEM;
	}
	missing = load(d, libcuda);
	if (missing) {
		snprintf(why, len, "%s", missing);
		err = -ENODEV;
		goto fail;
	}
	res = d->init(0);
	if (!res)
		res = d->device_count(&n);
	if (means_none(res) || (!res && !n)) {
		snprintf(why, len, "the NVIDIA driver has no GPU to give");
		err = -ENODEV;
		goto fail;
	}
	err = failed(d, "cuInit", res);
	if (!err && device >= n) {
		snprintf(d->error, sizeof(d->error), "no device %d, there are %d",
			 device, n);
		err = -EIO;
	}
	if (!err)
		err = failed(d, "cuDeviceGet", d->device_get(&d->device, device));
	if (!err)
		err = failed(d, "cuDevicePrimaryCtxRetain",
			     d->primary_retain(&d->ctx, d->device));
	if (!err) {
		err = failed(d, "cuCtxPushCurrent", d->ctx_push(d->ctx));
		if (err)
			d->primary_release(d->device);
	}
	if (!err) {
		*out = d;
		return 0;
	}
	snprintf(why, len, "%s", d->error);
fail:
	if (d->dl)
		dlclose(d->dl);
	free(d);
	return err;
}

void driver_close(struct driver *d)
{
	cu_context_t ctx;

	if (d->module)
		d->module_unload(d->module);
	d->ctx_pop(&ctx);
	d->primary_release(d->device);
	dlclose(d->dl);
	free(d);
}

size_t driver_free_bytes(struct driver *d)
{
	size_t free_bytes = 0, total;

	return failed(d, "cuMemGetInfo", d->mem_info(&free_bytes, &total)) ?
		       0 : free_bytes;
}

cu_deviceptr_t driver_alloc(struct driver *d, size_t bytes)
{
	cu_deviceptr_t dev = 0;

	return failed(d, "cuMemAlloc", d->mem_alloc(&dev, bytes)) ? 0 : dev;
}

void driver_free(struct driver *d, cu_deviceptr_t dev)
{
	if (dev)
		d->mem_free(dev);
}

int driver_kernels(struct driver *d)
{
	char log[200] = "";
	unsigned int options[] = { CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BYTES };
	void *values[] = { log, (void *)sizeof(log) };
	int err;

	err = failed(d, "cuModuleLoadDataEx",
		     d->module_load(&d->module, check_ptx, 2, options, values));
	if (err) {
		size_t n = strlen(d->error);

		d->module = NULL;
		snprintf(d->error + n, sizeof(d->error) - n, ": %.150s", log);
		return err;
	}
	err = failed(d, "cuModuleGetFunction",
		     d->module_function(&d->read, d->module, "kvmm_read"));
	if (!err)
		err = failed(d, "cuModuleGetFunction",
			     d->module_function(&d->product, d->module,
						"kvmm_product"));
	return err;
}

#define READ_BLOCKS 8	/* of a frame: 64 frames fill any GPU */

int driver_read(struct driver *d, void *stream, uint64_t frames, uint64_t out,
		uint32_t bytes, unsigned int nr)
{
	void *params[] = { &frames, &out, &bytes };

	return failed(d, "cuLaunchKernel",
		      d->launch(d->read, READ_BLOCKS, nr, 1, 256, 1, 1, 0,
				stream, params, NULL));
}

int driver_product(struct driver *d, void *stream, uint64_t a, uint64_t b,
		   uint64_t c, uint32_t n)
{
	void *params[] = { &a, &b, &c, &n };

	return failed(d, "cuLaunchKernel",
		      d->launch(d->product, n / 128, n / 32, 1, 256, 1, 1, 0,
				stream, params, NULL));
}
