// SPDX-License-Identifier: MIT
/*
 * The drm backend: DRM devices listed through libdrm, with their place in the
 * machine, and import of a dma-buf through PRIME.  libdrm is loaded at run
 * time: a program that links libkvmm must start where there is none.
 */
#include "ops.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xf86drm.h>

/* Devices looked at; libdrm itself stops at 256 nodes. */
#define MAX_DEVICES 256

#define DRM_CALLS(X)                                                           \
	X(drmGetDevices2)                                                      \
	X(drmFreeDevices)                                                      \
	X(drmGetVersion)                                                       \
	X(drmFreeVersion)                                                      \
	X(drmPrimeFDToHandle)                                                  \
	X(drmCloseBufferHandle)

struct drm_api {
	void *dl;
#define X(name) __typeof__(name) *name;
	DRM_CALLS(X)
#undef X
};

struct drm_gpu {
	struct kvmm_gpu gpu;
	struct drm_api api;
	int fd;
};

static struct drm_gpu *to_drm(struct kvmm_gpu *gpu)
{
	return (struct drm_gpu *)gpu;
}

/* On failure nothing stays loaded. */
static int drm_load(struct drm_api *api, const char *path, char *err,
		    size_t err_len)
{
	void *fn;

	api->dl = dlopen(path ? path : "libdrm.so.2", RTLD_NOW | RTLD_LOCAL);
	if (!api->dl) {
		snprintf(err, err_len, "no libdrm: %s", dlerror());
		return -ENOENT;
	}
#define X(name)                                                                \
	fn = dlsym(api->dl, #name);                                            \
	if (!fn) {                                                             \
		snprintf(err, err_len, "libdrm lacks %s", #name);              \
		dlclose(api->dl);                                              \
		return -ENOSYS;                                                \
	}                                                                      \
	memcpy(&api->name, &fn, sizeof(fn));
	DRM_CALLS(X)
#undef X
	return 0;
}

static void drm_driver_name(const struct drm_api *api, const char *node,
			    char *name, size_t len)
{
	int fd = open(node, O_RDWR | O_CLOEXEC);
	drmVersionPtr v;

	name[0] = 0;
	if (fd < 0)
		return;
	v = api->drmGetVersion(fd);
	if (v) {
		snprintf(name, len, "%.*s", v->name_len, v->name);
		api->drmFreeVersion(v);
	}
	close(fd);
}

static bool drm_describe(const struct drm_api *api, const char *sysfs,
			 drmDevicePtr dev, struct kvmm_gpu_drm_node *out)
{
	int type = DRM_NODE_RENDER;

	if (!(dev->available_nodes & (1 << type)))
		type = DRM_NODE_PRIMARY;
	if (!(dev->available_nodes & (1 << type)))
		return false;
	memset(out, 0, sizeof(*out));
	snprintf(out->node, sizeof(out->node), "%s", dev->nodes[type]);
	drm_driver_name(api, out->node, out->driver, sizeof(out->driver));
	out->numa_node = -1;
	if (dev->bustype == DRM_BUS_PCI) {
		const drmPciBusInfo *pci = dev->businfo.pci;

		snprintf(out->pci, sizeof(out->pci), "%04x:%02x:%02x.%x",
			 pci->domain, pci->bus, pci->dev, pci->func & 7U);
		out->numa_node = gpu_pci_numa(sysfs, out->pci);
	}
	return true;
}

static int drm_list(const struct drm_api *api, const char *sysfs,
		    struct kvmm_gpu_drm_node *nodes, int n)
{
	drmDevicePtr devices[MAX_DEVICES];
	/* without DRM_DEVICE_GET_PCI_REVISION: it would wake the device */
	int i, found = 0;
	int nr = api->drmGetDevices2(0, devices, MAX_DEVICES);

	if (nr < 0)
		return nr == -ENOENT ? 0 : nr; /* no /dev/dri */
	for (i = 0; i < nr && found < n; i++)
		if (drm_describe(api, sysfs, devices[i], &nodes[found]))
			found++;
	api->drmFreeDevices(devices, nr);
	return found;
}

int kvmm_gpu_drm_list(const struct kvmm_gpu_opts *opts,
		      struct kvmm_gpu_drm_node *nodes, int n, char *err,
		      size_t err_len)
{
	struct drm_api api;
	int r;

	if (!err)
		err_len = 0;
	r = drm_load(&api, opts ? opts->libdrm : NULL, err, err_len);
	if (r)
		return r;
	r = drm_list(&api, opts ? opts->sysfs : NULL, nodes, n);
	if (r < 0)
		snprintf(err, err_len, "listing DRM devices: %s",
			 strerror(-r));
	else if (!r)
		snprintf(err, err_len, "no DRM device on this machine");
	dlclose(api.dl);
	return r;
}

bool gpu_drm_find(const struct kvmm_gpu_opts *opts, const char *pci,
		  char node[KVMM_GPU_NAME_LEN])
{
	struct kvmm_gpu_drm_node *nodes;
	bool found = false;
	int i, nr;

	nodes = calloc(MAX_DEVICES, sizeof(*nodes));
	if (!nodes)
		return false;
	nr = kvmm_gpu_drm_list(opts, nodes, MAX_DEVICES, NULL, 0);
	for (i = 0; i < nr && !found; i++) {
		found = !strcmp(nodes[i].pci, pci);
		if (found)
			memcpy(node, nodes[i].node, KVMM_GPU_NAME_LEN);
	}
	free(nodes);
	return found;
}

/* The device that the options name; without a name the first. */
static int drm_choose(struct kvmm_gpu *gpu, const struct kvmm_gpu_opts *opts,
		      const struct kvmm_gpu_drm_node *nodes, int nr)
{
	char want[16] = "";
	int i = 0;

	if (!nr)
		return gpu_fail(gpu, ENODEV, "no DRM device on this machine");
	if (opts->pci) {
		gpu_pci_parse(opts->pci, want);
		while (i < nr && strcmp(nodes[i].pci, want))
			i++;
		if (i == nr)
			return gpu_fail(gpu, ENODEV, "no DRM device at %s",
					want);
	} else if (opts->flags & KVMM_GPU_BY_INDEX) {
		i = opts->index;
		if (i >= nr)
			return gpu_fail(gpu, ENODEV,
					"no DRM device %d, there are %d", i,
					nr);
	}
	return i;
}

static int drm_open_node(struct drm_gpu *drm, const struct kvmm_gpu_opts *opts)
{
	struct kvmm_gpu_info *info = &drm->gpu.info;
	struct kvmm_gpu_drm_node *nodes, *node;
	int nr, i, err;

	nodes = calloc(MAX_DEVICES, sizeof(*nodes));
	if (!nodes)
		return gpu_fail(&drm->gpu, ENOMEM, "out of memory");
	nr = drm_list(&drm->api, opts->sysfs, nodes, MAX_DEVICES);
	if (nr < 0) {
		i = gpu_fail(&drm->gpu, -nr, "listing DRM devices: %s",
			     strerror(-nr));
		goto out;
	}
	i = drm_choose(&drm->gpu, opts, nodes, nr);
	if (i < 0)
		goto out;
	node = &nodes[i];
	drm->fd = open(node->node, O_RDWR | O_CLOEXEC);
	if (drm->fd < 0) {
		err = errno;
		i = gpu_fail(&drm->gpu, err, "%s: %s", node->node,
			     strerror(err));
		goto out;
	}
	info->index = i;
	info->numa_node = node->numa_node;
	memcpy(info->name, node->driver, sizeof(node->driver));
	memcpy(info->pci, node->pci, sizeof(info->pci));
	memcpy(info->drm_node, node->node, sizeof(info->drm_node));
	i = 0;
out:
	free(nodes);
	return i;
}

static int drm_open(struct kvmm_gpu *gpu, const struct kvmm_gpu_opts *opts)
{
	struct drm_gpu *drm = to_drm(gpu);
	char err[200];
	int r;

	if (opts->path != KVMM_GPU_PATH_AUTO)
		return gpu_fail(gpu, EOPNOTSUPP, "a drm device doesn't copy");
	r = drm_load(&drm->api, opts->libdrm, err, sizeof(err));
	if (r)
		return gpu_fail(gpu, -r, "%s", err);
	r = drm_open_node(drm, opts);
	if (r)
		dlclose(drm->api.dl);
	return r;
}

static void drm_close(struct kvmm_gpu *gpu)
{
	struct drm_gpu *drm = to_drm(gpu);

	close(drm->fd);
	dlclose(drm->api.dl);
}

static int drm_import(struct kvmm_gpu *gpu, int fd, uint32_t *handle,
		      uint64_t *bytes)
{
	struct drm_gpu *drm = to_drm(gpu);
	off_t size = lseek(fd, 0, SEEK_END);
	int err;

	if (size < 0) {
		err = errno;
		return gpu_fail(gpu, err, "not a dma-buf: %s", strerror(err));
	}
	if (drm->api.drmPrimeFDToHandle(drm->fd, fd, handle)) {
		err = errno;
		return gpu_fail(gpu, err, "%s can't import the dma-buf: %s",
				gpu->info.drm_node, strerror(err));
	}
	*bytes = size;
	return 0;
}

static int drm_release(struct kvmm_gpu *gpu, uint32_t handle)
{
	struct drm_gpu *drm = to_drm(gpu);
	int err;

	if (drm->api.drmCloseBufferHandle(drm->fd, handle)) {
		err = errno;
		return gpu_fail(gpu, err, "%s: handle %u: %s",
				gpu->info.drm_node, handle, strerror(err));
	}
	return 0;
}

const struct kvmm_gpu_ops gpu_drm_ops = {
	.name = "drm",
	.size = sizeof(struct drm_gpu),
	.open = drm_open,
	.close = drm_close,
	.import = drm_import,
	.release = drm_release,
};
