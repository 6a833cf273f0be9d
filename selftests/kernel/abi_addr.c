// SPDX-License-Identifier: MIT
/*
 * Addresses that can't be read or written, for every ioctl's struct and array:
 * -EFAULT, and a call that failed so has left nothing behind.
 */
#include "abi_calls.h"

static void set_addr(union arg *a, uint16_t at, const void *addr)
{
	uint64_t value = (uintptr_t)addr;

	memcpy(a->bytes + at, &value, sizeof(value));
}

/* The struct itself in memory that is not there. */
TEST_F(abi, struct_address)
{
	const struct call *c;
	char *page;

	page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, page);
	for (c = calls; c < calls + NR_CALLS; c++) {
		ASSERT_EQ(0, ready(self, c));
		EXPECT_EQ(-EFAULT, issue(self, c, NULL)) {
			TH_LOG("%s: NULL", c->name);
		}
		EXPECT_EQ(-EFAULT, issue(self, c, page)) {
			TH_LOG("%s: no access", c->name);
		}
		EXPECT_EQ(-EFAULT, issue(self, c, (void *)-4096L)) {
			TH_LOG("%s: kernel address", c->name);
		}
	}
}

/* The struct ends in memory that is not there. */
TEST_F(abi, struct_cut)
{
	const struct call *c;
	char *page;

	page = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, page);
	ASSERT_EQ(0, mprotect(page + 4096, 4096, PROT_NONE));
	for (c = calls; c < calls + NR_CALLS; c++) {
		ASSERT_EQ(0, ready(self, c));
		memcpy(page + 4096 - (c->size - 4), &self->arg, c->size - 4);
		EXPECT_EQ(-EFAULT,
			  issue(self, c, page + 4096 - (c->size - 4))) {
			TH_LOG("%s", c->name);
		}
	}
}

/*
 * The struct in memory that can only be read: a call that writes to it fails,
 * and has left nothing behind: no pool, no binding, no block, no pin.
 */
TEST_F(abi, struct_read_only)
{
	struct kvmm_pool_entry entry[4];
	const struct call *c;
	struct kt watch;
	char *page;
	int ret;

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, page);
	for (c = calls; c < calls + NR_CALLS; c++) {
		ASSERT_EQ(0, ready(self, c));
		ASSERT_EQ(0, mprotect(page, 4096, PROT_READ | PROT_WRITE));
		memcpy(page, &self->arg, c->size);
		ASSERT_EQ(0, mprotect(page, 4096, PROT_READ));
		ret = issue(self, c, page);
		/* what fails for its own reason may say so before it writes */
		EXPECT_TRUE(ret == -EFAULT || (ret == c->want &&
					       (c->want || !c->out))) {
			TH_LOG("%s: %d", c->name, ret);
		}
		if (c->cmd == KVMM_POOL_DESTROY) {
			EXPECT_EQ(!!ret, kt_list(entry, 4)) {
				TH_LOG("destroyed all the same");
			}
		}
		if (c->cmd == KVMM_POOL_CREATE) {
			EXPECT_EQ(1, kt_list(entry, 4)) {
				TH_LOG("a pool was made all the same");
			}
		}
		if (c->cmd == KVMM_POOL_OPEN) {
			EXPECT_EQ(1, kt_list(entry, 4));
			EXPECT_EQ(0, entry[0].nr_clients) {
				TH_LOG("the client was bound all the same");
			}
		}
		if (c->cmd == KVMM_ALLOC) {
			struct kvmm_pool_stat st;

			ASSERT_EQ(0, kt_join(&watch, "abi", 0));
			ASSERT_EQ(0, kt_stat(&watch, &st));
			EXPECT_EQ(0, st.pins) {
				TH_LOG("blocks that nobody was told of");
			}
			kt_close(&watch);
		}
	}
}

/* The arrays in memory that is not there. */
TEST_F(abi, array_address)
{
	const struct call *c;
	char *page;

	page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, page);
	for (c = calls; c < calls + NR_CALLS; c++) {
		if (c->addr == NONE)
			continue;
		/* KVMM_KEYS writes nothing where there is no block */
		if (c->cmd == KVMM_KEYS)
			continue;
		CASE(c, -EFAULT, set_addr(&self->arg, c->addr, NULL));
		CASE(c, -EFAULT, set_addr(&self->arg, c->addr, page));
		CASE(c, -EFAULT,
		     set_addr(&self->arg, c->addr, (void *)-4096L));
		CASE(c, -EFAULT, set_addr(&self->arg, c->addr,
					  (void *)(1UL << 47)));
		if (c->addr2 == NONE)
			continue;
		CASE(c, -EFAULT, set_addr(&self->arg, c->addr2, NULL));
		CASE(c, -EFAULT, set_addr(&self->arg, c->addr2, page));
	}
}

/*
 * An array whose second half is not there.  Entries before it may have been
 * done; of those that were not reported nothing may stay.
 */
TEST_F(abi, array_cut)
{
	struct kvmm_block_ref *cut, stored[128];
	struct kvmm_pool_stat st;
	struct kt t;
	uint32_t done = 0;
	char *page;
	int ret;

	page = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, page);
	ASSERT_EQ(0, mprotect(page + 4096, 4096, PROT_NONE));
	/* 100 entries are there, 28 are not */
	cut = (struct kvmm_block_ref *)(page + 4096) - 100;

	ASSERT_EQ(0, kt_create(&t, 4096, FRAMES, 0));
	ret = kt_alloc_wait(&t, cut, 128, 0, &done);
	EXPECT_EQ(-EFAULT, ret);
	ASSERT_EQ(0, kt_stat(&t, &st));
	EXPECT_EQ(done, st.pins);
	EXPECT_LE(done, 100);
	if (done)
		EXPECT_EQ(0, kt_batch(&t, KVMM_UNPIN, cut, done, NULL));

	ASSERT_EQ(0, kt_store(&t, 1, 128, stored));
	ret = kt_lookup(&t, 1, 128, KVMM_LOOKUP_PIN, cut);
	EXPECT_EQ(-EFAULT, ret);
	ASSERT_EQ(0, kt_stat(&t, &st));
	EXPECT_EQ(0, st.pins) {
		TH_LOG("pins that nobody was told of");
	}
	KT_CONSISTENT(&t);
	KT_FINISH(&t);
	munmap(page, 8192);
}

/* Refs in memory that can be read but not written. */
TEST_F(abi, array_read_only)
{
	const struct call *c;
	void *page;
	size_t bytes = 2 * sizeof(pubs[0]);

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, page);
	for (c = calls; c < calls + NR_CALLS; c++) {
		if (c->addr == NONE || c->cmd == KVMM_KEYS)
			continue;
		ASSERT_EQ(0, mprotect(page, 4096, PROT_READ | PROT_WRITE));
		memcpy(page, c->cmd == KVMM_PUBLISH ? (void *)pubs : refs,
		       bytes);
		ASSERT_EQ(0, mprotect(page, 4096, PROT_READ));
		CASE(c, -EFAULT, set_addr(&self->arg, c->addr, page));
		if (c->bound)
			KT_CONSISTENT(&self->owner);
	}
}

KT_MAIN
