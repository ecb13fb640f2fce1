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

/* The C library's own, behind ours. Looked up once, before main(): access() and stat() may be called by handlers (POSIX.1-2017
 * 2.4.3), where dlsym() may not. */
static int (*real_access)(const char *, int);
static int (*real_stat)(const char *, struct stat *);

__attribute__((constructor)) static void begin(void)
{
	int before = errno;

	if (!real_access)
		*(void **)&real_access = dlsym(RTLD_NEXT, "access");
	if (!real_stat)
		*(void **)&real_stat = dlsym(RTLD_NEXT, "stat");
	errno = before;
}

/* A device that is asked for is there if it is not: errno stays as it was, then. */
static int answer_for(const char *path, int answer, int before)
{
	if (!answer || errno != ENOENT || !is_device(path))
		return 0;
	errno = before;
	return 1;
}

__attribute__((visibility("default"))) int access(const char *path, int mode)
{
	int before = errno, answer;

	/* A constructor of another library may be first. */
	if (!real_access)
		begin();
	if (!real_access) {
		errno = ENOSYS;
		return -1;
	}
	answer = real_access(path, mode);
	return answer_for(path, answer, before) ? real_access("/dev/null", mode) : answer;
}

__attribute__((visibility("default"))) int stat(const char *restrict path, struct stat *restrict found)
{
	int before = errno, answer;

	if (!real_stat)
		begin();
	if (!real_stat) {
		errno = ENOSYS;
		return -1;
	}
	answer = real_stat(path, found);
	return answer_for(path, answer, before) ? real_stat("/dev/null", found) : answer;
}
