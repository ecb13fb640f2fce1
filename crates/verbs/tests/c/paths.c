/* Files of devices in /sys and /dev, through each function of the C library that libkiban_paths.so interposes. The only
 * interface is loopback, so kiban0 is 127.0.0.1. */
#include "check.h"
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLASS "/sys/class/infiniband"
#define DEVICE CLASS "/kiban0"
#define PARENT "/sys/devices/virtual/kiban/kiban0"
#define NODE "/dev/infiniband/uverbs0"
#define MISSING CLASS "/kiban77"

/* Functions of older or fortified programs, which headers do not declare. */
#define FUNCTION(name) (*(__typeof__(name) *)function(#name))
static void *function(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	check(found);
	return found;
}
int __xstat(int, const char *, struct stat *);
int __lxstat(int, const char *, struct stat *);
int __fxstatat(int, int, const char *, struct stat *, int);
int __xstat64(int, const char *, struct stat64 *);
int __lxstat64(int, const char *, struct stat64 *);
int __fxstatat64(int, int, const char *, struct stat64 *, int);
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
ssize_t __readlink_chk(const char *, char *, size_t, size_t);
ssize_t __readlinkat_chk(int, const char *, char *, size_t, size_t);
char *__realpath_chk(const char *, char *, size_t);
/* A function of rdma-core for its own libraries. */
int ibv_read_sysfs_file(const char *, const char *, char *, size_t);
/* The version that programs pass to __xstat(). */
#ifdef __x86_64__
#define VERSION 1
#else
#define VERSION 0
#endif

/* Reads a file and returns its text without the line feed. */
static const char *text(const char *path)
{
	static char line[256];
	FILE *file = fopen(path, "r");

	check(file);
	check(fgets(line, sizeof line, file));
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	return line;
}

#define says(path, expected) check(!strcmp(text(path), expected))

static void files_have_the_values_of_the_library(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context;
	struct ibv_port_attr port;
	char line[64];

	check(list && count >= 1 && !strcmp(ibv_get_device_name(list[0]), "kiban0"));
	check(!strcmp(list[0]->ibdev_path, DEVICE));
	context = ibv_open_device(list[0]);
	check(context && !ibv_query_port(context, 1, &port));
	snprintf(line, sizeof line, "%#x", port.lid);
	says(DEVICE "/ports/1/lid", line);
	check(ibv_read_sysfs_file(DEVICE, "ports/1/lid", line, sizeof line) > 0 && strtoul(line, NULL, 16) == port.lid);
	check(!ibv_close_device(context));
	ibv_free_device_list(list);
	says(DEVICE "/node_type", "1: CA");
	says(DEVICE "/ports/1/state", "4: ACTIVE");
	says(DEVICE "/ports/1/phys_state", "5: LinkUp");
	says(DEVICE "/ports/1/link_layer", "Ethernet");
	says(DEVICE "/ports/1/rate", "100 Gb/sec (4X EDR)");
	says(DEVICE "/ports/1/pkeys/0", "0xffff");
	says(DEVICE "/ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:7f00:0001");
	says(DEVICE "/ports/1/gid_attrs/types/0", "RoCE v2");
	says(DEVICE "/ports/1/gid_attrs/ndevs/3", "lo");
	says(DEVICE "/device/numa_node", "-1");
	says(DEVICE "/device/infiniband_verbs/uverbs0/ibdev", "kiban0");
	says(DEVICE "/device/net/lo/ifindex", "1");
	says("/sys/class/infiniband_verbs/abi_version", "6");
	says("/sys/class/infiniband_verbs/uverbs0/ibdev", "kiban0");
	says("/sys/class/infiniband_verbs/uverbs0/abi_version", "1");
}

/* Checks calls that take a path: a file, a directory, a link, a node, and a file that is missing. */
#define examines(S, by_path, by_link) \
	do { \
		struct S found; \
		const char *path = DEVICE "/node_guid"; \
		check(!(by_path) && S_ISREG(found.st_mode) && found.st_size == 20); \
		path = CLASS; \
		check(!(by_path) && S_ISDIR(found.st_mode)); \
		path = DEVICE; \
		check(!(by_path) && S_ISDIR(found.st_mode)); \
		check(!(by_link) && S_ISLNK(found.st_mode)); \
		path = NODE; \
		check(!(by_path) && S_ISCHR(found.st_mode)); \
		check(!(by_link) && S_ISCHR(found.st_mode)); \
		path = "/dev/infiniband/uverbs977"; \
		errno = 0; \
		check((by_path) == -1 && errno == ENOENT); \
		path = MISSING; \
		check((by_link) == -1 && errno == ENOENT); \
		path = "/etc/passwd"; \
		check(!(by_path) && S_ISREG(found.st_mode)); \
	} while (0)

static void stat_finds_files(void)
{
	examines(stat, stat(path, &found), lstat(path, &found));
	examines(stat64, stat64(path, &found), lstat64(path, &found));
	examines(stat, fstatat(AT_FDCWD, path, &found, 0), fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW));
	examines(stat64, fstatat64(AT_FDCWD, path, &found, 0), fstatat64(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW));
	examines(stat, FUNCTION(__xstat)(VERSION, path, &found), FUNCTION(__lxstat)(VERSION, path, &found));
	examines(stat64, FUNCTION(__xstat64)(VERSION, path, &found), FUNCTION(__lxstat64)(VERSION, path, &found));
	examines(stat, FUNCTION(__fxstatat)(VERSION, AT_FDCWD, path, &found, 0),
		 FUNCTION(__fxstatat)(VERSION, AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW));
	examines(stat64, FUNCTION(__fxstatat64)(VERSION, AT_FDCWD, path, &found, 0),
		 FUNCTION(__fxstatat64)(VERSION, AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW));
}

static void statx_finds_files(void)
{
	struct statx found;

	check(!statx(AT_FDCWD, DEVICE "/fw_ver", 0, STATX_TYPE, &found) && S_ISREG(found.stx_mode));
	check(!statx(AT_FDCWD, DEVICE, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &found) && S_ISLNK(found.stx_mode));
	check(!statx(AT_FDCWD, NODE, 0, STATX_TYPE, &found) && S_ISCHR(found.stx_mode));
	check(statx(AT_FDCWD, MISSING, 0, STATX_TYPE, &found) == -1 && errno == ENOENT);
}

/* The number of a node is the one in sysfs. */
static void a_node_has_the_number_that_sysfs_gives(void)
{
	struct stat found;
	char number[32];

	check(!stat(NODE, &found));
	snprintf(number, sizeof number, "%u:%u", (unsigned)(found.st_rdev >> 8), (unsigned)(found.st_rdev & 0xff));
	says("/sys/class/infiniband_verbs/uverbs0/dev", number);
	check(!stat("/dev/infiniband/rdma_cm", &found) && S_ISCHR(found.st_mode));
}

static void access_finds_files(void)
{
	errno = E2BIG;
	check(!access(DEVICE "/fw_ver", R_OK) && !access(NODE, R_OK | W_OK) && !access(CLASS "/", X_OK) && errno == E2BIG);
	check(!eaccess(DEVICE "/fw_ver", R_OK) && !euidaccess(NODE, R_OK));
	check(!faccessat(AT_FDCWD, DEVICE "/ports", X_OK, 0) && !faccessat(AT_FDCWD, NODE, R_OK, AT_EACCESS));
	check(access(MISSING, F_OK) == -1 && errno == ENOENT);
	check(eaccess(MISSING, F_OK) == -1 && euidaccess(MISSING, F_OK) == -1 && faccessat(AT_FDCWD, MISSING, F_OK, 0) == -1);
}

/* Checks that a descriptor reads the name of the device, and closes it. */
static void reads_name(int file)
{
	char line[16];

	check(file >= 0 && read(file, line, sizeof line) == 7 && !memcmp(line, "kiban0\n", 7) && !close(file));
}

static void open_opens_files(void)
{
	static const char name[] = DEVICE "/node_desc";
	int folder, node;

	reads_name(open(name, O_RDONLY));
	reads_name(open64(name, O_RDONLY));
	reads_name(openat(AT_FDCWD, name, O_RDONLY));
	reads_name(openat64(AT_FDCWD, name, O_RDONLY));
	reads_name(FUNCTION(__open_2)(name, O_RDONLY));
	reads_name(FUNCTION(__open64_2)(name, O_RDONLY));
	reads_name(FUNCTION(__openat_2)(AT_FDCWD, name, O_RDONLY));
	reads_name(FUNCTION(__openat64_2)(AT_FDCWD, name, O_RDONLY));
	folder = open(DEVICE, O_RDONLY | O_DIRECTORY);
	reads_name(openat(folder, "node_desc", O_RDONLY));
	check(!close(folder));
	node = open(NODE, O_RDWR | O_CLOEXEC);
	check(node >= 0 && !close(node));
	check(open(MISSING, O_RDONLY) == -1 && errno == ENOENT);
	/* The mode is passed on. */
	folder = open("/tmp", O_RDWR | O_TMPFILE, 0400);
	struct stat found;
	check(folder >= 0 && !fstat(folder, &found) && (found.st_mode & 0777) == 0400 && !close(folder));
}

static void fopen_opens_files(void)
{
	FILE *file = fopen64(DEVICE "/node_desc", "r");
	char line[16];

	check(file && fgets(line, sizeof line, file) && !strcmp(line, "kiban0\n") && !fclose(file));
	says(DEVICE "/node_desc", "kiban0");
	refuses(fopen(MISSING, "r"), ENOENT);
	refuses(fopen64(MISSING, "r"), ENOENT);
}

static void readlink_reads_links(void)
{
	static const char target[] = "../../devices/virtual/kiban/kiban0/infiniband/kiban0";
	const ssize_t length = sizeof target - 1;
	char name[PATH_MAX];

	check(readlink(DEVICE, name, sizeof name) == length && !memcmp(name, target, length));
	check(readlinkat(AT_FDCWD, DEVICE, name, sizeof name) == length && !memcmp(name, target, length));
	check(FUNCTION(__readlink_chk)(DEVICE, name, sizeof name, sizeof name) == length);
	check(FUNCTION(__readlinkat_chk)(AT_FDCWD, DEVICE, name, sizeof name, sizeof name) == length);
	check(readlink(NODE, name, sizeof name) == -1 && errno == EINVAL);
	check(readlink(MISSING, name, sizeof name) == -1 && errno == ENOENT);
}

static void realpath_returns_paths_as_of_a_card(void)
{
	char room[PATH_MAX], *path = realpath(DEVICE, NULL);

	check(path && !strcmp(path, PARENT "/infiniband/kiban0"));
	free(path);
	/* Mooncake takes the last part for the address on the PCI bus, and reads numa_node below this path. */
	check(realpath(DEVICE "/../..", room) == room && !strcmp(room, PARENT));
	says(PARENT "/numa_node", "-1");
	check(FUNCTION(__realpath_chk)(DEVICE "/device", room, sizeof room) == room && !strcmp(room, PARENT));
	path = canonicalize_file_name("/sys/class/infiniband_verbs/uverbs0/device");
	check(path && !strcmp(path, PARENT));
	free(path);
	check(realpath(NODE, room) && !strcmp(room, NODE));
	check(realpath("/etc/../etc", room) && !strcmp(room, "/etc"));
	refuses(realpath(MISSING, room), ENOENT);
}

/* Counts the entries of a stream, without the two that every directory has. */
static int entries(DIR *stream)
{
	struct dirent *entry;
	int count = 0;

	check(stream);
	while ((entry = readdir(stream)))
		count += entry->d_name[0] != '.';
	closedir(stream);
	return count;
}

static int is_named(const struct dirent *entry) { return entry->d_name[0] != '.'; }
static int is_named64(const struct dirent64 *entry) { return entry->d_name[0] != '.'; }

static void directories_are_listed(void)
{
	int devices = entries(opendir(CLASS));
	struct dirent **list;
	struct dirent64 **list64;

	check(devices == 1);
	check(entries(opendir("/sys/class/infiniband_verbs/")) == devices + 1 && entries(opendir("/dev/infiniband")) == devices + 1);
	check(entries(opendir(DEVICE "/ports/1/gids")) == 4);
	check(scandir(CLASS, &list, is_named, alphasort) == devices && !strcmp(list[0]->d_name, "kiban0"));
	check(scandir64(CLASS, &list64, is_named64, alphasort64) == devices && !strcmp(list64[0]->d_name, "kiban0"));
	check(scandirat(AT_FDCWD, DEVICE "/device/net", &list, is_named, NULL) == 1 && !strcmp(list[0]->d_name, "lo"));
	refuses(opendir(MISSING), ENOENT);
	check(scandir(MISSING, &list, NULL, NULL) == -1 && scandir64(MISSING, &list64, NULL, NULL) == -1);
}

/* Returns the directory of this process's tree. */
static void find_tree(char *root)
{
	char link[64];
	int folder = open(CLASS, O_RDONLY | O_DIRECTORY);
	ssize_t length;

	check(folder >= 0);
	snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
	length = readlink(link, root, PATH_MAX - 1);
	check(length > (ssize_t)sizeof CLASS);
	root[length - (sizeof CLASS - 1)] = '\0';
	check(!close(folder));
}

/* Lets a child do what a parent waits for. Returns the directory of the child's tree when the child has ended. */
static void in_child(int way, char *root)
{
	int ends[2], status;
	pid_t child;

	check(!pipe(ends));
	child = fork();
	check(child >= 0);
	if (!child) {
		char name[PATH_MAX];
		find_tree(name);
		check(write(ends[1], name, strlen(name) + 1) > 0);
		if (way == SIGKILL)
			kill(getpid(), SIGKILL);
		exit(0);
	}
	check(read(ends[0], root, PATH_MAX) > 1);
	check(waitpid(child, &status, 0) == child && (way ? WIFSIGNALED(status) : status == 0));
	close(ends[0]);
	close(ends[1]);
}

static bool is_there(const char *path)
{
	return !syscall(SYS_faccessat, AT_FDCWD, path, F_OK);
}

static void every_process_has_a_tree_and_removes_it(void)
{
	char ours[PATH_MAX], childs[PATH_MAX], other[PATH_MAX];

	find_tree(ours);
	in_child(0, childs);
	check(strcmp(ours, childs) && is_there(ours) && !is_there(childs));
	/* A process that is killed leaves its tree, until another one creates its own. */
	in_child(SIGKILL, childs);
	in_child(0, other);
	check(!is_there(childs) && !is_there(other) && is_there(ours));
}

static void many_processes_have_trees_at_once(void)
{
	pid_t children[16];
	int status;

	for (size_t at = 0; at < sizeof children / sizeof *children; at++) {
		children[at] = fork();
		check(children[at] >= 0);
		if (!children[at]) {
			for (int round = 0; round < 4; round++)
				says(DEVICE "/node_desc", "kiban0");
			exit(0);
		}
	}
	for (size_t at = 0; at < sizeof children / sizeof *children; at++)
		check(waitpid(children[at], &status, 0) == children[at] && status == 0);
	says(DEVICE "/node_desc", "kiban0");
}

/* Shell tools look through other functions. */
static void executed_programs_have_trees(void)
{
	static const char script[] = "test -e " NODE " && test -d " DEVICE " && [ \"$(cat " DEVICE "/node_desc)\" = kiban0 ]"
		" && ls -l " CLASS " 2>&1 | grep -q 'kiban0 -> ../../devices/' && ! ls -l " CLASS "/ " NODE " 2>&1 | grep 'No such' && [ \"$(readlink -f " DEVICE ")\" = " PARENT
		"/infiniband/kiban0 ] && [ \"$(find -L " DEVICE "/ports/1/gids -type f | wc -l)\" = 4 ]";

	check(system(script) == 0);
}

int main(void)
{
	run(files_have_the_values_of_the_library);
	run(stat_finds_files);
	run(statx_finds_files);
	run(a_node_has_the_number_that_sysfs_gives);
	run(access_finds_files);
	run(open_opens_files);
	run(fopen_opens_files);
	run(readlink_reads_links);
	run(realpath_returns_paths_as_of_a_card);
	run(directories_are_listed);
	run(every_process_has_a_tree_and_removes_it);
	run(many_processes_have_trees_at_once);
	run(executed_programs_have_trees);
	printf("%d tests passed\n", tests_passed);
	return 0;
}
