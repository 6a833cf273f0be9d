/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * /dev/kvmm-laggard: files whose I/O is over before the call that submitted it
 * has returned, for as long as a test wants.
 */
#ifndef KVMM_LAGGARD_H
#define KVMM_LAGGARD_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * struct laggard_state - what happened since LAGGARD_HOLD
 * @inside: calls that are held
 * @ended: I/O that is over
 * @bad: calls that found their I/O's own memory in other use afterwards
 */
struct laggard_state {
	__u32 inside;
	__u32 ended;
	__u32 bad;
};

#define LAGGARD_FILE	_IOW('K', 16, __s32)	/* this open file is one */
#define LAGGARD_HOLD	_IO('K', 17)		/* who submits is held */
#define LAGGARD_GO	_IO('K', 18)		/* not any more */
#define LAGGARD_STATE	_IOR('K', 19, struct laggard_state)

#endif /* KVMM_LAGGARD_H */
