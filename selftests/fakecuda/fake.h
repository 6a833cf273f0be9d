/* SPDX-License-Identifier: MIT */
/*
 * Inside the stand-in libcuda: objects, and what its files share.
 *
 * One lock, fake.lock, over everything; copies run without it.  Objects are
 * never freed before a reset, so a stale handle or address is always known to
 * be stale.
 */
#ifndef FAKECUDA_FAKE_H
#define FAKECUDA_FAKE_H

#include "gpu-shim/cuda_abi.h"

#include <pthread.h>
#include <stdbool.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define FAKE_EXPORT __attribute__((visibility("default")))
#define FAKE_DEVICES 8
#define FAKE_FAILS 4

enum fake_type {
	FAKE_CTX,
	FAKE_STREAM,
	FAKE_EVENT,
	FAKE_MODULE,
	FAKE_FUNCTION,
	FAKE_MEM,	/* device memory */
	FAKE_REG,	/* registered host memory */
	FAKE_TYPES,
};

struct fake_obj {
	struct fake_obj *next;
	enum fake_type type;
	bool alive;
	struct fake_ctx *ctx;
};

struct fake_ctx {
	struct fake_obj obj;
	int device;
	unsigned int refs;	/* of a primary context */
	cu_result_t sticky;	/* every later call returns it */
	struct fake_stream *null_stream;
};

/*
 * A range of the GPU's address space.  base is not accessible by the CPU;
 * the bytes are at data.  inflight: operations that will use it; running:
 * those that are copying now.
 */
struct fake_range {
	struct fake_obj obj;
	cu_deviceptr_t base;
	char *data;
	size_t bytes;
	unsigned int inflight;
	unsigned int running;
	bool rdonly;		/* the device may only read it */
};

struct fake_record {
	unsigned int refs;
	bool done;
};

struct fake_event {
	struct fake_obj obj;
	struct fake_record *record;
};

struct fake_module {
	struct fake_obj obj;
	char *image;
};

enum fake_kernel {
	KERNEL_NONE,
	KERNEL_COPY,	/* gpu-shim's */
	KERNEL_READ,	/* selftests/gpu's */
	KERNEL_PRODUCT,
};

struct fake_function {
	struct fake_obj obj;
	struct fake_module *module;
	enum fake_kernel kernel;
	unsigned int unit;
};

struct fake_launch {
	unsigned int grid[3];
	unsigned int block[3];
	void **params;
};

struct fake_stream {
	struct fake_obj obj;
	pthread_t thread;
	pthread_cond_t work;
	struct fake_op *first, **last;
	bool running;
	bool held;
	bool stop;
};

struct fake_piece {
	char *dst;
	const char *src;
	size_t bytes;
	struct fake_range *dst_range;	/* NULL: pageable memory */
	struct fake_range *src_range;
};

enum fake_op_type {
	FAKE_OP_COPY,
	FAKE_OP_RECORD,
	FAKE_OP_WAIT,
};

struct fake_op {
	struct fake_op *next;
	enum fake_op_type type;
	struct fake_record *record;
	cu_result_t fault;	/* what running it does to the context */
	size_t nr, max;
	struct fake_piece *pieces;
	void (*run)(struct fake_op *op);	/* NULL: copies the pieces */
	unsigned int arg;
	bool flip;		/* gets a bit wrong */
};

struct fake_state {
	pthread_mutex_t lock;
	pthread_cond_t done;
	/* from the environment */
	unsigned int seed;
	unsigned int delay_us;
	int devices;
	int version;
	bool same_pointer;
	int pageable;		/* 0: no, 1: HMM, 2: ATS */
	bool busy;
	bool reg_rdonly;	/* can register memory for reading only */
	size_t max_register;
	size_t memory;
	/* whose operation gets a bit wrong; 0: each */
	char flip_name[64];
	unsigned int flip_nth;
	bool flip_next;		/* the call that is being made */
	char missing[256];
	struct {
		char name[64];
		unsigned int nth;
		cu_result_t code;
	} fail[FAKE_FAILS];
	/* state */
	bool init;
	unsigned int generation;
	struct fake_obj *objs[FAKE_TYPES];
	struct fake_ctx *primary[FAKE_DEVICES];
	size_t allocated;
	unsigned int violations;
	int failed;
};

extern struct fake_state fake;

/* fake.c: count the call; a result other than success is to be returned */
cu_result_t fake_call(const char *name);
/* the same with checks: initialised, a current context, no sticky error */
cu_result_t fake_enter(const char *name, struct fake_ctx **ctx);
/* does FAKECUDA_FLIP mean this one? */
bool fake_flips(const char *name, unsigned int nth);
/* Calls that end something do so also when a failure is injected, as the real
 * driver's do when they report an earlier launch's error; but not these.
 */
static inline bool fake_refused(cu_result_t res)
{
	return res == CU_ERROR_INVALID_CONTEXT ||
	       res == CU_ERROR_NOT_INITIALIZED;
}

void fake_violation(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));
void *fake_new(enum fake_type type, size_t size, struct fake_ctx *ctx);
/* NULL: not a handle of that type, or no longer */
void *fake_find(enum fake_type type, const void *handle);
unsigned int fake_random(unsigned int below);

/* ctx.c */
struct fake_ctx *fake_current(void);
void fake_ctx_end(struct fake_ctx *ctx);

/* mem.c; caller holds the lock, as all below */
enum fake_place {
	PLACE_BAD,	/* stale, or only partly something */
	PLACE_DEVICE,
	PLACE_MAPPED,	/* device pointer of registered memory */
	PLACE_HOST,	/* CPU address of registered memory */
	PLACE_PAGEABLE,
};
enum fake_place fake_resolve(cu_deviceptr_t ptr, size_t bytes, bool as_host,
			     struct fake_range **range, char **data);

/* An address as a kernel or a batch may read or write it. */
bool fake_device_side(cu_deviceptr_t ptr, size_t bytes, bool write,
		      struct fake_range **range, char **data);

/* kernels.c: what the launch does, into @op; or an error, at once or later */
cu_result_t fake_kernel_launch(const struct fake_function *fn,
			       const struct fake_launch *launch,
			       struct fake_op *op);
enum fake_kernel fake_kernel_find(const char *ptx, const char *name,
				  unsigned int *unit);

/* stream.c */
struct fake_stream *fake_stream_new(struct fake_ctx *ctx);
struct fake_stream *fake_stream_get(struct fake_ctx *ctx, cu_stream_t handle);
struct fake_op *fake_op_new(enum fake_op_type type);
bool fake_op_add(struct fake_op *op, const struct fake_piece *piece);
void fake_op_free(struct fake_op *op);
void fake_submit(struct fake_stream *s, struct fake_op *op);
void fake_drain(struct fake_stream *s);
void fake_stream_stop(struct fake_stream *s);
void fake_record_put(struct fake_record *record);

#endif /* FAKECUDA_FAKE_H */
