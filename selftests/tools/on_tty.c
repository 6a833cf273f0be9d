// SPDX-License-Identifier: MIT
/*
 * on_tty COMMAND [ARGUMENT...]: runs it with a terminal as its standard error,
 * and writes what comes from there to standard error.  Its exit status is the
 * command's, or 128 and the signal.  SIGINT and SIGTERM are passed on.
 */
#include <errno.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile pid_t child;

static void pass_on(int sig)
{
	if (child > 0)
		kill(child, sig);
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = pass_on };
	char buf[512];
	int master, slave, status;
	ssize_t n;

	if (argc < 2 || openpty(&master, &slave, NULL, NULL, NULL)) {
		perror("on_tty");
		return 2;
	}
	child = fork();
	if (!child) {
		dup2(slave, STDERR_FILENO);
		close(master);
		close(slave);
		execvp(argv[1], argv + 1);
		_exit(127);
	}
	close(slave);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	/* EIO: nobody has the terminal open any more */
	while ((n = read(master, buf, sizeof(buf))) > 0 || errno == EINTR)
		if (n > 0 && write(STDERR_FILENO, buf, (size_t)n) != n)
			return 2;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return 2;
	return WIFEXITED(status) ? WEXITSTATUS(status)
				 : 128 + WTERMSIG(status);
}
