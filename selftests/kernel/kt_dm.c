// SPDX-License-Identifier: MIT
/*
 * A disk that hangs, fails or is slow at a word: a device-mapper device on top
 * of the spare disk, through the driver's own ioctls.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "kvmm_test.h"

#define NAME	"kvmmt"
#define MISC	"/proc/misc"
#define DISK	"/dev/kvmmt-dm"
#define CONTROL	"/dev/mapper/control"

union dm_arg {
	struct dm_ioctl dm;
	char room[4096];
};

static int control = -1;
static uint64_t sectors;

/* Where it is not there it may be built in: what is missing is found later. */
static void modprobe(const char *args)
{
	char cmd[96];
	int ret;

	snprintf(cmd, sizeof(cmd), "modprobe %s 2>/dev/null", args);
	ret = system(cmd);
	(void)ret;
}

/* There may be no udev: the node is made from /proc/misc. */
static int open_control(void)
{
	unsigned int minor;
	char line[64], name[64];
	FILE *f;

	if (control >= 0)
		return 0;
	modprobe("dm-mod");
	f = fopen(MISC, "r");
	while (access(CONTROL, F_OK) && f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%u %63s", &minor, name) != 2 ||
		    strcmp(name, "device-mapper"))
			continue;
		mkdir("/dev/mapper", 0700);
		mknod(CONTROL, S_IFCHR | 0600, makedev(10, minor));
	}
	if (f)
		fclose(f);
	control = open(CONTROL, O_RDWR | O_CLOEXEC);
	return control < 0 ? -ENODEV : 0;
}

static int dm(unsigned long cmd, union dm_arg *arg, uint32_t flags)
{
	arg->dm.version[0] = DM_VERSION_MAJOR;
	arg->dm.data_size = sizeof(*arg);
	arg->dm.data_start = sizeof(arg->dm);
	arg->dm.flags = flags;
	strcpy(arg->dm.name, NAME);
	return ioctl(control, cmd, arg) ? -errno : 0;
}

static int load(const char *target, const char *params)
{
	union dm_arg arg = { 0 };
	struct dm_target_spec *spec = (void *)(arg.room + sizeof(arg.dm));

	arg.dm.target_count = 1;
	spec->length = sectors;
	snprintf(spec->target_type, sizeof(spec->target_type), "%s", target);
	snprintf((char *)(spec + 1), 1024, "%s", params);
	return dm(DM_TABLE_LOAD, &arg, 0);
}

int kt_dm_hang(bool hang)
{
	union dm_arg arg = { 0 };

	return dm(DM_DEV_SUSPEND, &arg,
		  hang ? DM_SUSPEND_FLAG | DM_SKIP_LOCKFS_FLAG |
			 DM_NOFLUSH_FLAG : 0);
}

int kt_dm_become(const char *target, const char *args)
{
	const char *accel = getenv("KVMM_VM_ACCEL");
	char params[256];
	int ret;

	/* kmemleak can't see into modules there, and takes theirs for leaks */
	if (accel && !strcmp(accel, "uml") &&
	    (!strcmp(target, "flakey") || !strcmp(target, "delay")))
		return -ENODEV;
	if (!strcmp(target, "flakey"))
		modprobe("dm-flakey");
	if (!strcmp(target, "delay"))
		modprobe("dm-delay");
	snprintf(params, sizeof(params), "%s %s", kt_disk_dev(), args);
	ret = load(target, strcmp(target, "error") ? params : "");
	/* the new table is in use from the resume on */
	ret = ret ? ret : kt_dm_hang(true);
	return ret ? ret : kt_dm_hang(false);
}

int kt_dm(void)
{
	union dm_arg arg = { 0 };
	uint64_t bytes = 0;
	int fd, ret;

	if (!kt_disk_dev() || open_control())
		return -ENODEV;
	kt_dm_end();
	fd = open(kt_disk_dev(), O_RDWR | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, BLKGETSIZE64, &bytes))
		return -errno;
	close(fd);
	sectors = bytes / 512;
	ret = dm(DM_DEV_CREATE, &arg, 0);
	if (ret)
		return ret;
	unlink(DISK);
	if (mknod(DISK, S_IFBLK | 0600, arg.dm.dev))
		return -errno;
	ret = kt_dm_become("linear", "0");
	if (ret)
		return ret;
	fd = open(DISK, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

void kt_dm_end(void)
{
	union dm_arg arg = { 0 };
	int i;

	if (control < 0)
		return;
	kt_dm_hang(false);
	/* busy for as long as someone closes it */
	for (i = 0; i < 2000 && dm(DM_DEV_REMOVE, &arg, 0) == -EBUSY; i++)
		kt_sleep_ms(1);
	unlink(DISK);
}
