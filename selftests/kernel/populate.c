// SPDX-License-Identifier: MIT
/*
 * Bringing memory in: by workers of the kernel, by several threads, told to
 * end, killed, and while the pool is destroyed.
 *
 * Whether something is still in progress when it is told to end depends on the
 * machine; so such tests go on until they have seen it once.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/sysinfo.h>

#include "kt_harness.h"

#define NAME	"filled"
#define FRAMES	2048			/* 128 MiB */
#define TRIES	50
#define GROUP	"kvmm-populate"

FIXTURE(populate) {
	struct kt t;
	struct kvmm_pool_stat st;
	struct kvmm_event ev;
};

/* A pool without memory, mapped; it tells when it is populated. */
static int start(struct kt *t)
{
	struct kvmm_pool_create spec = kt_spec(NAME, KT_BLOCK, FRAMES, 0);
	struct kvmm_events choose = {
		.size = sizeof(choose), .mask = 1ULL << KVMM_EVENT_POPULATED,
	};
	int fd = kt_dev(O_RDWR);
	int ret;

	ret = fd < 0 ? fd : kt_ioctl(fd, KVMM_POOL_CREATE, &spec);
	close(fd);
	if (!ret)
		ret = kt_join(t, NAME, 0);
	return ret ? ret : kt_ioctl(t->fd, KVMM_EVENTS, &choose);
}

FIXTURE_SETUP(populate)
{
	kt_wipe();
	ASSERT_EQ(0, start(&self->t));
}

FIXTURE_TEARDOWN(populate)
{
	struct kvmm_info info;

	if (self->t.fd >= 0)
		KT_FINISH(&self->t);
	kt_wipe();
	EXPECT_EQ(0, kt_info(&info));
	EXPECT_EQ(0, info.nr_pools);
	EXPECT_EQ(0, info.pinned_bytes);
}

static int populate(struct kt *t, uint32_t flags, uint32_t first,
		    uint32_t count, uint32_t workers, uint32_t *done)
{
	struct kvmm_populate a = {
		.size = sizeof(a), .flags = flags, .first = first,
		.count = count, .workers = workers,
	};
	int ret = kt_ioctl(t->fd, KVMM_POPULATE, &a);

	if (done)
		*done = a.done;
	return ret;
}

static int async(struct kt *t, uint32_t workers)
{
	return populate(t, KVMM_POPULATE_ASYNC, 0, FRAMES, workers, NULL);
}

static int cancel(struct kt *t)
{
	return populate(t, KVMM_POPULATE_CANCEL, 0, 0, 0, NULL);
}

/* Waits for the event that tells of the end. */
static int wait_end(struct kt *t, struct kvmm_event *ev)
{
	ssize_t n = read(t->fd, ev, sizeof(*ev));

	if (n != sizeof(*ev))
		return n < 0 ? -errno : -EPROTO;
	return ev->type == KVMM_EVENT_POPULATED ? 0 : -EPROTO;
}

static long long populating(struct kt *t)
{
	struct kvmm_pool_stat st;

	return kt_stat(t, &st) ? -1 : (long long)st.frames_populating;
}

/* The pool begins anew, without memory. */
static int again(struct kt *t)
{
	int ret;

	kt_close(t);
	ret = kt_destroy(NAME, 0);
	return ret ? ret : start(t);
}

TEST_F(populate, workers)
{
	static const uint32_t workers[] = { 0, 1, 3, KVMM_MAX_WORKERS };
	char value[32];
	size_t i;

	for (i = 0; i < 4; i++) {
		if (i)
			ASSERT_EQ(0, again(&self->t));
		ASSERT_EQ(0, async(&self->t, workers[i]));
		ASSERT_EQ(0, wait_end(&self->t, &self->ev));
		EXPECT_EQ(0, self->ev.flags);
		EXPECT_EQ(FRAMES, self->ev.value);
		ASSERT_EQ(0, kt_stat(&self->t, &self->st));
		EXPECT_EQ(FRAMES, self->st.frames_online);
		EXPECT_EQ(0, self->st.frames_populating);
		EXPECT_EQ(0, kt_file_get(KT_SYSFS "/pools/" NAME
					 "/frames_populating", value,
					 sizeof(value)));
		EXPECT_STREQ("0", value);
	}
	/* what is there is passed over, and told of at once */
	{
		uint32_t done = 0;

		EXPECT_EQ(0, populate(&self->t, KVMM_POPULATE_ASYNC, 7, 100, 0,
				      &done));
		EXPECT_EQ(100, done);
	}
	ASSERT_EQ(0, wait_end(&self->t, &self->ev));
	EXPECT_EQ(FRAMES, self->ev.value);
}

/*
 * Leave most of what is free, more than a pool leaves, full of what was not for
 * others.  Through a file: each page that is mapped costs User Mode Linux a system
 * call, and all of them more time than a test has.
 */
static int dirty_memory(void *arg)
{
	static unsigned char junk[1 << 20];
	struct sysinfo si;
	size_t size;
	int fd;

	(void)arg;
	if (sysinfo(&si))
		return -errno;
	memset(junk, 0xa5, sizeof(junk));
	size = si.freeram / 16 * 15 * si.mem_unit;
	fd = memfd_create("junk", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (; size >= sizeof(junk); size -= sizeof(junk)) {
		if (write(fd, junk, sizeof(junk)) != sizeof(junk))
			return -errno;
	}
	close(fd);
	return 0;
}

/*
 * Whether the kernel zeroes all memory as it is allocated, or leaves that to
 * who gets it: none of what others wrote is in a pool.
 */
TEST_F(populate, memory_is_zero)
{
	struct kt *t = &self->t;
	size_t words = t->arena_size / 8, i;
	const uint64_t *mem = (const uint64_t *)t->arena;

	ASSERT_EQ(0, kt_child(dirty_memory, NULL));
	ASSERT_EQ(0, kt_populate(t, 0, FRAMES, NULL));
	for (i = 0; i < words && !mem[i]; i++)
		;
	EXPECT_EQ(words, i);
}

/* A range that begins and ends within huge pages. */
TEST_F(populate, workers_range)
{
	uint32_t done = 1;

	ASSERT_EQ(0, populate(&self->t, KVMM_POPULATE_ASYNC, 33, 1000, 2,
			      &done));
	EXPECT_EQ(0, done);
	ASSERT_EQ(0, wait_end(&self->t, &self->ev));
	EXPECT_EQ(0, self->ev.flags);
	EXPECT_EQ(1000, self->ev.value);
	EXPECT_TRUE(kt_sigbus(self->t.arena + 32 * KT_BLOCK, true));
	EXPECT_FALSE(kt_sigbus(self->t.arena + 33 * KT_BLOCK, true));
	EXPECT_FALSE(kt_sigbus(self->t.arena + 1032 * KT_BLOCK, true));
	EXPECT_TRUE(kt_sigbus(self->t.arena + 1033 * KT_BLOCK, true));
}

TEST_F(populate, arguments)
{
	struct kt *t = &self->t;
	uint32_t a = KVMM_POPULATE_ASYNC, c = KVMM_POPULATE_CANCEL;

	EXPECT_EQ(-EINVAL, populate(t, a, 0, 1, KVMM_MAX_WORKERS + 1, NULL));
	EXPECT_EQ(-EINVAL, populate(t, a, 0, 0, 0, NULL));
	EXPECT_EQ(-EINVAL, populate(t, a, 0, FRAMES + 1, 0, NULL));
	EXPECT_EQ(-EINVAL, populate(t, a, FRAMES, 1, 0, NULL));
	EXPECT_EQ(-EINVAL, populate(t, 0, 0, 1, 1, NULL));
	EXPECT_EQ(-EINVAL, populate(t, a | c, 0, 1, 0, NULL));
	EXPECT_EQ(-EINVAL, populate(t, a | c, 0, 0, 0, NULL));
	EXPECT_EQ(-EINVAL, populate(t, c, 1, 0, 0, NULL));
	EXPECT_EQ(-EINVAL, populate(t, c, 0, 1, 0, NULL));
	EXPECT_EQ(-EINVAL, populate(t, c, 0, 0, 1, NULL));
	EXPECT_EQ(0, cancel(t));
	EXPECT_EQ(0, populating(t));
}

/* Blocks can be had and filled as soon as some memory is there. */
TEST_F(populate, used_meanwhile)
{
	struct kvmm_block_ref refs[FRAMES];
	uint32_t had = 0;
	int ret;

	ASSERT_EQ(0, async(&self->t, 2));
	while (had < FRAMES) {
		ret = kt_alloc(&self->t, refs + had, 1);
		if (!ret) {
			*(uint64_t *)(self->t.arena + (size_t)refs[had].frame *
				      KT_BLOCK) = had;
			had++;
			continue;
		}
		ASSERT_EQ(-ENOSPC, ret);
		sched_yield();
	}
	ASSERT_EQ(0, wait_end(&self->t, &self->ev));
	EXPECT_EQ(0, self->ev.flags);
	while (had--)
		EXPECT_EQ(had, *(uint64_t *)(self->t.arena + KT_BLOCK *
					     (size_t)refs[had].frame));
}

TEST_F(populate, one_crew)
{
	int ret = 0, i;

	for (i = 0; i < TRIES && ret != -EBUSY; i++) {
		if (i)
			ASSERT_EQ(0, again(&self->t));
		ASSERT_EQ(0, async(&self->t, 1));
		ret = async(&self->t, 1);
		if (ret == 0)
			ASSERT_EQ(0, wait_end(&self->t, &self->ev));
		ASSERT_EQ(0, wait_end(&self->t, &self->ev));
	}
	EXPECT_EQ(-EBUSY, ret);
	EXPECT_EQ(0, self->ev.flags);
	EXPECT_EQ(FRAMES, self->ev.value);
}

TEST_F(populate, cancel_workers)
{
	int i;

	self->ev.flags = 0;
	for (i = 0; i < TRIES && self->ev.flags != ECANCELED; i++) {
		if (i)
			ASSERT_EQ(0, again(&self->t));
		ASSERT_EQ(0, async(&self->t, 2));
		ASSERT_EQ(0, cancel(&self->t));
		/* nothing is left of it when that returns */
		EXPECT_EQ(0, populating(&self->t));
		ASSERT_EQ(0, wait_end(&self->t, &self->ev));
	}
	EXPECT_EQ(ECANCELED, self->ev.flags);
	EXPECT_GT(FRAMES, self->ev.value);
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(self->ev.value, self->st.frames_online);
	/* and it can be gone on with */
	ASSERT_EQ(0, async(&self->t, 0));
	ASSERT_EQ(0, wait_end(&self->t, &self->ev));
	EXPECT_EQ(0, self->ev.flags);
	EXPECT_EQ(FRAMES, self->ev.value);
}

struct filler {
	struct kt *t;
	uint32_t first, count, done;
	int ret;
};

static void *fill(void *arg)
{
	struct filler *f = arg;

	f->ret = kt_populate(f->t, f->first, f->count, &f->done);
	return NULL;
}

/* Threads of a client populate, another client tells them to end. */
TEST_F(populate, cancel_threads)
{
	struct filler f[2];
	pthread_t thread[2];
	struct kt other;
	int seen = 0, i, k;

	for (i = 0; i < TRIES && !seen; i++) {
		if (i)
			ASSERT_EQ(0, again(&self->t));
		ASSERT_EQ(0, kt_join(&other, NAME, 0));
		for (k = 0; k < 2; k++) {
			f[k] = (struct filler) { &self->t, k * FRAMES / 2,
						 FRAMES / 2, 0, 0 };
			ASSERT_EQ(0, pthread_create(&thread[k], NULL, fill,
						    &f[k]));
		}
		while (!populating(&other)) {
			ASSERT_EQ(0, kt_stat(&other, &self->st));
			if (self->st.frames_online == FRAMES)
				break;
		}
		EXPECT_EQ(0, cancel(&other));
		for (k = 0; k < 2; k++) {
			pthread_join(thread[k], NULL);
			seen += f[k].ret == -ECANCELED;
			EXPECT_TRUE(!f[k].ret || f[k].ret == -ECANCELED);
			EXPECT_TRUE(f[k].ret || f[k].done == FRAMES / 2);
		}
		EXPECT_EQ(0, populating(&other));
		ASSERT_EQ(0, kt_stat(&other, &self->st));
		EXPECT_EQ(f[0].done + f[1].done, self->st.frames_online);
		kt_close(&other);
	}
	EXPECT_LT(0, seen);
}

/* A populate that begins after it is not meant. */
TEST_F(populate, cancel_is_not_kept)
{
	ASSERT_EQ(0, cancel(&self->t));
	EXPECT_EQ(0, kt_populate(&self->t, 0, 64, NULL));
	ASSERT_EQ(0, async(&self->t, 0));
	ASSERT_EQ(0, wait_end(&self->t, &self->ev));
	EXPECT_EQ(0, self->ev.flags);
}

/* Side by side with workers, over the same frames: each comes once. */
TEST_F(populate, both)
{
	struct kvmm_info info;
	uint32_t done = 0;

	ASSERT_EQ(0, async(&self->t, 2));
	EXPECT_EQ(0, kt_populate(&self->t, 0, FRAMES, &done));
	EXPECT_EQ(FRAMES, done);
	ASSERT_EQ(0, wait_end(&self->t, &self->ev));
	EXPECT_EQ(0, self->ev.flags);
	ASSERT_EQ(0, kt_stat(&self->t, &self->st));
	EXPECT_EQ(FRAMES, self->st.frames_online);
	ASSERT_EQ(0, kt_info(&info));
	EXPECT_EQ((uint64_t)FRAMES * KT_BLOCK, info.pinned_bytes);
}

/* The client goes, the workers go on: they are the pool's. */
TEST_F(populate, client_goes)
{
	struct kt other;

	ASSERT_EQ(0, async(&self->t, 1));
	close(self->t.fd);
	self->t.fd = -1;
	ASSERT_EQ(0, kt_join(&other, NAME, 0));
	do {
		ASSERT_EQ(0, kt_stat(&other, &self->st));
		sched_yield();
	} while (self->st.frames_populating);
	EXPECT_EQ(FRAMES, self->st.frames_online);
	munmap(self->t.arena, self->t.arena_size);
	self->t = other;
}

TEST_F(populate, pool_is_destroyed)
{
	struct kvmm_info info;
	int i;

	for (i = 0; i < 10; i++) {
		ASSERT_EQ(0, async(&self->t, i));
		kt_sleep_ms(i * 5);
		ASSERT_EQ(0, kt_destroy(NAME, KVMM_POOL_FORCE));
		ASSERT_EQ(0, kt_info(&info));
		EXPECT_EQ(0, info.nr_pools);
		EXPECT_EQ(0, info.pinned_bytes);
		EXPECT_EQ(-ENODEV, async(&self->t, 0));
		EXPECT_EQ(-ENODEV, cancel(&self->t));
		kt_close(&self->t);
		ASSERT_EQ(0, start(&self->t));
	}
}

static int fill_all(void *arg)
{
	return kt_populate(arg, 0, FRAMES, NULL);
}

/* A populate ends with who does it, and what it has not done is not counted. */
TEST_F(populate, killed)
{
	bool seen = false;
	pid_t pid;
	int i;

	for (i = 0; i < TRIES && !seen; i++) {
		if (i)
			ASSERT_EQ(0, again(&self->t));
		pid = kt_spawn(fill_all, &self->t);
		ASSERT_LT(0, pid);
		do {
			ASSERT_EQ(0, kt_stat(&self->t, &self->st));
		} while (!self->st.frames_online);
		kill(pid, SIGKILL);
		seen = kt_reap(pid) == -ECHILD;
		ASSERT_EQ(0, kt_stat(&self->t, &self->st));
		EXPECT_EQ(0, self->st.frames_populating);
	}
	EXPECT_TRUE(seen);
	EXPECT_GT(FRAMES, self->st.frames_online);
	EXPECT_EQ(0, kt_populate(&self->t, 0, FRAMES, NULL));
}

static int make_grouped(void *arg)
{
	struct kt *t = arg;
	int ret = kt_cgroup_join(GROUP);

	return ret ? ret : start(t);
}

/* Workers charge the creator's group, and a limit there ends them. */
TEST_F(populate, workers_are_charged)
{
	struct kvmm_events choose = {
		.size = sizeof(choose),
		.mask = 1ULL << KVMM_EVENT_POPULATED,
	};

	kt_close(&self->t);
	ASSERT_EQ(0, kt_destroy(NAME, 0));
	ASSERT_EQ(0, kt_cgroup_make(GROUP));
	if (kt_cgroup_put(GROUP, "memory.max", "67108864")) {
		kt_cgroup_end(GROUP);
		SKIP(return, "no memory controller");
	}
	ASSERT_EQ(0, kt_child(make_grouped, &self->t));
	ASSERT_EQ(0, kt_join(&self->t, NAME, 0));
	ASSERT_EQ(0, kt_ioctl(self->t.fd, KVMM_EVENTS, &choose));
	ASSERT_EQ(0, async(&self->t, 2));
	ASSERT_EQ(0, wait_end(&self->t, &self->ev));
	EXPECT_EQ(ENOMEM, self->ev.flags);
	EXPECT_LE(FRAMES / 4, self->ev.value);
	EXPECT_GE(FRAMES / 2, self->ev.value);
	EXPECT_LE(32 << 20, kt_cgroup_get(GROUP, "memory.current"));
	EXPECT_EQ(0, kt_cgroup_field(GROUP, "memory.events", "oom_kill"));
	kt_close(&self->t);
	EXPECT_EQ(0, kt_destroy(NAME, 0));
	EXPECT_EQ(0, kt_cgroup_end(GROUP));
}

KT_MAIN
