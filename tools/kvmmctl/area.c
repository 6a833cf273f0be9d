// SPDX-License-Identifier: MIT
/*
 * Making swap areas.  A file without a name is opened with O_TMPFILE, so that
 * nothing is left behind however the process ends; where a file system can't,
 * its name goes right after it was made.  So it is with a file that the user
 * names and doesn't ask to keep.
 */
#include "area.h"
#include "kvmmctl.h"
#include "room.h"
#include "size.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static int nameless(const char *dir)
{
	char path[PATH_MAX];
	int fd = open(dir, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);

	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
		return fd < 0 ? -errno : fd;
	if (snprintf(path, sizeof(path), "%s/kvmmctl.XXXXXX", dir) >=
	    (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = mkostemp(path, O_DIRECT | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	unlink(path);
	return fd;
}

/* The first folder that takes O_DIRECT and has room. */
static int choose_folder(struct area *a)
{
	const char *const dirs[] = { getenv("TMPDIR"), "/var/tmp", "." };
	char need[SIZE_TEXT], have[SIZE_TEXT], why[512] = "";
	size_t len = 0;

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		uint64_t room;
		int fd;

		if (!dirs[i] || !*dirs[i])
			continue;
		fd = nameless(dirs[i]);
		if (fd >= 0) {
			room = room_disk_fd(fd);
			if (room >= a->bytes) {
				a->fd = fd;
				snprintf(a->place, sizeof(a->place),
					 "a file without a name in %s",
					 dirs[i]);
				return 0;
			}
			close(fd);
		}
		if (len >= sizeof(why))
			continue;
		if (fd >= 0)
			len += snprintf(why + len, sizeof(why) - len,
					"; %s has %s free", dirs[i],
					size_text(room, have));
		else
			len += snprintf(why + len, sizeof(why) - len,
					"; %s: %s", dirs[i],
					fd == -EINVAL ? "no O_DIRECT" :
							strerror(-fd));
	}
	return fail("the swap area needs %s on a file system with O_DIRECT%s",
		    size_text(a->bytes, need), why);
}

int area_prepare(struct area *a, const char *path, unsigned int slots,
		 unsigned int block_size, bool no_checksum)
{
	char need[SIZE_TEXT], have[SIZE_TEXT];
	struct stat st;
	uint64_t room;

	*a = (struct area){
		.path = path,
		.fd = -1,
		.slots = slots,
		.bytes = (uint64_t)slots * block_size,
		.no_checksum = no_checksum,
	};
	if (!path)
		return choose_folder(a);
	snprintf(a->place, sizeof(a->place), "%s", path);
	if (!stat(path, &st)) {
		if (S_ISBLK(st.st_mode)) {
			a->device = true;
			return 0;
		}
		if (!S_ISREG(st.st_mode))
			return fail("%s is neither a regular file nor a block "
				    "device", path);
	}
	room = room_disk(path);
	if (room < a->bytes)
		return fail("the swap area needs %s, and %s is free where %s "
			    "is", size_text(a->bytes, need),
			    size_text(room, have), path);
	return 0;
}

/* Is the folder where @path is on a tmpfs? */
static bool on_tmpfs(const char *path)
{
	char dir[PATH_MAX];
	struct statfs fs;
	char *slash;

	snprintf(dir, sizeof(dir), "%s", path ? path : "");
	slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = 0;
	return path && !statfs(slash ? dir : ".", &fs) &&
	       fs.f_type == TMPFS_MAGIC;
}

static int tell(const struct area *a, int err)
{
	char size[SIZE_TEXT];

	switch (err) {
	case EOPNOTSUPP:
	case EINVAL:
		if (on_tmpfs(a->path))
			return fail("%s can't be a swap area: it would be on a "
				    "tmpfs, which is memory itself and has no "
				    "O_DIRECT here; give a file on a disk",
				    a->place);
		return fail("%s can't be a swap area: its file system has no "
			    "O_DIRECT for blocks of this size", a->place);
	case ENOSPC:
		return fail("%s: no room for a swap area of %s", a->place,
			    size_text(a->bytes, size));
	case EBUSY:
		return fail("%s is in use: mounted, or the swap area of a pool "
			    "already", a->place);
	default:
		return fail("%s can't be a swap area: %s", a->place,
			    strerror(err));
	}
}

int area_attach(struct area *a, struct kvmm_pool *pool)
{
	struct kvmm_swap_opts opts = {
		.size = sizeof(opts),
		.flags = a->no_checksum ? KVMM_SWAP_NO_CHECKSUM : 0,
		.path = a->path,
		.fd = a->fd,
		.nr_slots = a->slots,
		.timeout_ms = a->io_timeout_ms,
	};
	bool existed;
	long n;

	if (a->fd >= 0 && fallocate(a->fd, 0, 0, (off_t)a->bytes)) {
		if (errno != EOPNOTSUPP)
			return tell(a, errno);
		/* no way to reserve the room there: the size has to do */
		if (ftruncate(a->fd, (off_t)a->bytes))
			return tell(a, errno);
	}
	existed = a->path && !access(a->path, F_OK);
	if (a->path && !a->device)
		opts.flags |= KVMM_SWAP_CREATE |
			      (a->keep ? 0 : KVMM_SWAP_UNLINK);
	session_keep_errors();
	n = kvmm_swap_attach(pool, &opts);
	session_kept_error();
	a->created = a->keep && a->path && !a->device && (n >= 0 || !existed);
	if (n < 0)
		return tell(a, (int)-n);
	if ((unsigned long)n < a->slots)
		return fail("%s has room for %ld slots, not for %u", a->place,
			    n, a->slots);
	return 0;
}

void area_end(struct area *a, bool remove)
{
	struct stat st;

	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
	if (remove && a->created && !lstat(a->path, &st) &&
	    S_ISREG(st.st_mode))
		unlink(a->path);
	a->created = false;
}
