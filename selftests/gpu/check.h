/* SPDX-License-Identifier: MIT */
/*
 * Checks and measures on a real GPU: what the files of the program share.
 *
 * Every byte that a path moves is compared with what it should be; each of
 * those comparisons is a TAP point.  What is measured is told in comments.
 */
#ifndef KVMM_GPU_CHECK_H
#define KVMM_GPU_CHECK_H

#include "gpu-shim/cuda_abi.h"
#include "gpu-shim/gpu.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define KIB		(1UL << 10)
#define MIB		(1UL << 20)
#define GIB		(1UL << 30)

#define KSFT_SKIP	4

/* Fragments of a block: keys and values of 32 layers. */
#define LAYERS		32
#define FRAGMENTS	(2 * LAYERS)

/* ---- report.c ---- */

/** tap_ok() - a test point; returns @good */
bool tap_ok(bool good, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/** tap_skip() - one that could not be made */
void tap_skip(const char *why, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/** tap_note() - a comment */
void tap_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/** tap_done() - the plan; returns the exit status */
int tap_done(void);

/** now() - monotonic seconds */
double now(void);

/** median() - of @n numbers, which are sorted */
double median(double *v, unsigned int n);

/* ---- driver.c: what gpu-shim has no use for ---- */

struct driver;

/**
 * driver_open() - load the driver, and make a device's context current
 * @out: set on success
 * @libcuda: NULL: "libcuda.so.1"
 * @device: CUDA ordinal
 * @why: why not, as a sentence
 * @len: bytes at @why
 *
 * Return: 0; -ENODEV: there is no GPU here; -EIO: there is one, and it fails.
 */
int driver_open(struct driver **out, const char *libcuda, int device, char *why,
		size_t len);
void driver_close(struct driver *d);

/** driver_error() - the latest error */
const char *driver_error(const struct driver *d);

/** driver_free() - bytes of device memory that are free */
size_t driver_free_bytes(struct driver *d);

/** driver_alloc() - plain device memory: 0: none */
cu_deviceptr_t driver_alloc(struct driver *d, size_t bytes);
void driver_free(struct driver *d, cu_deviceptr_t dev);

/** driver_kernels() - compile the kernels of kernels.c: 0, or -EIO */
int driver_kernels(struct driver *d);

/**
 * driver_read() - sum the words of frames where they are
 * @d: the driver
 * @stream: of the context
 * @frames: device address of the first; they lie one behind the other
 * @out: device address of a 64-bit sum each, which is added to
 * @bytes: of a frame
 * @nr: frames
 */
int driver_read(struct driver *d, void *stream, uint64_t frames, uint64_t out,
		uint32_t bytes, unsigned int nr);

/** driver_product() - c = a * b, of n x n floats; n is a multiple of 128 */
int driver_product(struct driver *d, void *stream, uint64_t a, uint64_t b,
		   uint64_t c, uint32_t n);

/** kernels.c: their PTX */
extern const char check_ptx[];

/* ---- memory.c: the arena, as the user backend has it ---- */

/**
 * struct arena - shared memory
 * @fd: of the memfd
 * @data: where it is mapped
 * @bytes: its size
 * @huge: bytes of it that are in huge pages
 */
struct arena {
	int fd;
	char *data;
	size_t bytes;
	size_t huge;
};

/** arena_make() - with all its memory; @huge: ask for huge pages; 0 or -errno */
int arena_make(struct arena *a, size_t bytes, bool huge);
void arena_end(struct arena *a);

/** memory_near() - prefer memory of this node from now on; -1: any */
void memory_near(int node);

/** memory_available() - bytes that the machine has to give */
size_t memory_available(void);

/* ---- pattern.c: bytes that can be told again ---- */

/** pattern_fill() - @bytes (times 8) at @data get the pattern's from @offset */
void pattern_fill(void *data, size_t bytes, uint64_t seed, uint64_t offset);

/** pattern_wrong() - words that differ from the pattern */
size_t pattern_wrong(const void *data, size_t bytes, uint64_t seed,
		     uint64_t offset);

/* ---- the checks ---- */

#define NR_SIZES	10	/* 4 KiB to 2 MiB */
#define FIRST_SIZE	(4 * KIB)

/**
 * struct run - one run of the program
 * @drv: the driver
 * @info: of the device, as gpu-shim opened it
 * @libcuda: as given
 * @device: ordinal
 * @deadline: nothing is begun after it
 * @quick: small sizes and single rounds: for the stand-in
 * @arena: host memory
 * @dev: as much device memory
 * @bytes: of each
 * @rate: GB/s by path, size, direction; 0: not measured
 * @link: GB/s of one large copy, by direction, and of both at once
 */
struct run {
	struct driver *drv;
	struct kvmm_gpu_info info;
	const char *libcuda;
	int device;
	double deadline;
	bool quick;
	struct arena arena;
	cu_deviceptr_t dev;
	size_t bytes;
	double rate[4][NR_SIZES][2];
	double link[3];
};

/** time_left() - is there time for one more thing? */
bool time_left(const struct run *r);

/** open_path() - the device by one path, with the arena registered */
struct kvmm_gpu *open_path(struct run *r, enum kvmm_gpu_path path, char *why,
			   size_t len);
void close_path(struct run *r, struct kvmm_gpu *gpu);

/** path_name() - "kernel" */
const char *path_name(enum kvmm_gpu_path path);

/** copy_whole() - all of the arena to device memory or back, and wait */
int copy_whole(struct run *r, struct kvmm_gpu_stream *s, enum kvmm_gpu_dir dir);

/**
 * struct layout - blocks of FRAGMENTS fragments each, in an order drawn by
 * chance, and the copies between them and frames
 */
struct layout;
struct layout *layout_make(const struct run *r, size_t fragment);
void layout_free(struct layout *l);
size_t layout_bytes(const struct layout *l);
int layout_copy(const struct layout *l, struct kvmm_gpu_stream *s,
		enum kvmm_gpu_dir dir);

void check_link(struct run *r, struct kvmm_gpu *gpu);
void check_copies(struct run *r, struct kvmm_gpu *gpu, enum kvmm_gpu_path path);
void check_choice(struct run *r);
void check_in_place(struct run *r, struct kvmm_gpu *gpu);
void check_registration(struct run *r);
void check_interference(struct run *r);

#endif /* KVMM_GPU_CHECK_H */
