/* Programs that cannot use the board are not started.
 *
 * Purpose          a program that does not load this library would silently use the host's TCP instead of the
 *                  board's. So the exec functions print a message and fail with EACCES.
 * Programs         statically linked programs (no PT_INTERP), Go programs (which make system calls without
 *                  libc), programs for another architecture or for musl, and programs with set-user-ID,
 *                  set-group-ID or file capabilities, for which the loader ignores LD_PRELOAD (AT_SECURE,
 *                  ld.so(8)). For a script, its interpreter is examined.
 * Exception        KIBAN_SOCKETS_UNSERVED=host (kiban run --allow-host-network) starts them, on the host's network.
 * Signal handlers  nothing here locks or allocates, because execve() must stay async-signal-safe, and usable
 *                  after vfork().
 * Not checked      the shell of system() and popen(), which libc starts without these functions; system calls that do not
 *                  go through libc; a program that removes LD_PRELOAD from the environment of another one. */
#include "board.h"
#include <limits.h>
#include <link.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/xattr.h>

/* Interpreters of scripts may be scripts, up to this depth (execve(2)). */
#define DEPTH 5
/* The kernel reads this many bytes of a script's first line. */
#define FIRST_LINE 256
#define SEGMENTS 256

/* This library's ELF header. */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));
static bool allows_host;

#define EXEC_CALLS(X)                                                                                                       \
    X(int, execve, (const char *, char *const[], char *const[]))                                                            \
    X(int, execv, (const char *, char *const[]))                                                                            \
    X(int, execvp, (const char *, char *const[]))                                                                           \
    X(int, execvpe, (const char *, char *const[], char *const[]))                                                           \
    X(int, fexecve, (int, char *const[], char *const[]))                                                                    \
    X(int, execveat, (int, const char *, char *const[], char *const[], int))                                                \
    X(int, posix_spawn, (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], \
                         char *const[]))                                                                                    \
    X(int, posix_spawnp, (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,             \
                          char *const[], char *const[]))
static struct {
#define MEMBER_OF(result, name, declared) result(*name) declared;
    EXEC_CALLS(MEMBER_OF)
} real;

void begin_exec(void) {
    const char *said = getenv("KIBAN_SOCKETS_UNSERVED");
    allows_host = said && !strcmp(said, "host");
#define FIND(result, name, declared) *(void **)&real.name = dlsym(RTLD_NEXT, #name);
    EXEC_CALLS(FIND)
}

/* ---- The decision ---- */

/* Returns whether a PT_NOTE segment contains the note of Go's linker. */
static bool has_go_note(int file, const ElfW(Phdr) *segment) {
    char notes[1024];
    ssize_t length = pread(file, notes, segment->p_filesz < sizeof notes ? segment->p_filesz : sizeof notes, segment->p_offset);
    size_t end = length > 0 ? length : 0;
    ElfW(Nhdr) note;
    for (size_t at = 0; at < end && end - at >= sizeof note;) {
        memcpy(&note, notes + at, sizeof note);
        at += sizeof note;
        if (note.n_namesz == 4 && end - at >= 4 && !memcmp(notes + at, "Go\0", 4))
            return true;
        if (note.n_namesz > sizeof notes || note.n_descsz > sizeof notes)
            return false;
        at += (note.n_namesz + 3) / 4 * 4 + (note.n_descsz + 3) / 4 * 4;
    }
    return false;
}

/* Returns why an ELF program cannot use this library, or NULL. */
static const char *reason_of_elf(int file, const ElfW(Ehdr) *header) {
    bool has_loader = false;
    if (memcmp(header->e_ident, __ehdr_start.e_ident, EI_DATA + 1) || header->e_machine != __ehdr_start.e_machine)
        return "is for another architecture";
    for (int at = 0; at < header->e_phnum && at < SEGMENTS; at++) {
        ElfW(Phdr) segment;
        char loader[128] = {0};
        if (pread(file, &segment, sizeof segment, header->e_phoff + (off_t)at * sizeof segment) != sizeof segment)
            return NULL;
        if (segment.p_type == PT_NOTE && has_go_note(file, &segment))
            return "is a Go program, which does not use libc";
        if (segment.p_type != PT_INTERP)
            continue;
        has_loader = true;
        if (pread(file, loader, sizeof loader - 1, segment.p_offset) > 0 && strstr(loader, "musl"))
            return "uses another C library (musl)";
    }
    return has_loader ? NULL : "is statically linked";
}

/* Returns whether the loader ignores LD_PRELOAD for a program. */
static bool is_privileged(int file, const struct stat *is) {
    bool has_group = (is->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP);
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        return false;
    return ((is->st_mode & S_ISUID) && is->st_uid != getuid()) || (has_group && is->st_gid != getgid()) ||
           (getuid() && fgetxattr(file, "security.capability", NULL, 0) > 0);
}

static const char *reason_of(int folder, const char *path, int flags, int depth, char *interpreter);

/* Returns why the interpreter of a script cannot use this library, or NULL, and stores its path. `line` follows the `#!`. */
static const char *reason_of_script(char *line, int depth, char *interpreter) {
    line += strspn(line, " \t");
    line[strcspn(line, " \t\n")] = 0;
    strcpy(interpreter, line);
    return *line ? reason_of(AT_FDCWD, line, 0, depth + 1, interpreter) : NULL;
}

/* Returns why a program cannot use this library, or NULL. Also NULL if it does not exist: libc reports that
 * error. */
static const char *reason_of(int folder, const char *path, int flags, int depth, char *interpreter) {
    char own[32] = "/proc/self/fd/";
    /* The longer member comes first, because only the first one is set to zero: it ends the text. */
    union {
        char text[FIRST_LINE + 1];
        ElfW(Ehdr) elf;
    } head = {0};
    struct stat is;
    if (depth == DEPTH || !path)
        return NULL;
    if ((flags & AT_EMPTY_PATH) && !*path) {
        write_number(own + strlen(own), folder);
        path = own;
    }
    int file = openat(folder, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0 && (errno == EMFILE || errno == ENFILE))
        return "cannot be examined: the process has too many open files";
    if (file < 0)
        return errno == EACCES && !faccessat(folder, path, X_OK, AT_EACCESS) ? "is not readable" : NULL;
    const char *reason = NULL;
    ssize_t length = fstat(file, &is) || !S_ISREG(is.st_mode) ? 0 : pread(file, head.text, FIRST_LINE, 0);
    if (length > 2 && !memcmp(head.text, "#!", 2))
        reason = reason_of_script(head.text + 2, depth, interpreter);
    else if (length >= (ssize_t)sizeof head.elf && !memcmp(head.elf.e_ident, ELFMAG, SELFMAG))
        reason = is_privileged(file, &is) ? "runs with other privileges (set-user-ID, set-group-ID or capabilities)"
                                          : reason_of_elf(file, &head.elf);
    close(file);
    return reason;
}

/* Returns whether a program may be started. If not, prints the reason and sets errno to EACCES. */
static bool may_start(int folder, const char *path, int flags) {
    int kept = errno;
    char interpreter[FIRST_LINE + 1] = "";
    const char *reason = board_path && !allows_host ? reason_of(folder, path, flags, 0, interpreter) : NULL;
    if (!reason) {
        errno = kept;
        return true;
    }
    const char *parts[] = {"kiban run: ", *path ? path : "the program", *interpreter ? ": its interpreter " : "",
                           interpreter, " ", reason,
                           ", so it would use the host's network: not started (kiban run --allow-host-network starts it)\n"};
    struct iovec text[sizeof parts / sizeof *parts];
    for (size_t at = 0; at < sizeof parts / sizeof *parts; at++)
        text[at] = (struct iovec){(char *)parts[at], strlen(parts[at])};
    if (writev(STDERR_FILENO, text, sizeof parts / sizeof *parts) < 0)
        errno = 0;
    errno = EACCES;
    return false;
}

/* Like may_start(), for a program that is searched for in PATH (exec(3)). */
static bool may_start_in_path(const char *name) {
    char candidate[PATH_MAX];
    const char *path = getenv("PATH");
    if (!name || !*name || strchr(name, '/'))
        return may_start(AT_FDCWD, name, 0);
    int kept = errno;
    for (path = path ? path : "/bin:/usr/bin";; path++) {
        size_t folder = strcspn(path, ":"), length = strlen(name);
        if (folder + length + 2 <= sizeof candidate) {
            memcpy(candidate, path, folder);
            candidate[folder] = '/';
            memcpy(candidate + folder + 1, name, length + 1);
            /* An empty entry is the working directory. Like execvp(), go on after a directory of that name. */
            const char *at = folder ? candidate : name;
            struct stat is;
            if (!access(at, X_OK) && !stat(at, &is) && S_ISREG(is.st_mode)) {
                errno = kept;
                return may_start(AT_FDCWD, at, 0);
            }
        }
        path += folder;
        if (!*path)
            break;
    }
    errno = kept;
    return true;
}

/* ---- The calls ---- */

OURS int execve(const char *path, char *const arguments[], char *const environment[]) {
    return BYPASSED || may_start(AT_FDCWD, path, 0) ? real.execve(path, arguments, environment) : -1;
}

OURS int execv(const char *path, char *const arguments[]) {
    return BYPASSED || may_start(AT_FDCWD, path, 0) ? real.execv(path, arguments) : -1;
}

OURS int execvp(const char *name, char *const arguments[]) {
    return BYPASSED || may_start_in_path(name) ? real.execvp(name, arguments) : -1;
}

OURS int execvpe(const char *name, char *const arguments[], char *const environment[]) {
    return BYPASSED || may_start_in_path(name) ? real.execvpe(name, arguments, environment) : -1;
}

OURS int fexecve(int file, char *const arguments[], char *const environment[]) {
    return BYPASSED || may_start(file, "", AT_EMPTY_PATH) ? real.fexecve(file, arguments, environment) : -1;
}

OURS int execveat(int folder, const char *path, char *const arguments[], char *const environment[], int flags) {
    if (BYPASSED || may_start(folder, path, flags))
        return real.execveat ? real.execveat(folder, path, arguments, environment, flags) : fail(ENOSYS);
    return -1;
}

OURS int posix_spawn(pid_t *child, const char *path, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {
    if (BYPASSED || may_start(AT_FDCWD, path, 0))
        return real.posix_spawn(child, path, actions, attributes, arguments, environment);
    return EACCES;
}

OURS int posix_spawnp(pid_t *child, const char *name, const posix_spawn_file_actions_t *actions,
                      const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {
    if (BYPASSED || may_start_in_path(name))
        return real.posix_spawnp(child, name, actions, attributes, arguments, environment);
    return EACCES;
}

/* Collects the arguments after `first`, and the environment if it follows them. */
#define COLLECT(first, after)                               \
    va_list list;                                           \
    size_t count = 1;                                       \
    va_start(list, first);                                  \
    while (va_arg(list, char *))                            \
        count++;                                            \
    va_end(list);                                           \
    char *arguments[count + 1];                             \
    arguments[0] = (char *)first;                           \
    va_start(list, first);                                  \
    for (size_t at = 1; at <= count; at++)                  \
        arguments[at] = va_arg(list, char *);               \
    after;                                                  \
    va_end(list)

OURS int execl(const char *path, const char *first, ...) {
    COLLECT(first, );
    return execv(path, arguments);
}

OURS int execlp(const char *name, const char *first, ...) {
    COLLECT(first, );
    return execvp(name, arguments);
}

OURS int execle(const char *path, const char *first, ...) {
    char *const *environment;
    COLLECT(first, environment = va_arg(list, char *const *));
    return execve(path, arguments, environment);
}
