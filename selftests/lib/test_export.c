// SPDX-License-Identifier: MIT
/*
 * Frames as a dma-buf: the arena's own memory, on the kernel's backend; the
 * user's says that it can't.
 */
#include "lt.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void arguments(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "export", 4, 0, 0);
	struct kvmm_pool *reader;

	assert_int_equal(kvmm_export(pool, 0, 0, 0), -EINVAL);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(kvmm_export(pool, 4, 1, 0), -EINVAL);
	assert_int_equal(kvmm_export(pool, 1, 4, 0), -EINVAL);
	assert_int_equal(kvmm_export(pool, 1, -1U, 0), -EINVAL);
	assert_int_equal(kvmm_export(pool, 0, 1, 2), -EINVAL);
	assert_int_equal(kvmm_pool_open(lt->kv, "export", KVMM_POOL_RDONLY,
					&reader), 0);
	assert_int_equal(kvmm_export(reader, 0, 1, 0),
			 lt->kernel ? -EACCES : -EOPNOTSUPP);
	kvmm_pool_close(reader);
	lt_end(lt, pool, "export");
}

static void user_backend(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "export", 4, 0, 0);
	struct kvmm_info info;

	assert_int_equal(kvmm_info(lt->kv, &info), 0);
	assert_false(info.features & KVMM_FEATURE_EXPORT);
	assert_int_equal(kvmm_export(pool, 0, 1, 0), -EOPNOTSUPP);
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(kvmm_export(pool, 0, 4, KVMM_EXPORT_RDONLY),
			 -EOPNOTSUPP);
	lt_end(lt, pool, "export");
}

static void kernel_backend(void **state)
{
	struct lt *lt = *state;
	struct kvmm_pool *pool = lt_pool(lt, "export", 4, 0, 0);
	unsigned char *arena = kvmm_pool_arena(pool, NULL);
	struct kvmm_pool_stat st;
	struct kvmm_info info;
	unsigned char *mem;
	int fd;

	assert_int_equal(kvmm_info(lt->kv, &info), 0);
	assert_true(info.features & KVMM_FEATURE_EXPORT);
	fd = kvmm_export(pool, 1, 2, 0);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(lseek(fd, 0, SEEK_END), 2 * LT_BLOCK);
	assert_int_equal(kvmm_pool_stat(pool, &st), 0);
	assert_int_equal(st.exports, 1);

	mem = mmap(NULL, 2 * LT_BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		   0);
	assert_ptr_not_equal(mem, MAP_FAILED);
	memset(arena + LT_BLOCK, 0x11, 2 * LT_BLOCK);
	assert_int_equal(mem[0], 0x11);
	assert_int_equal(mem[2 * LT_BLOCK - 1], 0x11);
	mem[LT_BLOCK] = 0x22;
	assert_int_equal(arena[2 * LT_BLOCK], 0x22);
	close(fd);

	/* the mapping alone keeps the memory */
	lt_end(lt, pool, "export");
	assert_int_equal(mem[LT_BLOCK], 0x22);
	assert_int_equal(munmap(mem, 2 * LT_BLOCK), 0);
}

int main(void)
{
	static const struct lt_test user[] = {
		LT_TEST(arguments),
		LT_TEST_ON(user_backend, LT_USER),
	};
	static const struct lt_test kernel[] = {
		LT_TEST(arguments),
		LT_TEST(kernel_backend),
	};
	const char *backend = getenv("KVMM_TEST_BACKEND");

	if (backend && !strcmp(backend, "kernel"))
		return LT_RUN("export", kernel);
	return LT_RUN("export", user);
}
