/* Socket options of the board's streams and listeners (docs/attach.md lists them).
 *
 * State            before connect() and listen(), the kernel's socket has the options. Then read_options()
 *                  reads them, and send_options() sends those that the program has changed to the board. From
 *                  then on the board keeps them, so they can be read after exec, and from a descriptor that
 *                  was passed to another process.
 * Effect           the board decides which options act on the connection and which are only stored. All others fail with
 *                  ENOPROTOOPT, so that a program learns that the board does not support them. */
#include "board.h"

/* The option's code in an entry, and its value on a new Linux socket. The value of SO_LINGER is zero if it is
 * off, and otherwise its seconds plus one. */
static const struct option {
    int level, name;
    uint8_t code;
    uint32_t usual;
} options[OPTIONS] = {
    {IPPROTO_TCP, TCP_NODELAY, 1, 0},
    {SOL_SOCKET, SO_KEEPALIVE, 2, 0},
    {IPPROTO_TCP, TCP_KEEPIDLE, 3, 7200},
    {IPPROTO_TCP, TCP_KEEPINTVL, 4, 75},
    {IPPROTO_TCP, TCP_KEEPCNT, 5, 9},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, 6, 0},
    {IPPROTO_IP, IP_TOS, 7, 0},
    {IPPROTO_IPV6, IPV6_TCLASS, 7, 0},
    {SOL_SOCKET, SO_LINGER, 8, 0},
    {IPPROTO_TCP, TCP_CORK, 9, 0},
    {IPPROTO_TCP, TCP_QUICKACK, 10, 1},
    {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 11, 0},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT, 12, 0},
    {IPPROTO_TCP, TCP_LINGER2, 13, 60},
    {IPPROTO_TCP, TCP_SYNCNT, 14, 6},
    {IPPROTO_TCP, TCP_WINDOW_CLAMP, 15, 0},
    {SOL_SOCKET, SO_REUSEADDR, 17, 0},
    {SOL_SOCKET, SO_REUSEPORT, 18, 0},
    {IPPROTO_TCP, TCP_FASTOPEN, 19, 0},
    {IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 20, 0},
    {IPPROTO_IPV6, IPV6_V6ONLY, 21, 0},
    /* Unix sockets have these, too; but ancillary data in a listener's packets would hide its connections. */
    {SOL_SOCKET, SO_TIMESTAMP, 22, 0},
    {SOL_SOCKET, SO_TIMESTAMPNS, 23, 0},
    {SOL_SOCKET, SO_MAX_PACING_RATE, 24, UINT32_MAX},
};

/* The codes of MSG_MORE, which is set like an option, and of TCP_CONGESTION. */
#define MORE 16
#define CONGESTION 25

/* Returns the index of an option; -1 if the board does not have it. */
int option_at(int level, int name) {
    for (int at = 0; at < OPTIONS; at++)
        if (options[at].level == level && options[at].name == name)
            return at;
    return -1;
}

/* Whether a value lies in the range of an option, as in Linux. */
static bool is_valid(const struct option *option, int value) {
    if (option->level == IPPROTO_IPV6 && option->name == IPV6_TCLASS)
        return value >= -1 && value <= 255;
    if (option->level != IPPROTO_TCP)
        return true;
    switch (option->name) {
    case TCP_KEEPIDLE:
    case TCP_KEEPINTVL:
        return value >= 1 && value <= 32767;
    case TCP_KEEPCNT:
    case TCP_SYNCNT:
        return value >= 1 && value <= 127;
    case TCP_USER_TIMEOUT:
    case TCP_FASTOPEN:
        return value >= 0;
    case TCP_FASTOPEN_CONNECT:
        return value == 0 || value == 1;
    default:
        return true;
    }
}

/* Returns what Linux stores of a value. */
static uint32_t stored(const struct option *option, int value) {
    enum { LINGER2_MAX = 120 };
    if (option->level == IPPROTO_IPV6 && option->name == IPV6_V6ONLY)
        return value != 0;
    /* The two low bits are ECN, which belongs to TCP. */
    if (option->level == IPPROTO_IP || option->level == IPPROTO_IPV6)
        return value < 0 && option->level == IPPROTO_IPV6 ? 0 : (uint32_t)value & 0xfc;
    if (option->level == SOL_SOCKET && option->name == SO_MAX_PACING_RATE)
        return (uint32_t)value;
    if (option->level == SOL_SOCKET || option->name == TCP_NODELAY || option->name == TCP_CORK)
        return value != 0;
    if (option->name == TCP_FASTOPEN)
        return (uint32_t)(value < SOMAXCONN ? value : SOMAXCONN);
    if (option->name == TCP_LINGER2)
        return (uint32_t)(value < 0 ? -1 : value > LINGER2_MAX ? LINGER2_MAX : value ? value : (int)option->usual);
    return (uint32_t)value;
}

/* Reads the value that a program passes to setsockopt(). Returns 0 or an error number. */
int read_option(int at, const void *value, socklen_t length, uint32_t *to) {
    const struct option *option = &options[at];
    struct linger linger;
    int number = 0;
    if (!value && length)
        return EFAULT;
    if (option->name == SO_LINGER && option->level == SOL_SOCKET) {
        if (length < sizeof linger)
            return EINVAL;
        memcpy(&linger, value, sizeof linger);
        *to = linger.l_onoff ? (uint32_t)linger.l_linger + 1 : 0;
        return 0;
    }
    uint64_t rate;
    if (option->name == SO_MAX_PACING_RATE && option->level == SOL_SOCKET && length >= sizeof rate) {
        memcpy(&rate, value, sizeof rate);
        *to = rate < UINT32_MAX ? (uint32_t)rate : UINT32_MAX;
        return 0;
    }
    /* Linux also accepts IP_TOS as a byte, and nothing as 0. */
    if (option->level == IPPROTO_IP && length < sizeof number)
        number = length ? *(const uint8_t *)value : 0;
    else if (length < sizeof number)
        return EINVAL;
    else
        memcpy(&number, value, sizeof number);
    if (!is_valid(option, number))
        return EINVAL;
    *to = stored(option, number);
    return 0;
}

/* Passes the value of an option to the program. */
int tell_option(int at, uint32_t value, void *target, socklen_t *length) {
    struct linger linger = {.l_onoff = value != 0, .l_linger = value ? (int)(value - 1) : 0};
    if (options[at].name == SO_LINGER && options[at].level == SOL_SOCKET)
        return tell(target, length, &linger, sizeof linger);
    uint64_t rate = value == UINT32_MAX ? UINT64_MAX : value;
    if (options[at].name == SO_MAX_PACING_RATE && options[at].level == SOL_SOCKET && length && *length >= sizeof rate)
        return tell(target, length, &rate, sizeof rate);
    return tell(target, length, &value, sizeof value);
}

/* Returns whether a socket of the kernel has IPV6_V6ONLY. */
bool is_v6_only(int fd) {
    int value = 0;
    socklen_t length = sizeof value;
    return !libc.getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &value, &length) && value;
}

/* Reads the options of a kernel socket. */
void read_options(int fd, uint32_t *values) {
    for (int at = 0; at < OPTIONS; at++) {
        struct linger value = {0};
        socklen_t length = sizeof value;
        values[at] = options[at].usual;
        if (!libc.getsockopt(fd, options[at].level, options[at].name, &value, &length))
            read_option(at, &value, length, &values[at]);
    }
}

/* Gives the options of an earlier socket to a kernel socket that replaces it. */
void restore_options(int fd, const uint32_t *values) {
    for (int at = 0; at < OPTIONS; at++) {
        struct linger value;
        socklen_t length = sizeof value;
        if (values[at] != options[at].usual && !tell_option(at, values[at], &value, &length))
            libc.setsockopt(fd, options[at].level, options[at].name, &value, length);
    }
}

/* Sets or queries an option on the board. Returns 0 or an error number. */
static int ask_for_option(uint8_t what, uint8_t code, const struct known *known, bool is_listener, uint32_t *value) {
    struct entry entry = {.what = what, .code = code, .slot = *value}, reply;
    int file = -1;
    put(&entry, LOCAL, &known->name[LOCAL]);
    if (!is_listener)
        put(&entry, REMOTE, &known->name[REMOTE]);
    int error = ask(&entry, known->token, &reply, &file);
    if (file >= 0)
        close(file);
    if (!error)
        *value = reply.slot;
    return error;
}

int set_option(int at, const struct known *known, bool is_listener, uint32_t value) {
    return ask_for_option(ASK_SET_OPTION, options[at].code, known, is_listener, &value);
}

/* Tells the board whether the last write had MSG_MORE. Returns 0 or an error number. */
int set_more(const struct known *known, bool is_on) {
    uint32_t value = is_on;
    return ask_for_option(ASK_SET_OPTION, MORE, known, false, &value);
}

int query_option(int at, const struct known *known, bool is_listener, uint32_t *value) {
    *value = 0;
    return ask_for_option(ASK_OPTION, options[at].code, known, is_listener, value);
}

/* The names of congestion control algorithms, by the numbers that kiban_attach has. */
static const char *const algorithms[] = {"cubic", "reno"};

/* Returns the name of the board's congestion control algorithm; NULL, with errno set, if the board does not say. */
static const char *algorithm(void) {
    struct known none = {.name = {{.in = {.sin_family = AF_INET}}}};
    uint32_t value = 0;
    int error = ask_for_option(ASK_OPTION, CONGESTION, &none, true, &value);
    if (error || value >= sizeof algorithms / sizeof *algorithms)
        return errno = error ? error : EPROTO, NULL;
    return algorithms[value];
}

/* Returns TCP_CONGESTION: the board's algorithm. */
int get_congestion(void *target, socklen_t *length) {
    char padded[16] = ""; /* TCP_CA_NAME_MAX */
    const char *name = algorithm();
    if (!name)
        return -1;
    strcpy(padded, name);
    return tell(target, length, padded, sizeof padded);
}

/* Sets TCP_CONGESTION, which can only be the board's algorithm. */
int set_congestion(const void *value, socklen_t length) {
    if (!length || !value)
        return fail(length ? EFAULT : EINVAL);
    const char *name = algorithm();
    size_t bytes = name ? strnlen(value, length) : 0;
    if (name && (bytes != strlen(name) || memcmp(value, name, bytes)))
        return fail(ENOENT);
    return name ? 0 : -1;
}

/* Reads TCP_INFO from the board. On entry `*bytes` is the size of `info`; on return it is the number of bytes
 * read, which is zero if the stream has ended. Returns 0 or an error number. */
int query_info(const struct known *known, void *info, socklen_t *bytes) {
    struct entry entry = {.what = ASK_INFO}, reply;
    struct iovec parts[] = {{&reply, sizeof reply}, {info, *bytes}};
    int asker = new_asker(0);
    if (asker < 0)
        return errno;
    put(&entry, LOCAL, &known->name[LOCAL]);
    put(&entry, REMOTE, &known->name[REMOTE]);
    int error = begin_to_ask(asker, &entry, known->token);
    ssize_t count = 0;
    if (!error && !has_answer(asker, PATIENCE_SECONDS * 1000))
        error = ENETDOWN;
    if (!error)
        count = libc.readv(asker, parts, 2);
    close(asker);
    if (!error && count < (ssize_t)sizeof reply)
        error = ECONNABORTED;
    *bytes = error ? 0 : (socklen_t)(count - sizeof reply);
    return error;
}

/* Sends the board the options that the program changed before the socket became the board's. */
void send_options(const struct known *known, bool is_listener) {
    for (int at = 0; at < OPTIONS; at++)
        if (known->options[at] != options[at].usual)
            set_option(at, known, is_listener, known->options[at]);
}

/* Makes the buffer between the program and the board hold half of `bytes`, if it is larger. The board's TCP holds the
 * other half unsent (TCP_NOTSENT_LOWAT). Unix sockets are writable while a quarter of the buffer is used. */
void limit_unsent(int fd, uint32_t bytes) {
    int size = 0, kept = errno;
    socklen_t length = sizeof size;
    /* Linux doubles the value that is set (socket(7)). */
    if (bytes && !libc.getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &length) && bytes / 2 < (uint32_t)size)
        set_buffer(fd, SO_SNDBUF, bytes < 4 ? 1 : (int)(bytes / 4));
    errno = kept;
}

/* Sets the size of the buffer between the program and the board, as the options ask for it. */
void size_send_buffer(int fd, const struct known *known) {
    set_buffer(fd, SO_SNDBUF, known->send_buffer);
    limit_unsent(fd, known->options[option_at(IPPROTO_TCP, TCP_NOTSENT_LOWAT)]);
}

/* Returns whether it is too late to set an option, as in Linux. */
bool is_too_late(int at, enum state state) {
    bool is_open = state == CONNECTING || state == CONNECTED, is_tcp = options[at].level == IPPROTO_TCP;
    /* Its effect is on binding (ipv6(7)). */
    if (options[at].level == IPPROTO_IPV6 && options[at].name == IPV6_V6ONLY)
        return state != NOTHING && state != FAILED;
    return (is_tcp && options[at].name == TCP_FASTOPEN && is_open) ||
           (is_tcp && options[at].name == TCP_FASTOPEN_CONNECT && (is_open || state == LISTENING));
}

/* Returns whether connect() is to use TCP Fast Open (TCP_FASTOPEN_CONNECT). */
bool opens_fast(const struct known *known) { return known->options[option_at(IPPROTO_TCP, TCP_FASTOPEN_CONNECT)]; }

/* Returns the traffic class of a socket's packets: IP_TOS, or IPV6_TCLASS of an IPv6 address. */
uint8_t traffic_class_of(const struct known *known) {
    bool is_v6 = known->domain == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&known->name[REMOTE].in6.sin6_addr);
    int at = is_v6 ? option_at(IPPROTO_IPV6, IPV6_TCLASS) : option_at(IPPROTO_IP, IP_TOS);
    return (uint8_t)known->options[at];
}

/* Returns whether an option changes the behaviour of a connection in a way that the board does not support.
 * Setting it fails on every TCP socket, because it is not known yet whether the socket will use the board. */
bool is_beyond_board(int level, int name) {
    switch (level) {
    case IPPROTO_TCP:
        return name == TCP_MAXSEG || name == TCP_REPAIR || name == TCP_FASTOPEN_KEY || name == TCP_FASTOPEN_NO_COOKIE;
    case IPPROTO_IP:
        return name == IP_TTL || name == IP_OPTIONS || name == IP_TRANSPARENT;
    case IPPROTO_IPV6:
        return name == IPV6_UNICAST_HOPS || name == IPV6_RTHDR || name == IPV6_HOPOPTS || name == IPV6_DSTOPTS;
    default:
        return false;
    }
}
