// SPDX-License-Identifier: MIT
/*
 * Clients, epochs and frames coming online, given to the pool and to the model;
 * see sim.h.
 */
#include "sim.h"

void sim_reset(struct sim *s)
{
	s->what = "reset";
	sim_assert(s, kvmm_core_reset(&s->c) == s->epoch + 1);
	s->epoch++;
	sim_compare(s);
}

u32 sim_client_add(struct sim *s)
{
	u32 id, k, used = 0;

	s->what = "client_add";
	id = kvmm_core_client_add(&s->c);
	for (k = 1; k <= SIM_CLIENTS; k++)
		used += s->client[k];
	if (used == SIM_CLIENTS) {
		sim_assert(s, !id);
	} else {
		sim_assert(s, id && id <= SIM_CLIENTS && !s->client[id]);
		s->client[id] = true;
	}
	sim_compare(s);
	return id;
}

void sim_client_del(struct sim *s, u32 client)
{
	bool had = false;
	u32 i;

	s->what = "client_del";
	while (!kvmm_core_client_del(&s->c, client, s->now))
		;
	s->client[client] = false;
	for (i = 0; i < SIM_BLOCKS; i++) {
		struct m_block *b = &s->block[i];

		if (!b->used || !b->pins[client])
			continue;
		had = true;
		while (m_unhold(s, b, client))
			;
		/* whatever was filling it may be doing so still */
		if (b->state == KVMM_FILLING) {
			b->orphan = true;
			b->died = s->now;
		}
		m_settle(s, b);
	}
	s->st.clients_dead += had;
	sim_compare(s);
}

void sim_frames_online(struct sim *s, u32 first, u32 n)
{
	u32 k, want = 0;

	s->what = "frames_online";
	if (first < s->nr_frames && n <= s->nr_frames - first)
		for (k = first; k < first + n; k++)
			if (s->frame[k] == M_OFFLINE) {
				s->frame[k] = M_UNUSED;
				want++;
			}
	sim_assert(s, kvmm_core_frames_online(&s->c, first, n) == want);
	sim_compare(s);
}
