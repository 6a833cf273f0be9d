// SPDX-License-Identifier: MIT
/*
 * Keys: SHA-256 over everything that a block's content depends on.
 *
 * Each hashed text begins with a tag of 16 bytes that says what it is, and
 * every part of variable length follows its length, so that no two different
 * inputs give the same text:
 *
 *	root	"kvmm1/root"  n, n times (length, field), length, salt
 *	block	"kvmm1/block" parent's key, tokens, length, extra bytes, tokens
 *	wrap	"kvmm1/wrap"  root, group, length, hash
 *
 * Numbers are 64 bits, tokens 32 bits, little endian.  The parent of a chain's
 * first block is the root: domain and salt are in every key below it.
 */
#include "backend.h"

#include <endian.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define TAG_LEN		16
/* Tokens converted at a time. */
#define TOKENS_AT_ONCE	256

/**
 * struct kvmm_keyer - makes keys; constant once made
 * @md: the hash
 * @root: key of nothing: the domain and the salt
 */
struct kvmm_keyer {
	EVP_MD *md;
	uint8_t root[KVMM_KEY_LEN];
};

static int failed(int err)
{
	errno = -err;
	return err;
}

static bool add(EVP_MD_CTX *ctx, const void *data, size_t len)
{
	return EVP_DigestUpdate(ctx, data, len) == 1;
}

static bool add_number(EVP_MD_CTX *ctx, uint64_t n)
{
	n = htole64(n);
	return add(ctx, &n, sizeof(n));
}

static bool add_field(EVP_MD_CTX *ctx, const void *data, size_t len)
{
	return add_number(ctx, len) && (!len || add(ctx, data, len));
}

static bool begin(const struct kvmm_keyer *k, EVP_MD_CTX *ctx, const char *tag)
{
	char padded[TAG_LEN] = { 0 };

	memcpy(padded, tag, strlen(tag));
	return EVP_DigestInit_ex2(ctx, k->md, NULL) == 1 &&
	       add(ctx, padded, sizeof(padded));
}

static bool end(EVP_MD_CTX *ctx, void *key)
{
	unsigned int len = 0;

	return EVP_DigestFinal_ex(ctx, key, &len) == 1 && len == KVMM_KEY_LEN;
}

static bool make_root(struct kvmm_keyer *k, EVP_MD_CTX *ctx,
		      const struct kvmm_key_opts *opts)
{
	unsigned int i;

	if (!begin(k, ctx, "kvmm1/root") || !add_number(ctx, opts->nr_domain))
		return false;
	for (i = 0; i < opts->nr_domain; i++)
		if (!add_field(ctx, opts->domain[i].iov_base,
			       opts->domain[i].iov_len))
			return false;
	return add_field(ctx, opts->salt, opts->salt_len) && end(ctx, k->root);
}

static bool opts_ok(const struct kvmm_key_opts *o)
{
	unsigned int i;

	if ((o->nr_domain && !o->domain) || (o->salt_len && !o->salt))
		return false;
	for (i = 0; i < o->nr_domain; i++)
		if (o->domain[i].iov_len && !o->domain[i].iov_base)
			return false;
	return true;
}

int kvmm_keyer_new(struct kvmm_keyer **out, const struct kvmm_key_opts *opts)
{
	struct kvmm_key_opts o;
	struct kvmm_keyer *k;
	EVP_MD_CTX *ctx;
	bool ok = false;
	int err;

	if (!out || !opts)
		return failed(-EINVAL);
	err = kvmm_copy_opts(&o, sizeof(o), opts, sizeof(o));
	if (err || !opts_ok(&o))
		return failed(err ? err : -EINVAL);
	k = calloc(1, sizeof(*k));
	if (!k)
		return failed(-ENOMEM);
	k->md = EVP_MD_fetch(NULL, "SHA256", NULL);
	ctx = EVP_MD_CTX_new();
	if (k->md && ctx)
		ok = make_root(k, ctx, &o);
	EVP_MD_CTX_free(ctx);
	if (!ok) {
		kvmm_keyer_free(k);
		return failed(-EIO);
	}
	*out = k;
	return 0;
}

void kvmm_keyer_free(struct kvmm_keyer *k)
{
	if (!k)
		return;
	EVP_MD_free(k->md);
	free(k);
}

static bool add_tokens(EVP_MD_CTX *ctx, const uint32_t *tokens, size_t n)
{
	uint32_t le[TOKENS_AT_ONCE];
	size_t i, m;

	for (; n; n -= m, tokens += m) {
		m = n < TOKENS_AT_ONCE ? n : TOKENS_AT_ONCE;
		for (i = 0; i < m; i++)
			le[i] = htole32(tokens[i]);
		if (!add(ctx, le, m * sizeof(le[0])))
			return false;
	}
	return true;
}

static bool make_block(const struct kvmm_keyer *k, EVP_MD_CTX *ctx,
		       const void *parent, const uint32_t *tokens, size_t n,
		       const struct iovec *extra, void *key)
{
	return begin(k, ctx, "kvmm1/block") && add(ctx, parent, KVMM_KEY_LEN) &&
	       add_number(ctx, n) &&
	       add_field(ctx, extra ? extra->iov_base : NULL,
			 extra ? extra->iov_len : 0) &&
	       add_tokens(ctx, tokens, n) && end(ctx, key);
}

long kvmm_key_chain(const struct kvmm_keyer *k, const void *parent,
		    const uint32_t *tokens, size_t n, unsigned int block_tokens,
		    const struct iovec *extra, void *keys)
{
	uint8_t *key = keys;
	const void *above = parent ? parent : k->root;
	EVP_MD_CTX *ctx;
	size_t i, m;
	long nr = 0;

	if (!block_tokens || (n && (!tokens || !keys)))
		return failed(-EINVAL);
	ctx = EVP_MD_CTX_new();
	if (!ctx)
		return failed(-ENOMEM);
	for (i = 0; i < n; i += m, nr++, key += KVMM_KEY_LEN) {
		m = n - i < block_tokens ? n - i : block_tokens;
		if (!make_block(k, ctx, above, tokens + i, m,
				extra ? &extra[nr] : NULL, key)) {
			EVP_MD_CTX_free(ctx);
			return failed(-EIO);
		}
		above = key;
	}
	EVP_MD_CTX_free(ctx);
	return nr;
}

int kvmm_key_wrap(const struct kvmm_keyer *k, uint64_t group, const void *hash,
		  size_t len, void *key)
{
	EVP_MD_CTX *ctx;
	bool ok;

	if (!key || !hash || !len)
		return failed(-EINVAL);
	ctx = EVP_MD_CTX_new();
	if (!ctx)
		return failed(-ENOMEM);
	ok = begin(k, ctx, "kvmm1/wrap") &&
	     add(ctx, k->root, sizeof(k->root)) && add_number(ctx, group) &&
	     add_field(ctx, hash, len) && end(ctx, key);
	EVP_MD_CTX_free(ctx);
	return ok ? 0 : failed(-EIO);
}
