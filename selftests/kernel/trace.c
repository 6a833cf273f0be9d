// SPDX-License-Identifier: MIT
/*
 * Tracepoints: those there are, with their fields, are those of
 * kmod/abi/tracepoints-kvmm (KVMM_ABI_DOCS names the folder), and each tells
 * what was done, neither more nor less.  Histograms count the same.
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "kt_harness.h"

#define TRACEFS	"/sys/kernel/tracing"
#define EVENTS	TRACEFS "/events/kvmm"
#define POOL	"traced"
#define BUCKETS	48
#define MAX	256
#define ROOM	(1 << 20)

FIXTURE(trace) {
	struct kt t;
	char *text;		/* the trace, or NULL */
	char *found[MAX];	/* "event.field", and "event" */
	char *said[MAX];
	int nr_found, nr_said;
};

static int set(const char *file, const char *value)
{
	int fd = open(file, O_WRONLY | O_TRUNC);
	int ret;

	if (fd < 0)
		return -errno;
	ret = write(fd, value, strlen(value)) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

static int read_all(const char *file, char *text, size_t room)
{
	int fd = open(file, O_RDONLY);
	size_t at = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	while (at < room - 1 && (n = read(fd, text + at, room - 1 - at)) > 0)
		at += n;
	close(fd);
	text[at] = 0;
	return 0;
}

FIXTURE_SETUP(trace)
{
	struct kvmm_pool_create spec = kt_spec(POOL, KT_BLOCK, 8, 16);

	kt_wipe();
	self->text = NULL;
	if (access(TRACEFS "/trace", R_OK))
		SKIP(return, "no tracefs");
	self->text = malloc(ROOM);
	ASSERT_NE(NULL, self->text);
	ASSERT_EQ(0, set(TRACEFS "/tracing_on", "1"));
	ASSERT_EQ(0, set(TRACEFS "/trace", ""));
	/* manual: expiry is the test's to decide */
	spec.flags = KVMM_POOL_MANUAL_CLOCK;
	ASSERT_EQ(0, kt_create_spec(&self->t, &spec));
}

FIXTURE_TEARDOWN(trace)
{
	int i;

	if (!self->text)
		return;
	set(EVENTS "/enable", "0");
	for (i = 0; i < self->nr_found; i++)
		free(self->found[i]);
	for (i = 0; i < self->nr_said; i++)
		free(self->said[i]);
	free(self->text);
	KT_FINISH(&self->t);
}

static int begin(void)
{
	int ret = set(TRACEFS "/trace", "");

	return ret ? ret : set(EVENTS "/enable", "1");
}

static int end(FIXTURE_DATA(trace) *self)
{
	int ret = set(EVENTS "/enable", "0");

	return ret ? ret : read_all(TRACEFS "/trace", self->text, ROOM);
}

/*
 * Lines of @event of our pool that have @what, which starts and ends with a
 * space where it is not NULL.  The last one's is left in @line.
 */
static int events(FIXTURE_DATA(trace) *self, const char *event,
		  const char *what, char line[512])
{
	char name[64], copy[512];
	const char *at = self->text;
	int n = 0;

	snprintf(name, sizeof(name), " %s: pool=" POOL " ", event);
	while (*at) {
		size_t len = strcspn(at, "\n");

		if (len < sizeof(copy) - 1) {
			memcpy(copy, at, len);
			strcpy(copy + len, " ");
			if (strstr(copy, name) && (!what || strstr(copy, what))) {
				n++;
				if (line)
					strcpy(line, copy);
			}
		}
		at += len + !!at[len];
	}
	return n;
}

/* The number after " name=". */
static long long field(const char *line, const char *name)
{
	char want[64];
	const char *at;

	snprintf(want, sizeof(want), " %s=", name);
	at = strstr(line, want);
	return at ? strtoll(at + strlen(want), NULL, 0) : -1;
}

/* A key as lines have it, with spaces around. */
static const char *key_text(uint64_t id)
{
	static char text[64];
	uint8_t key[KVMM_KEY_LEN];
	int i, n = sprintf(text, " key=");

	kt_key(key, id);
	for (i = 0; i < 8; i++)
		n += sprintf(text + n, "%02x", key[i]);
	strcpy(text + n, " ");
	return text;
}

/* ---- histograms ---- */

static int hist(const char *name, unsigned long long count[BUCKETS])
{
	char path[256], text[4096], *at = text, *end;
	int i;

	snprintf(path, sizeof(path), KT_SYSFS "/pools/" POOL "/%s", name);
	if (read_all(path, text, sizeof(text)))
		return -ENOENT;
	for (i = 0; i < BUCKETS; i++) {
		if (!isdigit(*at))
			return -EINVAL;
		count[i] = strtoull(at, &end, 10);
		at = end + (*end == ' ');
	}
	return strcmp(at, "\n") ? -EINVAL : 0;
}

static unsigned long long sum(const unsigned long long count[BUCKETS])
{
	unsigned long long n = 0;
	int i;

	for (i = 0; i < BUCKETS; i++)
		n += count[i];
	return n;
}

/* ---- what there is, and what is said of it ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add(char **list, int *nr, const char *event, const char *name)
{
	char text[128];

	snprintf(text, sizeof(text), "%s%s%s", event, *name ? "." : "", name);
	if (*nr < MAX)
		list[(*nr)++] = strdup(text);
}

static void read_format(FIXTURE_DATA(trace) *self, const char *event)
{
	static char text[16384];
	char path[512], *line, *end, *name;

	snprintf(path, sizeof(path), EVENTS "/%s/format", event);
	if (read_all(path, text, sizeof(text)))
		return;
	add(self->found, &self->nr_found, event, "");
	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		end = strstr(line, ";\toffset:");
		if (strncmp(line, "\tfield:", 7) || !end)
			continue;
		*end = 0;
		name = strrchr(line, ' ') + 1;
		name[strcspn(name, "[")] = 0;
		if (strncmp(name, "common_", 7))
			add(self->found, &self->nr_found, event, name);
	}
}

static void read_document(FIXTURE_DATA(trace) *self, FILE *f)
{
	char line[512], event[64] = "", name[64];

	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "What: " EVENTS "/%63s", event) == 1)
			add(self->said, &self->nr_said, event, "");
		else if (sscanf(line, "\t\t- %63[a-z_]:", name) == 1)
			add(self->said, &self->nr_said, event, name);
	}
}

TEST_F(trace, documented)
{
	const char *docs = getenv("KVMM_ABI_DOCS");
	char path[512];
	struct dirent *e;
	int i, k;
	FILE *f;
	DIR *d;

	if (!docs || access(docs, R_OK))
		SKIP(return, "KVMM_ABI_DOCS does not name kmod/abi");
	d = opendir(EVENTS);
	ASSERT_NE(NULL, d);
	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			read_format(self, e->d_name);
	closedir(d);
	snprintf(path, sizeof(path), "%s/tracepoints-kvmm", docs);
	f = fopen(path, "r");
	ASSERT_NE(NULL, f);
	read_document(self, f);
	fclose(f);
	ASSERT_LT(50, self->nr_said);
	qsort(self->found, self->nr_found, sizeof(char *), by_name);
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

/* ---- what they tell ---- */

TEST_F(trace, blocks)
{
	struct kvmm_publish_entry twice;
	struct kvmm_block_ref refs[16];
	char line[512];

	ASSERT_EQ(0, begin());
	ASSERT_EQ(0, kt_store(&self->t, 1, 3, refs));
	ASSERT_EQ(0, kt_alloc(&self->t, refs + 3, 2));
	twice = kt_entry(&self->t, refs[3].handle, 2);
	ASSERT_EQ(0, kt_publish(&self->t, &twice, 1, 0));
	ASSERT_EQ(-EEXIST, twice.result);
	ASSERT_EQ(0, kt_unpin1(&self->t, refs[4].handle));
	/* two there, one not; then the same up to the first miss; then a look */
	ASSERT_EQ(2, kt_lookup(&self->t, 2, 3, 0, refs));
	ASSERT_EQ(1, kt_lookup(&self->t, 3, 5, KVMM_LOOKUP_PREFIX, refs));
	ASSERT_EQ(3, kt_lookup(&self->t, 1, 4, KVMM_LOOKUP_PEEK, refs));
	ASSERT_EQ(-EINVAL, kt_alloc(&self->t, refs, 0));
	ASSERT_EQ(0, end(self));

	EXPECT_EQ(2, events(self, "kvmm_alloc", NULL, line));
	EXPECT_EQ(2, field(line, "count"));
	EXPECT_EQ(2, field(line, "done"));
	EXPECT_EQ(0, field(line, "us"));
	EXPECT_EQ(0, field(line, "err"));
	EXPECT_LT(0, field(line, "client"));

	EXPECT_EQ(4, events(self, "kvmm_publish", NULL, NULL));
	EXPECT_EQ(1, events(self, "kvmm_publish", " result=-17 ", NULL));
	EXPECT_EQ(3, events(self, "kvmm_publish", " result=0 ", NULL));
	EXPECT_EQ(2, events(self, "kvmm_publish", key_text(2), NULL));
	EXPECT_EQ(1, events(self, "kvmm_publish", key_text(3), line));
	EXPECT_EQ(KT_BLOCK, field(line, "length"));

	EXPECT_EQ(3, events(self, "kvmm_hit", " where=memory ", NULL));
	EXPECT_EQ(3, events(self, "kvmm_hit", NULL, NULL));
	EXPECT_EQ(2, events(self, "kvmm_hit", key_text(3), line));
	EXPECT_LE(0, field(line, "frame"));
	EXPECT_EQ(2, events(self, "kvmm_miss", NULL, NULL));
	EXPECT_EQ(2, events(self, "kvmm_miss", key_text(4), NULL));

	/* off is off */
	ASSERT_EQ(0, set(TRACEFS "/trace", ""));
	ASSERT_EQ(1, kt_lookup(&self->t, 1, 1, 0, refs));
	ASSERT_EQ(0, read_all(TRACEFS "/trace", self->text, ROOM));
	EXPECT_EQ(0, events(self, "kvmm_hit", NULL, NULL));
}

TEST_F(trace, moves)
{
	struct kvmm_block_ref refs[16];
	struct kvmm_reclaim rec;
	struct kvmm_pool_stat st;
	char line[512];
	int fd, i;

	fd = kt_area_file("trace", KT_BLOCK, 16);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, kt_attach(&self->t, fd, 0, 0, 0, NULL));
	ASSERT_EQ(0, kt_store(&self->t, 1, 8, refs));
	ASSERT_EQ(0, begin());
	/* four by command, the other four by reclaim, then two come back */
	ASSERT_EQ(4, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 4,
			     KVMM_SWAP_DROP));
	ASSERT_EQ(0, kt_reclaim(&self->t, 0, &rec));
	ASSERT_EQ(4, rec.evicted);
	ASSERT_EQ(2, kt_swap(&self->t, KVMM_SWAP_IN, refs, 2, 0));
	ASSERT_EQ(2, kt_lookup(&self->t, 2, 2, 0, refs + 8));
	ASSERT_EQ(0, end(self));

	EXPECT_EQ(8, events(self, "kvmm_swap_issue", " out handle=", NULL));
	EXPECT_EQ(8, events(self, "kvmm_swap_done", " out handle=", NULL));
	EXPECT_EQ(2, events(self, "kvmm_swap_issue", " in handle=", NULL));
	EXPECT_EQ(2, events(self, "kvmm_swap_done", " in handle=", line));
	EXPECT_EQ(10, events(self, "kvmm_swap_done", " err=0 ", NULL));
	EXPECT_EQ(KT_BLOCK, field(line, "length"));
	EXPECT_LT(0, field(line, "us"));
	EXPECT_LE(1, field(line, "depth"));
	EXPECT_GE(2, field(line, "depth"));
	for (i = 0; i < 8; i++) {
		char want[64];

		snprintf(want, sizeof(want), " out handle=%llx ",
			 (unsigned long long)refs[i].handle);
		EXPECT_EQ(1, events(self, "kvmm_swap_done", want, NULL));
		EXPECT_EQ(1, events(self, "kvmm_evict", key_text(1 + i),
				    NULL));
	}
	EXPECT_EQ(8, events(self, "kvmm_evict", NULL, NULL));
	EXPECT_EQ(0, events(self, "kvmm_purge", NULL, NULL));
	EXPECT_LE(1, events(self, "kvmm_reclaim", NULL, NULL));
	EXPECT_EQ(1, events(self, "kvmm_reclaim", " keep=0 writes=4 ", NULL));
	EXPECT_EQ(1, events(self, "kvmm_hit", " where=memory ", NULL));
	EXPECT_EQ(1, events(self, "kvmm_hit", " frame=-1 where=swap ", NULL));

	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(8, st.swap_outs);
	EXPECT_EQ(2, st.swap_ins);
	EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	close(fd);
	kt_area_unlink("trace");
}

/* Each way in which a block is lost. */
TEST_F(trace, lost)
{
	struct kvmm_publish_entry e;
	struct kvmm_block_ref refs[16];
	int fd;

	ASSERT_EQ(0, begin());
	/* no area: another takes its place */
	ASSERT_EQ(0, kt_store(&self->t, 1, 8, refs));
	ASSERT_EQ(0, kt_store(&self->t, 9, 1, refs));
	ASSERT_EQ(0, end(self));
	EXPECT_EQ(1, events(self, "kvmm_purge", NULL, NULL));
	EXPECT_EQ(1, events(self, "kvmm_purge", " why=room ", NULL));
	/* a chain's end is its oldest block */
	EXPECT_EQ(1, events(self, "kvmm_purge", key_text(8), NULL));

	/* its time runs out; drops are not told of */
	ASSERT_EQ(0, begin());
	ASSERT_EQ(1, kt_lookup(&self->t, 3, 1, 0, refs));
	ASSERT_EQ(0, kt_drop1(&self->t, refs[0].handle));
	ASSERT_EQ(0, kt_alloc(&self->t, refs, 1));
	e = kt_entry(&self->t, refs[0].handle, 20);
	e.expiry_ms = 10;
	ASSERT_EQ(0, kt_publish(&self->t, &e, 1, 0));
	ASSERT_EQ(0, kt_clock(&self->t, 1000));
	ASSERT_EQ(0, kt_lookup(&self->t, 20, 1, 0, refs));
	ASSERT_EQ(0, end(self));
	EXPECT_EQ(1, events(self, "kvmm_purge", NULL, NULL));
	EXPECT_EQ(1, events(self, "kvmm_purge", " why=expired ", NULL));
	EXPECT_EQ(1, events(self, "kvmm_purge", key_text(20), NULL));

	/* its data can't be read, and its slot goes with the area */
	fd = kt_area_file("trace", KT_BLOCK, 16);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, kt_attach(&self->t, fd, 0, 0, 0, NULL));
	ASSERT_EQ(2, kt_lookup(&self->t, 4, 2, 0, refs));
	ASSERT_EQ(2, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 2,
			     KVMM_SWAP_DROP));
	ASSERT_EQ(0, begin());
	ASSERT_EQ(0, ftruncate(fd, 0));
	EXPECT_EQ(-ESTALE, kt_swap1(&self->t, KVMM_SWAP_IN, refs[0].handle, 0));
	EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	ASSERT_EQ(0, end(self));
	EXPECT_EQ(2, events(self, "kvmm_purge", NULL, NULL));
	EXPECT_EQ(1, events(self, "kvmm_purge", " why=unreadable ", NULL));
	EXPECT_EQ(1, events(self, "kvmm_purge", " why=slot ", NULL));
	EXPECT_EQ(1, events(self, "kvmm_swap_done", " err=-5 ", NULL));
	close(fd);
	kt_area_unlink("trace");
}

/* A disk that hangs: told at the deadline, and when it is through. */
TEST_F(trace, late)
{
	unsigned long long count[BUCKETS];
	struct kvmm_block_ref ref;
	char line[512];
	int disk = kt_dm();

	if (disk == -ENODEV)
		SKIP(return, "the kernel has no device mapper");
	ASSERT_LE(0, disk);
	ASSERT_EQ(0, kt_attach_timeout(&self->t, disk, 100));
	ASSERT_EQ(0, kt_store(&self->t, 1, 1, &ref));
	ASSERT_EQ(0, begin());
	ASSERT_EQ(0, kt_dm_hang(true));
	EXPECT_EQ(-EIO, kt_swap1(&self->t, KVMM_SWAP_OUT, ref.handle, 0));
	ASSERT_EQ(0, kt_dm_hang(false));
	EXPECT_EQ(0, kt_wait_unpinned(&self->t));
	ASSERT_EQ(0, end(self));
	EXPECT_EQ(1, events(self, "kvmm_swap_issue", " late=0 ", NULL));
	EXPECT_EQ(1, events(self, "kvmm_swap_late", " out handle=", line));
	EXPECT_LE(100000, field(line, "us"));
	EXPECT_EQ(1, events(self, "kvmm_swap_done", " err=0 late=1 ", line));
	EXPECT_LE(100000, field(line, "us"));
	ASSERT_EQ(0, hist("latency_out", count));
	EXPECT_EQ(1, sum(count));
	/* the command moved nothing that it knows of */
	ASSERT_EQ(0, hist("bytes_out", count));
	EXPECT_EQ(0, sum(count));
	EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	close(disk);
	kt_dm_end();
}

TEST_F(trace, populate)
{
	struct kvmm_pool_create spec = kt_spec(POOL, KT_BLOCK, 40, 0);
	char line[512];
	uint32_t done;

	kt_close(&self->t);
	kt_wipe();
	self->t.fd = kt_dev(O_RDWR);
	ASSERT_EQ(0, kt_ioctl(self->t.fd, KVMM_POOL_CREATE, &spec));
	strcpy(self->t.name, POOL);
	ASSERT_EQ(0, begin());
	/* a whole huge page of frames, a few more; what is there is no news */
	ASSERT_EQ(0, kt_populate(&self->t, 0, 36, &done));
	ASSERT_EQ(0, kt_populate(&self->t, 0, 36, &done));
	ASSERT_EQ(0, end(self));
	EXPECT_EQ(2, events(self, "kvmm_populate", NULL, NULL));
	EXPECT_EQ(1, events(self, "kvmm_populate", " first=0 count=32 ", line));
	EXPECT_LT(0, field(line, "us"));
	EXPECT_EQ(0, field(line, "err"));
	EXPECT_EQ(1, events(self, "kvmm_populate", " first=32 count=4 ", NULL));
}

TEST_F(trace, histograms)
{
	unsigned long long count[BUCKETS];
	struct kvmm_block_ref refs[16];
	struct kvmm_pool_stat st;
	char line[512];
	uint32_t done;
	int i, fd;

	/* one command, which found its frames at once */
	ASSERT_EQ(0, kt_store(&self->t, 1, 8, refs));
	ASSERT_EQ(0, hist("alloc_wait", count));
	EXPECT_EQ(1, count[0]);
	EXPECT_EQ(1, sum(count));
	ASSERT_EQ(0, hist("bytes_out", count));
	EXPECT_EQ(0, sum(count));

	/* a slow disk, so that times are known from below */
	fd = kt_nullb(64, 20000);
	if (fd == -ENODEV)
		SKIP(return, "no null_blk");
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, kt_attach(&self->t, fd, 0, 0, 0, NULL));
	ASSERT_EQ(4, kt_swap(&self->t, KVMM_SWAP_OUT, refs, 4,
			     KVMM_SWAP_DROP));
	ASSERT_EQ(1, kt_swap(&self->t, KVMM_SWAP_OUT, refs + 4, 1,
			     KVMM_SWAP_DROP));
	/* nothing to move is no command that moves */
	ASSERT_EQ(1, kt_swap(&self->t, KVMM_SWAP_OUT, refs + 4, 1, 0));
	ASSERT_EQ(2, kt_swap(&self->t, KVMM_SWAP_IN, refs, 2, 0));

	/* of 64 KiB = 2^16 bytes: number 17; 2^18 and 2^17 likewise */
	ASSERT_EQ(0, hist("bytes_out", count));
	EXPECT_EQ(1, count[17]);
	EXPECT_EQ(1, count[19]);
	EXPECT_EQ(2, sum(count));
	ASSERT_EQ(0, hist("bytes_in", count));
	EXPECT_EQ(1, count[18]);
	EXPECT_EQ(1, sum(count));

	ASSERT_EQ(0, kt_stat(&self->t, &st));
	EXPECT_EQ(5, st.swap_outs);
	ASSERT_EQ(0, hist("latency_out", count));
	EXPECT_EQ(5, sum(count));
	/* 20000 us are in number 15, from 16384 on */
	for (i = 0; i < 15; i++)
		EXPECT_EQ(0, count[i]);
	ASSERT_EQ(0, hist("latency_in", count));
	EXPECT_EQ(st.swap_ins, sum(count));
	for (i = 0; i < 15; i++)
		EXPECT_EQ(0, count[i]);

	/* 3 frames are free and 2 blocks CLEAN: the sixth waits for a write */
	ASSERT_EQ(0, begin());
	ASSERT_EQ(0, kt_alloc_wait(&self->t, refs + 8, 6, 30000, &done));
	ASSERT_EQ(6, done);
	ASSERT_EQ(0, end(self));
	EXPECT_EQ(1, events(self, "kvmm_alloc", NULL, line));
	EXPECT_LE(16384, field(line, "us"));
	ASSERT_EQ(0, hist("alloc_wait", count));
	EXPECT_EQ(2, sum(count));
	EXPECT_EQ(1, count[0]);
	for (i = 1; i < 15; i++)
		EXPECT_EQ(0, count[i]);
	ASSERT_EQ(0, kt_batch(&self->t, KVMM_UNPIN, refs + 8, 6, NULL));
	EXPECT_EQ(0, kt_detach(&self->t, KVMM_SWAP_DISCARD));
	close(fd);
	kt_nullb_end();
}

KT_MAIN
