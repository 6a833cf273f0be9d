// SPDX-License-Identifier: MIT
/*
 * Keys.  The vectors come from an independent implementation of the format
 * that libkvmm/key.c describes (Python's hashlib), so the format can't change
 * by accident: keys outlive processes and versions.
 */
#include "lt.h"

#include <stdio.h>
#include <stdlib.h>

static struct kvmm_keyer *keyer(const struct iovec *domain, unsigned int nr,
				const char *salt)
{
	struct kvmm_key_opts o = {
		.size = sizeof(o),
		.domain = domain,
		.nr_domain = nr,
		.salt = salt,
		.salt_len = salt ? strlen(salt) : 0,
	};
	struct kvmm_keyer *k;

	assert_int_equal(kvmm_keyer_new(&k, &o), 0);
	return k;
}

static struct iovec text(const char *s)
{
	return (struct iovec){ (void *)s, strlen(s) };
}

static void assert_key(const uint8_t *key, const char *hex)
{
	char got[2 * KVMM_KEY_LEN + 1];
	int i;

	for (i = 0; i < KVMM_KEY_LEN; i++)
		sprintf(got + 2 * i, "%02x", key[i]);
	assert_string_equal(got, hex);
}

static void vectors(void **state)
{
	struct iovec domain[] = { text("model-x"), text("rev 7") };
	struct iovec extra[] = { text(""), text("lora"), text("") };
	struct kvmm_keyer *k = keyer(domain, 2, "tenant A");
	uint8_t keys[3][KVMM_KEY_LEN], wrapped[KVMM_KEY_LEN];
	uint32_t tokens[1000];
	unsigned int i;

	(void)state;
	for (i = 0; i < 34; i++)
		tokens[i] = i + 1;
	tokens[34] = 0xffffffff;
	assert_int_equal(kvmm_key_chain(k, NULL, tokens, 35, 16, extra, keys),
			 3);
	assert_key(keys[0], "1839ec4b6a5ac8b50cb08874885b2acc38ce5766f5b09d9832ee0125c82e4002");
	assert_key(keys[1], "45be8d8d45a2cc9d7577a42f80c9b0b5fd8ade891f56aec4721f6eb3138e5ace");
	assert_key(keys[2], "3ac450b5308c95c31eee3be713ea864f33c27b82ba7d09bc0650f5764d1e1aa0");
	assert_int_equal(kvmm_key_wrap(k, 3, "\x01\x02\x03", 3, wrapped), 0);
	assert_key(wrapped, "d327fde13d09c6506f6c98b467cf4a7d25dd50c32ff3f822d2d095d617015107");
	kvmm_keyer_free(k);

	/* Neither domain nor salt; a block longer than one conversion. */
	k = keyer(NULL, 0, NULL);
	tokens[0] = 5;
	assert_int_equal(kvmm_key_chain(k, NULL, tokens, 1, 1, NULL, keys), 1);
	assert_key(keys[0], "57484d438a1b6451d222b53a8a7191e1a062692e8e9d5b5bc859c6b644a6868d");
	for (i = 0; i < 1000; i++)
		tokens[i] = i;
	assert_int_equal(kvmm_key_chain(k, NULL, tokens, 1000, 1000, NULL,
					keys), 1);
	assert_key(keys[0], "47649d76a34df7e5af20124ddfbbb7d3374f6ead9b680fbf70118642f159e9dd");
	kvmm_keyer_free(k);
}

static void chain(struct kvmm_keyer *k, const uint32_t *tokens, size_t n,
		  uint8_t keys[][KVMM_KEY_LEN])
{
	assert_int_equal(kvmm_key_chain(k, NULL, tokens, n, 4, NULL, keys),
			 (n + 3) / 4);
}

static void chains(void **state)
{
	const uint32_t a[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
	const uint32_t b[] = { 9, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
	uint8_t x[3][KVMM_KEY_LEN], y[3][KVMM_KEY_LEN];
	struct kvmm_keyer *k = keyer(NULL, 0, NULL);

	(void)state;
	/* A different first token changes every key after it. */
	chain(k, a, 10, x);
	chain(k, b, 10, y);
	assert_memory_not_equal(x[0], y[0], KVMM_KEY_LEN);
	assert_memory_not_equal(x[1], y[1], KVMM_KEY_LEN);
	assert_memory_not_equal(x[2], y[2], KVMM_KEY_LEN);
	/* Going on from a key gives the same keys as all at once. */
	assert_int_equal(kvmm_key_chain(k, x[0], a + 4, 6, 4, NULL, y), 2);
	assert_memory_equal(x[1], y[0], 2 * KVMM_KEY_LEN);
	/* A partial block is another block. */
	chain(k, a, 9, y);
	assert_memory_equal(x[1], y[1], KVMM_KEY_LEN);
	assert_memory_not_equal(x[2], y[2], KVMM_KEY_LEN);
	assert_int_equal(kvmm_key_chain(k, NULL, NULL, 0, 4, NULL, NULL), 0);
	kvmm_keyer_free(k);
}

/* Every pair of these must have different keys for the same tokens. */
static void nothing_collides(void **state)
{
	const struct {
		const char *domain[3];
		const char *salt;
	} c[] = {
		{ { NULL }, NULL },
		{ { "" }, NULL },
		{ { "", "" }, NULL },
		{ { "llama" }, NULL },
		{ { NULL }, "llama" },
		{ { "llama" }, "tenant" },
		{ { "llamatenant" }, NULL },
		{ { NULL }, "llamatenant" },
		{ { "llama", "tenant" }, NULL },
		{ { "llamat", "enant" }, NULL },
		{ { "llama", "" }, "tenant" },
		{ { "llama", "t" }, "enant" },
		{ { "tenant" }, "llama" },
	};
	const size_t n = sizeof(c) / sizeof(c[0]);
	uint8_t key[sizeof(c) / sizeof(c[0])][2][KVMM_KEY_LEN];
	const uint32_t token = 7;
	size_t i, j;

	(void)state;
	for (i = 0; i < n; i++) {
		struct iovec domain[3];
		unsigned int nr = 0;
		struct kvmm_keyer *k;

		for (; nr < 3 && c[i].domain[nr]; nr++)
			domain[nr] = text(c[i].domain[nr]);
		k = keyer(domain, nr, c[i].salt);
		kvmm_key_chain(k, NULL, &token, 1, 1, NULL, key[i][0]);
		kvmm_key_wrap(k, 0, &token, sizeof(token), key[i][1]);
		kvmm_keyer_free(k);
	}
	for (i = 0; i < 2 * n; i++)
		for (j = 0; j < i; j++)
			assert_memory_not_equal(key[i / 2][i % 2],
						key[j / 2][j % 2],
						KVMM_KEY_LEN);
}

static void extra_bytes_and_groups(void **state)
{
	struct kvmm_keyer *k = keyer(NULL, 0, NULL);
	const uint32_t tokens[] = { 0x61626364, 2 };
	struct iovec extra = text("abcd");
	uint8_t a[KVMM_KEY_LEN], b[KVMM_KEY_LEN];

	(void)state;
	kvmm_key_chain(k, NULL, tokens, 2, 2, NULL, a);
	kvmm_key_chain(k, NULL, tokens, 2, 2, &extra, b);
	assert_memory_not_equal(a, b, KVMM_KEY_LEN);
	/* Extra bytes that look like tokens are none. */
	kvmm_key_chain(k, NULL, tokens + 1, 1, 1, &extra, b);
	assert_memory_not_equal(a, b, KVMM_KEY_LEN);
	kvmm_key_wrap(k, 0, "x", 1, a);
	kvmm_key_wrap(k, 1, "x", 1, b);
	assert_memory_not_equal(a, b, KVMM_KEY_LEN);
	kvmm_key_wrap(k, 0, "x\0", 2, b);
	assert_memory_not_equal(a, b, KVMM_KEY_LEN);
	kvmm_keyer_free(k);
}

static void bad_input(void **state)
{
	struct iovec hole = { NULL, 5 };
	struct kvmm_key_opts o = { .size = sizeof(o) };
	struct kvmm_keyer *k = NULL;
	uint8_t key[KVMM_KEY_LEN];
	uint32_t token = 1;

	(void)state;
	assert_fails(kvmm_keyer_new(NULL, &o), EINVAL);
	assert_fails(kvmm_keyer_new(&k, NULL), EINVAL);
	o.size--;
	assert_fails(kvmm_keyer_new(&k, &o), EINVAL);
	o.size++;
	o.nr_domain = 1;
	assert_fails(kvmm_keyer_new(&k, &o), EINVAL);
	o.domain = &hole;
	assert_fails(kvmm_keyer_new(&k, &o), EINVAL);
	o.nr_domain = 0;
	o.salt_len = 1;
	assert_fails(kvmm_keyer_new(&k, &o), EINVAL);
	assert_null(k);
	kvmm_keyer_free(NULL);

	k = keyer(NULL, 0, NULL);
	assert_fails(kvmm_key_chain(k, NULL, &token, 1, 0, NULL, key), EINVAL);
	assert_fails(kvmm_key_chain(k, NULL, NULL, 1, 1, NULL, key), EINVAL);
	assert_fails(kvmm_key_chain(k, NULL, &token, 1, 1, NULL, NULL), EINVAL);
	assert_fails(kvmm_key_wrap(k, 0, NULL, 1, key), EINVAL);
	assert_fails(kvmm_key_wrap(k, 0, "x", 0, key), EINVAL);
	assert_fails(kvmm_key_wrap(k, 0, "x", 1, NULL), EINVAL);
	kvmm_keyer_free(k);
}

int main(void)
{
	const struct lt_test tests[] = {
		LT_TEST(vectors),
		LT_TEST(chains),
		LT_TEST(nothing_collides),
		LT_TEST(extra_bytes_and_groups),
		LT_TEST(bad_input),
	};

	return LT_RUN("key", tests);
}
