// SPDX-License-Identifier: MIT
/*
 * Life of a pool: what it can be made of, that it outlives who made it, how it
 * ends, what its counters say, and how its memory comes in.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "kt_harness.h"

FIXTURE(pool) {
	struct kt t;
};

FIXTURE_SETUP(pool)
{
	kt_wipe();
	ASSERT_EQ(0, kt_create(&self->t, 4096, 64, 0));
}

FIXTURE_TEARDOWN(pool)
{
	KT_FINISH(&self->t);
}

/* Creates with @spec on a new file opened with @flags, and ends it again. */
static int try_create(const struct kvmm_pool_create *spec, int flags)
{
	struct kvmm_pool_create copy = *spec;
	int fd = kt_dev(flags);
	int ret;

	if (fd < 0)
		return fd;
	ret = kt_ioctl(fd, KVMM_POOL_CREATE, &copy);
	close(fd);
	if (!ret)
		ret = kt_destroy(copy.name, 0);
	return ret;
}

#define TRY(must, change) do {						\
	struct kvmm_pool_create spec = kt_spec("try", 4096, 4, 4);	\
									\
	change;								\
	EXPECT_EQ(must, try_create(&spec, O_RDWR)) {			\
		TH_LOG("%s", #change);					\
	}								\
} while (0)

TEST_F(pool, create_names)
{
	const char *bad[] = { "", ".", "..", ".hidden", "-dash", "a/b", "a b",
			      "a\n", "\xc3\xa4", "a:b", "a*", "a\\b" };
	const char *good[] = { "a", "A-1", "x.y_z", "_", "0", "a..b" };
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		TRY(-EINVAL, strcpy(spec.name, bad[i]));
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		TRY(0, (memset(spec.name, 0, sizeof(spec.name)),
			strcpy(spec.name, good[i])));
	TRY(0, (memset(spec.name, 'n', KVMM_NAME_LEN),
		spec.name[KVMM_NAME_LEN - 1] = 0));
	TRY(-ENAMETOOLONG, memset(spec.name, 'n', KVMM_NAME_LEN));
}

TEST_F(pool, create_values)
{
	TRY(0, (void)0);
	TRY(0, spec.mode = 0777);
	TRY(0, spec.mode = 0);
	TRY(-EINVAL, spec.mode = 01000);
	TRY(-EINVAL, spec.mode = 0100600);
	TRY(-EOPNOTSUPP, spec.policy = 1);
	TRY(-EOPNOTSUPP, spec.policy = 63);
	TRY(-EINVAL, spec.block_size = 0);
	TRY(-EINVAL, spec.block_size = 2048);
	TRY(-EINVAL, spec.block_size = 4097);
	TRY(-EINVAL, spec.block_size = 12288);
	TRY(-EINVAL, spec.block_size = KVMM_MAX_BLOCK_SIZE * 2U);
	TRY(0, spec.block_size = 2 << 20);
	TRY(0, (spec.block_size = KVMM_MAX_BLOCK_SIZE, spec.nr_frames = 1));
	TRY(-EINVAL, spec.nr_frames = 0);
	TRY(0, spec.nr_frames = 1);
	TRY(-EINVAL, spec.nr_frames = KVMM_MAX_BLOCKS + 1);
	TRY(-EINVAL, spec.nr_slots = KVMM_MAX_BLOCKS - 3);
	TRY(-EINVAL, spec.nr_slots = 0xffffffff);
	TRY(-EINVAL, spec.quarantine_ms = KVMM_MAX_QUARANTINE_MS + 1);
	TRY(0, spec.quarantine_ms = KVMM_MAX_QUARANTINE_MS);
	TRY(0, spec.flags = KVMM_POOL_MANUAL_CLOCK);
	TRY(0, spec.nr_holds = 1);
}

/* The largest table there may be either fits or fails cleanly. */
TEST_F(pool, create_huge)
{
	struct kvmm_pool_create spec = kt_spec("huge", 4096, 1, 0);
	int ret;

	spec.nr_frames = KVMM_MAX_BLOCKS;
	ret = try_create(&spec, O_RDWR);
	EXPECT_TRUE(!ret || ret == -ENOMEM) {
		TH_LOG("%d", ret);
	}
}

TEST_F(pool, create_refused)
{
	struct kvmm_pool_create spec = kt_spec(self->t.name, 4096, 4, 0);
	int fd;

	EXPECT_EQ(-EEXIST, try_create(&spec, O_RDWR));
	spec = kt_spec("other", 4096, 4, 0);
	EXPECT_EQ(-EACCES, try_create(&spec, O_RDONLY));
	EXPECT_EQ(-EACCES, try_create(&spec, O_WRONLY));
	EXPECT_EQ(-EISCONN, kt_ioctl(self->t.fd, KVMM_POOL_CREATE, &spec));

	/* a file whose first try failed is as good as new */
	fd = kt_dev(O_RDWR);
	spec = kt_spec(self->t.name, 4096, 4, 0);
	EXPECT_EQ(-EEXIST, kt_ioctl(fd, KVMM_POOL_CREATE, &spec));
	spec = kt_spec("other", 4096, 4, 0);
	EXPECT_EQ(0, kt_ioctl(fd, KVMM_POOL_CREATE, &spec));
	EXPECT_EQ(4 * 4096, spec.arena_size);
	close(fd);
	EXPECT_EQ(0, kt_destroy("other", 0));
}

TEST_F(pool, open)
{
	struct kvmm_pool_open arg = { .size = sizeof(arg) };
	struct kvmm_pool_stat st;
	struct kt u;
	int fd = kt_dev(O_RDWR);

	strcpy(arg.name, "nobody");
	EXPECT_EQ(-ENOENT, kt_ioctl(fd, KVMM_POOL_OPEN, &arg));
	memset(arg.name, 'x', sizeof(arg.name));
	EXPECT_EQ(-ENAMETOOLONG, kt_ioctl(fd, KVMM_POOL_OPEN, &arg));
	memset(arg.name, 0, sizeof(arg.name));
	EXPECT_EQ(-EINVAL, kt_ioctl(fd, KVMM_POOL_OPEN, &arg));
	strcpy(arg.name, self->t.name);
	EXPECT_EQ(0, kt_ioctl(fd, KVMM_POOL_OPEN, &arg));
	EXPECT_EQ(4096, arg.block_size);
	EXPECT_EQ(64, arg.nr_frames);
	EXPECT_EQ(0, arg.nr_slots);
	EXPECT_EQ(KVMM_POLICY_LRU, arg.policy);
	EXPECT_EQ(64 * 4096, arg.arena_size);
	EXPECT_EQ(-EISCONN, kt_ioctl(fd, KVMM_POOL_OPEN, &arg));
	EXPECT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(2, st.nr_clients);
	close(fd);
	EXPECT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(1, st.nr_clients);

	/* a file opened for reading is a reader without being asked */
	fd = kt_dev(O_RDONLY);
	EXPECT_EQ(0, kt_ioctl(fd, KVMM_POOL_OPEN, &arg));
	u = self->t;
	u.fd = fd;
	EXPECT_EQ(-EACCES, kt_reset(&u, NULL));
	close(fd);
}

static int store_and_leave(void *arg)
{
	struct kvmm_block_ref refs[8];
	struct kt t;
	int ret;

	(void)arg;
	ret = kt_create(&t, 4096, 16, 0);
	if (ret)
		return ret;
	return kt_store(&t, 100, 8, refs);
}

/* A pool and what it holds outlive the process that made it. */
TEST_F(pool, persistence)
{
	struct kvmm_pool_entry entries[4];
	struct kt t;
	int i, n;

	ASSERT_EQ(0, kt_child(store_and_leave, NULL));
	n = kt_list(entries, 4);
	ASSERT_EQ(2, n);
	for (i = 0; i < n; i++) {
		if (strcmp(entries[i].name, self->t.name))
			break;
	}
	ASSERT_NE(2, i);
	EXPECT_EQ(0, entries[i].nr_clients);
	ASSERT_EQ(0, kt_join(&t, entries[i].name, 0));
	EXPECT_EQ(8, kt_load_all(&t, 100, 8));
	kt_close(&t);
	ASSERT_EQ(0, kt_join(&t, entries[i].name, 0));
	EXPECT_EQ(8, kt_load_all(&t, 100, 8));
	kt_close(&t);
	EXPECT_EQ(0, kt_destroy(entries[i].name, 0));
}

TEST_F(pool, destroy)
{
	struct kvmm_pool_destroy arg = { .size = sizeof(arg) };
	struct kvmm_pool_stat st;
	struct kt u;

	EXPECT_EQ(-ENOENT, kt_destroy("nobody", 0));
	EXPECT_EQ(-EINVAL, kt_destroy("", 0));
	memset(arg.name, 'x', sizeof(arg.name));
	EXPECT_EQ(-ENAMETOOLONG, kt_ioctl(self->t.fd, KVMM_POOL_DESTROY,
					  &arg));
	EXPECT_EQ(-EBUSY, kt_destroy(self->t.name, 0));

	/* its only client may, and is left with close() alone */
	ASSERT_EQ(0, kt_join(&u, self->t.name, 0));
	strcpy(memset(arg.name, 0, sizeof(arg.name)), u.name);
	EXPECT_EQ(-EBUSY, kt_ioctl(u.fd, KVMM_POOL_DESTROY, &arg));
	kt_close(&self->t);
	EXPECT_EQ(0, kt_ioctl(u.fd, KVMM_POOL_DESTROY, &arg));
	EXPECT_EQ(-ENODEV, kt_stat(&u, &st));
	EXPECT_EQ(-ENOENT, kt_ioctl(u.fd, KVMM_POOL_DESTROY, &arg));
	kt_close(&u);
}

/* With force: clients lose the pool at once, and what they mapped is gone. */
TEST_F(pool, destroy_force)
{
	struct kvmm_block_ref refs[4];
	struct kvmm_pool_create spec;
	struct kvmm_pool_stat st;
	struct kvmm_info info;
	struct kt again;
	uint32_t done;
	char name[KVMM_NAME_LEN];
	void *mem;

	ASSERT_EQ(0, kt_store(&self->t, 1, 4, refs));
	ASSERT_EQ(1, kt_load(&self->t, 1));
	ASSERT_EQ(0, kt_alloc(&self->t, refs, 4));
	memcpy(name, self->t.name, sizeof(name));
	EXPECT_EQ(0, kt_destroy(name, KVMM_POOL_FORCE));

	EXPECT_TRUE(kt_sigbus(self->t.arena, false));
	EXPECT_TRUE(kt_sigbus(self->t.arena, true));
	EXPECT_TRUE(kt_sigbus(self->t.arena + self->t.arena_size - 1, true));
	EXPECT_EQ(-ENODEV, kt_stat(&self->t, &st));
	EXPECT_EQ(-ENODEV, kt_alloc(&self->t, refs, 1));
	EXPECT_EQ(-ENODEV, kt_batch(&self->t, KVMM_UNPIN, refs, 4, &done));
	EXPECT_EQ(-ENODEV, kt_lookup(&self->t, 1, 1, 0, refs));
	EXPECT_EQ(-ENODEV, kt_populate(&self->t, 0, 1, NULL));
	EXPECT_EQ(-ENODEV, kt_reset(&self->t, NULL));
	EXPECT_EQ(-ENODEV, kt_reclaim(&self->t, 0, NULL));
	EXPECT_EQ(-ENODEV, kt_swap(&self->t, KVMM_SWAP_IN, refs, 1, 0));
	EXPECT_EQ(-ENODEV, kt_detach(&self->t, 0));
	mem = mmap(NULL, 4096, PROT_READ, MAP_SHARED, self->t.fd, 0);
	EXPECT_EQ(MAP_FAILED, mem);
	EXPECT_EQ(ENODEV, errno);
	/* still bound: to nothing */
	spec = kt_spec("more", 4096, 4, 0);
	EXPECT_NE(0, kt_ioctl(self->t.fd, KVMM_POOL_CREATE, &spec));

	/* the name is free, and the memory is back, while the mapping lives */
	EXPECT_EQ(0, kt_info(&info));
	EXPECT_EQ(0, info.nr_pools);
	EXPECT_EQ(0, info.pinned_bytes);
	spec = kt_spec(name, 4096, 8, 0);
	ASSERT_EQ(0, kt_create_spec(&again, &spec));
	EXPECT_TRUE(kt_sigbus(self->t.arena, true));
	EXPECT_FALSE(kt_sigbus(again.arena, true));
	KT_FINISH(&again);
	kt_close(&self->t);
}

TEST_F(pool, list)
{
	struct kvmm_pool_entry e[8];
	struct kvmm_pool_create spec = kt_spec("second", 8192, 3, 5);
	struct kvmm_pool_list arg = {
		.size = sizeof(arg), .entries = (uintptr_t)e, .count = 1,
	};
	struct kt u;
	int n = 0, i;

	spec.mode = 0640;
	ASSERT_EQ(0, kt_create_spec(&u, &spec));
	/* one by one */
	do {
		memset(&e[0], 0xff, sizeof(e[0]));
		ASSERT_EQ(0, kt_ioctl(u.fd, KVMM_POOL_LIST, &arg));
		n += arg.done;
		EXPECT_GE(1, arg.done);
	} while (arg.done && n < 10);
	EXPECT_EQ(2, n);

	ASSERT_EQ(2, kt_list(e, 8));
	i = strcmp(e[0].name, "second") ? 1 : 0;
	EXPECT_STREQ("second", e[i].name);
	EXPECT_EQ(0640, e[i].mode);
	EXPECT_EQ(geteuid(), e[i].uid);
	EXPECT_EQ(getegid(), e[i].gid);
	EXPECT_EQ(8192, e[i].block_size);
	EXPECT_EQ(3, e[i].nr_frames);
	EXPECT_EQ(5, e[i].nr_slots);
	EXPECT_EQ(KVMM_POLICY_LRU, e[i].policy);
	EXPECT_EQ(1, e[i].nr_clients);
	EXPECT_STREQ(self->t.name, e[!i].name);
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("second", 0));
}

TEST_F(pool, reset)
{
	struct kvmm_block_ref refs[4], filling;
	struct kvmm_pool_stat st;
	uint64_t first, second, handle;
	uint32_t frame;

	ASSERT_EQ(0, kt_store(&self->t, 1, 4, refs));
	handle = refs[0].handle;
	frame = refs[0].frame;
	ASSERT_EQ(0, kt_pin1(&self->t, handle));
	ASSERT_EQ(0, kt_alloc(&self->t, &filling, 1));
	kt_fill(&self->t, filling.frame, 9);
	ASSERT_EQ(0, kt_reset(&self->t, &first));
	EXPECT_EQ(0, kt_lookup(&self->t, 1, 4, 0, refs));
	EXPECT_EQ(-ESTALE, kt_publish1(&self->t, filling.handle, 9, 0));
	/* the pin is good, and its bytes are */
	EXPECT_TRUE(kt_good(&self->t, frame, 1));
	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(first, st.epoch);
	EXPECT_EQ(2, st.pins);
	ASSERT_EQ(0, kt_reset(&self->t, &second));
	EXPECT_EQ(first + 1, second);
	EXPECT_EQ(0, kt_unpin1(&self->t, handle));
	EXPECT_EQ(0, kt_unpin1(&self->t, filling.handle));
	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(0, st.pins);
	/* the same keys can be published anew */
	ASSERT_EQ(0, kt_store(&self->t, 1, 4, refs));
	EXPECT_EQ(4, kt_load_all(&self->t, 1, 4));
	KT_CONSISTENT(&self->t);
}

TEST_F(pool, clock)
{
	struct kvmm_pool_create spec = kt_spec("clocked", 4096, 4, 0);
	struct kt u;

	EXPECT_EQ(-EINVAL, kt_clock(&self->t, 1));
	spec.flags = KVMM_POOL_MANUAL_CLOCK;
	ASSERT_EQ(0, kt_create_spec(&u, &spec));
	EXPECT_EQ(0, kt_clock(&u, 1000));
	EXPECT_EQ(0, kt_clock(&u, 1000));
	EXPECT_EQ(-EINVAL, kt_clock(&u, 999));
	EXPECT_EQ(0, kt_clock(&u, 1ULL << 40));
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("clocked", 0));
}

TEST_F(pool, stat)
{
	struct kvmm_block_ref refs[8];
	struct kvmm_pool_stat st;

	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(4096, st.block_size);
	EXPECT_EQ(64, st.nr_frames);
	EXPECT_EQ(0, st.nr_slots);
	EXPECT_EQ(1, st.nr_clients);
	EXPECT_EQ(0, st.degraded);
	EXPECT_EQ(64, st.frames_online);
	EXPECT_EQ(64, st.frames_free);
	EXPECT_EQ(0, st.allocs);
	EXPECT_EQ(0, st.lookups);

	ASSERT_EQ(0, kt_store(&self->t, 1, 8, refs));
	ASSERT_EQ(0, kt_alloc(&self->t, refs, 2));
	ASSERT_EQ(8, kt_lookup(&self->t, 1, 8, 0, refs));
	ASSERT_EQ(0, kt_lookup(&self->t, 100, 3, 0, refs));
	ASSERT_EQ(8, kt_lookup(&self->t, 1, 8, KVMM_LOOKUP_PEEK, refs));
	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(10, st.allocs);
	EXPECT_EQ(0, st.alloc_fails);
	EXPECT_EQ(8, st.publishes);
	EXPECT_EQ(11, st.lookups);
	EXPECT_EQ(8, st.hits_memory);
	EXPECT_EQ(0, st.hits_swap);
	EXPECT_EQ(3, st.misses);
	EXPECT_EQ(2, st.pins);
	EXPECT_EQ(2, st.blocks_pinned);
	EXPECT_EQ(2, st.blocks[KVMM_FILLING]);
	EXPECT_EQ(8, st.blocks[KVMM_RESIDENT]);
	EXPECT_EQ(54, st.frames_free);
	KT_CONSISTENT(&self->t);
}

TEST_F(pool, populate)
{
	struct kvmm_pool_create spec = kt_spec("bare", 4096, 2048, 0);
	struct kvmm_block_ref refs[2];
	struct kvmm_pool_stat st;
	uint32_t done = 0;
	struct kt u = { .fd = kt_dev(O_RDWR), .block_size = 4096,
			.nr_frames = 2048 };

	ASSERT_EQ(0, kt_ioctl(u.fd, KVMM_POOL_CREATE, &spec));
	strcpy(u.name, "bare");
	ASSERT_EQ(0, kt_stat(&u, &st));
	EXPECT_EQ(0, st.frames_online);
	EXPECT_EQ(-ENOSPC, kt_alloc(&u, refs, 1));

	EXPECT_EQ(-EINVAL, kt_populate(&u, 0, 0, NULL));
	EXPECT_EQ(-EINVAL, kt_populate(&u, 0, 2049, NULL));
	EXPECT_EQ(-EINVAL, kt_populate(&u, 2048, 1, NULL));
	EXPECT_EQ(-EINVAL, kt_populate(&u, 2047, 2, NULL));
	EXPECT_EQ(-EINVAL, kt_populate(&u, 1, 0xffffffff, NULL));
	ASSERT_EQ(0, kt_stat(&u, &st));
	EXPECT_EQ(0, st.frames_online);

	EXPECT_EQ(0, kt_populate(&u, 0, 512, &done));
	EXPECT_EQ(512, done);
	ASSERT_EQ(0, kt_stat(&u, &st));
	EXPECT_LE(512, st.frames_online);
	EXPECT_EQ(0, kt_alloc(&u, refs, 1));
	EXPECT_EQ(0, kt_populate(&u, 0, 2048, &done));
	EXPECT_EQ(2048, done);
	EXPECT_EQ(0, kt_populate(&u, 5, 7, &done));
	EXPECT_EQ(7, done);
	ASSERT_EQ(0, kt_stat(&u, &st));
	EXPECT_EQ(2048, st.frames_online);
	EXPECT_EQ(2047, st.frames_free);
	KT_CONSISTENT(&u);
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("bare", 0));
}

struct range {
	struct kt *t;
	uint32_t first, count;
	int ret;
};

static void *populate_range(void *arg)
{
	struct range *r = arg;

	r->ret = kt_populate(r->t, r->first, r->count, NULL);
	return NULL;
}

/* Four threads bring in overlapping ranges; all frames are zero. */
TEST_F(pool, populate_threads)
{
	struct kvmm_pool_create spec = kt_spec("bare", KT_BLOCK, 128, 0);
	struct kvmm_pool_stat st;
	struct range r[4];
	pthread_t thread[4];
	struct kt u = { .fd = kt_dev(O_RDWR), .nr_frames = 128 };
	uint64_t *mem;
	size_t words = 128UL * KT_BLOCK / 8, i;

	ASSERT_EQ(0, kt_ioctl(u.fd, KVMM_POOL_CREATE, &spec));
	strcpy(u.name, "bare");
	for (i = 0; i < 4; i++) {
		r[i] = (struct range) { &u, i * 24, 56, -1 };
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, populate_range,
					    &r[i]));
	}
	for (i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		EXPECT_EQ(0, r[i].ret);
	}
	ASSERT_EQ(0, kt_stat(&u, &st));
	EXPECT_EQ(128, st.frames_online);
	mem = mmap(NULL, words * 8, PROT_READ, MAP_SHARED, u.fd, 0);
	ASSERT_NE(MAP_FAILED, (void *)mem);
	for (i = 0; i < words; i++) {
		if (mem[i])
			break;
	}
	EXPECT_EQ(words, i);
	munmap(mem, words * 8);
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("bare", 0));
}

static int populates(void *arg)
{
	struct kvmm_pool_open open_arg = { .size = sizeof(open_arg) };
	struct kt t = { .fd = kt_dev(O_RDWR) };
	int ret;

	strcpy(open_arg.name, arg);
	ret = kt_ioctl(t.fd, KVMM_POOL_OPEN, &open_arg);
	return ret ? ret : kt_populate(&t, 0, open_arg.nr_frames, NULL);
}

/* Killed while memory comes in: what is there is whole, and can be ended. */
TEST_F(pool, populate_killed)
{
	struct kvmm_pool_create spec = kt_spec("bare", KT_BLOCK, 4096, 0);
	struct kt u = { .fd = kt_dev(O_RDWR) };
	struct kvmm_pool_stat st;
	struct kvmm_info info;
	int round;
	pid_t pid;

	ASSERT_EQ(0, kt_ioctl(u.fd, KVMM_POOL_CREATE, &spec));
	strcpy(u.name, "bare");
	for (round = 0; round < 4; round++) {
		pid = kt_spawn(populates, u.name);
		kt_sleep_ms(10 + 25 * round);
		kill(pid, SIGKILL);
		kt_reap(pid);
		ASSERT_EQ(0, kt_stat(&u, &st));
		EXPECT_EQ(st.frames_online, st.frames_free);
		EXPECT_EQ(1, st.nr_clients);
		KT_CONSISTENT(&u);
		ASSERT_EQ(0, kt_info(&info));
		EXPECT_LE(st.frames_online * KT_BLOCK, info.pinned_bytes);
	}
	kt_close(&u);
	EXPECT_EQ(0, kt_destroy("bare", 0));
}

TEST_F(pool, too_many_clients)
{
	struct rlimit lim = { 4096, 4096 };
	struct kvmm_pool_open arg = { .size = sizeof(arg) };
	struct kvmm_pool_stat st;
	int fds[KVMM_MAX_CLIENTS + 1];
	int n, ret = 0;

	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &lim));
	strcpy(arg.name, self->t.name);
	for (n = 0; n < KVMM_MAX_CLIENTS; n++) {
		fds[n] = kt_dev(O_RDWR);
		ASSERT_LE(0, fds[n]);
		ret = kt_ioctl(fds[n], KVMM_POOL_OPEN, &arg);
		if (ret)
			break;
	}
	EXPECT_EQ(-EUSERS, ret);
	EXPECT_EQ(KVMM_MAX_CLIENTS - 1, n);	/* and the fixture's */
	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(KVMM_MAX_CLIENTS, st.nr_clients);
	close(fds[0]);
	/* the one that was refused may try again */
	EXPECT_EQ(0, kt_ioctl(fds[n], KVMM_POOL_OPEN, &arg));
	for (; n > 0; n--)
		close(fds[n]);
	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(1, st.nr_clients);
}

KT_MAIN
