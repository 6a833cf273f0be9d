// SPDX-License-Identifier: MIT
/*
 * Moves between memory and the area, given to the pool and to the model; see
 * sim.h.  A move's data goes when it is done: until then what is being
 * written to is junk.
 */
#include "sim.h"

/*
 * The core took slot @got for a write, or none: a free one, else one of a
 * CLEAN block, else that of the oldest swapped block, which is lost.
 */
static bool take_slot(struct sim *s, u32 got)
{
	struct m_block *b;
	u32 i, k;

	if (m_free_slots(s)) {
		sim_assert(s, got < s->nr_slots);
		sim_assert(s, s->owner[got] == KVMM_NONE);
		return true;
	}
	for (i = 0; i < SIM_BLOCKS; i++)
		if (s->block[i].used && s->block[i].state == KVMM_CLEAN)
			break;
	if (i < SIM_BLOCKS) {
		sim_assert(s, got < s->nr_slots);
		b = &s->block[s->owner[got]];
		sim_assert(s, b->state == KVMM_CLEAN && b->slot == got);
		b->state = KVMM_RESIDENT;
		b->slot = KVMM_NONE;
		s->owner[got] = KVMM_NONE;
		return true;
	}
	for (k = s->swp.n; k-- > 0;) {
		b = &s->block[s->swp.at[k]];
		if (b->state != KVMM_SWAPPED)
			continue;
		sim_assert(s, got == b->slot);
		m_kill(s, b, &s->st.slots_evicted);
		return true;
	}
	return false;
}

static void add_io(struct sim *s, const struct m_block *b,
		   const struct kvmm_io *io, bool read)
{
	struct m_io *m = &s->io[s->nr_io++];

	sim_assert(s, io->handle == b->handle);
	sim_assert(s, io->frame == b->frame);
	sim_assert(s, io->slot == b->slot);
	sim_assert(s, io->length == b->length);
	if (read)
		sim_assert(s, io->crc == b->crc);
	m->io = *io;
	m->read = read;
}

/* A RESIDENT block's write begins, with the slot that the core took. */
static void begin_write(struct sim *s, struct m_block *b, bool evict,
			const struct kvmm_io *io)
{
	b->slot = io->slot;
	b->state = KVMM_WRITING;
	s->owner[io->slot] = (u32)b->handle;
	s->slot_data[io->slot] = SIM_JUNK;
	if (evict)
		m_start_evicting(s, b);
	add_io(s, b, io, false);
}

static int want_swap_out(struct sim *s, u64 handle, u32 flags, int ret,
			 const struct kvmm_io *io)
{
	struct m_block *b = m_get_live(s, handle);
	bool evict;

	if (!b)
		return -ESTALE;
	evict = (flags & KVMM_SWAP_DROP) && !m_pins(b);
	switch (b->state) {
	case KVMM_SWAPPED:
		return KVMM_IO_NONE;
	case KVMM_CLEAN:
		if (evict && !s->detaching)
			m_drop_frame(s, b);
		return KVMM_IO_NONE;
	case KVMM_WRITING:
		if (b->late)
			return -EIO;
		if (evict && !s->detaching)
			m_start_evicting(s, b);
		return KVMM_IO_JOIN;
	case KVMM_RESIDENT:
		break;
	default:
		return -EBUSY;
	}
	if (!s->nr_slots || s->detaching)
		return -EOPNOTSUPP;
	if (s->degraded)
		return -EIO;
	if (!take_slot(s, ret == KVMM_IO_ISSUE ? io->slot : KVMM_NONE))
		return -ENOSPC;
	sim_assert(s, ret == KVMM_IO_ISSUE);
	begin_write(s, b, evict, io);
	return KVMM_IO_ISSUE;
}

int sim_swap_out(struct sim *s, u64 handle, u32 flags)
{
	struct kvmm_io io = { 0 };
	int ret;

	s->what = "swap_out";
	ret = kvmm_core_swap_out(&s->c, handle, flags, s->now, &io);
	sim_assert(s, ret == want_swap_out(s, handle, flags, ret, &io));
	sim_compare(s);
	return ret;
}

static int want_swap_in(struct sim *s, u32 client, u64 handle, u32 flags,
			int ret, const struct kvmm_io *io)
{
	struct m_block *b = m_get_live(s, handle), *parent;
	bool pin = flags & KVMM_SWAP_PIN;
	u32 at = 0;

	if (!b)
		return -ESTALE;
	if (b->state == KVMM_FILLING)
		return -EBUSY;
	if (b->state != KVMM_SWAPPED) {
		if (pin && m_hold(s, b, client))
			return -ENOBUFS;
		return b->state == KVMM_READING ? KVMM_IO_JOIN : KVMM_IO_NONE;
	}
	if (s->detaching)
		return -ESTALE;
	if (!m_take_frame(s, ret == KVMM_IO_ISSUE ? io->frame : KVMM_NONE))
		return m_no_frame(s);
	sim_assert(s, ret == KVMM_IO_ISSUE);
	b->state = KVMM_READING;
	b->frame = io->frame;
	m_remove(&s->swp, (u32)handle);
	parent = b->parent ? m_get(s, b->parent) : NULL;
	if (parent && m_in(&s->mem, (u32)b->parent) &&
	    parent->touched >= b->touched)
		at = m_place(&s->mem, (u32)b->parent) + 1;
	m_insert(&s->mem, (u32)handle, at);
	if (pin)
		m_hold(s, b, client);
	add_io(s, b, io, true);
	return KVMM_IO_ISSUE;
}

int sim_swap_in(struct sim *s, u32 client, u64 handle, u32 flags)
{
	struct kvmm_io io = { 0 };
	int ret;

	s->what = "swap_in";
	ret = kvmm_core_swap_in(&s->c, client, handle, flags, s->now, &io);
	sim_assert(s, ret == want_swap_in(s, client, handle, flags, ret, &io));
	sim_compare(s);
	return ret;
}

/* What was being read is in its slot alone, and nobody holds it. */
static void unread(struct sim *s, struct m_block *b)
{
	u32 k;

	for (k = 1; k <= SIM_CLIENTS; k++)
		while (m_unhold(s, b, k))
			;
	m_remove(&s->mem, (u32)b->handle);
	m_insert(&s->swp, (u32)b->handle, 0);
	m_put_frame(s, b->frame);
	b->frame = KVMM_NONE;
	b->state = KVMM_SWAPPED;
}

/*
 * The same as sim_swap_in(), but a frame that was taken for it turns out to be
 * broken before anyone has seen it.
 */
int sim_swap_in_bad(struct sim *s, u32 client, u64 handle, u32 flags)
{
	int ret = sim_swap_in(s, client, handle, flags);
	struct m_block *b;
	struct kvmm_io io;

	if (ret != KVMM_IO_ISSUE)
		return ret;
	s->what = "read_elsewhere";
	io = s->io[--s->nr_io].io;
	b = m_get(s, handle);
	ret = kvmm_core_read_elsewhere(&s->c, handle, s->now, &io);
	s->st.frames_poisoned++;
	s->frame[b->frame] = M_BAD;
	if (m_take_frame(s, ret == KVMM_IO_ISSUE ? io.frame : KVMM_NONE)) {
		sim_assert(s, ret == KVMM_IO_ISSUE);
		m_put_frame(s, b->frame);
		b->frame = io.frame;
		add_io(s, b, &io, true);
	} else {
		unread(s, b);
		sim_assert(s, ret == m_no_frame(s));
	}
	sim_compare(s);
	return ret;
}

/* A memory error strikes the frame of a block. */
void sim_retire(struct sim *s, u64 handle)
{
	struct m_block *b = m_get(s, handle);
	bool has = b && b->frame != KVMM_NONE;
	__u64 none = 0;
	int ret;

	s->what = "frame_retire";
	ret = kvmm_core_frame_retire(&s->c, handle);
	sim_assert(s, ret == (has ? 0 : -ESTALE));
	if (has && s->frame[b->frame] == M_USED) {
		s->frame[b->frame] = M_BAD;
		s->frame_data[b->frame] = SIM_JUNK;
		s->st.frames_poisoned++;
		if (b->doomed || b->state == KVMM_READING) {
			/* decided already, or when the read has ended */
		} else if (b->state == KVMM_CLEAN && !m_pins(b) &&
			   !s->detaching) {
			m_drop_frame(s, b);
		} else {
			if (b->state != KVMM_FILLING)
				m_note(b, KVMM_NOTE_UNREADABLE);
			m_kill(s, b, &none);
		}
	}
	sim_compare(s);
}

static void write_done(struct sim *s, struct m_block *b,
		       const struct kvmm_io *io, int err, u32 crc)
{
	b->late = false;
	if (err) {
		s->st.write_errors += err != -EHWPOISON;
		s->degraded |= err != -EHWPOISON;
		if (b->evicting)
			m_stop_evicting(s, b);
		b->state = KVMM_RESIDENT;
		b->slot = KVMM_NONE;
		s->owner[io->slot] = KVMM_NONE;
		m_settle(s, b);
		return;
	}
	s->slot_data[io->slot] = s->frame_data[io->frame];
	b->crc = crc;
	s->st.swap_outs++;
	s->st.swap_out_bytes += b->length;
	b->state = KVMM_CLEAN;
	if (b->evicting)
		m_drop_frame(s, b);
	else
		m_settle(s, b);
}

static void read_done(struct sim *s, struct m_block *b,
		      const struct kvmm_io *io, int err)
{
	u32 k;

	if (b->late) {
		b->late = false;
		b->state = KVMM_CLEAN;
		m_settle(s, b);
		return;
	}
	if (s->frame[io->frame] == M_BAD && (!err || err == -EBADMSG))
		err = -EHWPOISON;
	if (err == -EHWPOISON && !b->doomed) {
		unread(s, b);
		/* the same block for its key, another for who has the handle */
		b->handle += 1ULL << 32;
		if (!(b->handle >> 32))
			b->handle += 1ULL << 32;
		return;
	}
	if (err) {
		s->st.checksum_errors += err == -EBADMSG;
		s->st.read_errors += err != -EBADMSG && err != -EHWPOISON;
		if (!b->doomed)
			m_note(b, KVMM_NOTE_UNREADABLE);
		for (k = 1; k <= SIM_CLIENTS; k++)
			while (m_unhold(s, b, k))
				;
		b->doomed = true;
		b->keyed = false;
		b->state = KVMM_CLEAN;
		m_settle(s, b);
		return;
	}
	s->frame_data[io->frame] = s->slot_data[io->slot];
	s->st.swap_ins++;
	s->st.swap_in_bytes += b->length;
	b->state = KVMM_CLEAN;
	m_settle(s, b);
}

/* Move number @which of those in flight ends. */
void sim_done(struct sim *s, u32 which, int err)
{
	struct m_io m = s->io[which];
	struct m_block *b = m_get(s, m.io.handle);
	u32 crc = (u32)s->ops;

	s->what = m.read ? "read_done" : "write_done";
	s->io[which] = s->io[--s->nr_io];
	/* whatever happened meanwhile, the move's frame and slot are its own */
	sim_assert(s, b && b->frame == m.io.frame && b->slot == m.io.slot);
	sim_assert(s, b->state == (m.read ? KVMM_READING : KVMM_WRITING));
	if (m.read) {
		kvmm_core_read_done(&s->c, m.io.handle, err);
		read_done(s, b, &m.io, err);
	} else {
		kvmm_core_write_done(&s->c, m.io.handle, err, crc);
		write_done(s, b, &m.io, err, crc);
	}
	sim_compare(s);
}

/* Move number @which has not ended in time; false: it was said before. */
bool sim_late(struct sim *s, u32 which)
{
	struct m_block *b = m_get(s, s->io[which].io.handle);
	u32 k;

	s->what = "io_late";
	if (b->late)
		return false;
	kvmm_core_io_late(&s->c, b->handle);
	s->st.io_timeouts++;
	s->degraded = true;
	b->late = true;
	if (b->evicting)
		m_stop_evicting(s, b);
	if (s->io[which].read) {
		if (!b->doomed)
			m_note(b, KVMM_NOTE_UNREADABLE);
		for (k = 1; k <= SIM_CLIENTS; k++)
			while (m_unhold(s, b, k))
				;
		m_remove(&s->mem, (u32)b->handle);
		b->doomed = true;
		b->keyed = false;
	}
	sim_compare(s);
	return true;
}

static u32 moving(const struct sim *s)
{
	u32 i, n = s->nr_io;

	for (i = 0; i < SIM_BLOCKS; i++)
		n -= s->block[i].used && s->block[i].late;
	return n;
}

static u32 staying(const struct sim *s)
{
	u32 i, leaving = 0;

	for (i = 0; i < SIM_BLOCKS; i++)
		leaving += s->block[i].used && s->block[i].evicting;
	return m_used_frames(s) - leaving;
}

/* One victim; false: it has to wait for a slot. */
static bool reclaim_one(struct sim *s, struct m_block *b,
			const struct kvmm_io *io, u32 nr_io, u32 *k,
			struct kvmm_reclaim_count *count)
{
	if (!m_live(s, b))
		return true;
	if (b->state == KVMM_WRITING) {
		if (s->detaching)
			return false;
		m_start_evicting(s, b);
		return true;
	}
	if (b->state == KVMM_CLEAN && !s->detaching) {
		m_drop_frame(s, b);
		count->evicted++;
		return true;
	}
	if (!m_may_purge(s, b)) {
		bool next = *k < nr_io && io[*k].handle == b->handle;

		if (take_slot(s, next ? io[*k].slot : KVMM_NONE)) {
			sim_assert(s, next);
			begin_write(s, b, true, &io[(*k)++]);
			return true;
		}
		/* no slot: wait for one where there is I/O, else it is lost */
		if (moving(s))
			return false;
	}
	m_kill(s, b, &s->st.purged);
	count->purged++;
	return true;
}

void sim_reclaim(struct sim *s, u32 keep, u32 n)
{
	struct kvmm_reclaim_count got = { 0 }, want = { 0 };
	struct kvmm_io io[KVMM_CORE_BATCH];
	struct m_order old = s->mem;
	u32 nr_io, k = 0, at;
	bool more = false;

	s->what = "reclaim";
	nr_io = kvmm_core_reclaim(&s->c, keep, s->now, io, n, &got);
	sim_assert(s, nr_io <= n);
	for (at = old.n; at-- > 0 && k < n && staying(s) > keep;) {
		struct m_block *b = &s->block[old.at[at]];

		if (m_pins(b) || b->state == KVMM_READING || b->late) {
			m_remove(&s->mem, old.at[at]);
			m_insert(&s->mem, old.at[at], 0);
			continue;
		}
		if (!reclaim_one(s, b, io, nr_io, &k, &want))
			break;
		more = k == n && staying(s) > keep;
	}
	sim_assert(s, nr_io == k);
	/* there is more to do if it ended for want of room in @io alone */
	sim_assert(s, got.more == more);
	sim_assert(s, got.evicted == want.evicted);
	sim_assert(s, got.purged == want.purged);
	sim_compare(s);
}

/* Could be a victim only after a write. */
static bool wants_write(const struct sim *s, const struct m_block *b)
{
	return b->used && b->state == KVMM_RESIDENT && !m_pins(b) &&
	       !b->doomed && b->epoch == s->epoch &&
	       !(b->ttl && s->now >= b->touched + b->ttl) && !m_may_purge(s, b);
}

/* The swapped block that goes when a slot is needed, or NULL. */
static struct m_block *oldest_swapped(struct sim *s)
{
	u32 k;

	for (k = s->swp.n; k-- > 0;)
		if (s->block[s->swp.at[k]].state == KVMM_SWAPPED)
			return &s->block[s->swp.at[k]];
	return NULL;
}

static bool slot_to_spare(struct sim *s, const struct m_block *b)
{
	const struct m_block *old = oldest_swapped(s);

	return m_free_slots(s) || (old && old->touched <= b->touched);
}

static u32 ready(const struct sim *s)
{
	u32 i, f, n = 0;

	for (f = 0; f < s->nr_frames; f++)
		n += s->frame[f] == M_UNUSED;
	for (i = 0; i < SIM_BLOCKS; i++)
		n += s->block[i].used && s->block[i].state == KVMM_CLEAN &&
			!m_pins(&s->block[i]);
	return n;
}

/* Ready once the writes in flight have ended. */
static u32 ready_soon(const struct sim *s)
{
	u32 i, n = ready(s);

	for (i = 0; i < SIM_BLOCKS; i++)
		n += s->block[i].used && s->block[i].state == KVMM_WRITING;
	return n;
}

static void clean_one(struct sim *s, const struct kvmm_io *io)
{
	struct m_block *b = m_get(s, io->handle);

	sim_assert(s, b && wants_write(s, b) && slot_to_spare(s, b));
	if (m_free_slots(s)) {
		sim_assert(s, s->owner[io->slot] == KVMM_NONE);
	} else {
		sim_assert(s, oldest_swapped(s)->slot == io->slot);
		m_kill(s, oldest_swapped(s), &s->st.slots_evicted);
	}
	begin_write(s, b, false, io);
}

/*
 * Where a call goes on is the core's to know; so among those that are older or
 * younger than where it began, the coldest go first.
 */
void sim_clean(struct sim *s, u32 want, u32 n)
{
	struct kvmm_io io[KVMM_CORE_BATCH];
	u32 k, nr_io, place, last = 0, wraps = 0, i;
	bool more, stuck = false, rest = false;

	s->what = "clean";
	sim_assert(s, kvmm_core_ready(&s->c) == ready(s));
	nr_io = kvmm_core_clean(&s->c, want, s->now, io, n, &more);
	sim_assert(s, nr_io <= n);
	if (!s->nr_slots || s->degraded || s->detaching)
		sim_assert(s, !nr_io && !more);
	for (k = 0; k < nr_io; k++) {
		sim_assert(s, ready_soon(s) < want);
		clean_one(s, &io[k]);
		place = s->mem.n - m_place(&s->mem, (u32)io[k].handle);
		wraps += place < last;
		last = place;
	}
	sim_assert(s, wraps <= 1);
	if (more)
		sim_assert(s, nr_io == n && ready_soon(s) < want);
	for (i = 0; i < SIM_BLOCKS; i++) {
		if (!wants_write(s, &s->block[i]))
			continue;
		rest = true;
		stuck |= !slot_to_spare(s, &s->block[i]);
	}
	/* it ends early for want of blocks, or of a slot for one of them */
	if (nr_io < n && ready_soon(s) < want && s->nr_slots && !s->degraded &&
	    !s->detaching)
		sim_assert(s, !rest || stuck);
	sim_compare(s);
}

void sim_attach(struct sim *s, u32 nr_slots)
{
	int ret, want = 0;

	s->what = "attach";
	ret = kvmm_core_attach(&s->c, nr_slots);
	if (s->nr_slots)
		want = -EBUSY;
	else if (!nr_slots || nr_slots > s->c.cfg.nr_slots)
		want = -EINVAL;
	sim_assert(s, ret == want);
	if (!want) {
		s->nr_slots = nr_slots;
		s->degraded = false;
	}
	sim_compare(s);
}

static int want_detach(struct sim *s, bool discard)
{
	u32 i;

	if (!s->nr_slots)
		return -ENOENT;
	while (s->swp.n) {
		struct m_block *b = &s->block[s->swp.at[s->swp.n - 1]];

		if (b->evicting) {
			m_stop_evicting(s, b);
		} else if (discard) {
			m_kill(s, b, &s->st.slots_evicted);
		} else if (m_live(s, b)) {
			s->detaching = false;
			return -EBUSY;
		}
	}
	s->detaching = true;
	for (i = 0; i < SIM_BLOCKS; i++) {
		struct m_block *b = &s->block[i];

		if (!b->used || b->state != KVMM_CLEAN)
			continue;
		s->owner[b->slot] = KVMM_NONE;
		b->slot = KVMM_NONE;
		b->state = KVMM_RESIDENT;
	}
	if (m_free_slots(s) != s->nr_slots)
		return -EAGAIN;
	s->nr_slots = 0;
	s->detaching = false;
	s->degraded = false;
	return 0;
}

void sim_detach(struct sim *s, bool discard)
{
	int ret;

	s->what = "detach";
	ret = kvmm_core_detach(&s->c, discard, s->now);
	sim_assert(s, ret == want_detach(s, discard));
	sim_compare(s);
}

void sim_detach_cancel(struct sim *s)
{
	s->what = "detach_cancel";
	kvmm_core_detach_cancel(&s->c);
	s->detaching = false;
	sim_compare(s);
}
