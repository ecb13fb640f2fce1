/* libkiban_sockets.so: programs that know nothing of kiban use the TCP of a board that runs (kiban run, docs/attach.md).
 *
 * Goal      LD_PRELOAD=libkiban_sockets.so KIBAN_SOCKETS=PATH PROGRAM: what it connects, or listens for, goes over the board.
 * How       a socket stays the system's until it connects or listens. Then the board is asked (one packet each way, the words of
 *           kiban_board::streams), and the socket that it hands over takes the number of the program's: a Unix socket, whose
 *           bytes the board carries. So poll, epoll, select, sendfile, dup, fork, exec and threads work as ever; only names,
 *           options and ends are ours.
 * Whose     the board's: all addresses to which it has a route, and its own. Others, 127.0.0.0/8 and ::1 stay the system's. Who
 *           listens on an unspecified address listens on the board alone.
 * Waits     connect() of a socket that does not block says EINPROGRESS; the socket can be written to when the stream is open.
 * Ends      a stream that is reset reads as ECONNRESET: the board has hung up, though this side had not finished. If it had, the board
 *           is asked.
 * Ports     bind() to port 0 is for listen() or connect() to fill in; who asks before that (getsockname) makes the board listen, so
 *           that the port is the socket's from then on.
 * Left out  a number that epoll knew, or that was copied (dup), before it connected: those go on with the system's socket; UDP; urgent data; SO_LINGER; names after exec;
 *           what bind() has to say is said by listen(). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

/* An entry of kiban_board::streams: ends are the local one and the remote one. */
struct entry {
    uint8_t what, code;
    uint16_t listener;
    uint32_t slot;
    uint8_t family[2], unused[2];
    uint16_t port[2];
    uint8_t address[2][16];
};
_Static_assert(sizeof(struct entry) == 48, "as the board has it");
enum { ASK_CONNECT = 1, ASK_LISTEN = 2, ASK_FATE = 9 };
enum { TOLD_LISTENING = 1, TOLD_OPENED = 2, TOLD_ACCEPTED = 3, TOLD_ENDED = 5 };
enum { LOCAL, REMOTE };
enum { CLOSED = 1, NO_ROUTE = 6, BAD_ADDRESS = 7 };

/* What is known of a number, while the file that it names is the one of that time. One that is RESERVED is bound to a port that the board
 * has chosen: it listens there, though the program does not yet. One that has FAILED may connect again. */
enum state { NOTHING, BOUND, RESERVED, CONNECTING, FAILED, CONNECTED, LISTENING };
struct known {
    enum state state;
    dev_t device;
    ino_t inode;
    int domain;
    bool was_bound, has_finished, is_judged;
    struct sockaddr_storage name[2];
};

/* Numbers above stay the system's. */
#define FILES 65536
static struct known *table[FILES];
/* From this on none has one. */
static int beyond;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Whether there is any: until then a read costs one look. */
static _Atomic bool any;
/* Whether any connects, or did: until then nothing is looked up before a read. */
static _Atomic bool connects;
/* The same of listeners. */
static _Atomic bool listens;

#define SYSTEM(result, name, ...)                                                                                                \
    static result (*system_##name)(__VA_ARGS__);                                                                                  \
    static void find_##name(void) { *(void **)&system_##name = dlsym(RTLD_NEXT, #name); }
SYSTEM(int, connect, int, const struct sockaddr *, socklen_t)
SYSTEM(int, bind, int, const struct sockaddr *, socklen_t)
SYSTEM(int, listen, int, int)
SYSTEM(int, accept4, int, struct sockaddr *, socklen_t *, int)
SYSTEM(int, getsockname, int, struct sockaddr *, socklen_t *)
SYSTEM(int, getpeername, int, struct sockaddr *, socklen_t *)
SYSTEM(int, getsockopt, int, int, int, void *, socklen_t *)
SYSTEM(int, setsockopt, int, int, int, const void *, socklen_t)
SYSTEM(int, shutdown, int, int)
SYSTEM(ssize_t, read, int, void *, size_t)
SYSTEM(ssize_t, readv, int, const struct iovec *, int)
SYSTEM(ssize_t, recv, int, void *, size_t, int)
SYSTEM(ssize_t, recvfrom, int, void *, size_t, int, struct sockaddr *, socklen_t *)
SYSTEM(ssize_t, recvmsg, int, struct msghdr *, int)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *door;

static void find_all(void) {
    find_connect(), find_bind(), find_listen(), find_accept4(), find_getsockname(), find_getpeername();
    find_getsockopt(), find_setsockopt(), find_shutdown(), find_read(), find_readv(), find_recv();
    find_recvfrom(), find_recvmsg();
    door = getenv("KIBAN_SOCKETS");
    if (door && (!*door || strlen(door) >= sizeof((struct sockaddr_un *)0)->sun_path))
        door = NULL;
}

/* A child has the lock free, whatever a thread of its parent's was about. */
static void take_lock(void) { pthread_mutex_lock(&lock); }
static void free_lock(void) { pthread_mutex_unlock(&lock); }

__attribute__((constructor)) static void begin(void) {
    pthread_once(&once, find_all);
    if (door)
        pthread_atfork(take_lock, free_lock, free_lock);
}

/* ---- What is known ---- */

/* With the lock. A number whose file is another now is forgotten; one that was copied is found by its file. */
static struct known *look_up(int fd) {
    struct stat is;
    if (fd < 0 || fd >= FILES || fstat(fd, &is) || !S_ISSOCK(is.st_mode))
        return NULL;
    struct known *known = table[fd];
    if (known && known->state != NOTHING && known->inode == is.st_ino && known->device == is.st_dev)
        return known;
    for (int other = 0; other < beyond; other++) {
        struct known *its = table[other];
        if (its && its->state != NOTHING && its->inode == is.st_ino && its->device == is.st_dev)
            return its;
    }
    return NULL;
}

/* A copy of what is known of a number: whether there is anything. */
static bool find(int fd, struct known *copy) {
    pthread_once(&once, find_all);
    if (!door || !any)
        return false;
    pthread_mutex_lock(&lock);
    struct known *known = look_up(fd);
    if (known)
        *copy = *known;
    pthread_mutex_unlock(&lock);
    return known != NULL;
}

static void note(int fd, struct known what) {
    struct stat is;
    if (fd < 0 || fd >= FILES || fstat(fd, &is))
        return;
    what.inode = is.st_ino;
    what.device = is.st_dev;
    pthread_mutex_lock(&lock);
    struct known *known = look_up(fd);
    if (!known) {
        if (!table[fd])
            __atomic_store_n(&table[fd], calloc(1, sizeof *table[fd]), __ATOMIC_RELEASE);
        known = table[fd];
        beyond = fd < beyond ? beyond : fd + 1;
    }
    if (known)
        *known = what;
    any = true;
    pthread_mutex_unlock(&lock);
}

/* ---- Addresses ---- */

static bool is_mapped(const struct in6_addr *address) { return IN6_IS_ADDR_V4MAPPED(address); }

/* As the board writes it: IPv4 in IPv6's clothes is IPv4. */
static bool put(struct entry *entry, int end, const struct sockaddr *name, socklen_t length) {
    if (name->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)name;
        entry->family[end] = 4;
        entry->port[end] = ntohs(in->sin_port);
        memcpy(entry->address[end], &in->sin_addr, 4);
        return true;
    }
    if (name->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)name;
        bool mapped = is_mapped(&in->sin6_addr);
        entry->family[end] = mapped ? 4 : 6;
        entry->port[end] = ntohs(in->sin6_port);
        memcpy(entry->address[end], (const uint8_t *)&in->sin6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
        return true;
    }
    return false;
}

static struct sockaddr_storage name_of(const struct entry *entry, int end, int domain) {
    struct sockaddr_storage name = {0};
    if (domain == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)&name;
        in->sin_family = AF_INET;
        in->sin_port = htons(entry->port[end]);
        memcpy(&in->sin_addr, entry->address[end], 4);
        return name;
    }
    struct sockaddr_in6 *in = (struct sockaddr_in6 *)&name;
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(entry->port[end]);
    if (entry->family[end] == 4) {
        memset((uint8_t *)&in->sin6_addr + 10, 0xff, 2);
        memcpy((uint8_t *)&in->sin6_addr + 12, entry->address[end], 4);
    } else {
        memcpy(&in->sin6_addr, entry->address[end], 16);
    }
    return name;
}

static bool is_loopback(const struct entry *entry, int end) {
    static const uint8_t one[16] = {[15] = 1};
    return entry->family[end] == 4 ? entry->address[end][0] == 127 : !memcmp(entry->address[end], one, 16);
}

static bool is_unspecified(const struct entry *entry, int end) {
    static const uint8_t zero[16];
    return !memcmp(entry->address[end], zero, 16);
}

static int tell_name(const struct sockaddr_storage *name, struct sockaddr *target, socklen_t *length) {
    socklen_t whole = name->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (!target || !length) {
        errno = EFAULT;
        return -1;
    }
    memcpy(target, name, *length < whole ? *length : whole);
    *length = whole;
    return 0;
}

/* ---- The board ---- */

static int error_of(uint8_t why) {
    static const int errors[] = {0,           EPIPE,       ECONNREFUSED,  ECONNRESET, ETIMEDOUT, ECONNABORTED,
                                 ENETUNREACH, EADDRNOTAVAIL, EADDRINUSE, ENOBUFS,    EHOSTUNREACH};
    return why < sizeof errors / sizeof *errors ? errors[why] : EPROTO;
}

/* A packet, and the file that came with it or -1. */
static bool receive(int socket, struct entry *told, int *file, int flags) {
    char space[CMSG_SPACE(sizeof(int))];
    struct iovec part = {told, sizeof *told};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    ssize_t count;
    *file = -1;
    count = system_recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    if (count < 0)
        return false;
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    if (control && control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_RIGHTS)
        memcpy(file, CMSG_DATA(control), sizeof *file);
    if (count == sizeof *told)
        return true;
    if (*file >= 0)
        close(*file);
    /* It has gone. */
    errno = count ? EPROTO : EINVAL;
    return false;
}

/* There is no board: what was meant for it is not sent elsewhere without a word. */
static int nobody(void) {
    static bool is_said;
    static const char words[] = "kiban: the board of this program does not run: start it again, or run the program without `kiban run`\n";
    if (!__atomic_exchange_n(&is_said, true, __ATOMIC_RELAXED) && write(STDERR_FILENO, words, sizeof words - 1) < 0)
        __atomic_store_n(&is_said, false, __ATOMIC_RELAXED);
    return ENETDOWN;
}

/* Asks the board: 0, or an error's number; ENETDOWN when there is no board to ask, ECONNABORTED when it did not answer. */
static int ask(const struct entry *entry, struct entry *told, int *file) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, door);
    int socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (socket_ < 0)
        return errno;
    int error = 0;
    while (!error && system_connect(socket_, (struct sockaddr *)&name, sizeof name))
        if (errno != EINTR)
            error = errno == ENOENT || errno == ECONNREFUSED ? nobody() : errno;
    while (!error && send(socket_, entry, sizeof *entry, MSG_NOSIGNAL) != sizeof *entry)
        error = errno == EINTR ? 0 : ECONNABORTED;
    while (!error && !receive(socket_, told, file, 0))
        error = errno == EINTR ? 0 : ECONNABORTED;
    close(socket_);
    return error;
}

/* The board's socket takes the number of the program's, and what that was set to. */
static int take_place(int fd, int file) {
    int status = fcntl(fd, F_GETFL), closes = fcntl(fd, F_GETFD);
    int error = 0;
    static const int times[] = {SO_RCVTIMEO, SO_SNDTIMEO};
    for (unsigned at = 0; at < 2; at++) {
        struct timeval time;
        socklen_t length = sizeof time;
        if (!system_getsockopt(fd, SOL_SOCKET, times[at], &time, &length))
            system_setsockopt(file, SOL_SOCKET, times[at], &time, length);
    }
    if (status < 0 || fcntl(file, F_SETFL, status & O_NONBLOCK) || dup3(file, fd, closes & FD_CLOEXEC ? O_CLOEXEC : 0) < 0)
        error = errno;
    close(file);
    return error;
}

/* A TCP socket of the system's: its domain, or 0. */
static int tcp_domain(int fd) {
    int domain = 0, type = 0;
    socklen_t length = sizeof(int);
    if (system_getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) || (domain != AF_INET && domain != AF_INET6))
        return 0;
    length = sizeof(int);
    return system_getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) || type != SOCK_STREAM ? 0 : domain;
}

static int fail(int error) {
    errno = error;
    return -1;
}

/* ---- What a stream has come to ---- */

/* Of one that connects: 0 it is open, EINPROGRESS, or why it is not. */
static int outcome(int fd, struct known *known, int wait_ms) {
    struct pollfd polled = {fd, POLLOUT, 0};
    int ready = poll(&polled, 1, wait_ms);
    if (ready <= 0)
        return ready < 0 ? errno : EINPROGRESS;
    if (polled.revents & POLLHUP) {
        uint8_t why = 0;
        int gone = 0;
        socklen_t length = sizeof gone;
        ssize_t count = system_recv(fd, &why, 1, MSG_DONTWAIT);
        /* Its end is told once, here. */
        system_getsockopt(fd, SOL_SOCKET, SO_ERROR, &gone, &length);
        known->state = FAILED;
        note(fd, *known);
        return count == 1 ? error_of(why) : ECONNREFUSED;
    }
    if (!(polled.revents & POLLOUT))
        return EINPROGRESS;
    known->state = CONNECTED;
    note(fd, *known);
    return 0;
}

/* One look: whether a number may be a listener's, or a copy of one. */
static bool may_listen(int fd) {
    struct known *known = fd >= 0 && fd < FILES ? __atomic_load_n(&table[fd], __ATOMIC_ACQUIRE) : NULL;
    return !known || __atomic_load_n(&known->state, __ATOMIC_RELAXED) != CONNECTED;
}

/* Before something is read: a listener has callers, not bytes; a stream that could not be opened has nothing to read but why. */
static bool failed(int fd) {
    struct known known;
    if (!(connects || (listens && may_listen(fd))) || !find(fd, &known))
        return false;
    if (known.state == LISTENING || known.state == RESERVED) {
        errno = ENOTCONN;
        return true;
    }
    if (known.state != CONNECTING)
        return false;
    int error = outcome(fd, &known, 0);
    if (!error || error == EINPROGRESS)
        return false;
    errno = error;
    return true;
}

/* Nothing was read: whether that is an end, or a reset. */
static ssize_t ended(int fd, ssize_t count, size_t wanted, int flags) {
    struct known known;
    if (count || !wanted || !find(fd, &known) || known.state != CONNECTED || known.is_judged)
        return count;
    struct pollfd polled = {fd, POLLIN, 0};
    if (poll(&polled, 1, 0) != 1 || !(polled.revents & POLLHUP))
        return count;
    if (!known.has_finished)
        return fail(ECONNRESET);
    /* To who has finished itself both look the same: the board knows, and is asked once. */
    struct entry entry = {.what = ASK_FATE}, told;
    put(&entry, LOCAL, (struct sockaddr *)&known.name[LOCAL], sizeof known.name[LOCAL]);
    put(&entry, REMOTE, (struct sockaddr *)&known.name[REMOTE], sizeof known.name[REMOTE]);
    int file = -1, error = ask(&entry, &told, &file);
    if (file >= 0)
        close(file);
    if (!(flags & MSG_PEEK)) {
        known.is_judged = true;
        note(fd, known);
    }
    if (error)
        return fail(ECONNRESET); /* The board has gone. */
    return told.what != TOLD_ENDED || told.code == CLOSED ? count : fail(error_of(told.code));
}

/* ---- The calls ---- */

#define OURS __attribute__((visibility("default")))

OURS int bind(int fd, const struct sockaddr *name, socklen_t length) {
    pthread_once(&once, find_all);
    struct entry entry = {0};
    int domain = door && name ? tcp_domain(fd) : 0;
    if (!domain || !put(&entry, LOCAL, name, length) || is_loopback(&entry, LOCAL))
        return system_bind(fd, name, length);
    struct known known = {.state = BOUND, .domain = domain};
    memcpy(&known.name[LOCAL], name, length < sizeof known.name[LOCAL] ? length : sizeof known.name[LOCAL]);
    note(fd, known);
    return 0;
}

static int bind_at_last(int fd, const struct known *known) {
    socklen_t length = known->domain == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    return system_bind(fd, (const struct sockaddr *)&known->name[LOCAL], length);
}

static void forget(int fd) {
    pthread_mutex_lock(&lock);
    struct known *known = look_up(fd);
    if (known)
        known->state = NOTHING;
    pthread_mutex_unlock(&lock);
}

/* It is the system's after all: bound there, if it was bound. */
static int connect_there(int fd, const struct known *known, const struct sockaddr *name, socklen_t length) {
    if (known->state == BOUND) {
        forget(fd);
        if (bind_at_last(fd, known))
            return -1;
    }
    return system_connect(fd, name, length);
}

/* A socket of the system's takes the number again, as it was before it had to do with the board: 0, or why not. */
static int begin_anew(int fd, struct known *known) {
    int file = socket(known->domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file < 0)
        return errno;
    forget(fd);
    int error = take_place(fd, file);
    if (error)
        return error;
    known->state = known->state == RESERVED || known->was_bound ? BOUND : NOTHING;
    if (known->state == BOUND)
        note(fd, *known);
    return 0;
}

/* The board listens where a socket is bound, at a port of its choosing if none was said. 0; ENOTCONN: the socket is the system's, and bound
 * there; or why not. */
static int listen_there(int fd, struct known *known, enum state state) {
    struct entry entry = {.what = ASK_LISTEN}, told;
    put(&entry, LOCAL, (struct sockaddr *)&known->name[LOCAL], sizeof known->name[LOCAL]);
    int file = -1, error = ask(&entry, &told, &file);
    if (error)
        return error;
    if (told.code == NO_ROUTE || told.code == BAD_ADDRESS) {
        if (file >= 0)
            close(file);
        forget(fd);
        return bind_at_last(fd, known) ? errno : ENOTCONN;
    }
    if (told.what != TOLD_LISTENING || told.code || file < 0) {
        if (file >= 0)
            close(file);
        return told.code ? error_of(told.code) : EMFILE;
    }
    if ((error = take_place(fd, file)))
        return error;
    known->state = state;
    known->name[LOCAL] = name_of(&told, LOCAL, known->domain);
    listens = true;
    note(fd, *known);
    return 0;
}

OURS int connect(int fd, const struct sockaddr *name, socklen_t length) {
    pthread_once(&once, find_all);
    struct known known = {0};
    struct entry entry = {.what = ASK_CONNECT}, told;
    bool is_known = find(fd, &known);
    if (is_known && known.state == CONNECTED)
        return fail(EISCONN);
    if (is_known && known.state == LISTENING)
        return fail(EINVAL);
    if (is_known && known.state == CONNECTING) {
        int error = outcome(fd, &known, 0);
        return error ? fail(error == EINPROGRESS ? EALREADY : error) : 0;
    }
    if (is_known && (known.state == FAILED || known.state == RESERVED)) {
        int error = begin_anew(fd, &known);
        if (error)
            return fail(error);
    }
    int domain = door && name ? tcp_domain(fd) : 0;
    if (!domain || !put(&entry, REMOTE, name, length) || is_loopback(&entry, REMOTE))
        return connect_there(fd, &known, name, length);
    bool is_bound = known.state == BOUND;
    if (is_bound) {
        put(&entry, LOCAL, (struct sockaddr *)&known.name[LOCAL], sizeof known.name[LOCAL]);
        /* No address was said: the board chooses, as long as it may choose the port, too. */
        if (is_unspecified(&entry, LOCAL) && entry.port[LOCAL] == 0)
            entry.family[LOCAL] = 0;
    }
    int file = -1, error = ask(&entry, &told, &file);
    if (error)
        return fail(error);
    bool is_ours = told.what == TOLD_OPENED && file >= 0;
    if (!is_ours && (told.code == NO_ROUTE || told.code == BAD_ADDRESS)) {
        /* The system's. */
        if (file >= 0)
            close(file);
        return connect_there(fd, &known, name, length);
    }
    /* Without a reason it is this program's last file that the answer found taken. */
    if (!is_ours)
        return fail(told.code ? error_of(told.code) : EMFILE);
    bool waits = !(fcntl(fd, F_GETFL) & O_NONBLOCK);
    if ((error = take_place(fd, file)))
        return fail(error);
    connects = true;
    known = (struct known){.state = CONNECTING, .domain = domain, .was_bound = is_bound};
    known.name[LOCAL] = name_of(&told, LOCAL, domain);
    known.name[REMOTE] = name_of(&entry, REMOTE, domain);
    note(fd, known);
    error = outcome(fd, &known, waits ? -1 : 0);
    return error ? fail(error) : 0;
}

OURS int listen(int fd, int backlog) {
    pthread_once(&once, find_all);
    struct known known;
    if (!find(fd, &known) || known.state == NOTHING)
        return system_listen(fd, backlog);
    if (known.state == LISTENING)
        return 0;
    if (known.state == RESERVED) {
        known.state = LISTENING;
        note(fd, known);
        return 0;
    }
    if (known.state != BOUND)
        return fail(EINVAL);
    int error = listen_there(fd, &known, LISTENING);
    if (error == ENOTCONN)
        return system_listen(fd, backlog);
    return error ? fail(error) : 0;
}

/* The board has gone: its listener would be ready for ever, and nobody would come. One takes its place that never is. */
static void fall_silent(int fd) {
    int ends[2];
    static const char words[] = "kiban: the board has gone: nothing is listened for any more; begin the program again\n";
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return;
    /* The other end stays open as long as the process lives. */
    if (!take_place(fd, ends[0])) {
        struct known silent = {.state = LISTENING, .domain = AF_INET};
        note(fd, silent);
        if (write(STDERR_FILENO, words, sizeof words - 1) < 0)
            errno = 0;
    }
    errno = ECONNABORTED;
}

OURS int accept4(int fd, struct sockaddr *name, socklen_t *length, int flags) {
    pthread_once(&once, find_all);
    struct known known;
    if (!find(fd, &known) || known.state != LISTENING)
        return system_accept4(fd, name, length, flags);
    struct entry told;
    int file;
    bool waits = !(fcntl(fd, F_GETFL) & O_NONBLOCK);
    if (!receive(fd, &told, &file, waits ? 0 : MSG_DONTWAIT)) {
        if (errno == EINVAL)
            fall_silent(fd);
        return -1;
    }
    if (told.what != TOLD_ACCEPTED || file < 0) {
        if (file >= 0)
            close(file);
        return fail(ECONNABORTED);
    }
    if (!(flags & SOCK_CLOEXEC))
        fcntl(file, F_SETFD, 0);
    if (flags & SOCK_NONBLOCK)
        fcntl(file, F_SETFL, O_NONBLOCK);
    struct known accepted = {.state = CONNECTED, .domain = known.domain};
    accepted.name[LOCAL] = name_of(&told, LOCAL, known.domain);
    accepted.name[REMOTE] = name_of(&told, REMOTE, known.domain);
    note(file, accepted);
    if (name && length)
        tell_name(&accepted.name[REMOTE], name, length);
    return file;
}

OURS int accept(int fd, struct sockaddr *name, socklen_t *length) { return accept4(fd, name, length, 0); }

OURS int getsockname(int fd, struct sockaddr *name, socklen_t *length) {
    pthread_once(&once, find_all);
    struct known known;
    if (!find(fd, &known))
        return system_getsockname(fd, name, length);
    struct entry entry = {0};
    put(&entry, LOCAL, (struct sockaddr *)&known.name[LOCAL], sizeof known.name[LOCAL]);
    if (known.state == BOUND && entry.port[LOCAL] == 0) {
        /* It is listened for from now on, so that nobody else has the port. */
        int error = listen_there(fd, &known, RESERVED);
        if (error == ENOTCONN)
            return system_getsockname(fd, name, length);
        if (error)
            return fail(error);
    }
    return tell_name(&known.name[LOCAL], name, length);
}

OURS int getpeername(int fd, struct sockaddr *name, socklen_t *length) {
    pthread_once(&once, find_all);
    struct known known;
    if (!find(fd, &known))
        return system_getpeername(fd, name, length);
    bool is_open = known.state == CONNECTED || (known.state == CONNECTING && outcome(fd, &known, 0) == 0);
    return is_open ? tell_name(&known.name[REMOTE], name, length) : fail(ENOTCONN);
}

static int tell(void *target, socklen_t *length, const void *value, socklen_t bytes) {
    if (!target || !length)
        return fail(EFAULT);
    *length = *length < bytes ? *length : bytes;
    memcpy(target, value, *length);
    return 0;
}

OURS int getsockopt(int fd, int level, int option, void *target, socklen_t *length) {
    pthread_once(&once, find_all);
    struct known known;
    if (!find(fd, &known) || known.state == BOUND)
        return system_getsockopt(fd, level, option, target, length);
    int value = 0;
    if (level == SOL_SOCKET) {
        switch (option) {
        case SO_ERROR:
            if (known.state != CONNECTING)
                break;
            value = outcome(fd, &known, 0);
            value = value == EINPROGRESS ? 0 : value;
            return tell(target, length, &value, sizeof value);
        case SO_DOMAIN:
            return tell(target, length, &known.domain, sizeof known.domain);
        case SO_PROTOCOL:
            value = IPPROTO_TCP;
            return tell(target, length, &value, sizeof value);
        case SO_TYPE:
            value = SOCK_STREAM;
            return tell(target, length, &value, sizeof value);
        case SO_ACCEPTCONN:
            value = known.state == LISTENING;
            return tell(target, length, &value, sizeof value);
        }
        return system_getsockopt(fd, level, option, target, length);
    }
    if (level == IPPROTO_TCP && option == TCP_INFO) {
        /* What the board knows stands in kiban status: here is that the stream is open, and nothing else. */
        struct tcp_info info = {.tcpi_state = TCP_ESTABLISHED};
        return tell(target, length, &info, sizeof info);
    }
    if (level == IPPROTO_TCP && option == TCP_MAXSEG) {
        value = 536; /* What every host takes (RFC 9293 3.7.1); the board knows better. */
        return tell(target, length, &value, sizeof value);
    }
    if (level == IPPROTO_TCP && option == TCP_NODELAY) {
        value = 1;
        return tell(target, length, &value, sizeof value);
    }
    if (level == IPPROTO_TCP || level == IPPROTO_IP || level == IPPROTO_IPV6)
        return fail(ENOPROTOOPT);
    return system_getsockopt(fd, level, option, target, length);
}

OURS int setsockopt(int fd, int level, int option, const void *value, socklen_t length) {
    pthread_once(&once, find_all);
    struct known known;
    bool is_ours = find(fd, &known) && known.state != BOUND;
    /* Of no effect: segments of the board's leave as its configuration says. */
    if (is_ours && (level == IPPROTO_TCP || level == IPPROTO_IP || level == IPPROTO_IPV6))
        return 0;
    return system_setsockopt(fd, level, option, value, length);
}

OURS int shutdown(int fd, int how) {
    pthread_once(&once, find_all);
    struct known known;
    bool is_known = find(fd, &known);
    if (is_known && known.state == CONNECTING)
        outcome(fd, &known, 0);
    if (is_known && known.state == CONNECTED && how != SHUT_RD) {
        known.has_finished = true;
        note(fd, known);
    }
    return system_shutdown(fd, how);
}

OURS ssize_t read(int fd, void *target, size_t bytes) {
    pthread_once(&once, find_all);
    return failed(fd) ? -1 : ended(fd, system_read(fd, target, bytes), bytes, 0);
}

OURS ssize_t readv(int fd, const struct iovec *parts, int count) {
    pthread_once(&once, find_all);
    return failed(fd) ? -1 : ended(fd, system_readv(fd, parts, count), count > 0 ? parts[0].iov_len : 0, 0);
}

OURS ssize_t recv(int fd, void *target, size_t bytes, int flags) {
    pthread_once(&once, find_all);
    return failed(fd) ? -1 : ended(fd, system_recv(fd, target, bytes, flags), bytes, flags);
}

OURS ssize_t recvfrom(int fd, void *target, size_t bytes, int flags, struct sockaddr *name, socklen_t *length) {
    pthread_once(&once, find_all);
    return failed(fd) ? -1 : ended(fd, system_recvfrom(fd, target, bytes, flags, name, length), bytes, flags);
}

OURS ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    pthread_once(&once, find_all);
    if (failed(fd))
        return -1;
    ssize_t count = system_recvmsg(fd, message, flags);
    return ended(fd, count, message && message->msg_iovlen ? message->msg_iov[0].iov_len : 0, flags);
}

/* What programs call that were compiled with checks (_FORTIFY_SOURCE). */
void __chk_fail(void) __attribute__((noreturn));
ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __recv_chk(int, void *, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);

OURS ssize_t __read_chk(int fd, void *target, size_t bytes, size_t room) {
    if (bytes > room)
        __chk_fail();
    return read(fd, target, bytes);
}

OURS ssize_t __recv_chk(int fd, void *target, size_t bytes, size_t room, int flags) {
    if (bytes > room)
        __chk_fail();
    return recv(fd, target, bytes, flags);
}

OURS ssize_t __recvfrom_chk(int fd, void *target, size_t bytes, size_t room, int flags, struct sockaddr *name,
                            socklen_t *length) {
    if (bytes > room)
        __chk_fail();
    return recvfrom(fd, target, bytes, flags, name, length);
}
