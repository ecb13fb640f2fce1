/* librspreload.so: runs unmodified socket programs over rsockets (rsocket(7)).
 *
 * Purpose   LD_PRELOAD=librspreload.so PROGRAM: its TCP connections use the RDMA NIC if the peer uses rsockets too.
 * Switching a socket belongs to the system until it listens or connects. Then the program's descriptor becomes a copy of
 *           the rsocket's, and calls on it go to the rsocket. The bound address and O_NONBLOCK are kept.
 * Fallback  to plain TCP, for families and types that rsockets do not support, and if the peer does not answer as an
 *           rsocket within KIBAN_RSPRELOAD_MS milliseconds (3000). Such a peer first gets a connection that it does not
 *           understand. A listener is only an rsocket: it does not accept plain TCP peers.
 * connect   waits until the peer is known to be an rsocket or not, even for a non-blocking socket.
 * dup       copies are counted: the rsocket is closed with its last descriptor. A copy made before the socket listens or
 *           connects stays TCP.
 * fork      a child inherits the descriptors, but not the rsockets: calls fail with EBADF. Its own rsockets work.
 * epoll     rsockets in an epoll set are polled by rpoll(). Edges are emulated: an edge is reported again after a call
 *           that failed with EAGAIN or was incomplete.
 * Signals   rsockets take locks, so signals are blocked during each of their calls (two system calls) and delivered only
 *           while the call sleeps without locks. A handler may therefore make the async-signal-safe calls of POSIX
 *           (2.4.3) on rsockets, unless it may have interrupted malloc(), because they allocate. Calls on other
 *           descriptors neither lock nor allocate. close() and shutdown() of an rsocket block signals while it lingers,
 *           at most 10 s.
 * Recursion the libraries below call the same functions: calls from within them go to the system.
 * Not implemented  stdio on sockets (libc does not call the exported read() there), io_uring, passing descriptors. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* What librdmacm exports (rdma/rsocket.h). */
int rsocket(int, int, int), rbind(int, const struct sockaddr *, socklen_t), rlisten(int, int);
int raccept(int, struct sockaddr *, socklen_t *), rconnect(int, const struct sockaddr *, socklen_t);
int rshutdown(int, int), rclose(int), rpoll(struct pollfd *, nfds_t, int), rfcntl(int, int, ...);
int rgetpeername(int, struct sockaddr *, socklen_t *), rgetsockname(int, struct sockaddr *, socklen_t *);
int rsetsockopt(int, int, int, const void *, socklen_t), rgetsockopt(int, int, int, void *, socklen_t *);
ssize_t rrecv(int, void *, size_t, int), rsend(int, const void *, size_t, int);
ssize_t rrecvfrom(int, void *, size_t, int, struct sockaddr *, socklen_t *);
ssize_t rrecvmsg(int, struct msghdr *, int), rsendmsg(int, const struct msghdr *, int);
ssize_t rreadv(int, const struct iovec *, int), rwritev(int, const struct iovec *, int);

/* Descriptors above this are never rsockets. */
#define FILES 65536

/* The rsocket of each descriptor, plus one; 0 means that the descriptor is not an rsocket. */
static _Atomic int rsocket_of[FILES];
/* The number of descriptors of an rsocket. */
static _Atomic int numbers_of[FILES];
/* Edges that have been reported, by descriptor, as EPOLLIN and EPOLLOUT. */
static _Atomic unsigned edges_reported[FILES];

static struct {
    int (*socket)(int, int, int), (*bind)(int, const struct sockaddr *, socklen_t), (*listen)(int, int);
    int (*accept4)(int, struct sockaddr *, socklen_t *, int), (*connect)(int, const struct sockaddr *, socklen_t);
    int (*shutdown)(int, int), (*close)(int), (*dup)(int), (*dup2)(int, int), (*dup3)(int, int, int);
    int (*fcntl)(int, int, ...), (*ioctl)(int, unsigned long, ...);
    int (*getpeername)(int, struct sockaddr *, socklen_t *), (*getsockname)(int, struct sockaddr *, socklen_t *);
    int (*getsockopt)(int, int, int, void *, socklen_t *), (*setsockopt)(int, int, int, const void *, socklen_t);
    ssize_t (*recv)(int, void *, size_t, int), (*send)(int, const void *, size_t, int);
    ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
    ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    ssize_t (*recvmsg)(int, struct msghdr *, int), (*sendmsg)(int, const struct msghdr *, int);
    ssize_t (*read)(int, void *, size_t), (*write)(int, const void *, size_t);
    ssize_t (*readv)(int, const struct iovec *, int), (*writev)(int, const struct iovec *, int);
    ssize_t (*sendfile)(int, int, off_t *, size_t);
    int (*poll)(struct pollfd *, nfds_t, int);
    int (*ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
    int (*select)(int, fd_set *, fd_set *, fd_set *, struct timeval *);
    int (*pselect)(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *);
    int (*epoll_ctl)(int, int, int, struct epoll_event *), (*epoll_wait)(int, struct epoll_event *, int, int);
    int (*epoll_pwait)(int, struct epoll_event *, int, int, const sigset_t *);
} real;

/* The address ranges of the libraries that this one calls, and whose own calls go to the system. */
static struct { uintptr_t from, to; } below[2];
static _Atomic bool is_started;
static int timeout_ms = 3000;
/* Whether the program's calls on an rsocket block; the rsocket itself is non-blocking. */
static _Atomic bool waits[FILES];
/* All signals except synchronous ones such as SIGSEGV. */
static sigset_t blocked_signals;

struct range { uintptr_t at, from, to; };

static int note_range(struct dl_phdr_info *info, size_t size, void *data)
{
    struct range *range = data;
    uintptr_t from = UINTPTR_MAX, to = 0;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD)
            continue;
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        from = start < from ? start : from;
        to = start + part->p_memsz > to ? start + part->p_memsz : to;
    }
    if (range->at < from || range->at >= to)
        return 0;
    range->from = from;
    range->to = to;
    return 1;
}

static void on_fork(void);

static void begin(void)
{
#define FIND(name) *(void **)&real.name = dlsym(RTLD_NEXT, #name)
    FIND(socket); FIND(bind); FIND(listen); FIND(accept4); FIND(connect); FIND(shutdown); FIND(close);
    FIND(dup); FIND(dup2); FIND(dup3); FIND(fcntl); FIND(ioctl); FIND(getpeername); FIND(getsockname);
    FIND(getsockopt); FIND(setsockopt); FIND(recv); FIND(send); FIND(recvfrom); FIND(sendto); FIND(recvmsg);
    FIND(sendmsg); FIND(read); FIND(write); FIND(readv); FIND(writev); FIND(sendfile); FIND(poll); FIND(ppoll);
    FIND(select); FIND(pselect); FIND(epoll_ctl); FIND(epoll_wait); FIND(epoll_pwait);
    void *inside[2] = { dlsym(RTLD_DEFAULT, "ibv_get_device_list"), (void *)rsocket };
    for (int i = 0; i < 2; i++) {
        struct range range = { (uintptr_t)inside[i], 0, 0 };
        dl_iterate_phdr(note_range, &range);
        below[i].from = range.from;
        below[i].to = range.to;
    }
    const char *timeout_text = getenv("KIBAN_RSPRELOAD_MS");
    if (timeout_text && atoi(timeout_text) > 0)
        timeout_ms = atoi(timeout_text);
    sigfillset(&blocked_signals);
    static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked_signals, faults[i]);
    if (!atomic_exchange(&is_started, true))
        pthread_atfork(NULL, NULL, on_fork);
}

/* Runs before main(), or earlier if a constructor of another library calls us; running twice is harmless. */
__attribute__((constructor)) static void prepare(void)
{
    if (!atomic_load(&is_started))
        begin();
}

static bool is_below(void *caller)
{
    prepare();
    uintptr_t at = (uintptr_t)caller;
    return (at >= below[0].from && at < below[0].to) || (at >= below[1].from && at < below[1].to);
}

#define FROM_BELOW is_below(__builtin_return_address(0))

/* Returns the rsocket of a descriptor, or -1. */
static int over(int file)
{
    prepare();
    return file >= 0 && file < FILES ? atomic_load(&rsocket_of[file]) - 1 : -1;
}

/* ---- signals */

/* Blocks signals in this thread until restore_signals(). */
static void block_signals(sigset_t *before)
{
    pthread_sigmask(SIG_BLOCK, &blocked_signals, before);
}

static void restore_signals(const sigset_t *before)
{
    int kept = errno;
    pthread_sigmask(SIG_SETMASK, before, NULL);
    errno = kept;
}

#define SIGNALS_BLOCKED(call)             \
    ({                                    \
        sigset_t before_;                 \
        block_signals(&before_);          \
        __typeof__(call) result_ = call;  \
        restore_signals(&before_);        \
        result_;                          \
    })

/* Returns whether a handler that ended a sleep may have been installed without SA_RESTART (sigaction(2)). */
static bool ends_calls(const sigset_t *mask)
{
    for (int number = 1; number <= 64; number++) {
        struct sigaction action;
        if (sigismember(mask, number) == 0 && sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
            action.sa_handler != SIG_IGN && !(action.sa_flags & SA_RESTART))
            return true;
    }
    return false;
}

static int64_t micros(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

/* How long a blocking call spins before it sleeps, us; and its longest sleep, ns, because another thread may consume
 * the wake-up. */
#define SPIN_MICROS 60
#define SLEEP_NANOS 100000000

/* Waits after a call that failed with EAGAIN. Returns whether to retry it; if not, errno is set. The rsocket's descriptor
 * becomes readable when an event may have occurred since that call. */
static bool sleeps(int rs, int flags, int64_t *started, const sigset_t *before)
{
    if (errno != EAGAIN || (flags & MSG_DONTWAIT) || rs >= FILES || !atomic_load(&waits[rs]))
        return false;
    *started = *started ? *started : micros();
    if (micros() - *started < SPIN_MICROS)
        return true;
    struct pollfd file = { .fd = rs, .events = POLLIN };
    struct timespec nap = { 0, SLEEP_NANOS };
    if (real.ppoll(&file, 1, &nap, before) < 0 && errno == EINTR && ends_calls(before)) {
        errno = EINTR;
        return false;
    }
    return true;
}

/* Makes a call on an rsocket, and retries it if the program's call blocks. */
#define UNTIL(rs, flags, call)                                        \
    ({                                                                \
        sigset_t before_;                                             \
        int64_t begun_ = 0;                                           \
        __typeof__(call) result_;                                     \
        block_signals(&before_);                                      \
        do                                                            \
            result_ = call;                                           \
        while (result_ < 0 && sleeps(rs, flags, &begun_, &before_));  \
        restore_signals(&before_);                                    \
        result_;                                                      \
    })

static void name(int file, int rs)
{
    atomic_store(&edges_reported[file], 0);
    atomic_store(&rsocket_of[file], rs + 1);
    atomic_fetch_add(&numbers_of[rs], 1);
}

/* Removes a descriptor from its rsocket. */
static void unname(int file)
{
    int rs = over(file);
    if (rs < 0)
        return;
    atomic_store(&rsocket_of[file], 0);
    if (atomic_fetch_sub(&numbers_of[rs], 1) == 1) {
        int kept = errno;
        SIGNALS_BLOCKED(rclose(rs));
        errno = kept;
    }
}

/* Turns the program's descriptor into one of an rsocket. */
static bool adopt(int file, int rs)
{
    int flags = real.fcntl(file, F_GETFD);
    if (file >= FILES || rs >= FILES || real.dup3(rs, file, flags & FD_CLOEXEC ? O_CLOEXEC : 0) < 0)
        return false;
    name(file, rs);
    return true;
}

/* Returns the family of a socket that an rsocket can replace, or 0. */
static int family_of(int file)
{
    int type = 0, family = 0, protocol = 0;
    socklen_t length = sizeof type;
    if (real.getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &length) || type != SOCK_STREAM)
        return 0;
    length = sizeof family;
    if (real.getsockopt(file, SOL_SOCKET, SO_DOMAIN, &family, &length))
        return 0;
    length = sizeof protocol;
    if (real.getsockopt(file, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) || protocol != IPPROTO_TCP)
        return 0;
    return family == AF_INET || family == AF_INET6 ? family : 0;
}

static int made_like(int file, int family)
{
    int rs = rsocket(family, SOCK_STREAM, 0), only = 0;
    socklen_t length = sizeof only;
    if (rs >= 0 && family == AF_INET6 && !real.getsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &only, &length))
        rsetsockopt(rs, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    return rs;
}

static int rpoll_held(struct pollfd *files, nfds_t count, int timeout, const sigset_t *mask);

int connect(int file, const struct sockaddr *to, socklen_t length)
{
    if (FROM_BELOW)
        return real.connect(file, to, length);
    if (over(file) >= 0) {
        errno = EISCONN;
        return -1;
    }
    int kept = errno, family = family_of(file);
    if (!family || !to || to->sa_family != family)
        return real.connect(file, to, length);
    struct sockaddr_storage own;
    socklen_t own_length = sizeof own;
    int rs = SIGNALS_BLOCKED(made_like(file, family)), flags = real.fcntl(file, F_GETFL);
    bool is_connected = rs >= 0 && rs < FILES && !real.getsockname(file, (struct sockaddr *)&own, &own_length);
    if (is_connected) {
        /* Keep the program's address, but choose another port. */
        ((struct sockaddr_in *)&own)->sin_port = 0;
        static const struct in6_addr any = IN6ADDR_ANY_INIT;
        bool is_any = family == AF_INET ? ((struct sockaddr_in *)&own)->sin_addr.s_addr == 0
                                        : !memcmp(&((struct sockaddr_in6 *)&own)->sin6_addr, &any, sizeof any);
        is_connected = is_any || !SIGNALS_BLOCKED(rbind(rs, (struct sockaddr *)&own, own_length));
    }
    if (is_connected) {
        SIGNALS_BLOCKED(rfcntl(rs, F_SETFL, O_NONBLOCK));
        is_connected = !SIGNALS_BLOCKED(rconnect(rs, to, length));
        if (!is_connected && errno == EINPROGRESS) {
            struct pollfd wait = { .fd = rs, .events = POLLOUT };
            int error = 0;
            socklen_t bytes = sizeof error;
            /* If a signal interrupts this attempt, fall back to the system's connect(). */
            is_connected = rpoll_held(&wait, 1, timeout_ms, NULL) == 1 && !(wait.revents & (POLLERR | POLLHUP)) &&
                     !SIGNALS_BLOCKED(rgetsockopt(rs, SOL_SOCKET, SO_ERROR, &error, &bytes)) && !error;
        }
        atomic_store(&waits[rs], !(flags & O_NONBLOCK));
    }
    if (is_connected && adopt(file, rs)) {
        errno = kept;
        return 0;
    }
    if (rs >= 0)
        SIGNALS_BLOCKED(rclose(rs));
    errno = kept;
    return real.connect(file, to, length);
}

int listen(int file, int backlog)
{
    if (FROM_BELOW)
        return real.listen(file, backlog);
    int rs = over(file), family = rs >= 0 ? 0 : family_of(file);
    if (rs >= 0)
        return SIGNALS_BLOCKED(rlisten(rs, backlog));
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    if (!family || file >= FILES || real.getsockname(file, (struct sockaddr *)&own, &length))
        return real.listen(file, backlog);
    rs = SIGNALS_BLOCKED(made_like(file, family));
    int flags = real.fcntl(file, F_GETFL), kept = errno, only = 0;
    socklen_t bytes = sizeof only;
    if (family == AF_INET6)
        real.getsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &only, &bytes);
    if (rs < 0)
        return real.listen(file, backlog);
    /* Replacing the system's socket frees the port. */
    if (!adopt(file, rs)) {
        SIGNALS_BLOCKED(rclose(rs));
        return real.listen(file, backlog);
    }
    SIGNALS_BLOCKED(rfcntl(rs, F_SETFL, O_NONBLOCK));
    atomic_store(&waits[rs], !(flags & O_NONBLOCK));
    if (!SIGNALS_BLOCKED(rbind(rs, (struct sockaddr *)&own, length)) && !SIGNALS_BLOCKED(rlisten(rs, backlog))) {
        errno = kept;
        return 0;
    }
    /* The rsocket cannot listen: go back to a system socket. */
    int on = 1, plain = real.socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (plain < 0)
        return -1;
    int close_on_exec = real.fcntl(file, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0;
    real.setsockopt(plain, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6)
        real.setsockopt(plain, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    real.fcntl(plain, F_SETFL, flags);
    unname(file);
    int bound = real.bind(plain, (struct sockaddr *)&own, length);
    real.dup3(plain, file, close_on_exec);
    kept = errno;
    real.close(plain);
    errno = kept;
    return bound ? -1 : real.listen(file, backlog);
}

/* After a call that failed with EAGAIN or was incomplete, the edge is reported again. */
static ssize_t reset_edge(int file, unsigned edge, ssize_t done, size_t wanted)
{
    if ((done < 0 && errno == EAGAIN) || (done >= 0 && (size_t)done < wanted))
        atomic_fetch_and(&edges_reported[file], ~edge);
    return done;
}

int accept4(int file, struct sockaddr *from, socklen_t *length, int flags)
{
    int rs = over(file);
    if (FROM_BELOW || rs < 0)
        return real.accept4(file, from, length, flags);
    int made = reset_edge(file, EPOLLIN, UNTIL(rs, 0, raccept(rs, from, length)), 0);
    if (made < 0)
        return -1;
    SIGNALS_BLOCKED(rfcntl(made, F_SETFL, O_NONBLOCK));
    if (made < FILES)
        atomic_store(&waits[made], !(flags & SOCK_NONBLOCK));
    int number = real.fcntl(made, flags & SOCK_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
    if (number < 0 || number >= FILES || made >= FILES) {
        SIGNALS_BLOCKED(rclose(made));
        if (number >= 0)
            real.close(number);
        errno = EMFILE;
        return -1;
    }
    name(number, made);
    return number;
}

int accept(int file, struct sockaddr *from, socklen_t *length)
{
    if (FROM_BELOW || over(file) < 0)
        return real.accept4(file, from, length, 0);
    return accept4(file, from, length, 0);
}

int shutdown(int file, int how)
{
    int rs = over(file);
    return FROM_BELOW || rs < 0 ? real.shutdown(file, how) : SIGNALS_BLOCKED(rshutdown(rs, how));
}

static void forget_epoll(int epoll);

int close(int file)
{
    if (FROM_BELOW)
        return real.close(file);
    forget_epoll(file);
    unname(file);
    return real.close(file);
}

/* ---- copies */

static int copied(int from, int to)
{
    int rs = over(from);
    if (to >= 0 && to < FILES && rs >= 0)
        name(to, rs);
    return to;
}

int dup(int file)
{
    bool below_us = FROM_BELOW;
    int made = real.dup(file);
    return below_us ? made : copied(file, made);
}

int dup3(int from, int to, int flags)
{
    if (FROM_BELOW)
        return real.dup3(from, to, flags);
    int made = real.dup3(from, to, flags);
    if (made >= 0) {
        unname(to);
        copied(from, to);
    }
    return made;
}

int dup2(int from, int to)
{
    if (FROM_BELOW || from == to)
        return real.dup2(from, to);
    int made = real.dup2(from, to);
    if (made >= 0) {
        unname(to);
        copied(from, to);
    }
    return made;
}

static int control(int file, int command, void *argument, bool below_us)
{
    int rs = over(file);
    if (below_us || rs < 0)
        return real.fcntl(file, command, argument);
    switch (command) {
    case F_GETFL: {
        int flags = SIGNALS_BLOCKED(rfcntl(rs, F_GETFL));
        return flags < 0 || !atomic_load(&waits[rs]) ? flags : flags & ~O_NONBLOCK;
    }
    case F_SETFL:
        atomic_store(&waits[rs], !((int)(intptr_t)argument & O_NONBLOCK));
        return SIGNALS_BLOCKED(rfcntl(rs, F_SETFL, (int)(intptr_t)argument | O_NONBLOCK));
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
        return copied(file, real.fcntl(file, command, argument));
    default:
        return real.fcntl(file, command, argument);
    }
}

int fcntl(int file, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    return control(file, command, argument, FROM_BELOW);
}

int fcntl64(int file, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    return control(file, command, argument, FROM_BELOW);
}

int ioctl(int file, unsigned long request, ...)
{
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    int rs = over(file);
    if (FROM_BELOW || rs < 0 || request != FIONBIO)
        return real.ioctl(file, request, argument);
    atomic_store(&waits[rs], !*(int *)argument);
    return 0;
}

/* ---- data */

/* Receives data; with MSG_WAITALL, waits until the buffer is full. */
static ssize_t receive(int rs, void *at, size_t length, int flags)
{
    size_t got = 0;
    for (;;) {
        ssize_t count = UNTIL(rs, flags, rrecv(rs, (char *)at + got, length - got, flags));
        got += count > 0 ? count : 0;
        bool wants_more = (flags & MSG_WAITALL) && !(flags & (MSG_PEEK | MSG_DONTWAIT)) && atomic_load(&waits[rs]);
        if (count <= 0 || !wants_more || got == length)
            return got ? (ssize_t)got : count;
    }
}

ssize_t recv(int file, void *at, size_t length, int flags)
{
    int rs = over(file);
    return FROM_BELOW || rs < 0 ? real.recv(file, at, length, flags)
                           : reset_edge(file, EPOLLIN, receive(rs, at, length, flags), length);
}

ssize_t recvfrom(int file, void *at, size_t length, int flags, struct sockaddr *from, socklen_t *from_length)
{
    int rs = over(file);
    if (FROM_BELOW || rs < 0)
        return real.recvfrom(file, at, length, flags, from, from_length);
    ssize_t count = reset_edge(file, EPOLLIN, receive(rs, at, length, flags), length);
    if (count > 0 && from && from_length)
        SIGNALS_BLOCKED(rgetpeername(rs, from, from_length));
    return count;
}

/* Receives all parts with MSG_WAITALL, otherwise what is available. */
static ssize_t receive_parts(int rs, const struct iovec *parts, size_t count, int flags)
{
    ssize_t got = UNTIL(rs, flags, rreadv(rs, parts, (int)count));
    if (got <= 0 || !(flags & MSG_WAITALL) || (flags & MSG_DONTWAIT) || !atomic_load(&waits[rs]))
        return got;
    size_t at = got;
    for (size_t part = 0; part < count; part++) {
        size_t length = parts[part].iov_len;
        if (at >= length) {
            at -= length;
            continue;
        }
        ssize_t more = receive(rs, (char *)parts[part].iov_base + at, length - at, flags);
        got += more > 0 ? more : 0;
        if (more < (ssize_t)(length - at))
            break;
        at = 0;
    }
    return got;
}

ssize_t recvmsg(int file, struct msghdr *message, int flags)
{
    int rs = over(file);
    if (FROM_BELOW || rs < 0)
        return real.recvmsg(file, message, flags);
    /* There is no ancillary data. */
    message->msg_controllen = 0;
    if ((flags & MSG_WAITALL) && !(flags & (MSG_PEEK | MSG_OOB))) {
        message->msg_namelen = 0;
        message->msg_flags = 0;
        return reset_edge(file, EPOLLIN, receive_parts(rs, message->msg_iov, message->msg_iovlen, flags), SIZE_MAX);
    }
    return reset_edge(file, EPOLLIN, UNTIL(rs, flags, rrecvmsg(rs, message, flags)), SIZE_MAX);
}

ssize_t read(int file, void *at, size_t length)
{
    int rs = over(file);
    return FROM_BELOW || rs < 0 ? real.read(file, at, length) : reset_edge(file, EPOLLIN, receive(rs, at, length, 0), length);
}

ssize_t readv(int file, const struct iovec *parts, int count)
{
    int rs = over(file);
    return FROM_BELOW || rs < 0 ? real.readv(file, parts, count)
                           : reset_edge(file, EPOLLIN, UNTIL(rs, 0, rreadv(rs, parts, count)), SIZE_MAX);
}

/* Functions that programs compiled with _FORTIFY_SOURCE call. */
ssize_t __read_chk(int file, void *at, size_t length, size_t room)
{
    if (length > room)
        abort();
    return read(file, at, length);
}

ssize_t __recv_chk(int file, void *at, size_t length, size_t room, int flags)
{
    if (length > room)
        abort();
    return recv(file, at, length, flags);
}

ssize_t __recvfrom_chk(int file, void *at, size_t length, size_t room, int flags, struct sockaddr *from,
                       socklen_t *from_length)
{
    if (length > room)
        abort();
    return recvfrom(file, at, length, flags, from, from_length);
}

/* EPIPE comes with SIGPIPE, unless MSG_NOSIGNAL is set. */
static ssize_t sent(int file, ssize_t done, size_t wanted, int flags)
{
    if (done < 0 && errno == EPIPE && !(flags & MSG_NOSIGNAL)) {
        raise(SIGPIPE);
        errno = EPIPE;
    }
    return reset_edge(file, EPOLLOUT, done, wanted);
}

/* A blocking call sends everything. */
static ssize_t transmit(int rs, const void *at, size_t length, int flags)
{
    size_t gone = 0;
    for (;;) {
        ssize_t count = UNTIL(rs, flags, rsend(rs, (const char *)at + gone, length - gone, flags));
        gone += count > 0 ? count : 0;
        if (count < 0 || gone == length || (flags & MSG_DONTWAIT) || !atomic_load(&waits[rs]))
            return gone ? (ssize_t)gone : count;
    }
}

/* Returns the parts that remain after a number of bytes was sent. */
static ssize_t transmit_rest(int rs, const struct iovec *parts, size_t count, ssize_t gone, int flags)
{
    if (gone < 0 || (flags & MSG_DONTWAIT) || !atomic_load(&waits[rs]))
        return gone;
    size_t at = gone;
    for (size_t part = 0; part < count; part++) {
        size_t length = parts[part].iov_len;
        if (at >= length) {
            at -= length;
            continue;
        }
        ssize_t more = transmit(rs, (const char *)parts[part].iov_base + at, length - at, flags);
        gone += more > 0 ? more : 0;
        if (more < (ssize_t)(length - at))
            break;
        at = 0;
    }
    return gone;
}

ssize_t send(int file, const void *at, size_t length, int flags)
{
    int rs = over(file);
    return FROM_BELOW || rs < 0 ? real.send(file, at, length, flags)
                           : sent(file, transmit(rs, at, length, flags), length, flags);
}

ssize_t sendto(int file, const void *at, size_t length, int flags, const struct sockaddr *to, socklen_t to_length)
{
    int rs = over(file);
    /* The address is ignored on a stream socket (send(2)). */
    return FROM_BELOW || rs < 0 ? real.sendto(file, at, length, flags, to, to_length)
                           : sent(file, transmit(rs, at, length, flags), length, flags);
}

ssize_t sendmsg(int file, const struct msghdr *message, int flags)
{
    int rs = over(file);
    if (FROM_BELOW || rs < 0)
        return real.sendmsg(file, message, flags);
    ssize_t gone = UNTIL(rs, flags, rsendmsg(rs, message, flags));
    return sent(file, transmit_rest(rs, message->msg_iov, message->msg_iovlen, gone, flags), SIZE_MAX, flags);
}

ssize_t write(int file, const void *at, size_t length)
{
    int rs = over(file);
    return FROM_BELOW || rs < 0 ? real.write(file, at, length) : sent(file, transmit(rs, at, length, 0), length, 0);
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    int rs = over(file);
    if (FROM_BELOW || rs < 0)
        return real.writev(file, parts, count);
    ssize_t gone = UNTIL(rs, 0, rwritev(rs, parts, count));
    return sent(file, transmit_rest(rs, parts, count, gone, 0), SIZE_MAX, 0);
}

ssize_t sendfile(int to, int from, off_t *offset, size_t count)
{
    int rs = over(to);
    if (FROM_BELOW || rs < 0)
        return real.sendfile(to, from, offset, count);
    char part[65536];
    size_t done = 0;
    while (done < count) {
        size_t wanted = count - done < sizeof part ? count - done : sizeof part;
        off_t at = offset ? *offset : lseek(from, 0, SEEK_CUR);
        ssize_t got = pread(from, part, wanted, at);
        if (got <= 0)
            return done ? (ssize_t)done : got;
        ssize_t gone = sent(to, transmit(rs, part, got, 0), got, 0);
        if (gone < 0)
            return done ? (ssize_t)done : -1;
        if (offset)
            *offset += gone;
        else
            lseek(from, at + gone, SEEK_SET);
        done += gone;
        if (gone < got)
            break;
    }
    return done;
}

ssize_t sendfile64(int to, int from, off64_t *offset, size_t count)
{
    _Static_assert(sizeof(off_t) == sizeof(off64_t), "64-bit files");
    if (FROM_BELOW || over(to) < 0)
        return real.sendfile(to, from, (off_t *)offset, count);
    return sendfile(to, from, (off_t *)offset, count);
}

/* ---- waiting */

static bool has_rsocket(const struct pollfd *files, nfds_t count)
{
    for (nfds_t i = 0; i < count; i++)
        if (over(files[i].fd) >= 0)
            return true;
    return false;
}

/* Like ppoll(2), for rsockets by their own descriptors and for others. rpoll() checks and arms; the sleep is in the
 * system's ppoll(), without locks. */
static int rpoll_held(struct pollfd *files, nfds_t count, int timeout, const sigset_t *mask)
{
    struct pollfd few[64], *asleep = count <= 64 ? few : NULL;
    int64_t end = timeout < 0 ? INT64_MAX : micros() + (int64_t)timeout * 1000;
    sigset_t before;
    int ready;
    block_signals(&before);
    for (;;) {
        int64_t left = end == INT64_MAX ? INT64_MAX : end - micros();
        ready = rpoll(files, count, left > 1000);
        if (ready || left <= 0)
            break;
        if (!asleep && !(asleep = calloc(count, sizeof *asleep))) {
            ready = -1;
            errno = ENOMEM;
            break;
        }
        for (nfds_t i = 0; i < count; i++) {
            bool is_rsocket = files[i].fd >= 0 && files[i].fd < FILES && atomic_load(&numbers_of[files[i].fd]);
            asleep[i] = (struct pollfd){ .fd = files[i].fd, .events = is_rsocket ? POLLIN : files[i].events };
        }
        int64_t nap = left < SLEEP_NANOS / 1000 ? left * 1000 : SLEEP_NANOS;
        struct timespec time = { 0, nap };
        if (real.ppoll(asleep, count, &time, mask ? mask : &before) < 0) {
            ready = -1;
            break;
        }
    }
    int kept = errno;
    if (asleep != few)
        free(asleep);
    errno = kept;
    restore_signals(&before);
    return ready;
}

static int poll_all(struct pollfd *files, nfds_t count, int timeout, const sigset_t *mask)
{
    struct pollfd few[64], *asked = few;
    if (count > 64 && !(asked = SIGNALS_BLOCKED((struct pollfd *)calloc(count, sizeof *asked)))) {
        errno = ENOMEM;
        return -1;
    }
    for (nfds_t i = 0; i < count; i++) {
        int rs = over(files[i].fd);
        asked[i] = (struct pollfd){ .fd = rs >= 0 ? rs : files[i].fd, .events = files[i].events };
    }
    int ready = rpoll_held(asked, count, timeout, mask), kept = errno;
    for (nfds_t i = 0; i < count && ready >= 0; i++)
        files[i].revents = asked[i].revents;
    if (asked != few)
        free(asked);
    errno = kept;
    return ready;
}

int poll(struct pollfd *files, nfds_t count, int timeout)
{
    if (FROM_BELOW || !has_rsocket(files, count))
        return real.poll(files, count, timeout);
    return poll_all(files, count, timeout, NULL);
}

int __poll_chk(struct pollfd *files, nfds_t count, int timeout, size_t room)
{
    if (room / sizeof *files < count)
        abort();
    return poll(files, count, timeout);
}

static int milliseconds(const struct timespec *time)
{
    if (!time)
        return -1;
    int64_t all = (int64_t)time->tv_sec * 1000 + (time->tv_nsec + 999999) / 1000000;
    return all > INT32_MAX ? INT32_MAX : (int)all;
}

int ppoll(struct pollfd *files, nfds_t count, const struct timespec *time, const sigset_t *mask)
{
    if (FROM_BELOW || !has_rsocket(files, count))
        return real.ppoll(files, count, time, mask);
    return poll_all(files, count, milliseconds(time), mask);
}

static int select_all(int count, fd_set *sets[3], int timeout, const sigset_t *mask)
{
    static const short events[3] = { POLLIN, POLLOUT, POLLPRI };
    static const short also[3] = { POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI };
    struct pollfd files[FD_SETSIZE];
    int used = 0, ready = 0;
    for (int file = 0; file < count; file++) {
        short wanted = 0;
        for (int i = 0; i < 3; i++)
            wanted |= sets[i] && FD_ISSET(file, sets[i]) ? events[i] : 0;
        if (wanted)
            files[used++] = (struct pollfd){ .fd = file, .events = wanted };
    }
    if (poll_all(files, used, timeout, mask) < 0)
        ready = -1;
    for (int at = 0; at < used && ready >= 0; at++) {
        if (files[at].revents & POLLNVAL) {
            errno = EBADF;
            ready = -1;
            break;
        }
        for (int i = 0; i < 3; i++) {
            if (!sets[i] || !FD_ISSET(files[at].fd, sets[i]))
                continue;
            if (files[at].revents & also[i])
                ready++;
            else
                FD_CLR(files[at].fd, sets[i]);
        }
    }
    return ready;
}

static bool selects_rsocket(int count, fd_set *sets[3])
{
    for (int file = 0; file < count && file < FD_SETSIZE; file++)
        for (int i = 0; i < 3; i++)
            if (sets[i] && FD_ISSET(file, sets[i]) && over(file) >= 0)
                return true;
    return false;
}

int select(int count, fd_set *reads, fd_set *writes, fd_set *excepts, struct timeval *time)
{
    fd_set *sets[3] = { reads, writes, excepts };
    if (FROM_BELOW || !selects_rsocket(count, sets))
        return real.select(count, reads, writes, excepts, time);
    struct timespec wait = time ? (struct timespec){ time->tv_sec, time->tv_usec * 1000 } : (struct timespec){ 0, 0 };
    return select_all(count > FD_SETSIZE ? FD_SETSIZE : count, sets, milliseconds(time ? &wait : NULL), NULL);
}

int pselect(int count, fd_set *reads, fd_set *writes, fd_set *excepts, const struct timespec *time,
            const sigset_t *mask)
{
    fd_set *sets[3] = { reads, writes, excepts };
    if (FROM_BELOW || !selects_rsocket(count, sets))
        return real.pselect(count, reads, writes, excepts, time, mask);
    return select_all(count > FD_SETSIZE ? FD_SETSIZE : count, sets, milliseconds(time), mask);
}

/* ---- epoll */

/* The rsockets of an epoll set. */
struct watch {
    int epoll, file;
    struct epoll_event event;
};
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct watch *watches;
static _Atomic size_t watched;
static size_t watch_room;

/* Handlers may close descriptors, so block signals while holding the lock. */
static void take_watches(sigset_t *before)
{
    block_signals(before);
    pthread_mutex_lock(&watch_lock);
}

static void leave_watches(const sigset_t *before)
{
    pthread_mutex_unlock(&watch_lock);
    restore_signals(before);
}

/* In a forked child: reset the lock, which a thread of the parent may have held, and forget the parent's rsockets. */
static void on_fork(void)
{
    pthread_mutex_init(&watch_lock, NULL);
    watched = watch_room = 0;
    watches = NULL;
    for (int i = 0; i < FILES; i++)
        atomic_store_explicit(&numbers_of[i], 0, memory_order_relaxed);
}

static void forget_epoll(int file)
{
    sigset_t before;
    if (!atomic_load(&watched))
        return;
    take_watches(&before);
    for (size_t i = 0; i < watched;)
        if (watches[i].epoll == file || watches[i].file == file)
            watches[i] = watches[--watched];
        else
            i++;
    leave_watches(&before);
}

int epoll_ctl(int epoll, int operation, int file, struct epoll_event *event)
{
    if (FROM_BELOW || over(file) < 0)
        return real.epoll_ctl(epoll, operation, file, event);
    int error = 0;
    sigset_t before;
    take_watches(&before);
    size_t at = 0;
    while (at < watched && (watches[at].epoll != epoll || watches[at].file != file))
        at++;
    bool known = at < watched;
    if (operation == EPOLL_CTL_DEL) {
        if (known)
            watches[at] = watches[--watched];
        else
            /* The socket was added before it connected; the system removed it together with the socket
             * that it replaced. */
            error = 0;
    } else if (!event) {
        error = EFAULT;
    } else if (operation == EPOLL_CTL_ADD && known) {
        error = EEXIST;
    } else {
        if (!known && watched == watch_room) {
            size_t room = watch_room ? 2 * watch_room : 64;
            struct watch *more = realloc(watches, room * sizeof *more);
            if (more) {
                watches = more;
                watch_room = room;
            } else {
                error = ENOMEM;
            }
        }
        if (!error) {
            watches[at] = (struct watch){ epoll, file, *event };
            watched += !known;
            atomic_store(&edges_reported[file], 0);
        }
    }
    leave_watches(&before);
    errno = error ? error : errno;
    return error ? -1 : 0;
}

static bool watches_rsocket(int epoll)
{
    bool found = false;
    sigset_t before;
    if (!atomic_load(&watched))
        return false;
    take_watches(&before);
    for (size_t i = 0; i < watched && !found; i++)
        found = watches[i].epoll == epoll;
    leave_watches(&before);
    return found;
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static int wait_all(int epoll, struct epoll_event *events, int most, int timeout, const sigset_t *mask)
{
    int64_t end = timeout < 0 ? INT64_MAX : now() + timeout;
    for (;;) {
        sigset_t before;
        take_watches(&before);
        size_t room = watched, used = 0;
        struct watch *own = calloc(room + 1, sizeof *own);
        struct pollfd *files = calloc(room + 1, sizeof *files);
        for (size_t i = 0; i < room && own && files; i++) {
            if (watches[i].epoll != epoll)
                continue;
            unsigned wanted = watches[i].event.events;
            if (wanted & EPOLLET)
                wanted &= ~atomic_load(&edges_reported[watches[i].file]);
            own[used] = watches[i];
            /* Skip rsockets that have reported all edges, or are one-shot: after the end they would be
             * ready for ever. */
            bool asks = wanted & (EPOLLIN | EPOLLOUT | EPOLLRDHUP);
            files[used++] = (struct pollfd){ .fd = asks ? watches[i].file : -1, .events = (short)wanted };
        }
        leave_watches(&before);
        if (!own || !files) {
            free(own);
            free(files);
            errno = ENOMEM;
            return -1;
        }
        files[used] = (struct pollfd){ .fd = epoll, .events = POLLIN };
        /* Edges that a call of another thread re-enables are found by the next check. */
        int64_t left = end == INT64_MAX ? 200 : end - now();
        int ready = poll_all(files, used + 1, left < 0 ? 0 : left > 200 ? 200 : (int)left, mask), count = 0;
        if (ready > 0 && files[used].revents)
            count = real.epoll_wait(epoll, events, most, 0);
        for (size_t i = 0; i < used && ready > 0 && count >= 0 && count < most; i++) {
            unsigned found = (unsigned short)files[i].revents;
            if (!found || files[i].fd < 0)
                continue;
            events[count++] = (struct epoll_event){ .events = found, .data = own[i].event.data };
            if (own[i].event.events & EPOLLET)
                atomic_fetch_or(&edges_reported[own[i].file], found & (EPOLLIN | EPOLLOUT | EPOLLRDHUP));
            if (own[i].event.events & EPOLLONESHOT) {
                take_watches(&before);
                for (size_t at = 0; at < watched; at++)
                    if (watches[at].epoll == epoll && watches[at].file == own[i].file)
                        watches[at].event.events = EPOLLONESHOT;
                leave_watches(&before);
            }
        }
        int kept = errno;
        free(own);
        free(files);
        errno = kept;
        if (ready < 0 || count)
            return ready < 0 ? -1 : count;
        if (now() >= end)
            return 0;
    }
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout)
{
    if (FROM_BELOW || most <= 0 || !watches_rsocket(epoll))
        return real.epoll_wait(epoll, events, most, timeout);
    return wait_all(epoll, events, most, timeout, NULL);
}

int epoll_pwait(int epoll, struct epoll_event *events, int most, int timeout, const sigset_t *mask)
{
    if (FROM_BELOW || most <= 0 || !watches_rsocket(epoll))
        return real.epoll_pwait(epoll, events, most, timeout, mask);
    return wait_all(epoll, events, most, timeout, mask);
}

/* ---- names and options */

int getpeername(int file, struct sockaddr *at, socklen_t *length)
{
    int rs = over(file);
    return FROM_BELOW || rs < 0 ? real.getpeername(file, at, length) : SIGNALS_BLOCKED(rgetpeername(rs, at, length));
}

int getsockname(int file, struct sockaddr *at, socklen_t *length)
{
    int rs = over(file);
    return FROM_BELOW || rs < 0 ? real.getsockname(file, at, length) : SIGNALS_BLOCKED(rgetsockname(rs, at, length));
}

int getsockopt(int file, int level, int option, void *value, socklen_t *length)
{
    int rs = over(file);
    if (FROM_BELOW || rs < 0)
        return real.getsockopt(file, level, option, value, length);
    if (level == IPPROTO_TCP && option == TCP_CONGESTION && value && length && *length > 0) {
        strncpy(value, "rsocket", *length);
        *length = *length < 8 ? *length : 8;
        return 0;
    }
    int answer = SIGNALS_BLOCKED(rgetsockopt(rs, level, option, value, length));
    if (answer && errno == ENOTSUP)
        errno = ENOPROTOOPT;
    return answer;
}

int setsockopt(int file, int level, int option, const void *value, socklen_t length)
{
    int rs = over(file);
    if (FROM_BELOW || rs < 0)
        return real.setsockopt(file, level, option, value, length);
    int kept = errno, answer = SIGNALS_BLOCKED(rsetsockopt(rs, level, option, value, length));
    if (!answer || errno != ENOTSUP)
        return answer;
    /* Time limits are not supported. */
    if (level == SOL_SOCKET && (option == SO_RCVTIMEO || option == SO_SNDTIMEO)) {
        errno = ENOPROTOOPT;
        return -1;
    }
    /* Other options only affect the performance of TCP. */
    errno = kept;
    return 0;
}

/* Closes the rsockets that the program has left open. */
__attribute__((destructor)) static void end(void)
{
    for (int rs = 0; rs < FILES; rs++)
        if (atomic_exchange(&numbers_of[rs], 0) > 0)
            rclose(rs);
}
