// SPDX-License-Identifier: MIT
/*
 * Keys of a trace's blocks: libkvmm's, each id taken for a block of two tokens.
 */
#include "key.h"

#include <string.h>

int key_maker_new(struct kvmm_keyer **out)
{
	static const char name[] = "kvmmctl replay";
	const struct iovec domain = { (void *)name, sizeof(name) };
	const struct kvmm_key_opts opts = {
		.size = sizeof(opts),
		.domain = &domain,
		.nr_domain = 1,
	};

	return kvmm_keyer_new(out, &opts);
}

int key_chain(const struct kvmm_keyer *k, const uint64_t *ids, size_t n,
	      uint8_t *keys)
{
	const uint8_t *parent = NULL;
	uint32_t tokens[2];
	long ret;

	for (size_t i = 0; i < n; i++) {
		uint8_t *key = keys + i * KVMM_KEY_LEN;

		tokens[0] = (uint32_t)ids[i];
		tokens[1] = (uint32_t)(ids[i] >> 32);
		ret = kvmm_key_chain(k, parent, tokens, 2, 2, NULL, key);
		if (ret < 0)
			return (int)ret;
		parent = key;
	}
	return 0;
}
