/* libkiban_sockets.so: lets unmodified programs use the TCP of a running board (kiban run, docs/attach.md).
 *
 * Purpose          LD_PRELOAD=libkiban_sockets.so KIBAN_SOCKETS=PATH PROGRAM: connections that the program
 *                  opens or accepts go through the board.
 * Operation        a socket remains the kernel's until connect() or listen(). Then the library sends one
 *                  request to the board (entries of kiban_board::streams), and the Unix socket in the reply
 *                  replaces the program's descriptor; the board carries its bytes. So poll, epoll, select,
 *                  sendfile, dup, fork, exec and threads work unchanged; only names, options and shutdown are
 *                  handled here.
 * Addresses        the board's own, and all to which it has a route. 127.0.0.0/8, ::1 and all others stay
 *                  with the kernel. A listener on an unspecified address listens on the board only.
 * Connecting       connect() on a non-blocking socket returns EINPROGRESS; the socket is writable when the
 *                  stream is open. If the board has not replied after PROMPT_MS, a helper process waits for
 *                  the reply instead of the program (connect_by_helper()). The same happens if a signal or
 *                  SO_SNDTIMEO ends a blocking connect().
 * Signal handlers  functions that POSIX calls async-signal-safe (POSIX.1-2017 2.4.3) remain so: nothing here
 *                  locks or allocates. The state of a descriptor is an immutable record behind one atomic
 *                  word; readers copy the record and check the word again. A fork may therefore happen at any
 *                  moment. Successful calls preserve errno.
 * End              a stream that was reset reads as ECONNRESET: the board has hung up before this side has
 *                  finished. If this side has finished, the library queries the board.
 * Ports            after bind() to port 0, listen() or connect() chooses the port. A getsockname() before
 *                  that makes the board listen, so that the port stays reserved for the socket.
 * Not implemented  descriptors that were added to epoll or duplicated (dup) before they connected: these
 *                  copies keep the kernel's socket; UDP; urgent data; SO_LINGER; names after exec; errors at
 *                  bind(): listen() returns them; the local name of a stream before the board has replied. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* An entry of kiban_board::streams; the two endpoints are the local and the remote one. */
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
enum { REPLY_LISTENING = 1, REPLY_OPENED = 2, REPLY_ACCEPTED = 3, REPLY_ENDED = 5 };
enum { LOCAL, REMOTE };
enum { CLOSED = 1, NO_ROUTE = 6, BAD_ADDRESS = 7 };

/* State of a descriptor, valid while it refers to the same file. RESERVED: bound to a port that the board
 * has chosen; the board listens there, but the program does not yet. FAILED: may connect again. */
enum state { NOTHING, BOUND, RESERVED, CONNECTING, FAILED, CONNECTED, LISTENING };
union name {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};
struct known {
    uint64_t device, inode;
    /* The ticket of a pending reply (connect_by_helper()), or 0. */
    uint64_t ticket;
    union name name[2];
    int domain, was_bound;
};

/* Descriptors from this number on stay with the kernel. */
#define FILES 65536
/* The number of records: one per descriptor, and some for calls in progress. */
#define RECORDS (FILES + 1024)
#define WORDS (sizeof(struct known) / sizeof(uint64_t))
_Static_assert(sizeof(struct known) % sizeof(uint64_t) == 0, "copied word by word");
static _Atomic uint64_t records[RECORDS][WORDS];
static _Atomic uint32_t generations[RECORDS], next_free[RECORDS];
/* free_list: the index of the first free record plus one in the lower half, a counter in the upper half. The
 * other word: the first record that was never used. */
static _Atomic uint64_t free_list;
static _Atomic uint32_t fresh;
/* By descriptor: record plus one, flags, and generation of the record. Readers copy the record and check
 * that the word is unchanged: no thread waits for another. */
static _Atomic uint64_t slots[FILES];
#define INDEX 0xffffffull
#define STATE (7ull << 24)
#define HAS_FINISHED (8ull << 24)
#define END_IS_KNOWN (16ull << 24)
#define FLAGS (0xffull << 24)
#define STATE_OF(word) ((enum state)(((word) & STATE) >> 24))
/* Descriptors from this number on have no record. */
static _Atomic int beyond;
/* Whether any descriptor has a record: if not, a read costs only this check. */
static _Atomic bool any;
/* Whether any descriptor connects or has connected: if not, reads skip the lookup. */
static _Atomic bool connects;
/* Whether any descriptor listens or has listened. */
static _Atomic bool listens;

/* The result of a lookup: index, word, and a copy of the record. */
struct found {
    int at;
    uint64_t word;
    enum state state;
    struct known known;
};

/* How long a non-blocking connect() waits for the board's reply, which usually takes less than a tenth of
 * this. */
#define PROMPT_MS 10
/* A reply that the board sent late: written once, by the helper process that waits for it. */
struct promise {
    _Atomic uint64_t state;
    _Atomic uint64_t reply[sizeof(struct entry) / sizeof(uint64_t)];
};
enum { PENDING = 1, KEPT = 2, BROKEN = 3 };
#define PROMISES 1024
static struct promise *promises;
static _Atomic uint64_t tickets;

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

static _Atomic bool is_prepared;
/* The path of the board's socket. A path too long for a socket address is split into directory and name. */
static char path_buffer[PATH_MAX];
static const char *board_path, *name_in_folder;

static void find_all(void) {
    find_connect(), find_bind(), find_listen(), find_accept4(), find_getsockname(), find_getpeername();
    find_getsockopt(), find_setsockopt(), find_shutdown(), find_read(), find_readv(), find_recv();
    find_recvfrom(), find_recvmsg();
    const char *said = getenv("KIBAN_SOCKETS");
    if (said && *said) {
        /* A path too long for the system leads to no board, and never to the host's own network. */
        if (strlen(said) < sizeof path_buffer)
            strcpy(path_buffer, said);
        char *last = strlen(path_buffer) < sizeof((struct sockaddr_un *)0)->sun_path ? NULL : strrchr(path_buffer, '/');
        if (last) {
            *last = 0;
            name_in_folder = last + 1;
        }
        board_path = path_buffer;
    }
    if (board_path && !promises) {
        void *shared = mmap(NULL, PROMISES * sizeof *promises, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        promises = shared == MAP_FAILED ? NULL : shared;
    }
    atomic_store(&is_prepared, true);
}

/* Runs before main(), or earlier if another library's constructor makes a call; running twice is harmless. */
__attribute__((constructor)) static void begin(void) {
    if (!atomic_load_explicit(&is_prepared, memory_order_acquire))
        find_all();
}

/* ---- Records ---- */

/* Returns an unused record, or RECORDS if there is none. */
static uint32_t take_record(void) {
    uint64_t head = atomic_load(&free_list);
    while (head & INDEX) {
        uint32_t first = (uint32_t)(head & INDEX) - 1;
        /* The counter detects that the head was taken and returned in the meantime (ABA). */
        uint64_t rest = ((head >> 32) + 1) << 32 | atomic_load(&next_free[first]);
        if (atomic_compare_exchange_weak(&free_list, &head, rest))
            return first;
    }
    uint32_t number = atomic_load(&fresh);
    while (number < RECORDS)
        if (atomic_compare_exchange_weak(&fresh, &number, number + 1))
            return number;
    return RECORDS;
}

static void give_back(uint64_t word) {
    if (!(word & INDEX))
        return;
    uint64_t head = atomic_load(&free_list), now;
    do {
        atomic_store(&next_free[(word & INDEX) - 1], (uint32_t)(head & INDEX));
        now = (head & ~INDEX) | (word & INDEX);
    } while (!atomic_compare_exchange_weak(&free_list, &head, now));
}

/* Stores a record, and returns its word; 0 if no record is free. */
static uint64_t record_of(const struct known *what, uint64_t flags) {
    uint64_t words[WORDS];
    uint32_t record = take_record();
    if (record == RECORDS)
        return 0;
    memcpy(words, what, sizeof words);
    /* A reader that sees one of these words also sees that the record has left its descriptor. */
    atomic_thread_fence(memory_order_release);
    for (unsigned at = 0; at < WORDS; at++)
        atomic_store_explicit(&records[record][at], words[at], memory_order_relaxed);
    uint64_t generation = atomic_fetch_add(&generations[record], 1) + 1u;
    return generation << 32 | flags | (record + 1);
}

/* Reads the record at an index. Returns whether it describes this file. */
static bool read_at(int at, const struct stat *is, struct found *found) {
    uint64_t words[WORDS], word = atomic_load(&slots[at]), now;
    for (;; word = atomic_load(&slots[at])) {
        if (!(word & INDEX))
            return false;
        for (unsigned part = 0; part < WORDS; part++)
            words[part] = atomic_load_explicit(&records[(word & INDEX) - 1][part], memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        now = atomic_load(&slots[at]);
        if (!((now ^ word) & ~FLAGS))
            break;
    }
    memcpy(&found->known, words, sizeof words);
    found->at = at;
    found->word = now;
    found->state = STATE_OF(now);
    return found->known.inode == is->st_ino && found->known.device == is->st_dev;
}

/* Looks up the record of a descriptor. A descriptor that now refers to another file has none; a duplicate
 * is found by its file. */
static bool find(int fd, struct found *found) {
    int kept = errno;
    struct stat is;
    if (!board_path || !any)
        return false;
    if (fd < 0 || fd >= FILES || fstat(fd, &is) || !S_ISSOCK(is.st_mode)) {
        errno = kept;
        return false;
    }
    if (read_at(fd, &is, found))
        return true;
    int most = atomic_load(&beyond);
    for (int other = 0; other < most; other++)
        if (read_at(other, &is, found))
            return true;
    return false;
}

/* Records the state of a descriptor and its current file. Returns 0 or an error number. */
static int note(int fd, struct known what, enum state state) {
    struct stat is;
    if (fd < 0 || fd >= FILES || fstat(fd, &is))
        return EBADF;
    what.inode = is.st_ino;
    what.device = is.st_dev;
    uint64_t word = record_of(&what, (uint64_t)state << 24);
    if (!word)
        return ENOBUFS;
    int most = atomic_load(&beyond);
    while (most <= fd && !atomic_compare_exchange_weak(&beyond, &most, fd + 1))
        continue;
    any = true;
    give_back(atomic_exchange(&slots[fd], word));
    return 0;
}

/* Changes one state to another. Returns whether this call changed it. */
static bool change(struct found *found, enum state from, enum state to) {
    uint64_t word = found->word;
    while (!((word ^ found->word) & ~FLAGS) && STATE_OF(word) == from)
        if (atomic_compare_exchange_weak(&slots[found->at], &word, (word & ~STATE) | (uint64_t)to << 24)) {
            found->state = to;
            return true;
        }
    return false;
}

static void flag(const struct found *found, uint64_t flag) {
    uint64_t word = found->word;
    while (!((word ^ found->word) & ~FLAGS) &&
           !atomic_compare_exchange_weak(&slots[found->at], &word, word | flag))
        continue;
}

/* Removes the record, unless another call has replaced it in the meantime. */
static void forget(const struct found *found) {
    uint64_t word = found->word;
    while (!((word ^ found->word) & ~FLAGS))
        if (atomic_compare_exchange_weak(&slots[found->at], &word, 0)) {
            give_back(word);
            return;
        }
}

/* ---- Addresses ---- */

static bool is_mapped(const struct in6_addr *address) { return IN6_IS_ADDR_V4MAPPED(address); }

/* Writes an address into an entry. An IPv4-mapped IPv6 address is encoded as IPv4, as the board does. */
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

static union name name_of(const struct entry *entry, int end, int domain) {
    union name name = {0};
    if (domain == AF_INET) {
        name.in.sin_family = AF_INET;
        name.in.sin_port = htons(entry->port[end]);
        memcpy(&name.in.sin_addr, entry->address[end], 4);
        return name;
    }
    name.in6.sin6_family = AF_INET6;
    name.in6.sin6_port = htons(entry->port[end]);
    if (entry->family[end] == 4) {
        memset((uint8_t *)&name.in6.sin6_addr + 10, 0xff, 2);
        memcpy((uint8_t *)&name.in6.sin6_addr + 12, entry->address[end], 4);
    } else {
        memcpy(&name.in6.sin6_addr, entry->address[end], 16);
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

static int tell_name(const union name *name, struct sockaddr *target, socklen_t *length) {
    socklen_t whole = name->any.sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
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

/* Receives a packet, and the file sent with it; -1 without a file. */
static bool receive(int socket, struct entry *reply, int *file, int flags) {
    char space[CMSG_SPACE(sizeof(int))];
    struct iovec part = {reply, sizeof *reply};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    ssize_t count;
    *file = -1;
    count = system_recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    if (count < 0)
        return false;
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    if (control && control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_RIGHTS)
        memcpy(file, CMSG_DATA(control), sizeof *file);
    if (count == sizeof *reply)
        return true;
    if (*file >= 0)
        close(*file);
    /* The board has closed the connection. */
    errno = count ? EPROTO : EINVAL;
    return false;
}

/* Reports that the board is not reachable. Its traffic must not silently take another path. */
static int board_unreachable(void) {
    static _Atomic bool is_reported;
    static const char words[] = "kiban: the board of this program is not running: start it again, "
                                "or run the program without `kiban run`\n";
    if (!atomic_exchange(&is_reported, true) && write(STDERR_FILENO, words, sizeof words - 1) < 0)
        atomic_store(&is_reported, false);
    return ENETDOWN;
}

/* Writes the address of the board's socket; an empty one if there is none. A path too long for an address
 * is reached through its directory, whose descriptor is returned for the caller to close; otherwise -1. */
static int board_address(struct sockaddr_un *name) {
    static const char open_files[] = "/proc/self/fd/";
    int folder = -1;
    char *to = name->sun_path;
    if (!name_in_folder) {
        strcpy(to, board_path);
    } else if ((folder = open(board_path, O_PATH | O_DIRECTORY | O_CLOEXEC)) >= 0 &&
               strlen(name_in_folder) < sizeof name->sun_path - sizeof open_files - 12) {
        char digits[12];
        int count = 0;
        for (int number = folder; number || !count; number /= 10)
            digits[count++] = (char)('0' + number % 10);
        strcpy(to, open_files);
        to += sizeof open_files - 1;
        while (count)
            *to++ = digits[--count];
        *to++ = '/';
        strcpy(to, name_in_folder);
    }
    return folder;
}

/* Connects a new socket to the board and sends a request. Returns 0, EAGAIN if the board's backlog is full, or
 * another error number. */
static int begin_to_ask(int socket, const struct entry *entry) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int folder = board_address(&name);
    /* A path that begins with a zero byte would be an abstract name. */
    int error = *name.sun_path ? 0 : ENOENT;
    while (!error && system_connect(socket, (struct sockaddr *)&name, sizeof name))
        error = errno == EINTR ? 0 : errno;
    if (folder >= 0)
        close(folder);
    if (error)
        return error == ENOENT || error == ECONNREFUSED ? board_unreachable() : error;
    while (send(socket, entry, sizeof *entry, MSG_NOSIGNAL) != sizeof *entry)
        if (errno != EINTR)
            return ECONNABORTED;
    return 0;
}

static int new_asker(int flags) { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0); }

/* Sends a request to the board and waits for the reply. Returns 0 or an error number: ENETDOWN if no board runs,
 * ECONNABORTED if it does not reply. */
static int ask(const struct entry *entry, struct entry *reply, int *file) {
    int asker = new_asker(0);
    if (asker < 0)
        return errno;
    int error = begin_to_ask(asker, entry);
    while (!error && !receive(asker, reply, file, 0))
        error = errno == EINTR ? 0 : ECONNABORTED;
    close(asker);
    return error;
}

/* Waits for the reply for up to PROMPT_MS. Returns 0, EAGAIN (no reply yet), or ECONNABORTED. */
static int answer_soon(int asker, struct entry *reply, int *file) {
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (int left = PROMPT_MS; left >= 0;) {
        struct pollfd polled = {asker, POLLIN, 0};
        if (poll(&polled, 1, left) > 0)
            return receive(asker, reply, file, MSG_DONTWAIT) ? 0 : ECONNABORTED;
        clock_gettime(CLOCK_MONOTONIC, &now);
        left = PROMPT_MS - 1 - (int)((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000);
    }
    return EAGAIN;
}

static bool is_blocking(int fd) { return !(fcntl(fd, F_GETFL) & O_NONBLOCK); }

static void copy_time(int from, int option, int to, int its) {
    struct timeval time;
    socklen_t length = sizeof time;
    if (!system_getsockopt(from, SOL_SOCKET, option, &time, &length))
        system_setsockopt(to, SOL_SOCKET, its, &time, length);
}

/* Replaces the program's descriptor by the board's socket, with the same flags and timeouts. */
static int replace_file(int fd, int file) {
    int status = fcntl(fd, F_GETFL), closes = fcntl(fd, F_GETFD);
    int error = 0;
    copy_time(fd, SO_RCVTIMEO, file, SO_RCVTIMEO);
    copy_time(fd, SO_SNDTIMEO, file, SO_SNDTIMEO);
    if (status < 0 || fcntl(file, F_SETFL, status & O_NONBLOCK) || dup3(file, fd, closes & FD_CLOEXEC ? O_CLOEXEC : 0) < 0)
        error = errno;
    close(file);
    return error;
}

/* Returns the domain of the kernel's TCP socket, or 0. */
static int tcp_domain(int fd) {
    int kept = errno, domain = 0, type = 0;
    socklen_t length = sizeof(int);
    bool is_tcp = fd < FILES && !system_getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) &&
                  (domain == AF_INET || domain == AF_INET6);
    length = sizeof(int);
    is_tcp = is_tcp && !system_getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) && type == SOCK_STREAM;
    errno = kept;
    return is_tcp ? domain : 0;
}

static int fail(int error) {
    errno = error;
    return -1;
}

/* Returns the events that are ready now; repeats poll() if a signal interrupts it. */
static short ready_for(int file, short events) {
    struct pollfd polled = {file, events, 0};
    while (poll(&polled, 1, 0) < 0 && errno == EINTR)
        continue;
    return polled.revents;
}

/* Restores errno after a successful call. */
static ssize_t done(int kept, ssize_t result) {
    if (result >= 0)
        errno = kept;
    return result;
}

static socklen_t length_of(int domain) {
    return domain == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static int bind_at_last(int fd, const struct known *known) {
    return system_bind(fd, &known->name[LOCAL].any, length_of(known->domain));
}

/* ---- A board that does not reply at once ---- */

/* Writes until the socket is full. Returns the number of bytes. */
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
    bool has_ended[2] = {false}, is_shut[2] = {false};
    while (!is_shut[0] || !is_shut[1]) {
        struct pollfd polled[2];
        for (int i = 0; i < 2; i++) {
            bool is_empty = from[i] == to[i];
            short events = (is_empty && !has_ended[i] ? POLLIN : 0) | (from[!i] != to[!i] ? POLLOUT : 0);
            /* Leave out a file for which no events are requested: after a hang-up, poll() would return at once
             * for ever. */
            bool is_polled = events || (i == 0 && is_empty && has_ended[0]);
            polled[i] = (struct pollfd){is_polled ? file[i] : -1, events, 0};
        }
        if (poll(polled, 2, -1) < 0)
            continue;
        for (int i = 0; i < 2; i++) {
            if (from[i] == to[i] && !has_ended[i] && (polled[i].revents & (POLLIN | POLLHUP | POLLERR))) {
                ssize_t count = system_recv(file[i], space[i], sizeof space[i], MSG_DONTWAIT);
                if (count < 0 && errno != EAGAIN && errno != EINTR)
                    return;
                from[i] = 0;
                to[i] = count > 0 ? count : 0;
                has_ended[i] = count == 0;
            }
            if (from[i] != to[i]) {
                ssize_t count = send(file[!i], space[i] + from[i], to[i] - from[i], MSG_DONTWAIT | MSG_NOSIGNAL);
                if (count < 0 && errno != EAGAIN && errno != EINTR)
                    return;
                from[i] += count > 0 ? count : 0;
            }
            if (has_ended[i] && from[i] == to[i] && !is_shut[i]) {
                /* The board has hung up before the program has sent its FIN: this is a reset, which is passed on. */
                if (i == 1 && !is_shut[0] && (ready_for(far, POLLIN) & POLLHUP))
                    return;
                shutdown(file[!i], SHUT_WR);
                is_shut[i] = true;
            }
        }
        /* The program has closed its end, which accepts no more data. */
        if (has_ended[0] && from[0] == to[0] && (polled[0].revents & POLLHUP))
            return;
    }
}

static void store_reply(uint64_t ticket, int state, const struct entry *reply) {
    struct promise *promise = &promises[ticket % PROMISES];
    uint64_t words[sizeof *reply / sizeof(uint64_t)], is = ticket << 8 | PENDING;
    memcpy(words, reply, sizeof words);
    /* The slot belongs to another ticket by now: this reply is no longer wanted. */
    if (atomic_load(&promise->state) != is)
        return;
    for (unsigned at = 0; at < sizeof words / sizeof *words; at++)
        atomic_store(&promise->reply[at], words[at]);
    atomic_compare_exchange_strong(&promise->state, &is, ticket << 8 | state);
}

/* The parameters of a connect() that the helper process completes. */
struct later {
    struct known known;
    struct entry entry;
    uint64_t ticket;
    size_t filled;
    /* The program's original socket; the socket on which the board replies; the other end of the program's
     * new socket. */
    int own, asker, end;
    bool has_asked;
};

/* Connects. Returns the stream's socket, or a negative error number. */
static int connect_later(struct later *later, struct entry *reply) {
    int file = -1;
    fcntl(later->asker, F_SETFL, 0);
    if (!later->has_asked) {
        int error = begin_to_ask(later->asker, &later->entry);
        if (error)
            return -error;
    }
    struct pollfd polled[2] = {{later->asker, POLLIN, 0}, {later->end, 0, 0}};
    while (poll(polled, 2, -1) <= 0)
        continue;
    if (!polled[0].revents)
        return -ECONNABORTED; /* The program has closed. */
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
            (system_connect(file, &remote.any, length_of(later->known.domain)) && errno != EINPROGRESS))
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
        system_getsockopt(file, SOL_SOCKET, SO_ERROR, &error, &bytes);
        system_getsockname(file, &local.any, &length);
        put(reply, LOCAL, &local.any, length);
        return error ? -error : file;
    }
    uint8_t why = 0;
    if (polled[0].revents & POLLHUP)
        return system_recv(file, &why, 1, MSG_DONTWAIT) == 1 ? -error_of(why) : -ECONNREFUSED;
    return file;
}

__attribute__((noreturn)) static void run_later(struct later *later) {
    static char waste[16384];
    struct entry reply = {0};
    /* Close the program's other files: a pipe, for example, would not end while a copy is open. */
    int keep[3] = {later->own, later->asker, later->end};
    for (int i = 0; i < 2; i++)
        for (int j = i + 1; j < 3; j++)
            if (keep[j] < keep[i]) {
                int other = keep[i];
                keep[i] = keep[j];
                keep[j] = other;
            }
    for (int i = 0, first = 0; i <= 3; i++) {
        unsigned last = i < 3 ? (unsigned)keep[i] - 1 : ~0u;
        if (i == 3 || keep[i] > first)
            syscall(SYS_close_range, first, last, 0);
        first = i < 3 ? keep[i] + 1 : 0;
    }
    int file = connect_later(later, &reply);
    if (file < 0) {
        reply.slot = -file;
        store_reply(later->ticket, BROKEN, &reply);
        _exit(0);
    }
    if (file != later->own)
        close(later->own);
    close(later->asker);
    store_reply(later->ticket, KEPT, &reply);
    /* Empty the socket again, so that the program can write. */
    while (later->filled > 0) {
        size_t part = later->filled < sizeof waste ? later->filled : sizeof waste;
        ssize_t count = system_recv(later->end, waste, part, MSG_WAITALL);
        if (count <= 0)
            _exit(0);
        later->filled -= count;
    }
    fcntl(file, F_SETFL, O_NONBLOCK);
    fcntl(later->end, F_SETFL, O_NONBLOCK);
    carry(later->end, file);
    _exit(0);
}

/* Lets a helper process wait for the board's reply: 0 or an error number. The descriptor needs its final
 * file now, because of epoll, before the board has sent one: it gets one end of a socket pair, which is
 * not writable until the stream is open, and the helper relays the bytes. It is a process because signal
 * handlers may connect, and cannot create threads. It receives no signals, and ends with the stream. */
static int connect_by_helper(int fd, struct later *later) {
    int ends[2], status = 0;
    sigset_t all, before;
    if (!promises)
        return ENOBUFS;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return errno;
    later->filled = fill(ends[0]);
    later->own = fd;
    later->end = ends[1];
    later->ticket = later->known.ticket = atomic_fetch_add(&tickets, 1) + 1;
    atomic_store(&promises[later->ticket % PROMISES].state, later->ticket << 8 | PENDING);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* Not fork(): handlers of pthread_atfork() are not async-signal-safe. The program's wait() does not
     * see the child: it has no exit signal (__WCLONE) and is reaped here; its own child is adopted by
     * init. */
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

/* ---- The outcome of a connect ---- */

/* Returns the outcome of a connect with a late reply, once the descriptor is writable or hung up. */
static int outcome_of_late_reply(struct found *found, bool is_over) {
    uint64_t ticket = found->known.ticket, words[sizeof(struct entry) / sizeof(uint64_t)];
    struct promise *promise = &promises[ticket % PROMISES];
    struct entry reply;
    uint64_t state = atomic_load(&promise->state);
    for (unsigned at = 0; at < sizeof words / sizeof *words; at++)
        words[at] = atomic_load(&promise->reply[at]);
    memcpy(&reply, words, sizeof reply);
    if (atomic_load(&promise->state) != state || state >> 8 != ticket)
        state = BROKEN, reply.slot = ECONNABORTED;
    if ((state & 0xff) == PENDING && !is_over)
        return EINPROGRESS;
    if ((state & 0xff) != KEPT) {
        int error = (state & 0xff) == BROKEN ? (int)reply.slot : ECONNABORTED;
        change(found, CONNECTING, FAILED);
        return error;
    }
    found->known.name[LOCAL] = name_of(&reply, LOCAL, found->known.domain);
    uint64_t word = record_of(&found->known, (uint64_t)CONNECTED << 24), before = found->word;
    if (!word)
        return EINPROGRESS; /* The next call tries again. */
    if (atomic_compare_exchange_strong(&slots[found->at], &before, word)) {
        give_back(before);
        found->word = word;
    } else {
        give_back(word); /* Another call has just recorded the same. */
    }
    found->state = CONNECTED;
    return 0;
}

/* Returns the outcome of a connect: 0 if the stream is open, EINPROGRESS, or the error. */
static int outcome(int fd, struct found *found, int wait_ms) {
    struct pollfd polled = {fd, POLLOUT, 0};
    if (wait_ms && poll(&polled, 1, wait_ms) < 0)
        return errno;
    short ready = ready_for(fd, POLLOUT);
    if (!ready)
        return EINPROGRESS;
    if (found->known.ticket)
        return outcome_of_late_reply(found, ready & POLLHUP);
    if (ready & POLLHUP) {
        uint8_t why = 0;
        int gone = 0;
        socklen_t length = sizeof gone;
        ssize_t count = system_recv(fd, &why, 1, MSG_DONTWAIT | MSG_PEEK);
        /* The error is returned once; afterwards the socket may connect again. */
        if (change(found, CONNECTING, FAILED)) {
            system_recv(fd, &why, 1, MSG_DONTWAIT);
            system_getsockopt(fd, SOL_SOCKET, SO_ERROR, &gone, &length);
        }
        return count == 1 ? error_of(why) : ECONNREFUSED;
    }
    if (!(ready & POLLOUT))
        return EINPROGRESS;
    change(found, CONNECTING, CONNECTED);
    found->state = CONNECTED;
    return 0;
}

/* Returns whether a descriptor may be a listener, or a duplicate of one; costs one load. */
static bool may_listen(int fd) {
    uint64_t word = fd >= 0 && fd < FILES ? atomic_load(&slots[fd]) : 0;
    return !(word & INDEX) || STATE_OF(word) != CONNECTED;
}

/* Checks a descriptor before a read: a listener cannot be read, and a failed connect yields its error. */
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

/* Called after a read of zero bytes: distinguishes an orderly end of the stream from a reset. */
static ssize_t ended(int fd, ssize_t count, size_t wanted, int flags) {
    int kept = errno;
    struct found found;
    if (count || !wanted || !find(fd, &found) || found.state != CONNECTED || (found.word & END_IS_KNOWN))
        return count;
    if (!(ready_for(fd, POLLIN) & POLLHUP))
        return count;
    if (!(found.word & HAS_FINISHED))
        return fail(ECONNRESET);
    /* After shutdown() the two cannot be distinguished here, so query the board, once. */
    struct entry entry = {.what = ASK_FATE}, reply;
    put(&entry, LOCAL, &found.known.name[LOCAL].any, sizeof found.known.name[LOCAL]);
    put(&entry, REMOTE, &found.known.name[REMOTE].any, sizeof found.known.name[REMOTE]);
    int file = -1, error, asker;
    if (is_blocking(fd) && !(flags & MSG_DONTWAIT)) {
        error = ask(&entry, &reply, &file);
    } else if ((asker = new_asker(SOCK_NONBLOCK)) < 0) {
        error = errno;
    } else {
        error = begin_to_ask(asker, &entry);
        error = error ? error : answer_soon(asker, &reply, &file);
        close(asker);
        if (error == EAGAIN)
            return fail(EAGAIN); /* A later read retries. */
    }
    if (file >= 0)
        close(file);
    if (!(flags & MSG_PEEK))
        flag(&found, END_IS_KNOWN);
    if (error)
        return fail(ECONNRESET); /* The board has stopped. */
    return reply.what != REPLY_ENDED || reply.code == CLOSED ? done(kept, count) : fail(error_of(reply.code));
}

/* ---- The calls ---- */

#define OURS __attribute__((visibility("default")))

OURS int bind(int fd, const struct sockaddr *name, socklen_t length) {
    begin();
    int kept = errno;
    struct entry entry = {0};
    int domain = board_path && name ? tcp_domain(fd) : 0;
    if (!domain || !put(&entry, LOCAL, name, length) || is_loopback(&entry, LOCAL))
        return system_bind(fd, name, length);
    struct known known = {.domain = domain, .was_bound = true};
    memcpy(&known.name[LOCAL], name, length < sizeof known.name[LOCAL] ? length : sizeof known.name[LOCAL]);
    int error = note(fd, known, BOUND);
    return error ? fail(error) : done(kept, 0);
}

/* Connects through the kernel, after binding the socket if the program had bound it. */
static int connect_in_kernel(int fd, const struct found *found, const struct sockaddr *name, socklen_t length) {
    if (found->state == BOUND) {
        forget(found);
        if (bind_at_last(fd, &found->known))
            return -1;
    }
    return system_connect(fd, name, length);
}

/* Replaces the descriptor by a new kernel socket, in the state before the board was involved: 0 or an
 * error number. */
static int start_over(int fd, struct found *found) {
    int file = socket(found->known.domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file < 0)
        return errno;
    bool is_bound = found->state == RESERVED || found->known.was_bound;
    forget(found);
    int error = replace_file(fd, file);
    found->state = NOTHING;
    found->known.ticket = 0;
    if (!error && is_bound && !(error = note(fd, found->known, BOUND)))
        error = find(fd, found) ? 0 : EBADF;
    return error;
}

/* Makes the board listen at a socket's bound address; it chooses the port if that is 0. Returns 0;
 * ENOTCONN if the address is not the board's, after binding the kernel's socket; or another error number. */
static int listen_on_board(int fd, struct found *found, enum state state) {
    struct entry entry = {.what = ASK_LISTEN}, reply;
    struct known *known = &found->known;
    put(&entry, LOCAL, &known->name[LOCAL].any, sizeof known->name[LOCAL]);
    int file = -1, error = ask(&entry, &reply, &file);
    if (error)
        return error;
    if (reply.code == NO_ROUTE || reply.code == BAD_ADDRESS) {
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
    if ((error = replace_file(fd, file)))
        return error;
    known->name[LOCAL] = name_of(&reply, LOCAL, known->domain);
    listens = true;
    return note(fd, *known, state);
}

/* Requests a stream from the board. Returns 0 and the reply; EAGAIN or EINTR if there is no reply yet; or another
 * error number. */
static int ask_for_connect(int fd, bool waits, const struct entry *entry, struct entry *reply, int *file, int *asker,
                           bool *has_asked) {
    *has_asked = false;
    if ((*asker = new_asker(waits ? 0 : SOCK_NONBLOCK)) < 0)
        return errno;
    if (waits) {
        /* connect(2) is limited by SO_SNDTIMEO (socket(7)). */
        copy_time(fd, SO_SNDTIMEO, *asker, SO_SNDTIMEO);
        copy_time(fd, SO_SNDTIMEO, *asker, SO_RCVTIMEO);
    }
    int error = begin_to_ask(*asker, entry);
    if (error)
        return error;
    *has_asked = true;
    if (!waits)
        return answer_soon(*asker, reply, file);
    if (receive(*asker, reply, file, 0))
        return 0;
    return errno == EAGAIN || errno == EINTR ? errno : ECONNABORTED;
}

/* Returns how long a blocking connect() may still wait, in ms; -1: for ever. */
static int patience_of(int fd) {
    struct timeval time = {0};
    socklen_t length = sizeof time;
    if (system_getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, &length) || (!time.tv_sec && !time.tv_usec))
        return -1;
    return time.tv_sec < 1000000 ? (int)(time.tv_sec * 1000 + (time.tv_usec + 999) / 1000) : 1000000000;
}

OURS int connect(int fd, const struct sockaddr *name, socklen_t length) {
    begin();
    int kept = errno;
    struct found found = {0};
    struct entry entry = {.what = ASK_CONNECT}, reply;
    bool is_known = find(fd, &found);
    if (is_known && found.state == CONNECTED)
        return fail(EISCONN);
    if (is_known && found.state == LISTENING)
        return fail(EINVAL);
    if (is_known && found.state == CONNECTING) {
        int error = outcome(fd, &found, 0);
        return error ? fail(error == EINPROGRESS ? EALREADY : error) : done(kept, 0);
    }
    if (is_known && (found.state == FAILED || found.state == RESERVED)) {
        int error = start_over(fd, &found);
        if (error)
            return fail(error);
    }
    int domain = board_path && name ? tcp_domain(fd) : 0;
    if (!domain || !put(&entry, REMOTE, name, length) || is_loopback(&entry, REMOTE))
        return connect_in_kernel(fd, &found, name, length);
    struct known known = {.domain = domain, .was_bound = found.state == BOUND};
    known.name[REMOTE] = name_of(&entry, REMOTE, domain);
    known.name[LOCAL] = found.known.name[LOCAL];
    known.name[LOCAL].any.sa_family = domain;
    if (known.was_bound) {
        put(&entry, LOCAL, &known.name[LOCAL].any, sizeof known.name[LOCAL]);
        /* Without a local address the board chooses one, provided that it may choose the port, too. */
        if (is_unspecified(&entry, LOCAL) && entry.port[LOCAL] == 0)
            entry.family[LOCAL] = 0;
    }
    bool waits = is_blocking(fd), has_asked;
    int file = -1, asker, error = ask_for_connect(fd, waits, &entry, &reply, &file, &asker, &has_asked);
    if (error == EAGAIN || error == EINTR) {
        struct later later = {.known = known, .entry = entry, .asker = asker, .has_asked = has_asked};
        int other = connect_by_helper(fd, &later);
        close(asker);
        return fail(other ? other : error == EINTR ? EINTR : EINPROGRESS);
    }
    if (asker >= 0)
        close(asker);
    if (error)
        return fail(error);
    bool is_ours = reply.what == REPLY_OPENED && file >= 0;
    if (!is_ours && (reply.code == NO_ROUTE || reply.code == BAD_ADDRESS)) {
        /* The address belongs to the kernel's network. */
        if (file >= 0)
            close(file);
        return connect_in_kernel(fd, &found, name, length);
    }
    /* If the reply has no error code, the board had sent a descriptor, but this program had no number free for it. */
    if (!is_ours)
        return fail(reply.code ? error_of(reply.code) : EMFILE);
    if ((error = replace_file(fd, file)))
        return fail(error);
    connects = true;
    known.name[LOCAL] = name_of(&reply, LOCAL, domain);
    if ((error = note(fd, known, CONNECTING)))
        return fail(error);
    error = find(fd, &found) ? outcome(fd, &found, waits ? patience_of(fd) : 0) : EBADF;
    return error ? fail(error) : done(kept, 0);
}

OURS int listen(int fd, int backlog) {
    begin();
    int kept = errno;
    struct found found;
    if (!find(fd, &found))
        return system_listen(fd, backlog);
    if (found.state == LISTENING || change(&found, RESERVED, LISTENING))
        return done(kept, 0);
    if (found.state != BOUND)
        return fail(EINVAL);
    int error = listen_on_board(fd, &found, LISTENING);
    if (error == ENOTCONN)
        return system_listen(fd, backlog);
    return error ? fail(error) : done(kept, 0);
}

/* Called when the board has stopped: the listener would be readable for ever, although no connection arrives.
 * Replaces it by a socket that is never readable. */
static void replace_listener(int fd) {
    int ends[2];
    static const char words[] = "kiban: the board has stopped: this program no longer receives connections; restart it\n";
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return;
    /* Keep the other end open until the process exits. */
    if (!replace_file(fd, ends[0])) {
        note(fd, (struct known){.domain = AF_INET}, LISTENING);
        if (write(STDERR_FILENO, words, sizeof words - 1) < 0)
            errno = 0;
    }
    errno = ECONNABORTED;
}

OURS int accept4(int fd, struct sockaddr *name, socklen_t *length, int flags) {
    begin();
    int kept = errno;
    struct found found;
    if (!find(fd, &found) || found.state != LISTENING)
        return system_accept4(fd, name, length, flags);
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
    accepted.name[LOCAL] = name_of(&reply, LOCAL, found.known.domain);
    accepted.name[REMOTE] = name_of(&reply, REMOTE, found.known.domain);
    if (note(file, accepted, CONNECTED)) {
        close(file);
        return fail(ENOBUFS);
    }
    if (name && length)
        tell_name(&accepted.name[REMOTE], name, length);
    return done(kept, file);
}

OURS int accept(int fd, struct sockaddr *name, socklen_t *length) { return accept4(fd, name, length, 0); }

OURS int getsockname(int fd, struct sockaddr *name, socklen_t *length) {
    begin();
    int kept = errno;
    struct found found;
    if (!find(fd, &found))
        return system_getsockname(fd, name, length);
    struct entry entry = {0};
    put(&entry, LOCAL, &found.known.name[LOCAL].any, sizeof found.known.name[LOCAL]);
    if (found.state == BOUND && entry.port[LOCAL] == 0) {
        /* The board listens from now on, so that no other socket gets the port. */
        int error = listen_on_board(fd, &found, RESERVED);
        if (error == ENOTCONN)
            return system_getsockname(fd, name, length);
        if (error)
            return fail(error);
    }
    if (found.state == CONNECTING && found.known.ticket)
        outcome(fd, &found, 0); /* May complete the local name. */
    return done(kept, tell_name(&found.known.name[LOCAL], name, length));
}

OURS int getpeername(int fd, struct sockaddr *name, socklen_t *length) {
    begin();
    int kept = errno;
    struct found found;
    if (!find(fd, &found))
        return system_getpeername(fd, name, length);
    bool is_open = found.state == CONNECTED || (found.state == CONNECTING && outcome(fd, &found, 0) == 0);
    return is_open ? done(kept, tell_name(&found.known.name[REMOTE], name, length)) : fail(ENOTCONN);
}

static int tell(void *target, socklen_t *length, const void *value, socklen_t bytes) {
    if (!target || !length)
        return fail(EFAULT);
    *length = *length < bytes ? *length : bytes;
    memcpy(target, value, *length);
    return 0;
}

OURS int getsockopt(int fd, int level, int option, void *target, socklen_t *length) {
    begin();
    int kept = errno;
    struct found found;
    if (!find(fd, &found) || found.state == BOUND)
        return system_getsockopt(fd, level, option, target, length);
    int value = 0;
    if (level == SOL_SOCKET) {
        switch (option) {
        case SO_ERROR:
            if (found.state != CONNECTING)
                break;
            value = outcome(fd, &found, 0);
            value = value == EINPROGRESS ? 0 : value;
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
        return system_getsockopt(fd, level, option, target, length);
    }
    if (level == IPPROTO_TCP && option == TCP_INFO) {
        /* Only the state is returned; kiban status shows the board's other figures. */
        struct tcp_info info = {.tcpi_state = TCP_ESTABLISHED};
        return tell(target, length, &info, sizeof info);
    }
    if (level == IPPROTO_TCP && option == TCP_MAXSEG) {
        value = 536; /* The MSS that every host accepts (RFC 9293 3.7.1); only the board knows the actual one. */
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
    begin();
    struct found found;
    bool is_ours = find(fd, &found) && found.state != BOUND;
    /* Accept the option without any effect: the board's configuration decides how segments are sent. */
    if (is_ours && (level == IPPROTO_TCP || level == IPPROTO_IP || level == IPPROTO_IPV6))
        return 0;
    return system_setsockopt(fd, level, option, value, length);
}

OURS int shutdown(int fd, int how) {
    begin();
    int kept = errno;
    struct found found;
    bool is_known = find(fd, &found);
    if (is_known && found.state == CONNECTING)
        outcome(fd, &found, 0);
    if (is_known && found.state == CONNECTED && how != SHUT_RD)
        flag(&found, HAS_FINISHED);
    return done(kept, system_shutdown(fd, how));
}

OURS ssize_t read(int fd, void *target, size_t bytes) {
    begin();
    return failed(fd) ? -1 : ended(fd, system_read(fd, target, bytes), bytes, 0);
}

OURS ssize_t readv(int fd, const struct iovec *parts, int count) {
    begin();
    return failed(fd) ? -1 : ended(fd, system_readv(fd, parts, count), count > 0 ? parts[0].iov_len : 0, 0);
}

OURS ssize_t recv(int fd, void *target, size_t bytes, int flags) {
    begin();
    return failed(fd) ? -1 : ended(fd, system_recv(fd, target, bytes, flags), bytes, flags);
}

OURS ssize_t recvfrom(int fd, void *target, size_t bytes, int flags, struct sockaddr *name, socklen_t *length) {
    begin();
    return failed(fd) ? -1 : ended(fd, system_recvfrom(fd, target, bytes, flags, name, length), bytes, flags);
}

OURS ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    begin();
    if (failed(fd))
        return -1;
    ssize_t count = system_recvmsg(fd, message, flags);
    return ended(fd, count, message && message->msg_iovlen ? message->msg_iov[0].iov_len : 0, flags);
}

/* Entry points of programs compiled with _FORTIFY_SOURCE. */
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
