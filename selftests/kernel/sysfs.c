// SPDX-License-Identifier: MIT
/*
 * /sys/kernel/kvmm: every file can be read, holds one value, is documented in
 * kmod/abi/ (KVMM_ABI_DOCS names the folder), and every documented file is
 * there; values agree with those of the ioctls.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "kt_harness.h"

#define POOL	"seen"
#define MAX	256

FIXTURE(sysfs) {
	struct kt t;
	char *found[MAX];	/* paths of files, the pool's name as <pool> */
	char *said[MAX];	/* paths in the documents */
	int nr_found, nr_said;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All files below @dir go to found[]. */
static void walk(FIXTURE_DATA(sysfs) *self, const char *dir, const char *as)
{
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d))) {
		char path[512], name[512];
		struct stat st;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		snprintf(name, sizeof(name), "%s/%s", as,
			 strcmp(e->d_name, POOL) ? e->d_name : "<pool>");
		if (lstat(path, &st))
			continue;
		if (S_ISDIR(st.st_mode))
			walk(self, path, name);
		else if (self->nr_found < MAX)
			self->found[self->nr_found++] = strdup(name);
	}
	if (d)
		closedir(d);
}

/* "What:" lines of the kernel's ABI format go to said[]. */
static void read_docs(FIXTURE_DATA(sysfs) *self, const char *dir)
{
	char path[512], line[512], what[512];
	struct dirent *e;
	DIR *d = opendir(dir);
	FILE *f;

	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		f = fopen(path, "r");
		while (f && fgets(line, sizeof(line), f)) {
			if (sscanf(line, "What: %511s", what) == 1 &&
			    strncmp(what, KT_SYSFS "/", 17) == 0 &&
			    self->nr_said < MAX)
				self->said[self->nr_said++] = strdup(what);
		}
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
}

static int read_value(const char *path, char *value, size_t size)
{
	int fd = open(path, O_RDONLY);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, value, size - 1);
	close(fd);
	if (n < 0)
		return -errno;
	value[n] = 0;
	return n;
}

/* The value of a file of the pool, or of kvmm where @pool is NULL. */
static long long number(const char *pool, const char *name)
{
	char path[512], value[128];

	if (pool)
		snprintf(path, sizeof(path), KT_SYSFS "/pools/%s/%s", pool,
			 name);
	else
		snprintf(path, sizeof(path), KT_SYSFS "/%s", name);
	if (read_value(path, value, sizeof(value)) <= 0)
		return -1;
	return atoll(value);
}

FIXTURE_SETUP(sysfs)
{
	struct kvmm_pool_create spec = kt_spec(POOL, 4096, 32, 16);

	kt_wipe();
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
	walk(self, KT_SYSFS, KT_SYSFS);
	qsort(self->found, self->nr_found, sizeof(char *), by_name);
}

FIXTURE_TEARDOWN(sysfs)
{
	KT_FINISH(&self->t);
}

TEST_F(sysfs, readable)
{
	char path[512], value[4096 + 1];
	char *pool;
	int i, n;

	ASSERT_LT(10, self->nr_found);
	for (i = 0; i < self->nr_found; i++) {
		strcpy(path, self->found[i]);
		pool = strstr(path, "<pool>");
		if (pool) {
			memmove(pool + strlen(POOL), pool + 6,
				strlen(pool + 6) + 1);
			memcpy(pool, POOL, strlen(POOL));
		}
		n = read_value(path, value, sizeof(value));
		EXPECT_LT(0, n) {
			TH_LOG("%s: %d", path, n);
		}
		/* one value: one line */
		EXPECT_TRUE(n > 0 && strchr(value, '\n') == value + n - 1) {
			TH_LOG("%s: not one line", path);
		}
	}
}

TEST_F(sysfs, documented)
{
	const char *docs = getenv("KVMM_ABI_DOCS");
	int i, k;

	if (!docs || access(docs, R_OK))
		SKIP(return, "KVMM_ABI_DOCS does not name kmod/abi");
	read_docs(self, docs);
	ASSERT_LT(0, self->nr_said);
	qsort(self->said, self->nr_said, sizeof(char *), by_name);
	for (i = k = 0; i < self->nr_found || k < self->nr_said;) {
		int cmp = i == self->nr_found ? 1 : k == self->nr_said ? -1 :
			strcmp(self->found[i], self->said[k]);

		EXPECT_GE(0, cmp) {
			TH_LOG("documented, not there: %s", self->said[k]);
		}
		EXPECT_LE(0, cmp) {
			TH_LOG("there, not documented: %s", self->found[i]);
		}
		i += cmp <= 0;
		k += cmp >= 0;
	}
}

TEST_F(sysfs, values)
{
	struct kvmm_block_ref refs[32];
	struct kvmm_pool_stat st;
	struct kvmm_info info;

	ASSERT_EQ(0, kt_store(&self->t, 1, 8, refs));
	ASSERT_EQ(0, kt_alloc(&self->t, refs, 3));
	ASSERT_EQ(4, kt_lookup(&self->t, 5, 6, 0, refs + 3));
	ASSERT_EQ(0, kt_stat(&self->t, &st));
	ASSERT_EQ(0, kt_info(&info));
	EXPECT_EQ((long long)info.nr_pools, number(NULL, "nr_pools"));
	EXPECT_EQ((long long)info.pinned_bytes, number(NULL, "pinned_bytes"));
#define SAME(field) \
	EXPECT_EQ((long long)st.field, number(POOL, #field))
	SAME(block_size);
	SAME(nr_frames);
	SAME(nr_slots);
	SAME(nr_clients);
	SAME(epoch);
	SAME(degraded);
	SAME(frames_online);
	SAME(frames_free);
	SAME(frames_quarantined);
	SAME(slots_free);
	SAME(blocks_pinned);
	SAME(pins);
	SAME(allocs);
	SAME(alloc_fails);
	SAME(publishes);
	SAME(publish_dups);
	SAME(lookups);
	SAME(hits_memory);
	SAME(hits_swap);
	SAME(misses);
	SAME(evicted);
	SAME(purged);
	SAME(slots_evicted);
	SAME(expired);
	SAME(dropped);
	SAME(swap_outs);
	SAME(swap_ins);
	SAME(write_errors);
	SAME(read_errors);
	SAME(checksum_errors);
	SAME(io_timeouts);
	SAME(requests);
	SAME(output_tokens);
	SAME(clients_dead);
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs, 3, NULL));
}

/* A pool's folder comes and goes with it, also while a file of it is open. */
TEST_F(sysfs, lifetime)
{
	char value[64];
	int fd = open(KT_SYSFS "/pools/" POOL "/nr_frames", O_RDONLY);

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, kt_destroy(POOL, KVMM_POOL_FORCE));
	EXPECT_NE(0, access(KT_SYSFS "/pools/" POOL, F_OK));
	EXPECT_GE(0, read(fd, value, sizeof(value)));
	close(fd);
	kt_close(&self->t);
	ASSERT_EQ(0, kt_create(&self->t, 4096, 4, 0));
}

KT_MAIN
