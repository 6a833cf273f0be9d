// SPDX-License-Identifier: MIT
/*
 * The swap area's file, for both backends: found, or made.
 *
 * A new file is made under another name beside the old one and takes its place
 * when the pool has taken it, so that a failure leaves everything as it was,
 * and an area that another pool still uses is never written to.  One that is to
 * have no name has none from the start, where the file system can do that: then
 * nothing is left of it however the process ends.
 */
#include "backend.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LIB_FLAGS	(KVMM_SWAP_CREATE | KVMM_SWAP_PREWRITE | KVMM_SWAP_UNLINK)
#define AREA_FLAGS	(KVMM_SWAP_NO_CHECKSUM | LIB_FLAGS)
#define PREWRITE_PIECE	((size_t)4 << 20)
#define BTRFS_MAGIC	0x9123683e

/* May @path be replaced: there is nothing, or a regular file nobody uses. */
static int check_old(const char *path)
{
	struct stat st;
	int fd, err = 0;

	if (lstat(path, &st))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISREG(st.st_mode))
		return -EEXIST;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		err = -EBUSY;
	close(fd);
	return err;
}

/* Copy on write would move each slot on each write; it can be switched off. */
static void forbid_cow(struct kvmm *kv, int fd, const char *path)
{
	struct statfs fs;
	int flags;

	if (fstatfs(fd, &fs) || fs.f_type != BTRFS_MAGIC)
		return;
	if (!ioctl(fd, FS_IOC_GETFLAGS, &flags)) {
		flags |= FS_NOCOW_FL;
		if (!ioctl(fd, FS_IOC_SETFLAGS, &flags))
			return;
	}
	kvmm_log_once(kv, ONCE_SLOW_AREA, KVMM_LOG_WARNING,
		      "%s is on a copy-on-write file system: swapping will be slow",
		      path);
}

/* Writes zeros all over the file, past the page cache where that works. */
static int prewrite(int fd, uint64_t bytes)
{
	int flags = fcntl(fd, F_GETFL), err = 0;
	uint64_t at = 0;
	size_t piece;
	ssize_t n;
	void *mem;

	mem = mmap(NULL, PREWRITE_PIECE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		return -ENOMEM;
	fcntl(fd, F_SETFL, flags | O_DIRECT);
	while (at < bytes && !err) {
		piece = bytes - at < PREWRITE_PIECE ? (size_t)(bytes - at)
						    : PREWRITE_PIECE;
		n = pwrite(fd, mem, piece, (off_t)at);
		if (n > 0)
			at += (uint64_t)n;
		else if (!n)
			err = -ENOSPC;
		else if (errno == EINVAL && fcntl(fd, F_GETFL) & O_DIRECT)
			fcntl(fd, F_SETFL, flags);
		else if (errno != EINTR)
			err = -errno;
	}
	fcntl(fd, F_SETFL, flags);
	munmap(mem, PREWRITE_PIECE);
	if (!err && fdatasync(fd))
		err = -errno;
	return err;
}

/* Room for all of it, now: a disk that is full later would stop stores. */
static int reserve(int fd, uint64_t bytes, unsigned int flags)
{
	int err;

	do {
		err = fallocate(fd, 0, 0, (off_t)bytes) ? -errno : 0;
	} while (err == -EINTR);
	if (err == -EOPNOTSUPP || err == -ENOSYS)
		return prewrite(fd, bytes);
	if (!err && flags & KVMM_SWAP_PREWRITE)
		err = prewrite(fd, bytes);
	return err;
}

static int area_bytes(struct kvmm_pool *pool, struct kvmm_swap_opts *o,
		      uint64_t *bytes)
{
	uint64_t most = (uint64_t)INT64_MAX;
	struct rlimit fsize;

	if (!o->nr_slots)
		o->nr_slots = pool->nr_slots;
	if (!o->nr_slots || o->nr_slots > pool->nr_slots || o->offset > most ||
	    o->offset & (((uint64_t)1 << pool->block_shift) - 1))
		return -EINVAL;
	*bytes = (uint64_t)o->nr_slots << pool->block_shift;
	if (*bytes > most - o->offset)
		return -EINVAL;
	*bytes += o->offset;
	/* Beyond this limit writing would be a SIGXFSZ. */
	if (!getrlimit(RLIMIT_FSIZE, &fsize) && fsize.rlim_cur < *bytes)
		return -ENOSPC;
	return 0;
}

static long attach_fd(struct kvmm_pool *pool, const struct kvmm_swap_opts *o,
		      int fd)
{
	struct kvmm_swap_attach arg = {
		.size = sizeof(arg),
		.flags = o->flags & ~LIB_FLAGS,
		.fd = fd,
		.nr_slots = o->nr_slots,
		.offset = o->offset,
		.timeout_ms = o->timeout_ms,
	};
	int err = pool->kv->ops->swap_attach(pool, &arg);

	return err ? err : (long)arg.nr_slots;
}

static long attach_path(struct kvmm_pool *pool, const struct kvmm_swap_opts *o)
{
	int fd = open(o->path, O_RDWR | O_CLOEXEC);
	long ret;

	if (fd < 0)
		return -errno;
	ret = attach_fd(pool, o, fd);
	close(fd);
	if (ret > 0 && o->flags & KVMM_SWAP_UNLINK && unlink(o->path)) {
		ret = -errno;
		pool->kv->ops->swap_detach(pool, KVMM_SWAP_DISCARD);
	}
	return ret;
}

/* A file without a name where @path would be; -EOPNOTSUPP: not there. */
static int open_nameless(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash ? strndup(path, (size_t)(slash - path) + 1)
			  : strdup(".");
	int fd;

	if (!dir)
		return -ENOMEM;
	fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	/* EISDIR: a kernel that has never heard of it */
	if (fd < 0)
		fd = errno == EISDIR ? -EOPNOTSUPP : -errno;
	free(dir);
	return fd;
}

/* The new file, under a name of its own, which is empty where it has none. */
static int open_new(const struct kvmm_swap_opts *o, char *tmp)
{
	int fd;

	if (o->flags & KVMM_SWAP_UNLINK) {
		fd = open_nameless(o->path);
		if (fd != -EOPNOTSUPP) {
			*tmp = 0;
			return fd;
		}
	}
	fd = mkostemp(tmp, O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* The pool has the new file, @tmp: it takes its name, or has none. */
static int settle_name(const struct kvmm_swap_opts *o, const char *tmp)
{
	if (!(o->flags & KVMM_SWAP_UNLINK))
		return rename(tmp, o->path) ? -errno : 0;
	if (unlink(o->path) && errno != ENOENT)
		return -errno;
	return *tmp && unlink(tmp) ? -errno : 0;
}

static long attach_new(struct kvmm_pool *pool, struct kvmm_swap_opts *o)
{
	uint64_t bytes;
	char *tmp;
	long ret;
	int fd;

	ret = area_bytes(pool, o, &bytes);
	if (!ret)
		ret = check_old(o->path);
	if (ret)
		return ret;
	if (asprintf(&tmp, "%s.XXXXXX", o->path) < 0)
		return -ENOMEM;
	fd = open_new(o, tmp);
	if (fd < 0) {
		free(tmp);
		return fd;
	}
	forbid_cow(pool->kv, fd, o->path);
	ret = reserve(fd, bytes, o->flags);
	if (!ret)
		ret = attach_fd(pool, o, fd);
	close(fd);
	if (ret > 0) {
		int err = settle_name(o, tmp);

		if (err) {
			pool->kv->ops->swap_detach(pool, KVMM_SWAP_DISCARD);
			ret = err;
		}
	}
	if (ret < 0) {
		kvmm_log(pool->kv, KVMM_LOG_ERROR,
			 "%s: no swap area of %llu bytes: %s", o->path,
			 (unsigned long long)bytes,
			 ret == -EBUSY ?
			 "the pool has one already, or the file is one" :
			 strerror((int)-ret));
		if (*tmp)
			unlink(tmp);
	}
	free(tmp);
	return ret;
}

long kvmm_swap_attach(struct kvmm_pool *pool, const struct kvmm_swap_opts *opts)
{
	struct kvmm_swap_opts o;
	int err;

	if (!opts)
		return kvmm_ret(-EINVAL);
	err = kvmm_copy_opts(&o, sizeof(o), opts, sizeof(o));
	if (err)
		return kvmm_ret(err);
	if (o.flags & ~AREA_FLAGS || (!o.path && o.flags & LIB_FLAGS))
		return kvmm_ret(-EINVAL);
	/* What is there already may be another pool's: it is not written to */
	if (o.flags & KVMM_SWAP_PREWRITE && !(o.flags & KVMM_SWAP_CREATE))
		return kvmm_ret(-EINVAL);
	if (!o.path)
		return kvmm_ret(attach_fd(pool, &o, o.fd));
	if (o.flags & KVMM_SWAP_CREATE)
		return kvmm_ret(attach_new(pool, &o));
	return kvmm_ret(attach_path(pool, &o));
}

int kvmm_swap_detach(struct kvmm_pool *pool, unsigned int flags)
{
	if (flags & ~KVMM_SWAP_DISCARD)
		return kvmm_ret(-EINVAL);
	return kvmm_ret(pool->kv->ops->swap_detach(pool, flags));
}
