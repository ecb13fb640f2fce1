/* libkiban_sockets.so: lets unmodified programs use the TCP of a running board (kiban run, docs/attach.md).
 *
 * Purpose          with LD_PRELOAD=libkiban_sockets.so and KIBAN_SOCKETS=PATH, connections that a program opens
 *                  or accepts go through the board.
 * Operation        a socket belongs to the kernel until connect() or listen(). Then the library sends one request
 *                  to the board (entries of kiban_board::streams), and the Unix socket in the reply replaces the
 *                  program's descriptor; the board carries its bytes. Therefore poll, epoll, select, sendfile,
 *                  dup, fork, exec and threads work unchanged; the library handles only names, options, shutdown
 *                  and the end of a stream.
 * Protocols        TCP, and MPTCP, which falls back to TCP. Sockets of other stream protocols of the Internet, such as
 *                  SCTP, are refused (socket(), tcp_domain()).
 * Addresses        the board is used for its own addresses and for all destinations to which it has a route.
 *                  127.0.0.0/8, ::1 and all other addresses are left to the kernel, and so is a connection from
 *                  such an address. A listener on an unspecified address listens only on the board. read_name()
 *                  refuses what Linux would refuse, and listen() asks the kernel for the address of a socket
 *                  that has no record.
 * Connecting       connect() on a non-blocking socket returns EINPROGRESS; the socket becomes writable when the
 *                  stream is open. If the board has not replied after PROMPT_MS, a helper process waits for the
 *                  reply instead of the program (connect_by_helper()). The same happens if a signal or
 *                  SO_SNDTIMEO ends a blocking connect().
 * Signal handlers  functions that POSIX lists as async-signal-safe (POSIX.1-2017 2.4.3) remain so: nothing here
 *                  locks or allocates (records.c). For the same reason, a fork may happen at any moment.
 *                  Successful calls preserve errno.
 * End              reading from a stream that was reset returns ECONNRESET, or ETIMEDOUT if the peer has not answered.
 *                  The library recognises a reset because the board has hung up before this side has finished, and
 *                  queries the board for the reason. If this side has already finished, only the board knows.
 * Duplicates       the state of a descriptor belongs to its file (records.c), so it is found on duplicates.
 * Ports            after bind() to port 0, listen() or connect() chooses the port. If the program calls
 *                  getsockname() before that, the board begins to listen, which reserves the port for the socket.
 * Options          before connect() and listen() they are those of the kernel's socket; then the board keeps them
 *                  (options.c).
 * After exec       the board's end of a socket is bound to an address that contains the addresses of the
 *                  stream; a process without a record of the socket reads them from it (find_or_adopt()).
 * Datagrams        UDP sockets are in datagrams.c.
 * Urgent data      Unix sockets have it, too: MSG_OOB, SO_OOBINLINE, SIOCATMARK, POLLPRI and SIGURG work on the program's
 *                  end, and the board passes the urgent byte on.
 * Fast Open        sendto() with MSG_FASTOPEN sends its data together with the request to connect, and the board sends it
 *                  in the SYN if it has the server's cookie (RFC 7413). With TCP_FASTOPEN_CONNECT, connect() then
 *                  returns at once, and the board connects when the program writes.
 * Not implemented  a reset in stdio and io_uring; the local name of a stream
 *                  before the board has replied; errors at bind(), which listen() returns instead. If a descriptor
 *                  was added to epoll or duplicated (dup) before it connected, the copy still refers to the
 *                  kernel's socket. Connections that libc itself opens (rcmd(3), DNS over TCP) are the kernel's. */
#include "board.h"
#include <sys/resource.h>

/* ---- The outcome of a connect ---- */

/* Returns the outcome of a connect: 0 if the stream is open, EINPROGRESS, or the error. */
static int outcome(int fd, struct found *found, int wait_ms) {
    struct pollfd polled = {fd, POLLOUT, 0};
    if (wait_ms && poll(&polled, 1, wait_ms) < 0)
        return errno;
    short ready = ready_for(fd, POLLOUT);
    if (!ready)
        return EINPROGRESS;
    if (found->known.is_late)
        return outcome_of_late_reply(fd, found, ready & POLLHUP);
    int error = ready & POLLHUP ? outcome_of_hangup(fd) : 0, gone = 0;
    if (error) {
        socklen_t length = sizeof gone;
        /* Return the error only once; after that, the socket may connect again. */
        if (change(found, CONNECTING, FAILED))
            libc.getsockopt(fd, SOL_SOCKET, SO_ERROR, &gone, &length);
        return error;
    }
    if (!(ready & (POLLOUT | POLLHUP)))
        return EINPROGRESS;
    if (change(found, CONNECTING, CONNECTED))
        size_send_buffer(fd, &found->known);
    found->state = CONNECTED;
    return 0;
}

/* Checks a descriptor before a read. Returns true, with errno set, if it is a listener or its connect has failed. */
static bool failed(int fd) {
    struct found found;
    if (!(connects || (listens && may_listen(fd))) || !find(fd, &found))
        return false;
    if (found.state == LISTENING || found.state == RESERVED) {
        errno = ENOTCONN;
        return true;
    }
    if (found.state != CONNECTING)
        return false;
    int kept = errno, error = outcome(fd, &found, 0);
    if (!error || error == EINPROGRESS) {
        errno = kept;
        return false;
    }
    errno = error;
    return true;
}

/* Asks the board how a stream has ended. Returns 0 if it was not reset, or if the board does not know any more; EAGAIN if
 * there is no answer yet; or the error. */
static int fate_of(const struct known *known, bool waits) {
    struct entry entry = {.what = ASK_FATE}, reply;
    put(&entry, LOCAL, &known->name[LOCAL]);
    put(&entry, REMOTE, &known->name[REMOTE]);
    int file = -1, error, asker;
    if (waits) {
        error = ask(&entry, known->token, &reply, &file);
    } else if ((asker = new_asker(SOCK_NONBLOCK)) < 0) {
        error = errno;
    } else {
        error = begin_to_ask(asker, &entry, known->token);
        error = error ? error : answer_soon(asker, &reply, &file, PROMPT_MS);
        close(asker);
    }
    if (file >= 0)
        close(file);
    if (error)
        return error == EAGAIN ? EAGAIN : ECONNRESET; /* The board has stopped. */
    return reply.what != REPLY_ENDED || reply.code == CLOSED ? 0 : error_of(reply.code);
}

/* Returns the error of a call that has found the end of a stream: `error`, or that of a peer that has not answered. */
int error_of_end(int fd, int error) {
    struct found found;
    if (!find_or_adopt(fd, &found) || found.state != CONNECTED)
        return error;
    int its = fate_of(&found.known, is_blocking(fd));
    return its == ETIMEDOUT || its == EHOSTUNREACH ? its : error;
}

/* Called after each read. If the read returned zero bytes, distinguishes the end of the stream from a reset. */
static ssize_t ended(int fd, ssize_t count, size_t wanted, int flags) {
    int kept = errno;
    struct found found;
    /* The board has hung up before it has read all that the program wrote. */
    if (count < 0 && kept == ECONNRESET)
        return fail(error_of_end(fd, kept));
    if (count || !wanted || !find_or_adopt(fd, &found) || found.state != CONNECTED || (found.word & END_IS_KNOWN))
        return count;
    if (!(ready_for(fd, POLLIN) & POLLHUP))
        return count;
    bool has_finished = found.word & HAS_FINISHED;
    /* A stream that connects with the program's first data may have failed to open. */
    int error = has_finished ? 0 : outcome_of_hangup(fd);
    if (error && error != ECONNRESET)
        return fail(error);
    error = fate_of(&found.known, is_blocking(fd) && !(flags & MSG_DONTWAIT));
    if (error == EAGAIN)
        return fail(EAGAIN); /* A later read retries. */
    /* After shutdown(), an orderly end and a reset look the same here, so query the board, once. */
    if (has_finished && !(flags & MSG_PEEK))
        flag(&found, END_IS_KNOWN);
    if (!error && !has_finished)
        error = ECONNRESET;
    return error ? fail(error) : done(kept, count);
}

/* Like ended(), after a read into several buffers. */
static ssize_t ended_parts(int fd, ssize_t count, const struct iovec *parts, size_t number, int flags) {
    size_t wanted = 0;
    for (size_t part = 0; !count && !wanted && part < number; part++)
        wanted = parts[part].iov_len;
    return ended(fd, count, wanted, flags);
}

/* ---- The calls ---- */

/* The board's stream protocol is TCP. Any other would use the host's network, so it does not exist for the program.
 * MPTCP is allowed because it falls back to TCP (RFC 8684 3.7). */
OURS int socket(int domain, int type, int protocol) {
    bool is_stream = !BYPASSED && board_path && (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM;
    if (is_stream && domain == AF_SMC)
        return fail(EAFNOSUPPORT);
    if (is_stream && (domain == AF_INET || domain == AF_INET6) && protocol && !is_tcp(protocol))
        return fail(EPROTONOSUPPORT);
    return libc.socket(domain, type, protocol);
}

/* Reads the address to which a socket of the kernel is bound. Returns false if it is not bound. libc itself binds some
 * sockets, in rresvport(); they have no record. */
static bool bound_name(int fd, const struct found *found, union name *name) {
    struct entry entry = {0};
    socklen_t length = sizeof *name;
    *name = found->known.name[LOCAL];
    if (found->state == BOUND)
        return true;
    if (libc.getsockname(fd, &name->any, &length))
        return false;
    put(&entry, LOCAL, name);
    return entry.port[LOCAL] || !is_unspecified(&entry, LOCAL);
}

static int board_bind(int fd, const struct sockaddr *name, socklen_t length) {
    int kept = errno, result;
    if (bind_datagrams(fd, name, length, &result))
        return result;
    int domain = tcp_domain(fd);
    struct known known = {.domain = domain, .was_bound = true};
    struct found found = {0};
    struct entry entry = {0};
    union name bound;
    if (domain <= 0)
        return domain ? fail(EPROTONOSUPPORT) : libc.bind(fd, name, length);
    int error = read_name(&known.name[LOCAL], domain, name, length);
    if (error)
        return fail(error);
    find(fd, &found);
    if (bound_name(fd, &found, &bound))
        return fail(EINVAL);
    put(&entry, LOCAL, &known.name[LOCAL]);
    if (is_mapped_in_vain(fd, domain, &entry, LOCAL))
        return fail(EINVAL);
    if (is_loopback(&entry, LOCAL))
        return libc.bind(fd, name, length);
    error = note(fd, known, BOUND);
    return error ? fail(error) : done(kept, 0);
}

/* Connects through the kernel, after binding the socket if the program had bound it. */
static ssize_t connect_in_kernel(int fd, const struct found *found, const struct msghdr *message, bool is_fast,
                                 int flags) {
    if (found->state == BOUND) {
        forget(found);
        if (bind_at_last(fd, &found->known))
            return -1;
    }
    return is_fast ? libc.sendmsg(fd, message, flags) : libc.connect(fd, message->msg_name, message->msg_namelen);
}

/* Replaces the descriptor with a new kernel socket, as it was before the board was involved. The record is kept, because
 * duplicates still refer to the old socket. Returns 0 or an error number. */
static int start_over(int fd, struct found *found) {
    int file = libc.socket(found->known.domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file < 0)
        return errno;
    bool is_bound = found->state == RESERVED || found->known.was_bound;
    restore_options(file, found->known.options);
    set_buffer(file, SO_SNDBUF, found->known.send_buffer);
    int error = replace_file(fd, file);
    found->state = NOTHING;
    found->known.is_late = false;
    if (!error && is_bound && !(error = note(fd, found->known, BOUND)))
        error = find(fd, found) ? 0 : EBADF;
    return error;
}

/* Makes the board listen at the address to which a socket is bound; if its port is 0, the board chooses the port.
 * Returns 0 or an error number. If the address is a loopback address or not one of the board's, binds the kernel's
 * socket and returns ENOTCONN. The unspecified address is never left to the kernel. */
static int listen_on_board(int fd, struct found *found, enum state state) {
    struct entry entry = {.what = ASK_LISTEN}, reply;
    struct known *known = &found->known;
    put(&entry, LOCAL, &known->name[LOCAL]);
    if (is_loopback(&entry, LOCAL))
        return ENOTCONN;
    if (fd >= FILES)
        return EMFILE;
    /* Of several listeners at one address, all must have SO_REUSEPORT (socket(7)). */
    int shares = 0;
    socklen_t length = sizeof shares;
    if (!libc.getsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &shares, &length))
        entry.code = shares != 0;
    entry.code |= is_v6_only(fd) ? LISTENS_V6_ONLY : 0;
    int file = -1, error = ask(&entry, 0, &reply, &file);
    if (error)
        return error;
    if ((reply.code == NO_ROUTE || reply.code == BAD_ADDRESS) && !is_unspecified(&entry, LOCAL)) {
        if (file >= 0)
            close(file);
        forget(found);
        return bind_at_last(fd, known) ? errno : ENOTCONN;
    }
    if (reply.what != REPLY_LISTENING || reply.code || file < 0) {
        if (file >= 0)
            close(file);
        return reply.code ? error_of(reply.code) : EMFILE;
    }
    read_options(fd, known->options);
    known->send_buffer = buffer_of(fd, SO_SNDBUF);
    size_send_buffer(file, known);
    if ((error = replace_file(fd, file)))
        return error;
    known->name[LOCAL] = name_of(&reply, LOCAL, known->domain);
    known->token = token_of(fd);
    listens = true;
    send_options(known, true);
    return note(fd, *known, state);
}

/* Requests a stream from the board. Returns 0 and the reply; EAGAIN or EINTR if there is no reply yet; or another
 * error number. */
static int ask_for_connect(int fd, bool waits, struct later *later, struct entry *reply, int *file) {
    int *asker = &later->asker;
    later->has_asked = false;
    if ((*asker = new_asker(waits ? 0 : SOCK_NONBLOCK)) < 0)
        return errno;
    if (waits) {
        /* connect(2) is limited by SO_SNDTIMEO (socket(7)). */
        copy_time(fd, SO_SNDTIMEO, *asker, SO_SNDTIMEO);
        copy_time(fd, SO_SNDTIMEO, *asker, SO_RCVTIMEO);
    }
    int error = begin_to_ask_with(*asker, &later->entry, later->data, &later->bytes);
    if (error)
        return error;
    later->has_asked = true;
    if (!waits)
        return answer_soon(*asker, reply, file, PROMPT_MS);
    if (receive(*asker, reply, file, 0))
        return 0;
    return errno == EAGAIN || errno == EINTR ? errno : ECONNABORTED;
}

static ssize_t board_sendto(int fd, const void *from, size_t bytes, int flags, const struct sockaddr *name,
                            socklen_t length);

/* Returns the number of bytes in a message. */
static size_t bytes_of(const struct msghdr *message) {
    size_t bytes = 0;
    for (size_t at = 0; at < message->msg_iovlen; at++)
        bytes += message->msg_iov[at].iov_len;
    return bytes;
}

/* Sends the bytes of a message after the first `taken`. Returns the number of all that have been sent. */
static ssize_t send_rest(int fd, const struct msghdr *message, size_t taken, int flags) {
    size_t total = taken;
    for (size_t at = 0; at < message->msg_iovlen; at++) {
        struct iovec part = message->msg_iov[at];
        size_t skips = part.iov_len < taken ? part.iov_len : taken;
        taken -= skips;
        if (part.iov_len == skips)
            continue;
        ssize_t count = board_sendto(fd, (char *)part.iov_base + skips, part.iov_len - skips, flags, NULL, 0);
        if (count < 0)
            return total ? (ssize_t)total : -1;
        total += (size_t)count;
        if ((size_t)count < part.iov_len - skips)
            break;
    }
    return (ssize_t)total;
}

/* Connects a socket to the address of a message. If `is_fast` is set, also sends the data of the message, as sendto() with
 * MSG_FASTOPEN (tcp(7)), and returns the number of bytes. */
static ssize_t open_stream(int fd, const struct msghdr *message, bool is_fast, int flags) {
    int kept = errno;
    const struct sockaddr *name = message->msg_name;
    socklen_t length = message->msg_namelen;
    struct found found = {0};
    struct entry entry = {.what = ASK_CONNECT}, reply;
    bool is_known = find_or_adopt(fd, &found);
    bool disconnects = name && length >= sizeof name->sa_family && name->sa_family == AF_UNSPEC;
    if (is_fast && disconnects)
        return fail(EOPNOTSUPP);
    if (is_known && disconnects) {
        /* connect(2): AF_UNSPEC dissolves the association. A socket that the program has bound stays bound. */
        int error = found.state == BOUND || found.state == RESERVED ? 0 : start_over(fd, &found);
        return error ? fail(error) : done(kept, 0);
    }
    if (is_known && found.state == CONNECTED)
        return fail(EISCONN);
    if (is_known && found.state == LISTENING)
        return fail(EINVAL);
    if (is_known && found.state == CONNECTING) {
        int error = outcome(fd, &found, 0);
        if (error)
            return fail(error == EINPROGRESS ? EALREADY : error);
        return is_fast ? send_rest(fd, message, 0, flags & ~MSG_FASTOPEN) : done(kept, 0);
    }
    if (is_known && (found.state == FAILED || found.state == RESERVED)) {
        int error = start_over(fd, &found);
        if (error)
            return fail(error);
    }
    int domain = tcp_domain(fd);
    if (!domain || disconnects)
        return is_fast ? libc.sendmsg(fd, message, flags) : libc.connect(fd, name, length);
    if (domain < 0)
        return fail(EPROTONOSUPPORT);
    struct known known = {.domain = domain};
    union name remote;
    int error = read_name(&remote, domain, name, length);
    if (error)
        return fail(error);
    put(&entry, REMOTE, &remote);
    if (is_mapped_in_vain(fd, domain, &entry, REMOTE))
        return fail(ENETUNREACH);
    if (is_loopback(&entry, REMOTE))
        return connect_in_kernel(fd, &found, message, is_fast, flags);
    if (fd >= FILES)
        return fail(EMFILE); /* The stream's state could not be recorded, and the kernel's TCP must not be used. */
    known.name[REMOTE] = name_of(&entry, REMOTE, domain);
    known.was_bound = bound_name(fd, &found, &known.name[LOCAL]);
    known.name[LOCAL].any.sa_family = domain;
    if (known.was_bound) {
        put(&entry, LOCAL, &known.name[LOCAL]);
        /* If no local address is set and no port either, let the board choose both. */
        if (is_unspecified(&entry, LOCAL) && entry.port[LOCAL] == 0)
            entry.family[LOCAL] = 0;
    }
    bool waits = is_blocking(fd) && !(flags & MSG_DONTWAIT);
    int file = -1;
    read_options(fd, known.options);
    known.send_buffer = buffer_of(fd, SO_SNDBUF);
    entry.code = traffic_class_of(&known);
    if (opens_fast(&known) || (is_fast && bytes_of(message)))
        entry.what = ASK_CONNECT_FAST;
    struct later later = {.known = known, .entry = entry, .data = is_fast ? message : NULL};
    error = ask_for_connect(fd, waits, &later, &reply, &file);
    if (error == EAGAIN || error == EINTR) {
        int other = connect_by_helper(fd, &later);
        close(later.asker);
        if (!other && later.bytes)
            return done(kept, (ssize_t)later.bytes); /* The helper sends them. */
        return fail(other ? other : error == EINTR ? EINTR : EINPROGRESS);
    }
    if (later.asker >= 0)
        close(later.asker);
    if (error)
        return fail(error);
    bool is_ours = reply.what == REPLY_OPENED && file >= 0;
    if (!is_ours && (reply.code == NO_ROUTE || reply.code == BAD_ADDRESS)) {
        /* The address belongs to the kernel's network. */
        if (file >= 0)
            close(file);
        return connect_in_kernel(fd, &found, message, is_fast, flags);
    }
    /* If the reply has no error code, the board has sent a descriptor, but this program has too many open files. */
    if (!is_ours)
        return fail(reply.code ? error_of(reply.code) : EMFILE);
    if ((error = replace_file(fd, file)))
        return fail(error);
    connects = true;
    known.name[LOCAL] = name_of(&reply, LOCAL, domain);
    known.token = token_of(fd);
    send_options(&known, false);
    bool syn_waits = entry.what == ASK_CONNECT_FAST && reply.slot == SYN_WAITS;
    if (syn_waits)
        size_send_buffer(fd, &known);
    size_t taken = entry.what == ASK_CONNECT_FAST && !syn_waits ? reply.slot : 0;
    /* While the SYN waits for data, the program sees a connected socket, as in Linux. */
    if ((error = note(fd, known, syn_waits ? CONNECTED : CONNECTING)))
        return fail(error);
    if (!syn_waits)
        error = find(fd, &found) ? outcome(fd, &found, waits ? patience_of(fd) : 0) : EBADF;
    if (taken && error == EINPROGRESS)
        return done(kept, (ssize_t)taken);
    if (error)
        return fail(error);
    return is_fast ? send_rest(fd, message, taken, flags & ~MSG_FASTOPEN) : done(kept, 0);
}

static int board_connect(int fd, const struct sockaddr *name, socklen_t length) {
    struct msghdr message = {.msg_name = (void *)name, .msg_namelen = length};
    int result;
    return connect_datagrams(fd, name, length, &result) ? result : (int)open_stream(fd, &message, false, 0);
}

static int board_listen(int fd, int backlog) {
    int kept = errno;
    struct found found = {0};
    if (find_or_adopt(fd, &found)) {
        if (found.state == LISTENING || change(&found, RESERVED, LISTENING))
            return done(kept, 0);
        if (found.state != BOUND)
            return fail(EINVAL);
    } else {
        /* The address at which the kernel would listen decides, however the socket was bound to it; that of a socket
         * that is not bound is the wildcard address (ip(7)). */
        found.known.domain = tcp_domain(fd);
        if (found.known.domain <= 0)
            return found.known.domain ? fail(EPROTONOSUPPORT) : libc.listen(fd, backlog);
        found.known.was_bound = bound_name(fd, &found, &found.known.name[LOCAL]);
    }
    int error = listen_on_board(fd, &found, LISTENING);
    if (error == ENOTCONN)
        return done(kept, libc.listen(fd, backlog));
    return error ? fail(error) : done(kept, 0);
}

/* The maximum number of epoll instances from which a listener is removed. */
#define EPOLLS 64

/* Called when the board has stopped. Replaces the listener with a socket that is never readable, because the listener
 * would be readable forever although no connection arrives. While another process has the listener open, it would also
 * stay in the epoll instances of this one. So it is removed from them, and the new socket added, without events: those
 * for which the program waits are not known here, and would not come. */
static void replace_listener(int fd) {
    int ends[2], epolls[EPOLLS], count = 0;
    struct rlimit files;
    struct epoll_event none = {0};
    static const char words[] = "kiban: the board has stopped: this program no longer receives connections; restart it\n";
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return;
    int most = getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur > FILES ? FILES : (int)files.rlim_cur;
    for (int file = 0; file < most && count < EPOLLS; file++)
        if (!epoll_ctl(file, EPOLL_CTL_DEL, fd, &none))
            epolls[count++] = file;
    /* Keep the other end open until the process exits. */
    if (!replace_file(fd, ends[0])) {
        note(fd, (struct known){.domain = AF_INET}, LISTENING);
        while (count)
            epoll_ctl(epolls[--count], EPOLL_CTL_ADD, fd, &none);
        if (write(STDERR_FILENO, words, sizeof words - 1) < 0)
            errno = 0;
    }
    errno = ECONNABORTED;
}

static int board_accept4(int fd, struct sockaddr *name, socklen_t *length, int flags) {
    int kept = errno;
    struct found found;
    if (!find_or_adopt(fd, &found) || found.state != LISTENING)
        return libc.accept4(fd, name, length, flags);
    struct entry reply;
    int file;
    if (!receive(fd, &reply, &file, is_blocking(fd) ? 0 : MSG_DONTWAIT)) {
        if (errno == EINVAL)
            replace_listener(fd);
        return -1;
    }
    if (reply.what != REPLY_ACCEPTED || file < 0) {
        if (file >= 0)
            close(file);
        return fail(ECONNABORTED);
    }
    if (!(flags & SOCK_CLOEXEC))
        fcntl(file, F_SETFD, 0);
    if (flags & SOCK_NONBLOCK)
        fcntl(file, F_SETFL, O_NONBLOCK);
    struct known accepted = {.domain = found.known.domain};
    /* The board resets a connection whose socket has no name, because no program has accepted it. */
    static const sa_family_t any_name = AF_UNIX;
    libc.bind(file, (const struct sockaddr *)&any_name, sizeof any_name);
    accepted.name[LOCAL] = name_of(&reply, LOCAL, found.known.domain);
    accepted.name[REMOTE] = name_of(&reply, REMOTE, found.known.domain);
    copy_options(fd, file);
    set_buffer(file, SO_SNDBUF, buffer_of(fd, SO_SNDBUF));
    int error = note(file, accepted, CONNECTED);
    if (error) {
        close(file);
        return fail(error);
    }
    if (name && length)
        tell_name(&accepted.name[REMOTE], name, length);
    return done(kept, file);
}

static int board_getsockname(int fd, struct sockaddr *name, socklen_t *length) {
    int kept = errno;
    struct found found;
    if (!find_datagrams(fd, &found) && !find_or_adopt(fd, &found))
        return libc.getsockname(fd, name, length);
    struct entry entry = {0};
    put(&entry, LOCAL, &found.known.name[LOCAL]);
    if (found.state == BOUND && entry.port[LOCAL] == 0) {
        /* Make the board listen from now on, so that no other socket gets the port. */
        int error = listen_on_board(fd, &found, RESERVED);
        if (error == ENOTCONN)
            return libc.getsockname(fd, name, length);
        if (error)
            return fail(error);
    }
    if (found.state == CONNECTING && found.known.is_late)
        outcome(fd, &found, 0); /* May complete the local name. */
    return done(kept, tell_name(&found.known.name[LOCAL], name, length));
}

static int board_getpeername(int fd, struct sockaddr *name, socklen_t *length) {
    int kept = errno;
    struct found found;
    if (find_datagrams(fd, &found))
        return found.known.name[REMOTE].any.sa_family ? done(kept, tell_name(&found.known.name[REMOTE], name, length))
                                                      : fail(ENOTCONN);
    if (!find_or_adopt(fd, &found))
        return libc.getpeername(fd, name, length);
    bool is_open = found.state == CONNECTED || (found.state == CONNECTING && outcome(fd, &found, 0) == 0);
    return is_open ? done(kept, tell_name(&found.known.name[REMOTE], name, length)) : fail(ENOTCONN);
}

/* Returns whether the board knows the socket: it has a stream or a listener there. */
static bool is_on_board(const struct found *found) {
    return found->state != FAILED && !(found->state == CONNECTING && found->known.is_late);
}

/* Returns TCP_INFO, or the MSS in it. For a stream that has ended or that the board does not know, only the
 * state and a default MSS are filled in. */
static int tell_info(const struct found *found, int option, void *target, socklen_t *length) {
    union {
        struct tcp_info info;
        char bytes[256];
    } all = {0};
    socklen_t bytes = sizeof all;
    bool is_stream = is_on_board(found) && found->state != LISTENING && found->state != RESERVED;
    if (!is_stream || query_info(&found->known, &all, &bytes) || !bytes) {
        memset(&all, 0, sizeof all);
        all.info.tcpi_state = found->state == LISTENING || found->state == RESERVED ? TCP_LISTEN : TCP_CLOSE;
        all.info.tcpi_snd_mss = 536; /* The MSS that every host accepts (RFC 9293 3.7.1). */
        bytes = sizeof all.info;
    }
    return option == TCP_INFO ? tell(target, length, &all, bytes)
                              : tell(target, length, &all.info.tcpi_snd_mss, sizeof all.info.tcpi_snd_mss);
}

static int board_getsockopt(int fd, int level, int option, void *target, socklen_t *length) {
    int kept = errno;
    struct found found;
    if (find_datagrams(fd, &found))
        return get_datagram_option(fd, &found, level, option, target, length);
    bool is_ours = find_or_adopt(fd, &found) && found.state != BOUND;
    if (board_path && level == IPPROTO_TCP && option == TCP_CONGESTION && (is_ours || stream_family(fd))) {
        int result = get_congestion(target, length);
        return result ? result : done(kept, 0);
    }
    if (!is_ours)
        return libc.getsockopt(fd, level, option, target, length);
    if (level == IPPROTO_IPV6 && found.known.domain == AF_INET)
        return fail(EOPNOTSUPP);
    int value = 0, at = option_at(level, option);
    if (at >= 0) {
        /* While a helper waits for the board, the local address is not known yet. */
        uint32_t number = found.known.options[at];
        bool is_listener = found.state == LISTENING || found.state == RESERVED;
        if (is_on_board(&found) && query_option(at, &found.known, is_listener, &number))
            number = found.known.options[at];
        return done(kept, tell_option(at, number, target, length));
    }
    if (level == SOL_SOCKET) {
        switch (option) {
        case SO_ERROR:
            if (found.state == CONNECTING) {
                value = outcome(fd, &found, 0);
                value = value == EINPROGRESS ? 0 : value;
            } else if (libc.getsockopt(fd, level, option, &value, &(socklen_t){sizeof value})) {
                return -1;
            } else if ((!value || value == ECONNRESET) && (ready_for(fd, POLLIN) & POLLHUP)) {
                value = error_of_end(fd, value);
            }
            return done(kept, tell(target, length, &value, sizeof value));
        case SO_DOMAIN:
            return tell(target, length, &found.known.domain, sizeof found.known.domain);
        case SO_PROTOCOL:
            value = IPPROTO_TCP;
            return tell(target, length, &value, sizeof value);
        case SO_TYPE:
            value = SOCK_STREAM;
            return tell(target, length, &value, sizeof value);
        case SO_ACCEPTCONN:
            value = found.state == LISTENING;
            return tell(target, length, &value, sizeof value);
        }
        return libc.getsockopt(fd, level, option, target, length);
    }
    if (level == IPPROTO_TCP && (option == TCP_INFO || option == TCP_MAXSEG))
        return done(kept, tell_info(&found, option, target, length));
    if (level == IPPROTO_TCP || level == IPPROTO_IP || level == IPPROTO_IPV6)
        return fail(ENOPROTOOPT);
    return libc.getsockopt(fd, level, option, target, length);
}

static int board_setsockopt(int fd, int level, int option, const void *value, socklen_t length) {
    int kept = errno, at = option_at(level, option);
    struct found found;
    uint32_t number;
    if (find_datagrams(fd, &found))
        return set_datagram_option(fd, &found, level, option, value, length);
    bool is_known = find_or_adopt(fd, &found), is_ours = is_known && found.state != BOUND;
    if (is_known && level == IPPROTO_IPV6 && found.known.domain == AF_INET)
        return fail(ENOPROTOOPT);
    /* The kernel does not know yet that the socket is bound. */
    if (is_known && !is_ours && at >= 0 && is_too_late(at, BOUND))
        return fail(EINVAL);
    if (board_path && (asks_for_protection(level, option) || is_beyond_board(level, option)) &&
        (is_ours || stream_family(fd)))
        return fail(ENOPROTOOPT);
    if (board_path && level == IPPROTO_TCP && option == TCP_CONGESTION && (is_ours || stream_family(fd))) {
        int result = set_congestion(value, length);
        return result ? result : done(kept, 0);
    }
    if (is_ours && level == SOL_SOCKET && option == SO_TIMESTAMPING)
        return fail(ENOPROTOOPT);
    if (!is_ours || (at < 0 && level == SOL_SOCKET))
        return libc.setsockopt(fd, level, option, value, length);
    /* As in Linux, the value comes before the option. */
    if (at < 0 && level == IPPROTO_TCP && (length < sizeof(int) || !value))
        return fail(length < sizeof(int) ? EINVAL : EFAULT);
    if (at < 0)
        return fail(ENOPROTOOPT);
    int error = read_option(at, value, length, &number);
    if (error || is_too_late(at, found.state))
        return fail(error ? error : EINVAL);
    if (is_on_board(&found)) {
        error = set_option(at, &found.known, found.state == LISTENING || found.state == RESERVED, number);
        /* A listener passes the size of its buffer on to accepted sockets. */
        if (!error && level == IPPROTO_TCP && option == TCP_NOTSENT_LOWAT)
            limit_unsent(fd, number);
        return error ? fail(error) : done(kept, 0);
    }
    found.known.options[at] = number;
    return rewrite(&found, found.state) ? done(kept, 0) : fail(ENOBUFS);
}

static int board_shutdown(int fd, int how) {
    int kept = errno;
    struct found found;
    if (find_datagrams(fd, &found)) {
        if (!found.known.name[REMOTE].any.sa_family)
            return fail(ENOTCONN);
        /* The board would take the end of the Unix socket for that of the datagram socket. */
        return how == SHUT_WR ? 0 : libc.shutdown(fd, SHUT_RD);
    }
    bool is_known = find_or_adopt(fd, &found);
    if (is_known && found.state == CONNECTING)
        outcome(fd, &found, 0);
    if (is_known && found.state == CONNECTED && how != SHUT_RD)
        flag(&found, HAS_FINISHED);
    return done(kept, libc.shutdown(fd, how));
}

static ssize_t board_readv(int fd, const struct iovec *parts, int count) {
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count};
    ssize_t result;
    if (receive_datagram(fd, &message, 0, &result))
        return result;
    return failed(fd) ? -1 : ended_parts(fd, libc.readv(fd, parts, count), parts, count, 0);
}

static ssize_t board_read(int fd, void *target, size_t bytes) {
    struct iovec part = {target, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t result;
    if (receive_datagram(fd, &message, 0, &result))
        return result;
    return failed(fd) ? -1 : ended(fd, libc.read(fd, target, bytes), bytes, 0);
}

/* Sockets have no offsets: only offset -1 reads from a stream. */
static ssize_t board_preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    if (failed(fd))
        return -1;
    ssize_t done = libc.preadv2(fd, parts, count, offset, flags);
    return ended_parts(fd, done, parts, count, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0);
}

static ssize_t board_recvfrom(int fd, void *target, size_t bytes, int flags, struct sockaddr *name, socklen_t *length) {
    struct iovec part = {target, bytes};
    struct msghdr message = {name, name && length ? *length : 0, &part, 1, NULL, 0, 0};
    ssize_t result;
    if (receive_datagram(fd, &message, flags, &result)) {
        if (result >= 0 && name && length)
            *length = message.msg_namelen;
        return result;
    }
    return failed(fd) ? -1 : ended(fd, libc.recvfrom(fd, target, bytes, flags, name, length), bytes, flags);
}

static ssize_t board_recv(int fd, void *target, size_t bytes, int flags) {
    return board_recvfrom(fd, target, bytes, flags, NULL, NULL);
}

static ssize_t board_recvmsg(int fd, struct msghdr *message, int flags) {
    ssize_t result;
    if (receive_datagram(fd, message, flags, &result))
        return result;
    if (failed(fd))
        return -1;
    ssize_t count = libc.recvmsg(fd, message, flags);
    if (count >= 0)
        look_for_datagrams(message);
    return count > 0 ? count : ended_parts(fd, count, message->msg_iov, message->msg_iovlen, flags);
}

static int board_recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *time) {
    int result;
    if (receive_datagrams(fd, messages, count, flags, time, &result))
        return result;
    if (failed(fd))
        return -1;
    int got = libc.recvmmsg(fd, messages, count, flags, time);
    for (int at = 0; at < got; at++)
        look_for_datagrams(&messages[at].msg_hdr);
    /* At the end of a stream, each message is empty. Return the data before it; the next call returns the
     * end. */
    for (int at = 0; at < got; at++)
        if (!messages[at].msg_len) {
            const struct msghdr *message = &messages[at].msg_hdr;
            ssize_t end = ended_parts(fd, 0, message->msg_iov, message->msg_iovlen, flags | (at ? MSG_PEEK : 0));
            if (end < 0)
                return at ? at : -1;
        }
    return got;
}

static ssize_t board_splice(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t bytes, unsigned flags) {
    if (failed(from))
        return -1;
    begin_write(to, flags & SPLICE_F_MORE);
    ssize_t count = libc.splice(from, from_offset, to, to_offset, bytes, flags);
    end_write(to, count, flags & SPLICE_F_MORE);
    return ended(from, count, bytes, flags & SPLICE_F_NONBLOCK ? MSG_DONTWAIT : 0);
}

/* Returns whether a call asks for TCP Fast Open on a stream socket, that is, for an implicit connect(). */
static bool asks_for_fast_open(int fd, int flags) {
    struct found found;
    return (flags & MSG_FASTOPEN) && board_path && (stream_family(fd) || find_or_adopt(fd, &found));
}

/* Returns whether an address that is passed with data is ignored: that of a connected stream, as in Linux. */
static bool ignores_name(int fd, const void *name) {
    struct found found;
    return name && find_or_adopt(fd, &found) && found.state == CONNECTED;
}

static ssize_t board_sendto(int fd, const void *from, size_t bytes, int flags, const struct sockaddr *name,
                            socklen_t length) {
    struct iovec part = {(void *)from, bytes};
    struct msghdr message = {(void *)name, length, &part, 1, NULL, 0, 0};
    ssize_t result;
    if (send_datagram(fd, &message, flags, &result))
        return result;
    if (asks_for_fast_open(fd, flags))
        return open_stream(fd, &message, true, flags);
    begin_write(fd, flags & MSG_MORE);
    if (ignores_name(fd, name))
        name = NULL, length = 0;
    result = libc.sendto(fd, from, bytes, flags, name, length);
    end_write(fd, result, flags & MSG_MORE);
    return result;
}

static ssize_t board_sendmsg(int fd, const struct msghdr *message, int flags) {
    struct msghdr nameless = *message;
    ssize_t result;
    if (send_datagram(fd, message, flags, &result))
        return result;
    if (asks_for_fast_open(fd, flags))
        return open_stream(fd, message, true, flags);
    begin_write(fd, flags & MSG_MORE);
    nameless.msg_name = NULL, nameless.msg_namelen = 0;
    result = libc.sendmsg(fd, ignores_name(fd, message->msg_name) ? &nameless : message, flags);
    end_write(fd, result, flags & MSG_MORE);
    return result;
}

static int board_sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags) {
    int result;
    if (send_datagrams(fd, messages, count, flags, &result))
        return result;
    if (count && asks_for_fast_open(fd, flags)) {
        /* The first message connects; for the second, the socket is already connected. */
        ssize_t sent = open_stream(fd, &messages->msg_hdr, true, flags);
        messages->msg_len = sent < 0 ? 0 : (unsigned)sent;
        return sent < 0 ? -1 : 1;
    }
    begin_write(fd, flags & MSG_MORE);
    result = libc.sendmmsg(fd, messages, count, flags);
    end_write(fd, result, flags & MSG_MORE);
    return result;
}

static ssize_t board_send(int fd, const void *from, size_t bytes, int flags) {
    return board_sendto(fd, from, bytes, flags, NULL, 0);
}

static ssize_t board_write(int fd, const void *from, size_t bytes) {
    struct iovec part = {(void *)from, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t result;
    if (send_datagram(fd, &message, 0, &result))
        return result;
    result = libc.write(fd, from, bytes);
    end_write(fd, result, false);
    return result;
}

static ssize_t board_writev(int fd, const struct iovec *parts, int count) {
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count};
    ssize_t result;
    if (send_datagram(fd, &message, 0, &result))
        return result;
    result = libc.writev(fd, parts, count);
    end_write(fd, result, false);
    return result;
}

BOARD_CALLS(ENTRY)
DATAGRAM_CALLS(ENTRY)

/* With _FILE_OFFSET_BITS=64. */
OURS ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    _Static_assert(sizeof(off_t) == sizeof(off64_t), "64-bit files");
    return preadv2(fd, parts, count, offset, flags);
}

static void begin(void) {
    read_board_path();
    begin_exec();
    begin_channel();
    begin_datagrams();
}

#define CALL(result, name, declared, given) .name = board_##name,
const struct backend backend = {.begin = begin, .calls = {SOCKET_CALLS(CALL) BOARD_CALLS(CALL) DATAGRAM_CALLS(CALL)}};
