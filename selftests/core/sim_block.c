// SPDX-License-Identifier: MIT
/*
 * Commands on blocks, given to the pool and to the model; see sim.h.
 */
#include "sim.h"

/* Which errors apply; the core may give any of them. */
struct errors {
	int n;
	int err[12];
};

static void may_be(struct errors *e, bool applies, int err)
{
	if (applies)
		e->err[e->n++] = err;
}

static bool is_one_of(const struct errors *e, int err)
{
	int k;

	for (k = 0; k < e->n; k++)
		if (e->err[k] == err)
			return true;
	return false;
}

void sim_alloc(struct sim *s, u32 client, u32 parts, u32 n,
	       struct kvmm_block_ref *refs)
{
	u32 k, got;
	int ret;

	s->what = "alloc";
	ret = kvmm_core_alloc(&s->c, client, parts, s->now, refs, n);
	sim_assert(s, ret <= (int)n && ret);
	got = ret > 0 ? ret : 0;
	for (k = 0; k < got; k++) {
		struct m_block *b = &s->block[(u32)refs[k].handle];

		sim_assert(s, (u32)refs[k].handle < s->c.nr_blocks);
		sim_assert(s, refs[k].handle >> 32);
		sim_assert(s, m_take_frame(s, refs[k].frame));
		sim_assert(s, !b->used && !refs[k].result);
		memset(b, 0, sizeof(*b));
		b->used = true;
		b->handle = refs[k].handle;
		b->state = KVMM_FILLING;
		b->nr_parts = parts ? parts : 1;
		b->frame = refs[k].frame;
		b->slot = KVMM_NONE;
		b->epoch = s->epoch;
		b->pins[client] = 1;
	}
	s->st.allocs += got;
	s->st.alloc_fails += n - got;
	if (got < n)
		m_take_frame(s, KVMM_NONE);
	if (!got)
		sim_assert(s, ret == m_no_frame(s));
	sim_compare(s);
}

static bool all_parts(const struct m_block *b, u32 part)
{
	u32 k;

	for (k = 0; k < b->nr_parts; k++)
		if (k != part && !(b->parts >> k & 1))
			return false;
	return true;
}

static void publish_errors(struct sim *s, u32 client,
			   const struct kvmm_publish_entry *e,
			   struct errors *errors)
{
	struct m_block *b = m_get(s, e->handle);

	may_be(errors, !sim_id(e->key), -EINVAL);
	may_be(errors, !e->length || e->length > SIM_BLOCK_SIZE, -EINVAL);
	may_be(errors, e->flags & ~3, -EINVAL);
	may_be(errors, !b, -ESTALE);
	if (!b)
		return;
	may_be(errors, b->doomed || b->epoch != s->epoch, -ESTALE);
	may_be(errors, b->state != KVMM_FILLING, -EBUSY);
	may_be(errors, !b->pins[client], -EACCES);
	if (b->state != KVMM_FILLING)
		return;
	may_be(errors, e->part >= b->nr_parts, -EINVAL);
	may_be(errors, e->part < 64 && b->parts >> e->part & 1, -EALREADY);
	may_be(errors, b->parts && b->id != sim_id(e->key), -EINVAL);
}

static void publish_one(struct sim *s, u32 client, u32 flags,
			struct kvmm_cursor *cur,
			const struct kvmm_publish_entry *e)
{
	struct errors errors = { 0 };
	struct m_block *b = m_get(s, e->handle), *other;

	publish_errors(s, client, e, &errors);
	if (errors.n) {
		sim_assert(s, is_one_of(&errors, e->result));
		sim_assert(s, !e->existing);
		return;
	}
	if (!b->parts) {
		b->id = sim_id(e->key);
		b->parent = e->parent == e->handle ? 0 : e->parent;
		b->position = e->position;
		b->length = e->length;
		b->ttl = e->expiry_ms;
		b->cost = e->cost_us;
		b->priority = e->priority;
		b->flags = e->flags;
	}
	if (!all_parts(b, e->part)) {
		sim_assert(s, e->result == 1 && !e->existing);
		b->parts |= 1ULL << e->part;
	} else if ((other = m_find_live(s, b->id))) {
		sim_assert(s, e->result == -EEXIST);
		sim_assert(s, e->existing == other->handle);
		m_touch(s, other, cur);
		s->st.publish_dups++;
	} else {
		sim_assert(s, !e->result && !e->existing);
		b->parts |= 1ULL << e->part;
		b->child = b->parent && m_get(s, b->parent);
		b->keyed = true;
		b->state = KVMM_RESIDENT;
		s->frame_data[b->frame] = b->id;
		m_touch(s, b, cur);
		b->touched = s->now;
		b->uses = 1;
		s->st.publishes++;
	}
	if (flags & KVMM_PUBLISH_KEEP)
		return;
	m_unhold(s, b, client);
	m_settle(s, b);
}

void sim_publish(struct sim *s, u32 client, u32 flags, struct kvmm_cursor *cur,
		 struct kvmm_publish_entry *e, u32 n)
{
	struct kvmm_cursor mine = *cur;
	u32 k;

	s->what = "publish";
	kvmm_core_publish(&s->c, client, flags, s->now, cur, e, n);
	for (k = 0; k < n; k++)
		publish_one(s, client, flags, &mine, &e[k]);
	sim_assert(s, !memcmp(cur, &mine, sizeof(mine)));
	sim_compare(s);
}

static int where(const struct m_block *b)
{
	if (b->state == KVMM_SWAPPED)
		return KVMM_SWAP;
	return b->state == KVMM_READING ? KVMM_PENDING : KVMM_MEMORY;
}

static int lookup_one(struct sim *s, u32 client, u32 flags,
		      struct kvmm_cursor *cur, u64 id,
		      const struct kvmm_block_ref *r)
{
	struct m_block *b = m_find_live(s, id);
	int result = KVMM_MISS;

	if (b) {
		result = where(b);
		if ((flags & KVMM_LOOKUP_PIN) && result != KVMM_SWAP &&
		    m_hold(s, b, client))
			result = -ENOBUFS;
		sim_assert(s, r->handle == b->handle);
		sim_assert(s, r->frame == b->frame);
		if (result == KVMM_MEMORY)
			sim_assert(s, s->frame_data[b->frame] == id);
		if (!(flags & KVMM_LOOKUP_PEEK))
			m_touch(s, b, cur);
	} else {
		sim_assert(s, !r->handle && r->frame == KVMM_NO_FRAME);
	}
	sim_assert(s, r->result == result);
	if (flags & KVMM_LOOKUP_PEEK)
		return result;
	s->st.lookups++;
	s->st.hits_memory += result == KVMM_MEMORY;
	s->st.hits_swap += result == KVMM_SWAP;
	s->st.hits_pending += result == KVMM_PENDING;
	s->st.misses += result <= KVMM_MISS;
	return result;
}

void sim_lookup(struct sim *s, u32 client, u32 flags, struct kvmm_cursor *cur,
		const u64 *ids, struct kvmm_block_ref *refs, u32 n)
{
	u8 keys[KVMM_CORE_BATCH * KVMM_KEY_LEN] = { 0 };
	struct kvmm_cursor mine = *cur;
	u32 k, prefix, hits = 0;
	bool missed = false;

	s->what = "lookup";
	for (k = 0; k < n; k++)
		sim_key(keys + k * KVMM_KEY_LEN, ids[k]);
	prefix = kvmm_core_lookup(&s->c, client, flags, s->now, cur, keys, refs,
				  n);
	for (k = 0; k < n; k++) {
		if (missed && (flags & KVMM_LOOKUP_PREFIX)) {
			sim_assert(s, !refs[k].handle && !refs[k].result &&
				   refs[k].frame == KVMM_NO_FRAME);
			continue;
		}
		if (lookup_one(s, client, flags, &mine, ids[k], &refs[k]) <=
		    KVMM_MISS)
			missed = true;
		else
			hits += !missed;
	}
	sim_assert(s, prefix == hits);
	sim_assert(s, !memcmp(cur, &mine, sizeof(mine)));
	sim_compare(s);
}

void sim_touch(struct sim *s, struct kvmm_cursor *cur,
	       struct kvmm_block_ref *refs, u32 n)
{
	struct kvmm_cursor mine = *cur;
	struct m_block *b;
	u32 k;

	s->what = "touch";
	kvmm_core_touch(&s->c, s->now, cur, refs, n);
	for (k = 0; k < n; k++) {
		b = m_get_live(s, refs[k].handle);
		if (!b || b->state == KVMM_FILLING) {
			sim_assert(s, refs[k].result == -ESTALE);
			sim_assert(s, refs[k].frame == KVMM_NO_FRAME);
			continue;
		}
		sim_assert(s, !refs[k].result && refs[k].frame == b->frame);
		m_touch(s, b, &mine);
	}
	sim_assert(s, !memcmp(cur, &mine, sizeof(mine)));
	sim_compare(s);
}

void sim_pin(struct sim *s, u32 client, bool filling,
	     struct kvmm_block_ref *refs, u32 n)
{
	struct m_block *b;
	u32 k;
	int want;

	s->what = "pin";
	kvmm_core_pin(&s->c, client, filling, refs, n);
	for (k = 0; k < n; k++) {
		b = m_get(s, refs[k].handle);
		if (!b || b->doomed || b->epoch != s->epoch)
			want = -ESTALE;
		else if (b->state == KVMM_SWAPPED || b->state == KVMM_READING)
			want = -EAGAIN;
		else if (b->state == KVMM_FILLING && !filling)
			want = -EACCES;
		else
			want = m_hold(s, b, client);
		sim_assert(s, refs[k].result == want);
		sim_assert(s, refs[k].frame == (want ? KVMM_NO_FRAME : b->frame));
	}
	sim_compare(s);
}

void sim_unpin(struct sim *s, u32 client, struct kvmm_block_ref *refs, u32 n)
{
	struct m_block *b;
	u32 k;

	s->what = "unpin";
	kvmm_core_unpin(&s->c, client, refs, n);
	for (k = 0; k < n; k++) {
		b = m_get(s, refs[k].handle);
		if (!b) {
			sim_assert(s, refs[k].result == -ESTALE);
			continue;
		}
		if (!m_unhold(s, b, client)) {
			/* a late read is as lost as one that failed */
			sim_assert(s, refs[k].result ==
				   (b->late && b->state == KVMM_READING ?
				    -ESTALE : -EINVAL));
			continue;
		}
		sim_assert(s, !refs[k].result);
		m_settle(s, b);
	}
	sim_compare(s);
}

void sim_drop(struct sim *s, u32 client, struct kvmm_block_ref *refs, u32 n)
{
	struct m_block *b;
	u32 k;

	s->what = "drop";
	kvmm_core_drop(&s->c, client, refs, n);
	for (k = 0; k < n; k++) {
		b = m_get(s, refs[k].handle);
		if (!b || b->doomed) {
			sim_assert(s, refs[k].result == -ESTALE);
		} else if (b->state == KVMM_FILLING && !b->pins[client]) {
			sim_assert(s, refs[k].result == -EACCES);
		} else {
			sim_assert(s, !refs[k].result);
			m_kill(s, b, &s->st.dropped);
		}
	}
	sim_compare(s);
}

void sim_query(struct sim *s, struct kvmm_block_ref *refs, u32 n)
{
	struct m_block *b;
	u32 k;

	s->what = "query";
	kvmm_core_query(&s->c, s->now, refs, n);
	for (k = 0; k < n; k++) {
		b = m_get(s, refs[k].handle);
		/* what is only held is still somewhere */
		if (!b || (!m_live(s, b) && !m_pins(b))) {
			sim_assert(s, refs[k].result == -ESTALE);
			sim_assert(s, refs[k].frame == KVMM_NO_FRAME);
			continue;
		}
		sim_assert(s, refs[k].result == b->state);
		sim_assert(s, refs[k].frame == b->frame);
	}
	sim_compare(s);
}

/* The whole enumeration, @n entries a call: every hit once, nothing else. */
void sim_keys(struct sim *s, u32 n)
{
	struct kvmm_key_entry e[KVMM_CORE_BATCH];
	bool seen[SIM_BLOCKS] = { 0 };
	u64 cursor = 0;
	u32 i, got, calls = 0;

	s->what = "keys";
	do {
		got = kvmm_core_keys(&s->c, s->now, &cursor, e, n);
		sim_assert(s, got <= n && calls++ <= SIM_BLOCKS + 1);
		for (i = 0; i < got; i++) {
			struct m_block *b = m_find_live(s, sim_id(e[i].key));

			sim_assert(s, b && !seen[b - s->block]);
			seen[b - s->block] = true;
			sim_assert(s, e[i].handle == b->handle);
			sim_assert(s, e[i].parent == b->parent);
			sim_assert(s, e[i].position == b->position);
			sim_assert(s, e[i].length == b->length);
			sim_assert(s, e[i].expiry_ms == b->ttl);
			sim_assert(s, e[i].cost_us == b->cost);
			sim_assert(s, e[i].frame == b->frame);
			sim_assert(s, e[i].slot == b->slot);
			sim_assert(s, e[i].pins == m_pins(b));
			sim_assert(s, e[i].uses == b->uses);
			sim_assert(s, e[i].state == b->state);
			sim_assert(s, e[i].priority == b->priority);
			sim_assert(s, e[i].flags == b->flags);
		}
	} while (cursor != KVMM_NONE);
	for (i = 0; i < SIM_BLOCKS; i++)
		if (s->block[i].used && s->block[i].keyed &&
		    m_live(s, &s->block[i]))
			sim_assert(s, seen[i]);
	sim_compare(s);
}

/* Its parent, if that is a published block before it in the chain. */
static u64 up(struct sim *s, const struct m_block *b)
{
	struct m_block *p = b->parent ? m_get_live(s, b->parent) : NULL;

	if (!p || p->state == KVMM_FILLING || p->position >= b->position)
		return 0;
	return b->parent;
}

void sim_chain(struct sim *s, u64 handle)
{
	u64 at = handle;
	u32 n = 0;
	int ret;

	s->what = "chain";
	ret = kvmm_core_chain(&s->c, s->now, &at);
	while (handle && n < KVMM_CORE_BATCH) {
		struct kvmm_cursor top = { 0 };
		struct m_block *b = m_get_live(s, handle);

		if (!b || b->state == KVMM_FILLING)
			break;
		m_touch(s, b, &top);
		handle = up(s, b);
		n++;
	}
	if (n) {
		sim_assert(s, ret == (int)n);
		sim_assert(s, at == handle);
	} else {
		sim_assert(s, ret == -ESTALE);
	}
	sim_compare(s);
}

static u32 children(const struct sim *s, const struct m_block *b)
{
	u32 i, n = 0;

	for (i = 0; i < SIM_BLOCKS; i++)
		n += s->block[i].used && s->block[i].child &&
			s->block[i].parent == b->handle;
	return n;
}

/* Older than all, or just older than the one before it in this command. */
static void make_oldest(struct m_order *o, u32 i, u32 *before)
{
	m_remove(o, i);
	m_insert(o, i, *before != KVMM_NONE ? m_place(o, *before) : o->n);
	*before = i;
}

void sim_hint(struct sim *s, u32 permille, u64 handle)
{
	u32 mem = KVMM_NONE, swp = KVMM_NONE, n = 0;
	struct kvmm_cursor cur = { 0 };
	struct m_block *b;
	u64 at = handle;
	int ret;

	s->what = "hint";
	ret = kvmm_core_hint(&s->c, permille, s->now, &cur, &at);
	b = m_get_live(s, handle);
	if (!b || b->state == KVMM_FILLING) {
		sim_assert(s, ret == -ESTALE);
		sim_compare(s);
		return;
	}
	while (!permille && children(s, b) <= (n ? 1 : 0)) {
		/* the deepest goes first, so each is younger than the last */
		if (b->state == KVMM_SWAPPED)
			make_oldest(&s->swp, (u32)b->handle, &swp);
		else if (!b->evicting)
			make_oldest(&s->mem, (u32)b->handle, &mem);
		n++;
		handle = up(s, b);
		if (!handle)
			break;
		b = m_get(s, handle);
	}
	sim_assert(s, ret == (int)n && !at);
	sim_compare(s);
}
