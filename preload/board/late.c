/* A helper process that waits for a reply that the board has not sent in time (connect_by_helper()). */
#include "board.h"
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Writes until the socket is full. Returns the number of bytes written. */
static size_t fill(int file) {
    static const char nothing[16384];
    size_t count = 0;
    while (ready_for(file, POLLOUT) & POLLOUT) {
        ssize_t sent = send(file, nothing, sizeof nothing, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent <= 0)
            break;
        count += sent;
    }
    return count;
}

/* Relays bytes between two sockets until both directions have ended, or one side has closed. */
static void carry(int program, int far) {
    static char space[2][65536];
    int file[2] = {program, far};
    size_t from[2] = {0}, to[2] = {0};
    bool has_ended[2] = {false}, is_shut[2] = {false}, is_urgent[2] = {false};
    /* An urgent byte is read like the others, and passed on with MSG_OOB. */
    for (int i = 0, on = 1; i < 2; i++)
        libc.setsockopt(file[i], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
    while (!is_shut[0] || !is_shut[1]) {
        struct pollfd polled[2];
        for (int i = 0; i < 2; i++) {
            bool is_empty = from[i] == to[i];
            short events = (is_empty && !has_ended[i] ? POLLIN : 0) | (from[!i] != to[!i] ? POLLOUT : 0);
            /* Leave out a file for which no events are requested: after a hang-up, poll() would keep returning
             * at once. */
            bool is_polled = events || (i == 0 && is_empty && has_ended[0]);
            polled[i] = (struct pollfd){is_polled ? file[i] : -1, events, 0};
        }
        if (poll(polled, 2, -1) < 0)
            continue;
        for (int i = 0; i < 2; i++) {
            if (from[i] == to[i] && !has_ended[i] && (polled[i].revents & (POLLIN | POLLHUP | POLLERR))) {
                is_urgent[i] = sockatmark(file[i]) == 1;
                ssize_t count = libc.recv(file[i], space[i], is_urgent[i] ? 1 : sizeof space[i], MSG_DONTWAIT);
                if (count < 0 && errno != EAGAIN && errno != EINTR)
                    return;
                from[i] = 0;
                to[i] = count > 0 ? count : 0;
                has_ended[i] = count == 0;
            }
            if (from[i] != to[i]) {
                int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (is_urgent[i] ? MSG_OOB : 0);
                ssize_t count = send(file[!i], space[i] + from[i], to[i] - from[i], flags);
                if (count < 0 && errno != EAGAIN && errno != EINTR)
                    return;
                from[i] += count > 0 ? count : 0;
            }
            if (has_ended[i] && from[i] == to[i] && !is_shut[i]) {
                /* If the board hangs up before the program has sent its FIN, this is a reset; pass it on. */
                if (i == 1 && !is_shut[0] && (ready_for(far, POLLIN) & POLLHUP))
                    return;
                libc.shutdown(file[!i], SHUT_WR);
                is_shut[i] = true;
            }
        }
        /* The program has closed its end, so no more data can be delivered to it. */
        if (has_ended[0] && from[0] == to[0] && (polled[0].revents & POLLHUP))
            return;
    }
}

/* Binds the helper's end to a late reply, which the program reads with getpeername(). Its `slot` is the error
 * number, or zero. If binding fails, the program only sees that the helper has exited. */
static void store_reply(int end, int error, const struct entry *entry) {
    struct entry_name reply = {.family = AF_UNIX, .entry = *entry};
    memcpy(reply.tag, ENTRY_TAG, sizeof reply.tag);
    reply.entry.slot = error;
    if (getrandom(reply.random, sizeof reply.random, 0) != sizeof reply.random ||
        libc.bind(end, (struct sockaddr *)&reply, sizeof reply))
        _exit(1);
}

/* Connects. Returns the stream's socket, or a negative error number. */
static int connect_later(struct later *later, struct entry *reply) {
    int file = -1;
    fcntl(later->asker, F_SETFL, 0);
    if (!later->has_asked) {
        int error = begin_to_ask_with(later->asker, &later->entry, later->data, &later->bytes);
        if (error)
            return -error;
    }
    struct pollfd polled[2] = {{later->asker, POLLIN, 0}, {later->end, 0, 0}};
    while (poll(polled, 2, -1) <= 0)
        continue;
    if (!polled[0].revents)
        return -ECONNABORTED; /* The program has closed its end. */
    if (!receive(later->asker, reply, &file, 0))
        return -ECONNABORTED;
    bool is_boards = file >= 0 && reply->what == REPLY_OPENED;
    if (!is_boards && reply->code != NO_ROUTE && reply->code != BAD_ADDRESS)
        return reply->code ? -error_of(reply->code) : -EMFILE;
    union name local = {0}, remote = {0};
    socklen_t length = sizeof local;
    if (!is_boards) {
        /* The address belongs to the kernel's network after all. */
        file = later->own;
        fcntl(file, F_SETFL, O_NONBLOCK);
        remote = later->known.name[REMOTE];
        if ((later->known.was_bound && bind_at_last(file, &later->known)) ||
            (libc.connect(file, &remote.any, length_of(later->known.domain)) && errno != EINPROGRESS))
            return -errno;
    }
    polled[0] = (struct pollfd){file, POLLOUT, 0};
    while (poll(polled, 2, -1) <= 0)
        continue;
    if (!polled[0].revents)
        return -ECONNABORTED;
    if (!is_boards) {
        int error = 0;
        socklen_t bytes = sizeof error;
        libc.getsockopt(file, SOL_SOCKET, SO_ERROR, &error, &bytes);
        libc.getsockname(file, &local.any, &length);
        put(reply, LOCAL, &local);
        return error ? -error : file;
    }
    int error = polled[0].revents & POLLHUP ? outcome_of_hangup(file) : 0;
    return error ? -error : file;
}

/* Sends the data for which sendto() has returned, except for what the board has taken. */
static void send_first(int file, const struct later *later, size_t taken) {
    fcntl(file, F_SETFL, 0);
    size_t left = later->bytes;
    for (size_t at = 0; later->data && at < later->data->msg_iovlen && left; at++) {
        struct iovec part = later->data->msg_iov[at];
        size_t count = part.iov_len < left ? part.iov_len : left, skips = count < taken ? count : taken;
        left -= count;
        taken -= skips;
        for (ssize_t sent; skips < count; skips += sent)
            if ((sent = send(file, (char *)part.iov_base + skips, count - skips, MSG_NOSIGNAL)) < 0)
                return; /* carry() meets the error, too. */
    }
}

__attribute__((noreturn)) static void run_later(struct later *later) {
    static char waste[16384];
    struct entry reply = {0};
    /* Close all other files of the program. A pipe, for example, would not reach its end while a copy is open. */
    int channel = later->has_asked ? -1 : find_channel();
    int keep[4] = {later->own, later->asker, later->end, channel < 0 ? later->end : channel};
    for (int i = 0; i < 3; i++)
        for (int j = i + 1; j < 4; j++)
            if (keep[j] < keep[i]) {
                int other = keep[i];
                keep[i] = keep[j];
                keep[j] = other;
            }
    for (int i = 0, first = 0; i <= 4; i++) {
        unsigned last = i < 4 ? (unsigned)keep[i] - 1 : ~0u;
        if (i == 4 || keep[i] > first)
            syscall(SYS_close_range, first, last, 0);
        first = i < 4 ? keep[i] + 1 : 0;
    }
    int file = connect_later(later, &reply);
    if (channel >= 0)
        close(channel);
    put(&reply, REMOTE, &later->known.name[REMOTE]);
    store_reply(later->end, file < 0 ? -file : 0, &reply);
    if (file < 0)
        _exit(0);
    if (file != later->own)
        close(later->own);
    close(later->asker);
    /* Drain the filler bytes from the socket, so that the program can write. */
    while (later->filled > 0) {
        size_t part = later->filled < sizeof waste ? later->filled : sizeof waste;
        ssize_t count = libc.recv(later->end, waste, part, MSG_WAITALL);
        if (count <= 0)
            _exit(0);
        later->filled -= count;
    }
    send_first(file, later, reply.slot);
    fcntl(file, F_SETFL, O_NONBLOCK);
    fcntl(later->end, F_SETFL, O_NONBLOCK);
    carry(later->end, file);
    _exit(0);
}

/* Starts a helper process that waits for the board's reply. Returns 0 or an error number.
 *
 * Because of epoll, the descriptor must be replaced now, before the board has sent a socket. So it becomes one end of a
 * socket pair, which is not writable until the stream is open, and the helper relays the bytes. The helper is a process,
 * not a thread, because signal handlers may call connect() but cannot create threads. It receives no signals, and exits
 * when the stream ends. */
int connect_by_helper(int fd, struct later *later) {
    int ends[2], status = 0;
    sigset_t all, before;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return errno;
    later->filled = fill(ends[0]);
    later->own = fd;
    later->end = ends[1];
    later->known.is_late = true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* Do not use fork(), because pthread_atfork() handlers are not async-signal-safe. The program's wait() does
     * not see the child, which has no exit signal (__WCLONE) and is reaped here. The child's own child is adopted
     * by init. */
    long child = syscall(SYS_clone, 0, 0, 0, 0, 0);
    if (child == 0) {
        long waits = syscall(SYS_clone, 0, 0, 0, 0, 0);
        if (waits == 0)
            run_later(later);
        _exit(waits < 0);
    }
    while (child > 0 && waitpid((pid_t)child, &status, __WCLONE) < 0 && errno == EINTR)
        continue;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    if (child < 0 || !WIFEXITED(status) || WEXITSTATUS(status)) {
        close(ends[0]);
        return EAGAIN;
    }
    int error = replace_file(fd, ends[0]);
    if (error)
        return error;
    connects = true;
    return note(fd, later->known, CONNECTING);
}

/* Returns the outcome of a connect whose reply was late. Called when the descriptor is writable or has hung up. */
int outcome_of_late_reply(int fd, struct found *found, bool is_over) {
    struct entry reply;
    bool is_there = read_entry_name(fd, &reply);
    if (!is_there && !is_over)
        return EINPROGRESS;
    if (!is_there || reply.slot) {
        change(found, CONNECTING, FAILED);
        return is_there ? (int)reply.slot : ECONNABORTED;
    }
    found->known.name[LOCAL] = name_of(&reply, LOCAL, found->known.domain);
    if (!rewrite(found, CONNECTED))
        return EINPROGRESS; /* If no record is free, the next call retries. */
    size_send_buffer(fd, &found->known);
    send_options(&found->known, false);
    return 0;
}
