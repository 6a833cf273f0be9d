// SPDX-License-Identifier: MIT
/*
 * User backend: swap-out and swap-in.
 *
 * A command goes through its entries, starting moves as the core hands them
 * out, up to as many as there are requests; meanwhile it takes completions.
 * Then it waits for the moves of other commands that it joined, and last it
 * asks where each block is now, which is what the caller is told.
 */
#include "backend_user.h"

/* Marks an entry whose move someone else carries out. */
#define JOINED	KVMM_IO_JOIN
/*
 * How often a swap-in makes room, without getting a frame, before it says so.
 * The core looks at a part of the blocks each time: many may be pinned.
 */
#define ROOM_TRIES	1000

/**
 * struct move - one swap command
 * @cl: who
 * @up: its pool
 * @refs: the entries
 * @n: how many
 * @flags: KVMM_SWAP_DROP or KVMM_SWAP_PIN
 * @out: to the area
 * @area: with a reference; NULL until a move is handed out
 * @group: the moves
 * @started: moves started since it was last set to 0
 * @stuck: the area answers nothing, and all requests are late
 */
struct move {
	struct user_client *cl;
	struct user_pool *up;
	struct kvmm_block_ref *refs;
	unsigned int n;
	unsigned int flags;
	bool out;
	struct user_area *area;
	struct io_group group;
	unsigned int started;
	bool stuck;
};

static int ask_core(struct move *m, uint64_t handle, uint64_t now,
		    struct kvmm_io *io)
{
	if (m->out)
		return kvmm_core_swap_out(&m->up->core, handle, m->flags, now,
					  io);
	return kvmm_core_swap_in(&m->up->core, m->cl->id, handle, m->flags,
				 now, io);
}

/*
 * One hold of the lock: entries from *@i on, until the requests in @spare are
 * used up.  @again: only those that had no frame.  Moves go to @go.
 */
static int ask_lot(struct move *m, unsigned int *i, bool again,
		   struct io_list *spare, struct io_list *go)
{
	struct user_pool *up = m->up;
	unsigned int seen = 0;
	struct io_req *req;
	uint64_t now;
	int ret;

	pthread_mutex_lock(&up->lock);
	if (up->gone) {
		pthread_mutex_unlock(&up->lock);
		return -ENODEV;
	}
	m->area = user_area_get(up, m->area);
	now = user_now(up);
	for (; *i < m->n && seen < KVMM_CORE_BATCH; (*i)++, seen++) {
		struct kvmm_block_ref *r = &m->refs[*i];
		struct kvmm_io io;

		if (again && r->result != -EAGAIN)
			continue;
		/* The core must not hand out what can't be carried out. */
		if (m->area && !spare->nr)
			break;
		ret = ask_core(m, r->handle, now, &io);
		r->result = ret == KVMM_IO_JOIN ? JOINED : ret;
		if (ret != KVMM_IO_ISSUE)
			continue;
		req = io_list_take(spare);
		req->io = io;
		io_prepare(m->area, req, m->out, &m->group, *i);
		io_list_add(go, req);
		m->started++;
	}
	pthread_mutex_unlock(&up->lock);
	return 0;
}

/*
 * What reading a block back costs, for the core to compare with computing it:
 * the time of a command by its moves, averaged over some.
 */
static void learn_load_time(struct move *m, uint64_t us)
{
	struct kvmm_core *core = &m->up->core;

	if (m->out || !m->started)
		return;
	us /= m->started;
	pthread_mutex_lock(&m->up->lock);
	us = (7ULL * core->load_us + us) / 8;
	core->load_us = us < 1 ? 1 : us < UINT32_MAX ? (uint32_t)us
						     : UINT32_MAX;
	pthread_mutex_unlock(&m->up->lock);
}

/* What was not begun when no more could be. */
static void give_up(struct move *m, unsigned int i, bool again)
{
	m->stuck = true;
	for (; i < m->n && !again; i++)
		m->refs[i].result = m->out ? -EIO : -EAGAIN;
}

/* All entries, or with @again those that are -EAGAIN; waits for the moves. */
static int move_all(struct move *m, bool again)
{
	struct io_list spare = { 0 }, go = { 0 };
	uint64_t begin = user_mono_us();
	unsigned int i = 0;
	int err = 0;

	m->started = 0;
	while (i < m->n && !err) {
		if (m->area && !spare.nr &&
		    !io_take_wait(m->area, &spare, 1)) {
			give_up(m, i, again);
			break;
		}
		err = ask_lot(m, &i, again, &spare, &go);
		if (go.nr)
			m->area->engine->start(m->area, &go);
	}
	if (m->area) {
		io_give_back(m->area, &spare);
		io_group_wait(m->area, &m->group);
	}
	learn_load_time(m, user_mono_us() - begin);
	return err;
}

/* Where a block is, told from its state. */
static int outcome(const struct move *m, int state)
{
	switch (state) {
	case KVMM_CLEAN:
		return 0;
	case KVMM_RESIDENT:
		/* Out: the write failed, or the slot is taken away again. */
		return m->out ? -EIO : 0;
	case KVMM_WRITING:
		return m->out ? -EBUSY : 0;
	case KVMM_SWAPPED:
		return m->out ? 0 : -EAGAIN;
	case KVMM_READING:
		return m->out ? -EBUSY : -EAGAIN;
	default:
		return state < 0 ? state : -EBUSY;
	}
}

/* Waits for a move that another command carries out. */
static void wait_joined(struct move *m, struct kvmm_block_ref *r)
{
	struct kvmm_block_ref q = { .handle = r->handle };
	struct user_pool *up = m->up;
	uint64_t seq;
	bool late;

	for (;;) {
		pthread_mutex_lock(&up->lock);
		kvmm_core_query(&up->core, user_now(up), &q, 1);
		late = kvmm_core_is_late(&up->core, r->handle);
		seq = up->io_seq;
		pthread_mutex_unlock(&up->lock);
		if (late ||
		    (q.result != KVMM_WRITING && q.result != KVMM_READING))
			break;
		io_wait(m->area, seq, 1);
	}
	r->result = late && m->out ? -EIO : outcome(m, q.result);
}

/*
 * Frames of all entries.  A block that was moved and has gone elsewhere since
 * is not where it was asked to be; a pinned one can't have.
 */
static void locate(struct move *m)
{
	struct kvmm_block_ref q[KVMM_CORE_BATCH];
	struct user_pool *up = m->up;
	unsigned int i, k, n;

	for (i = 0; i < m->n; i += n) {
		n = m->n - i < KVMM_CORE_BATCH ? m->n - i : KVMM_CORE_BATCH;
		for (k = 0; k < n; k++)
			q[k].handle = m->refs[i + k].handle;
		pthread_mutex_lock(&up->lock);
		kvmm_core_query(&up->core, user_now(up), q, n);
		pthread_mutex_unlock(&up->lock);
		for (k = 0; k < n; k++) {
			struct kvmm_block_ref *r = &m->refs[i + k];

			r->frame = q[k].frame;
			if (r->result > 0)
				r->result = 0;
			if (r->result == 0 && !m->out)
				r->result = outcome(m, q[k].result);
			else if (r->result == 0 && q[k].result < 0)
				r->result = q[k].result;
		}
	}
}

static long count_good(const struct kvmm_block_ref *refs, unsigned int n)
{
	unsigned int i;
	long good = 0;

	for (i = 0; i < n; i++)
		good += refs[i].result >= 0;
	return good;
}

static unsigned int count_again(const struct move *m)
{
	unsigned int i, n = 0;

	for (i = 0; i < m->n; i++)
		n += m->refs[i].result == -EAGAIN;
	return n;
}

/*
 * There is no thread that writes blocks out in the background, so a swap-in
 * that finds no frame makes room itself: it waits for I/O in any case.
 */
static int make_room_and_retry(struct move *m)
{
	unsigned int left, before = count_again(m);
	int tries = ROOM_TRIES, err = 0;

	while (before && tries && !err && !m->stuck) {
		user_make_room(m->up, before);
		err = move_all(m, true);
		left = count_again(m);
		tries = left < before ? ROOM_TRIES : tries - 1;
		before = left;
	}
	return err;
}

static long move(struct move *m)
{
	unsigned int i;
	int err;

	err = move_all(m, false);
	if (!err && !m->out)
		err = make_room_and_retry(m);
	if (!err) {
		for (i = 0; i < m->n; i++)
			if (m->refs[i].result == JOINED)
				wait_joined(m, &m->refs[i]);
		locate(m);
	}
	user_area_put(m->area);
	return err ? err : count_good(m->refs, m->n);
}

long user_swap_out(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		   unsigned int n, unsigned int flags)
{
	struct move m = {
		.cl = user_client(pool),
		.up = user_client(pool)->up,
		.refs = refs,
		.n = n,
		.flags = flags,
		.out = true,
		.group.refs = refs,
	};

	return pool->rdonly ? -EACCES : move(&m);
}

long user_swap_in(struct kvmm_pool *pool, struct kvmm_block_ref *refs,
		  unsigned int n, unsigned int flags)
{
	struct move m = {
		.cl = user_client(pool),
		.up = user_client(pool)->up,
		.refs = refs,
		.n = n,
		.flags = flags,
		.out = false,
		.group.refs = refs,
	};

	return move(&m);
}
