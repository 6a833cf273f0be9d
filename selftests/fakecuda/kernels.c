// SPDX-License-Identifier: MIT
/*
 * The stand-in's kernels: known by their names, and carried out from the same
 * arguments that their PTX reads.  gpu-shim's copy kernel goes block by block;
 * those of selftests/gpu are done as a whole.
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

#define COPY_PREFIX "kvmm_copy_"
/* of the matrix product's blocks: columns and rows */
#define PRODUCT_X 128
#define PRODUCT_Y 32

static bool has_entry(const char *ptx, const char *name)
{
	char entry[80];

	if (strlen(name) > 40)
		return false;
	strcpy(entry, ".entry ");
	strcat(entry, name);
	strcat(entry, "(");
	return strstr(ptx, entry);
}

enum fake_kernel fake_kernel_find(const char *ptx, const char *name,
				  unsigned int *unit)
{
	*unit = 0;
	if (!has_entry(ptx, name))
		return KERNEL_NONE;
	if (!strcmp(name, "kvmm_read"))
		return KERNEL_READ;
	if (!strcmp(name, "kvmm_product"))
		return KERNEL_PRODUCT;
	if (strncmp(name, COPY_PREFIX, sizeof(COPY_PREFIX) - 1))
		return KERNEL_NONE;
	/* the number of bytes a thread moves at once is in the name */
	*unit = strtoul(name + sizeof(COPY_PREFIX) - 1, NULL, 10);
	return *unit ? KERNEL_COPY : KERNEL_NONE;
}

/* Block (x, y): fragments x, x + gx, ... of group y. */
static cu_result_t run_block(struct fake_op *op,
			     const struct cu_copy_args *args, unsigned int unit,
			     unsigned int x, unsigned int y, unsigned int gx)
{
	const struct cu_copy_desc *d = &args->desc[y];
	uint32_t f;

	for (f = x; f < d->count; f += gx) {
		uint64_t src = d->src + f * d->src_stride;
		uint64_t dst = d->dst + f * d->dst_stride;
		struct fake_piece p = {.bytes = d->bytes};
		char *data;

		if (src % unit || dst % unit || d->bytes % unit)
			return 716; /* CUDA_ERROR_MISALIGNED_ADDRESS */
		if (!fake_device_side(dst, d->bytes, true, &p.dst_range,
				      &p.dst) ||
		    !fake_device_side(src, d->bytes, false, &p.src_range,
				      &data))
			return CU_ERROR_ILLEGAL_ADDRESS;
		p.src = data;
		fake_op_add(op, &p);
	}
	return CU_SUCCESS;
}

static cu_result_t launch_copy(const struct fake_function *fn,
			       const struct fake_launch *l, struct fake_op *op)
{
	const struct cu_copy_args *args = l->params[0];
	unsigned int x, y;

	/* the PTX steps by 256 threads and looks at x and y only */
	if (l->block[0] != CU_COPY_THREADS || l->grid[1] > CU_COPY_DESCS)
		return CU_ERROR_INVALID_VALUE;
	for (y = 0; y < l->grid[1] && !op->fault; y++)
		for (x = 0; x < l->grid[0] && !op->fault; x++)
			op->fault = run_block(op, args, fn->unit, x, y,
					      l->grid[0]);
	return CU_SUCCESS;
}

/* The sum of a frame's words, each times its place: 1, 3, 5, ... */
static void run_read(struct fake_op *op)
{
	size_t i, k;

	for (i = 0; i < op->nr; i++) {
		const struct fake_piece *p = &op->pieces[i];
		uint64_t sum, add = 0;

		for (k = 0; k < p->bytes / 4; k++) {
			uint32_t word;

			memcpy(&word, p->src + 4 * k, 4);
			add += (uint64_t)word * (2 * k + 1);
		}
		memcpy(&sum, p->dst, 8);
		sum += add;
		memcpy(p->dst, &sum, 8);
	}
}

static cu_result_t launch_read(const struct fake_launch *l, struct fake_op *op)
{
	uint64_t base = *(uint64_t *)l->params[0];
	uint64_t out = *(uint64_t *)l->params[1];
	uint32_t bytes = *(uint32_t *)l->params[2];
	unsigned int f;

	op->run = run_read;
	for (f = 0; f < l->grid[1]; f++) {
		struct fake_piece p = {.bytes = bytes};
		struct fake_range *r = NULL;
		char *data;

		if ((base | out | bytes) % 8 || bytes % 16)
			op->fault = 716; /* CUDA_ERROR_MISALIGNED_ADDRESS */
		else if (!fake_device_side(out + 8 * f, 8, true, &p.dst_range,
					   &p.dst) ||
			 !fake_device_side(base + (uint64_t)f * bytes, bytes,
					   false, &r, &data))
			op->fault = CU_ERROR_ILLEGAL_ADDRESS;
		if (op->fault)
			break;
		p.src_range = r;
		p.src = data;
		fake_op_add(op, &p);
	}
	return CU_SUCCESS;
}

static void run_product(struct fake_op *op)
{
	const float *a = (const float *)op->pieces[0].src;
	const float *b = (const float *)op->pieces[1].src;
	float *c = (float *)op->pieces[0].dst;
	unsigned int n = op->arg, i, j, k;

	memset(c, 0, sizeof(*c) * n * n);
	for (i = 0; i < n; i++)
		for (k = 0; k < n; k++)
			for (j = 0; j < n; j++)
				c[i * n + j] += a[i * n + k] * b[k * n + j];
}

static cu_result_t launch_product(const struct fake_launch *l,
				  struct fake_op *op)
{
	uint32_t n = *(uint32_t *)l->params[3];
	size_t bytes = sizeof(float) * n * n;
	unsigned int i;

	if (n % PRODUCT_X || l->grid[0] != n / PRODUCT_X ||
	    l->grid[1] != n / PRODUCT_Y || l->block[0] != 256)
		return CU_ERROR_INVALID_VALUE;
	op->run = run_product;
	op->arg = n;
	for (i = 0; i < 2; i++) {
		struct fake_piece p = {.bytes = bytes};
		char *data;

		if (!fake_device_side(*(uint64_t *)l->params[i], bytes, false,
				      &p.src_range, &data) ||
		    !fake_device_side(*(uint64_t *)l->params[2], bytes, true,
				      &p.dst_range, &p.dst))
			op->fault = CU_ERROR_ILLEGAL_ADDRESS;
		p.src = data;
		fake_op_add(op, &p);
	}
	return CU_SUCCESS;
}

cu_result_t fake_kernel_launch(const struct fake_function *fn,
			       const struct fake_launch *launch,
			       struct fake_op *op)
{
	if (launch->grid[2] != 1 || launch->block[1] != 1 ||
	    launch->block[2] != 1)
		return CU_ERROR_INVALID_VALUE;
	switch (fn->kernel) {
	case KERNEL_READ:
		op->flip |= fake_flips("kvmm_read", 1);
		return launch_read(launch, op);
	case KERNEL_PRODUCT:
		op->flip |= fake_flips("kvmm_product", 1);
		return launch_product(launch, op);
	default:
		return launch_copy(fn, launch, op);
	}
}
