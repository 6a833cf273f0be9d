// SPDX-License-Identifier: MIT
/*
 * kvmm-gpu-check: every copy path of gpu-shim on the GPU of this machine, byte
 * for byte, and what it reaches.  One file, which needs nothing but a driver.
 */
#include "check.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define SECONDS		200	/* nothing is begun after these */
#define BYTES		(256 * MIB)

static void usage(void)
{
	puts("usage: kvmm-gpu-check [OPTION...]\n\n"
	     "Checks every way in which kvmm copies between an NVIDIA GPU and host memory,\n"
	     "byte for byte with random data, and prints what each reaches: TAP, with the\n"
	     "measures in comments.  Takes less than four minutes.  Exit status: 0 all right,\n"
	     "1 a check failed, 4 there is no GPU here.\n\n"
	     "  --device N        CUDA ordinal of the GPU (default 0)\n"
	     "  --seconds N       begin nothing after so many (default 200)\n"
	     "  --libcuda FILE    the driver's library (default libcuda.so.1)\n"
	     "  --quick           small sizes, single rounds: to try the program itself\n"
	     "  --ptx             print the kernels and exit\n"
	     "  --help            print this text");
}

bool time_left(const struct run *r)
{
	return now() < r->deadline;
}

const char *path_name(enum kvmm_gpu_path path)
{
	static const char *const names[] = {
		[KVMM_GPU_PATH_AUTO] = "choice",
		[KVMM_GPU_PATH_KERNEL] = "kernel",
		[KVMM_GPU_PATH_BATCH] = "batch",
		[KVMM_GPU_PATH_PLAIN] = "plain",
	};

	return names[path];
}

struct kvmm_gpu *open_path(struct run *r, enum kvmm_gpu_path path, char *why,
			   size_t len)
{
	/* the context that is current says which device */
	const struct kvmm_gpu_opts o = {
		.backend = KVMM_GPU_CUDA,
		.path = path,
		.libcuda = r->libcuda,
	};
	struct kvmm_gpu *gpu;

	if (kvmm_gpu_open(&gpu, &o, why, len))
		return NULL;
	if (!r->arena.data ||
	    !kvmm_gpu_register(gpu, r->arena.data, r->arena.bytes))
		return gpu;
	kvmm_gpu_error(gpu, why, len);
	kvmm_gpu_close(gpu);
	return NULL;
}

void close_path(struct run *r, struct kvmm_gpu *gpu)
{
	(void)r;
	/* what is registered is unregistered */
	kvmm_gpu_close(gpu);
}

static void machine(const struct run *r)
{
	const struct kvmm_gpu_info *i = &r->info;
	struct utsname u;

	tap_note("kvmm %s on %s at %s, driver CUDA %d.%d, NUMA node %d",
		 KVMM_VERSION, i->name, i->pci[0] ? i->pci : "?",
		 i->driver_version / 1000, i->driver_version % 1000 / 10,
		 i->numa_node);
	if (!uname(&u))
		tap_note("Linux %s, %ld CPUs", u.release,
			 sysconf(_SC_NPROCESSORS_ONLN));
	tap_note("registered memory has %s address on the device; memory that isn't registered: %s",
		 i->same_pointer ? "the same" : "another",
		 i->pageable == KVMM_GPU_PAGEABLE_ATS ? "by the CPU's page tables (ATS)" :
		 i->pageable == KVMM_GPU_PAGEABLE_HMM ? "by faults (HMM)" :
		 "not reachable");
	if (i->note[0])
		tap_note("%s", i->note);
}

/* Host memory and as much of the device's, with room for gaps. */
static int make_memory(struct run *r)
{
	size_t device = driver_free_bytes(r->drv), host = memory_available();
	int err;

	r->bytes = r->quick ? 8 * MIB : BYTES;
	while ((r->bytes > device / 8 || r->bytes > host / 8) &&
	       r->bytes > 4 * MIB)
		r->bytes /= 2;
	err = arena_make(&r->arena, r->bytes, true);
	if (err) {
		tap_note("no %zu MiB of host memory: %s", r->bytes / MIB,
			 strerror(-err));
		return err;
	}
	r->dev = driver_alloc(r->drv, 2 * r->bytes);
	if (!r->dev) {
		tap_note("%s", driver_error(r->drv));
		return -ENOMEM;
	}
	tap_note("%zu MiB of host memory, %.0f %% of it in huge pages",
		 r->bytes / MIB,
		 100.0 * (double)r->arena.huge / (double)r->bytes);
	return 0;
}

/* What all paths share, with the paths chosen as an engine would have it. */
static void by_choice(struct run *r)
{
	char why[200] = "";
	struct kvmm_gpu *gpu = open_path(r, KVMM_GPU_PATH_AUTO, why,
					 sizeof(why));

	if (!tap_ok(gpu, "the device opens, the arena is registered")) {
		tap_note("%s", why);
		return;
	}
	kvmm_gpu_info(gpu, &r->info);
	check_copies(r, gpu, KVMM_GPU_PATH_AUTO);
	if (time_left(r))
		check_in_place(r, gpu);
	else
		tap_skip("no time left", "a kernel reads frames in place");
	close_path(r, gpu);
}

static void by_path(struct run *r, enum kvmm_gpu_path path)
{
	char why[200] = "";
	struct kvmm_gpu *gpu = open_path(r, path, why, sizeof(why));

	if (!gpu && path == KVMM_GPU_PATH_BATCH && !r->info.has_batch) {
		tap_skip(why, "copies by %s", path_name(path));
		return;
	}
	if (!tap_ok(gpu, "the device opens for copies by %s",
		    path_name(path))) {
		tap_note("%s", why);
		return;
	}
	if (path == KVMM_GPU_PATH_PLAIN)
		check_link(r, gpu);
	check_copies(r, gpu, path);
	close_path(r, gpu);
}

static void run_all(struct run *r)
{
	char why[200] = "";
	struct kvmm_gpu *gpu;

	/* first of all, without memory: what is it, and where is it? */
	gpu = open_path(r, KVMM_GPU_PATH_AUTO, why, sizeof(why));
	if (!tap_ok(gpu, "the device opens")) {
		tap_note("%s", why);
		return;
	}
	kvmm_gpu_info(gpu, &r->info);
	close_path(r, gpu);
	machine(r);
	memory_near(r->info.numa_node);
	if (!tap_ok(!driver_kernels(r->drv), "our kernels compile")) {
		tap_note("%s", driver_error(r->drv));
		return;
	}
	if (!tap_ok(!make_memory(r), "memory for the checks"))
		return;
	by_path(r, KVMM_GPU_PATH_PLAIN);
	by_path(r, KVMM_GPU_PATH_BATCH);
	by_path(r, KVMM_GPU_PATH_KERNEL);
	by_choice(r);
	check_choice(r);
	check_interference(r);
	if (time_left(r))
		check_registration(r);
	else
		tap_skip("no time left", "registering memory");
}

static int parse(int argc, char **argv, struct run *r)
{
	static const struct option longs[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "seconds", required_argument, NULL, 's' },
		{ "libcuda", required_argument, NULL, 'l' },
		{ "quick", no_argument, NULL, 'q' },
		{ "ptx", no_argument, NULL, 'p' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	long seconds = SECONDS;
	int c;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
		case 'd':
			r->device = atoi(optarg);
			break;
		case 's':
			seconds = atol(optarg);
			break;
		case 'l':
			r->libcuda = optarg;
			break;
		case 'q':
			r->quick = true;
			break;
		case 'p':
			fputs(check_ptx, stdout);
			exit(0);
		case 'h':
			usage();
			exit(0);
		default:
			return 1;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "kvmm-gpu-check: too many arguments: '%s'\n",
			argv[optind]);
		return 1;
	}
	r->deadline = now() + (double)seconds;
	return 0;
}

int main(int argc, char **argv)
{
	struct run r = { .arena.fd = -1 };
	double start = now();
	char why[300];
	int err;

	if (parse(argc, argv, &r))
		return 1;
	puts("TAP version 13");
	err = driver_open(&r.drv, r.libcuda, r.device, why, sizeof(why));
	if (err == -ENODEV) {
		printf("1..0 # SKIP %s\n", why);
		return KSFT_SKIP;
	}
	if (!tap_ok(!err, "the driver starts")) {
		tap_note("%s", why);
		return tap_done();
	}
	run_all(&r);
	driver_free(r.drv, r.dev);
	arena_end(&r.arena);
	driver_close(r.drv);
	tap_note("%.0f seconds", now() - start);
	return tap_done();
}
