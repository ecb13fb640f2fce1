/*
 * libkiban_paths.so: pretends that the device files of RDMA devices exist (LD_PRELOAD, ld.so(8)).
 *
 * Purpose   UCX uses a device only if access(2) and stat(2) find /dev/infiniband/uverbsN. UCX itself never opens the
 *           file. The verbs library would open it, but kiban's needs no device file.
 * Method    if such a path does not exist, access() and stat() return the result for /dev/null. All other calls go
 *           to the C library.
 * Limits    only access() and stat() of current C libraries are interposed. Nothing is provided for
 *           /sys/class/infiniband.
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

/* The C library's functions. They are looked up before main(), because signal handlers may call access() and stat() but not
 * dlsym() (POSIX.1-2017 2.4.3). */
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

/* Returns whether the call was for a device file that does not exist; if so, restores errno. */
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

	/* A constructor in another library may call this before our constructor has run. */
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
