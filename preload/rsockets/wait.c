/* poll(), select() and epoll_wait() over rsockets, which the kernel cannot poll, and other descriptors. */
#include "rsockets.h"

static bool has_rsocket(const struct pollfd *files, nfds_t count) {
    for (nfds_t i = 0; i < count; i++)
        if (entry_of(files[i].fd))
            return true;
    return false;
}

/* Copies what the program polls to `asked` and `asleep`, in which rsockets have their own numbers. Returns 0, or fails
 * with LOOK_ERROR(). */
static int look_up(const struct pollfd *files, struct pollfd *asked, struct pollfd *asleep, nfds_t count) {
    for (nfds_t i = 0; i < count; i++) {
        uint64_t entry = entry_of(files[i].fd);
        if (LOOK_ERROR(entry))
            return fail(LOOK_ERROR(entry));
        int number = entry ? RSOCKET_OF(entry) : files[i].fd;
        asked[i] = (struct pollfd){ .fd = number, .events = files[i].events };
        asleep[i] = (struct pollfd){ .fd = number, .events = entry ? POLLIN : files[i].events };
    }
    return 0;
}

/* Waits for `asked`. rpoll() checks the rsockets and arms their notifications; the thread then sleeps in the
 * system's ppoll() on `asleep`, holding no locks. Both are filled from `files` before each round, unless that is
 * NULL, because another thread may close a descriptor meanwhile. Signals must be blocked; they are delivered while
 * the thread sleeps. */
static int poll_both(const struct pollfd *files, struct pollfd *asked, struct pollfd *asleep, nfds_t count, int timeout,
                     const sigset_t *mask)
{
    int64_t end = timeout < 0 ? INT64_MAX : microseconds() + (int64_t)timeout * 1000;
    for (;;) {
        if (files && look_up(files, asked, asleep, count))
            return -1;
        int64_t left = end == INT64_MAX ? INT64_MAX : end - microseconds();
        int ready = rpoll(asked, count, left > 1000);
        if (ready || left <= 0)
            return ready;
        struct timespec time = { 0, left < SLEEP_NANOS / 1000 ? left * 1000 : SLEEP_NANOS };
        if (libc.ppoll(asleep, count, &time, mask) < 0)
            return -1;
    }
}

/* Waits until an rsocket that is connecting has connected. Returns false if it fails, or if a signal
 * interrupts the attempt. */
bool becomes_connected(int rs) {
    struct pollfd asked = { .fd = rs, .events = POLLOUT }, asleep = { .fd = rs, .events = POLLIN };
    sigset_t before;
    block_signals(&before);
    int ready = poll_both(NULL, &asked, &asleep, 1, timeout_ms, &before);
    restore_signals(&before);
    return ready == 1 && !(asked.revents & (POLLERR | POLLHUP));
}

/* Like ppoll(2), but also accepts rsockets. Signals must be blocked. */
static int poll_blocked(struct pollfd *files, nfds_t count, int timeout, const sigset_t *mask) {
    struct pollfd few[2 * 64], *asked = count <= 64 ? few : calloc(count, 2 * sizeof *asked);
    if (!asked)
        return fail(ENOMEM);
    int ready = poll_both(files, asked, asked + count, count, timeout, mask), kept = errno;
    for (nfds_t i = 0; i < count && ready >= 0; i++)
        files[i].revents = asked[i].revents;
    if (asked != few)
        free(asked);
    errno = kept;
    return ready;
}

static int poll_all(struct pollfd *files, nfds_t count, int timeout, const sigset_t *mask) {
    sigset_t before;
    block_signals(&before);
    int ready = poll_blocked(files, count, timeout, mask ? mask : &before);
    restore_signals(&before);
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
            if (sets[i] && FD_ISSET(file, sets[i]) && entry_of(file))
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

/* ---- epoll: the kernel cannot poll an rsocket, so `watches` lists the rsockets in each epoll set. To recognise the
 * set when its number has been reused, the set itself contains the rsocket's own descriptor, with no events, as a mark
 * (all epoll descriptors have the same inode). The kernel removes the mark when the rsocket is closed. */

static int control_mark(int epoll, int operation, uint64_t entry) {
    struct epoll_event none = { .events = 0 };
    return libc.epoll_ctl(epoll, operation, RSOCKET_OF(entry), &none);
}

/* Returns whether the descriptor of a watch still refers to its rsocket, and its epoll descriptor to its set. */
static bool is_current(const struct watch *watch) {
    return atomic_load(&table.entries[watch->file]) == watch->entry &&
           !control_mark(watch->epoll, EPOLL_CTL_MOD, watch->entry);
}

/* The functions below that read or write `watches` need the lock. Signals must be blocked, because a handler may
 * need it, too. */

/* Removes the watches that are not current from an epoll set, or from all sets (-1). Preserves errno. */
static void drop_stale(int epoll) {
    int kept = errno;
    for (size_t i = 0; i < table.watched;)
        if ((epoll < 0 || table.watches[i].epoll == epoll) && !is_current(&table.watches[i]))
            table.watches[i] = table.watches[--table.watched];
        else
            i++;
    errno = kept;
}

/* Returns the watch of a descriptor or of an rsocket in an epoll set, or NULL. */
static struct watch *find_watch(int epoll, int file, uint64_t entry) {
    for (struct watch *watch = table.watches; watch < table.watches + table.watched; watch++)
        if (watch->epoll == epoll && (watch->file == file || watch->entry == entry))
            return watch;
    return NULL;
}

/* Returns an error number. */
static int change_watch(int epoll, int operation, int file, uint64_t entry, const struct epoll_event *event) {
    drop_stale(epoll);
    struct watch *known = find_watch(epoll, file, 0);
    if (operation == EPOLL_CTL_DEL) {
        /* If it is not known, the socket was added before it connected. When the rsocket replaced it, the
         * system removed it from the set. */
        if (known) {
            *known = table.watches[--table.watched];
            if (!find_watch(epoll, -1, entry))
                control_mark(epoll, EPOLL_CTL_DEL, entry);
        }
        return 0;
    }
    if (!event)
        return EFAULT;
    if (operation == EPOLL_CTL_ADD && known)
        return EEXIST;
    if (table.watched == FILES)
        drop_stale(-1);
    if (!known && table.watched == FILES)
        return ENOSPC;
    /* A copy of the descriptor may be in the set, and with it the mark. */
    if (!known && control_mark(epoll, EPOLL_CTL_ADD, entry) && errno != EEXIST)
        return errno;
    *(known ? known : &table.watches[table.watched++]) = (struct watch){ epoll, file, entry, *event };
    atomic_store(&table.has_watches[epoll], true);
    atomic_store(&table.edges_reported[file], 0);
    return 0;
}

static int control_watch(int epoll, int operation, int file, uint64_t entry, const struct epoll_event *event) {
    int kept = errno;
    pthread_mutex_lock(&table.watch_lock);
    int error = change_watch(epoll, operation, file, entry, event);
    pthread_mutex_unlock(&table.watch_lock);
    errno = error ? error : kept;
    return error ? -1 : 0;
}

int rs_epoll_ctl(int epoll, int operation, int file, struct epoll_event *event) {
    uint64_t entry = entry_of(file);
    if (!entry)
        return libc.epoll_ctl(epoll, operation, file, event);
    if (epoll < 0 || epoll >= FILES)
        return fail(epoll < 0 ? EBADF : EMFILE);
    return ONCE(file, entry, control_watch(epoll, operation, file, entry, event));
}

static bool has_watch(int epoll) {
    bool found = false;
    pthread_mutex_lock(&table.watch_lock);
    for (size_t i = 0; i < table.watched && !found; i++)
        found = table.watches[i].epoll == epoll;
    atomic_store(&table.has_watches[epoll], found);
    pthread_mutex_unlock(&table.watch_lock);
    return found;
}

static bool watches_rsocket(int epoll) {
    return epoll >= 0 && epoll < FILES && atomic_load(&table.has_watches[epoll]) && SIGNALS_BLOCKED(has_watch(epoll));
}

/* Polls the rsockets of an epoll set together with the set itself, for 200 ms at most. Returns the number
 * of events, or -1. Signals must be blocked. */
static int wait_once(int epoll, struct epoll_event *events, int most, int timeout, const sigset_t *mask) {
    /* Rsockets that another thread adds now are found by the next check, as are edges that it re-enables. */
    size_t room = table.watched, used = 0;
    struct watch *own = calloc(room + 1, sizeof *own);
    struct pollfd *files = calloc(room + 1, sizeof *files);
    int ready = -1, count = 0;
    if (!own || !files) {
        errno = ENOMEM;
    } else {
        pthread_mutex_lock(&table.watch_lock);
        drop_stale(epoll);
        for (size_t i = 0; i < table.watched && used < room; i++)
            if (table.watches[i].epoll == epoll)
                own[used++] = table.watches[i];
        pthread_mutex_unlock(&table.watch_lock);
        for (size_t i = 0; i < used; i++) {
            unsigned wanted = own[i].event.events;
            if (wanted & EPOLLET)
                wanted &= ~atomic_load(&table.edges_reported[own[i].file]);
            /* Skip rsockets that have reported all their edges or their one-shot event: at the end of the
             * stream they would be ready forever. poll_blocked() fails if an entry cannot be looked up. */
            uint64_t entry = entry_of(own[i].file);
            bool is_same = entry == own[i].entry || LOOK_ERROR(entry);
            bool asks = (wanted & (EPOLLIN | EPOLLOUT | EPOLLRDHUP)) && is_same;
            files[i] = (struct pollfd){ .fd = asks ? own[i].file : -1, .events = (short)wanted };
        }
        files[used] = (struct pollfd){ .fd = epoll, .events = POLLIN };
        ready = poll_blocked(files, used + 1, timeout, mask);
        if (ready > 0 && files[used].revents)
            count = libc.epoll_wait(epoll, events, most, 0);
    }
    for (size_t i = 0; i < used && ready > 0 && count >= 0 && count < most; i++) {
        unsigned found = (unsigned short)files[i].revents;
        if (!found || files[i].fd < 0 || atomic_load(&table.entries[files[i].fd]) != own[i].entry)
            continue;
        events[count++] = (struct epoll_event){ .events = found, .data = own[i].event.data };
        if (own[i].event.events & EPOLLET)
            atomic_fetch_or(&table.edges_reported[own[i].file], found & (EPOLLIN | EPOLLOUT | EPOLLRDHUP));
        if (own[i].event.events & EPOLLONESHOT) {
            pthread_mutex_lock(&table.watch_lock);
            struct watch *watch = find_watch(epoll, own[i].file, 0);
            if (watch)
                watch->event.events = EPOLLONESHOT;
            pthread_mutex_unlock(&table.watch_lock);
        }
    }
    int kept = errno;
    free(own);
    free(files);
    errno = kept;
    return ready < 0 ? -1 : count;
}

static int wait_all(int epoll, struct epoll_event *events, int most, int timeout, const sigset_t *mask) {
    int64_t end = timeout < 0 ? INT64_MAX : microseconds() / 1000 + timeout, left;
    sigset_t before;
    int count;
    block_signals(&before);
    do {
        left = end == INT64_MAX ? 200 : end - microseconds() / 1000;
        count = wait_once(epoll, events, most, left < 0 ? 0 : left > 200 ? 200 : (int)left, mask ? mask : &before);
    } while (!count && left > 0);
    restore_signals(&before);
    return count;
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
