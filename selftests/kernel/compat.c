// SPDX-License-Identifier: MIT
/*
 * A 32-bit program on the 64-bit kernel goes all the way of a block (see
 * compat32.c, which is a part of this program), and what it stored, and was told,
 * is byte for byte what a 64-bit process finds and is told; and the other way
 * round.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "compat.h"
#include "kt_harness.h"

#define AREA	"compat-area"

/* The 32-bit program. */
extern const unsigned char compat32[], compat32_end[];
asm(".section .rodata\n"
    ".global compat32, compat32_end\n"
    "compat32: .incbin \"" COMPAT32 "\"\n"
    "compat32_end: .byte 0\n"
    ".previous");

#define NO_EXEC	126

FIXTURE(compat) {
	struct kt t;
	int area;
	int sock;
	pid_t pid;
};

/* Starts it with the files it wants, and none else. */
static pid_t start(int area, int sock)
{
	char *const argv[] = { "compat32", NULL }, *const env[] = { NULL };
	size_t size = compat32_end - compat32;
	int prog = memfd_create("compat32", 0);
	pid_t pid;

	if (prog < 0 || write(prog, compat32, size) != (ssize_t)size)
		return -1;
	pid = fork();
	if (!pid) {
		/* out of the way of the numbers it wants */
		area = fcntl(area, F_DUPFD, 20);
		sock = fcntl(sock, F_DUPFD, 20);
		prog = fcntl(prog, F_DUPFD_CLOEXEC, 20);
		dup2(area, COMPAT_AREA);
		dup2(sock, COMPAT_SOCKET);
		close(area);
		close(sock);
		fexecve(prog, argv, env);
		_exit(NO_EXEC);
	}
	close(prog);
	return pid;
}

FIXTURE_SETUP(compat)
{
	struct timeval limit = { .tv_sec = 60 };
	int sock[2], status;
	char byte;

	kt_wipe();
	self->t.fd = -1;
	ASSERT_NE(NULL, kt_disk_dir());
	self->area = kt_area_file(AREA, KT_BLOCK, COMPAT_SLOTS);
	ASSERT_LE(0, self->area);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	self->sock = sock[0];
	self->pid = start(self->area, sock[1]);
	ASSERT_LT(0, self->pid);
	close(sock[1]);
	setsockopt(self->sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (read(self->sock, &byte, 1) == 1)
		return;
	ASSERT_EQ(self->pid, waitpid(self->pid, &status, 0));
	if (WIFEXITED(status) && WEXITSTATUS(status) == NO_EXEC) {
		kt_area_unlink(AREA);
		SKIP(_exit(255), "the kernel runs no 32-bit programs");
	}
	ASSERT_EQ(0, status) {
		TH_LOG("the 32-bit program gave up");
	}
}

FIXTURE_TEARDOWN(compat)
{
	close(self->sock);
	if (self->t.fd >= 0) {
		KT_CONSISTENT(&self->t);
		KT_FINISH(&self->t);
	}
	close(self->area);
	kt_area_unlink(AREA);
}

static int ask(struct kt *t, struct compat_told *told)
{
	struct kvmm_keys keys = {
		.size = sizeof(keys), .entries = (uintptr_t)told->keys,
		.count = COMPAT_FRAMES,
	};
	int ret = kt_info(&told->info);

	ret = ret ? ret : kt_stat(t, &told->stat);
	ret = ret ? ret : kt_list(&told->pool, 1) - 1;
	ret = ret ? ret : kt_ioctl(t->fd, KVMM_KEYS, &keys);
	told->nr_keys = keys.done;
	return ret;
}

#define SAME(field) EXPECT_EQ(0, memcmp(&theirs.field, &ours.field,	\
					sizeof(ours.field))) {		\
	TH_LOG("%s differs", #field);					\
}

TEST_F(compat, all_the_way)
{
	struct compat_told theirs, ours = { 0 };
	struct kvmm_block_ref refs[COMPAT_N];
	struct kt *t = &self->t;
	char byte = 0;
	int i;

	ASSERT_EQ(0, kt_join(t, COMPAT_POOL, 0));
	EXPECT_EQ(COMPAT_BLOCK, t->block_size);
	EXPECT_EQ(COMPAT_FRAMES, t->nr_frames);

	/* what it is told is what we are told */
	ASSERT_EQ(1, write(self->sock, &byte, 1));
	ASSERT_EQ(sizeof(theirs), recv(self->sock, &theirs, sizeof(theirs),
				       MSG_WAITALL));
	ASSERT_EQ(1, read(self->sock, &byte, 1));
	ASSERT_EQ(0, ask(t, &ours));
	SAME(info);
	SAME(stat);
	SAME(pool);
	EXPECT_EQ(COMPAT_N, ours.nr_keys);
	SAME(nr_keys);
	SAME(keys);
	EXPECT_EQ(2, ours.stat.nr_clients);
	EXPECT_EQ(COMPAT_N, ours.stat.blocks[KVMM_SWAPPED]);
	EXPECT_EQ(COMPAT_N * (uint64_t)KT_BLOCK, ours.stat.swap_out_bytes);
	EXPECT_EQ(COMPAT_N, ours.stat.swap_ins);
	EXPECT_EQ(0, ours.stat.pins);
	/* an event for each of its blocks */
	ASSERT_EQ(COMPAT_N, kt_lookup(t, 1, COMPAT_N, KVMM_LOOKUP_PEEK, refs));
	ASSERT_EQ(COMPAT_N, theirs.nr_events);
	for (i = 0; i < COMPAT_N; i++) {
		uint8_t key[KVMM_KEY_LEN];
		int j;

		EXPECT_EQ(KVMM_EVENT_EVICTED, theirs.events[i].type);
		for (j = 0; j < COMPAT_N; j++)
			if (theirs.events[i].handle == refs[j].handle)
				break;
		ASSERT_GT(COMPAT_N, j);
		kt_key(key, 1 + j);
		EXPECT_EQ(0, memcmp(key, theirs.events[i].key, sizeof(key)));
		refs[j].handle = 0;
	}

	/* what it stored is what we read, and it reads what we store */
	EXPECT_EQ(COMPAT_N, kt_load_all(t, 1, COMPAT_N));
	ASSERT_EQ(0, kt_store(t, COMPAT_THEIRS, COMPAT_M, refs));
	ASSERT_EQ(1, write(self->sock, &byte, 1));
	EXPECT_EQ(0, kt_reap(self->pid));
}

KT_MAIN
