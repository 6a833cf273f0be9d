// SPDX-License-Identifier: MIT
/*
 * A scheduler and its workers: the scheduler allocates and looks up, each worker
 * moves its part of the blocks, by handle.  On the user backend the workers are
 * other clients in this process; on the kernel's they are processes of their
 * own, which are killed, too.  A pool that is warm serves the next process.
 */
#include "door.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#define PARTS	2
#define N	9
#define FIRST	100
#define LAST	5	/* tokens of the last block */

extern char **environ;

/* The part's own bytes, under the keys that all parts share. */
static struct seq *part_seq(struct door *d, unsigned int part)
{
	struct seq *s = malloc(sizeof(*s));
	unsigned int i;

	seq_new(d, s, N, FIRST + part * 5000, 0);
	s->tokens = LAST;
	for (i = 0; i < N; i++)
		lt_key(s->keys[i], FIRST + i);
	return s;
}

static void open_part(struct door *d, struct kvmm_pool *pool, unsigned int part)
{
	struct kvmm_engine_opts o = { .part = part, .nr_parts = PARTS };

	door_simple(d, 3, 1, 8, 16, 1, 32);
	d->eng = door_open(d, pool, &o);
}

/* Results of all blocks must be @want. */
static void move_part(struct door *d, unsigned int part, bool out,
		      const uint64_t *handles, int want)
{
	struct seq *s = part_seq(d, part);
	struct kvmm_transfer t = seq_transfer(d, s);
	struct kvmm_block_ref refs[N];
	uint64_t job;
	unsigned int i;

	t.handles = handles;
	if (out)
		seq_fill(d, s);
	else
		seq_clear(d, s);
	assert_int_equal(out ? kvmm_offload(d->eng, &t, &job)
			     : kvmm_restore(d->eng, &t, &job), 0);
	assert_int_equal(kvmm_job_wait(d->eng, job, -1), 0);
	assert_int_equal(kvmm_job_blocks(d->eng, job, refs, N), N);
	for (i = 0; i < N; i++)
		assert_int_equal(refs[i].result, want);
	assert_int_equal(kvmm_job_end(d->eng, job), 0);
	if (!out)
		seq_check(d, s, 0, N);
	free(s);
}

/* ---- workers ---- */

/* As a process: KVMM_TEST_WORKER="WHAT PART RESULT HANDLE...". */
static char what[16];
static unsigned int my_part;
static int my_result;
static uint64_t my_handles[N];

static void as_worker(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = NULL;
	struct door d;

	door_start(&d, lt, NULL);
	assert_int_equal(kvmm_pool_open(lt->kv, "door", 0, &pool), 0);
	open_part(&d, pool, my_part);
	if (!strcmp(what, "hang")) {
		struct kvmm_block_ref refs[N] = { 0 };
		unsigned int i;

		for (i = 0; i < N; i++)
			refs[i].handle = my_handles[i];
		assert_int_equal(kvmm_pin(pool, refs, N), N);
		raise(SIGKILL);
	}
	move_part(&d, my_part, !strcmp(what, "out"), my_handles, my_result);
	kvmm_engine_close(d.eng);
	d.eng = NULL;
	kvmm_pool_close(pool);
	door_end(&d);
}

/* The first of two processes: fills a pool, and is gone. */
static void as_first(void **state)
{
	struct lt *lt = *state;
	struct seq *s;
	struct door d;

	door_start(&d, lt, NULL);
	door_simple(&d, 3, 1, 8, 16, 1, 32);
	door_pool(&d, 32, 0);
	d.eng = door_open(&d, d.pool, NULL);
	s = part_seq(&d, 0);
	seq_fill(&d, s);
	assert_int_equal(door_offload(&d, s), N);
	free(s);
	kvmm_engine_close(d.eng);
	d.eng = NULL;
	kvmm_pool_close(d.pool);
	d.pool = NULL;
	door_end(&d);
}

/* The next one: the memory is there, and so are the blocks. */
static void as_second(void **state)
{
	struct kvmm_pool_stat before, after;
	struct lt *lt = *state;
	struct kvmm_pool *pool;
	struct seq *s;
	struct door d;

	door_start(&d, lt, NULL);
	door_simple(&d, 3, 1, 8, 16, 1, 32);
	assert_int_equal(kvmm_pool_open(lt->kv, "door", 0, &pool), 0);
	before = lt_stat(pool);
	assert_int_equal(before.frames_online, before.nr_frames);
	d.eng = door_open(&d, pool, NULL);
	s = part_seq(&d, 0);
	seq_clear(&d, s);
	assert_int_equal(door_restore(&d, s), N);
	seq_check(&d, s, 0, N);
	/* storing them again costs nothing */
	assert_int_equal(door_offload(&d, s), N);
	after = lt_stat(pool);
	assert_int_equal(after.allocs, before.allocs);
	assert_int_equal(after.frames_free, before.frames_free);
	free(s);
	kvmm_engine_close(d.eng);
	d.eng = NULL;
	kvmm_pool_close(pool);
	door_end(&d);
}

/* What a worker had to say, as a comment. */
static void show(const char *path)
{
	char line[512];
	FILE *f = fopen(path, "r");

	while (f && fgets(line, sizeof(line), f))
		printf("# worker: %s", line);
	if (f)
		fclose(f);
}

/* Runs this program anew; returns its exit status, 128 + N for signal N. */
static int worker(const char *name, unsigned int part, int want,
		  const uint64_t *handles)
{
	char text[512];
	char *argv[] = { "worker", NULL };
	unsigned int i, used;
	char log[600];
	int status = 0, fd;
	pid_t pid;

	snprintf(log, sizeof(log), "%s/worker.%d", getenv("KVMM_TEST_DIR") ?
		 getenv("KVMM_TEST_DIR") : "build", (int)getpid());
	used = (unsigned int)snprintf(text, sizeof(text), "%s %u %d", name,
				      part, want);
	for (i = 0; i < N; i++)
		used += (unsigned int)snprintf(text + used, sizeof(text) - used,
					       " %llx", handles ?
					       (unsigned long long)handles[i] :
					       0ULL);
	setenv("KVMM_TEST_WORKER", text, 1);
	pid = fork();
	if (!pid) {
		/* its test lines are not ours */
		fd = open(log, O_CREAT | O_TRUNC | O_WRONLY, 0600);
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
		execve("/proc/self/exe", argv, environ);
		_exit(127);
	}
	unsetenv("KVMM_TEST_WORKER");
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status))
		show(log);
	unlink(log);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status)
				   : WEXITSTATUS(status);
}

/* ---- the scheduler ---- */

/* A worker of either kind moves its part. */
static void run_worker(struct lt *lt, unsigned int part, bool out,
		       const uint64_t *handles, int want)
{
	struct kvmm_pool *pool = NULL;
	struct door d;

	if (lt->kernel) {
		assert_int_equal(worker(out ? "out" : "in", part, want,
					handles), 0);
		return;
	}
	door_start(&d, lt, NULL);
	assert_int_equal(kvmm_pool_open(lt->kv, "door", 0, &pool), 0);
	open_part(&d, pool, part);
	move_part(&d, part, out, handles, want);
	kvmm_engine_close(d.eng);
	d.eng = NULL;
	kvmm_pool_close(pool);
	door_end(&d);
}

static void allocate(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		     uint64_t *handles)
{
	unsigned int i;

	assert_int_equal(kvmm_alloc(pool, refs, N, PARTS, 0), N);
	for (i = 0; i < N; i++)
		handles[i] = refs[i].handle;
}

static void parts(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "door", 32, 0, 0);
	struct kvmm_block_ref refs[N], found[N];
	uint8_t keys[N][KVMM_KEY_LEN];
	uint8_t want[LT_BLOCK];
	struct kvmm_key_entry e[N];
	uint64_t handles[N], cursor = 0;
	unsigned int i, p, bytes;

	for (i = 0; i < N; i++)
		lt_key(keys[i], FIRST + i);
	allocate(pool, refs, handles);
	run_worker(lt, 1, true, handles, KVMM_BLOCK_PART);
	/* half a block is no block */
	assert_int_equal(kvmm_lookup(pool, keys, found, N, 0), 0);
	run_worker(lt, 0, true, handles, KVMM_BLOCK_COPIED);
	assert_int_equal(kvmm_unpin(pool, refs, N), N);
	assert_int_equal(kvmm_lookup(pool, keys, found, N, KVMM_LOOKUP_PIN), N);

	/* the parts are side by side, also in the block that isn't full */
	assert_int_equal(kvmm_keys(pool, &cursor, e, N), N);
	for (i = 0; i < N; i++) {
		bytes = 6 * 16 * (e[i].position == N - 1 ? LAST : 8);
		assert_int_equal(e[i].length, PARTS * bytes);
	}
	for (i = 0; i < N; i++) {
		bytes = 6 * 16 * (i == N - 1 ? LAST : 8);
		for (p = 0; p < PARTS; p++) {
			lt_fill(want, FIRST + p * 5000 + i, LT_BLOCK);
			assert_memory_equal((char *)kvmm_addr(pool, &found[i]) +
						    p * bytes, want, bytes);
		}
	}
	/* restored by handle, while the scheduler holds them */
	for (p = 0; p < PARTS; p++)
		run_worker(lt, p, false, handles, 0);
	assert_int_equal(kvmm_unpin(pool, found, N), N);
	door_no_pins(pool);
	lt_end(lt, pool, "door");
}

/* A request that is given up half way leaves nothing behind. */
static void given_up(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "door", 32, 0, 0);
	struct kvmm_block_ref refs[N];
	uint64_t handles[N];

	allocate(pool, refs, handles);
	run_worker(lt, 0, true, handles, KVMM_BLOCK_PART);
	/* once more: the part was there, and nothing is harmed */
	run_worker(lt, 0, true, handles, -EALREADY);
	assert_int_equal(kvmm_unpin(pool, refs, N), N);
	door_no_pins(pool);
	/* too late for the other worker */
	run_worker(lt, 1, true, handles, -ESTALE);
	assert_int_equal(lt_stat(pool).frames_free, 32);
	lt_end(lt, pool, "door");
}

static void needs_handles(void **state)
{
	struct kvmm_transfer t;
	struct kvmm_pool *pool;
	struct seq *s;
	struct door d;
	uint64_t job;

	door_start(&d, *state, NULL);
	pool = lt_pool(d.lt, "door", 32, 0, 0);
	open_part(&d, pool, 1);
	s = part_seq(&d, 1);
	t = seq_transfer(&d, s);
	assert_fails(kvmm_offload(d.eng, &t, &job), EINVAL);
	kvmm_engine_close(d.eng);
	d.eng = NULL;
	lt_end(d.lt, pool, "door");
	door_end(&d);
	free(s);
}

/* A worker is killed with blocks in its hands; another one takes its place. */
static void worker_killed(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "door", 32, 0, 0);
	struct kvmm_block_ref refs[N];
	uint64_t handles[N];

	allocate(pool, refs, handles);
	assert_int_equal(worker("hang", 0, 0, handles), 128 + SIGKILL);
	run_worker(lt, 1, true, handles, KVMM_BLOCK_PART);
	run_worker(lt, 0, true, handles, KVMM_BLOCK_COPIED);
	assert_int_equal(kvmm_unpin(pool, refs, N), N);
	run_worker(lt, 0, false, handles, 0);
	door_no_pins(pool);
	lt_end(lt, pool, "door");
}

/* An engine is started anew on a pool that is warm: open, map, go on. */
static void warm_restart(void **state)
{
	struct lt *lt = *state;

	kvmm_pool_destroy(lt->kv, "door", KVMM_POOL_FORCE);
	assert_int_equal(worker("first", 0, 0, NULL), 0);
	assert_int_equal(worker("second", 0, 0, NULL), 0);
	assert_int_equal(worker("second", 0, 0, NULL), 0);
	assert_int_equal(kvmm_pool_destroy(lt->kv, "door", 0), 0);
}

static const struct lt_test tests[] = {
	LT_TEST(parts),
	LT_TEST(given_up),
	LT_TEST(needs_handles),
};

static const struct lt_test kernel_tests[] = {
	LT_TEST(parts),
	LT_TEST(given_up),
	LT_TEST(needs_handles),
	LT_TEST(worker_killed),
	LT_TEST(warm_restart),
};

static const struct lt_test worker_tests[] = { LT_TEST(as_worker) };
static const struct lt_test first_tests[] = { LT_TEST(as_first) };
static const struct lt_test second_tests[] = { LT_TEST(as_second) };

static int run_as(const char *text)
{
	unsigned int i;
	char *end;

	if (sscanf(text, "%15s %u %d", what, &my_part, &my_result) != 3)
		return 2;
	/* behind the three words */
	for (i = 0; i < 3; i++)
		text = strchr(text, ' ') + 1;
	for (i = 0; i < N; i++) {
		my_handles[i] = strtoull(text, &end, 16);
		text = end;
	}
	if (!strcmp(what, "first"))
		return LT_RUN("first", first_tests);
	if (!strcmp(what, "second"))
		return LT_RUN("second", second_tests);
	return LT_RUN("worker", worker_tests);
}

int main(void)
{
	const char *text = getenv("KVMM_TEST_WORKER");
	const char *backend = getenv("KVMM_TEST_BACKEND");

	if (text)
		return run_as(text);
	return backend && !strcmp(backend, "kernel") ?
		       LT_RUN("parts", kernel_tests) :
		       LT_RUN("parts", tests);
}
