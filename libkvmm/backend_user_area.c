// SPDX-License-Identifier: MIT
/*
 * User backend: the swap area.  Whatever the file is, it must take O_DIRECT,
 * and belong to one pool alone: the claim is a flock() on an open file of our
 * own, so it ends with the process and is seen by every other process.
 */
#include "backend_user.h"

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
#include <unistd.h>

/* A deadline where none was asked for. */
#define IO_TIMEOUT_MS	30000U
/* At least this, so that no file system block is written in part. */
#define MIN_ALIGN	4096U

/*
 * Of a descriptor that is another name of the caller's open file, a claim by
 * flock() is the caller's too: a second pool that is given the same open file
 * would have it as well.  A lock on the open file shows up where this process
 * asks as itself; it is as wide as the file, and in nobody's way otherwise.
 */
static int claim_open_file(int own)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(own, F_GETLK, &lock))
		return -errno;
	if (lock.l_type != F_UNLCK)
		return -EBUSY;
	lock = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET };
	if (!fcntl(own, F_OFD_SETLK, &lock))
		return 0;
	return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
}

/*
 * An open file of our own, with O_DIRECT, on what @fd is.  *@shared: it is the
 * caller's open file.
 */
static int reopen(int fd, bool *shared)
{
	int flags = fcntl(fd, F_GETFL), own;
	struct stat st;
	char path[32];

	*shared = false;
	if (flags < 0 || flags & O_PATH || (flags & O_ACCMODE) != O_RDWR)
		return -EBADF;
	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return -EINVAL;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	/* A device that is mounted, or swapped to, is not for us. */
	own = open(path, O_RDWR | O_DIRECT | O_CLOEXEC |
			 (S_ISBLK(st.st_mode) ? O_EXCL : 0));
	if (own >= 0)
		return own;
	if (errno == EINVAL)
		return -EOPNOTSUPP;
	if (errno == EBUSY)
		return -EBUSY;
	/* No /proc, or the file's mode forbids it: use the one we have. */
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return -errno;
	if (fcntl(own, F_SETFL, flags | O_DIRECT)) {
		close(own);
		return -EOPNOTSUPP;
	}
	*shared = true;
	return own;
}

/* Length and kind of the file; *@align: what direct I/O wants. */
static int look_at(int fd, uint64_t *bytes, uint32_t *align)
{
	struct stat st;
	unsigned int ssz;
	size_t dev_bytes;
	struct statx stx;

	if (fstat(fd, &st))
		return -errno;
	*align = MIN_ALIGN;
	if (S_ISBLK(st.st_mode)) {
		if (ioctl(fd, BLKGETSIZE64, &dev_bytes) ||
		    ioctl(fd, BLKSSZGET, &ssz))
			return -errno;
		*bytes = dev_bytes;
		if (ssz > *align)
			*align = ssz;
		return 0;
	}
	*bytes = (uint64_t)st.st_size;
	if (!statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) &&
	    stx.stx_mask & STATX_DIOALIGN) {
		if (!stx.stx_dio_offset_align)
			return -EOPNOTSUPP;
		if (stx.stx_dio_offset_align > *align)
			*align = stx.stx_dio_offset_align;
	}
	return 0;
}

/* How many slots there will be; see struct kvmm_swap_attach. */
static int count_slots(struct user_pool *up, uint64_t bytes,
		       struct kvmm_swap_attach *arg)
{
	uint64_t most = up->core.cfg.nr_slots, fit;
	struct rlimit fsize;

	if (!most || arg->nr_slots > most)
		return -EINVAL;
	/* Writing beyond this limit would be a SIGXFSZ. */
	if (!getrlimit(RLIMIT_FSIZE, &fsize) && fsize.rlim_cur < bytes)
		bytes = fsize.rlim_cur;
	fit = bytes > arg->offset ? (bytes - arg->offset) >> up->block_shift
				  : 0;
	if (!fit || arg->nr_slots > fit)
		return -ENOSPC;
	if (!arg->nr_slots)
		arg->nr_slots = (uint32_t)(fit < most ? fit : most);
	return 0;
}

/*
 * Does direct I/O work: write the first slot and read it back.  *@us: what
 * the read took.  *@align becomes the whole slot where less is refused.
 */
static int try_slot(int fd, uint64_t offset, size_t bytes, uint32_t *align,
		    uint32_t *us)
{
	unsigned char *mem;
	uint64_t start;
	size_t i;
	ssize_t n;
	int err = 0;

	mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		return -ENOMEM;
	for (i = 0; i < bytes; i += 512)
		mem[i] = (unsigned char)(i / 512 + 1);
	do {
		n = pwrite(fd, mem, bytes, (off_t)offset);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		err = errno == EINVAL || errno == EOPNOTSUPP ? -EOPNOTSUPP :
		      errno == ENOSPC || errno == EFBIG ? -ENOSPC : -EIO;
	else if ((size_t)n != bytes)
		err = -ENOSPC;
	memset(mem, 0, bytes);
	start = user_mono_us();
	do {
		n = err ? 0 : pread(fd, mem, bytes, (off_t)offset);
	} while (n < 0 && errno == EINTR);
	if (!err && n != (ssize_t)bytes)
		err = -EIO;
	*us = (uint32_t)(user_mono_us() - start);
	for (i = 0; i < bytes && !err; i += 512)
		if (mem[i] != (unsigned char)(i / 512 + 1))
			err = -EIO;
	if (!err && pwrite(fd, mem, *align, (off_t)offset) < 0 &&
	    errno == EINVAL)
		*align = (uint32_t)bytes;
	munmap(mem, bytes);
	return err;
}

/* io_uring where it may be used; threads always can. */
static int start_engine(struct user_area *a)
{
	struct kvmm *kv = a->up->kv;
	bool *threads = &user_backend(kv)->threads;
	int err;

	if (!__atomic_load_n(threads, __ATOMIC_RELAXED)) {
		a->engine = &io_engine_uring;
		err = a->engine->init(a);
		if (!err)
			return 0;
		__atomic_store_n(threads, true, __ATOMIC_RELAXED);
		kvmm_log_once(kv, ONCE_NO_URING, KVMM_LOG_WARNING,
			      "io_uring can't be set up (%s): threads do swap I/O, which costs more CPU",
			      strerror(-err));
	}
	a->engine = &io_engine_threads;
	return a->engine->init(a);
}

/* The whole file is this pool's; what was claimed goes with @shared. */
static int claim(struct user_area *a)
{
	int err;

	if (flock(a->fd, LOCK_EX | LOCK_NB))
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	/* Of two pools that come at once, one is told so. */
	err = 0;
	if (a->shared) {
		struct user_backend *ub = user_backend(a->up->kv);

		pthread_mutex_lock(&ub->lock);
		err = claim_open_file(a->fd);
		pthread_mutex_unlock(&ub->lock);
		a->claimed = !err;
	}
	return err;
}

/* The ring lets go of the file later, so the claim is ended by hand. */
static void unclaim(struct user_area *a)
{
	struct flock lock = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	/* Where the open file is another pool's, so is the flock() on it. */
	if (a->shared && !a->claimed)
		return;
	if (a->shared)
		fcntl(a->fd, F_OFD_SETLK, &lock);
	flock(a->fd, LOCK_UN);
}

static void area_free(struct user_area *a)
{
	a->engine->exit(a);
	unclaim(a);
	close(a->fd);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

/* All that can be done without the pool's lock. */
static int area_new(struct user_pool *up, struct kvmm_swap_attach *arg,
		    struct user_area **out, uint32_t *load_us)
{
	struct user_area *a;
	uint64_t bytes = 0;
	uint32_t i;
	int err;

	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->up = up;
	a->offset = arg->offset;
	a->checksums = !(arg->flags & KVMM_SWAP_NO_CHECKSUM);
	a->timeout_us = 1000ULL * (arg->timeout_ms ? arg->timeout_ms
						   : IO_TIMEOUT_MS);
	a->fd = reopen(arg->fd, &a->shared);
	err = a->fd < 0 ? a->fd : 0;
	if (err)
		goto fail;
	err = look_at(a->fd, &bytes, &a->align);
	if (!err && a->align > 1U << up->block_shift)
		err = -EOPNOTSUPP;
	if (!err)
		err = count_slots(up, bytes, arg);
	if (!err)
		err = claim(a);
	if (err)
		goto fail_fd;
	err = try_slot(a->fd, a->offset, (size_t)1 << up->block_shift,
		       &a->align, load_us);
	if (err)
		goto fail_claim;
	a->nr_slots = arg->nr_slots;
	pthread_mutex_init(&a->lock, NULL);
	for (i = 0; i < USER_DEPTH; i++)
		io_list_add(&a->free, &a->reqs[i]);
	err = start_engine(a);
	if (err)
		goto fail_lock;
	*out = a;
	return 0;

fail_lock:
	pthread_mutex_destroy(&a->lock);
fail_claim:
	unclaim(a);
fail_fd:
	close(a->fd);
fail:
	free(a);
	return err;
}

/* The one attach that may be under way; the lock is not held meanwhile. */
static int attach_begin(struct user_pool *up)
{
	int err = 0;

	pthread_mutex_lock(&up->lock);
	if (up->gone)
		err = -ENODEV;
	else if (up->area || up->changing)
		err = -EBUSY;
	else
		up->changing = true;
	pthread_mutex_unlock(&up->lock);
	return err;
}

int user_swap_attach(struct kvmm_pool *pool, struct kvmm_swap_attach *arg)
{
	struct user_pool *up = user_client(pool)->up;
	struct user_area *a = NULL;
	uint32_t load_us = 0;
	int err;

	if (pool->rdonly)
		return -EACCES;
	if (arg->flags & ~KVMM_SWAP_NO_CHECKSUM ||
	    arg->offset & ((1ULL << up->block_shift) - 1) ||
	    arg->offset > INT64_MAX || arg->timeout_ms > KVMM_MAX_IO_TIMEOUT_MS)
		return -EINVAL;
	err = attach_begin(up);
	if (err)
		return err;
	err = area_new(up, arg, &a, &load_us);
	pthread_mutex_lock(&up->lock);
	if (!err)
		err = kvmm_core_attach(&up->core, arg->nr_slots);
	if (!err) {
		up->core.load_us = load_us;
		up->area = a;
	}
	up->changing = false;
	pthread_mutex_unlock(&up->lock);
	if (err && a)
		area_free(a);
	return err;
}

struct user_area *user_area_get(struct user_pool *up, struct user_area *held)
{
	if (held || !up->area)
		return held;
	up->area->refs++;
	return up->area;
}

void user_area_put(struct user_area *a)
{
	struct user_pool *up;

	if (!a)
		return;
	up = a->up;
	pthread_mutex_lock(&up->lock);
	a->refs--;
	/* Who detaches it may be waiting for this. */
	up->io_seq++;
	pthread_cond_broadcast(&up->io_cond);
	pthread_mutex_unlock(&up->lock);
}

/*
 * Has the core let go of all slots, waiting for I/O in flight.  From then on it
 * hands out no moves, and the area is not to be found any more.
 */
static int detach_core(struct user_pool *up, struct user_area *a, bool discard)
{
	bool busy;
	uint64_t seq;
	int err;

	for (;;) {
		pthread_mutex_lock(&up->lock);
		err = kvmm_core_detach(&up->core, discard, user_now(up));
		if (!err)
			up->area = NULL;
		busy = up->core.writing || up->core.reading;
		seq = up->io_seq;
		pthread_mutex_unlock(&up->lock);
		if (err != -EAGAIN)
			return err;
		if (busy)
			io_wait(a, seq, 1);
	}
}

int user_swap_detach(struct kvmm_pool *pool, unsigned int flags)
{
	struct user_pool *up = user_client(pool)->up;
	struct user_area *a;
	int err = 0;

	if (pool->rdonly)
		return -EACCES;
	pthread_mutex_lock(&up->lock);
	a = up->area;
	if (up->gone)
		err = -ENODEV;
	else if (up->changing)
		err = -EBUSY;
	else if (!a)
		err = -ENOENT;
	else
		up->changing = true;
	pthread_mutex_unlock(&up->lock);
	if (err)
		return err;

	/* No new area comes while commands still use the old one. */
	err = detach_core(up, a, flags & KVMM_SWAP_DISCARD);
	pthread_mutex_lock(&up->lock);
	while (!err && a->refs)
		pthread_cond_wait(&up->io_cond, &up->lock);
	pthread_mutex_unlock(&up->lock);
	if (!err)
		area_free(a);
	pthread_mutex_lock(&up->lock);
	up->changing = false;
	pthread_mutex_unlock(&up->lock);
	return err;
}

void user_area_end(struct user_pool *up)
{
	struct user_area *a = up->area;

	if (!a)
		return;
	detach_core(up, a, true);
	area_free(a);
}
