/* Requests to the board, each on a separate connection, and the addresses in them: read_name() validates what the
 * program passes, is_loopback() and is_unspecified() classify it. calls.c chooses between board and kernel. */
#include "board.h"
#include <limits.h>
#include <stddef.h>
#include <sys/un.h>

/* The length of the abstract address that holds the reason: a zero, 16 random bytes and the reason. */
#define REASON_BYTES 18
#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif
/* The bits of SO_BUF_LOCK. */
enum { SNDBUF_LOCK = 1, RCVBUF_LOCK = 2 };
/* The path of the board's socket. A path too long for a socket address is split into directory and name. */
static char path_buffer[PATH_MAX];
static const char *name_in_folder;
const char *board_path;

/* Reads the path of the board's socket from the environment. */
void read_board_path(void) {
    const char *said = getenv("KIBAN_SOCKETS");
    if (said && *said) {
        /* If the path is too long for the system, there is no board, but the host's own network must not be used. */
        if (strlen(said) < sizeof path_buffer)
            strcpy(path_buffer, said);
        char *last = strlen(path_buffer) < sizeof((struct sockaddr_un *)0)->sun_path ? NULL : strrchr(path_buffer, '/');
        if (last) {
            *last = 0;
            name_in_folder = last + 1;
        }
        board_path = path_buffer;
    }
}

/* ---- Addresses ---- */

static bool is_mapped(const struct in6_addr *address) { return IN6_IS_ADDR_V4MAPPED(address); }

bool is_tcp(int protocol) { return protocol == IPPROTO_TCP || protocol == IPPROTO_MPTCP; }

/* Returns the family of a kernel socket whose streams belong on the board, AF_INET or AF_INET6; -1 if its protocol is not
 * one of the board's; 0 for any other file, which is left to the kernel. */
int tcp_domain(int fd) {
    int kept = errno, domain = board_path ? stream_family(fd) : 0, protocol = 0;
    socklen_t length = sizeof protocol;
    if (domain && (libc.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) || !is_tcp(protocol)))
        domain = -1;
    errno = kept;
    return domain;
}

/* Copies the address that a program passes to bind() or connect(). It has the lengths and families that Linux accepts
 * for a socket of `domain`. Returns 0, or the error with which Linux refuses the address. */
int read_name(union name *to, int domain, const struct sockaddr *name, socklen_t length) {
    /* An IPv6 address may lack the scope identifier, as in RFC 2133 3.3 (24 bytes). */
    socklen_t least = domain == AF_INET ? sizeof(struct sockaddr_in) : offsetof(struct sockaddr_in6, sin6_scope_id);
    if (length < least || length > sizeof(struct sockaddr_storage))
        return EINVAL;
    if (!name)
        return EFAULT;
    memset(to, 0, sizeof *to);
    memcpy(to, name, length < sizeof *to ? length : sizeof *to);
    /* For old programs, bind(2) also accepts AF_UNSPEC with the IPv4 wildcard address. */
    if (domain == AF_INET && to->any.sa_family == AF_UNSPEC && to->in.sin_addr.s_addr == INADDR_ANY)
        to->any.sa_family = AF_INET;
    return to->any.sa_family == domain ? 0 : EAFNOSUPPORT;
}

/* Writes an address into an entry. An IPv4-mapped IPv6 address is encoded as IPv4, as the board does. */
void put(struct entry *entry, int end, const union name *name) {
    bool is_v6 = name->any.sa_family == AF_INET6, mapped = is_v6 && is_mapped(&name->in6.sin6_addr);
    entry->family[end] = is_v6 && !mapped ? 6 : 4;
    entry->port[end] = ntohs(is_v6 ? name->in6.sin6_port : name->in.sin_port);
    if (is_v6)
        memcpy(entry->address[end], (const uint8_t *)&name->in6.sin6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
    else
        memcpy(entry->address[end], &name->in.sin_addr, 4);
}

union name name_of(const struct entry *entry, int end, int domain) {
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

bool is_loopback(const struct entry *entry, int end) {
    static const uint8_t one[16] = {[15] = 1};
    return entry->family[end] == 4 ? entry->address[end][0] == 127 : !memcmp(entry->address[end], one, 16);
}

bool is_unspecified(const struct entry *entry, int end) {
    static const uint8_t zero[16];
    return !memcmp(entry->address[end], zero, 16);
}

/* Returns whether an address is an IPv4-mapped one, and the kernel's socket has IPV6_V6ONLY. */
bool is_mapped_in_vain(int fd, int domain, const struct entry *entry, int end) {
    return domain == AF_INET6 && entry->family[end] == 4 && is_v6_only(fd);
}

int tell_name(const union name *name, struct sockaddr *target, socklen_t *length) {
    socklen_t whole = name->any.sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (!target || !length) {
        errno = EFAULT;
        return -1;
    }
    memcpy(target, name, *length < whole ? *length : whole);
    *length = whole;
    return 0;
}

/* Reads the entry in the address of a socket's other end. Accepts only entries of the board, the helper and
 * root. */
bool read_entry_name(int fd, struct entry *entry) {
    struct entry_name name;
    struct ucred peer = {0}, board;
    struct stat door;
    int kept = errno;
    socklen_t length = sizeof name, peer_length = sizeof peer, board_length = sizeof board;
    bool is_it = !libc.getpeername(fd, (struct sockaddr *)&name, &length) && length == sizeof name &&
                 name.family == AF_UNIX && !name.zero && !memcmp(name.tag, ENTRY_TAG, sizeof name.tag) &&
                 !libc.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_length) &&
                 (!peer.uid || peer.uid == geteuid() || (!stat(board_path, &door) && peer.uid == door.st_uid) ||
                  (!libc.getsockopt(find_channel(), SOL_SOCKET, SO_PEERCRED, &board, &board_length) &&
                   peer.uid == board.uid));
    if (is_it)
        *entry = name.entry;
    errno = kept;
    return is_it;
}

/* Copies a value to a program. */
int tell(void *target, socklen_t *length, const void *value, socklen_t bytes) {
    if (!target || !length)
        return fail(EFAULT);
    *length = *length < bytes ? *length : bytes;
    memcpy(target, value, *length);
    return 0;
}

/* ---- The board ---- */

int error_of(uint8_t why) {
    static const int errors[] = {0,           EPIPE,       ECONNREFUSED,  ECONNRESET, ETIMEDOUT, ECONNABORTED,
                                 ENETUNREACH, EADDRNOTAVAIL, EADDRINUSE, ENOBUFS,    EHOSTUNREACH};
    return why < sizeof errors / sizeof *errors ? errors[why] : EPROTO;
}

/* Returns the outcome of a connect whose socket has hung up: 0 if the stream was open, or the error. If the board could
 * not open a stream, it has bound its end of the socket pair to an abstract address (unix(7)) whose last byte is the
 * reason. So the peer's data cannot be mistaken for it. */
int outcome_of_hangup(int file) {
    struct sockaddr_un name;
    socklen_t length = sizeof name;
    uint8_t byte;
    if (!libc.getpeername(file, (struct sockaddr *)&name, &length) &&
        length == offsetof(struct sockaddr_un, sun_path) + REASON_BYTES)
        return error_of(name.sun_path[REASON_BYTES - 1]);
    /* The stream was open if it has carried data. Otherwise the board has stopped, or the peer has reset the stream. */
    return libc.recv(file, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1 ? 0 : ECONNRESET;
}

/* Receives a packet and the file sent with it; sets `*file` to -1 if there is none. */
bool receive(int socket, struct entry *reply, int *file, int flags) {
    char space[CMSG_SPACE(sizeof(int))];
    struct iovec part = {reply, sizeof *reply};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    ssize_t count;
    *file = -1;
    count = libc.recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
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

/* Reports that the board cannot be reached. Its traffic must not silently take another path. */
static int board_unreachable(void) {
    static _Atomic bool is_reported;
    static const char words[] = "kiban: the board of this program is not running: start it again, "
                                "or run the program without `kiban run`\n";
    if (!atomic_exchange(&is_reported, true) && write(STDERR_FILENO, words, sizeof words - 1) < 0)
        atomic_store(&is_reported, false);
    return ENETDOWN;
}

/* Writes a non-negative number and a terminating zero. Returns its end. printf() is not
 * async-signal-safe. */
char *write_number(char *to, int number) {
    char digits[12];
    int count = 0;
    for (; number || !count; number /= 10)
        digits[count++] = (char)('0' + number % 10);
    while (count)
        *to++ = digits[--count];
    *to = 0;
    return to;
}

/* Writes the address of the board's socket, or an empty address if it cannot be reached. If the path is too long for
 * an address, the address leads through a descriptor of the directory, which is returned for the caller to close.
 * Otherwise returns -1. */
static int board_address(struct sockaddr_un *name) {
    static const char open_files[] = "/proc/self/fd/";
    int folder = -1;
    char *to = name->sun_path;
    if (!name_in_folder) {
        strcpy(to, board_path);
    } else if ((folder = open(board_path, O_PATH | O_DIRECTORY | O_CLOEXEC)) >= 0 &&
               strlen(name_in_folder) < sizeof name->sun_path - sizeof open_files - 12) {
        strcpy(to, open_files);
        to = write_number(to + sizeof open_files - 1, folder);
        *to++ = '/';
        strcpy(to, name_in_folder);
    }
    return folder;
}

/* Connects a new socket to the board. Returns 0, EAGAIN if the board's backlog is full, or another error number. */
int connect_by_path(int socket) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int folder = board_address(&name);
    /* An empty path would be an abstract name. */
    int error = *name.sun_path ? 0 : ENOENT;
    while (!error && libc.connect(socket, (struct sockaddr *)&name, sizeof name))
        error = errno == EINTR ? 0 : errno;
    if (folder >= 0)
        close(folder);
    return error;
}

/* Connects a new socket to the board and sends a request about a socket with this token, or any request with 0. */
int begin_to_ask(int socket, const struct entry *entry, uint64_t token) {
    struct iovec part = {&token, sizeof token};
    struct msghdr data = {.msg_iov = &part, .msg_iovlen = 1};
    size_t bytes;
    return begin_to_ask_with(socket, entry, token ? &data : NULL, &bytes);
}

/* Returns the token of a socket of the board, 0 if it has none. Only those who have a descriptor of the socket can read
 * the option, which has no effect on Unix sockets. Preserves errno. */
uint64_t token_of(int fd) {
    uint64_t token = 0;
    socklen_t length = sizeof token;
    int kept = errno;
    bool is_there = !libc.getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &token, &length) && length == sizeof token;
    errno = kept;
    return is_there && token != UINT64_MAX ? token : 0;
}

/* Connects a new socket to the board and sends a request, followed by data. Its first parts are sent, up to
 * FAST_OPEN_BYTES_MAX; sets `*bytes` to their number. Returns 0, EAGAIN if the board's backlog is full, or another error
 * number. */
int begin_to_ask_with(int socket, const struct entry *entry, const struct msghdr *data, size_t *bytes) {
    enum { PARTS_MAX = 9 };
    struct iovec parts[PARTS_MAX] = {{(void *)entry, sizeof *entry}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 1};
    size_t room = data ? FAST_OPEN_BYTES_MAX : 0;
    for (size_t at = 0; data && at < data->msg_iovlen && message.msg_iovlen < PARTS_MAX && room; at++) {
        struct iovec part = data->msg_iov[at];
        part.iov_len = part.iov_len < room ? part.iov_len : room;
        room -= part.iov_len;
        parts[message.msg_iovlen++] = part;
    }
    if (data)
        *bytes = FAST_OPEN_BYTES_MAX - room;
    int error = connect_by_path(socket), channel;
    if (error && error != EAGAIN && (channel = find_channel()) >= 0)
        error = connect_over_channel(channel, socket);
    if (error)
        return error == ENOENT || error == ECONNREFUSED ? board_unreachable() : error;
    while (libc.sendmsg(socket, &message, MSG_NOSIGNAL) < 0)
        if (errno != EINTR)
            return errno == EFAULT ? EFAULT : ECONNABORTED;
    return 0;
}

int new_asker(int flags) { return libc.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0); }

/* Waits for the reply for up to `wait_ms`, also if signals interrupt it. Returns whether there is one. */
bool has_answer(int asker, int wait_ms) {
    int64_t begun = microseconds();
    for (int left = wait_ms; left >= 0;) {
        struct pollfd polled = {asker, POLLIN, 0};
        if (poll(&polled, 1, left) > 0)
            return true;
        left = wait_ms - 1 - (int)((microseconds() - begun) / 1000);
    }
    return false;
}

/* Waits for the reply for up to `wait_ms`. Returns 0, EAGAIN if there is no reply yet, or ECONNABORTED. */
int answer_soon(int asker, struct entry *reply, int *file, int wait_ms) {
    if (!has_answer(asker, wait_ms))
        return EAGAIN;
    return receive(asker, reply, file, MSG_DONTWAIT) ? 0 : ECONNABORTED;
}

/* Sends a request to the board and waits for the reply. Returns 0 or an error number: ENETDOWN if the
 * board is not running or its process is stopped, ECONNABORTED if it closes the connection. */
int ask(const struct entry *entry, uint64_t token, struct entry *reply, int *file) {
    int asker = new_asker(0);
    if (asker < 0)
        return errno;
    /* Connecting waits while the board's backlog is full. */
    struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
    libc.setsockopt(asker, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    int error = begin_to_ask(asker, entry, token);
    error = error ? error : answer_soon(asker, reply, file, PATIENCE_SECONDS * 1000);
    close(asker);
    return error == EAGAIN ? ENETDOWN : error;
}

/* Returns how long a blocking connect() may wait, in ms; -1 means forever. */
int patience_of(int fd) {
    struct timeval time = {0};
    socklen_t length = sizeof time;
    if (libc.getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, &length) || (!time.tv_sec && !time.tv_usec))
        return -1;
    return time.tv_sec < 1000000 ? (int)(time.tv_sec * 1000 + (time.tv_usec + 999) / 1000) : 1000000000;
}

bool is_blocking(int fd) { return !(fcntl(fd, F_GETFL) & O_NONBLOCK); }

void copy_time(int from, int option, int to, int its) {
    struct timeval time;
    socklen_t length = sizeof time;
    if (!libc.getsockopt(from, SOL_SOCKET, option, &time, &length))
        libc.setsockopt(to, SOL_SOCKET, its, &time, length);
}

/* Returns the size of a socket's buffer as the program has set it with SO_SNDBUF or SO_RCVBUF; 0 if it has not, or if the
 * system does not tell (before Linux 5.14). */
int buffer_of(int fd, int option) {
    int locks = 0, bytes = 0, kept = errno;
    socklen_t length = sizeof locks, bytes_length = sizeof bytes;
    bool is_set = !libc.getsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &locks, &length) &&
                  (locks & (option == SO_SNDBUF ? SNDBUF_LOCK : RCVBUF_LOCK)) &&
                  !libc.getsockopt(fd, SOL_SOCKET, option, &bytes, &bytes_length);
    errno = kept;
    /* Linux doubles the value that is set (socket(7)). */
    return is_set ? bytes / 2 : 0;
}

void set_buffer(int fd, int option, int bytes) {
    int kept = errno;
    if (bytes)
        libc.setsockopt(fd, SOL_SOCKET, option, &bytes, sizeof bytes);
    errno = kept;
}

static void copy_option(int from, int to, int name) {
    int value = 0, its = 0;
    socklen_t length = sizeof value, its_length = sizeof its;
    if (!libc.getsockopt(from, SOL_SOCKET, name, &value, &length) &&
        !libc.getsockopt(to, SOL_SOCKET, name, &its, &its_length) && value != its)
        libc.setsockopt(to, SOL_SOCKET, name, &value, sizeof value);
}

/* Copies the timeouts, and those options of socket(7) that Unix sockets have, too, and that a connection inherits from its
 * listener; except for SO_SNDBUF. */
void copy_options(int from, int to) {
    static const int names[] = {SO_OOBINLINE, SO_RCVLOWAT, SO_MARK, SO_BROADCAST, SO_DONTROUTE, SO_BUSY_POLL};
    for (unsigned at = 0; at < sizeof names / sizeof *names; at++)
        copy_option(from, to, names[at]);
    copy_time(from, SO_RCVTIMEO, to, SO_RCVTIMEO);
    copy_time(from, SO_SNDTIMEO, to, SO_SNDTIMEO);
    set_buffer(to, SO_RCVBUF, buffer_of(from, SO_RCVBUF));
}

/* Copies the process to which signals of a socket are sent (fcntl(2)). */
static void copy_owner(int from, int to) {
    struct f_owner_ex owner = {0};
    int signal;
    if (!fcntl(from, F_GETOWN_EX, &owner) && owner.pid)
        fcntl(to, F_SETOWN_EX, &owner);
    if ((signal = fcntl(from, F_GETSIG)) > 0)
        fcntl(to, F_SETSIG, signal);
}

/* Replaces the program's descriptor with the board's socket, which gets the same flags, options and owner. */
int replace_file(int fd, int file) {
    int status = fcntl(fd, F_GETFL), error = 0;
    copy_options(fd, file);
    copy_option(fd, file, SO_PRIORITY);
    copy_owner(fd, file);
    if (status < 0 || fcntl(file, F_SETFL, status & (O_NONBLOCK | O_ASYNC)) || replace_by_copy(fd, file))
        error = errno;
    close(file);
    return error;
}

/* Returns the events that are ready now; retries poll() if a signal interrupts it. */
short ready_for(int file, short events) {
    struct pollfd polled = {file, events, 0};
    while (poll(&polled, 1, 0) < 0 && errno == EINTR)
        continue;
    return polled.revents;
}

socklen_t length_of(int domain) {
    return domain == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

/* Binds a socket of the kernel to the address that the program chose, unless it is bound already (bound_name()). */
int bind_at_last(int fd, const struct known *known) {
    union name name;
    socklen_t length = sizeof name;
    if (!libc.getsockname(fd, &name.any, &length) && name.in.sin_port)
        return 0;
    return libc.bind(fd, &known->name[LOCAL].any, length_of(known->domain));
}
