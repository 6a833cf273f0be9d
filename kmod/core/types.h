/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The only file of the core that knows where it is compiled: in the kernel or
 * in a process.
 */
#ifndef KVMM_CORE_TYPES_H
#define KVMM_CORE_TYPES_H

#ifdef __KERNEL__

#include <linux/bug.h>
#include <linux/bitops.h>
#include <linux/bits.h>
#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/prefetch.h>
#include <linux/string.h>
#include <linux/types.h>

#define core_bug_on(cond)	WARN_ON_ONCE(cond)
#define core_prefetch(p)	prefetch(p)
#define core_prefetchw(p)	prefetchw(p)
#define core_first_bit(w)	((u32)__ffs64(w))
#define core_last_bit(w)	((u32)fls64(w) - 1)

#else

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;

#define BIT(n)		(1U << (n))
#define __aligned(n)	__attribute__((aligned(n)))

#ifndef __always_inline
#define __always_inline	inline __attribute__((always_inline))
#endif

#ifndef likely
#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)
#endif

/* Reports an impossible state; the process can override it (tests abort). */
void kvmm_core_report(const char *file, int line, const char *what);

#define core_bug_on(cond) ({						\
	bool __bug = (cond);						\
	if (unlikely(__bug))						\
		kvmm_core_report(__FILE__, __LINE__, #cond);		\
	__bug;								\
})
#define core_prefetch(p)	__builtin_prefetch(p)
#define core_prefetchw(p)	__builtin_prefetch(p, 1)
#define core_first_bit(w)	((u32)__builtin_ctzll(w))
#define core_last_bit(w)	(63 - (u32)__builtin_clzll(w))

#endif /* __KERNEL__ */

/* The interface's constants and the structs that commands carry. */
#include <linux/kvmm.h>

#endif /* KVMM_CORE_TYPES_H */
