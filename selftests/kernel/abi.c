// SPDX-License-Identifier: MIT
/*
 * The shape of the interface: for every ioctl the sizes it takes and refuses,
 * unknown flags, reserved fields, counts out of range, and calls that come from
 * a client that is not bound, or from a 32-bit program.
 */
#include "abi_calls.h"

TEST_F(abi, well_formed)
{
	const struct call *c;

	for (c = calls; c < calls + NR_CALLS; c++)
		CASE(c, c->want, (void)0);
}

TEST_F(abi, size_too_small)
{
	const struct call *c;

	for (c = calls; c < calls + NR_CALLS; c++) {
		CASE(c, -EINVAL, self->arg.size = 0);
		CASE(c, -EINVAL, self->arg.size = 4);
		CASE(c, -EINVAL, self->arg.size = c->size - 1);
	}
}

TEST_F(abi, size_too_large)
{
	const struct call *c;

	for (c = calls; c < calls + NR_CALLS; c++) {
		CASE(c, c->want, self->arg.size = c->size + 1);
		CASE(c, c->want, self->arg.size = c->size + 64);
		CASE(c, -E2BIG, self->arg.size = c->size + 1;
		     self->arg.bytes[c->size] = 1);
		CASE(c, -E2BIG, self->arg.size = c->size + 64;
		     self->arg.bytes[c->size + 63] = 0x80);
	}
}

/* A size that runs past the memory, or that is not a size at all. */
TEST_F(abi, size_absurd)
{
	const struct call *c;
	int ret;

	for (c = calls; c < calls + NR_CALLS; c++) {
		ASSERT_EQ(0, ready(self, c));
		self->arg.size = 0xffffffff;
		ret = issue(self, c, &self->arg);
		EXPECT_TRUE(ret == -E2BIG || ret == -EFAULT) {
			TH_LOG("%s: %d", c->name, ret);
		}
	}
}

TEST_F(abi, unknown_flags)
{
	const struct call *c;
	uint32_t bit;

	for (c = calls; c < calls + NR_CALLS; c++) {
		CASE(c, -EINVAL, self->arg.head[1] = 1U << 31);
		CASE(c, -EINVAL, self->arg.head[1] = c->flags | 1U << 30);
		for (bit = 1; bit & c->flags; bit <<= 1)
			;
		CASE(c, -EINVAL, self->arg.head[1] = bit);
		if (c->more_flags == NONE)
			continue;
		CASE(c, -EINVAL, self->arg.bytes[c->more_flags] = 0x80);
		CASE(c, -EINVAL, self->arg.bytes[c->more_flags + 3] = 0x80);
	}
}

TEST_F(abi, reserved)
{
	const struct call *c;

	for (c = calls; c < calls + NR_CALLS; c++) {
		if (c->reserved == NONE)
			continue;
		CASE(c, -EINVAL, self->arg.bytes[c->reserved] = 1);
		CASE(c, -EINVAL, self->arg.bytes[c->reserved + 3] = 0x80);
	}
}

static void set_u32(union arg *a, uint16_t at, uint32_t value)
{
	memcpy(a->bytes + at, &value, sizeof(value));
}

TEST_F(abi, counts)
{
	const struct call *c;

	for (c = calls; c < calls + NR_CALLS; c++) {
		if (c->count == NONE)
			continue;
		CASE(c, -EINVAL, set_u32(&self->arg, c->count, 0));
		CASE(c, -EINVAL,
		     set_u32(&self->arg, c->count, KVMM_MAX_BATCH + 1));
		CASE(c, -EINVAL, set_u32(&self->arg, c->count, 0xffffffff));
		/* as many as there may be: all arrays here are so long */
		CASE(c, c->cmd == KVMM_ALLOC ? -ENOSPC : c->want,
		     set_u32(&self->arg, c->count, KVMM_MAX_BATCH));
	}
}

TEST_F(abi, unknown_commands)
{
	const struct call query = { .bound = true };
	int fd;

	ASSERT_EQ(0, ready(self, &query));
	fd = self->owner.fd;
	self->arg.size = sizeof(struct kvmm_info);
	EXPECT_EQ(-ENOTTY, kt_ioctl(fd, _IO(KVMM_IOCTL_TYPE, 0x0b),
				    &self->arg));
	EXPECT_EQ(-ENOTTY, kt_ioctl(fd, _IO(KVMM_IOCTL_TYPE, 0x0f),
				    &self->arg));
	EXPECT_EQ(-ENOTTY, kt_ioctl(fd, _IO(KVMM_IOCTL_TYPE, 0x7e),
				    &self->arg));
	EXPECT_EQ(-ENOTTY, kt_ioctl(fd, _IO(KVMM_IOCTL_TYPE, 0xff),
				    &self->arg));
	EXPECT_EQ(-ENOTTY, kt_ioctl(fd, _IO('k', 0), &self->arg));
	EXPECT_EQ(-ENOTTY, kt_ioctl(fd, 0, &self->arg));
	/* numbers don't encode a size or a direction */
	EXPECT_EQ(-ENOTTY, kt_ioctl(fd, _IOWR(KVMM_IOCTL_TYPE, 0,
					      struct kvmm_info), &self->arg));
}

/* The same commands from a 32-bit program: the structs are the same. */
#ifdef __x86_64__
static int ioctl32(int fd, uint32_t cmd, void *arg)
{
	int ret;

	asm volatile("int $0x80"
		     : "=a"(ret)
		     : "a"(54), "b"(fd), "c"(cmd), "d"((uint32_t)(uintptr_t)arg)
		     : "memory", "r8", "r9", "r10", "r11");
	return ret;
}

/* Number 20 is getpid() there, and something else for 64-bit programs. */
static int getpid32(void)
{
	int ret;

	asm volatile("int $0x80"
		     : "=a"(ret)
		     : "a"(20), "b"(-1), "c"(0), "d"(0)
		     : "memory", "r8", "r9", "r10", "r11");
	return ret;
}

TEST_F(abi, compat)
{
	const struct call *c;
	void *low;
	int ret;

	/* User Mode Linux takes the numbers for those of 64-bit programs */
	if (getpid32() != getpid())
		SKIP(return, "no 32-bit system calls");
	low = mmap(NULL, sizeof(self->arg), PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	ASSERT_NE(MAP_FAILED, low);
	for (c = calls; c < calls + NR_CALLS; c++) {
		ASSERT_EQ(0, ready(self, c));
		memcpy(low, &self->arg, sizeof(self->arg));
		ret = ioctl32(self->owner.fd, c->cmd, low);
		if (ret == -ENOSYS)
			SKIP(return, "no 32-bit system calls");
		EXPECT_EQ(c->want, ret) {
			TH_LOG("%s", c->name);
		}
		if (c->cmd == KVMM_EXPORT && !ret)
			close(((struct kvmm_export *)low)->fd);
	}
}
#endif

/* Before a pool is bound, and on one that is bound already. */
TEST_F(abi, binding)
{
	const struct call *c;
	int fd = kt_dev(O_RDWR);

	ASSERT_LE(0, fd);
	for (c = calls; c < calls + NR_CALLS; c++) {
		if (!c->bound)
			continue;
		ASSERT_EQ(0, ready(self, c));
		EXPECT_EQ(-ENOTCONN, kt_ioctl(fd, c->cmd, &self->arg)) {
			TH_LOG("%s", c->name);
		}
	}
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
	EXPECT_EQ(ENOTCONN, errno);
	close(fd);

	memset(&self->arg, 0, sizeof(self->arg));
	set_create(&self->arg);
	EXPECT_EQ(-EISCONN, kt_ioctl(self->owner.fd, KVMM_POOL_CREATE,
				     &self->arg));
	memset(&self->arg, 0, sizeof(self->arg));
	set_open(&self->arg);
	self->arg.size = sizeof(self->arg.open);
	EXPECT_EQ(-EISCONN, kt_ioctl(self->owner.fd, KVMM_POOL_OPEN,
				     &self->arg));
}

TEST_F(abi, info)
{
	struct kvmm_info info;

	ASSERT_EQ(0, kt_info(&info));
	EXPECT_EQ(KVMM_ABI, info.abi);
	EXPECT_EQ(0, info.nr_pools);
	EXPECT_EQ(1, info.policies & 1);
	EXPECT_EQ(KVMM_MAX_BATCH, info.max_batch);
	EXPECT_LE(KVMM_MIN_BLOCK_SIZE, info.max_block_size);
	EXPECT_GE(KVMM_MAX_BLOCK_SIZE, info.max_block_size);
	EXPECT_NE(0, info.features & KVMM_FEATURE_URING);
	EXPECT_NE(0, info.features & KVMM_FEATURE_CHECKSUM);
	EXPECT_NE(0, strnlen(info.version, sizeof(info.version)));
	EXPECT_GT(sizeof(info.version),
		  strnlen(info.version, sizeof(info.version)));
}

KT_MAIN
