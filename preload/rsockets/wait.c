/* poll(), select() and epoll_wait() over rsockets, which the kernel cannot poll, and other descriptors. */
#include "rsockets.h"
#include <pthread.h>

static bool has_rsocket(const struct pollfd *files, nfds_t count) {
    for (nfds_t i = 0; i < count; i++)
        if (over(files[i].fd) >= 0)
            return true;
    return false;
}

/* Like ppoll(2), but also accepts rsockets, by their own descriptors. rpoll() checks the rsockets and arms their
 * notifications; the thread then sleeps in the system's ppoll(), holding no locks. */
int rpoll_held(struct pollfd *files, nfds_t count, int timeout, const sigset_t *mask) {
    struct pollfd few[64], *asleep = count <= 64 ? few : NULL;
    int64_t end = timeout < 0 ? INT64_MAX : microseconds() + (int64_t)timeout * 1000;
    sigset_t before;
    int ready;
    block_signals(&before);
    for (;;) {
        int64_t left = end == INT64_MAX ? INT64_MAX : end - microseconds();
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
        if (libc.ppoll(asleep, count, &time, mask ? mask : &before) < 0) {
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

static int poll_all(struct pollfd *files, nfds_t count, int timeout, const sigset_t *mask) {
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

int rs_poll(struct pollfd *files, nfds_t count, int timeout) {
    if (!has_rsocket(files, count))
        return libc.poll(files, count, timeout);
    return poll_all(files, count, timeout, NULL);
}

static int milliseconds(const struct timespec *time) {
    if (!time)
        return -1;
    int64_t all = (int64_t)time->tv_sec * 1000 + (time->tv_nsec + 999999) / 1000000;
    return all > INT32_MAX ? INT32_MAX : (int)all;
}

int rs_ppoll(struct pollfd *files, nfds_t count, const struct timespec *time, const sigset_t *mask) {
    if (!has_rsocket(files, count))
        return libc.ppoll(files, count, time, mask);
    return poll_all(files, count, milliseconds(time), mask);
}

static int select_all(int count, fd_set *sets[3], int timeout, const sigset_t *mask) {
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

static bool selects_rsocket(int count, fd_set *sets[3]) {
    for (int file = 0; file < count && file < FD_SETSIZE; file++)
        for (int i = 0; i < 3; i++)
            if (sets[i] && FD_ISSET(file, sets[i]) && over(file) >= 0)
                return true;
    return false;
}

int rs_select(int count, fd_set *reads, fd_set *writes, fd_set *excepts, struct timeval *time) {
    fd_set *sets[3] = { reads, writes, excepts };
    if (!selects_rsocket(count, sets))
        return libc.select(count, reads, writes, excepts, time);
    struct timespec wait = time ? (struct timespec){ time->tv_sec, time->tv_usec * 1000 } : (struct timespec){ 0, 0 };
    return select_all(count > FD_SETSIZE ? FD_SETSIZE : count, sets, milliseconds(time ? &wait : NULL), NULL);
}

int rs_pselect(int count, fd_set *reads, fd_set *writes, fd_set *excepts, const struct timespec *time,
            const sigset_t *mask)
{
    fd_set *sets[3] = { reads, writes, excepts };
    if (!selects_rsocket(count, sets))
        return libc.pselect(count, reads, writes, excepts, time, mask);
    return select_all(count > FD_SETSIZE ? FD_SETSIZE : count, sets, milliseconds(time), mask);
}

/* ---- epoll */

/* An rsocket in an epoll set. */
struct watch {
    int epoll, file;
    struct epoll_event event;
};
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct watch *watches;
static _Atomic size_t watched;
static size_t watch_room;

/* Handlers may close descriptors, so block signals while holding the lock. */
static void take_watches(sigset_t *before) {
    block_signals(before);
    pthread_mutex_lock(&watch_lock);
}

static void leave_watches(const sigset_t *before) {
    pthread_mutex_unlock(&watch_lock);
    restore_signals(before);
}

/* Called in a forked child. Resets the lock, which a thread of the parent may have held, and forgets the parent's
 * rsockets. */
void on_fork(void) {
    pthread_mutex_init(&watch_lock, NULL);
    watched = watch_room = 0;
    watches = NULL;
    for (int i = 0; i < FILES; i++)
        atomic_store_explicit(&numbers_of[i], 0, memory_order_relaxed);
}

void forget_epoll(int file) {
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

int rs_epoll_ctl(int epoll, int operation, int file, struct epoll_event *event) {
    if (over(file) < 0)
        return libc.epoll_ctl(epoll, operation, file, event);
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
            /* The socket was added before it connected. When the rsocket replaced it, the system removed it
             * from the set. */
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

static bool watches_rsocket(int epoll) {
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

static int wait_all(int epoll, struct epoll_event *events, int most, int timeout, const sigset_t *mask) {
    int64_t end = timeout < 0 ? INT64_MAX : microseconds() / 1000 + timeout;
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
            /* Skip rsockets that have reported all their edges or their one-shot event: at the end of the
             * stream they would be ready forever. */
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
        /* Edges re-enabled by a call in another thread are found by the next check. */
        int64_t left = end == INT64_MAX ? 200 : end - microseconds() / 1000;
        int ready = poll_all(files, used + 1, left < 0 ? 0 : left > 200 ? 200 : (int)left, mask), count = 0;
        if (ready > 0 && files[used].revents)
            count = libc.epoll_wait(epoll, events, most, 0);
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
        if (microseconds() / 1000 >= end)
            return 0;
    }
}

int rs_epoll_wait(int epoll, struct epoll_event *events, int most, int timeout) {
    if (most <= 0 || !watches_rsocket(epoll))
        return libc.epoll_wait(epoll, events, most, timeout);
    return wait_all(epoll, events, most, timeout, NULL);
}

int rs_epoll_pwait(int epoll, struct epoll_event *events, int most, int timeout, const sigset_t *mask) {
    if (most <= 0 || !watches_rsocket(epoll))
        return libc.epoll_pwait(epoll, events, most, timeout, mask);
    return wait_all(epoll, events, most, timeout, mask);
}

OURS int __poll_chk(struct pollfd *files, nfds_t count, int timeout, size_t room) {
    if (room / sizeof *files < count)
        abort();
    return poll(files, count, timeout);
}
