/* SPDX-License-Identifier: MIT */
/*
 * Standard descriptors that whoever started the program has closed.
 */
#ifndef KVMMCTL_STD_H
#define KVMMCTL_STD_H

#include <fcntl.h>
#include <unistd.h>

/*
 * What is opened next would get the number of one that is closed, and be
 * written over with messages: the memory of a pool, or its swap area.  Writing
 * to what is opened here is an error, as to what is closed.
 */
static inline void std_hold(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDONLY);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

#endif /* KVMMCTL_STD_H */
