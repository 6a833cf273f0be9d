// SPDX-License-Identifier: MIT
/*
 * Several threads do everything at once to one pool, through clients of their
 * own and shared ones, while it swaps and is looked at.  Every byte of every
 * block that is found is checked; counters must add up at the end.
 */
#include "lt.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NAME		"lt-stress"
#define FRAMES		160
#define SLOTS		300
#define IDS		600
#define BATCH		24
#define NR_THREADS	4
#define BLOCK		8192u

struct shared {
	struct lt *lt;
	unsigned int seconds;
	struct kvmm_pool *common;
};

struct worker {
	struct shared *sh;
	unsigned int no;
	uint64_t seed;
	uint64_t checked;
	uint64_t stored;
	bool bad;
	pthread_t thread;
};

static uint64_t rnd(struct worker *w)
{
	w->seed ^= w->seed << 13;
	w->seed ^= w->seed >> 7;
	w->seed ^= w->seed << 17;
	return w->seed;
}

static uint64_t word(uint64_t id, unsigned int i)
{
	return (id + 1) * 0x9e3779b97f4a7c15ULL + i;
}

static void check(struct worker *w, struct kvmm_pool *pool,
		  const struct kvmm_block_ref *ref, uint64_t id)
{
	const uint64_t *p = kvmm_addr(pool, ref);
	unsigned int i;

	if (!p) {
		w->bad = true;
		return;
	}
	for (i = 0; i < BLOCK / 8; i++)
		if (p[i] != word(id, i))
			w->bad = true;
	w->checked++;
}

/* A request: find a run of ids, bring back what is out, store the rest. */
static void request(struct worker *w, struct kvmm_pool *pool)
{
	struct kvmm_block_ref refs[BATCH], in[BATCH], new[BATCH];
	struct kvmm_publish_entry e[BATCH];
	uint64_t first = rnd(w) % (IDS - BATCH), in_id[BATCH];
	uint8_t keys[BATCH][KVMM_KEY_LEN];
	unsigned int i, k, n = 0, out = 0;
	long got;

	for (i = 0; i < BATCH; i++)
		lt_key(keys[i], first + i);
	if (kvmm_lookup(pool, keys, refs, BATCH, KVMM_LOOKUP_PIN) < 0) {
		w->bad = true;
		return;
	}
	for (i = 0; i < BATCH; i++) {
		if (refs[i].result == KVMM_MEMORY) {
			check(w, pool, &refs[i], first + i);
			if (kvmm_unpin(pool, &refs[i], 1) != 1)
				w->bad = true;
		} else if (refs[i].result == KVMM_SWAP ||
			   refs[i].result == KVMM_PENDING) {
			/* A pending one is pinned already. */
			in[out] = refs[i];
			in_id[out++] = first + i;
		}
	}
	if (out) {
		struct kvmm_block_ref was[BATCH];

		memcpy(was, in, sizeof(was));
		kvmm_swap_in(pool, in, out, KVMM_SWAP_PIN);
		for (i = 0; i < out; i++) {
			if (!in[i].result) {
				check(w, pool, &in[i], in_id[i]);
				kvmm_unpin(pool, &in[i], 1);
			}
			if (was[i].result == KVMM_PENDING)
				kvmm_unpin(pool, &was[i], 1);
		}
	}
	for (i = 0; i < BATCH; i++)
		n += refs[i].result == KVMM_MISS;
	if (!n)
		return;
	got = kvmm_alloc(pool, new, n, 1, rnd(w) % 2 ? 1000 : 0);
	for (i = 0, k = 0; i < BATCH && (long)k < got; i++) {
		uint64_t *p;
		unsigned int j;

		if (refs[i].result != KVMM_MISS)
			continue;
		p = kvmm_addr(pool, &new[k]);
		for (j = 0; j < BLOCK / 8; j++)
			p[j] = word(first + i, j);
		e[k] = lt_entry(new[k].handle, first + i);
		e[k].length = BLOCK;
		k++;
	}
	if (k && kvmm_publish(pool, e, k, 0) < 0)
		w->bad = true;
	for (i = 0; i < k; i++)
		/* A reset came in between: it stays ours. */
		if (e[i].result < 0 && e[i].result != -EEXIST &&
		    kvmm_unpin(pool, &new[i], 1) != 1)
			w->bad = true;
	w->stored += k;
}

static void disturb(struct worker *w, struct kvmm_pool *pool)
{
	struct kvmm_key_entry ke[BATCH];
	struct kvmm_block_ref refs[BATCH];
	struct kvmm_pool_stat st;
	struct kvmm_reclaim rc;
	uint64_t cursor = rnd(w) % (FRAMES + SLOTS);
	long n, i;

	n = kvmm_keys(pool, &cursor, ke, BATCH);
	for (i = 0; i < n; i++)
		refs[i].handle = ke[i].handle;
	switch (rnd(w) % 8) {
	case 0:
	case 1:
		if (n > 0)
			kvmm_swap_out(pool, refs, n, KVMM_SWAP_DROP);
		break;
	case 2:
		if (n > 0)
			kvmm_swap_out(pool, refs, n, 0);
		break;
	case 3:
		kvmm_reclaim(pool, FRAMES / 2 + rnd(w) % (FRAMES / 2), &rc);
		break;
	case 4:
		if (n > 2)
			kvmm_drop(pool, refs, 2);
		break;
	case 5:
		if (n > 0)
			kvmm_touch(pool, refs, n);
		break;
	case 6:
		if (n > 0) {
			kvmm_request_end(pool, refs[0].handle, 1);
			kvmm_hint(pool, refs[0].handle, 0, 0);
		}
		break;
	default:
		kvmm_pool_stat(pool, &st);
		if (!(rnd(w) % 16))
			kvmm_pool_reset(pool, NULL);
	}
}

/* Clients come and go, some with pins and blocks half filled. */
static void *work(void *arg)
{
	struct worker *w = arg;
	struct shared *sh = w->sh;
	time_t end = time(NULL) + sh->seconds;
	struct kvmm_block_ref left[4];
	struct kvmm_pool *own = NULL;
	unsigned int n = 0;

	/* A slow machine gets something done, too. */
	while ((time(NULL) < end || n < 100) && !w->bad) {
		if (!own && kvmm_pool_open(sh->lt->kv, NAME, 0, &own)) {
			w->bad = true;
			break;
		}
		request(w, rnd(w) % 3 ? own : sh->common);
		if (w->no & 1)
			disturb(w, rnd(w) % 3 ? own : sh->common);
		if (++n % 64 == 0) {
			kvmm_alloc(own, left, 4, 1, 0);
			kvmm_pool_close(own);
			own = NULL;
		}
	}
	kvmm_pool_close(own);
	return NULL;
}

static void *reattach(void *arg)
{
	struct worker *w = arg;
	struct shared *sh = w->sh;
	time_t end = time(NULL) + sh->seconds;
	char path[512];

	snprintf(path, sizeof(path), "%s/lib-stress.%d", sh->lt->dir,
		 (int)getpid());
	while (time(NULL) < end) {
		struct timespec pause = { .tv_nsec = 50000000 };
		struct kvmm_swap_opts so = {
			.size = sizeof(so),
			.flags = KVMM_SWAP_CREATE | KVMM_SWAP_UNLINK,
			.path = path,
		};

		nanosleep(&pause, NULL);
		if (kvmm_swap_detach(sh->common, KVMM_SWAP_DISCARD))
			w->bad = true;
		if (kvmm_swap_attach(sh->common, &so) != SLOTS)
			w->bad = true;
	}
	return NULL;
}

static unsigned int seconds(void)
{
	const char *s = getenv("KVMM_TEST_SECONDS");

	return s ? (unsigned int)atoi(s) : 3;
}

static void stress(struct lt *lt, bool with_reattach)
{
	struct shared sh = { .lt = lt, .seconds = seconds() };
	struct worker w[NR_THREADS + 1] = { 0 };
	struct kvmm_pool_opts o = {
		.size = sizeof(o),
		.name = NAME,
		.block_size = BLOCK,
		.nr_frames = FRAMES,
		.nr_slots = SLOTS,
	};
	struct kvmm_pool_stat st;
	uint64_t checked = 0, stored = 0;
	unsigned int i, n = NR_THREADS + with_reattach;
	struct kvmm_reclaim rc;

	sh.common = lt_create(lt, &o);
	lt_attach(sh.common, lt_path(lt), KVMM_SWAP_UNLINK);
	for (i = 0; i < n; i++) {
		w[i].sh = &sh;
		w[i].no = i;
		w[i].seed = 88172645463325252ULL + i * 7919;
		assert_int_equal(pthread_create(&w[i].thread, NULL,
						i < NR_THREADS ? work
							       : reattach,
						&w[i]), 0);
	}
	for (i = 0; i < n; i++) {
		pthread_join(w[i].thread, NULL);
		assert_false(w[i].bad);
		checked += w[i].checked;
		stored += w[i].stored;
	}
	assert_true(checked > 0);
	assert_true(stored > 0);
	/* Nothing is left pinned or half done. */
	assert_int_equal(kvmm_reclaim(sh.common, 0, &rc), 0);
	st = lt_stat(sh.common);
	assert_int_equal(st.pins, 0);
	assert_int_equal(st.nr_clients, 1);
	assert_int_equal(st.blocks[KVMM_FILLING], 0);
	assert_int_equal(st.blocks[KVMM_WRITING], 0);
	assert_int_equal(st.blocks[KVMM_READING], 0);
	assert_int_equal(st.frames_free + st.frames_quarantined, FRAMES);
	/* An area that goes all the time may take all that was in it along. */
	if (!with_reattach) {
		assert_true(st.swap_outs > 0);
		assert_true(st.swap_ins > 0);
	}
	assert_int_equal(st.read_errors + st.write_errors +
			 st.checksum_errors, 0);
	lt_end(lt, sh.common, NAME);
}

static void threads_share_a_pool(void **state)
{
	stress(*state, false);
}

static void area_comes_and_goes_meanwhile(void **state)
{
	stress(*state, true);
}

/**
 * struct same - threads that all want the same blocks
 */
struct same {
	struct kvmm_pool *pool;
	struct kvmm_block_ref refs[64];
	pthread_barrier_t barrier;
};

static void *bring_in_same(void *arg)
{
	struct same *s = arg;
	struct kvmm_block_ref refs[64];
	long wrong = 0;
	unsigned int round, i;

	for (round = 0; round < 20; round++) {
		memcpy(refs, s->refs, sizeof(refs));
		pthread_barrier_wait(&s->barrier);
		if (kvmm_swap_in(s->pool, refs, 64, KVMM_SWAP_PIN) != 64)
			wrong++;
		for (i = 0; i < 64; i++) {
			const uint64_t *p = kvmm_addr(s->pool, &refs[i]);

			wrong += !p || p[0] != word(i, 0) ||
				 p[BLOCK / 8 - 1] != word(i, BLOCK / 8 - 1);
		}
		if (kvmm_unpin(s->pool, refs, 64) != 64)
			wrong++;
		pthread_barrier_wait(&s->barrier);
		memcpy(refs, s->refs, sizeof(refs));
		/* All at once again: the same writes, joined. */
		if (kvmm_swap_out(s->pool, refs, 64, KVMM_SWAP_DROP) != 64)
			wrong++;
		pthread_barrier_wait(&s->barrier);
		memcpy(refs, s->refs, sizeof(refs));
		kvmm_swap_out(s->pool, refs, 64, KVMM_SWAP_DROP);
		pthread_barrier_wait(&s->barrier);
	}
	return (void *)wrong;
}

static void reads_are_joined(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool_opts o = {
		.size = sizeof(o),
		.name = NAME,
		.block_size = BLOCK,
		.nr_frames = 64,
		.nr_slots = 64,
	};
	struct kvmm_publish_entry e[64];
	pthread_t thread[NR_THREADS];
	struct same s;
	unsigned int i, j;
	void *wrong;

	s.pool = lt_create(lt, &o);
	lt_attach(s.pool, lt_path(lt), KVMM_SWAP_UNLINK);
	assert_int_equal(kvmm_alloc(s.pool, s.refs, 64, 1, 0), 64);
	for (i = 0; i < 64; i++) {
		uint64_t *p = kvmm_addr(s.pool, &s.refs[i]);

		for (j = 0; j < BLOCK / 8; j++)
			p[j] = word(i, j);
		e[i] = lt_entry(s.refs[i].handle, i);
		e[i].length = BLOCK;
	}
	assert_int_equal(kvmm_publish(s.pool, e, 64, 0), 64);
	assert_int_equal(kvmm_swap_out(s.pool, s.refs, 64, KVMM_SWAP_DROP),
			 64);
	pthread_barrier_init(&s.barrier, NULL, NR_THREADS);
	for (i = 0; i < NR_THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL,
						bring_in_same, &s), 0);
	for (i = 0; i < NR_THREADS; i++) {
		pthread_join(thread[i], &wrong);
		assert_int_equal((long)wrong, 0);
	}
	pthread_barrier_destroy(&s.barrier);
	/* Each block was read once a round, whoever asked. */
	assert_int_equal(lt_stat(s.pool).swap_ins, 64 * 20);
	assert_int_equal(lt_stat(s.pool).pins, 0);
	lt_end(lt, s.pool, NAME);
}

int main(void)
{
	static const struct lt_test tests[] = {
		LT_TEST(threads_share_a_pool),
		LT_TEST(area_comes_and_goes_meanwhile),
		LT_TEST(reads_are_joined),
	};

	return LT_RUN("stress", tests);
}
