/* The calls that receive and send. The rsocket is non-blocking, so blocking calls are implemented here by retrying. */
#include "rsockets.h"

/* Receives data; with MSG_WAITALL, waits until the buffer is full. */
static ssize_t receive(int file, uint64_t entry, void *at, size_t length, int flags) {
    size_t got = 0;
    for (;;) {
        ssize_t count = UNTIL(file, entry, flags, rrecv(rs, (char *)at + got, length - got, flags));
        got += count > 0 ? count : 0;
        if (count <= 0 || got == length || !(flags & MSG_WAITALL) || (flags & MSG_PEEK) || !blocks(entry, flags))
            return got ? (ssize_t)got : count;
    }
}

ssize_t rs_recv(int file, void *at, size_t length, int flags) {
    uint64_t entry = entry_of(file);
    return !entry ? libc.recv(file, at, length, flags)
                  : reset_edge(file, EPOLLIN, receive(file, entry, at, length, flags), length);
}

ssize_t rs_recvfrom(int file, void *at, size_t length, int flags, struct sockaddr *from, socklen_t *from_length) {
    uint64_t entry = entry_of(file);
    if (!entry)
        return libc.recvfrom(file, at, length, flags, from, from_length);
    ssize_t count = reset_edge(file, EPOLLIN, receive(file, entry, at, length, flags), length);
    if (count > 0 && from && from_length)
        ONCE(file, entry, rgetpeername(rs, from, from_length));
    return count;
}

/* Receives into several buffers. With MSG_WAITALL, fills them all; otherwise returns what is available. */
static ssize_t receive_parts(int file, uint64_t entry, const struct iovec *parts, size_t count, int flags) {
    ssize_t got = UNTIL(file, entry, flags, rreadv(rs, parts, (int)count));
    if (got <= 0 || !(flags & MSG_WAITALL) || !blocks(entry, flags))
        return got;
    size_t at = got;
    for (size_t part = 0; part < count; part++) {
        size_t length = parts[part].iov_len;
        if (at >= length) {
            at -= length;
            continue;
        }
        ssize_t more = receive(file, entry, (char *)parts[part].iov_base + at, length - at, flags);
        got += more > 0 ? more : 0;
        if (more < (ssize_t)(length - at))
            break;
        at = 0;
    }
    return got;
}

ssize_t rs_recvmsg(int file, struct msghdr *message, int flags) {
    uint64_t entry = entry_of(file);
    if (!entry)
        return libc.recvmsg(file, message, flags);
    /* Rsockets have no ancillary data. */
    message->msg_controllen = 0;
    if ((flags & MSG_WAITALL) && !(flags & (MSG_PEEK | MSG_OOB))) {
        message->msg_namelen = 0;
        message->msg_flags = 0;
        ssize_t got = receive_parts(file, entry, message->msg_iov, message->msg_iovlen, flags);
        return reset_edge(file, EPOLLIN, got, SIZE_MAX);
    }
    return reset_edge(file, EPOLLIN, UNTIL(file, entry, flags, rrecvmsg(rs, message, flags)), SIZE_MAX);
}

ssize_t rs_read(int file, void *at, size_t length) {
    uint64_t entry = entry_of(file);
    return !entry ? libc.read(file, at, length)
                  : reset_edge(file, EPOLLIN, receive(file, entry, at, length, 0), length);
}

ssize_t rs_readv(int file, const struct iovec *parts, int count) {
    uint64_t entry = entry_of(file);
    return !entry ? libc.readv(file, parts, count)
                  : reset_edge(file, EPOLLIN, UNTIL(file, entry, 0, rreadv(rs, parts, count)), SIZE_MAX);
}

/* Raises SIGPIPE along with EPIPE, unless MSG_NOSIGNAL is set. */
static ssize_t sent(int file, ssize_t done, size_t wanted, int flags) {
    if (done < 0 && errno == EPIPE && !(flags & MSG_NOSIGNAL)) {
        raise(SIGPIPE);
        errno = EPIPE;
    }
    return reset_edge(file, EPOLLOUT, done, wanted);
}

/* Sends data; a blocking call sends all of it. */
static ssize_t transmit(int file, uint64_t entry, const void *at, size_t length, int flags) {
    size_t gone = 0;
    for (;;) {
        ssize_t count = UNTIL(file, entry, flags, rsend(rs, (const char *)at + gone, length - gone, flags));
        gone += count > 0 ? count : 0;
        if (count < 0 || gone == length || !blocks(entry, flags))
            return gone ? (ssize_t)gone : count;
    }
}

/* Sends the rest of the buffers after the first `gone` bytes. Returns the total number of bytes sent. */
static ssize_t transmit_rest(int file, uint64_t entry, const struct iovec *parts, size_t count, ssize_t gone,
                             int flags)
{
    if (gone < 0 || !blocks(entry, flags))
        return gone;
    size_t at = gone;
    for (size_t part = 0; part < count; part++) {
        size_t length = parts[part].iov_len;
        if (at >= length) {
            at -= length;
            continue;
        }
        ssize_t more = transmit(file, entry, (const char *)parts[part].iov_base + at, length - at, flags);
        gone += more > 0 ? more : 0;
        if (more < (ssize_t)(length - at))
            break;
        at = 0;
    }
    return gone;
}

ssize_t rs_send(int file, const void *at, size_t length, int flags) {
    uint64_t entry = entry_of(file);
    return !entry ? libc.send(file, at, length, flags)
                  : sent(file, transmit(file, entry, at, length, flags), length, flags);
}

ssize_t rs_sendto(int file, const void *at, size_t length, int flags, const struct sockaddr *to, socklen_t to_length) {
    uint64_t entry = entry_of(file);
    /* The address is ignored on a stream socket (send(2)). */
    return !entry ? libc.sendto(file, at, length, flags, to, to_length)
                  : sent(file, transmit(file, entry, at, length, flags), length, flags);
}

ssize_t rs_sendmsg(int file, const struct msghdr *message, int flags) {
    uint64_t entry = entry_of(file);
    if (!entry)
        return libc.sendmsg(file, message, flags);
    ssize_t gone = UNTIL(file, entry, flags, rsendmsg(rs, message, flags));
    return sent(file, transmit_rest(file, entry, message->msg_iov, message->msg_iovlen, gone, flags), SIZE_MAX, flags);
}

ssize_t rs_write(int file, const void *at, size_t length) {
    uint64_t entry = entry_of(file);
    return !entry ? libc.write(file, at, length) : sent(file, transmit(file, entry, at, length, 0), length, 0);
}

ssize_t rs_writev(int file, const struct iovec *parts, int count) {
    uint64_t entry = entry_of(file);
    if (!entry)
        return libc.writev(file, parts, count);
    ssize_t gone = UNTIL(file, entry, 0, rwritev(rs, parts, count));
    return sent(file, transmit_rest(file, entry, parts, count, gone, 0), SIZE_MAX, 0);
}

ssize_t rs_sendfile(int to, int from, off_t *offset, size_t count) {
    uint64_t entry = entry_of(to);
    if (!entry)
        return libc.sendfile(to, from, offset, count);
    char part[65536];
    size_t done = 0;
    while (done < count) {
        size_t wanted = count - done < sizeof part ? count - done : sizeof part;
        off_t at = offset ? *offset : lseek(from, 0, SEEK_CUR);
        ssize_t got = pread(from, part, wanted, at);
        if (got <= 0)
            return done ? (ssize_t)done : got;
        ssize_t gone = sent(to, transmit(to, entry, part, got, 0), got, 0);
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

OURS ssize_t sendfile64(int to, int from, off64_t *offset, size_t count) {
    _Static_assert(sizeof(off_t) == sizeof(off64_t), "64-bit files");
    return (BYPASSED ? libc.sendfile : rs_sendfile)(to, from, (off_t *)offset, count);
}
