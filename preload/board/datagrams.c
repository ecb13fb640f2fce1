/* Datagram sockets on the board (docs/attach.md).
 *
 * Operation        a UDP socket belongs to the kernel until bind(), connect() or its first datagram to an address to which
 *                  the board has a route. Then the library connects to the board and asks it to bind; this connection, a
 *                  Unix socket that keeps the borders of packets, replaces the program's descriptor. So poll, epoll, dup,
 *                  fork and exec work. Before each datagram is a header with the remote address, which the calls here
 *                  write and remove.
 * Addresses        a socket that is bound to the board's address, or to the wildcard address and a port, is the board's at
 *                  once. One that is bound to the wildcard address and port 0, or not at all, becomes the board's with its
 *                  first target, and keeps the port that the kernel has chosen if the board has it, too. Loopback,
 *                  multicast and broadcast addresses, and those to which the board has no route, are left to the kernel.
 * Errors           the board reports ICMP errors of connected sockets, and targets without a route, in packets; the next
 *                  read returns them.
 * After exec       the program's end is bound to an address that contains the local address (find_or_adopt_datagrams());
 *                  the board knows the remote address.
 * syscall()        older versions of libuv, which dig and Node.js use, make these calls through syscall(2).
 * Options          and ancillary data are in control.c.
 * Passing          a process that receives a descriptor (SCM_RIGHTS) finds the socket in the same way.
 * Not implemented  a process that has inherited only descriptors with numbers from INHERITED on. */
#include "board.h"
#include <stdarg.h>
#include <sys/random.h>
#include <sys/syscall.h>

#define PAYLOAD_MAX 65507
/* The number of parts of a message, as in sendmsg(2) with the header in front. */
#define PARTS 64

/* A process that has been started looks for sockets that it has inherited among descriptors below this number. */
#define INHERITED 256

static long (*libc_syscall)(long, ...);
/* Whether the process has, or may have inherited, a datagram socket of the board; if not, the calls skip the lookup. */
_Atomic bool datagrams;

/* Returns the family of a UDP socket of the kernel that is not connected, AF_INET or AF_INET6; 0 for any other file. */
static int udp_family(int fd) {
    int kept = errno, family = 0, type = 0, protocol = 0;
    union name peer;
    socklen_t length = sizeof(int), peer_length = sizeof peer;
    bool is_it = board_path && !libc.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) && type == SOCK_DGRAM;
    length = sizeof(int);
    is_it = is_it && !libc.getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length) &&
            (family == AF_INET || family == AF_INET6);
    length = sizeof(int);
    is_it = is_it && !libc.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) && protocol == IPPROTO_UDP &&
            libc.getpeername(fd, &peer.any, &peer_length);
    errno = kept;
    return is_it ? family : 0;
}

/* Whether an address is that of several hosts. */
static bool is_group(const struct entry *entry, int end) {
    static const uint8_t all[4] = {255, 255, 255, 255};
    const uint8_t *address = entry->address[end];
    return entry->family[end] == 4 ? (address[0] & 0xf0) == 0xe0 || !memcmp(address, all, 4) : address[0] == 0xff;
}

/* Reads the address of a socket's own end. Returns whether it is a datagram socket of the board. Sets the entry's `slot`
 * to the start of the random number, by which the board distinguishes sockets with the same address. */
static bool own_entry(int fd, struct entry *entry) {
    struct entry_name name;
    int kept = errno;
    socklen_t length = sizeof name;
    bool is_it = !libc.getsockname(fd, (struct sockaddr *)&name, &length) && length == sizeof name &&
                 name.family == AF_UNIX && !name.zero && !memcmp(name.tag, ENTRY_TAG, sizeof name.tag) &&
                 name.entry.what == ASK_BIND;
    if (is_it) {
        *entry = name.entry;
        memcpy(&entry->slot, name.random, sizeof entry->slot);
    }
    errno = kept;
    return is_it;
}

/* Looks for sockets that the process has inherited. */
void begin_datagrams(void) {
    struct entry entry;
    *(void **)&libc_syscall = dlsym(RTLD_NEXT, "syscall");
    for (int fd = 0; board_path && fd < INHERITED && !datagrams; fd++)
        datagrams = own_entry(fd, &entry);
}

/* Looks for sockets among the descriptors that a process has received in a message (SCM_RIGHTS). */
void look_for_datagrams(const struct msghdr *message) {
    struct entry entry;
    int file;
    if (!board_path || datagrams || !message->msg_control)
        return;
    struct cmsghdr *at = message->msg_controllen < sizeof *at ? NULL : message->msg_control;
    for (; at && !datagrams; at = CMSG_NXTHDR((struct msghdr *)message, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS || at->cmsg_len < CMSG_LEN(sizeof file))
            continue;
        size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof file;
        for (size_t number = 0; number < count && !datagrams; number++) {
            memcpy(&file, CMSG_DATA(at) + number * sizeof file, sizeof file);
            datagrams = own_entry(file, &entry);
        }
    }
}

/* Looks up a datagram socket of the board. After exec, makes its record. */
bool find_datagrams(int fd, struct found *found) {
    struct entry entry, query = {.what = ASK_REMOTE}, reply;
    if (!datagrams)
        return false;
    if (find(fd, found))
        return found->state == DATAGRAMS;
    if (fd < 0 || fd >= FILES || !own_entry(fd, &entry))
        return false;
    struct known known = {.domain = entry.family[LOCAL] == 6 ? AF_INET6 : AF_INET};
    known.name[LOCAL] = name_of(&entry, LOCAL, known.domain);
    put(&query, LOCAL, &known.name[LOCAL]);
    query.slot = entry.slot;
    int kept = errno, file = -1;
    if (!ask(&query, token_of(fd), &reply, &file) && reply.what == REPLY_ACCEPTED)
        known.name[REMOTE] = name_of(&reply, REMOTE, known.domain);
    errno = kept;
    return !note(fd, known, DATAGRAMS) && find(fd, found);
}

/* Makes a UDP socket of the kernel one of the board's. `remote` is the target that has led to this, or NULL. Returns 0;
 * -1 if the socket must stay with the kernel; or an error number. */
static int bind_on_board(int fd, int family, const union name *local, const struct entry *remote, struct found *found) {
    struct entry entry = {.what = ASK_BIND}, reply;
    struct entry_name own = {.family = AF_UNIX};
    struct known known = {.domain = family};
    uint64_t token;
    int file;
    put(&entry, LOCAL, local);
    for (int at = 0; at < 2; at++) {
        int shares = 0;
        socklen_t length = sizeof shares;
        if (!libc.getsockopt(fd, SOL_SOCKET, at ? SO_REUSEPORT : SO_REUSEADDR, &shares, &length) && shares)
            entry.code |= 1 << at;
    }
    entry.code |= is_v6_only(fd) ? BINDS_V6_ONLY : 0;
    if (remote) {
        entry.family[REMOTE] = remote->family[REMOTE];
        entry.port[REMOTE] = remote->port[REMOTE];
        memcpy(entry.address[REMOTE], remote->address[REMOTE], 16);
    }
    if (fd >= FILES)
        return EMFILE;
    for (;;) {
        struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
        int asker = new_asker(0);
        if (asker < 0)
            return errno;
        libc.setsockopt(asker, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        int error = getrandom(&token, sizeof token, 0) == sizeof token ? 0 : ENOBUFS;
        error = error ? error : begin_to_ask(asker, &entry, token);
        error = error ? error : answer_soon(asker, &reply, &file, PATIENCE_SECONDS * 1000);
        if (error || reply.what != REPLY_LISTENING || reply.code)
            close(asker);
        if (error)
            return error == EAGAIN ? ENETDOWN : error;
        if (reply.code == IN_USE && remote && entry.port[LOCAL]) {
            /* The kernel has chosen the port, and the board has another socket there. */
            entry.port[LOCAL] = 0;
            continue;
        }
        if (reply.code == NO_ROUTE || (reply.code == BAD_ADDRESS && !is_unspecified(&entry, LOCAL)))
            return -1;
        if (reply.what != REPLY_LISTENING || reply.code)
            return reply.code ? error_of(reply.code) : EPROTO;
        known.name[LOCAL] = name_of(&reply, LOCAL, family);
        memset(&patience, 0, sizeof patience);
        libc.setsockopt(asker, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        own.entry = reply;
        own.entry.what = ASK_BIND;
        memcpy(own.tag, ENTRY_TAG, sizeof own.tag);
        if (getrandom(own.random, sizeof own.random, 0) != sizeof own.random ||
            libc.bind(asker, (struct sockaddr *)&own, sizeof own)) {
            close(asker);
            return ENOBUFS;
        }
        /* If this fails, only a process that can connect by path can ask about the socket. */
        libc.setsockopt(asker, SOL_SOCKET, SO_MAX_PACING_RATE, &token, sizeof token);
        datagrams = true;
        read_datagram_options(fd, known.options);
        apply_datagram_options(asker, &known);
        /* A smaller buffer would refuse long datagrams. */
        int bytes = buffer_of(fd, SO_SNDBUF), its = 0;
        socklen_t its_length = sizeof its;
        if (!libc.getsockopt(asker, SOL_SOCKET, SO_SNDBUF, &its, &its_length) && bytes > its / 2)
            set_buffer(asker, SO_SNDBUF, bytes);
        if ((error = replace_file(fd, asker)) || (error = note(fd, known, DATAGRAMS)))
            return error;
        return find(fd, found) ? 0 : EBADF;
    }
}

/* Makes a kernel socket the board's if the board has a route to its target. Returns 0, -1 or an error number like
 * bind_on_board(). */
static int choose(int fd, int family, const union name *remote, struct found *found) {
    struct entry entry = {0}, bound = {0};
    union name local;
    socklen_t length = sizeof local;
    put(&entry, REMOTE, remote);
    if (is_mapped_in_vain(fd, family, &entry, REMOTE) || is_loopback(&entry, REMOTE) || is_group(&entry, REMOTE) ||
        is_unspecified(&entry, REMOTE))
        return -1;
    memset(&local, 0, sizeof local);
    if (libc.getsockname(fd, &local.any, &length))
        return errno;
    put(&bound, LOCAL, &local);
    /* A socket that the program has bound to another address than the board's uses the host's network. */
    return is_unspecified(&bound, LOCAL) ? bind_on_board(fd, family, &local, &entry, found) : -1;
}

/* bind() of a UDP socket. Returns whether the call is done; `*result` is its result. */
bool bind_datagrams(int fd, const struct sockaddr *name, socklen_t length, int *result) {
    struct found found;
    int kept = errno, family;
    if (find_datagrams(fd, &found)) {
        *result = fail(EINVAL);
        return true;
    }
    union name local, bound;
    struct entry entry = {0};
    socklen_t bound_length = sizeof bound;
    if (!(family = udp_family(fd)) || read_name(&local, family, name, length))
        return false;
    put(&entry, LOCAL, &local);
    bool is_bound = !libc.getsockname(fd, &bound.any, &bound_length) && bound.in.sin_port;
    if (is_bound || is_mapped_in_vain(fd, family, &entry, LOCAL) || is_loopback(&entry, LOCAL) ||
        is_group(&entry, LOCAL) || (is_unspecified(&entry, LOCAL) && !entry.port[LOCAL]))
        return false;
    int error = bind_on_board(fd, family, &local, NULL, &found);
    if (error < 0)
        return false;
    *result = error ? fail(error) : done(kept, 0);
    return true;
}

/* Sets the remote address of a socket of the board; NULL: none. Returns 0 or an error number. */
static int set_remote(int fd, struct found *found, const union name *remote) {
    struct entry entry = {.what = ASK_SET_REMOTE}, reply, own;
    int file = -1;
    if (own_entry(fd, &own))
        entry.slot = own.slot;
    put(&entry, LOCAL, &found->known.name[LOCAL]);
    if (remote) {
        put(&entry, REMOTE, remote);
        if (is_loopback(&entry, REMOTE))
            return ENETUNREACH;
    }
    int error = ask(&entry, found->known.token, &reply, &file);
    if (file >= 0)
        close(file);
    if (error || reply.what != REPLY_OPENED)
        return error ? error : error_of(reply.code);
    /* Without what the program may have left in the padding, because receive_one() compares addresses. */
    memset(&found->known.name[REMOTE], 0, sizeof found->known.name[REMOTE]);
    if (remote)
        found->known.name[REMOTE] = name_of(&entry, REMOTE, found->known.domain);
    found->known.name[LOCAL] = name_of(&reply, LOCAL, found->known.domain);
    return rewrite(found, DATAGRAMS) ? 0 : ENOBUFS;
}

/* Returns whether an option joins or leaves a group. */
bool is_membership(int level, int name) {
    return (level == IPPROTO_IP && (name == IP_ADD_MEMBERSHIP || name == IP_DROP_MEMBERSHIP)) ||
           (level == IPPROTO_IPV6 && (name == IPV6_JOIN_GROUP || name == IPV6_LEAVE_GROUP));
}

/* Joins a group with a socket of the board, or leaves it (ip(7), ipv6(7)). The board has no interface numbers. Returns 0
 * or -1 with errno set. */
int set_membership(int fd, const struct found *found, int level, int name, const void *value, socklen_t length) {
    struct entry entry = {.what = ASK_MEMBER}, reply, own;
    struct ip_mreqn four = {0};
    struct ipv6_mreq six;
    union name group = {0}, local = found->known.name[LOCAL];
    int kept = errno, file = -1;
    if (length < (level == IPPROTO_IP ? sizeof(struct ip_mreq) : sizeof six))
        return fail(EINVAL);
    if (!value)
        return fail(EFAULT);
    entry.code = name == IP_ADD_MEMBERSHIP || name == IPV6_JOIN_GROUP;
    if (level == IPPROTO_IP) {
        memcpy(&four, value, length < sizeof four ? sizeof(struct ip_mreq) : sizeof four);
        group.in.sin_family = AF_INET;
        group.in.sin_addr = four.imr_multiaddr;
    } else {
        memcpy(&six, value, sizeof six);
        group.in6.sin6_family = AF_INET6;
        group.in6.sin6_addr = six.ipv6mr_multiaddr;
        four.imr_ifindex = (int)six.ipv6mr_interface;
    }
    if (four.imr_ifindex)
        return fail(ENODEV);
    put(&entry, LOCAL, &local);
    put(&entry, REMOTE, &group);
    if (!is_group(&entry, REMOTE) || (level == IPPROTO_IP && four.imr_multiaddr.s_addr == INADDR_BROADCAST))
        return fail(EINVAL);
    /* The interface is that of the socket's address, or has the address that the program gives. */
    if (four.imr_address.s_addr && is_unspecified(&entry, LOCAL)) {
        entry.family[LOCAL] = 4;
        memcpy(entry.address[LOCAL], &four.imr_address, sizeof four.imr_address);
    }
    if (own_entry(fd, &own))
        entry.slot = own.slot;
    int error = ask(&entry, found->known.token, &reply, &file);
    if (file >= 0)
        close(file);
    if (!error && reply.what != REPLY_OPENED)
        error = reply.code == NO_ROUTE ? ENODEV : error_of(reply.code);
    return error ? fail(error) : (int)done(kept, 0);
}

/* connect() of a UDP socket. Returns whether the call is done; `*result` is its result. */
bool connect_datagrams(int fd, const struct sockaddr *name, socklen_t length, int *result) {
    struct found found;
    int kept = errno, family, error;
    bool is_ours = find_datagrams(fd, &found);
    union name remote;
    if (is_ours && name && length >= sizeof name->sa_family && name->sa_family == AF_UNSPEC) {
        error = set_remote(fd, &found, NULL);
        *result = error ? fail(error) : done(kept, 0);
        return true;
    }
    family = is_ours ? found.known.domain : udp_family(fd);
    if (!family)
        return false;
    if ((error = read_name(&remote, family, name, length))) {
        *result = fail(error);
        return is_ours;
    }
    if (!is_ours && (error = choose(fd, family, &remote, &found))) {
        *result = error < 0 ? 0 : fail(error);
        return error > 0;
    }
    error = set_remote(fd, &found, &remote);
    *result = error ? fail(error) : done(kept, 0);
    return true;
}

/* The error of a call on a socket whose board has stopped. Its traffic must not take another path. */
static ssize_t failed_call(void) {
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
        errno = ENETDOWN;
    return -1;
}

/* The number of datagrams into which UDP_SEGMENT may cut one, as in Linux. */
#define SEGMENTS 128

/* Collects the parts of a message from `from` on, at most `bytes`. Returns their number. */
static int parts_from(const struct msghdr *message, size_t from, size_t bytes, struct iovec *to) {
    int count = 0;
    for (size_t part = 0; part < message->msg_iovlen && bytes; part++) {
        struct iovec its = message->msg_iov[part];
        size_t before = from < its.iov_len ? from : its.iov_len, left = its.iov_len - before;
        from -= before;
        if (left)
            to[count++] = (struct iovec){(char *)its.iov_base + before, left < bytes ? left : bytes};
        bytes -= left < bytes ? left : bytes;
    }
    return count;
}

static ssize_t send_one(int fd, const struct found *found, const struct msghdr *message, int flags) {
    struct header header = {.kind = DATA};
    struct entry entry = {0};
    struct iovec parts[PARTS + 1] = {{&header, sizeof header}};
    union name remote = found->known.name[REMOTE];
    size_t bytes = 0;
    unsigned segment;
    if (message->msg_name) {
        int error = read_name(&remote, found->known.domain, message->msg_name, message->msg_namelen);
        if (error)
            return fail(error);
    } else if (!remote.any.sa_family) {
        return fail(EDESTADDRREQ);
    }
    if (flags & (MSG_OOB | MSG_MORE))
        return fail(EOPNOTSUPP);
    put(&entry, REMOTE, &remote);
    if (is_loopback(&entry, REMOTE))
        return fail(ENETUNREACH);
    header.family = entry.family[REMOTE];
    header.port = entry.port[REMOTE];
    memcpy(header.address, entry.address[REMOTE], sizeof header.address);
    int error = read_control(&found->known, message, &header, &segment);
    if (error)
        return fail(error);
    if (message->msg_iovlen > PARTS)
        return fail(EMSGSIZE);
    for (size_t part = 0; part < message->msg_iovlen; part++)
        bytes += message->msg_iov[part].iov_len;
    if (bytes > PAYLOAD_MAX)
        return fail(EMSGSIZE);
    if (segment && bytes > (size_t)segment * SEGMENTS)
        return fail(EINVAL);
    size_t piece = segment && segment < bytes ? segment : bytes, sent = 0;
    do {
        struct msghdr packet = {.msg_iov = parts};
        packet.msg_iovlen = (size_t)parts_from(message, sent, piece, parts + 1) + 1;
        ssize_t count = libc.sendmsg(fd, &packet, (flags & MSG_DONTWAIT) | MSG_NOSIGNAL);
        if (count < 0 && sent && errno == EAGAIN) {
            /* A call must not send only the first of several datagrams. Wait a moment; then they are lost, as they may
             * be in the network. */
            struct pollfd polled = {fd, POLLOUT, 0};
            if (poll(&polled, 1, PROMPT_MS) > 0)
                continue;
            break;
        }
        if (count < 0)
            return failed_call();
        sent += (size_t)count - sizeof header;
    } while (sent < bytes);
    return (ssize_t)bytes;
}

static ssize_t receive_one(int fd, struct found *found, struct msghdr *message, int flags) {
    const union name *remote = &found->known.name[REMOTE];
    if (flags & MSG_ERRQUEUE)
        return receive_error(fd, found, message);
    if (found->known.pending) {
        int error = found->known.pending;
        found->known.pending = 0;
        rewrite(found, DATAGRAMS);
        return fail(error);
    }
    for (;;) {
        struct header header = {0};
        struct iovec parts[PARTS + 1] = {{&header, sizeof header}};
        if (message->msg_iovlen > PARTS)
            return fail(EMSGSIZE);
        if (message->msg_iovlen)
            memcpy(parts + 1, message->msg_iov, message->msg_iovlen * sizeof *parts);
        struct msghdr packet = {.msg_iov = parts, .msg_iovlen = message->msg_iovlen + 1};
        ssize_t count = libc.recvmsg(fd, &packet, flags & (MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC));
        if (count < 0)
            return failed_call();
        if (count < (ssize_t)sizeof header)
            return fail(ENETDOWN);
        struct entry entry = {.family = {[REMOTE] = header.family}, .port = {[REMOTE] = header.port}};
        memcpy(entry.address[REMOTE], header.address, sizeof header.address);
        union name from = name_of(&entry, REMOTE, found->known.domain);
        /* A datagram that had arrived before connect() may be that of another host. */
        bool is_foreign = remote->any.sa_family && memcmp(&from, remote, length_of(found->known.domain));
        if (header.kind == PROBLEM || is_foreign) {
            if (flags & MSG_PEEK)
                libc.recv(fd, &header, sizeof header, MSG_DONTWAIT);
            if (header.kind == PROBLEM) {
                keep_error(found, &header);
                return fail(error_of(header.reason));
            }
            continue;
        }
        message->msg_flags = packet.msg_flags & MSG_TRUNC;
        write_control(&found->known, message, &header);
        if (message->msg_name) {
            socklen_t length = message->msg_namelen;
            tell_name(&from, message->msg_name, &length);
            message->msg_namelen = length;
        }
        return count - (ssize_t)sizeof header;
    }
}

/* sendmsg() of a socket that is the board's or may become it. Returns whether the call is done; `*result` is its
 * result. */
bool send_datagram(int fd, const struct msghdr *message, int flags, ssize_t *result) {
    struct found found;
    union name remote;
    int kept = errno, family, error;
    if (!find_datagrams(fd, &found)) {
        if (!message->msg_name || !(family = udp_family(fd)) ||
            read_name(&remote, family, message->msg_name, message->msg_namelen))
            return false;
        if ((error = choose(fd, family, &remote, &found))) {
            *result = error < 0 ? 0 : fail(error);
            return error > 0;
        }
    }
    *result = send_one(fd, &found, message, flags);
    if (*result >= 0)
        errno = kept;
    return true;
}

bool receive_datagram(int fd, struct msghdr *message, int flags, ssize_t *result) {
    struct found found;
    int kept = errno;
    if (!find_datagrams(fd, &found))
        return false;
    *result = receive_one(fd, &found, message, flags);
    if (*result >= 0)
        errno = kept;
    return true;
}

/* sendmmsg(): like Linux, returns an error only if no message was sent. */
bool send_datagrams(int fd, struct mmsghdr *messages, unsigned count, int flags, int *result) {
    ssize_t sent;
    for (unsigned at = 0; at < count; at++) {
        if (!send_datagram(fd, &messages[at].msg_hdr, flags, &sent)) {
            if (at == 0)
                return false;
            sent = libc.sendmsg(fd, &messages[at].msg_hdr, flags);
        }
        if (sent < 0) {
            *result = at ? (int)at : -1;
            return true;
        }
        messages[at].msg_len = (unsigned)sent;
    }
    *result = (int)count;
    return count > 0;
}

/* recvmmsg(). The timeout is checked after each datagram, as in Linux. */
bool receive_datagrams(int fd, struct mmsghdr *messages, unsigned count, int flags, const struct timespec *time,
                       int *result) {
    struct found found;
    int64_t begun = microseconds();
    if (!find_datagrams(fd, &found))
        return false;
    unsigned at = 0;
    for (; at < count; at++) {
        ssize_t received = receive_one(fd, &found, &messages[at].msg_hdr, flags);
        if (received < 0) {
            /* An error after some datagrams is that of the next call (recvmmsg(2)). */
            if (at && errno != EAGAIN && errno != EINTR) {
                found.known.pending = errno;
                rewrite(&found, DATAGRAMS);
            }
            break;
        }
        messages[at].msg_len = (unsigned)received;
        if (flags & MSG_WAITFORONE)
            flags |= MSG_DONTWAIT;
        if (time && microseconds() - begun >= (int64_t)time->tv_sec * 1000000 + time->tv_nsec / 1000) {
            at++;
            break;
        }
    }
    *result = at || !count ? (int)at : -1;
    return true;
}

/* Programs make other system calls in this way, too; those go to libc unchanged. */
OURS long syscall(long number, ...) {
    long given[6];
    va_list list;
    va_start(list, number);
    for (int at = 0; at < 6; at++)
        given[at] = va_arg(list, long);
    va_end(list);
    if (number == SYS_sendmmsg && !BYPASSED)
        return sendmmsg((int)given[0], (struct mmsghdr *)given[1], (unsigned)given[2], (int)given[3]);
    if (number == SYS_recvmmsg && !BYPASSED)
        return recvmmsg((int)given[0], (struct mmsghdr *)given[1], (unsigned)given[2], (int)given[3],
                        (struct timespec *)given[4]);
    /* Memory allocators make system calls before the library is prepared. */
    if (!libc_syscall)
        *(void **)&libc_syscall = dlsym(RTLD_NEXT, "syscall");
    return libc_syscall(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
