/* Runs the command of its own name in the root of the older release: as its caller, in the same folder, with the
 * same words and environment. Set-uid root, since only root may chroot(2). */
#define _GNU_SOURCE
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **words)
{
	char here[PATH_MAX], command[PATH_MAX];

	(void)count;
	snprintf(command, sizeof(command), "/usr/bin/%s", basename(words[0]));
	if (getcwd(here, sizeof(here)) && !chroot("/older") && !setuid(getuid()) && !chdir(here))
		execv(command, words);
	perror(command);
	return 127;
}
