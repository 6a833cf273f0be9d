// SPDX-License-Identifier: MIT
/*
 * The pool's memory that the device can reach: registered piece by piece.
 *
 * Memory that may be given back to the system must not be registered behind its
 * back: each chunk is leased first.  One that is asked back is unregistered, and
 * its lease ended, as soon as no copy uses it, and is had again when it is
 * needed.
 */
#include "engine.h"

#include <stdlib.h>

/* Memory registered at once where some of it is not online yet. */
#define SMALL_PIECE	(2UL << 20)

static void *piece_addr(const struct kvmm_engine *eng, unsigned int piece,
			size_t *bytes)
{
	struct kvmm_pool *pool = eng->pool;
	unsigned int first = piece * eng->piece_frames;
	unsigned int count = pool->nr_frames - first;

	if (count > eng->piece_frames)
		count = eng->piece_frames;
	*bytes = (size_t)count << pool->block_shift;
	return (char *)pool->arena + ((size_t)first << pool->block_shift);
}

/* A piece is a chunk of the pool. */
static int piece_lease(struct kvmm_pool *pool, unsigned int piece,
		       unsigned int flags)
{
	long n = kvmm_lease(pool, piece, 1, flags);

	return n < 0 ? (int)n : 0;
}

/*
 * An arena that may only be read is registered for that.  A device that can't
 * do so, but reaches memory that is not registered, reads it as it is.
 */
static int reg_piece(struct kvmm_engine *eng, void *addr, size_t bytes)
{
	struct kvmm_gpu_info info;
	int err;

	if (!eng->pool->rdonly)
		return kvmm_gpu_register(eng->gpu, addr, bytes);
	err = kvmm_gpu_register_rdonly(eng->gpu, addr, bytes);
	if (err != -EOPNOTSUPP)
		return err;
	kvmm_gpu_info(eng->gpu, &info);
	return info.pageable == KVMM_GPU_PAGEABLE_NONE ? err : 0;
}

/* Caller holds reg_lock, here and below. */
static int reach_piece(struct kvmm_engine *eng, unsigned int piece)
{
	struct kvmm_pool *pool = eng->pool;
	char why[256];
	size_t bytes;
	void *addr = piece_addr(eng, piece, &bytes);
	int err = 0;

	if (eng->elastic)
		err = piece_lease(pool, piece, 0);
	if (err)
		return err;
	err = reg_piece(eng, addr, bytes);
	if (!err) {
		__atomic_store_n(&eng->piece_done[piece], 1, __ATOMIC_RELEASE);
		return 0;
	}
	kvmm_gpu_error(eng->gpu, why, sizeof(why));
	kvmm_log(pool->kv, KVMM_LOG_WARNING,
		 "frames from %u on can't be registered: %s%s",
		 piece * eng->piece_frames, why,
		 err == -EOPNOTSUPP && pool->rdonly ?
		 "; open the pool for writing" : "");
	if (eng->elastic)
		piece_lease(pool, piece, KVMM_LEASE_END);
	return err;
}

static void give_up_piece(struct kvmm_engine *eng, unsigned int piece)
{
	size_t bytes;
	void *addr = piece_addr(eng, piece, &bytes);

	/* it is gone also where the driver reports an error */
	kvmm_gpu_unregister(eng->gpu, addr, bytes);
	__atomic_store_n(&eng->piece_done[piece], 0, __ATOMIC_RELEASE);
	eng->piece_wanted[piece] = 0;
	piece_lease(eng->pool, piece, KVMM_LEASE_END);
}

static int reach_frame(struct kvmm_engine *eng, unsigned int frame)
{
	unsigned int piece = frame / eng->piece_frames;
	int err = 0;

	if (frame >= eng->pool->nr_frames)
		return -EINVAL;
	if (!eng->elastic &&
	    __atomic_load_n(&eng->piece_done[piece], __ATOMIC_ACQUIRE))
		return 0;
	pthread_mutex_lock(&eng->reg_lock);
	if (!eng->piece_done[piece])
		err = reach_piece(eng, piece);
	if (!err && eng->elastic)
		eng->piece_users[piece]++;
	pthread_mutex_unlock(&eng->reg_lock);
	return err;
}

void eng_reach(struct kvmm_engine *eng, struct kvmm_block_ref *refs,
	       unsigned int n)
{
	struct kvmm_block_ref pin;
	unsigned int i;
	int err;

	for (i = 0; i < n; i++) {
		if (refs[i].result < 0)
			continue;
		err = reach_frame(eng, refs[i].frame);
		if (!err)
			continue;
		pin = refs[i];
		kvmm_unpin(eng->pool, &pin, 1);
		refs[i].result = err;
	}
}

void eng_reached(struct kvmm_engine *eng, unsigned int frame)
{
	unsigned int piece = frame / eng->piece_frames;

	if (!eng->elastic)
		return;
	pthread_mutex_lock(&eng->reg_lock);
	if (!--eng->piece_users[piece] && eng->piece_wanted[piece])
		give_up_piece(eng, piece);
	pthread_mutex_unlock(&eng->reg_lock);
}

void eng_unpin(struct kvmm_engine *eng, struct kvmm_block_ref *refs,
	       unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		eng_reached(eng, refs[i].frame);
	if (n)
		kvmm_unpin(eng->pool, refs, n);
}

void eng_chunk_wanted(struct kvmm_engine *eng, uint64_t chunk)
{
	unsigned int first = 0, end = eng->nr_pieces, i;

	if (chunk != EVERY_CHUNK) {
		if (chunk >= eng->nr_pieces)
			return;
		first = (unsigned int)chunk;
		end = first + 1;
	}
	pthread_mutex_lock(&eng->reg_lock);
	for (i = first; i < end && eng->elastic; i++) {
		if (!eng->piece_done[i])
			continue;
		eng->piece_wanted[i] = 1;
		if (!eng->piece_users[i])
			give_up_piece(eng, i);
	}
	pthread_mutex_unlock(&eng->reg_lock);
}

/*
 * Pieces: as large as can be where all memory is online and stays; chunks where
 * it may be given back; else small ones.
 */
int reach_init(struct kvmm_engine *eng, bool lazy)
{
	struct kvmm_pool_stat st = { 0 };
	struct kvmm_pool *pool = eng->pool;
	size_t piece = KVMM_GPU_MAX_CHUNK;
	unsigned int i;
	int err = kvmm_pool_stat(pool, &st);

	if (err)
		return err;
	eng->elastic = st.nr_elastic && st.chunk_frames;
	if (eng->elastic)
		piece = (size_t)st.chunk_frames << pool->block_shift;
	else if (st.frames_online < st.nr_frames)
		piece = SMALL_PIECE;
	lazy = lazy || eng->elastic || st.frames_online < st.nr_frames;
	eng->piece_frames = piece >> pool->block_shift;
	if (!eng->piece_frames)
		eng->piece_frames = 1;
	eng->nr_pieces = (pool->nr_frames - 1) / eng->piece_frames + 1;
	eng->piece_done = calloc(eng->nr_pieces, 1);
	eng->piece_wanted = calloc(eng->nr_pieces, 1);
	eng->piece_users = calloc(eng->nr_pieces, sizeof(*eng->piece_users));
	if (!eng->piece_done || !eng->piece_wanted || !eng->piece_users)
		return -ENOMEM;
	pthread_mutex_lock(&eng->reg_lock);
	for (i = 0; i < eng->nr_pieces && !lazy && !err; i++)
		err = reach_piece(eng, i);
	pthread_mutex_unlock(&eng->reg_lock);
	return err;
}

/* The device is closed by now: nothing is registered any more. */
void reach_exit(struct kvmm_engine *eng)
{
	unsigned int i;

	for (i = 0; i < eng->nr_pieces && eng->elastic; i++)
		if (eng->piece_done && eng->piece_done[i])
			piece_lease(eng->pool, i, KVMM_LEASE_END);
	free(eng->piece_done);
	free(eng->piece_wanted);
	free(eng->piece_users);
}
