/* Options and ancillary data of datagram sockets on the board: ip(7), ipv6(7), udp(7), socket(7).
 *
 * State            the options are in the descriptor's record; those that the kernel's socket had when it became the
 *                  board's are copied. After exec, they have their usual values again.
 * Sending          IP_TTL, IP_TOS and IP_PKTINFO, with their IPv6 counterparts, travel in the header of the packet to the
 *                  board. A datagram with UDP_SEGMENT is cut here.
 * Receiving        the header has the fields of the datagram. UDP_GRO permits the system to merge datagrams; the board
 *                  does not merge.
 * Errors           IP_RECVERR makes the board report all errors. The last error that a read has returned is kept for
 *                  MSG_ERRQUEUE, which also returns an error that is next in the socket.
 * Lengths          as in Linux, control data with a wrong length is refused (EINVAL), and what does not fit when receiving
 *                  is cut (MSG_CTRUNC).
 * Groups           the board keeps memberships (set_membership()).
 * Not implemented  the quoted datagram in an error; errors that wait behind datagrams; SO_TIMESTAMPING; IP_MTU_DISCOVER is
 *                  stored, but the board sends fragments. */
#include "board.h"
#include <linux/errqueue.h>
#include <netinet/udp.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
/* The hop limit of a new socket of the system. */
#define USUAL_HOPS 64

enum {
    HOPS4, CLASS4, INFO4, TELLS_HOPS4, TELLS_CLASS4, ERRORS4, MTU4,
    HOPS6, CLASS6, INFO6, TELLS_HOPS6, TELLS_CLASS6, ERRORS6, MTU6,
    SEGMENT, GRO, STAMP, STAMP_NS, REUSE_ADDRESS, REUSE_PORT, V6_ONLY, DATAGRAM_OPTIONS
};
_Static_assert(DATAGRAM_OPTIONS <= OPTIONS, "a record has room for them");

/* The options, and the values that a program may set. */
static const struct {
    int level, name, least, most;
} options[DATAGRAM_OPTIONS] = {
    [HOPS4] = {IPPROTO_IP, IP_TTL, -1, 255},
    [CLASS4] = {IPPROTO_IP, IP_TOS, INT32_MIN, INT32_MAX},
    [INFO4] = {IPPROTO_IP, IP_PKTINFO, INT32_MIN, INT32_MAX},
    [TELLS_HOPS4] = {IPPROTO_IP, IP_RECVTTL, INT32_MIN, INT32_MAX},
    [TELLS_CLASS4] = {IPPROTO_IP, IP_RECVTOS, INT32_MIN, INT32_MAX},
    [ERRORS4] = {IPPROTO_IP, IP_RECVERR, INT32_MIN, INT32_MAX},
    [MTU4] = {IPPROTO_IP, IP_MTU_DISCOVER, 0, 5},
    [HOPS6] = {IPPROTO_IPV6, IPV6_UNICAST_HOPS, -1, 255},
    [CLASS6] = {IPPROTO_IPV6, IPV6_TCLASS, -1, 255},
    [INFO6] = {IPPROTO_IPV6, IPV6_RECVPKTINFO, INT32_MIN, INT32_MAX},
    [TELLS_HOPS6] = {IPPROTO_IPV6, IPV6_RECVHOPLIMIT, INT32_MIN, INT32_MAX},
    [TELLS_CLASS6] = {IPPROTO_IPV6, IPV6_RECVTCLASS, INT32_MIN, INT32_MAX},
    [ERRORS6] = {IPPROTO_IPV6, IPV6_RECVERR, INT32_MIN, INT32_MAX},
    [MTU6] = {IPPROTO_IPV6, IPV6_MTU_DISCOVER, 0, 5},
    [SEGMENT] = {IPPROTO_UDP, UDP_SEGMENT, 0, 65535},
    [GRO] = {IPPROTO_UDP, UDP_GRO, INT32_MIN, INT32_MAX},
    [STAMP] = {SOL_SOCKET, SO_TIMESTAMP, INT32_MIN, INT32_MAX},
    [STAMP_NS] = {SOL_SOCKET, SO_TIMESTAMPNS, INT32_MIN, INT32_MAX},
    [REUSE_ADDRESS] = {SOL_SOCKET, SO_REUSEADDR, INT32_MIN, INT32_MAX},
    [REUSE_PORT] = {SOL_SOCKET, SO_REUSEPORT, INT32_MIN, INT32_MAX},
    [V6_ONLY] = {IPPROTO_IPV6, IPV6_V6ONLY, INT32_MIN, INT32_MAX},
};

static int option_of(int level, int name) {
    for (int at = 0; at < DATAGRAM_OPTIONS; at++)
        if (options[at].level == level && options[at].name == name)
            return at;
    return -1;
}

/* Converts a value that a program sets to the one in the record. The record has 0 for the usual hop limit. */
static uint32_t stored(int at, int value) {
    switch (at) {
    case HOPS4:
    case HOPS6:
    case CLASS6:
        return value < 0 ? 0 : (uint32_t)value;
    case CLASS4:
        return (uint8_t)value;
    case MTU4:
    case MTU6:
    case SEGMENT:
        return (uint32_t)value;
    default:
        return value != 0;
    }
}

/* Whether the program wants the errors of all its datagrams. */
static bool wants_errors(const struct known *known) { return known->options[ERRORS4] || known->options[ERRORS6]; }

/* Tells the board whether the socket gets errors about datagrams to all addresses. */
static void send_settings(int fd, const struct known *known) {
    struct header header = {.kind = SETTINGS, .reason = wants_errors(known)};
    libc.send(fd, &header, sizeof header, MSG_NOSIGNAL);
}

/* Reads the options of a kernel socket that becomes the board's. */
void read_datagram_options(int fd, uint32_t *values) {
    for (int at = 0; at < DATAGRAM_OPTIONS; at++) {
        int value = 0;
        socklen_t length = sizeof value;
        bool is_there = !libc.getsockopt(fd, options[at].level, options[at].name, &value, &length);
        bool is_usual = (at == HOPS4 || at == HOPS6) && value == USUAL_HOPS;
        values[at] = is_there && !is_usual ? stored(at, value) : 0;
    }
}

/* Puts the options of a new socket of the board into effect. */
void apply_datagram_options(int fd, const struct known *known) {
    if (wants_errors(known))
        send_settings(fd, known);
}

int set_datagram_option(int fd, struct found *found, int level, int name, const void *value, socklen_t length) {
    int at = option_of(level, name), number = 0;
    if (is_membership(level, name))
        return set_membership(fd, found, level, name, value, length);
    /* The option holds the token (token_of()). The board has no pacing. */
    if (level == SOL_SOCKET && name == SO_MAX_PACING_RATE)
        return length < sizeof number ? fail(EINVAL) : value ? 0 : fail(EFAULT);
    if (at < 0)
        return level == SOL_SOCKET && name != SO_TIMESTAMPING ? libc.setsockopt(fd, level, name, value, length)
                                                              : fail(ENOPROTOOPT);
    if (!value)
        return fail(EFAULT);
    /* Linux also accepts most options of IPv4 as a byte. */
    if (level == IPPROTO_IP && length >= 1 && length < sizeof number)
        number = *(const uint8_t *)value;
    else if (length < sizeof number)
        return fail(EINVAL);
    else
        memcpy(&number, value, sizeof number);
    if (number < options[at].least || number > options[at].most || (at == HOPS4 && !number) || at == V6_ONLY)
        return fail(EINVAL);
    uint32_t *values = found->known.options;
    if (at == STAMP || at == STAMP_NS)
        values[STAMP] = values[STAMP_NS] = 0;
    values[at] = stored(at, number);
    if (!rewrite(found, DATAGRAMS))
        return fail(ENOBUFS);
    if (at == ERRORS4 || at == ERRORS6)
        send_settings(fd, &found->known);
    return 0;
}

int get_datagram_option(int fd, const struct found *found, int level, int name, void *target, socklen_t *length) {
    int at = option_of(level, name);
    int value = name == SO_TYPE ? SOCK_DGRAM : name == SO_PROTOCOL ? IPPROTO_UDP : found->known.domain;
    if (at >= 0) {
        value = (int)found->known.options[at];
        value = (at == HOPS4 || at == HOPS6) && !value ? USUAL_HOPS : value;
        return tell(target, length, &value, sizeof value);
    }
    if (level != SOL_SOCKET)
        return fail(ENOPROTOOPT);
    if (name == SO_TYPE || name == SO_PROTOCOL || name == SO_DOMAIN)
        return tell(target, length, &value, sizeof value);
    uint64_t unlimited = UINT64_MAX;
    if (name == SO_MAX_PACING_RATE && length)
        return tell(target, length, &unlimited, *length < sizeof unlimited ? sizeof value : sizeof unlimited);
    return libc.getsockopt(fd, level, name, target, length);
}

/* ---- Sending ---- */

/* Reads an integer in control data. Returns whether it has the right length and lies between `least` and 255. */
static bool read_number(const struct cmsghdr *control, int least, int *to) {
    bool is_byte = control->cmsg_level == IPPROTO_IP && control->cmsg_len == CMSG_LEN(1);
    if (!is_byte && control->cmsg_len != CMSG_LEN(sizeof *to))
        return false;
    memcpy(to, CMSG_DATA(control), is_byte ? 1 : sizeof *to);
    *to = is_byte ? *(const uint8_t *)CMSG_DATA(control) : *to;
    return *to >= least && *to <= 255;
}

/* Reads the source address in control data: it must be that of the socket, if the socket has one. Returns 0 or an error
 * number. */
static int read_source(const struct cmsghdr *control, const struct known *known, struct header *header) {
    struct in_pktinfo four;
    struct in6_pktinfo six;
    struct entry own = {0};
    static const uint8_t none[16];
    uint8_t address[16] = {0};
    unsigned interface;
    if (control->cmsg_level == IPPROTO_IP) {
        if (control->cmsg_len != CMSG_LEN(sizeof four))
            return EINVAL;
        memcpy(&four, CMSG_DATA(control), sizeof four);
        memcpy(address, &four.ipi_spec_dst, 4);
        interface = (unsigned)four.ipi_ifindex;
    } else {
        if (control->cmsg_len < CMSG_LEN(sizeof six))
            return EINVAL;
        memcpy(&six, CMSG_DATA(control), sizeof six);
        bool is_mapped = IN6_IS_ADDR_V4MAPPED(&six.ipi6_addr);
        if (memcmp(&six.ipi6_addr, none, 16) && is_mapped != (header->family == 4))
            return EINVAL;
        memcpy(address, (uint8_t *)&six.ipi6_addr + (is_mapped ? 12 : 0), is_mapped ? 4 : 16);
        interface = six.ipi6_ifindex;
    }
    /* The board has no interfaces of this host. */
    if (interface)
        return ENODEV;
    put(&own, LOCAL, &known->name[LOCAL]);
    if (memcmp(address, none, 16) && !is_unspecified(&own, LOCAL) && memcmp(address, own.address[LOCAL], 16))
        return EINVAL;
    memcpy(header->local, address, sizeof address);
    return 0;
}

/* Fills in the fields of a datagram from the socket's options and the message's control data. `header` has its remote
 * address. `*segment` becomes the length at which the datagram is cut, or 0. Returns 0 or an error number. */
int read_control(const struct known *known, const struct msghdr *message, struct header *header, unsigned *segment) {
    bool is_4 = header->family == 4;
    int number, error = 0;
    header->hops = (uint8_t)known->options[is_4 ? HOPS4 : HOPS6];
    header->class = (uint8_t)known->options[is_4 ? CLASS4 : CLASS6];
    *segment = known->options[SEGMENT];
    const char *end = (const char *)message->msg_control + message->msg_controllen;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR((struct msghdr *)message, at)) {
        if (at->cmsg_len < sizeof *at || at->cmsg_len > (size_t)(end - (const char *)at))
            return EINVAL;
        uint16_t length;
        bool is_v4 = at->cmsg_level == IPPROTO_IP && is_4;
        bool is_v6 = at->cmsg_level == IPPROTO_IPV6 && known->domain == AF_INET6;
        if ((is_v4 && at->cmsg_type == IP_PKTINFO) || (is_v6 && at->cmsg_type == IPV6_PKTINFO)) {
            error = read_source(at, known, header);
        } else if ((is_v4 && at->cmsg_type == IP_TTL) || (is_v6 && at->cmsg_type == IPV6_HOPLIMIT)) {
            if (!read_number(at, is_v4 ? 1 : -1, &number))
                return EINVAL;
            header->hops = number < 0 ? 0 : (uint8_t)number;
        } else if ((is_v4 && at->cmsg_type == IP_TOS) || (is_v6 && at->cmsg_type == IPV6_TCLASS)) {
            if (!read_number(at, is_v4 ? 0 : -1, &number))
                return EINVAL;
            header->class = number < 0 ? 0 : (uint8_t)number;
        } else if (at->cmsg_level == IPPROTO_UDP) {
            if (at->cmsg_type != UDP_SEGMENT || at->cmsg_len != CMSG_LEN(sizeof length))
                return EINVAL;
            memcpy(&length, CMSG_DATA(at), sizeof length);
            *segment = length;
        } else if (is_v4 || is_v6 ||
                   (at->cmsg_level == SOL_SOCKET && at->cmsg_type != SCM_RIGHTS && at->cmsg_type != SCM_CREDENTIALS)) {
            return EINVAL;
        }
        if (error)
            return error;
    }
    return 0;
}

/* ---- Receiving ---- */

/* Where the next control data goes, and what room is left. */
struct writer {
    struct msghdr *message;
    size_t used, room;
};

static void put_control(struct writer *to, int level, int type, const void *value, size_t bytes) {
    struct cmsghdr header = {.cmsg_len = CMSG_LEN(bytes), .cmsg_level = level, .cmsg_type = type};
    size_t left = to->room - to->used;
    if (!to->message->msg_control || left < sizeof header) {
        to->message->msg_flags |= MSG_CTRUNC;
        return;
    }
    if (left < header.cmsg_len) {
        to->message->msg_flags |= MSG_CTRUNC;
        header.cmsg_len = left;
    }
    char *at = (char *)to->message->msg_control + to->used;
    memcpy(at, &header, sizeof header);
    memcpy(at + CMSG_LEN(0), value, header.cmsg_len > CMSG_LEN(0) ? header.cmsg_len - CMSG_LEN(0) : 0);
    to->used += CMSG_SPACE(bytes) < left ? CMSG_SPACE(bytes) : left;
}

/* Puts the time at which the board passed a datagram on, as time of day. */
static void put_time(struct writer *to, const struct header *header, bool is_exact) {
    struct timespec now, monotonic;
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_MONOTONIC, &monotonic);
    int64_t age = (int64_t)monotonic.tv_sec * 1000000000 + monotonic.tv_nsec - (int64_t)header->nanoseconds;
    int64_t at = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - age;
    struct timespec exact = {at / 1000000000, at % 1000000000};
    struct timeval rough = {exact.tv_sec, exact.tv_nsec / 1000};
    put_control(to, SOL_SOCKET, is_exact ? SCM_TIMESTAMPNS : SCM_TIMESTAMP, is_exact ? (void *)&exact : (void *)&rough,
                is_exact ? sizeof exact : sizeof rough);
}

/* Writes the fields of a received datagram that the program wants. */
void write_control(const struct known *known, struct msghdr *message, const struct header *header) {
    struct writer to = {message, 0, message->msg_controllen};
    const uint32_t *wanted = known->options;
    int hops = header->hops, class = header->class;
    bool is_4 = header->family == 4;
    if (wanted[STAMP] || wanted[STAMP_NS])
        put_time(&to, header, wanted[STAMP_NS]);
    if (wanted[INFO6] && known->domain == AF_INET6) {
        struct in6_pktinfo six = {0};
        if (is_4)
            memset((uint8_t *)&six.ipi6_addr + 10, 0xff, 2);
        memcpy((uint8_t *)&six.ipi6_addr + (is_4 ? 12 : 0), header->local, is_4 ? 4 : 16);
        put_control(&to, IPPROTO_IPV6, IPV6_PKTINFO, &six, sizeof six);
    }
    if (is_4) {
        struct in_pktinfo four = {0};
        memcpy(&four.ipi_addr, header->local, 4);
        memcpy(&four.ipi_spec_dst, header->local, 4);
        if (wanted[INFO4])
            put_control(&to, IPPROTO_IP, IP_PKTINFO, &four, sizeof four);
        if (wanted[TELLS_HOPS4])
            put_control(&to, IPPROTO_IP, IP_TTL, &hops, sizeof hops);
        if (wanted[TELLS_CLASS4])
            put_control(&to, IPPROTO_IP, IP_TOS, &header->class, sizeof header->class);
    } else {
        if (wanted[TELLS_HOPS6])
            put_control(&to, IPPROTO_IPV6, IPV6_HOPLIMIT, &hops, sizeof hops);
        if (wanted[TELLS_CLASS6])
            put_control(&to, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof class);
    }
    message->msg_controllen = to.used;
}

/* Keeps an error that a read returns, for MSG_ERRQUEUE. */
void keep_error(struct found *found, const struct header *header) {
    if (!wants_errors(&found->known))
        return;
    memcpy(found->known.error, header, sizeof *header);
    rewrite(found, DATAGRAMS);
}

/* Reads the next error: the one that the last read returned, or one that is next in the socket (ip(7), IP_RECVERR). */
ssize_t receive_error(int fd, struct found *found, struct msghdr *message) {
    struct header header;
    struct {
        struct sock_extended_err error;
        union name offender;
    } report = {0};
    memcpy(&header, found->known.error, sizeof header);
    if (header.kind == PROBLEM) {
        memset(found->known.error, 0, sizeof found->known.error);
        rewrite(found, DATAGRAMS);
    } else if (libc.recv(fd, &header, sizeof header, MSG_PEEK | MSG_DONTWAIT) != sizeof header ||
               header.kind != PROBLEM || libc.recv(fd, &header, sizeof header, MSG_DONTWAIT) != sizeof header) {
        return fail(EAGAIN);
    }
    int domain = found->known.domain;
    struct entry entry = {.family = {header.family, header.family}, .port = {[REMOTE] = header.port}};
    memcpy(entry.address[LOCAL], header.local, 16);
    memcpy(entry.address[REMOTE], header.address, 16);
    report.error.ee_errno = (uint32_t)error_of(header.reason);
    report.error.ee_origin = !header.is_icmp         ? SO_EE_ORIGIN_LOCAL
                             : header.family == 4 ? SO_EE_ORIGIN_ICMP
                                                     : SO_EE_ORIGIN_ICMP6;
    report.error.ee_type = header.class;
    report.error.ee_code = header.hops;
    report.error.ee_info = (uint32_t)header.nanoseconds;
    if (header.is_icmp)
        report.offender = name_of(&entry, LOCAL, domain);
    union name target = name_of(&entry, REMOTE, domain);
    struct writer to = {message, 0, message->msg_controllen};
    message->msg_flags = MSG_ERRQUEUE;
    put_control(&to, domain == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, domain == AF_INET ? IP_RECVERR : IPV6_RECVERR,
                &report, sizeof report.error + length_of(domain));
    message->msg_controllen = to.used;
    if (message->msg_name)
        tell_name(&target, message->msg_name, &message->msg_namelen);
    return 0;
}
