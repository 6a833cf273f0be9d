// SPDX-License-Identifier: MIT
/*
 * A pool whose memory is on the NUMA node of the device: the device is the
 * stand-in's, the node is told by a made-up sysfs, and where the machine has
 * two nodes the pages have to be there.
 */
#include "door.h"

#include <stdio.h>
#include <stdlib.h>
#include <linux/mempolicy.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PCI	"0000:a1:00.0"
#define FRAMES	128

/* A sysfs that says on which node the stand-in's device is. */
struct sysfs {
	char dir[64];
};

static const char *const parts[] = {
	"bus", "bus/pci", "bus/pci/devices", "bus/pci/devices/" PCI,
};

static void sysfs_make(struct sysfs *s, int node)
{
	char path[256];
	unsigned int i;
	FILE *f;

	strcpy(s->dir, "/tmp/kvmm-near-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		snprintf(path, sizeof(path), "%s/%s", s->dir, parts[i]);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	strcat(path, "/numa_node");
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "%d\n", node);
	fclose(f);
}

static void sysfs_end(struct sysfs *s)
{
	char path[256];
	unsigned int i = ARRAY_SIZE(parts);

	snprintf(path, sizeof(path), "%s/%s/numa_node", s->dir, parts[i - 1]);
	unlink(path);
	while (i--) {
		snprintf(path, sizeof(path), "%s/%s", s->dir, parts[i]);
		rmdir(path);
	}
	rmdir(s->dir);
}

static int node_of(struct door *d, int node)
{
	struct kvmm_gpu_opts gpu = {
		.backend = KVMM_GPU_CUDA,
		.flags = KVMM_GPU_NO_CALIBRATION,
		.libcuda = fake.path,
	};
	struct sysfs s;
	int ret;

	sysfs_make(&s, node);
	gpu.sysfs = s.dir;
	ret = eng_node_on(d->lt->kv, &gpu);
	sysfs_end(&s);
	return ret;
}

/* Where the page at @addr is. */
static int node_at(void *addr)
{
	int node = -1;

	if (syscall(SYS_get_mempolicy, &node, NULL, 0, addr,
		    MPOL_F_NODE | MPOL_F_ADDR))
		return -errno;
	return node;
}

static void told(void **state)
{
	struct door d;

	door_start(&d, *state, NULL);
	if (!d.cuda)
		skip();
	assert_int_equal(node_of(&d, 0), 0);
	assert_int_equal(node_of(&d, 3), 3);
	/* what the kernel says where there is one node only */
	assert_int_equal(node_of(&d, -1), -ENODATA);
	door_end(&d);
}

static void asked_for(void **state)
{
	struct kvmm_engine_opts o = { .size = sizeof(o) };
	struct kvmm *kv = ((struct lt *)*state)->kv;
	struct door d;

	door_start(&d, *state, NULL);
	/* host memory is all over the place */
	o.device = KVMM_DEVICE_HOST;
	assert_fails(kvmm_device_node(kv, &o), ENODATA);
	assert_fails(kvmm_device_node(NULL, &o), EINVAL);
	o.device = 7;
	assert_fails(kvmm_device_node(kv, &o), EINVAL);
	o.device = KVMM_DEVICE_CUDA;
	o.libcuda = "/none.so";
	assert_fails(kvmm_device_node(kv, &o), ENOENT);
	assert_non_null(strstr(d.lt->log, "no device: "));
	o.size = 4;
	assert_fails(kvmm_device_node(kv, &o), EINVAL);
	if (d.cuda) {
		o.size = sizeof(o);
		o.libcuda = fake.path;
		o.pci = "0000:ff:00.0";
		assert_fails(kvmm_device_node(kv, &o), ENODEV);
		/* this machine's sysfs has no such device */
		o.pci = PCI;
		assert_fails(kvmm_device_node(kv, &o), ENODATA);
	}
	door_end(&d);
}

/* All of the pool on the device's node, and its engine works. */
static void near_on(void **state, int node)
{
	struct kvmm_pool_opts po = {
		.size = sizeof(po),
		.name = "door",
		.block_size = LT_BLOCK,
		.nr_frames = FRAMES,
	};
	struct seq *s = malloc(sizeof(*s));
	struct door d;
	unsigned int i;
	int near;

	door_start(&d, *state, NULL);
	door_simple(&d, 2, 1, 8, 64, 1, 64);
	near = node_of(&d, node);
	assert_int_equal(near, node);
	po.nodes = 1ULL << near;
	d.pool = lt_create(d.lt, &po);
	for (i = 0; i < FRAMES; i++)
		assert_int_equal(node_at((char *)kvmm_pool_arena(d.pool, NULL) +
					 (size_t)i * LT_BLOCK), node);
	d.eng = door_open(&d, d.pool, NULL);
	seq_new(&d, s, 10, 100, 0);
	seq_fill(&d, s);
	assert_int_equal(door_offload(&d, s), 10);
	seq_clear(&d, s);
	assert_int_equal(door_restore(&d, s), 10);
	seq_check(&d, s, 0, 10);
	door_end(&d);
	free(s);
}

static void near_the_device(void **state)
{
	struct lt *lt = *state;

	if (!lt->kernel || !door_cuda() ||
	    access("/sys/devices/system/node/node1", F_OK))
		skip();
	near_on(state, 0);
	near_on(state, 1);
	near_on(state, 0);
}

static const struct lt_test tests[] = {
	LT_TEST(told),
	LT_TEST(asked_for),
	LT_TEST(near_the_device),
};

int main(void)
{
	return LT_RUN("near", tests);
}
