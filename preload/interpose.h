/* The mechanism shared by libkiban_sockets.so (board/) and librspreload.so (rsockets/).
 *
 * Purpose          replace libc's socket functions in an unmodified program (LD_PRELOAD, ld.so(8)).
 * Operation        interpose.c exports an entry point for each function, which passes the call to the library's
 *                  `backend`. The backend passes calls on other descriptors than its own to `libc`, which holds
 *                  the next definitions of the functions (RTLD_NEXT).
 * Signal handlers  the functions are looked up before main(), because handlers may call read() but not dlsym().
 *                  Nothing here locks or allocates. Each backend documents how its calls remain
 *                  async-signal-safe (POSIX.1-2017 2.4.3).
 * Descriptors      not every close() or dup2() can be interposed: libc makes its own, and a vfork() child makes them
 *                  on its own descriptors but in the parent's memory. So both backends recognise a descriptor by its
 *                  file (st_ino), never by its number alone.
 * board/           its descriptors are kernel sockets, so the kernel polls, duplicates, inherits and closes them.
 *                  board/ interposes only SOCKET_CALLS, BOARD_CALLS and DATAGRAM_CALLS.
 * rsockets/        the kernel cannot tell when an rsocket is ready or when its last descriptor is closed. So
 *                  rsockets/ counts the descriptors of each rsocket, and merges its events into poll(), select()
 *                  and epoll_wait(). It therefore also interposes DESCRIPTOR_CALLS.
 * paths.c and
 * signals.c        do not use this mechanism: they interpose only a few functions, which take no descriptors. */
#ifndef KIBAN_INTERPOSE_H
#define KIBAN_INTERPOSE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Descriptors with this number or a higher one have no entry in the backends' tables (a test builds
 * smaller tables). */
#ifndef FILES
#define FILES 65536
#endif

/* Functions: X(result, name, (parameters), (arguments)). */
#define SOCKET_CALLS(X)                                                                                                           \
    X(int, connect, (int fd, const struct sockaddr *name, socklen_t length), (fd, name, length))                                  \
    X(int, listen, (int fd, int backlog), (fd, backlog))                                                                          \
    X(int, accept4, (int fd, struct sockaddr *name, socklen_t *length, int flags), (fd, name, length, flags))                     \
    X(int, shutdown, (int fd, int how), (fd, how))                                                                                \
    X(int, getsockname, (int fd, struct sockaddr *name, socklen_t *length), (fd, name, length))                                   \
    X(int, getpeername, (int fd, struct sockaddr *name, socklen_t *length), (fd, name, length))                                   \
    X(int, getsockopt, (int fd, int level, int option, void *value, socklen_t *length), (fd, level, option, value, length))       \
    X(int, setsockopt, (int fd, int level, int option, const void *value, socklen_t length), (fd, level, option, value, length))  \
    X(ssize_t, read, (int fd, void *at, size_t bytes), (fd, at, bytes))                                                           \
    X(ssize_t, readv, (int fd, const struct iovec *parts, int count), (fd, parts, count))                                         \
    X(ssize_t, recv, (int fd, void *at, size_t bytes, int flags), (fd, at, bytes, flags))                                         \
    X(ssize_t, recvfrom, (int fd, void *at, size_t bytes, int flags, struct sockaddr *name, socklen_t *length),                   \
      (fd, at, bytes, flags, name, length))                                                                                       \
    X(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))                                        \
    X(ssize_t, sendto, (int fd, const void *at, size_t bytes, int flags, const struct sockaddr *name, socklen_t length),          \
      (fd, at, bytes, flags, name, length))                                                                                       \
    X(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
#define BOARD_CALLS(X)                                                                                                            \
    X(int, bind, (int fd, const struct sockaddr *name, socklen_t length), (fd, name, length))                                     \
    X(int, sendmmsg, (int fd, struct mmsghdr *messages, unsigned count, int flags), (fd, messages, count, flags))                 \
    X(int, recvmmsg, (int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *time),                        \
      (fd, messages, count, flags, time))                                                                                         \
    X(ssize_t, preadv2, (int fd, const struct iovec *parts, int count, off_t offset, int flags),                                  \
      (fd, parts, count, offset, flags))                                                                                          \
    X(ssize_t, splice, (int from, off64_t *from_offset, int to, off64_t *to_offset, size_t bytes, unsigned flags),                \
      (from, from_offset, to, to_offset, bytes, flags))
/* Writing without an address. */
#define DATAGRAM_CALLS(X)                                                                                                         \
    X(ssize_t, send, (int fd, const void *at, size_t bytes, int flags), (fd, at, bytes, flags))                                   \
    X(ssize_t, write, (int fd, const void *at, size_t bytes), (fd, at, bytes))                                                    \
    X(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
#define DESCRIPTOR_CALLS(X)                                                                                                       \
    X(int, close, (int fd), (fd))                                                                                                 \
    X(int, fclose, (FILE *stream), (stream))                                                                                      \
    X(int, close_range, (unsigned first, unsigned last, int flags), (first, last, flags))                                         \
    X(void, closefrom, (int first), (first))                                                                                      \
    X(int, dup, (int fd), (fd))                                                                                                   \
    X(int, dup2, (int from, int to), (from, to))                                                                                  \
    X(int, dup3, (int from, int to, int flags), (from, to, flags))                                                                \
    X(ssize_t, sendfile, (int to, int from, off_t *offset, size_t count), (to, from, offset, count))                              \
    X(int, poll, (struct pollfd *files, nfds_t count, int timeout), (files, count, timeout))                                      \
    X(int, ppoll, (struct pollfd *files, nfds_t count, const struct timespec *time, const sigset_t *mask),                        \
      (files, count, time, mask))                                                                                                 \
    X(int, select, (int count, fd_set *reads, fd_set *writes, fd_set *excepts, struct timeval *time),                             \
      (count, reads, writes, excepts, time))                                                                                      \
    X(int, pselect,                                                                                                               \
      (int count, fd_set *reads, fd_set *writes, fd_set *excepts, const struct timespec *time, const sigset_t *mask),             \
      (count, reads, writes, excepts, time, mask))                                                                                \
    X(int, epoll_ctl, (int epoll, int operation, int fd, struct epoll_event *event), (epoll, operation, fd, event))               \
    X(int, epoll_wait, (int epoll, struct epoll_event *events, int most, int timeout), (epoll, events, most, timeout))            \
    X(int, epoll_pwait, (int epoll, struct epoll_event *events, int most, int timeout, const sigset_t *mask),                     \
      (epoll, events, most, timeout, mask))

/* A function for each call: libc's, or a backend's. */
#define MEMBER(result, name, declared, given) result(*name) declared;
struct calls {
    SOCKET_CALLS(MEMBER) BOARD_CALLS(MEMBER) DATAGRAM_CALLS(MEMBER) DESCRIPTOR_CALLS(MEMBER)
    int (*socket)(int, int, int), (*fcntl)(int, int, ...), (*ioctl)(int, unsigned long, ...);
};
extern struct calls libc;

struct backend {
    /* Prepares the backend, before main(). May be called twice if a constructor starts threads. */
    void (*begin)(void);
    /* Returns whether the caller is a library used by the backend, whose calls go to libc. NULL if there is none. */
    bool (*is_below)(void *caller);
    /* The calls for which the library has entry points. */
    struct calls calls;
};
/* Each library defines its backend. */
extern const struct backend backend;

/* Prepares the library if its constructor has not run yet. Returns whether a call bypasses the backend. */
bool is_bypassed(void *caller);

#define OURS __attribute__((visibility("default")))
#define BYPASSED is_bypassed(__builtin_return_address(0))
/* An entry point. */
#define ENTRY(result, name, declared, given) \
    OURS result name declared { return (BYPASSED ? libc.name : backend.calls.name) given; }

/* Replaces a descriptor with a copy of another, but keeps its FD_CLOEXEC. Returns 0 or -1. */
int replace_by_copy(int fd, int other);
/* Returns the family of a kernel stream socket, AF_INET or AF_INET6; 0 for any other file. Preserves errno. */
int stream_family(int fd);
/* Returns whether a socket option asks for authentication, encryption or a check of the packets' origin. */
bool asks_for_protection(int level, int option);
/* Returns the monotonic time in microseconds. */
int64_t microseconds(void);

static inline int fail(int error) {
    errno = error;
    return -1;
}

/* Restores errno after a successful call. */
static inline ssize_t done(int kept, ssize_t result) {
    if (result >= 0)
        errno = kept;
    return result;
}
#endif
