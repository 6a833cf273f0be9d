// SPDX-License-Identifier: MIT
/*
 * A swap area that fails: cut short, punched, scribbled over, full.  Whatever
 * happens, a block is right or a miss.
 */
#include "lt.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define NAME	"lt-fault"
#define N	100

/**
 * struct swapped - a pool whose blocks 0 to N - 1 are in its area only
 * @fd: the area's file
 */
struct swapped {
	struct kvmm_pool *pool;
	struct kvmm_block_ref refs[N];
	int fd;
};

static void begin(struct lt *lt, struct swapped *s, unsigned int flags)
{
	const char *path = lt_path(lt);

	s->pool = lt_pool(lt, NAME, N, N, 0);
	lt_attach(s->pool, path, flags);
	s->fd = open(path, O_RDWR);
	assert_true(s->fd >= 0);
	unlink(path);
	lt_store(s->pool, s->refs, 0, N, 0);
	assert_int_equal(kvmm_swap_out(s->pool, s->refs, N, KVMM_SWAP_DROP), N);
	memset(kvmm_pool_arena(s->pool, NULL), 0x33, N * LT_BLOCK);
}

static void end(struct lt *lt, struct swapped *s)
{
	close(s->fd);
	lt_end(lt, s->pool, NAME);
}

/* Brings all back: right or a miss.  Returns how many are lost. */
static unsigned int bring_back(struct swapped *s)
{
	unsigned int i, lost = 0;
	long good;

	good = kvmm_swap_in(s->pool, s->refs, N, KVMM_SWAP_PIN);
	for (i = 0; i < N; i++) {
		if (!s->refs[i].result) {
			lt_check(kvmm_addr(s->pool, &s->refs[i]), i, LT_BLOCK);
			continue;
		}
		assert_int_equal(s->refs[i].result, -ESTALE);
		assert_int_equal(s->refs[i].frame, KVMM_NO_FRAME);
		assert_int_equal(lt_find(s->pool, i, KVMM_LOOKUP_PEEK, NULL),
				 KVMM_MISS);
		lost++;
	}
	assert_int_equal(good, N - lost);
	/* One that failed carries no pin. */
	assert_int_equal(lt_stat(s->pool).pins, N - lost);
	return lost;
}

/* The pool goes on: what was lost can be stored and swapped again. */
static void works_again(struct swapped *s)
{
	struct kvmm_block_ref ref;
	unsigned int i;

	for (i = 0; i < N; i++)
		if (!s->refs[i].result)
			assert_int_equal(kvmm_unpin(s->pool, &s->refs[i], 1),
					 1);
	lt_store(s->pool, &ref, 1000, 1, 0);
	assert_int_equal(kvmm_swap_out(s->pool, &ref, 1, KVMM_SWAP_DROP), 1);
	assert_int_equal(kvmm_swap_in(s->pool, &ref, 1, KVMM_SWAP_PIN), 1);
	lt_check(kvmm_addr(s->pool, &ref), 1000, LT_BLOCK);
}

static void cut_short(void **state)
{
	struct lt *lt = *state;
	struct swapped s;

	begin(lt, &s, 0);
	/* In the middle of a slot. */
	assert_int_equal(ftruncate(s.fd, 30 * LT_BLOCK + 4096), 0);
	assert_int_equal(bring_back(&s), N - 30);
	assert_int_equal(lt_stat(s.pool).read_errors, N - 30);
	works_again(&s);
	end(lt, &s);
}

static void cut_short_without_checksums(void **state)
{
	struct lt *lt = *state;
	struct swapped s;

	begin(lt, &s, KVMM_SWAP_NO_CHECKSUM);
	assert_int_equal(ftruncate(s.fd, 30 * LT_BLOCK + 4096), 0);
	assert_int_equal(bring_back(&s), N - 30);
	end(lt, &s);
}

static void punched(void **state)
{
	struct lt *lt = *state;
	struct swapped s;

	begin(lt, &s, 0);
	assert_int_equal(fallocate(s.fd, FALLOC_FL_PUNCH_HOLE |
				   FALLOC_FL_KEEP_SIZE, 10 * LT_BLOCK,
				   5 * LT_BLOCK), 0);
	assert_int_equal(bring_back(&s), 5);
	assert_int_equal(lt_stat(s.pool).checksum_errors, 5);
	works_again(&s);
	end(lt, &s);
}

static void scribbled(void **state)
{
	struct lt *lt = *state;
	struct swapped s;
	unsigned int i;

	begin(lt, &s, 0);
	/* One bit in every tenth slot, the first and the last byte included. */
	for (i = 0; i < N; i += 10) {
		off_t at = (off_t)i * LT_BLOCK + (i == 0 ? 0 :
						  i == 10 ? LT_BLOCK - 1
							  : i * 601);
		unsigned char c;

		assert_int_equal(pread(s.fd, &c, 1, at), 1);
		c ^= 1;
		assert_int_equal(pwrite(s.fd, &c, 1, at), 1);
	}
	assert_int_equal(fsync(s.fd), 0);
	assert_int_equal(bring_back(&s), N / 10);
	assert_int_equal(lt_stat(s.pool).checksum_errors, N / 10);
	works_again(&s);
	end(lt, &s);
}

static void slots_exchanged(void **state)
{
	static unsigned char a[LT_BLOCK], b[LT_BLOCK];
	struct lt *lt = *state;
	struct swapped s;

	begin(lt, &s, 0);
	assert_int_equal(pread(s.fd, a, sizeof(a), 0), sizeof(a));
	assert_int_equal(pread(s.fd, b, sizeof(b), LT_BLOCK), sizeof(b));
	assert_int_equal(pwrite(s.fd, b, sizeof(b), 0), sizeof(b));
	assert_int_equal(pwrite(s.fd, a, sizeof(a), LT_BLOCK), sizeof(a));
	assert_int_equal(fsync(s.fd), 0);
	assert_int_equal(bring_back(&s), 2);
	end(lt, &s);
}

static void lost_blocks_leave_waiters_alone(void **state)
{
	struct lt *lt = *state;
	struct kvmm_block_ref twice[2];
	struct swapped s;

	begin(lt, &s, 0);
	assert_int_equal(ftruncate(s.fd, 0), 0);
	/* The second joins the read of the first, and fails with it. */
	twice[0] = s.refs[0];
	twice[1] = s.refs[0];
	assert_int_equal(kvmm_swap_in(s.pool, twice, 2, KVMM_SWAP_PIN), 0);
	assert_int_equal(twice[0].result, -ESTALE);
	assert_int_equal(twice[1].result, -ESTALE);
	assert_int_equal(lt_stat(s.pool).pins, 0);
	end(lt, &s);
}

/*
 * Writes beyond the limit fail with EFBIG, as they would with ENOSPC on a full
 * disk: stores stop, nothing is lost, and what was written can be read.
 */
static void writes_fail(void **state)
{
	struct rlimit old, low;
	struct lt *lt = *state;
	struct kvmm_block_ref refs[N];
	struct kvmm_pool *pool = lt_pool(lt, NAME, N, 2 * N, 0);
	struct kvmm_event ev[2];
	struct kvmm_pool_stat st;
	struct kvmm_reclaim rc;
	long out, again;
	unsigned int i, good = 0;
	int err;

	lt_attach(pool, lt_path(lt), KVMM_SWAP_UNLINK);
	assert_int_equal(kvmm_events(pool, 1 << KVMM_EVENT_DEGRADED, 0), 0);
	lt_store(pool, refs, 0, N, 0);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	low = old;
	low.rlim_cur = 20 * LT_BLOCK;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
	out = kvmm_swap_out(pool, refs, N, 0);
	again = kvmm_swap_out(pool, refs + N - 1, 1, 0);
	setrlimit(RLIMIT_FSIZE, &old);
	signal(SIGXFSZ, SIG_DFL);
	assert_int_equal(out, 20);
	assert_int_equal(again, 0);
	for (i = 0; i < N; i++) {
		if (!refs[i].result)
			good++;
		else
			assert_int_equal(refs[i].result, -EIO);
	}
	assert_int_equal(good, 20);
	st = lt_stat(pool);
	assert_int_equal(st.degraded, 1);
	/* told once, however many writes failed */
	assert_int_equal(kvmm_event_read(pool, ev, 2, 0), 1);
	assert_int_equal(ev[0].type, KVMM_EVENT_DEGRADED);
	assert_int_equal(ev[0].value, EFBIG);
	assert_true(st.write_errors >= 1);
	assert_int_equal(st.blocks[KVMM_CLEAN], 20);
	assert_int_equal(st.blocks[KVMM_RESIDENT], N - 20);
	for (i = 0; i < N; i++)
		lt_check(kvmm_addr(pool, &refs[i]), i, LT_BLOCK);
	/* What was written can leave memory and come back; the rest goes. */
	err = kvmm_reclaim(pool, 0, &rc);
	assert_int_equal(err, 0);
	assert_int_equal(rc.evicted, 20);
	assert_int_equal(rc.purged, N - 20);
	for (i = 0; i < N; i++) {
		if (refs[i].result)
			continue;
		assert_int_equal(kvmm_swap_in(pool, &refs[i], 1,
					      KVMM_SWAP_PIN), 1);
		lt_check(kvmm_addr(pool, &refs[i]), i, LT_BLOCK);
	}
	/* A new area ends it. */
	assert_int_equal(kvmm_swap_detach(pool, KVMM_SWAP_DISCARD), 0);
	lt_attach(pool, lt_path(lt), KVMM_SWAP_UNLINK);
	assert_int_equal(lt_stat(pool).degraded, 0);
	lt_store(pool, refs, 500, 1, 0);
	assert_int_equal(kvmm_swap_out(pool, refs, 1, 0), 1);
	lt_end(lt, pool, NAME);
}

static void writes_fail_while_making_room(void **state)
{
	struct rlimit old, low;
	struct lt *lt = *state;
	struct kvmm_block_ref refs[N];
	struct kvmm_pool *pool = lt_pool(lt, NAME, N, 2 * N, 0);
	struct kvmm_reclaim rc;
	long got;
	int err;

	lt_attach(pool, lt_path(lt), KVMM_SWAP_UNLINK);
	lt_store(pool, refs, 0, N, 0);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	low = old;
	low.rlim_cur = LT_BLOCK;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
	/* It ends: what can't be written makes room by being lost. */
	got = kvmm_alloc(pool, refs, N, 1, 20000);
	err = kvmm_reclaim(pool, 0, &rc);
	setrlimit(RLIMIT_FSIZE, &old);
	signal(SIGXFSZ, SIG_DFL);
	assert_int_equal(got, N);
	assert_int_equal(err, 0);
	assert_int_equal(lt_stat(pool).degraded, 1);
	lt_end(lt, pool, NAME);
}

static void data_changed_behind_its_back(void **state)
{
	struct lt *lt = *state;
	struct kvmm_block_ref ref;
	struct swapped s;
	unsigned char *mem;

	/* A client that breaks the rule loses the block, and no other. */
	begin(lt, &s, 0);
	assert_int_equal(kvmm_swap_in(s.pool, s.refs, 1, KVMM_SWAP_PIN), 1);
	mem = kvmm_addr(s.pool, s.refs);
	mem[100] ^= 1;
	assert_int_equal(kvmm_unpin(s.pool, s.refs, 1), 1);
	/* It is clean: the area's copy counts. */
	assert_int_equal(kvmm_swap_out(s.pool, s.refs, 1, KVMM_SWAP_DROP), 1);
	ref = s.refs[0];
	assert_int_equal(kvmm_swap_in(s.pool, &ref, 1, KVMM_SWAP_PIN), 1);
	lt_check(kvmm_addr(s.pool, &ref), 0, LT_BLOCK);
	end(lt, &s);
}

int main(void)
{
	static const struct lt_test tests[] = {
		LT_TEST(cut_short),
		LT_TEST(cut_short_without_checksums),
		LT_TEST(punched),
		LT_TEST(scribbled),
		LT_TEST(slots_exchanged),
		LT_TEST(lost_blocks_leave_waiters_alone),
		LT_TEST_ON(writes_fail, LT_USER),
		LT_TEST_ON(writes_fail_while_making_room, LT_USER),
		LT_TEST(data_changed_behind_its_back),
	};

	return LT_RUN("fault", tests);
}
