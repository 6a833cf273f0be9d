// SPDX-License-Identifier: MIT
/*
 * Every allocation fails once, of the commands on memory: populating, also by
 * workers of the kernel, mapping, leases, exports.  See failnth.h.
 */
#include <dirent.h>
#include <poll.h>

#include "failnth.h"
#include "kt_export.h"

#define BARE		40	/* frames of the pool that is populated */
#define MOST_WORKERS	64	/* workers of the kernel */

/* ---- memory ---- */

static int before_populate(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_pool_create arg = kt_spec(OTHER, KT_BLOCK, BARE, 0);

	memset(&self->c, 0, sizeof(self->c));
	self->c.fd = kt_dev(O_RDWR);
	strcpy(self->c.name, OTHER);
	return kt_ioctl(self->c.fd, KVMM_POOL_CREATE, &arg);
}

static int do_populate(FIXTURE_DATA(failnth) *self)
{
	return kt_populate(&self->c, 0, BARE, NULL);
}

static int after_populate(FIXTURE_DATA(failnth) *self, int ret)
{
	struct kvmm_pool_stat st;
	struct kvmm_info info;
	uint32_t done = 0;

	ret = kt_stat(&self->c, &st);
	ret = ret ? ret : kt_info(&info);
	if (!ret && info.pinned_bytes !=
	    (st.frames_online + FRAMES) * (uint64_t)KT_BLOCK)
		ret = -EBADMSG;
	/* the rest can be had */
	ret = ret ? ret : kt_populate(&self->c, 0, BARE, &done);
	if (!ret && done != BARE)
		ret = -ENODATA;
	kt_close(&self->c);
	return ret ? ret : kt_destroy(OTHER, 0);
}

TEST_F(failnth, populate)
{
	sweep(_metadata, self, &(struct command){
		before_populate, do_populate, after_populate });
}

static int before_mmap(FIXTURE_DATA(failnth) *self)
{
	int ret = before_client(self);

	munmap(self->c.arena, self->c.arena_size);
	self->c.arena = NULL;
	return ret;
}

static int call_mmap(FIXTURE_DATA(failnth) *self)
{
	void *mem = mmap(NULL, self->c.arena_size, PROT_READ | PROT_WRITE,
			 MAP_SHARED, self->c.fd, 0);

	if (mem == MAP_FAILED)
		return -errno;
	self->c.arena = mem;
	return 0;
}

TEST_F(failnth, mmap)
{
	sweep(_metadata, self, &(struct command){
		before_mmap, call_mmap, after_client });
}

/* ---- populating by workers ---- */

static int populate(struct kt *t, uint32_t flags, uint32_t count,
		    uint32_t workers)
{
	struct kvmm_populate a = {
		.size = sizeof(a), .flags = flags, .count = count,
		.workers = workers,
	};

	return kt_ioctl(t->fd, KVMM_POPULATE, &a);
}

static int before_async(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_events choose = {
		.size = sizeof(choose), .mask = 1ULL << KVMM_EVENT_POPULATED,
	};
	int ret = before_populate(self);

	return ret ? ret : kt_ioctl(self->c.fd, KVMM_EVENTS, &choose);
}

static int do_async(FIXTURE_DATA(failnth) *self)
{
	return populate(&self->c, KVMM_POPULATE_ASYNC, BARE, 2);
}

/* With -EFAULT it may have begun; it ends in any case. */
static int after_async(FIXTURE_DATA(failnth) *self, int ret)
{
	struct kvmm_pool_stat st = { .frames_populating = 1 };
	int i;

	for (i = 0; i < 30000 && st.frames_populating; i++) {
		if (i)
			kt_sleep_ms(1);
		ret = kt_stat(&self->c, &st);
		if (ret)
			return ret;
	}
	return st.frames_populating ? -EBUSY : after_populate(self, 0);
}

TEST_F(failnth, populate_async)
{
	sweep(_metadata, self, &(struct command){
		before_async, do_async, after_async });
}

static int before_cancel(FIXTURE_DATA(failnth) *self)
{
	int ret = before_async(self);

	return ret ? ret : do_async(self);
}

static int do_cancel(FIXTURE_DATA(failnth) *self)
{
	return populate(&self->c, KVMM_POPULATE_CANCEL, 0, 0);
}

TEST_F(failnth, populate_cancel)
{
	sweep(_metadata, self, &(struct command){
		before_cancel, do_cancel, after_async });
}

/* All workers of the kernel that may take the work: fds of their fail-nth. */
struct crew {
	int fd[MOST_WORKERS];
	int n;
};

static int crew_find(struct crew *crew)
{
	struct dirent *e;
	char path[300], comm[64];
	DIR *dir = opendir("/proc");

	crew->n = 0;
	if (!dir)
		return -errno;
	while ((e = readdir(dir)) && crew->n < MOST_WORKERS) {
		snprintf(path, sizeof(path), "/proc/%s/comm", e->d_name);
		if (atoi(e->d_name) <= 0 ||
		    kt_file_get(path, comm, sizeof(comm)) ||
		    strncmp(comm, "kworker/u", 9))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/fail-nth", e->d_name);
		crew->fd[crew->n] = open(path, O_RDWR | O_CLOEXEC);
		if (crew->fd[crew->n] >= 0)
			crew->n++;
	}
	closedir(dir);
	return crew->n ? 0 : -ESRCH;
}

static void crew_arm(struct crew *crew, unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n), i;

	/* one may be gone by now */
	for (i = 0; i < crew->n; i++)
		if (pwrite(crew->fd[i], text, len, 0) != len)
			continue;
}

/*
 * Disarms and closes.  1: one has failed; 0: none, though some have come by
 * places where they might have; -EAGAIN: none of these did anything.
 */
static int crew_end(struct crew *crew, unsigned int n)
{
	int i, ret = -EAGAIN;
	char text[16];

	for (i = 0; i < crew->n; i++) {
		ssize_t len = pread(crew->fd[i], text, sizeof(text) - 1, 0);
		unsigned int left;

		if (len <= 0)
			continue;
		text[len] = '\0';
		left = atoi(text);
		if (!left)
			ret = 1;
		else if (left < n && ret < 0)
			ret = 0;
	}
	crew_arm(crew, 0);
	for (i = 0; i < crew->n; i++)
		close(crew->fd[i]);
	return ret;
}

/* How it ended, as the event says. */
static int populated(struct kt *t)
{
	struct pollfd p = { .fd = t->fd, .events = POLLIN };
	struct kvmm_event ev;

	if (poll(&p, 1, 60000) != 1)
		return -ETIMEDOUT;
	if (read(t->fd, &ev, sizeof(ev)) != sizeof(ev) ||
	    ev.type != KVMM_EVENT_POPULATED)
		return -EPROTO;
	return -(int)ev.flags;
}

/*
 * What fails here are allocations of the workers; whichever takes the work, so
 * all are told to, each at its Nth.  The populate says that it did not get all,
 * or has done without; what it got is counted, and the rest can be had.
 */
static void sweep_workers(struct __test_metadata *_metadata,
			  FIXTURE_DATA(failnth) *self, uint32_t workers)
{
	int failures = 0, errors = 0, idle = 0, ret, hit = 1;
	struct kvmm_pool_stat st;
	unsigned int n = 1;
	struct crew crew;

	while (hit && n < MOST && idle < 50) {
		ASSERT_EQ(0, before_async(self));
		ASSERT_EQ(0, crew_find(&crew));
		crew_arm(&crew, n);
		ret = populate(&self->c, KVMM_POPULATE_ASYNC, BARE, workers);
		EXPECT_EQ(0, ret);
		ret = ret ? ret : populated(&self->c);
		hit = crew_end(&crew, n);
		EXPECT_TRUE(!ret || (hit && ret == -ENOMEM)) {
			TH_LOG("failure %u: %d", n, ret);
		}
		ASSERT_EQ(0, kt_stat(&self->c, &st));
		EXPECT_EQ(0, st.frames_populating);
		EXPECT_TRUE(ret ? st.frames_online < BARE :
			    st.frames_online == BARE) {
			TH_LOG("failure %u: %llu frames", n,
			       (unsigned long long)st.frames_online);
		}
		ASSERT_EQ(0, after_populate(self, 0)) {
			TH_LOG("after failure %u", n);
		}
		failures += hit > 0;
		errors += ret < 0;
		idle += hit < 0;
		/* the page after the one that failed is much like it */
		if (hit >= 0)
			n += 1 + n / 64;
	}
	EXPECT_EQ(0, hit);
	/* or this tests nothing */
	EXPECT_LT(0, errors);
	TH_LOG("%d failures, %d of them errors", failures, errors);
}

TEST_F(failnth, populate_worker)
{
	sweep_workers(_metadata, self, 1);
}

TEST_F(failnth, populate_workers)
{
	sweep_workers(_metadata, self, 3);
}

/* ---- leases ---- */

#define CHUNKS	4

/* A pool of chunks; its memory does not matter. */
static int before_lease(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_pool_create arg = kt_elastic_spec(OTHER, KT_BLOCK, CHUNKS,
						      CHUNKS, 0);

	memset(&self->c, 0, sizeof(self->c));
	self->c.fd = kt_dev(O_RDWR);
	return kt_ioctl(self->c.fd, KVMM_POOL_CREATE, &arg);
}

static int do_lease(FIXTURE_DATA(failnth) *self)
{
	return kt_lease(&self->c, 0, CHUNKS, 0, NULL);
}

/* All or none are leased; then they can be, and go with their client. */
static int after_lease(FIXTURE_DATA(failnth) *self, int ret)
{
	struct kvmm_pool_stat st;
	bool none = ret == -ENOMEM;
	uint32_t done = 0;
	struct kt u;

	ret = kt_stat(&self->c, &st);
	if (!ret && st.chunks_leased && (none || st.chunks_leased != CHUNKS))
		ret = -EBADMSG;
	ret = ret ? ret : kt_lease(&self->c, 0, CHUNKS, 0, &done);
	if (!ret && done != CHUNKS)
		ret = -ENODATA;
	ret = ret ? ret : kt_stat(&self->c, &st);
	if (!ret && st.chunks_leased != CHUNKS)
		ret = -ENODATA;
	ret = ret ? ret : kt_join(&u, OTHER, 0);
	kt_close(&self->c);
	if (ret)
		return ret;
	ret = kt_stat(&u, &st);
	if (!ret && st.chunks_leased)
		ret = -EBUSY;
	kt_close(&u);
	return ret ? ret : kt_destroy(OTHER, 0);
}

TEST_F(failnth, lease)
{
	sweep(_metadata, self, &(struct command){
		before_lease, do_lease, after_lease });
}

static int before_lease_end(FIXTURE_DATA(failnth) *self)
{
	int ret = before_lease(self);

	return ret ? ret : do_lease(self);
}

static int do_lease_end(FIXTURE_DATA(failnth) *self)
{
	return kt_lease(&self->c, 0, CHUNKS, KVMM_LEASE_END, NULL);
}

/* Said to have ended, they have. */
static int after_lease_end(FIXTURE_DATA(failnth) *self, int ret)
{
	struct kvmm_pool_stat st;
	int err = kt_stat(&self->c, &st);

	if (!err && !ret && st.chunks_leased)
		err = -EBUSY;
	/* none is counted twice */
	err = err ? err : do_lease_end(self);
	err = err ? err : kt_stat(&self->c, &st);
	if (!err && st.chunks_leased)
		err = -EBUSY;
	return err ? err : after_lease(self, 0);
}

TEST_F(failnth, lease_end)
{
	sweep(_metadata, self, &(struct command){
		before_lease_end, do_lease_end, after_lease_end });
}

/* ---- exports ---- */

/* Also which number the new file would get. */
static int before_export(FIXTURE_DATA(failnth) *self)
{
	int ret = before_client(self);

	self->fd = dup(self->area);
	close(self->fd);
	return ret;
}

static int do_export(FIXTURE_DATA(failnth) *self)
{
	return kt_export(&self->c, 0, FRAMES, 0);
}

static int after_export(FIXTURE_DATA(failnth) *self, int ret)
{
	struct kvmm_pool_stat st;
	int i;

	/* with -EFAULT it may be there, but its number was not told */
	if (ret >= 0 || ret == -EFAULT)
		close(self->fd);
	kt_close(&self->c);
	for (i = 0; i < 5000; i++) {
		ret = kt_stat(&self->t, &st);
		if (ret || !st.exports)
			return ret;
		kt_sleep_ms(1);
	}
	return -EBUSY;
}

TEST_F(failnth, export)
{
	int fd = kt_export(&self->t, 0, 1, 0);

	if (fd == -EOPNOTSUPP)
		SKIP(return, "the kernel has no dma-buf");
	ASSERT_LE(0, fd);
	close(fd);
	sweep(_metadata, self, &(struct command){
		before_export, do_export, after_export });
}

KT_MAIN
