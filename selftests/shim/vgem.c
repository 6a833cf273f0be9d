// SPDX-License-Identifier: MIT
/*
 * The drm backend on a real driver: vgem imports frames of a pool of kvmm.ko by
 * PRIME, through libdrm.  Runs in the VM; skipped where there is no vgem.
 */
#include "fixture.h"

#include <kvmm.h>
#include <sys/mman.h>

#define BLOCK 65536u
#define FRAMES 64u

struct vgem {
	struct kvmm_gpu *gpu;
	struct kvmm *kv;
	struct kvmm_pool *pool;
};

static int find_vgem(void)
{
	struct kvmm_gpu_drm_node nodes[8];
	int nr = kvmm_gpu_drm_list(NULL, nodes, 8, NULL, 0), i;

	for (i = 0; i < nr; i++)
		if (!strcmp(nodes[i].driver, "vgem"))
			return i;
	return -ENODEV;
}

static int setup(void **state)
{
	static struct vgem v;
	struct kvmm_gpu_opts gpu = {
		.backend = KVMM_GPU_DRM,
		.flags = KVMM_GPU_BY_INDEX,
		.index = find_vgem(),
	};
	struct kvmm_open_opts open = {
		.size = sizeof(open), .backend = KVMM_BACKEND_KERNEL,
	};
	struct kvmm_pool_opts pool = {
		.size = sizeof(pool), .name = "vgem", .mode = 0600,
		.block_size = BLOCK, .nr_frames = FRAMES,
	};
	char err[256] = "";

	*state = &v;
	if (kvmm_gpu_open(&v.gpu, &gpu, err, sizeof(err))) {
		print_error("%s\n", err);
		return -1;
	}
	if (kvmm_open(&v.kv, &open)) {
		print_error("no kernel backend\n");
		return -1;
	}
	kvmm_pool_destroy(v.kv, "vgem", KVMM_POOL_FORCE);
	return kvmm_pool_create(v.kv, &pool, &v.pool);
}

static int teardown(void **state)
{
	struct vgem *v = *state;
	struct kvmm_info info;

	kvmm_pool_close(v->pool);
	kvmm_pool_destroy(v->kv, "vgem", KVMM_POOL_FORCE);
	kvmm_gpu_close(v->gpu);
	assert_int_equal(kvmm_info(v->kv, &info), 0);
	assert_int_equal(info.pinned_bytes, 0);
	kvmm_close(v->kv);
	return 0;
}

static uint64_t nr_exports(struct vgem *v)
{
	struct kvmm_pool_stat st;

	assert_int_equal(kvmm_pool_stat(v->pool, &st), 0);
	return st.exports;
}

static uint64_t pinned(struct vgem *v)
{
	struct kvmm_info info;

	assert_int_equal(kvmm_info(v->kv, &info), 0);
	return info.pinned_bytes;
}

static void test_device(void **state)
{
	struct vgem *v = *state;
	struct kvmm_gpu_info info;

	kvmm_gpu_info(v->gpu, &info);
	assert_string_equal(info.name, "vgem");
	assert_string_equal(info.pci, "");
	assert_memory_equal(info.drm_node, "/dev/dri/renderD", 16);
	assert_int_equal(access(info.drm_node, R_OK | W_OK), 0);
}

/* The driver holds the frames, also without the dma-buf's own descriptor. */
static void test_import(void **state)
{
	struct vgem *v = *state;
	uint32_t handle = 0, again = 0;
	unsigned char *mem, *arena;
	uint64_t bytes = 0;
	char err[256];
	int fd;

	fd = kvmm_export(v->pool, 8, 4, 0);
	assert_true(fd >= 0);
	assert_int_equal(kvmm_gpu_import(v->gpu, fd, &handle, &bytes), 0);
	assert_int_not_equal(handle, 0);
	assert_int_equal(bytes, 4 * BLOCK);
	/* the same buffer has one handle */
	assert_int_equal(kvmm_gpu_import(v->gpu, fd, &again, &bytes), 0);
	assert_int_equal(again, handle);

	arena = kvmm_pool_arena(v->pool, NULL);
	mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(mem, MAP_FAILED);
	memset(arena + 8 * BLOCK, 0x5a, 4 * BLOCK);
	assert_memory_equal(mem, arena + 8 * BLOCK, 4 * BLOCK);
	memset(mem, 0xa5, 4 * BLOCK);
	assert_memory_equal(mem, arena + 8 * BLOCK, 4 * BLOCK);
	munmap(mem, bytes);
	close(fd);
	assert_int_equal(nr_exports(v), 1);

	assert_int_equal(kvmm_gpu_import_release(v->gpu, handle), 0);
	assert_int_equal(nr_exports(v), 0);
	assert_true(kvmm_gpu_import_release(v->gpu, handle) < 0);
	kvmm_gpu_error(v->gpu, err, sizeof(err));
	assert_non_null(strstr(err, "handle"));
}

/* What the driver has outlives the pool, and goes with the device. */
static void test_pool_goes(void **state)
{
	struct vgem *v = *state;
	uint64_t bytes, before = pinned(v);
	uint32_t handle;
	int fd;

	fd = kvmm_export(v->pool, 0, 2, 0);
	assert_true(fd >= 0);
	assert_int_equal(kvmm_gpu_import(v->gpu, fd, &handle, &bytes), 0);
	close(fd);
	assert_int_equal(before, FRAMES * BLOCK);
	assert_int_equal(kvmm_pool_destroy(v->kv, "vgem", KVMM_POOL_FORCE), 0);
	assert_int_equal(pinned(v), 2 * BLOCK);
	/* the teardown closes the device and looks again */
}

static void test_refused(void **state)
{
	struct vgem *v = *state;
	uint32_t handle;
	uint64_t bytes;
	int fd, r;

	fd = memfd_create("not-a-dma-buf", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(kvmm_gpu_import(v->gpu, fd, &handle, &bytes) < 0);
	close(fd);
	/* vgem before 6.17 maps what it imports for both directions */
	fd = kvmm_export(v->pool, 0, 1, KVMM_EXPORT_RDONLY);
	assert_true(fd >= 0);
	r = kvmm_gpu_import(v->gpu, fd, &handle, &bytes);
	if (!r)
		assert_int_equal(kvmm_gpu_import_release(v->gpu, handle), 0);
	else
		assert_int_equal(r, -EACCES);
	close(fd);
	assert_int_equal(nr_exports(v), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_device, setup, teardown),
		cmocka_unit_test_setup_teardown(test_import, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pool_goes, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
	};

	if (find_vgem() < 0 && !getenv("KVMM_VM")) {
		printf("1..0 # SKIP no vgem\n");
		return 4;
	}
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("vgem", tests, NULL, NULL);
}
