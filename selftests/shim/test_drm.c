// SPDX-License-Identifier: MIT
/* The drm backend, on this machine's libdrm and on a stand-in. */
#include "fixture.h"

#include <sys/mman.h>

static void test_this_machine(void **state)
{
	struct kvmm_gpu_opts o = {.backend = KVMM_GPU_DRM};
	struct kvmm_gpu_drm_node nodes[8];
	struct kvmm_gpu *gpu;
	char err[256] = "";
	int nr = kvmm_gpu_drm_list(NULL, nodes, 8, err, sizeof(err)), i;

	(void)state;
	if (nr == -ENOENT) {
		assert_non_null(strstr(err, "no libdrm"));
		skip();
	}
	assert_true(nr >= 0);
	for (i = 0; i < nr; i++) {
		assert_int_equal(access(nodes[i].node, F_OK), 0);
		assert_true(nodes[i].numa_node >= -1);
	}
	if (nr)
		return;
	assert_string_equal(err, "no DRM device on this machine");
	assert_int_equal(kvmm_gpu_open(&gpu, &o, err, sizeof(err)), -ENODEV);
	assert_string_equal(err, "no DRM device on this machine");
}

static void test_no_libdrm(void **state)
{
	struct kvmm_gpu_opts o = {
		.backend = KVMM_GPU_DRM,
		.libdrm = "/nonexistent/libdrm.so.2",
	};
	struct kvmm_gpu_drm_node node;
	struct kvmm_gpu *gpu;
	char err[256] = "";

	(void)state;
	assert_int_equal(kvmm_gpu_drm_list(&o, &node, 1, err, sizeof(err)),
			 -ENOENT);
	assert_non_null(strstr(err, "no libdrm"));
	assert_int_equal(kvmm_gpu_drm_list(&o, &node, 1, NULL, 0), -ENOENT);
	assert_int_equal(kvmm_gpu_open(&gpu, &o, err, sizeof(err)), -ENOENT);
	assert_non_null(strstr(err, "no libdrm"));
	/* a library that is something else */
	o.libdrm = fake.path;
	assert_int_equal(kvmm_gpu_open(&gpu, &o, err, sizeof(err)), -ENOSYS);
	assert_non_null(strstr(err, "drmGetDevices2"));
}

static void test_list(void **state)
{
	struct kvmm_gpu_opts o = {.libdrm = fake.drm_path};
	struct kvmm_gpu_drm_node nodes[4];

	(void)state;
	assert_int_equal(kvmm_gpu_drm_list(&o, nodes, 4, NULL, 0), 2);
	assert_string_equal(nodes[0].node, "/dev/null");
	assert_string_equal(nodes[0].driver, "standin");
	assert_string_equal(nodes[0].pci, "");
	assert_int_equal(nodes[0].numa_node, -1);
	assert_string_equal(nodes[1].node, "/dev/zero");
	assert_string_equal(nodes[1].pci, "0000:a1:00.0");
	assert_int_equal(kvmm_gpu_drm_list(&o, nodes, 1, NULL, 0), 1);
}

static void test_device(void **state)
{
	struct kvmm_gpu_opts o = {
		.backend = KVMM_GPU_DRM,
		.libdrm = fake.drm_path,
		.pci = "A1:00.0",
	};
	struct kvmm_gpu_stream *s;
	struct kvmm_gpu_event *ev;
	struct kvmm_gpu_info info;
	struct kvmm_gpu *gpu;
	char err[256] = "";
	uint64_t bytes;
	uint32_t handle;
	int fd;

	(void)state;
	assert_int_equal(kvmm_gpu_open(&gpu, &o, err, sizeof(err)), 0);
	kvmm_gpu_info(gpu, &info);
	assert_string_equal(info.backend, "drm");
	assert_string_equal(info.name, "standin");
	assert_string_equal(info.drm_node, "/dev/zero");
	assert_string_equal(info.pci, "0000:a1:00.0");
	assert_int_equal(info.index, 1);
	/* it imports, and copies nothing */
	fd = memfd_create("buffer", 0);
	assert_int_equal(ftruncate(fd, 12288), 0);
	assert_int_equal(kvmm_gpu_import(gpu, fd, &handle, &bytes), 0);
	assert_int_equal(bytes, 12288);
	close(fd);
	assert_int_equal(kvmm_gpu_import_release(gpu, handle), 0);
	assert_int_equal(kvmm_gpu_import_release(gpu, handle + 1), -EINVAL);
	assert_int_equal(kvmm_gpu_import(gpu, -1, &handle, &bytes), -EBADF);
	assert_int_equal(kvmm_gpu_stream_create(gpu, &s), -EOPNOTSUPP);
	assert_int_equal(kvmm_gpu_stream_wrap(gpu, NULL, &s), -EOPNOTSUPP);
	assert_int_equal(kvmm_gpu_event_create(gpu, &ev), -EOPNOTSUPP);
	assert_int_equal(kvmm_gpu_event_wrap(gpu, &o, &ev), -EOPNOTSUPP);
	assert_int_equal(kvmm_gpu_register(gpu, NULL, 4096), -EOPNOTSUPP);
	assert_int_equal(kvmm_gpu_close(gpu), 0);

	o.pci = "0000:b2:00.0";
	assert_int_equal(kvmm_gpu_open(&gpu, &o, err, sizeof(err)), -ENODEV);
	assert_non_null(strstr(err, "0000:b2:00.0"));
	o.pci = NULL;
	o.flags = KVMM_GPU_BY_INDEX;
	o.index = 2;
	assert_int_equal(kvmm_gpu_open(&gpu, &o, err, sizeof(err)), -ENODEV);
	assert_non_null(strstr(err, "there are 2"));
	o.index = 0;
	assert_int_equal(kvmm_gpu_open(&gpu, &o, err, sizeof(err)), 0);
	assert_int_equal(kvmm_gpu_close(gpu), 0);
	o.path = KVMM_GPU_PATH_PLAIN;
	assert_int_equal(kvmm_gpu_open(&gpu, &o, err, sizeof(err)),
			 -EOPNOTSUPP);
	/* the others import nothing */
	o = (struct kvmm_gpu_opts){.backend = KVMM_GPU_HOST};
	assert_int_equal(kvmm_gpu_open(&gpu, &o, err, sizeof(err)), 0);
	assert_int_equal(kvmm_gpu_import(gpu, 0, &handle, &bytes),
			 -EOPNOTSUPP);
	assert_int_equal(kvmm_gpu_import_release(gpu, 1), -EOPNOTSUPP);
	assert_int_equal(kvmm_gpu_close(gpu), 0);
}

int drm_tests(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_this_machine),
		cmocka_unit_test(test_no_libdrm),
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_device),
	};

	return cmocka_run_group_tests_name("drm", tests, NULL, NULL);
}
