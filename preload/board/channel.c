/* The way to the board of a program that gives up root.
 *
 * Purpose          each request connects to the board's socket by path. A server that drops root (setuid) or enters
 *                  another root directory (chroot) can no longer do that, but keeps the sockets that it has.
 * Operation        before such a call, open_channel() connects to the board once. Processes inherit this channel over
 *                  fork and exec. If connecting by path fails, connect_over_channel() requests a connection on it,
 *                  which the board sends as a descriptor. All such connections are alike, so it does not matter which
 *                  of the processes that share the channel receives which.
 * Access           the board treats these connections like those of the process that has opened the channel.
 * Descriptor       from 200 on, because programs choose small numbers themselves. The channel is recognised by the
 *                  address to which this end is bound, which contains a hash of the board's path: the program may
 *                  have closed it, and after exec its number is unknown.
 * Signal handlers  nothing here locks or allocates: setuid() is async-signal-safe. */
#include "board.h"
#include <limits.h>
#include <sys/random.h>

/* The lowest number for a new channel, and the numbers among which an inherited one is searched for. */
#define LOWEST 200
#define INHERITED 256

#define PRIVILEGE_CALLS(X)                                               \
    X(setuid, (uid_t user), (user))                                      \
    X(seteuid, (uid_t user), (user))                                     \
    X(setreuid, (uid_t real_user, uid_t user), (real_user, user))        \
    X(setresuid, (uid_t real_user, uid_t user, uid_t saved), (real_user, user, saved)) \
    X(chroot, (const char *path), (path))
static struct {
#define MEMBER_OF(name, declared, given) int(*name) declared;
    PRIVILEGE_CALLS(MEMBER_OF)
} real;
static _Atomic int number = -1;

void begin_channel(void) {
#define FIND(name, declared, given) *(void **)&real.name = dlsym(RTLD_NEXT, #name);
    PRIVILEGE_CALLS(FIND)
}

/* Writes the address of the channels to this board, without the random part (FNV-1a). */
static void describe(struct entry_name *name) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const char *at = board_path; *at; at++)
        hash = (hash ^ (uint8_t)*at) * 0x100000001b3;
    *name = (struct entry_name){.family = AF_UNIX, .entry.what = ASK_CHANNEL};
    memcpy(name->tag, ENTRY_TAG, sizeof name->tag);
    memcpy(name->entry.address[LOCAL], &hash, sizeof hash);
}

static bool is_channel(int fd) {
    struct entry_name name, channel;
    socklen_t length = sizeof name;
    if (libc.getsockname(fd, (struct sockaddr *)&name, &length) || length != sizeof name)
        return false;
    describe(&channel);
    memcpy(channel.random, name.random, sizeof name.random);
    return !memcmp(&name, &channel, sizeof name);
}

/* Returns the channel, or -1. Preserves errno. */
int find_channel(void) {
    int kept = errno, fd = atomic_load(&number);
    if (fd < 0 || !is_channel(fd)) {
        for (fd = INHERITED - 1; fd >= 0 && !is_channel(fd); fd--)
            continue;
        atomic_store(&number, fd);
    }
    errno = kept;
    return fd;
}

/* Opens a channel, unless there is one. Without a board there is none, and later requests fail. */
static void open_channel(void) {
    struct entry entry = {.what = ASK_CHANNEL};
    struct entry_name name;
    struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
    int kept = errno, old = board_path && !geteuid() ? find_channel() : INT_MAX, asker;
    if (old >= 0 && (old == INT_MAX || !(ready_for(old, 0) & POLLHUP)))
        return;
    if (old >= 0)
        close(old); /* The board has been restarted. */
    if ((asker = new_asker(0)) < 0)
        return (void)(errno = kept);
    describe(&name);
    libc.setsockopt(asker, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    bool is_open = getrandom(name.random, sizeof name.random, 0) == sizeof name.random &&
                   !libc.bind(asker, (struct sockaddr *)&name, sizeof name) && !connect_by_path(asker) &&
                   libc.send(asker, &entry, sizeof entry, MSG_NOSIGNAL) == sizeof entry;
    if (is_open) {
        int fd = libc.fcntl(asker, F_DUPFD, LOWEST);
        /* If the limit of descriptors is too low for this number, any number serves. */
        atomic_store(&number, fd >= 0 ? fd : libc.fcntl(asker, F_DUPFD, STDERR_FILENO + 1));
    }
    close(asker);
    errno = kept;
}

/* Replaces a new socket with a connection to the board that is requested on the channel. Waits as long as the socket
 * would. Returns 0; EAGAIN if the board has not answered; or another error number. */
int connect_over_channel(int channel, int socket) {
    struct entry entry = {.what = ASK_CHANNEL}, reply;
    int file = -1, limit = is_blocking(socket) ? patience_of(socket) : PROMPT_MS;
    int64_t until = microseconds() + (limit < 0 ? INT_MAX : limit) * (int64_t)1000;
    if (libc.send(channel, &entry, sizeof entry, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return errno == EAGAIN ? EAGAIN : ECONNREFUSED;
    for (;;) {
        int64_t left = (until - microseconds()) / 1000;
        if (left < 0 || !has_answer(channel, (int)left))
            return EAGAIN;
        if (!receive(channel, &reply, &file, MSG_DONTWAIT)) {
            if (errno == EAGAIN)
                continue; /* Another process has received it; that process's own is still to come. */
            return ECONNREFUSED;
        }
        if (file < 0)
            return reply.what == REPLY_ENDED ? ECONNABORTED : EMFILE;
        if (!(ready_for(file, 0) & POLLHUP))
            return replace_file(socket, file);
        close(file); /* It was for a process that has stopped waiting, and the board has given up, too. */
    }
}

/* ---- The calls ---- */

#define PRIVILEGE_ENTRY(name, declared, given) \
    OURS int name declared {                   \
        if (!BYPASSED)                         \
            open_channel();                    \
        return real.name given;                \
    }
PRIVILEGE_CALLS(PRIVILEGE_ENTRY)
