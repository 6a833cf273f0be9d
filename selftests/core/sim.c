// SPDX-License-Identifier: MIT
/*
 * The model of a pool: what a block, an order, a pin and a free frame are.
 * See sim.h.
 */
#include <stdarg.h>
#include <stdio.h>

#include "sim.h"

void sim_fail(const struct sim *s, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "# command %llu, %s: ", (unsigned long long)s->ops,
		s->what ? s->what : "-");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	sim_on_failure(s);
	__builtin_trap();
}

void sim_key(u8 *key, u64 id)
{
	u64 word[KVMM_KEY_LEN / 8] = { id, id * 3, 7, ~id };

	memset(key, 0, KVMM_KEY_LEN);
	if (id)
		memcpy(key, word, KVMM_KEY_LEN);
}

u64 sim_id(const u8 *key)
{
	u64 id;

	memcpy(&id, key, sizeof(id));
	return id;
}

/* Told in one command; a block may be evicted, and then lost. */
struct notes {
	u32 n;
	struct {
		u64 handle;
		enum kvmm_core_note what;
	} at[2 * SIM_BLOCKS];
};

/* Not in struct sim: they don't outlive a command. */
static struct notes told, due;

static void add_note(struct notes *notes, u64 handle, enum kvmm_core_note what)
{
	if (notes->n == 2 * SIM_BLOCKS)
		__builtin_trap();
	notes->at[notes->n].handle = handle;
	notes->at[notes->n++].what = what;
}

void m_note(const struct m_block *b, enum kvmm_core_note what)
{
	add_note(&due, b->handle, what);
}

static void sim_note(void *ctx, enum kvmm_core_note what, u64 handle,
		     const struct kvmm_block *b)
{
	const struct sim *s = ctx;

	/* it is called before the block loses anything */
	sim_assert(s, (u32)handle < SIM_BLOCKS && handle >> 32 == b->gen);
	sim_assert(s, b->flags & KVMM_B_KEYED);
	sim_assert(s, !(b->flags & KVMM_B_DOOMED));
	if (what == KVMM_NOTE_EVICTED)
		sim_assert(s, b->frame < s->nr_frames && b->slot < s->nr_slots);
	if (what == KVMM_NOTE_SLOT)
		sim_assert(s, b->slot < s->nr_slots);
	add_note(&told, handle, what);
}

void sim_compare_notes(struct sim *s)
{
	u32 k;

	sim_assert(s, told.n == due.n);
	for (k = 0; k < told.n; k++) {
		sim_assert(s, told.at[k].handle == due.at[k].handle);
		sim_assert(s, told.at[k].what == due.at[k].what);
	}
	told.n = 0;
	due.n = 0;
}

void sim_open(struct sim *s, const struct kvmm_core_config *cfg)
{
	struct kvmm_core_config mine = *cfg;
	u32 i;
	int err;

	memset(s, 0, sizeof(*s));
	s->what = "init";
	s->now = 1000;
	s->nr_frames = cfg->nr_frames;
	s->nr_elastic = cfg->nr_elastic;
	s->unit = cfg->nr_elastic ? cfg->unit_frames : 1;
	s->nr_holds = cfg->nr_holds;
	s->quarantine_ms = cfg->quarantine_ms;
	for (i = 0; i < SIM_SLOTS; i++)
		s->owner[i] = KVMM_NONE;
	mine.note = sim_note;
	mine.ctx = s;
	err = kvmm_core_init(&s->c, &mine);
	sim_assert(s, !err);
	sim_compare_all(s);
}

void sim_close(struct sim *s)
{
	s->what = "exit";
	while (s->nr_io)
		sim_done(s, 0, 0);
	sim_compare_all(s);
	kvmm_core_exit(&s->c);
}

/* ---- orders ---- */

u32 m_place(const struct m_order *o, u32 i)
{
	u32 k;

	for (k = 0; k < o->n; k++)
		if (o->at[k] == i)
			return k;
	return KVMM_NONE;
}

bool m_in(const struct m_order *o, u32 i)
{
	return m_place(o, i) != KVMM_NONE;
}

void m_remove(struct m_order *o, u32 i)
{
	u32 k = m_place(o, i);

	if (k == KVMM_NONE)
		return;
	o->n--;
	memmove(o->at + k, o->at + k + 1, o->n - k);
}

void m_insert(struct m_order *o, u32 i, u32 at)
{
	memmove(o->at + at + 1, o->at + at, o->n - at);
	o->at[at] = (u8)i;
	o->n++;
}

/* ---- blocks ---- */

static u32 index_of(const struct sim *s, const struct m_block *b)
{
	return (u32)(b - s->block);
}

struct m_block *m_get(struct sim *s, u64 handle)
{
	u32 i = (u32)handle;

	if (i >= SIM_BLOCKS || !s->block[i].used ||
	    s->block[i].handle != handle)
		return NULL;
	return &s->block[i];
}

struct m_block *m_find(struct sim *s, u64 id)
{
	u32 i;

	for (i = 0; i < SIM_BLOCKS; i++)
		if (s->block[i].used && s->block[i].keyed &&
		    s->block[i].id == id)
			return &s->block[i];
	return NULL;
}

u32 m_pins(const struct m_block *b)
{
	u32 k, sum = 0;

	for (k = 1; k <= SIM_CLIENTS; k++)
		sum += b->pins[k];
	return sum;
}

static bool busy(const struct m_block *b)
{
	return b->state == KVMM_WRITING || b->state == KVMM_READING;
}

/* Its block is through with a frame; a broken one is buried. */
void m_put_frame(struct sim *s, u32 frame)
{
	s->frame[frame] = s->frame[frame] == M_BAD ? M_GONE : M_UNUSED;
}

/* Does it count as memory that the pool has. */
bool m_online(const struct sim *s, u32 frame)
{
	return s->frame[frame] != M_OFFLINE && s->frame[frame] != M_GONE;
}

static void block_gone(struct sim *s, struct m_block *b)
{
	bool rest = b->state == KVMM_FILLING && b->orphan && s->quarantine_ms;
	u32 i = index_of(s, b);

	m_remove(&s->mem, i);
	m_remove(&s->swp, i);
	if (b->slot != KVMM_NONE)
		s->owner[b->slot] = KVMM_NONE;
	if (b->frame != KVMM_NONE) {
		rest = rest && s->frame[b->frame] == M_USED;
		if (!rest) {
			m_put_frame(s, b->frame);
		} else {
			s->frame[b->frame] = M_RESTING;
			s->due[b->frame] = b->died + s->quarantine_ms;
			m_insert(&s->rest, b->frame, 0);
		}
	}
	memset(b, 0, sizeof(*b));
}

void m_settle(struct sim *s, struct m_block *b)
{
	if (!m_pins(b) && !busy(b) && (b->state == KVMM_FILLING || b->doomed))
		block_gone(s, b);
}

/* A miss from now on; @counter says why. */
void m_kill(struct sim *s, struct m_block *b, __u64 *counter)
{
	(*counter)++;
	if (counter == &s->st.expired)
		m_note(b, KVMM_NOTE_EXPIRED);
	else if (counter == &s->st.purged)
		m_note(b, KVMM_NOTE_PURGED);
	else if (counter == &s->st.slots_evicted)
		m_note(b, KVMM_NOTE_SLOT);
	if (b->evicting)
		m_stop_evicting(s, b);
	m_remove(&s->mem, index_of(s, b));
	b->keyed = false;
	b->doomed = true;
	m_settle(s, b);
}

/* Is it a hit; one that is too old or of an old epoch goes when it is met. */
bool m_live(struct sim *s, struct m_block *b)
{
	if (b->doomed)
		return false;
	if (b->epoch != s->epoch) {
		m_kill(s, b, &s->st.dropped);
		return false;
	}
	if (b->state != KVMM_FILLING && b->ttl &&
	    s->now >= b->touched + b->ttl) {
		m_kill(s, b, &s->st.expired);
		return false;
	}
	return true;
}

struct m_block *m_get_live(struct sim *s, u64 handle)
{
	struct m_block *b = m_get(s, handle);

	return b && m_live(s, b) ? b : NULL;
}

struct m_block *m_find_live(struct sim *s, u64 id)
{
	struct m_block *b = m_find(s, id);

	return b && m_live(s, b) ? b : NULL;
}

/* ---- on the way out ---- */

void m_start_evicting(struct sim *s, struct m_block *b)
{
	if (b->evicting)
		return;
	b->evicting = true;
	m_remove(&s->mem, index_of(s, b));
	m_insert(&s->swp, index_of(s, b), 0);
}

void m_stop_evicting(struct sim *s, struct m_block *b)
{
	b->evicting = false;
	m_remove(&s->swp, index_of(s, b));
	m_insert(&s->mem, index_of(s, b), 0);
}

void m_drop_frame(struct sim *s, struct m_block *b)
{
	u32 i = index_of(s, b);

	m_note(b, KVMM_NOTE_EVICTED);
	m_remove(&s->mem, i);
	if (!m_in(&s->swp, i))
		m_insert(&s->swp, i, 0);
	b->state = KVMM_SWAPPED;
	m_put_frame(s, b->frame);
	b->frame = KVMM_NONE;
	b->evicting = false;
	s->st.evicted++;
}

/* ---- pins ---- */

int m_hold(struct sim *s, struct m_block *b, u32 client)
{
	bool inside = false;
	u32 k;

	if (!b->pins[client]) {
		for (k = 1; k <= SIM_CLIENTS; k++)
			inside |= b->pins[k] && !b->extra[k];
		if (inside && s->extra_used == s->nr_holds)
			return -ENOBUFS;
		b->extra[client] = inside;
		s->extra_used += inside;
	}
	b->pins[client]++;
	if (b->evicting)
		m_stop_evicting(s, b);
	return 0;
}

bool m_unhold(struct sim *s, struct m_block *b, u32 client)
{
	if (!b->pins[client])
		return false;
	if (!--b->pins[client] && b->extra[client]) {
		b->extra[client] = false;
		s->extra_used--;
	}
	return true;
}

/* ---- use ---- */

void m_touch(struct sim *s, struct m_block *b, struct kvmm_cursor *cur)
{
	struct m_order *o = b->state == KVMM_SWAPPED ? &s->swp : &s->mem;
	u64 *last = b->state == KVMM_SWAPPED ? &cur->swap : &cur->mem;
	struct m_block *before = *last ? m_get(s, *last) : NULL;
	u32 i = index_of(s, b);

	if (s->now > b->touched)
		b->touched = s->now;
	if (b->uses < 65535)
		b->uses++;
	if (b->evicting)
		m_stop_evicting(s, b);
	if (before == b)
		return;
	m_remove(o, i);
	if (before && before->state != KVMM_FILLING && !before->evicting &&
	    m_in(o, index_of(s, before)))
		m_insert(o, i, m_place(o, index_of(s, before)) + 1);
	else
		m_insert(o, i, 0);
	*last = b->handle;
}

/* ---- frames and slots ---- */

u32 m_used_frames(const struct sim *s)
{
	u32 f, n = 0;

	for (f = 0; f < s->nr_frames; f++)
		n += s->frame[f] == M_USED || s->frame[f] == M_BAD;
	return n;
}

u32 m_free_slots(const struct sim *s)
{
	u32 k, n = 0;

	for (k = 0; k < s->nr_slots; k++)
		n += s->owner[k] == KVMM_NONE;
	return n;
}

bool m_may_purge(const struct sim *s, const struct m_block *b)
{
	if (!s->nr_slots || s->degraded || s->detaching)
		return true;
	return (b->flags & KVMM_BLOCK_RECOMPUTABLE) && b->cost < s->load_us;
}

/* The coldest block that can be had without I/O gives up its frame. */
static u32 evict_one(struct sim *s)
{
	struct m_order old = s->mem;
	u32 k, frame;

	for (k = old.n; k-- > 0;) {
		struct m_block *b = &s->block[old.at[k]];

		frame = b->frame;
		if (m_pins(b) || b->state == KVMM_READING || b->late) {
			/* met in use: the youngest now */
			m_remove(&s->mem, old.at[k]);
			m_insert(&s->mem, old.at[k], 0);
			continue;
		}
		if (b->state == KVMM_WRITING)
			continue;
		if (!m_live(s, b))
			return frame;
		if (b->state == KVMM_CLEAN && !s->detaching) {
			m_drop_frame(s, b);
			return frame;
		}
		if (m_may_purge(s, b)) {
			m_kill(s, b, &s->st.purged);
			return frame;
		}
	}
	return KVMM_NONE;
}

/* Frames that stay first; of those that may go, the lowest. */
static u32 must_take(const struct sim *s)
{
	u32 f, floor = s->nr_frames - s->nr_elastic;

	for (f = 0; f < floor; f++)
		if (s->frame[f] == M_UNUSED)
			return KVMM_NONE;
	for (f = floor; f < s->nr_frames; f++)
		if (s->frame[f] == M_UNUSED)
			return f;
	return KVMM_NONE;
}

/*
 * The core took @got for a block, or none (KVMM_NONE): free frames first, then
 * rested ones, then a victim's.  Returns whether there was one to be had.
 */
bool m_take_frame(struct sim *s, u32 got)
{
	u32 f, unused = 0, victim;
	bool rested;

	for (f = 0; f < s->nr_frames; f++)
		unused += s->frame[f] == M_UNUSED;
	/* the first to come is the first to go, others may be due before it */
	rested = s->rest.n && s->now >= s->due[s->rest.at[s->rest.n - 1]];
	if (!unused && !rested) {
		victim = evict_one(s);
		if (victim == KVMM_NONE) {
			sim_assert(s, got == KVMM_NONE);
			return false;
		}
		sim_assert(s, got == victim);
		sim_assert(s, s->frame[got] == M_UNUSED);
	}
	sim_assert(s, got < s->nr_frames);
	if (unused) {
		sim_assert(s, s->frame[got] == M_UNUSED);
		if (must_take(s) == KVMM_NONE)
			sim_assert(s, got < s->nr_frames - s->nr_elastic);
		else
			sim_assert(s, got == must_take(s));
	} else if (rested) {
		sim_assert(s, m_in(&s->rest, got) && s->now >= s->due[got]);
		m_remove(&s->rest, got);
	}
	s->frame[got] = M_USED;
	s->frame_data[got] = SIM_JUNK;
	return true;
}

int m_no_frame(const struct sim *s)
{
	u32 i, f, pinned = 0, resting = 0;

	for (i = 0; i < SIM_BLOCKS; i++)
		pinned += s->block[i].used && m_pins(&s->block[i]);
	for (f = 0; f < s->nr_frames; f++)
		resting += s->frame[f] == M_RESTING;
	return pinned >= m_used_frames(s) && !resting ? -ENOSPC : -EAGAIN;
}
