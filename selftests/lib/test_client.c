// SPDX-License-Identifier: MIT
/*
 * Several clients of one pool: sharing, read-only ones, and what is left when
 * one goes.
 */
#include "lt.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static struct kvmm_pool *join(struct lt *lt, const char *name,
			      unsigned int flags)
{
	struct kvmm_pool *pool;

	assert_int_equal(kvmm_pool_open(lt->kv, name, flags, &pool), 0);
	return pool;
}

static void clients_share_blocks(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *a = lt_pool(lt, "lt-share", 8, 0, 0), *b, *c;
	struct kvmm_block_ref refs[3], found;

	b = join(lt, "lt-share", 0);
	c = join(lt, "lt-share", KVMM_POOL_RDONLY);
	assert_int_equal(lt_stat(a).nr_clients, 3);
	lt_store(a, refs, 0, 3, 0);
	assert_int_equal(lt_find(b, 1, KVMM_LOOKUP_PIN, &found), KVMM_MEMORY);
	lt_check(kvmm_addr(b, &found), 1, LT_BLOCK);
	assert_int_equal(lt_find(c, 1, KVMM_LOOKUP_PIN, &found), KVMM_MEMORY);
	lt_check(kvmm_addr(c, &found), 1, LT_BLOCK);
	/* Each has pins of its own. */
	assert_int_equal(kvmm_unpin(a, &found, 1), 0);
	assert_int_equal(found.result, -EINVAL);
	assert_int_equal(lt_stat(a).pins, 2);
	kvmm_pool_close(b);
	assert_int_equal(lt_stat(a).pins, 1);
	kvmm_pool_close(c);
	assert_int_equal(lt_stat(a).pins, 0);
	assert_int_equal(lt_stat(a).clients_dead, 2);
	lt_end(lt, a, "lt-share");
}

static void read_only_client(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *w = lt_pool(lt, "lt-ro", 8, 8,
				      KVMM_POOL_MANUAL_CLOCK);
	struct kvmm_swap_opts so = { .size = sizeof(so), .path = lt_path(lt),
				     .flags = KVMM_SWAP_CREATE };
	struct kvmm_pool *r = join(lt, "lt-ro", KVMM_POOL_RDONLY);
	struct kvmm_block_ref refs[2], filling;
	struct kvmm_publish_entry e;
	struct kvmm_key_entry ke[4];
	uint64_t cursor = 0;

	lt_attach(w, lt_path(lt), KVMM_SWAP_UNLINK);
	lt_store(w, refs, 0, 2, 0);
	assert_int_equal(kvmm_alloc(w, &filling, 1, 1, 0), 1);
	e = lt_entry(filling.handle, 9);

	assert_fails(kvmm_alloc(r, refs, 1, 1, 0), EACCES);
	assert_fails(kvmm_publish(r, &e, 1, 0), EACCES);
	assert_fails(kvmm_drop(r, refs, 1), EACCES);
	assert_fails(kvmm_pool_reset(r, NULL), EACCES);
	assert_fails(kvmm_pool_clock(r, 5), EACCES);
	assert_fails(kvmm_swap_out(r, refs, 1, 0), EACCES);
	assert_fails(kvmm_request_end(r, refs[0].handle, 1), EACCES);
	assert_fails(kvmm_hint(r, refs[0].handle, 0, 0), EACCES);
	assert_fails(kvmm_reclaim(r, 0, NULL), EACCES);
	assert_int_equal(kvmm_pin(r, &filling, 1), 0);
	assert_int_equal(filling.result, -EACCES);

	assert_int_equal(kvmm_swap_out(w, refs, 2, KVMM_SWAP_DROP), 2);
	assert_int_equal(lt_find(r, 0, 0, NULL), KVMM_SWAP);
	assert_int_equal(kvmm_swap_in(r, refs, 2, KVMM_SWAP_PIN), 2);
	lt_check(kvmm_addr(r, refs), 0, LT_BLOCK);
	assert_int_equal(kvmm_touch(r, refs, 2), 2);
	assert_int_equal(kvmm_query(r, refs, 2), 2);
	assert_int_equal(kvmm_keys(r, &cursor, ke, 4), 2);
	assert_int_equal(kvmm_unpin(r, refs, 2), 2);
	if (!lt->kernel)
		assert_fails(kvmm_swap_attach(r, &so), EACCES);
	if (!lt->kernel)
		assert_fails(kvmm_swap_detach(r, 0), EACCES);
	kvmm_pool_close(r);
	lt_end(lt, w, "lt-ro");
}

static void read_only_mapping(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *w = lt_pool(lt, "lt-romap", 2, 0, 0);
	struct kvmm_pool *r = join(lt, "lt-romap", KVMM_POOL_RDONLY);
	volatile unsigned char *mem = kvmm_pool_arena(r, NULL);
	int status;
	pid_t pid;

	assert_int_equal(*mem, 0);
	pid = fork();
	if (!pid) {
		/* cmocka's handler would go on with the tests. */
		signal(SIGSEGV, SIG_DFL);
		*mem = 1;
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(*mem, 0);
	kvmm_pool_close(r);
	lt_end(lt, w, "lt-romap");
}

static void scheduler_allocates_worker_fills(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *s = lt_pool(lt, "lt-worker", 4, 0, 0);
	struct kvmm_pool *w = join(lt, "lt-worker", 0);
	struct kvmm_publish_entry e;
	struct kvmm_block_ref ref;

	assert_int_equal(kvmm_alloc(s, &ref, 1, 2, 0), 1);
	assert_int_equal(kvmm_pin(w, &ref, 1), 1);
	lt_fill(kvmm_addr(w, &ref), 3, LT_BLOCK);
	e = lt_entry(ref.handle, 3);
	e.part = 1;
	assert_int_equal(kvmm_publish(w, &e, 1, 0), 1);
	assert_int_equal(e.result, 1);
	/* It lives on by the scheduler's pin. */
	kvmm_pool_close(w);
	e.part = 0;
	assert_int_equal(kvmm_publish(s, &e, 1, 0), 1);
	assert_int_equal(e.result, 0);
	assert_int_equal(lt_find(s, 3, 0, NULL), KVMM_MEMORY);
	lt_end(lt, s, "lt-worker");
}

static void dead_client_leaves_quarantine(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool_opts o = {
		.size = sizeof(o),
		.flags = KVMM_POOL_MANUAL_CLOCK,
		.name = "lt-dead",
		.block_size = LT_BLOCK,
		.nr_frames = 200,
		.quarantine_ms = 500,
	};
	struct kvmm_pool *a, *b;
	struct kvmm_block_ref refs[200];
	struct kvmm_pool_stat st;

	a = lt_create(lt, &o);
	b = join(lt, o.name, 0);
	assert_int_equal(kvmm_alloc(b, refs, 150, 1, 0), 150);
	/* One is held by someone else: it is not quarantined. */
	assert_int_equal(kvmm_pin(a, refs, 1), 1);
	kvmm_pool_close(b);
	st = lt_stat(a);
	assert_int_equal(st.frames_quarantined, 149);
	assert_int_equal(st.clients_dead, 1);
	assert_int_equal(st.blocks[KVMM_FILLING], 1);
	assert_int_equal(kvmm_alloc(a, refs + 1, 199, 1, 0), 50);
	assert_int_equal(kvmm_pool_clock(a, 499), 0);
	assert_true(kvmm_alloc(a, refs + 51, 1, 1, 0) < 0);
	assert_int_equal(kvmm_pool_clock(a, 500), 0);
	assert_int_equal(kvmm_alloc(a, refs + 51, 149, 1, 0), 149);
	assert_int_equal(lt_stat(a).frames_quarantined, 0);
	lt_end(lt, a, o.name);
}

static void unpublished_blocks_go_with_the_client(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *a = lt_pool(lt, "lt-gone", 100, 0, 0);
	struct kvmm_pool *b = join(lt, "lt-gone", 0);
	struct kvmm_block_ref refs[100];

	lt_store(b, refs, 0, 70, KVMM_PUBLISH_KEEP);
	assert_int_equal(kvmm_alloc(b, refs + 70, 30, 1, 0), 30);
	kvmm_pool_close(b);
	/* What was published stays, and nothing is pinned any more. */
	assert_int_equal(lt_stat(a).blocks[KVMM_RESIDENT], 70);
	assert_int_equal(lt_stat(a).blocks_pinned, 0);
	assert_int_equal(lt_stat(a).frames_free, 30);
	assert_int_equal(lt_find(a, 69, 0, NULL), KVMM_MEMORY);
	lt_end(lt, a, "lt-gone");
}

int main(void)
{
	static const struct lt_test tests[] = {
		LT_TEST(clients_share_blocks),
		LT_TEST(read_only_client),
		LT_TEST(read_only_mapping),
		LT_TEST(scheduler_allocates_worker_fills),
		LT_TEST(dead_client_leaves_quarantine),
		LT_TEST(unpublished_blocks_go_with_the_client),
	};

	return LT_RUN("client", tests);
}
