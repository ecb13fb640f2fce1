/*
 * libkiban_paths.so: shows RDMA devices in /sys and /dev to unmodified programs (LD_PRELOAD, ld.so(8)).
 *
 * Purpose   UCX, NCCL, Mooncake and others look for a device in /sys/class/infiniband and /dev/infiniband
 *           before they open it through the verbs library.
 * Method    the verbs library writes a tree of files that describe its devices
 *           (crates/verbs/src/device/tree.rs). A call with a path below one of the `tops` uses the file in
 *           that tree instead, and realpath() returns the path that the program expects. All other calls go
 *           to the C library unchanged.
 * Real      a path that exists is not replaced, so a host with RDMA devices keeps its own files. An empty
 *           directory (ib_core without a device) counts as missing.
 * Nodes     an ordinary user cannot create device files. Calls that open or examine one get /dev/null
 *           instead. (UCX examines the file but never opens it.)
 * Loading   the first call with such a path loads the verbs library from this library's directory, if it is
 *           there. So this call is not async-signal-safe; calls with other paths are.
 * Limits    only calls of the C library with absolute paths are interposed, and not glob(), nftw() and
 *           chdir(). Programs that make system calls directly (Go) see the host's own files.
 */
/* Otherwise headers may define some of these functions inline. */
#undef _FORTIFY_SOURCE
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define OURS __attribute__((visibility("default")))
#define LENGTH(text) (sizeof(text) - 1)

/* The version of the C library's first symbols. Newer releases keep functions such as __xstat() under it. */
#ifdef __x86_64__
#define FIRST_VERSION "GLIBC_2.2.5"
#else
#define FIRST_VERSION "GLIBC_2.17"
#endif

typedef int filter_entry(const struct dirent *);
typedef int compare_entries(const struct dirent **, const struct dirent **);
typedef int filter_entry64(const struct dirent64 *);
typedef int compare_entries64(const struct dirent64 **, const struct dirent64 **);

/* Functions that open or examine a file: X(result, error, name, (parameters), (arguments)). */
#define FILE_CALLS(X) \
	X(int, -1, stat, (const char *path, struct stat *found), (path, found)) \
	X(int, -1, stat64, (const char *path, struct stat64 *found), (path, found)) \
	X(int, -1, lstat, (const char *path, struct stat *found), (path, found)) \
	X(int, -1, lstat64, (const char *path, struct stat64 *found), (path, found)) \
	X(int, -1, fstatat, (int folder, const char *path, struct stat *found, int flags), (folder, path, found, flags)) \
	X(int, -1, fstatat64, (int folder, const char *path, struct stat64 *found, int flags), (folder, path, found, flags)) \
	X(int, -1, __xstat, (int version, const char *path, struct stat *found), (version, path, found)) \
	X(int, -1, __xstat64, (int version, const char *path, struct stat64 *found), (version, path, found)) \
	X(int, -1, __lxstat, (int version, const char *path, struct stat *found), (version, path, found)) \
	X(int, -1, __lxstat64, (int version, const char *path, struct stat64 *found), (version, path, found)) \
	X(int, -1, __fxstatat, (int version, int folder, const char *path, struct stat *found, int flags), \
	  (version, folder, path, found, flags)) \
	X(int, -1, __fxstatat64, (int version, int folder, const char *path, struct stat64 *found, int flags), \
	  (version, folder, path, found, flags)) \
	X(int, -1, statx, (int folder, const char *path, int flags, unsigned mask, struct statx *found), \
	  (folder, path, flags, mask, found)) \
	X(int, -1, access, (const char *path, int mode), (path, mode)) \
	X(int, -1, eaccess, (const char *path, int mode), (path, mode)) \
	X(int, -1, euidaccess, (const char *path, int mode), (path, mode)) \
	X(int, -1, faccessat, (int folder, const char *path, int mode, int flags), (folder, path, mode, flags)) \
	X(int, -1, __open_2, (const char *path, int flags), (path, flags)) \
	X(int, -1, __open64_2, (const char *path, int flags), (path, flags)) \
	X(int, -1, __openat_2, (int folder, const char *path, int flags), (folder, path, flags)) \
	X(int, -1, __openat64_2, (int folder, const char *path, int flags), (folder, path, flags)) \
	X(FILE *, NULL, fopen, (const char *path, const char *mode), (path, mode)) \
	X(FILE *, NULL, fopen64, (const char *path, const char *mode), (path, mode))
/* Functions that examine a name, a directory, or what ls(1) also asks for. */
#define NAME_CALLS(X) \
	X(ssize_t, -1, readlink, (const char *path, char *text, size_t bytes), (path, text, bytes)) \
	X(ssize_t, -1, __readlink_chk, (const char *path, char *text, size_t bytes, size_t room), (path, text, bytes, room)) \
	X(ssize_t, -1, readlinkat, (int folder, const char *path, char *text, size_t bytes), (folder, path, text, bytes)) \
	X(ssize_t, -1, __readlinkat_chk, (int folder, const char *path, char *text, size_t bytes, size_t room), \
	  (folder, path, text, bytes, room)) \
	X(ssize_t, -1, getxattr, (const char *path, const char *name, void *value, size_t bytes), (path, name, value, bytes)) \
	X(ssize_t, -1, lgetxattr, (const char *path, const char *name, void *value, size_t bytes), (path, name, value, bytes)) \
	X(ssize_t, -1, listxattr, (const char *path, char *list, size_t bytes), (path, list, bytes)) \
	X(ssize_t, -1, llistxattr, (const char *path, char *list, size_t bytes), (path, list, bytes)) \
	X(DIR *, NULL, opendir, (const char *path), (path)) \
	X(int, -1, scandir, (const char *path, struct dirent ***list, filter_entry *filter, compare_entries *compare), \
	  (path, list, filter, compare)) \
	X(int, -1, scandir64, (const char *path, struct dirent64 ***list, filter_entry64 *filter, compare_entries64 *compare), \
	  (path, list, filter, compare)) \
	X(int, -1, scandirat, (int folder, const char *path, struct dirent ***list, filter_entry *filter, compare_entries *compare), \
	  (folder, path, list, filter, compare))
/* Functions that return a path in `found`, or in memory that they allocate. */
#define PATH_CALLS(X) \
	X(realpath, (const char *path, char *found), (path, found)) \
	X(__realpath_chk, (const char *path, char *found, size_t room), (path, found, room)) \
	X(canonicalize_file_name, (const char *path), (path))
/* Functions with an optional argument: X(name, (parameters), (arguments)). */
#define OPEN_CALLS(X) \
	X(open, (const char *path, int flags, ...), (path, flags, mode)) \
	X(open64, (const char *path, int flags, ...), (path, flags, mode)) \
	X(openat, (int folder, const char *path, int flags, ...), (folder, path, flags, mode)) \
	X(openat64, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))

/* The next definitions of these functions, usually those of the C library. They are looked up before main(), because
 * signal handlers may call them but not dlsym() (POSIX.1-2017 2.4.3). */
#define MEMBER(result, error, name, declared, given) result(*name) declared;
#define PATH_MEMBER(name, declared, given) char *(*name) declared;
#define OPEN_MEMBER(name, declared, given) int (*name) declared;
static struct {
	FILE_CALLS(MEMBER) NAME_CALLS(MEMBER) PATH_CALLS(PATH_MEMBER) OPEN_CALLS(OPEN_MEMBER)
} real;

static void *next(const char *name)
{
	/* On x86-64, two versions of realpath() exist, and the older one fails without a buffer. dlsym() of older C libraries
	 * (Debian 11's) returns that one. */
	void *found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3");

	if (!found)
		found = dlsym(RTLD_NEXT, name);
	return found ? found : dlvsym(RTLD_NEXT, name, FIRST_VERSION);
}

__attribute__((constructor)) static void begin(void)
{
	int before = errno;

#define LOOK_UP(result, error, name, declared, given) *(void **)&real.name = next(#name);
#define PATH_LOOK_UP(name, declared, given) *(void **)&real.name = next(#name);
	FILE_CALLS(LOOK_UP) NAME_CALLS(LOOK_UP) PATH_CALLS(PATH_LOOK_UP) OPEN_CALLS(PATH_LOOK_UP)
	errno = before;
}

/* A constructor in another library may make a call before our constructor has run. */
#define IS_READY(name) (real.name || (begin(), real.name))

/* The directories that the tree has. */
static const struct {
	const char *path;
	size_t length;
} tops[] = {
#define TOP(path) { path, LENGTH(path) }
	TOP("/sys/class/infiniband"),
	TOP("/sys/class/infiniband_verbs"),
	TOP("/sys/devices/virtual/kiban"),
	TOP("/dev/infiniband"),
};
enum { TOPS = sizeof(tops) / sizeof(*tops), DEV = TOPS - 1 };

/* Returns the index of the directory that contains a path, or TOPS. */
static int top_of(const char *path)
{
	int at = 0;

	while (at < TOPS && (strncmp(path, tops[at].path, tops[at].length) ||
			     (path[tops[at].length] && path[tops[at].length] != '/')))
		at++;
	return at;
}

/* Returns whether a path exists. An empty top directory does not count. */
static bool exists(const char *path, int top)
{
	struct dirent *entry = NULL;
	DIR *folder;

	if (syscall(SYS_faccessat, AT_FDCWD, path, F_OK))
		return false;
	if (path[tops[top].length + strspn(path + tops[top].length, "/")])
		return true;
	folder = IS_READY(opendir) ? real.opendir(path) : NULL;
	/* A directory that may not be read stays as it is. */
	if (!folder)
		return true;
	while ((entry = readdir(folder)) && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
					     !strcmp(entry->d_name, "abi_version")))
		;
	closedir(folder);
	return entry;
}

/* Returns the root of the process's tree, or NULL if there is none. It belongs to the verbs library, whose tree this
 * process's devices are. */
static const char *tree(void)
{
	typedef const char *root_of_tree(void);
	static _Atomic(root_of_tree *) known;
	static const char name[] = "libibverbs.so.1";
	root_of_tree *root = atomic_load(&known);
	char path[PATH_MAX];
	const char *end;
	Dl_info self;
	void *library;

	if (root)
		return root();
	/* By its path: another library with the same soname may be loaded. */
	if (!dladdr((void *)tops, &self) || !self.dli_fname || !(end = strrchr(self.dli_fname, '/')) ||
	    (size_t)(end + 1 - self.dli_fname) + sizeof(name) > sizeof(path))
		return NULL;
	memcpy(path, self.dli_fname, end + 1 - self.dli_fname);
	memcpy(path + (end + 1 - self.dli_fname), name, sizeof(name));
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library)
		*(void **)&root = dlsym(library, "kiban_device_tree");
	atomic_store(&known, root);
	return root ? root() : NULL;
}

/* Returns the path that a call with `path` uses. `room` has PATH_MAX bytes. Preserves errno. */
static const char *redirect(const char *path, char *room, bool is_file_call)
{
	int top, before = errno;
	const char *root, *used = path;

	/* Reject most paths at once. */
	if (!path || path[0] != '/' || (strncmp(path, "/sys/", 5) && strncmp(path, "/dev/i", 6)))
		return path;
	top = top_of(path);
	if (top < TOPS && !exists(path, top)) {
		root = tree();
		if (root && (size_t)snprintf(room, PATH_MAX, "%s%s", root, path) < PATH_MAX)
			used = room;
		/* A node in the tree is an empty file. Everything else in /dev/infiniband is missing. */
		if (used == room && is_file_call && top == DEV && path[tops[DEV].length + strspn(path + tops[DEV].length, "/")] &&
		    !syscall(SYS_faccessat, AT_FDCWD, room, F_OK))
			used = "/dev/null";
	}
	errno = before;
	return used;
}

/* Removes the root of the tree from a path. */
static char *without_root(char *path)
{
	const char *root = path ? tree() : NULL;
	size_t length = root ? strlen(root) : 0;

	if (length && !strncmp(path, root, length) && path[length] == '/')
		memmove(path, path + length, strlen(path + length) + 1);
	return path;
}

#define NOT_FOUND(error) return errno = ENOSYS, error

/* The headers of current C libraries do not declare these. */
#define DECLARE(result, error, name, declared, given) OURS result name declared;
#define PATH_DECLARE(name, declared, given) OURS char *name declared;
FILE_CALLS(DECLARE) NAME_CALLS(DECLARE) PATH_CALLS(PATH_DECLARE)

#define FILE_ENTRY(result, error, name, declared, given) \
	OURS result name declared \
	{ \
		char buffer[PATH_MAX]; \
		if (!IS_READY(name)) \
			NOT_FOUND(error); \
		path = redirect(path, buffer, true); \
		return real.name given; \
	}
#define NAME_ENTRY(result, error, name, declared, given) \
	OURS result name declared \
	{ \
		char buffer[PATH_MAX]; \
		if (!IS_READY(name)) \
			NOT_FOUND(error); \
		path = redirect(path, buffer, false); \
		return real.name given; \
	}
#define PATH_ENTRY(name, declared, given) \
	OURS char *name declared \
	{ \
		char buffer[PATH_MAX]; \
		if (!IS_READY(name)) \
			NOT_FOUND(NULL); \
		path = redirect(path, buffer, false); \
		return path == buffer ? without_root(real.name given) : real.name given; \
	}
#define OPEN_ENTRY(name, declared, given) \
	OURS int name declared \
	{ \
		char buffer[PATH_MAX]; \
		mode_t mode = 0; \
		va_list rest; \
		if (!IS_READY(name)) \
			NOT_FOUND(-1); \
		if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) { \
			va_start(rest, flags); \
			mode = va_arg(rest, mode_t); \
			va_end(rest); \
		} \
		path = redirect(path, buffer, true); \
		return real.name given; \
	}
FILE_CALLS(FILE_ENTRY)
NAME_CALLS(NAME_ENTRY)
PATH_CALLS(PATH_ENTRY)
OPEN_CALLS(OPEN_ENTRY)
