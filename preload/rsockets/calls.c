/* librspreload.so: runs unmodified socket programs over rsockets (rsocket(7)).
 *
 * Purpose   with LD_PRELOAD=librspreload.so, a program's TCP connections use the RDMA NIC if the peer also uses
 *           rsockets.
 * Switching a socket belongs to the system until it listens or connects. Then the program's descriptor becomes a
 *           placeholder, and calls on it go to the rsocket. The bound address and O_NONBLOCK are kept.
 * Fallback  plain TCP is used for families and types that rsockets do not support, and if the peer does not answer
 *           as an rsocket within KIBAN_RSPRELOAD_MS milliseconds (default 3000). Such a peer first gets a
 *           connection that it does not understand. A listener accepts only rsockets, not plain TCP peers.
 * connect   waits until it is known whether the peer is an rsocket, even on a non-blocking socket.
 * dup       copies are counted: the rsocket is closed with its last descriptor. A copy made before the socket
 *           listens or connects remains a TCP socket. If a descriptor is closed by a call that is not interposed, the
 *           next call on its number notices (table.c).
 * fork      a child inherits the descriptors, but not the rsockets: calls on these descriptors fail (ENOTCONN,
 *           EINVAL). Rsockets that the child creates work. A child that shares its parent's memory (vfork(),
 *           CLONE_VM) changes nothing in its parent, and creates no rsockets; nor does a child of the system call
 *           clone(2) itself.
 * epoll     rsockets in an epoll set are polled with rpoll(). Edges are emulated: an edge is reported again after
 *           a call that failed with EAGAIN or was incomplete.
 * Signals   rsockets take locks, so signals are blocked during each call on an rsocket (at the cost of two system
 *           calls) and delivered only while the call sleeps without locks. A handler may therefore make the calls
 *           that POSIX (2.4.3) lists as async-signal-safe on rsockets, unless it may have interrupted malloc(),
 *           because these calls allocate. Calls on other descriptors neither lock nor allocate. close() and
 *           shutdown() on an rsocket block signals while it lingers, for at most 10 s.
 * Recursion the RDMA libraries call the interposed functions, too; calls from these libraries go to the system.
 * Not implemented  stdio on sockets (libc does not call the exported read() for it), io_uring, passing descriptors. */
#include "rsockets.h"
#include <stdarg.h>
#include <sys/ioctl.h>

/* Returns the family of a socket if an rsocket can replace it, otherwise 0. */
static int family_of(int file) {
    int family = is_table_usable && file < FILES && is_owner() ? stream_family(file) : 0, protocol = 0;
    socklen_t length = sizeof protocol;
    bool is_tcp = family && !libc.getsockopt(file, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) && protocol == IPPROTO_TCP;
    return is_tcp ? family : 0;
}

static int made_like(int file, int family) {
    int rs = rsocket(family, SOCK_STREAM, 0), only = 0;
    socklen_t length = sizeof only;
    if (rs >= 0 && family == AF_INET6 && !libc.getsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &only, &length))
        rsetsockopt(rs, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    return rs;
}

/* Returns whether a descriptor no longer refers to the socket with this inode, or cannot be looked at. If so, sets
 * errno. */
static bool is_replaced(int file, uint64_t inode) {
    uint64_t found = inode_of(file);
    if (found != inode)
        errno = LOOK_ERROR(found) ? LOOK_ERROR(found) : EBADF;
    return found != inode;
}

int rs_connect(int file, const struct sockaddr *to, socklen_t length) {
    uint64_t entry = entry_of(file), inode = inode_of(file);
    if (entry)
        return fail(LOOK_ERROR(entry) ? LOOK_ERROR(entry) : EISCONN);
    int kept = errno, family = family_of(file);
    if (!family || !to || to->sa_family != family)
        return libc.connect(file, to, length);
    if (LOOK_ERROR(inode))
        return fail(LOOK_ERROR(inode));
    struct sockaddr_storage own;
    socklen_t own_length = sizeof own;
    int rs = SIGNALS_BLOCKED(made_like(file, family)), flags = libc.fcntl(file, F_GETFL);
    bool is_connected = rs >= 0 && rs < FILES && !libc.getsockname(file, (struct sockaddr *)&own, &own_length);
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
            int error = 0;
            socklen_t bytes = sizeof error;
            is_connected = becomes_connected(rs) &&
                     !SIGNALS_BLOCKED(rgetsockopt(rs, SOL_SOCKET, SO_ERROR, &error, &bytes)) && !error;
        }
        atomic_store(&table.waits[rs], !(flags & O_NONBLOCK));
    }
    if (is_connected && adopt(file, inode, rs)) {
        errno = kept;
        return 0;
    }
    if (rs >= 0)
        SIGNALS_BLOCKED(rclose(rs));
    /* A signal handler or another thread may have closed the descriptor. Do not connect its successor. */
    if (is_replaced(file, inode))
        return -1;
    errno = kept;
    return libc.connect(file, to, length);
}

int rs_listen(int file, int backlog) {
    uint64_t entry = entry_of(file), inode = inode_of(file);
    if (entry)
        return ONCE(file, entry, rlisten(rs, backlog));
    int kept = errno, family = family_of(file);
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    if (!family || libc.getsockname(file, (struct sockaddr *)&own, &length))
        return libc.listen(file, backlog);
    if (LOOK_ERROR(inode))
        return fail(LOOK_ERROR(inode));
    int rs = SIGNALS_BLOCKED(made_like(file, family)), flags = libc.fcntl(file, F_GETFL), reuses = 0, on = 1;
    socklen_t bytes = sizeof reuses;
    /* The rsocket gets the port while the system's socket still has it, so that no other socket can take it. */
    libc.getsockopt(file, SOL_SOCKET, SO_REUSEADDR, &reuses, &bytes);
    libc.setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool is_listening = rs >= 0 && rs < FILES && !SIGNALS_BLOCKED(rbind(rs, (struct sockaddr *)&own, length)) &&
                        !SIGNALS_BLOCKED(rlisten(rs, backlog));
    if (is_listening) {
        SIGNALS_BLOCKED(rfcntl(rs, F_SETFL, O_NONBLOCK));
        atomic_store(&table.waits[rs], !(flags & O_NONBLOCK));
    }
    if (is_listening && adopt(file, inode, rs)) {
        errno = kept;
        return 0;
    }
    if (rs >= 0)
        SIGNALS_BLOCKED(rclose(rs));
    if (is_replaced(file, inode))
        return -1;
    libc.setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &reuses, sizeof reuses);
    errno = kept;
    return libc.listen(file, backlog);
}

/* After a call that failed with EAGAIN or was incomplete, clears the edge so that it is reported again. */
ssize_t reset_edge(int file, unsigned edge, ssize_t done, size_t wanted) {
    if ((done < 0 && errno == EAGAIN) || (done >= 0 && (size_t)done < wanted))
        atomic_fetch_and(&table.edges_reported[file], ~edge);
    return done;
}

int rs_accept4(int file, struct sockaddr *from, socklen_t *length, int flags) {
    uint64_t entry = entry_of(file);
    if (!entry)
        return libc.accept4(file, from, length, flags);
    int made = reset_edge(file, EPOLLIN, UNTIL(file, entry, 0, raccept(rs, from, length)), 0);
    if (made < 0)
        return -1;
    SIGNALS_BLOCKED(rfcntl(made, F_SETFL, O_NONBLOCK));
    if (made < FILES)
        atomic_store(&table.waits[made], !(flags & SOCK_NONBLOCK));
    int number = made < FILES ? placeholder(flags & SOCK_CLOEXEC) : -1;
    uint64_t inode = number >= 0 ? inode_of(number) : 0;
    if (number >= 0 && number < FILES && !LOOK_ERROR(inode) && name(number, inode, made))
        return number;
    SIGNALS_BLOCKED(rclose(made));
    if (number >= 0)
        libc.close(number);
    return fail(LOOK_ERROR(inode) ? LOOK_ERROR(inode) : EMFILE);
}

int rs_shutdown(int file, int how) {
    uint64_t entry = entry_of(file);
    return !entry ? libc.shutdown(file, how) : ONCE(file, entry, rshutdown(rs, how));
}

/* ---- closing: the entry is removed without a look, which could fail. entry_of() notices what these calls do not see.
 * The entry is read first, because afterwards another thread may open a descriptor with this number. */

int rs_close(int file) {
    uint64_t entry = known_entry(file);
    int result = libc.close(file);
    /* Linux closes the descriptor even if close(2) fails. */
    forget(file, entry);
    return result;
}

/* libc's fclose() does not call the exported close(). */
int rs_fclose(FILE *stream) {
    int kept = errno, file = fileno(stream);
    errno = kept;
    uint64_t entry = known_entry(file);
    int result = libc.fclose(stream);
    forget(file, entry);
    return result;
}

/* Closes the rsockets in a range of descriptors. */
static void close_rsockets(unsigned first, unsigned last) {
    for (unsigned file = first; file <= last && file < FILES; file++)
        if (known_entry((int)file))
            rs_close((int)file);
}

int rs_close_range(unsigned first, unsigned last, int flags) {
    if (!flags)
        close_rsockets(first, last);
    int result = libc.close_range(first, last, flags);
    /* With flags, the call may close nothing (CLOSE_RANGE_CLOEXEC), or fail. */
    for (unsigned file = first; flags && file <= last && file < FILES; file++)
        entry_of((int)file);
    return result;
}

void rs_closefrom(int first) {
    close_rsockets(first < 0 ? 0 : first, ~0u);
    libc.closefrom(first);
}

/* ---- copies */

/* Makes a copy of a descriptor that has this entry refer to the same rsocket. Returns the copy, or closes it and fails.
 * The copy needs no look: if it is of another file, because the descriptor has been replaced, the next look notices. */
static int copied(int file, uint64_t entry, int copy) {
    if (copy < 0 || !entry || !is_owner())
        return copy;
    int named = copy >= FILES ? fail(EMFILE) : ONCE(file, entry, (name(copy, INODE_OF(entry), rs), 0));
    if (!named)
        return copy;
    int kept = errno;
    libc.close(copy);
    return fail(kept);
}

int rs_dup(int file) {
    uint64_t entry = entry_of(file);
    return copied(file, entry, libc.dup(file));
}

int rs_dup3(int from, int to, int flags) {
    uint64_t entry = entry_of(from), replaced = known_entry(to);
    if (LOOK_ERROR(entry) || (entry && to >= FILES))
        return fail(LOOK_ERROR(entry) ? LOOK_ERROR(entry) : EMFILE);
    int made = libc.dup3(from, to, flags);
    if (made >= 0)
        forget(to, replaced);
    return copied(from, entry, made);
}

int rs_dup2(int from, int to) {
    /* dup3() rejects equal numbers. */
    return from == to ? libc.dup2(from, to) : rs_dup3(from, to, 0);
}

static int control(int file, int command, void *argument) {
    uint64_t entry = entry_of(file);
    if (!entry)
        return libc.fcntl(file, command, argument);
    int status = (int)(intptr_t)argument;
    switch (command) {
    case F_GETFL: {
        int flags = ONCE(file, entry, rfcntl(rs, F_GETFL));
        return flags < 0 || !blocks(entry, 0) ? flags : flags & ~O_NONBLOCK;
    }
    case F_SETFL:
        return ONCE(file, entry, (atomic_store(&table.waits[rs], !(status & O_NONBLOCK)),
                                  rfcntl(rs, F_SETFL, status | O_NONBLOCK)));
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
        return copied(file, entry, libc.fcntl(file, command, argument));
    default:
        return libc.fcntl(file, command, argument);
    }
}

OURS int fcntl(int file, int command, ...) {
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    return BYPASSED ? libc.fcntl(file, command, argument) : control(file, command, argument);
}

OURS int fcntl64(int file, int command, ...) __attribute__((alias("fcntl")));

OURS int ioctl(int file, unsigned long request, ...) {
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    uint64_t entry = entry_of(file);
    if (BYPASSED || !entry || request == FIOCLEX || request == FIONCLEX)
        return libc.ioctl(file, request, argument);
    return ONCE(file, entry, request != FIONBIO ? fail(ENOTTY)
                                                : (atomic_store(&table.waits[rs], !*(int *)argument), 0));
}

/* ---- names and options */

int rs_getpeername(int file, struct sockaddr *at, socklen_t *length) {
    uint64_t entry = entry_of(file);
    return !entry ? libc.getpeername(file, at, length) : ONCE(file, entry, rgetpeername(rs, at, length));
}

int rs_getsockname(int file, struct sockaddr *at, socklen_t *length) {
    uint64_t entry = entry_of(file);
    return !entry ? libc.getsockname(file, at, length) : ONCE(file, entry, rgetsockname(rs, at, length));
}

int rs_getsockopt(int file, int level, int option, void *value, socklen_t *length) {
    uint64_t entry = entry_of(file);
    if (!entry)
        return libc.getsockopt(file, level, option, value, length);
    if (level == IPPROTO_TCP && option == TCP_CONGESTION && value && length && *length > 0 && !LOOK_ERROR(entry)) {
        strncpy(value, "rsocket", *length);
        *length = *length < 8 ? *length : 8;
        return 0;
    }
    int answer = ONCE(file, entry, rgetsockopt(rs, level, option, value, length));
    if (answer && errno == ENOTSUP)
        errno = ENOPROTOOPT;
    return answer;
}

int rs_setsockopt(int file, int level, int option, const void *value, socklen_t length) {
    uint64_t entry = entry_of(file);
    if (asks_for_protection(level, option) && (entry || stream_family(file)))
        return fail(ENOPROTOOPT);
    if (!entry)
        return libc.setsockopt(file, level, option, value, length);
    int kept = errno, answer = ONCE(file, entry, rsetsockopt(rs, level, option, value, length));
    if (!answer || errno != ENOTSUP)
        return answer;
    /* Timeouts are not supported, nor are other protocols above TCP, such as the kernel's TLS. */
    bool is_known = level == SOL_SOCKET || level == IPPROTO_TCP || level == IPPROTO_IP || level == IPPROTO_IPV6;
    if (!is_known || (level == SOL_SOCKET && (option == SO_RCVTIMEO || option == SO_SNDTIMEO)))
        return fail(ENOPROTOOPT);
    /* Other options affect only the performance of TCP. */
    errno = kept;
    return 0;
}
