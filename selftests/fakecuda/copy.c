// SPDX-License-Identifier: MIT
/*
 * The stand-in's copies: single and in batches (both ABIs); and its modules.
 * What a kernel does is in kernels.c.
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

FAKE_EXPORT cu_result_t cuMemcpyHtoDAsync_v2(cu_deviceptr_t dst,
					     const void *src, size_t bytes,
					     cu_stream_t stream);
FAKE_EXPORT cu_result_t cuMemcpyDtoHAsync_v2(void *dst, cu_deviceptr_t src,
					     size_t bytes, cu_stream_t stream);
FAKE_EXPORT cu_result_t cuMemcpyBatchAsync(
	cu_deviceptr_t *dsts, cu_deviceptr_t *srcs, size_t *sizes, size_t count,
	struct CUmemcpyAttributes_st *attrs, size_t *attr_idx, size_t nr_attrs,
	size_t *fail_idx, cu_stream_t stream);
FAKE_EXPORT cu_result_t
cuMemcpyBatchAsync_v2(cu_deviceptr_t *dsts, cu_deviceptr_t *srcs, size_t *sizes,
		      size_t count, struct CUmemcpyAttributes_st *attrs,
		      size_t *attr_idx, size_t nr_attrs, cu_stream_t stream);
FAKE_EXPORT cu_result_t cuModuleLoadDataEx(cu_module_t *module,
					   const void *image, unsigned int nr,
					   unsigned int *options,
					   void **values);
FAKE_EXPORT cu_result_t cuModuleGetFunction(cu_function_t *fn,
					    cu_module_t module,
					    const char *name);
FAKE_EXPORT cu_result_t cuModuleUnload(cu_module_t module);
FAKE_EXPORT cu_result_t cuLaunchKernel(cu_function_t fn, unsigned int gx,
				       unsigned int gy, unsigned int gz,
				       unsigned int bx, unsigned int by,
				       unsigned int bz, unsigned int shared,
				       cu_stream_t stream, void **params,
				       void **extra);

static cu_result_t submit_one(struct fake_ctx *ctx, cu_stream_t stream,
			      const struct fake_piece *piece)
{
	struct fake_stream *s = fake_stream_get(ctx, stream);
	struct fake_op *op;

	if (!s)
		return CU_ERROR_INVALID_HANDLE;
	op = fake_op_new(FAKE_OP_COPY);
	fake_op_add(op, piece);
	fake_submit(s, op);
	return CU_SUCCESS;
}

/* The CPU's side of a plain copy: one registration, or, where the device can
 * reach it, pageable memory.  (The real driver stages pageable memory, and
 * quietly becomes synchronous: the shim must never ask for that.)
 */
static cu_result_t host_side(const void *addr, size_t bytes, bool write,
			     struct fake_range **range, char **data)
{
	enum fake_place place =
		fake_resolve((uintptr_t)addr, bytes, true, range, data);

	if (write && *range && (*range)->rdonly)
		return CU_ERROR_INVALID_VALUE;
	if (place == PLACE_HOST || (place == PLACE_PAGEABLE && fake.pageable))
		return CU_SUCCESS;
	return CU_ERROR_INVALID_VALUE;
}

cu_result_t cuMemcpyHtoDAsync_v2(cu_deviceptr_t dst, const void *src,
				 size_t bytes, cu_stream_t stream)
{
	struct fake_piece p = {.bytes = bytes};
	struct fake_ctx *ctx;
	char *data;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuMemcpyHtoDAsync", &ctx);
	if (!res)
		res = host_side(src, bytes, false, &p.src_range, &data);
	if (!res) {
		p.src = data;
		if (fake_resolve(dst, bytes, false, &p.dst_range, &p.dst) !=
		    PLACE_DEVICE)
			res = CU_ERROR_INVALID_VALUE;
	}
	if (!res)
		res = submit_one(ctx, stream, &p);
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuMemcpyDtoHAsync_v2(void *dst, cu_deviceptr_t src, size_t bytes,
				 cu_stream_t stream)
{
	struct fake_piece p = {.bytes = bytes};
	struct fake_ctx *ctx;
	char *data;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuMemcpyDtoHAsync", &ctx);
	if (!res)
		res = host_side(dst, bytes, true, &p.dst_range, &p.dst);
	if (!res && fake_resolve(src, bytes, false, &p.src_range, &data) !=
			    PLACE_DEVICE)
		res = CU_ERROR_INVALID_VALUE;
	if (!res) {
		p.src = data;
		res = submit_one(ctx, stream, &p);
	}
	pthread_mutex_unlock(&fake.lock);
	return res;
}

bool fake_device_side(cu_deviceptr_t ptr, size_t bytes, bool write,
		      struct fake_range **range, char **data)
{
	enum fake_place place = fake_resolve(ptr, bytes, false, range, data);

	if (write && *range && (*range)->rdonly)
		return false;
	return place == PLACE_DEVICE || place == PLACE_MAPPED ||
	       (place == PLACE_PAGEABLE && fake.pageable);
}

static cu_result_t batch_attrs(const struct cu_memcpy_attrs *attrs,
			       const size_t *idx, size_t nr, size_t count)
{
	size_t i;

	if (!nr || nr > count || idx[0])
		return CU_ERROR_INVALID_VALUE;
	for (i = 0; i < nr; i++) {
		if (i && (idx[i] <= idx[i - 1] || idx[i] >= count))
			return CU_ERROR_INVALID_VALUE;
		if (attrs[i].src_access_order < 1 ||
		    attrs[i].src_access_order > 3)
			return CU_ERROR_INVALID_VALUE;
		/* ANY would let a batch overtake what fills its source */
		if (attrs[i].src_access_order != CU_ORDER_STREAM)
			fake_violation("batch out of stream order");
		if (attrs[i].src_location_type > CU_PLACE_HOST ||
		    attrs[i].dst_location_type > CU_PLACE_HOST)
			return CU_ERROR_INVALID_VALUE;
		if (attrs[i].flags & ~CU_COPY_OVERLAP)
			return CU_ERROR_INVALID_VALUE;
	}
	return CU_SUCCESS;
}

static cu_result_t batch(cu_deviceptr_t *dsts, cu_deviceptr_t *srcs,
			 size_t *sizes, size_t count,
			 const struct cu_memcpy_attrs *attrs, size_t *idx,
			 size_t nr, size_t *bad, cu_stream_t stream)
{
	struct fake_stream *s;
	struct fake_ctx *ctx;
	struct fake_op *op;
	cu_result_t res;
	size_t i;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuMemcpyBatchAsync", &ctx);
	if (!res && (!stream || stream == CU_LEGACY_STREAM || !count))
		res = CU_ERROR_INVALID_VALUE;
	if (!res)
		res = batch_attrs(attrs, idx, nr, count);
	if (res)
		goto out;
	s = fake_stream_get(ctx, stream);
	if (!s) {
		res = CU_ERROR_INVALID_HANDLE;
		goto out;
	}
	op = fake_op_new(FAKE_OP_COPY);
	for (i = 0; i < count; i++) {
		struct fake_piece p = {.bytes = sizes[i]};
		char *data;

		if (!sizes[i] ||
		    !fake_device_side(dsts[i], sizes[i], true, &p.dst_range,
				      &p.dst) ||
		    !fake_device_side(srcs[i], sizes[i], false, &p.src_range,
				      &data)) {
			*bad = i;
			res = CU_ERROR_INVALID_VALUE;
			break;
		}
		p.src = data;
		fake_op_add(op, &p);
	}
	if (res)
		fake_op_free(op);
	else
		fake_submit(s, op);
out:
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuMemcpyBatchAsync(cu_deviceptr_t *dsts, cu_deviceptr_t *srcs,
			       size_t *sizes, size_t count,
			       struct CUmemcpyAttributes_st *attrs,
			       size_t *attr_idx, size_t nr_attrs,
			       size_t *fail_idx, cu_stream_t stream)
{
	return batch(dsts, srcs, sizes, count, (void *)attrs, attr_idx,
		     nr_attrs, fail_idx, stream);
}

cu_result_t cuMemcpyBatchAsync_v2(cu_deviceptr_t *dsts, cu_deviceptr_t *srcs,
				  size_t *sizes, size_t count,
				  struct CUmemcpyAttributes_st *attrs,
				  size_t *attr_idx, size_t nr_attrs,
				  cu_stream_t stream)
{
	size_t bad;

	return batch(dsts, srcs, sizes, count, (void *)attrs, attr_idx,
		     nr_attrs, &bad, stream);
}

static void jit_log(unsigned int nr, const unsigned int *options, void **values,
		    const char *text)
{
	char *log = NULL;
	size_t room = 0;
	unsigned int i;

	for (i = 0; i < nr; i++) {
		if (options[i] == CU_JIT_ERROR_LOG)
			log = values[i];
		if (options[i] == CU_JIT_ERROR_LOG_BYTES)
			room = (uintptr_t)values[i];
	}
	if (log && room > strlen(text))
		strcpy(log, text);
}

cu_result_t cuModuleLoadDataEx(cu_module_t *module, const void *image,
			       unsigned int nr, unsigned int *options,
			       void **values)
{
	const char *ptx = image;
	struct fake_module *m;
	struct fake_ctx *ctx;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuModuleLoadDataEx", &ctx);
	if (!res && (strncmp(ptx, ".version ", 9) || !strstr(ptx, "\n.target")))
		res = CU_ERROR_INVALID_PTX;
	if (res) {
		jit_log(nr, options, values, "the stand-in's JIT log\n");
	} else {
		m = fake_new(FAKE_MODULE, sizeof(*m), ctx);
		m->image = strdup(ptx);
		*module = (cu_module_t)m;
	}
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuModuleGetFunction(cu_function_t *out, cu_module_t module,
				const char *name)
{
	struct fake_function *fn;
	struct fake_module *m;
	enum fake_kernel kernel;
	struct fake_ctx *ctx;
	unsigned int unit;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuModuleGetFunction", &ctx);
	if (res)
		goto out;
	m = fake_find(FAKE_MODULE, module);
	kernel = m ? fake_kernel_find(m->image, name, &unit) : KERNEL_NONE;
	if (!m) {
		res = CU_ERROR_INVALID_HANDLE;
	} else if (kernel == KERNEL_NONE) {
		res = CU_ERROR_NOT_FOUND;
	} else {
		fn = fake_new(FAKE_FUNCTION, sizeof(*fn), ctx);
		fn->module = m;
		fn->kernel = kernel;
		fn->unit = unit;
		*out = (cu_function_t)fn;
	}
out:
	pthread_mutex_unlock(&fake.lock);
	return res;
}

cu_result_t cuModuleUnload(cu_module_t module)
{
	struct fake_module *m;
	struct fake_ctx *ctx;
	cu_result_t injected, res = CU_SUCCESS;

	pthread_mutex_lock(&fake.lock);
	injected = fake_enter("cuModuleUnload", &ctx);
	m = fake_find(FAKE_MODULE, module);
	if (fake_refused(injected))
		res = injected;
	else if (!m)
		res = CU_ERROR_INVALID_HANDLE;
	else
		m->obj.alive = false;
	pthread_mutex_unlock(&fake.lock);
	return injected ? injected : res;
}

cu_result_t cuLaunchKernel(cu_function_t handle, unsigned int gx,
			   unsigned int gy, unsigned int gz, unsigned int bx,
			   unsigned int by, unsigned int bz,
			   unsigned int shared, cu_stream_t stream,
			   void **params, void **extra)
{
	const struct fake_launch launch = {
		.grid = {gx, gy, gz},
		.block = {bx, by, bz},
		.params = params,
	};
	struct fake_function *fn;
	struct fake_stream *s;
	struct fake_ctx *ctx;
	struct fake_op *op;
	cu_result_t res;

	pthread_mutex_lock(&fake.lock);
	res = fake_enter("cuLaunchKernel", &ctx);
	if (res)
		goto out;
	fn = fake_find(FAKE_FUNCTION, handle);
	s = fake_stream_get(ctx, stream);
	if (!fn || !fn->module->obj.alive || fn->obj.ctx != ctx || !s) {
		res = CU_ERROR_INVALID_HANDLE;
		goto out;
	}
	if (!gx || !gy || !gz || !bx || shared || extra || !params) {
		res = CU_ERROR_INVALID_VALUE;
		goto out;
	}
	op = fake_op_new(FAKE_OP_COPY);
	res = fake_kernel_launch(fn, &launch, op);
	if (res) {
		fake_op_free(op);
		goto out;
	}
	if (op->fault) {
		fake_violation("the kernel faults: %u", op->fault);
		op->nr = 0;
		op->run = NULL;
	}
	fake_submit(s, op);
out:
	pthread_mutex_unlock(&fake.lock);
	return res;
}
