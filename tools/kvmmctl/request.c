// SPDX-License-Identifier: MIT
/*
 * One request: find the longest prefix, bring back what is swapped out, check
 * every byte of it, store the rest, and let go.
 */
#include "content.h"
#include "key.h"
#include "replay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TOLD_MAX	5	/* corrupt blocks that are described */
#define ALLOC_WAIT_MS	10000

/**
 * struct replayer - scratch of one replay, each array with room for the
 * longest request; refs, held and where have an entry for each block of it
 * @keys: of the request's blocks
 * @refs: the blocks; handle 0 where there is none
 * @held: this client has a pin on it
 * @where: what the lookup said
 * @some: blocks of one command
 * @index: which block each entry of @some is
 * @entries: blocks being published
 * @found: length of the prefix that was found and is in memory
 */
struct replayer {
	struct kvmm_pool *pool;
	const struct replay_opts *opts;
	struct replay_result *res;
	struct kvmm_keyer *km;
	uint8_t *keys;
	struct kvmm_block_ref *refs;
	bool *held;
	uint8_t *where;
	struct kvmm_block_ref *some;
	uint32_t *index;
	struct kvmm_publish_entry *entries;
	unsigned int found;
};

struct replayer *replayer_new(struct kvmm_pool *pool,
			      const struct replay_opts *opts,
			      unsigned int longest, struct replay_result *res)
{
	struct replayer *rp = calloc(1, sizeof(*rp));
	size_t n = longest ? longest : 1;

	if (!rp)
		return NULL;
	rp->pool = pool;
	rp->opts = opts;
	rp->res = res;
	if (key_maker_new(&rp->km))
		rp->km = NULL;
	rp->keys = calloc(n, KVMM_KEY_LEN);
	rp->refs = calloc(n, sizeof(*rp->refs));
	rp->held = calloc(n, sizeof(*rp->held));
	rp->where = calloc(n, sizeof(*rp->where));
	rp->some = calloc(n, sizeof(*rp->some));
	rp->index = calloc(n, sizeof(*rp->index));
	rp->entries = calloc(n, sizeof(*rp->entries));
	if (rp->km && rp->keys && rp->refs && rp->held && rp->where &&
	    rp->some && rp->index && rp->entries)
		return rp;
	replayer_free(rp);
	return NULL;
}

void replayer_free(struct replayer *rp)
{
	if (!rp)
		return;
	kvmm_keyer_free(rp->km);
	free(rp->keys);
	free(rp->refs);
	free(rp->held);
	free(rp->where);
	free(rp->some);
	free(rp->index);
	free(rp->entries);
	free(rp);
}

static int broken(const char *what, long rc)
{
	return fail("%s failed: %s", what, strerror((int)-rc));
}

/* Bring back what the prefix has in the area; the first loss ends it. */
static int bring_back(struct replayer *rp)
{
	unsigned int n = 0;
	long rc;

	for (unsigned int i = 0; i < rp->found; i++) {
		if (rp->where[i] == KVMM_MEMORY)
			continue;
		rp->some[n] = rp->refs[i];
		rp->index[n++] = i;
	}
	if (!n)
		return 0;
	rc = kvmm_swap_in(rp->pool, rp->some, n, KVMM_SWAP_PIN);
	if (rc < 0)
		return broken("swap-in", rc);
	for (unsigned int k = 0; k < n; k++) {
		unsigned int i = rp->index[k];

		if (rp->some[k].result >= 0) {
			rp->refs[i] = rp->some[k];
			/* a block met PENDING carries two pins then */
			if (rp->held[i] &&
			    kvmm_unpin(rp->pool, &rp->some[k], 1) != 1)
				return fail("a pin of a block is gone");
			rp->held[i] = true;
		} else {
			rp->refs[i].handle = 0;
			rp->held[i] = false;
			if (i < rp->found)
				rp->found = i;
		}
	}
	return 0;
}

static int find(struct replayer *rp, unsigned int n)
{
	long rc = kvmm_lookup(rp->pool, rp->keys, rp->refs, n,
			      KVMM_LOOKUP_PIN | KVMM_LOOKUP_PREFIX);

	if (rc < 0)
		return broken("lookup", rc);
	rp->found = (unsigned int)rc;
	for (unsigned int i = 0; i < n; i++) {
		int r = rp->refs[i].result;

		rp->held[i] = r == KVMM_MEMORY || r == KVMM_PENDING;
		rp->where[i] = r < 0 ? KVMM_MISS : (uint8_t)r;
		if (rp->where[i] == KVMM_MISS) {
			rp->refs[i].handle = 0;
			if (i < rp->found)
				rp->found = i;
		}
	}
	return bring_back(rp);
}

static int check(struct replayer *rp, const uint64_t *ids)
{
	struct replay_result *res = rp->res;
	struct content_error err;

	for (unsigned int i = 0; i < rp->found; i++) {
		const void *data = kvmm_addr(rp->pool, &rp->refs[i]);

		if (!data)
			return fail("a pinned block has no address");
		if (rp->where[i] == KVMM_MEMORY)
			res->hits_memory++;
		else
			res->hits_swap++;
		if (content_check(data, rp->opts->block_size, ids[i], &err))
			continue;
		if (res->corrupt++ >= TOLD_MAX)
			continue;
		note("corrupt: request %" PRIu64 ", block %u, id %" PRIu64
		     ", from %s: byte %zu: expected %016" PRIx64 ", got %016"
		     PRIx64, res->requests + 1, i, ids[i],
		     rp->where[i] == KVMM_MEMORY ? "memory" : "swap",
		     err.offset, err.expected, err.got);
	}
	return 0;
}

/* Get frames for the blocks that are missing; returns how many were had. */
static long get_frames(struct replayer *rp, unsigned int want)
{
	unsigned int have = 0;
	long rc;

	while (have < want) {
		rc = kvmm_alloc(rp->pool, rp->some + have, want - have, 1,
				ALLOC_WAIT_MS);
		if (rc > 0) {
			have += (unsigned int)rc;
			continue;
		}
		if (rc == -EINTR && !signal_seen())
			continue;
		if (rc == -ENOSPC || rc == -EAGAIN || rc == -ETIMEDOUT ||
		    rc == -ENOBUFS || rc == -EINTR)
			break;
		return rc;
	}
	return have;
}

/* What became of each entry; a block without a place is given up. */
static int after_publish(struct replayer *rp, unsigned int n)
{
	struct replay_result *res = rp->res;

	for (unsigned int k = 0; k < n; k++) {
		const struct kvmm_publish_entry *e = &rp->entries[k];
		struct kvmm_block_ref *ref = &rp->refs[rp->index[k]];

		ref->handle = 0;
		if (e->result == 0) {
			ref->handle = e->handle;
			res->stored++;
		} else if (e->result == -EEXIST) {
			ref->handle = e->existing;
			res->present++;
		} else if (e->result == -ENOBUFS || e->result == -ESTALE) {
			kvmm_unpin(rp->pool, &rp->some[k], 1);
			res->unstored++;
		} else {
			return broken("publish", e->result);
		}
	}
	return 0;
}

static int store(struct replayer *rp, unsigned int n, const uint64_t *ids)
{
	unsigned int want = 0;
	long have, rc;

	for (unsigned int i = rp->found; i < n; i++) {
		if (!rp->held[i])
			rp->index[want++] = i;
	}
	if (!want)
		return 0;
	have = get_frames(rp, want);
	if (have < 0)
		return broken("alloc", have);
	rp->res->unstored += want - (unsigned int)have;
	if (!have)
		return 0;
	for (unsigned int k = 0; k < have; k++) {
		unsigned int i = rp->index[k];
		void *data = kvmm_addr(rp->pool, &rp->some[k]);

		if (!data)
			return fail("a new block has no address");
		content_fill(data, rp->opts->block_size, ids[i]);
		rp->refs[i] = rp->some[k];
		rp->entries[k] = (struct kvmm_publish_entry){
			.handle = rp->some[k].handle,
			.parent = i ? rp->refs[i - 1].handle : 0,
			.position = i,
			.length = rp->opts->block_size,
			.expiry_ms = rp->opts->expiry_ms,
		};
		memcpy(rp->entries[k].key, rp->keys + (size_t)i * KVMM_KEY_LEN,
		       KVMM_KEY_LEN);
	}
	rc = kvmm_publish(rp->pool, rp->entries, (unsigned int)have, 0);
	if (rc < 0)
		return broken("publish", rc);
	return after_publish(rp, (unsigned int)have);
}

/*
 * Let go of the blocks, then age them: the deepest is the oldest, so a prefix
 * outlives its extensions.  The end of the request does that by the blocks'
 * parents; where a block came back behind a gap, the parents of those that had
 * stayed are gone, so the chain is also touched as it is known here.
 */
static int let_go(struct replayer *rp, unsigned int n, uint32_t output_tokens)
{
	unsigned int nr = 0;
	long rc;

	for (unsigned int i = 0; i < n; i++) {
		if (rp->held[i])
			rp->some[nr++] = rp->refs[i];
	}
	if (nr) {
		rc = kvmm_unpin(rp->pool, rp->some, nr);
		if (rc < 0)
			return broken("unpin", rc);
		if (rc != nr)
			return fail("only %ld of %u pins were there to drop",
				    rc, nr);
	}
	nr = 0;
	for (unsigned int i = 0; i < n; i++) {
		if (rp->refs[i].handle)
			rp->some[nr++] = rp->refs[i];
	}
	if (!nr)
		return 0;
	rc = kvmm_request_end(rp->pool, rp->some[nr - 1].handle,
			      output_tokens);
	if (rc < 0 && rc != -ESTALE)
		return broken("request end", rc);
	/* one command takes so many: the deepest go first, as the oldest */
	while (nr) {
		unsigned int part = nr % KVMM_MAX_BATCH;

		if (!part)
			part = KVMM_MAX_BATCH;
		nr -= part;
		rc = kvmm_touch(rp->pool, rp->some + nr, part);
		if (rc < 0)
			return broken("touch", rc);
	}
	return 0;
}

static int reclaim(struct replayer *rp)
{
	struct kvmm_reclaim r;
	int rc;

	do {
		rc = kvmm_reclaim(rp->pool, rp->opts->frames, &r);
	} while (rc == -EINTR && !signal_seen());
	if (rc == -EINTR)
		return 0;
	if (rc)
		return broken("reclaim", rc);
	if (r.in_use > rp->opts->frames)
		return fail("the pool keeps %u frames where %u were asked for",
			    r.in_use, rp->opts->frames);
	return 0;
}

int replayer_request(struct replayer *rp, const struct request *req,
		     const uint64_t *ids)
{
	if (!req->nr)
		return 0;
	if (key_chain(rp->km, ids, req->nr, rp->keys))
		return fail("can't compute SHA-256");
	if (find(rp, req->nr) || check(rp, ids) || store(rp, req->nr, ids) ||
	    let_go(rp, req->nr, req->output_tokens))
		return EXIT_ERROR;
	rp->res->blocks += req->nr;
	return reclaim(rp);
}
