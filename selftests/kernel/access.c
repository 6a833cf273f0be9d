// SPDX-License-Identifier: MIT
/*
 * Who may do what: a pool's mode and owner are checked as a file's are, only
 * the owner and the privileged end it or give it an area, and readers read.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "kt_harness.h"

#define OWNER	1000
#define GROUP	1000
#define OTHER	2000

static char name[KVMM_NAME_LEN] = "guarded";

#define CREATE_GID	"/sys/module/kvmm/parameters/create_gid"

FIXTURE(access) {
	struct stat dev;
	char create_gid[32];
};

FIXTURE_SETUP(access)
{
	kt_wipe();
	ASSERT_EQ(0, geteuid());
	/* the pool's mode is what is tested, not the device node's */
	ASSERT_EQ(0, stat(KT_DEVICE, &self->dev));
	ASSERT_EQ(0, chmod(KT_DEVICE, 0666));
	/* nor, but where it is said, who may make one */
	ASSERT_EQ(0, kt_file_get(CREATE_GID, self->create_gid, 32));
	ASSERT_EQ(0, kt_file_put(CREATE_GID, "1000"));
}

FIXTURE_TEARDOWN(access)
{
	struct kvmm_info info;

	chmod(KT_DEVICE, self->dev.st_mode & 07777);
	EXPECT_EQ(0, kt_file_put(CREATE_GID, self->create_gid));
	kt_destroy(name, 0);
	EXPECT_EQ(0, kt_info(&info));
	EXPECT_EQ(0, info.nr_pools);
	EXPECT_EQ(0, info.pinned_bytes);
}

static int make(void *arg)
{
	struct kvmm_pool_create spec = kt_spec(name, 4096, 8, 8);
	struct kvmm_block_ref refs[4];
	struct kt t;
	int ret;

	spec.mode = *(uint32_t *)arg;
	ret = kt_create_spec(&t, &spec);
	return ret ? ret : kt_store(&t, 1, 4, refs);
}

static int remake(uint32_t mode)
{
	kt_destroy(name, 0);
	return kt_child_as(OWNER, GROUP, 0, make, &mode);
}

static int join_rw(void *arg)
{
	struct kt t;

	(void)arg;
	return kt_join(&t, name, 0);
}

static int join_ro(void *arg)
{
	struct kt t;

	(void)arg;
	return kt_join(&t, name, KVMM_POOL_RDONLY);
}

static int end(void *arg)
{
	return kt_destroy(name, *(uint32_t *)arg);
}

TEST_F(access, modes)
{
	/* what owner, group and others may: 'w' write, 'r' read, '-' nothing */
	static const struct { uint32_t mode; const char *may; } cases[] = {
		{ 0600, "w--" }, { 0640, "wr-" }, { 0660, "ww-" },
		{ 0644, "wrr" }, { 0666, "www" }, { 0400, "r--" },
		{ 0200, "---" }, { 0000, "---" }, { 0060, "-w-" },
		{ 0006, "--w" }, { 0040, "-r-" }, { 0622, "w--" },
		{ 0777, "www" }, { 0111, "---" },
	};
	static const struct { uid_t uid; gid_t gid, extra; } who[] = {
		{ OWNER, OTHER, 0 }, { OTHER, GROUP, 0 }, { OTHER, OTHER, 0 },
		{ OTHER, OTHER, GROUP },
	};
	size_t i, j;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ASSERT_EQ(0, remake(cases[i].mode));
		for (j = 0; j < 4; j++) {
			/* a further group counts as the group */
			char may = cases[i].may[j == 3 ? 1 : j];

			EXPECT_EQ(may == 'w' ? 0 : -EACCES,
				  kt_child_as(who[j].uid, who[j].gid,
					      who[j].extra, join_rw, NULL)) {
				TH_LOG("mode %03o, case %zu, read-write",
				       cases[i].mode, j);
			}
			EXPECT_EQ(may == '-' ? -EACCES : 0,
				  kt_child_as(who[j].uid, who[j].gid,
					      who[j].extra, join_ro, NULL)) {
				TH_LOG("mode %03o, case %zu, read-only",
				       cases[i].mode, j);
			}
		}
		/* privilege passes */
		EXPECT_EQ(0, kt_child(join_rw, NULL));
	}
}

TEST_F(access, owner)
{
	struct kvmm_pool_entry e;

	ASSERT_EQ(0, remake(0600));
	ASSERT_EQ(1, kt_list(&e, 1));
	EXPECT_EQ(OWNER, e.uid);
	EXPECT_EQ(GROUP, e.gid);
	EXPECT_EQ(0600, e.mode);
}

TEST_F(access, destroy)
{
	uint32_t none = 0, force = KVMM_POOL_FORCE;

	ASSERT_EQ(0, remake(0666));
	EXPECT_EQ(-EPERM, kt_child_as(OTHER, GROUP, 0, end, &none));
	EXPECT_EQ(-EPERM, kt_child_as(OTHER, GROUP, 0, end, &force));
	EXPECT_EQ(0, kt_child_as(OWNER, OTHER, 0, end, &none));
	EXPECT_EQ(-ENOENT, kt_child_as(OTHER, GROUP, 0, end, &none));
	ASSERT_EQ(0, remake(0600));
	EXPECT_EQ(0, kt_child(end, &none));
}

static int make_only(void *arg)
{
	struct kvmm_pool_create spec = kt_spec(name, 4096, 1, 0);
	int fd = kt_dev(O_RDWR);
	int ret;

	(void)arg;
	ret = fd < 0 ? fd : kt_ioctl(fd, KVMM_POOL_CREATE, &spec);
	close(fd);
	if (!ret)
		kt_destroy(name, 0);
	return ret;
}

/* As user *@arg, with no privilege but CAP_IPC_LOCK; or with all but that. */
static int make_with(void *arg)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = {};
	uid_t uid = *(uid_t *)arg;

	if (uid) {
		data[0].effective = 1U << CAP_IPC_LOCK;
	} else {
		if (syscall(SYS_capget, &head, data))
			return -errno;
		data[0].effective &= ~(1U << CAP_IPC_LOCK);
	}
	data[0].permitted = data[0].effective;
	if (prctl(PR_SET_KEEPCAPS, 1) || setresuid(uid, uid, uid) ||
	    syscall(SYS_capset, &head, data))
		return -errno;
	return make_only(NULL);
}

/* Memory that stays is a privilege: CAP_IPC_LOCK, or a group. */
TEST_F(access, create)
{
	uid_t owner = OWNER, root = 0;

	ASSERT_EQ(0, kt_file_put(CREATE_GID, "-1"));
	EXPECT_EQ(0, make_only(NULL));
	EXPECT_EQ(-EPERM, kt_child_as(OWNER, GROUP, 0, make_only, NULL));
	EXPECT_EQ(0, kt_child(make_with, &owner));
	EXPECT_EQ(-EPERM, kt_child(make_with, &root));
	ASSERT_EQ(0, kt_file_put(CREATE_GID, "1000"));
	EXPECT_EQ(0, kt_child_as(OWNER, GROUP, 0, make_only, NULL));
	EXPECT_EQ(0, kt_child_as(OTHER, OTHER, GROUP, make_only, NULL));
	EXPECT_EQ(-EPERM, kt_child_as(GROUP, OTHER, 0, make_only, NULL));
	EXPECT_EQ(0, make_only(NULL));
	/* group 0 is a group, not "none" */
	ASSERT_EQ(0, kt_file_put(CREATE_GID, "0"));
	EXPECT_EQ(-EPERM, kt_child_as(OWNER, GROUP, 0, make_only, NULL));
	EXPECT_EQ(0, kt_child_as(OWNER, 0, 0, make_only, NULL));
	/* to open one that exists takes none of it */
	ASSERT_EQ(0, kt_file_put(CREATE_GID, "1000"));
	ASSERT_EQ(0, remake(0666));
	ASSERT_EQ(0, kt_file_put(CREATE_GID, "-1"));
	EXPECT_EQ(0, kt_child_as(OTHER, OTHER, 0, join_rw, NULL));
}

static int attach_nothing(void *arg)
{
	struct kt t;
	int ret = kt_join(&t, name, 0);

	(void)arg;
	return ret ? ret : kt_attach(&t, -1, 0, 0, 0, NULL);
}

static int detach_nothing(void *arg)
{
	struct kt t;
	int ret = kt_join(&t, name, 0);

	(void)arg;
	return ret ? ret : kt_detach(&t, 0);
}

TEST_F(access, area)
{
	ASSERT_EQ(0, remake(0666));
	EXPECT_EQ(-EPERM, kt_child_as(OTHER, GROUP, 0, attach_nothing, NULL));
	EXPECT_EQ(-EPERM, kt_child_as(OTHER, GROUP, 0, detach_nothing, NULL));
	EXPECT_EQ(-EBADF, kt_child_as(OWNER, OTHER, 0, attach_nothing, NULL));
	EXPECT_EQ(-ENOENT, kt_child_as(OWNER, OTHER, 0, detach_nothing, NULL));
	EXPECT_EQ(-EBADF, kt_child(attach_nothing, NULL));
}

/* A reader finds, holds and lists; it changes nothing, and maps to read. */
TEST_F(access, reader)
{
	struct kvmm_request_end end_arg = { .size = sizeof(end_arg) };
	struct kvmm_hint hint = { .size = sizeof(hint) };
	struct kvmm_key_entry keys[8];
	struct kvmm_keys list = {
		.size = sizeof(list), .entries = (uintptr_t)keys, .count = 8,
	};
	struct kvmm_block_ref refs[4], filling;
	struct kvmm_pool_stat st;
	struct kt r, w;
	void *mem;

	ASSERT_EQ(0, remake(0644));
	ASSERT_EQ(0, kt_join(&w, name, 0));
	ASSERT_EQ(0, kt_alloc(&w, &filling, 1));
	ASSERT_EQ(0, kt_join(&r, name, KVMM_POOL_RDONLY));

	ASSERT_EQ(4, kt_lookup(&r, 1, 4, KVMM_LOOKUP_PIN, refs));
	EXPECT_TRUE(kt_good(&r, refs[2].frame, 3));
	EXPECT_EQ(0, kt_touch1(&r, refs[0].handle));
	EXPECT_EQ(0, kt_pin1(&r, refs[0].handle));
	EXPECT_EQ(0, kt_unpin1(&r, refs[0].handle));
	EXPECT_EQ(KVMM_RESIDENT, kt_query1(&r, refs[0].handle));
	EXPECT_EQ(4, kt_swap(&r, KVMM_SWAP_IN, refs, 4, 0));
	EXPECT_EQ(0, kt_ioctl(r.fd, KVMM_KEYS, &list));
	EXPECT_EQ(4, list.done);
	EXPECT_EQ(0, kt_stat(&r, &st));
	EXPECT_EQ(4, st.blocks_pinned - 1);
	EXPECT_EQ(0, kt_batch(&r, KVMM_UNPIN, refs, 4, NULL));
	EXPECT_EQ(-EACCES, kt_pin1(&r, filling.handle));

	EXPECT_EQ(-EACCES, kt_alloc(&r, refs, 1));
	EXPECT_EQ(-EACCES, kt_publish1(&r, filling.handle, 50, 0));
	EXPECT_EQ(-EACCES, kt_drop1(&r, refs[0].handle));
	EXPECT_EQ(-EACCES, kt_swap(&r, KVMM_SWAP_OUT, refs, 4, 0));
	EXPECT_EQ(-EACCES, kt_reclaim(&r, 0, NULL));
	EXPECT_EQ(-EACCES, kt_reset(&r, NULL));
	EXPECT_EQ(-EACCES, kt_clock(&r, 1));
	EXPECT_EQ(-EACCES, kt_populate(&r, 0, 1, NULL));
	end_arg.handle = refs[0].handle;
	EXPECT_EQ(-EACCES, kt_ioctl(r.fd, KVMM_REQUEST_END, &end_arg));
	hint.handle = refs[0].handle;
	EXPECT_EQ(-EACCES, kt_ioctl(r.fd, KVMM_HINT, &hint));

	mem = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd, 0);
	EXPECT_EQ(MAP_FAILED, mem);
	EXPECT_EQ(EACCES, errno);
	EXPECT_NE(0, mprotect(r.arena, 4096, PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);
	/* a file open for writing, but a reader by its own choice */
	close(r.fd);
	r.fd = kt_dev(O_RDWR);
	{
		struct kvmm_pool_open arg = {
			.size = sizeof(arg), .flags = KVMM_POOL_RDONLY,
		};

		strcpy(arg.name, name);
		ASSERT_EQ(0, kt_ioctl(r.fd, KVMM_POOL_OPEN, &arg));
	}
	mem = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd, 0);
	EXPECT_EQ(MAP_FAILED, mem);
	mem = mmap(NULL, 4096, PROT_READ, MAP_SHARED, r.fd, 0);
	ASSERT_NE(MAP_FAILED, mem);
	EXPECT_NE(0, mprotect(mem, 4096, PROT_READ | PROT_WRITE));
	munmap(mem, 4096);
	EXPECT_EQ(-EACCES, kt_alloc(&r, refs, 1));
	kt_close(&r);
	kt_close(&w);
}

KT_MAIN
