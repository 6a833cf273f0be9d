// SPDX-License-Identifier: MIT
/*
 * Every allocation fails once, of the commands on clients and pools.  See failnth.h.
 */
#include "failnth.h"

/* ---- clients ---- */

static int do_open(FIXTURE_DATA(failnth) *self)
{
	self->fd = open(KT_DEVICE, O_RDWR | O_CLOEXEC);
	return self->fd < 0 ? -errno : 0;
}

static int after_open(FIXTURE_DATA(failnth) *self, int ret)
{
	if (self->fd >= 0)
		close(self->fd);
	return (self->fd < 0) == (ret < 0) ? 0 : -EBADF;
}

TEST_F(failnth, open)
{
	sweep(_metadata, self, &(struct command){
		nothing, do_open, after_open });
}

static int before_bind(FIXTURE_DATA(failnth) *self)
{
	self->fd = kt_dev(O_RDWR);
	return self->fd < 0 ? self->fd : 0;
}

static int do_bind(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_pool_open arg = { .size = sizeof(arg), .name = POOL };

	return kt_ioctl(self->fd, KVMM_POOL_OPEN, &arg);
}

static int after_bind(FIXTURE_DATA(failnth) *self, int ret)
{
	(void)ret;
	close(self->fd);
	return 0;
}

TEST_F(failnth, bind)
{
	sweep(_metadata, self, &(struct command){
		before_bind, do_bind, after_bind });
}

static int do_create(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_pool_create arg = kt_spec(OTHER, KT_BLOCK, 300, 300);

	return kt_ioctl(self->fd, KVMM_POOL_CREATE, &arg);
}

/* Either there is a whole pool, or nothing of it, and its name is free. */
static int after_create(FIXTURE_DATA(failnth) *self, int ret)
{
	struct kvmm_pool_create arg = kt_spec(OTHER, KT_BLOCK, 300, 300);
	struct kvmm_info info;

	close(self->fd);
	if (ret == -ENOMEM) {
		ret = kt_info(&info);
		if (ret || info.nr_pools != 1)
			return ret ? ret : -EEXIST;
		if (access("/sys/kernel/kvmm/pools/" OTHER, F_OK) == 0)
			return -EEXIST;
		self->fd = kt_dev(O_RDWR);
		ret = kt_ioctl(self->fd, KVMM_POOL_CREATE, &arg);
		close(self->fd);
		if (ret)
			return ret;
	}
	/* with -EFAULT it may be there: what was to be told was not */
	ret = kt_destroy(OTHER, 0);
	return ret == -ENOENT ? 0 : ret;
}

TEST_F(failnth, create)
{
	sweep(_metadata, self, &(struct command){
		before_bind, do_create, after_create });
}

static int before_destroy(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_pool_create arg = kt_spec(OTHER, KT_BLOCK, 4, 4);
	int ret;

	self->fd = kt_dev(O_RDWR);
	ret = kt_ioctl(self->fd, KVMM_POOL_CREATE, &arg);
	return ret;
}

static int do_destroy(FIXTURE_DATA(failnth) *self)
{
	struct kvmm_pool_destroy arg = { .size = sizeof(arg), .name = OTHER };

	return kt_ioctl(self->fd, KVMM_POOL_DESTROY, &arg);
}

static int after_destroy(FIXTURE_DATA(failnth) *self, int ret)
{
	close(self->fd);
	if (ret < 0)
		ret = kt_destroy(OTHER, 0);
	return ret == -ENOENT ? 0 : ret;
}

TEST_F(failnth, destroy)
{
	sweep(_metadata, self, &(struct command){
		before_destroy, do_destroy, after_destroy });
}

KT_MAIN
