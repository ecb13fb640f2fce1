/*
 * libkiban_paths.so: the device files that programs look for before they ask the library (LD_PRELOAD, ld.so(8)).
 *
 * Goal      UCX uses a device only if /dev/infiniband/uverbsN is there and may be opened (access(2), stat(2)). It never opens
 *           it: that is the library's business, and kiban's library needs no file.
 * How       a path of this form that does not exist is looked at as /dev/null is; everything else is the C library's answer.
 * Limits    two functions, as programs of today's C library call them. Nothing is answered for /sys/class/infiniband.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_device(const char *path)
{
	static const char front[] = "/dev/infiniband/uverbs";
	const char *number;

	if (!path || strncmp(path, front, sizeof(front) - 1))
		return 0;
	number = path + sizeof(front) - 1;
	return *number && number[strspn(number, "0123456789")] == '\0';
}

/* The C library's own, behind ours. */
static void *next(const char *name)
{
	int before = errno;
	void *found = dlsym(RTLD_NEXT, name);

	errno = before;
	return found;
}

__attribute__((visibility("default"))) int access(const char *path, int mode)
{
	int (*real)(const char *, int) = (int (*)(const char *, int))next("access");
	int answer;

	if (!real) {
		errno = ENOSYS;
		return -1;
	}
	answer = real(path, mode);
	return answer && errno == ENOENT && is_device(path) ? real("/dev/null", mode) : answer;
}

__attribute__((visibility("default"))) int stat(const char *restrict path, struct stat *restrict found)
{
	int (*real)(const char *, struct stat *) = (int (*)(const char *, struct stat *))next("stat");
	int answer;

	if (!real) {
		errno = ENOSYS;
		return -1;
	}
	answer = real(path, found);
	return answer && errno == ENOENT && is_device(path) ? real("/dev/null", found) : answer;
}
