// SPDX-License-Identifier: MIT
/*
 * Every allocation, and every copy from and to user memory, of every command
 * fails once: /proc/thread-self/fail-nth makes the Nth one of the thread's next
 * system call fail, for N from 1 until the call gets by without.  Each time the
 * call says so or has done all of it, nothing is lost, and the same call then
 * works.  Only on kernels with fault injection, see selftests/debug.
 */
#include <fcntl.h>
#include <sys/mount.h>

#include "kt_export.h"
#include "kt_harness.h"
#include "kt_ring.h"

#define FRAMES	16
#define SLOTS	16
#define N	4
#define POOL	"failnth"
#define AREA	"failnth-area"
#define NTH	"/proc/thread-self/fail-nth"
#define DEBUG	"/sys/kernel/debug"
#define MOST	2000		/* allocations of one call */

FIXTURE(failnth) {
	struct kt t;		/* lives through a test */
	struct kt c;		/* gives the command */
	struct kt_ring r;
	struct kvmm_block_ref refs[N];
	int area;
	int fd;
	int nth;
};

static int put(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

/* All allocations may fail, also those that can wait, without a word. */
static int arm(void)
{
	mount("none", DEBUG, "debugfs", 0, NULL);
	put(DEBUG "/fail_usercopy/verbose", "0");
	put(DEBUG "/fail_page_alloc/verbose", "0");
	put(DEBUG "/fail_page_alloc/ignore-gfp-wait", "N");
	put(DEBUG "/fail_page_alloc/ignore-gfp-highmem", "N");
	put(DEBUG "/fail_page_alloc/min-order", "0");
	put(DEBUG "/failslab/verbose", "0");
	return put(DEBUG "/failslab/ignore-gfp-wait", "N");
}

FIXTURE_SETUP(failnth)
{
	struct kvmm_pool_create spec = kt_spec(POOL, KT_BLOCK, FRAMES, SLOTS);

	kt_wipe();
	self->nth = open(NTH, O_RDWR | O_CLOEXEC);
	if (self->nth < 0 || arm())
		SKIP(_exit(255), "the kernel has no fault injection");
	ASSERT_NE(NULL, kt_disk_dir());
	self->area = kt_area_file(AREA, KT_BLOCK, SLOTS);
	ASSERT_LE(0, self->area);
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	ASSERT_EQ(0, kt_attach(&self->t, self->area, 0, 0, 0, NULL));
	self->c.fd = -1;
	self->fd = -1;
}

FIXTURE_TEARDOWN(failnth)
{
	if (self->c.fd >= 0)
		kt_close(&self->c);
	if (self->t.fd >= 0)
		KT_CONSISTENT(&self->t);
	KT_FINISH(&self->t);
	close(self->area);
	kt_area_unlink(AREA);
	close(self->nth);
}

/*
 * The Nth thing that can fail does; 0: none.  What is left of an earlier one may
 * make this call fail itself.
 */
static void fail_nth(FIXTURE_DATA(failnth) *self, unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n), i;

	for (i = 0; i < 3; i++)
		if (pwrite(self->nth, text, len, 0) == len)
			return;
	_exit(99);
}

/* Did it?  It is not going to any more. */
static bool has_failed(FIXTURE_DATA(failnth) *self)
{
	char text[16] = "1";
	ssize_t n = pread(self->nth, text, sizeof(text) - 1, 0);

	fail_nth(self, 0);
	/* it was this call that failed, so the other did not */
	return n > 0 && !atoi(text);
}

/*
 * One command.  @before makes what it needs; @call gives it, alone, and returns
 * its result; @after looks at what it did and undoes it.  0 or -errno.
 */
struct command {
	int (*before)(FIXTURE_DATA(failnth) *self);
	int (*call)(FIXTURE_DATA(failnth) *self);
	int (*after)(FIXTURE_DATA(failnth) *self, int ret);
};

/* What a call may say of a failure; some can do without what failed. */
static bool fair(int ret)
{
	return ret >= 0 || ret == -ENOMEM || ret == -EFAULT;
}

static void sweep(struct __test_metadata *_metadata,
		  FIXTURE_DATA(failnth) *self, const struct command *c)
{
	struct kvmm_pool_stat st;
	const char *wrong = NULL;
	bool failed = true;
	unsigned int n;
	int ret;

	for (n = 1; failed && n < MOST && !wrong; n++) {
		ASSERT_EQ(0, c->before(self)) {
			TH_LOG("before failure %u", n);
		}
		fail_nth(self, n);
		ret = c->call(self);
		failed = has_failed(self);
		EXPECT_TRUE(fair(ret)) {
			TH_LOG("failure %u: %d", n, ret);
		}
		if (!failed)
			EXPECT_LE(0, ret);
		ret = c->after(self, ret);
		ASSERT_EQ(0, ret) {
			TH_LOG("after failure %u", n);
		}
		if (self->t.fd < 0)
			continue;
		ASSERT_EQ(0, kt_wait_unpinned(&self->t)) {
			TH_LOG("failure %u: pins or moves stay", n);
		}
		ASSERT_EQ(0, kt_stat(&self->t, &st));
		wrong = kt_inconsistent(&st);
		EXPECT_EQ(NULL, wrong) {
			TH_LOG("failure %u: %s", n, wrong);
		}
		EXPECT_EQ(1, st.nr_clients);
	}
	EXPECT_FALSE(failed);
	/* or this tests nothing */
	EXPECT_LT(2, n);
	TH_LOG("%u failures", n - 2);
}

/* ---- clients ---- */

static int nothing(FIXTURE_DATA(failnth) *self)
{
	self->fd = -1;
	return 0;
}

static int do_open(FIXTURE_DATA(failnth) *self)
{
	self->fd = open(KT_DEVICE, O_RDWR | O_CLOEXEC);
	return self->fd < 0 ? -errno : 0;
}

static int after_open(FIXTURE_DATA(failnth) *self, int ret)
{
	if (self->fd >= 0)
		close(self->fd);
	return (self->fd < 0) == (ret < 0) ? 0 : -EBADF;
}

TEST_F(failnth, open)
{
	sweep(_metadata, self, &(struct command){
		nothing, do_open, after_open });
}

static int before_bind(FIXTURE_DATA(failnth) *self)
{
	self->fd = kt_dev(O_RDWR);
	return self->fd < 0 ? self->fd : 0;
}

static int do_bind(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_pool_open arg = { .size = sizeof(arg), .name = POOL };

	return kt_ioctl(self->fd, KVMM_POOL_OPEN, &arg);
}

static int after_bind(FIXTURE_DATA(failnth) *self, int ret)
{
	(void)ret;
	close(self->fd);
	return 0;
}

TEST_F(failnth, bind)
{
	sweep(_metadata, self, &(struct command){
		before_bind, do_bind, after_bind });
}

static int do_create(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_pool_create arg = kt_spec("other", KT_BLOCK, 300, 300);

	return kt_ioctl(self->fd, KVMM_POOL_CREATE, &arg);
}

/* Either there is a whole pool, or nothing of it, and its name is free. */
static int after_create(FIXTURE_DATA(failnth) *self, int ret)
{
	struct kvmm_pool_create arg = kt_spec("other", KT_BLOCK, 300, 300);
	struct kvmm_info info;

	close(self->fd);
	if (ret == -ENOMEM) {
		ret = kt_info(&info);
		if (ret || info.nr_pools != 1)
			return ret ? ret : -EEXIST;
		if (access("/sys/kernel/kvmm/pools/other", F_OK) == 0)
			return -EEXIST;
		self->fd = kt_dev(O_RDWR);
		ret = kt_ioctl(self->fd, KVMM_POOL_CREATE, &arg);
		close(self->fd);
		if (ret)
			return ret;
	}
	/* with -EFAULT it may be there: what was to be told was not */
	ret = kt_destroy("other", 0);
	return ret == -ENOENT ? 0 : ret;
}

TEST_F(failnth, create)
{
	sweep(_metadata, self, &(struct command){
		before_bind, do_create, after_create });
}

static int before_destroy(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_pool_create arg = kt_spec("other", KT_BLOCK, 4, 4);
	int ret;

	self->fd = kt_dev(O_RDWR);
	ret = kt_ioctl(self->fd, KVMM_POOL_CREATE, &arg);
	return ret;
}

static int do_destroy(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_pool_destroy arg = { .size = sizeof(arg), .name = "other" };

	return kt_ioctl(self->fd, KVMM_POOL_DESTROY, &arg);
}

static int after_destroy(FIXTURE_DATA(failnth) *self, int ret)
{
	close(self->fd);
	if (ret < 0)
		ret = kt_destroy("other", 0);
	return ret == -ENOENT ? 0 : ret;
}

TEST_F(failnth, destroy)
{
	sweep(_metadata, self, &(struct command){
		before_destroy, do_destroy, after_destroy });
}

/* ---- memory ---- */

static int before_populate(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_pool_create arg = kt_spec("other", KT_BLOCK, 40, 0);

	memset(&self->c, 0, sizeof(self->c));
	self->c.fd = kt_dev(O_RDWR);
	strcpy(self->c.name, "other");
	return kt_ioctl(self->c.fd, KVMM_POOL_CREATE, &arg);
}

static int do_populate(FIXTURE_DATA(failnth) *self)
{
	return kt_populate(&self->c, 0, 40, NULL);
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
	ret = ret ? ret : kt_populate(&self->c, 0, 40, &done);
	if (!ret && done != 40)
		ret = -ENODATA;
	kt_close(&self->c);
	return ret ? ret : kt_destroy("other", 0);
}

TEST_F(failnth, populate)
{
	sweep(_metadata, self, &(struct command){
		before_populate, do_populate, after_populate });
}

static int before_client(FIXTURE_DATA(failnth) *self)
{
	return kt_join(&self->c, POOL, 0);
}

static int after_client(FIXTURE_DATA(failnth) *self, int ret)
{
	(void)ret;
	kt_close(&self->c);
	return 0;
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

/* ---- the area ---- */

static int before_attach(FIXTURE_DATA(failnth) *self)
{
	return kt_detach(&self->t, KVMM_SWAP_DISCARD);
}

static int do_attach(FIXTURE_DATA(failnth) *self)
{
	return kt_attach(&self->t, self->area, 0, 0, 0, NULL);
}

/* Not attached: then the file is nobody's, and can be. */
static int after_attach(FIXTURE_DATA(failnth) *self, int ret)
{
	ret = kt_attach(&self->t, self->area, 0, 0, 0, NULL);
	return ret == -EBUSY ? 0 : ret;
}

TEST_F(failnth, attach)
{
	sweep(_metadata, self, &(struct command){
		before_attach, do_attach, after_attach });
}

static int do_detach(FIXTURE_DATA(failnth) *self)
{
	return kt_detach(&self->t, KVMM_SWAP_DISCARD);
}

TEST_F(failnth, detach)
{
	sweep(_metadata, self, &(struct command){
		nothing, do_detach, after_attach });
}

/* ---- blocks ---- */

static int do_alloc(FIXTURE_DATA(failnth) *self)
{
	return kt_alloc(&self->c, self->refs, N);
}

TEST_F(failnth, alloc)
{
	sweep(_metadata, self, &(struct command){
		before_client, do_alloc, after_client });
}

static int before_publish(FIXTURE_DATA(failnth) *self)
{
	int ret = before_client(self);

	return ret ? ret : kt_alloc(&self->c, self->refs, N);
}

static int do_publish(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_publish_entry e[N];
	int i;

	for (i = 0; i < N; i++)
		e[i] = kt_entry(&self->c, self->refs[i].handle, 1 + i);
	return kt_publish(&self->c, e, N, 0);
}

static int after_publish(FIXTURE_DATA(failnth) *self, int ret)
{
	int i;

	for (i = 0; i < N; i++) {
		uint64_t handle;
		int where = kt_where1(&self->t, 1 + i, &handle);

		/* all or none of a batch */
		if (where < 0 || (!ret && where == KVMM_MISS))
			return -ENODATA;
		if (where != KVMM_MISS && kt_drop1(&self->t, handle))
			return -EBUSY;
	}
	return after_client(self, 0);
}

TEST_F(failnth, publish)
{
	sweep(_metadata, self, &(struct command){
		before_publish, do_publish, after_publish });
}

/* N blocks, in memory; and a client. */
static int before_blocks(FIXTURE_DATA(failnth) *self)
{
	int ret = before_client(self);

	ret = ret ? ret : kt_reset(&self->t, NULL);
	return ret ? ret : kt_store(&self->t, 1, N, self->refs);
}

/* Still there and right, whatever failed. */
static int after_blocks(FIXTURE_DATA(failnth) *self, int ret)
{
	(void)ret;
	kt_close(&self->c);
	ret = kt_wait_unpinned(&self->t);
	if (ret)
		return ret;
	ret = kt_load_all(&self->t, 1, N);
	return ret == N ? 0 : ret < 0 ? ret : -ENODATA;
}

static int do_lookup(FIXTURE_DATA(failnth) *self)
{
	int ret = kt_lookup(&self->c, 1, N, KVMM_LOOKUP_PIN, self->refs);

	return ret < 0 || ret == N ? ret : -ENODATA;
}

TEST_F(failnth, lookup)
{
	sweep(_metadata, self, &(struct command){
		before_blocks, do_lookup, after_blocks });
}

static int do_pin(FIXTURE_DATA(failnth) *self)
{
	return kt_batch(&self->c, KVMM_PIN, self->refs, N, NULL);
}

TEST_F(failnth, pin)
{
	sweep(_metadata, self, &(struct command){
		before_blocks, do_pin, after_blocks });
}

static int do_touch(FIXTURE_DATA(failnth) *self)
{
	return kt_batch(&self->c, KVMM_TOUCH, self->refs, N, NULL);
}

TEST_F(failnth, touch)
{
	sweep(_metadata, self, &(struct command){
		before_blocks, do_touch, after_blocks });
}

static int do_keys(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_key_entry e[N * 2];
	struct kvmm_keys arg = {
		.size = sizeof(arg), .entries = (uintptr_t)e, .count = N * 2,
	};

	return kt_ioctl(self->c.fd, KVMM_KEYS, &arg);
}

TEST_F(failnth, keys)
{
	sweep(_metadata, self, &(struct command){
		before_blocks, do_keys, after_blocks });
}

static int do_stat(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_pool_stat st;

	return kt_stat(&self->c, &st);
}

TEST_F(failnth, stat)
{
	sweep(_metadata, self, &(struct command){
		before_blocks, do_stat, after_blocks });
}

/* ---- moving ---- */

/* Of a whole call: those blocks that there was no memory for say so. */
static int entries(FIXTURE_DATA(failnth) *self, int ret)
{
	int i;

	for (i = 0; i < N && ret >= 0; i++)
		if (self->refs[i].result && self->refs[i].result != -ENOMEM)
			return self->refs[i].result;
	return ret < 0 || ret == N ? ret : -ENOMEM;
}

static int do_out(FIXTURE_DATA(failnth) *self)
{
	return entries(self, kt_swap(&self->c, KVMM_SWAP_OUT, self->refs, N,
				     KVMM_SWAP_DROP));
}

TEST_F(failnth, swap_out)
{
	sweep(_metadata, self, &(struct command){
		before_blocks, do_out, after_blocks });
}

static int before_in(FIXTURE_DATA(failnth) *self)
{
	int ret = before_blocks(self);

	if (ret)
		return ret;
	ret = kt_swap(&self->t, KVMM_SWAP_OUT, self->refs, N, KVMM_SWAP_DROP);
	return ret == N ? 0 : -EIO;
}

static int do_in(FIXTURE_DATA(failnth) *self)
{
	return entries(self, kt_swap(&self->c, KVMM_SWAP_IN, self->refs, N,
				     KVMM_SWAP_PIN));
}

TEST_F(failnth, swap_in)
{
	sweep(_metadata, self, &(struct command){
		before_in, do_in, after_blocks });
}

static int before_ring_out(FIXTURE_DATA(failnth) *self)
{
	int ret = before_blocks(self);

	return ret ? ret : kt_ring_init(&self->r, &self->c, 8, 0, false);
}

static int before_ring_in(FIXTURE_DATA(failnth) *self)
{
	int ret = before_in(self);

	return ret ? ret : kt_ring_init(&self->r, &self->c, 8, 0, false);
}

/* What io_uring itself has no memory for never comes to kvmm. */
static int ring_cmd(FIXTURE_DATA(failnth) *self, uint32_t op, uint32_t flags)
{
	struct kvmm_swap_cmd cmd = {
		.addr = (uintptr_t)self->refs, .count = N, .flags = flags,
	};
	int ret;

	if (!kt_ring_cmd(&self->r, op, &cmd, 0))
		return -ENOSPC;
	ret = kt_ring_submit(&self->r);
	if (ret != 1)
		return ret == -EAGAIN || !ret ? -ENOMEM : ret;
	ret = kt_ring_wait(&self->r, NULL);
	return ret < 0 || ret == N ? ret : -ENOMEM;
}

static int do_ring_out(FIXTURE_DATA(failnth) *self)
{
	return ring_cmd(self, KVMM_URING_SWAP_OUT, KVMM_SWAP_DROP);
}

static int do_ring_in(FIXTURE_DATA(failnth) *self)
{
	return ring_cmd(self, KVMM_URING_SWAP_IN, KVMM_SWAP_PIN);
}

static int after_ring(FIXTURE_DATA(failnth) *self, int ret)
{
	kt_ring_exit(&self->r);
	return after_blocks(self, ret);
}

TEST_F(failnth, ring_out)
{
	sweep(_metadata, self, &(struct command){
		before_ring_out, do_ring_out, after_ring });
}

TEST_F(failnth, ring_in)
{
	sweep(_metadata, self, &(struct command){
		before_ring_in, do_ring_in, after_ring });
}

static int do_reclaim(FIXTURE_DATA(failnth) *self)
{
	return kt_reclaim(&self->c, 0, NULL);
}

TEST_F(failnth, reclaim)
{
	sweep(_metadata, self, &(struct command){
		before_blocks, do_reclaim, after_blocks });
}

/* All frames are in use, so the command has to make room. */
static int before_room(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_block_ref refs[FRAMES];
	int ret = before_client(self);

	ret = ret ? ret : kt_reset(&self->t, NULL);
	ret = ret ? ret : kt_reclaim(&self->t, 0, NULL);
	return ret ? ret : kt_store(&self->t, 1, FRAMES, refs);
}

static int do_alloc_wait(FIXTURE_DATA(failnth) *self)
{
	return kt_alloc_wait(&self->c, self->refs, N, 30000, NULL);
}

static int after_room(FIXTURE_DATA(failnth) *self, int ret)
{
	(void)ret;
	kt_close(&self->c);
	ret = kt_wait_unpinned(&self->t);
	if (ret)
		return ret;
	ret = kt_load_all(&self->t, 1, FRAMES);
	return ret == FRAMES ? 0 : ret < 0 ? ret : -ENODATA;
}

TEST_F(failnth, alloc_makes_room)
{
	sweep(_metadata, self, &(struct command){
		before_room, do_alloc_wait, after_room });
}

/* ---- events and exports ---- */

static int do_events(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_events arg = {
		.size = sizeof(arg), .mask = 1 << KVMM_EVENT_EVICTED,
		.count = 64,
	};

	return kt_ioctl(self->c.fd, KVMM_EVENTS, &arg);
}

static int after_events(FIXTURE_DATA(failnth) *self, int ret)
{
	ret = do_events(self);
	kt_close(&self->c);
	return ret;
}

TEST_F(failnth, events)
{
	sweep(_metadata, self, &(struct command){
		before_client, do_events, after_events });
}

static int before_read(FIXTURE_DATA(failnth) *self)
{
	int ret = before_blocks(self);

	ret = ret ? ret : do_events(self);
	return ret ? ret : kt_reclaim(&self->t, 0, NULL);
}

static int do_read(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_event e[N];

	return read(self->c.fd, e, sizeof(e)) < 0 ? -errno : 0;
}

TEST_F(failnth, read)
{
	sweep(_metadata, self, &(struct command){
		before_read, do_read, after_blocks });
}

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
