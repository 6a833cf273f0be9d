// SPDX-License-Identifier: MIT
/*
 * The fuzzer's other ways to the module: mappings of the arena, the device and
 * dma-bufs as files, the swap files behind the module's back, sysfs, pressure.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz.h"

#define PAGE	4096UL

/* ---- mappings ---- */

static void map(struct fz *z, struct fz_client *c)
{
	static const int prots[] = {
		PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ,
		PROT_NONE, PROT_READ | PROT_WRITE | PROT_EXEC,
	};
	int prot = prots[fz_below(z, sizeof(prots) / sizeof(*prots))];
	int flags = fz_one_in(z, 16) ? MAP_PRIVATE : MAP_SHARED;
	size_t len = c->size ? c->size : 16 * PAGE;
	off_t off = fz_one_in(z, 16) ? fz_below(z, 64) * PAGE : 0;
	void *mem;

	if (fz_one_in(z, 6))
		len = (1 + fz_below(z, 300)) * PAGE - fz_below(z, 2);
	if (fz_one_in(z, 4))
		flags |= MAP_POPULATE;
	if (fz_one_in(z, 16))
		flags |= MAP_LOCKED;
	if (fz_one_in(z, 64))
		off = (off_t)(fz_junk(z) & ~(PAGE - 1));
	if (len > 256UL << 20)
		len = 256UL << 20;
	fz_unmap(c);
	mem = mmap(NULL, len, prot, flags, c->fd, off);
	if (mem != MAP_FAILED) {
		c->map = mem;
		c->len = len;
	}
	fz_say(z, "mmap", mem == MAP_FAILED ? -errno : 0);
}

static void advise(struct fz *z, unsigned char *at, size_t len)
{
	static const int advice[] = {
		MADV_NORMAL, MADV_RANDOM, MADV_WILLNEED, MADV_DONTNEED,
		MADV_FREE, MADV_REMOVE, MADV_DONTFORK, MADV_DOFORK,
		MADV_MERGEABLE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DODUMP,
		MADV_WIPEONFORK, MADV_COLD, MADV_PAGEOUT,
		22 /* POPULATE_READ */, 23 /* POPULATE_WRITE */,
		24 /* DONTNEED_LOCKED */, 25 /* COLLAPSE */,
	};
	int what = advice[fz_below(z, sizeof(advice) / sizeof(*advice))];

	fz_say(z, "madvise", madvise(at, len, what) ? -errno : what);
}

/* Faults end this step: see the handler. */
static void touch(struct fz *z, unsigned char *at, size_t len)
{
	volatile unsigned char *p = at;
	size_t i;

	for (i = 0; i < len; i += 1 + fz_below(z, 2 * PAGE)) {
		if (fz_one_in(z, 2))
			p[i] = i;
		else
			(void)p[i];
	}
	fz_say(z, "touch", 0);
}

/* The kernel touches it: through a pipe, a file, another process's eyes. */
static void kernel_touch(struct fz *z, unsigned char *at, size_t len)
{
	struct iovec from = { at, len }, to = { z->rw, FZ_RW };
	int area = fz_below(z, FZ_AREAS);
	off_t off = fz_below(z, FZ_AREA_BYTES / PAGE) * PAGE;
	ssize_t ret;

	switch (fz_below(z, 6)) {
	case 0:
		ret = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
		break;
	case 1:
		ret = process_vm_writev(getpid(), &to, 1, &from, 1, 0);
		break;
	case 2:
		ret = pread(z->area[area], at, len, off);
		break;
	case 3:
		ret = pread(z->area_direct[area], at, len & ~(PAGE - 1), off);
		break;
	case 4:
		ret = pwrite(z->area_direct[area], at, len & ~(PAGE - 1), off);
		break;
	default:
		ret = mincore(at, len, z->rw);
	}
	fz_say(z, "kernel touch", ret < 0 ? -errno : ret);
}

static void in_child(struct fz *z, unsigned char *at)
{
	pid_t pid = fork();

	if (!pid) {
		signal(SIGBUS, SIG_DFL);
		signal(SIGSEGV, SIG_DFL);
		*(volatile unsigned char *)at = 1;
		close(fz_client(z, true)->fd);
		_exit(0);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
	fz_say(z, "fork", pid > 0 ? 0 : pid);
}

void fz_unmap(struct fz_client *c)
{
	if (c->map)
		munmap(c->map, c->len);
	c->map = NULL;
}

static void move(struct fz *z, struct fz_client *c)
{
	size_t len = (1 + fz_below(z, 300)) * PAGE;
	void *mem = mremap(c->map, c->len, len, MREMAP_MAYMOVE);

	if (mem != MAP_FAILED) {
		c->map = mem;
		c->len = len;
	}
	fz_say(z, "mremap", mem == MAP_FAILED ? -errno : 0);
}

void fz_memory(struct fz *z)
{
	struct fz_client *c = fz_client(z, true);
	size_t pages, first, len;
	unsigned char *at;

	if (!c->map || fz_one_in(z, 12)) {
		map(z, c);
		return;
	}
	pages = (c->len + PAGE - 1) / PAGE;
	first = fz_below(z, pages);
	at = c->map + first * PAGE;
	len = (1 + fz_below(z, pages - first)) * PAGE;
	switch (fz_below(z, 16)) {
	case 0:
		fz_unmap(c);
		fz_say(z, "munmap", 0);
		break;
	case 1:
		/* a hole, kept from what is mapped later, and not accessible */
		mmap(at, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
		     MAP_FIXED | MAP_NORESERVE, -1, 0);
		fz_say(z, "hole", 0);
		break;
	case 2:
		mprotect(at, len, fz_below(z, 4));
		fz_say(z, "mprotect", 0);
		break;
	case 3:
		if (fz_one_in(z, 2))
			mlock(at, len);
		else
			munlock(at, len);
		fz_say(z, "mlock", 0);
		break;
	case 4:
		msync(at, len, fz_one_in(z, 2) ? MS_SYNC :
		      MS_SYNC | MS_INVALIDATE);
		fz_say(z, "msync", 0);
		break;
	case 5:
		move(z, c);
		break;
	case 6:
		in_child(z, at);
		break;
	case 7 ... 9:
		advise(z, at, len);
		break;
	case 10 ... 12:
		kernel_touch(z, at, len);
		break;
	default:
		touch(z, at, len);
	}
}

/* ---- files ---- */

/* What is no business of the device's must be refused, and read() is events. */
static void device_file(struct fz *z)
{
	struct fz_client *c = fz_client(z, true);
	struct pollfd pfd = { .fd = c->fd, .events = POLLIN | POLLOUT };
	struct epoll_event ev = { .events = EPOLLIN };
	long ret = 0;
	bool plain;
	int fd;

	switch (fz_below(z, 12)) {
	case 0 ... 3:
		ret = read(c->fd, fz_place(z, 1000, &plain), fz_below(z, 1000));
		break;
	case 4:
		ret = write(c->fd, z->rw, fz_below(z, 1000));
		break;
	case 5:
		ret = poll(&pfd, 1, fz_one_in(z, 4));
		break;
	case 6:
		fd = epoll_create1(EPOLL_CLOEXEC);
		ret = epoll_ctl(fd, EPOLL_CTL_ADD, c->fd, &ev);
		close(fd);
		break;
	case 7:
		ret = lseek(c->fd, fz_junk(z), fz_below(z, 3));
		break;
	case 8:
		ret = ftruncate(c->fd, fz_junk(z));
		break;
	case 9:
		ret = fallocate(c->fd, fz_below(z, 4), 0, 1 << 20);
		break;
	case 10:
		ret = sendfile(c->fd, z->area[0], NULL, 4096);
		break;
	default:
		ret = flock(c->fd, LOCK_EX | LOCK_NB);
	}
	fz_say(z, "file", ret < 0 ? -errno : ret);
}

static void dmabuf(struct fz *z)
{
	int i = fz_below(z, FZ_EXPORTS), fd = z->exports[i];
	uint64_t sync = fz_below(z, 8);
	size_t len;
	char *mem;

	if (fd < 0)
		return;
	switch (fz_below(z, 4)) {
	case 0:
		close(fd);
		z->exports[i] = -1;
		fz_say(z, "dma-buf close", 0);
		break;
	case 1:
		/* DMA_BUF_IOCTL_SYNC, or a number near it */
		fz_say(z, "dma-buf sync",
		       ioctl(fd, _IOW('b', fz_one_in(z, 4), uint64_t), &sync));
		break;
	case 2:
		len = lseek(fd, 0, SEEK_END);
		fz_say(z, "dma-buf seek", len);
		break;
	default:
		len = (1 + fz_below(z, 32)) * PAGE;
		mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			   fz_one_in(z, 4) * PAGE);
		fz_say(z, "dma-buf map", mem == MAP_FAILED ? -errno : 0);
		if (mem == MAP_FAILED)
			return;
		/* stays mapped where this faults */
		mem[0] = 1;
		munmap(mem, len);
	}
}

/* A disk that loses, cuts and scribbles. */
static void area_file(struct fz *z)
{
	int fd = z->area[fz_below(z, FZ_AREAS)];
	off_t off = fz_below(z, FZ_AREA_BYTES);
	int ret;

	switch (fz_below(z, 8)) {
	case 0:
		ret = ftruncate(fd, off);
		break;
	case 1:
		ret = fallocate(fd, 0, 0, FZ_AREA_BYTES);
		break;
	case 2:
		ret = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				off, 65536);
		break;
	case 3:
		ret = fdatasync(fd);
		break;
	default:
		memset(z->rw, fz_rnd(z), 8192);
		ret = pwrite(fd, z->rw, 1 + fz_below(z, 8192), off);
	}
	fz_say(z, "area", ret);
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		errno = 0;
	close(fd);
}

static void read_sysfs(struct fz *z)
{
	char path[600], text[PAGE];
	struct dirent *e;
	DIR *dir;
	int fd;

	snprintf(path, sizeof(path), KT_SYSFS "/pools/fz%u",
		 fz_below(z, FZ_POOLS));
	dir = opendir(path);
	if (!dir)
		return;
	while ((e = readdir(dir))) {
		fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		while (read(fd, text, sizeof(text)) > 0)
			;
		close(fd);
	}
	closedir(dir);
	fz_say(z, "sysfs", 0);
}

/* The system is short of memory, or so it says; the module's limit moves. */
static void pressure(struct fz *z)
{
	char text[32];

	if (fz_one_in(z, 2)) {
		put("/proc/sys/vm/drop_caches", "2");
	} else {
		snprintf(text, sizeof(text), "%u", fz_below(z, 16) << 20);
		put("/sys/module/kvmm/parameters/max_bytes", text);
	}
	fz_say(z, "pressure", 0);
}

void fz_file(struct fz *z)
{
	switch (fz_below(z, 16)) {
	case 0:
		read_sysfs(z);
		break;
	case 1:
		if (fz_one_in(z, 4))
			pressure(z);
		break;
	case 2 ... 5:
		dmabuf(z);
		break;
	case 6 ... 8:
		area_file(z);
		break;
	default:
		device_file(z);
	}
}

/* A client is opened anew, and mostly bound. */
void fz_open_close(struct fz *z)
{
	struct fz_client *c = &z->c[fz_below(z, FZ_CLIENTS)];
	struct kvmm_pool_open arg = { .size = sizeof(arg) };
	int flags = fz_one_in(z, 6) ? O_RDONLY : O_RDWR;

	if (!z->alarms || !fz_one_in(z, 4))
		flags |= O_NONBLOCK;
	/* a mapping may stay: it is nobody's any more, and goes with the process */
	if (fz_one_in(z, 2))
		fz_unmap(c);
	c->map = NULL;
	if (c->fd >= 0)
		close(c->fd);
	c->fd = kt_dev(flags);
	c->size = 0;
	if (c->fd >= 0 && !fz_one_in(z, 4)) {
		snprintf(arg.name, sizeof(arg.name), "fz%u",
			 fz_below(z, FZ_POOLS));
		if (!kt_ioctl(c->fd, KVMM_POOL_OPEN, &arg))
			c->size = arg.arena_size;
	}
	fz_say(z, "open", c->fd);
}
