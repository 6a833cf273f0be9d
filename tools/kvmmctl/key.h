/* SPDX-License-Identifier: MIT */
/*
 * Keys of a trace's blocks: SHA-256 over a domain, the parent's key and the
 * block's id.  So an id under two parents is two blocks (of equal content), as
 * is an id that occurs twice in one request.
 */
#ifndef KVMMCTL_KEY_H
#define KVMMCTL_KEY_H

#include <kvmm.h>
#include <stddef.h>
#include <stdint.h>

/** key_maker_new() - 0, -ENOMEM, or -EIO: no SHA-256 in libcrypto */
int key_maker_new(struct kvmm_keyer **out);

/**
 * key_chain() - keys of @n ids in prefix order, KVMM_KEY_LEN bytes each
 *
 * Return: 0, -ENOMEM or -EIO.
 */
int key_chain(const struct kvmm_keyer *k, const uint64_t *ids, size_t n,
	      uint8_t *keys);

#endif /* KVMMCTL_KEY_H */
