// SPDX-License-Identifier: MIT
/*
 * A small ext4 of a test's own, in a file behind a loop device, that may be
 * filled up or broken.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvmm_test.h"

static int run(char *const argv[])
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (!pid) {
		execvp(argv[0], argv);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -ECHILD;
	return WEXITSTATUS(status) == 127 ? -ENODEV :
		WEXITSTATUS(status) ? -EIO : 0;
}

static int format(const char *image, uint32_t megabytes)
{
	char *mkfs[] = { "mkfs.ext4", "-q", "-F", "-b", "4096",
			 (char *)image, NULL };
	int fd = open(image, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)megabytes << 20))
		ret = -errno;
	close(fd);
	return ret ? ret : run(mkfs);
}

/* The device goes by itself when it is unmounted. */
static int loop_open(const char *image, char *dev, size_t size)
{
	struct loop_config config = {
		.info.lo_flags = LO_FLAGS_AUTOCLEAR,
	};
	char *modprobe[] = { "modprobe", "loop", NULL };
	int control, fd = -1, nr, i;

	control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	if (control < 0) {
		run(modprobe);
		control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	}
	if (control < 0)
		return -ENODEV;
	nr = ioctl(control, LOOP_CTL_GET_FREE);
	close(control);
	if (nr < 0)
		return -errno;
	snprintf(dev, size, "loop%d", nr);
	config.fd = open(image, O_RDWR | O_CLOEXEC);
	for (i = 0; i < 1000 && fd < 0; i++) {
		char path[64];

		snprintf(path, sizeof(path), "/dev/%s", dev);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			kt_sleep_ms(1);
	}
	if (fd >= 0 && ioctl(fd, LOOP_CONFIGURE, &config)) {
		nr = -errno;
		close(fd);
		fd = nr;
	}
	close(config.fd);
	return fd;
}

int kt_loop(struct kt_loop *l, const char *image, uint32_t megabytes,
	    const char *options)
{
	char path[64];
	int fd, ret;

	memset(l, 0, sizeof(*l));
	ret = format(image, megabytes);
	if (ret) {
		unlink(image);
		return ret;
	}
	fd = loop_open(image, l->dev, sizeof(l->dev));
	if (fd < 0)
		return fd;
	snprintf(l->image, sizeof(l->image), "%s", image);
	snprintf(l->dir, sizeof(l->dir), "/tmp/kvmm-%s", l->dev);
	snprintf(path, sizeof(path), "/dev/%s", l->dev);
	mkdir(l->dir, 0700);
	ret = mount(path, l->dir, "ext4", 0, options) ? -errno : 0;
	close(fd);
	if (ret) {
		rmdir(l->dir);
		l->dir[0] = '\0';
	}
	return ret;
}

int kt_loop_file(struct kt_loop *l, const char *name, int flags)
{
	char path[sizeof(l->dir) + 64];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", l->dir, name);
	fd = open(path, flags | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

int kt_loop_fill(struct kt_loop *l)
{
	int fd = kt_loop_file(l, "filler", O_RDWR | O_CREAT | O_TRUNC);
	int ret;

	if (fd < 0)
		return fd;
	ret = kt_fill_disk(fd);
	close(fd);
	return ret;
}

void kt_loop_empty(struct kt_loop *l)
{
	char path[sizeof(l->dir) + 64];

	snprintf(path, sizeof(path), "%s/filler", l->dir);
	unlink(path);
	sync();
}

int kt_loop_end(struct kt_loop *l)
{
	int ret = 0;

	if (l->dir[0]) {
		ret = umount(l->dir) ? -errno : 0;
		if (ret)
			umount2(l->dir, MNT_DETACH);
		rmdir(l->dir);
		unlink(l->image);
	}
	memset(l, 0, sizeof(*l));
	return ret;
}
