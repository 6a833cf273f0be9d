// SPDX-License-Identifier: MIT
/*
 * Little is allowed.  Where a container's seccomp filter forbids io_uring, the
 * library says so once, and everything works with threads (user) or ioctls
 * (kernel).  Where RLIMIT_MEMLOCK forbids registering the arena, it says so
 * once, and works without.
 */
#include "lt.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int forbid_io_uring(int err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SYS_io_uring_setup, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SYS_io_uring_register, 1,
			 0),
		BPF_STMT(BPF_RET | BPF_K,
			 SECCOMP_RET_ERRNO | (unsigned int)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {
		.len = sizeof(code) / sizeof(code[0]),
		.filter = code,
	};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

/* How many messages speak of @what. */
static unsigned int mentions(const struct lt *lt, const char *what)
{
	const char *at = lt->log;
	unsigned int n = 0;

	while ((at = strstr(at, what))) {
		n++;
		at += strcspn(at, "\n");
	}
	return n;
}

/* In a child of its own: a filter can't be taken off again. */
static int swap_under_filter(struct lt *lt, int err)
{
	struct kvmm_block_ref refs[100];
	struct kvmm_pool *pool;
	unsigned int i;

	if (forbid_io_uring(err))
		return 2;
	lt->log[0] = 0;
	lt->kv = lt_open(lt, 0);
	if (strcmp(kvmm_io_name(lt->kv), lt->kernel ? "ioctl" : "threads"))
		return 3;
	if (mentions(lt, "io_uring") != 1)
		return 4;
	pool = lt_pool(lt, "lt-seccomp", 100, 100, 0);
	lt_attach(pool, lt_path(lt), KVMM_SWAP_UNLINK);
	lt_store(pool, refs, 0, 100, 0);
	if (kvmm_swap_out(pool, refs, 100, KVMM_SWAP_DROP) != 100)
		return 5;
	memset(kvmm_pool_arena(pool, NULL), 0, 100 * LT_BLOCK);
	if (kvmm_swap_in(pool, refs, 100, KVMM_SWAP_PIN) != 100)
		return 6;
	for (i = 0; i < 100; i++)
		lt_check(kvmm_addr(pool, &refs[i]), i, LT_BLOCK);
	/* Once: not again for the area. */
	if (mentions(lt, "io_uring") != 1)
		return 7;
	lt_end(lt, pool, "lt-seccomp");
	kvmm_close(lt->kv);
	return 0;
}

static void forbidden(struct lt *lt, int err)
{
	int status;
	pid_t pid;

	if (getenv("KVMM_TEST_NO_URING"))
		unsetenv("KVMM_TEST_NO_URING");
	pid = fork();
	if (!pid)
		_exit(swap_under_filter(lt, err));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void io_uring_not_permitted(void **state)
{
	forbidden(*state, EPERM);
}

static void io_uring_not_there(void **state)
{
	forbidden(*state, ENOSYS);
}

/* As a user without privileges, with a file that only its parent may open. */
static int swap_without_memlock(struct lt *lt, int fd)
{
	struct kvmm_swap_opts so = { .size = sizeof(so), .fd = fd };
	const struct rlimit low = { 0 };
	struct kvmm_block_ref refs[100];
	struct kvmm_pool *pool;
	unsigned int i;

	if (setrlimit(RLIMIT_MEMLOCK, &low) || setgid(12345) || setuid(12345))
		return 2;
	lt->kv = lt_open(lt, 0);
	/* On old kernels the ring itself counts as locked: then threads do. */
	pool = lt_pool(lt, "lt-memlock", 100, 100, 0);
	if (kvmm_swap_attach(pool, &so) != 100)
		return 3;
	lt_store(pool, refs, 0, 100, 0);
	if (kvmm_swap_out(pool, refs, 100, KVMM_SWAP_DROP) != 100)
		return 4;
	memset(kvmm_pool_arena(pool, NULL), 0, 100 * LT_BLOCK);
	if (kvmm_swap_in(pool, refs, 100, KVMM_SWAP_PIN) != 100)
		return 5;
	for (i = 0; i < 100; i++)
		lt_check(kvmm_addr(pool, &refs[i]), i, LT_BLOCK);
	if (!strcmp(kvmm_io_name(lt->kv), "io_uring") &&
	    mentions(lt, "RLIMIT_MEMLOCK") != 1)
		return 6;
	lt_end(lt, pool, "lt-memlock");
	kvmm_close(lt->kv);
	return 0;
}

static void memlock_too_low(void **state)
{
	struct lt *lt = *state;
	const char *path = lt_path(lt);
	int fd, status;
	pid_t pid;

	fd = open(path, O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 100 * LT_BLOCK), 0);
	unlink(path);
	pid = fork();
	if (!pid)
		_exit(swap_without_memlock(lt, fd));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(fd);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	static const struct lt_test tests[] = {
		LT_TEST(io_uring_not_permitted),
		LT_TEST(io_uring_not_there),
		LT_TEST_ON(memlock_too_low, LT_USER_ROOT),
	};

	return LT_RUN("limits", tests);
}
