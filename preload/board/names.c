/* Names and addresses over the board: gethostbyname(3), gethostbyaddr(3), getnameinfo(3) and their relatives.
 *
 * Operation        queries are made as in getaddrinfo() (resolve.c). What libc finds without a query, in /etc/hosts for
 *                  example, is left to it.
 * Trust            a name that a server returns for an address must be one of a host (RFC 952, RFC 1123 2.1); programs put
 *                  such names into logs and commands. Others are ignored.
 * Not implemented  as in resolve.c; RES_USE_INET6. */
#include "resolve.h"
#include <strings.h>

/* The room for the results of functions that return static data. */
#define STATIC_BYTES 32768
/* The names and addresses of a host that are returned. */
#define NAMES 32
#define HOST_ADDRESSES 512

/* The names and addresses of a host, before they are put into the program's buffer. */
struct host {
    int family;
    /* The name and its aliases. */
    char names[NAMES][NAME_BYTES];
    int name_count;
    unsigned char address[HOST_ADDRESSES][sizeof(struct in6_addr)];
    int address_count;
};

static socklen_t bytes_of(int family) { return family == AF_INET ? 4 : 16; }

/* Puts a host into the program's buffer. Returns 0 or ERANGE. */
static int fill_host(const struct host *from, struct hostent *to, char *buffer, size_t room) {
    size_t pointers = (size_t)(from->name_count + from->address_count + 1), length = bytes_of(from->family);
    size_t before = -(uintptr_t)buffer % sizeof(char *), needed = before + pointers * sizeof(char *);
    for (int at = 0; at < from->name_count; at++)
        needed += strlen(from->names[at]) + 1;
    if (needed + (size_t)from->address_count * length > room)
        return ERANGE;
    char **list = (char **)(buffer + before), *text = (char *)(list + pointers);
    to->h_addr_list = list;
    for (int at = 0; at < from->address_count; at++, text += length)
        *list++ = memcpy(text, from->address[at], length);
    *list++ = NULL;
    to->h_aliases = list;
    for (int at = 0; at < from->name_count; at++) {
        char *name = strcpy(text, from->names[at]);
        text += strlen(name) + 1;
        if (at)
            *list++ = name;
        else
            to->h_name = name;
    }
    *list = NULL;
    to->h_addrtype = from->family;
    to->h_length = (int)length;
    return 0;
}

static void add_name(struct host *host, const char *name) {
    if (*name && host->name_count < NAMES && strlen(name) < NAME_BYTES)
        strcpy(host->names[host->name_count++], name);
}

/* The outcome of a lookup: a value of h_errno, or one of these. */
enum { FOUND = 0, LEFT_TO_LIBC = -2 };

/* Looks up the addresses of a name. */
static int host_of_name(const char *name, int family, struct host *host) {
    struct __res_state state = {0};
    char found[NAME_BYTES];
    bool is_down;
    if ((family != AF_INET && family != AF_INET6) || is_left_to_libc(name) || !open_resolver(&state))
        return LEFT_TO_LIBC;
    int outcome = LEFT_TO_LIBC, kept = errno;
    struct lookup *lookup = NULL;
    if (!has_server(&state, &is_down)) {
        outcome = is_down ? TRY_AGAIN : LEFT_TO_LIBC;
    } else if (!(lookup = calloc(1, sizeof *lookup))) {
        outcome = NETDB_INTERNAL;
    } else {
        lookup->state = &state;
        look_up_all(lookup, name, family, found);
        outcome = lookup->count ? FOUND : lookup->is_silent ? TRY_AGAIN : lookup->exists ? NO_DATA : HOST_NOT_FOUND;
        size_t length = strlen(found);
        if (length && found[length - 1] == '.')
            found[length - 1] = 0;
        host->family = family;
        for (int at = 0; at < lookup->count && host->address_count < HOST_ADDRESSES; at++)
            host->address_count += inet_pton(family, lookup->address[at], host->address[host->address_count]) == 1;
        add_name(host, *lookup->canonical ? lookup->canonical : found);
        if (strcasecmp(host->names[0], found))
            add_name(host, found);
        errno = kept;
    }
    free(lookup);
    close_resolver(&state);
    return outcome;
}

/* Writes the name under which an address has its names (RFC 1035 3.5, RFC 3596 2.5). */
static void write_pointer(char *to, int family, const unsigned char *address) {
    for (int at = (int)bytes_of(family) - 1; at >= 0; at--)
        to += family == AF_INET ? sprintf(to, "%d.", address[at])
                                : sprintf(to, "%x.%x.", address[at] & 0xf, address[at] >> 4);
    strcpy(to, family == AF_INET ? "in-addr.arpa" : "ip6.arpa");
}

/* Adds the valid names in an answer. */
static void read_names(struct host *host, const unsigned char *answer, int bytes) {
    ns_msg message;
    ns_rr record;
    char name[NS_MAXDNAME];
    if (ns_initparse(answer, bytes, &message))
        return;
    for (int at = 0; at < ns_msg_count(message, ns_s_an); at++)
        if (!ns_parserr(&message, ns_s_an, at, &record) && ns_rr_type(record) == ns_t_ptr &&
            ns_rr_class(record) == ns_c_in &&
            ns_name_uncompress(answer, answer + bytes, ns_rr_rdata(record), name, sizeof name) > 0 && res_hnok(name))
            add_name(host, name);
}

/* Looks up the names of an address. */
static int host_of_address(int family, const void *address, struct host *host) {
    struct __res_state state = {0};
    const unsigned char *its = address;
    unsigned char query[NS_PACKETSZ];
    char pointer[NAME_BYTES];
    bool is_down;
    if (!board_path || (family != AF_INET && family != AF_INET6) || is_address_in_hosts(family, address))
        return LEFT_TO_LIBC;
    bool is_mapped = family == AF_INET6 && IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)address);
    if ((is_mapped && is_address_in_hosts(AF_INET, its + 12)) || !open_resolver(&state))
        return LEFT_TO_LIBC;
    int outcome = NETDB_INTERNAL, kept = errno;
    host->family = family;
    host->address_count = 1;
    memcpy(host->address[0], address, bytes_of(family));
    write_pointer(pointer, is_mapped ? AF_INET : family, is_mapped ? its + 12 : its);
    struct lookup *lookup = NULL;
    int bytes = res_nmkquery(&state, ns_o_query, pointer, ns_c_in, ns_t_ptr, NULL, 0, NULL, query, sizeof query);
    if (!has_server(&state, &is_down)) {
        outcome = is_down ? TRY_AGAIN : LEFT_TO_LIBC;
    } else if (bytes > 0 && (lookup = calloc(1, sizeof *lookup))) {
        lookup->state = &state;
        bytes = ask_servers(lookup, query, bytes);
        int code = bytes < 0 ? ns_r_servfail : lookup->answer[3] & 0xf;
        if (code == ns_r_noerror)
            read_names(host, lookup->answer, bytes);
        outcome = host->name_count                                  ? FOUND
                  : code == ns_r_servfail                           ? TRY_AGAIN
                  : code == ns_r_noerror || code == ns_r_nxdomain ? HOST_NOT_FOUND
                                                                    : NO_RECOVERY;
        errno = kept;
    }
    free(lookup);
    close_resolver(&state);
    return outcome;
}

/* Returns the outcome of a lookup to a program, as the functions with a buffer do. */
static int tell_host(int outcome, const struct host *host, struct hostent *to, char *buffer, size_t room,
                     struct hostent **result, int *error) {
    int failed = outcome == FOUND ? fill_host(host, to, buffer, room) : outcome == TRY_AGAIN ? EAGAIN : 0;
    *error = failed == ERANGE ? NETDB_INTERNAL : outcome == FOUND ? NETDB_SUCCESS : outcome;
    *result = outcome == FOUND && !failed ? to : NULL;
    if (failed)
        errno = failed;
    return failed;
}

/* Returns libc's function `name`. */
#define LIBCS(name)                                                     \
    static __typeof__(&name) libc_##name;                               \
    if (!libc_##name)                                                   \
        *(void **)&libc_##name = dlsym(RTLD_NEXT, #name);

OURS int gethostbyname2_r(const char *name, int family, struct hostent *to, char *buffer, size_t room,
                          struct hostent **result, int *error) {
    LIBCS(gethostbyname2_r)
    struct host host = {0};
    int outcome = BYPASSED ? LEFT_TO_LIBC : host_of_name(name, family, &host);
    return outcome == LEFT_TO_LIBC ? libc_gethostbyname2_r(name, family, to, buffer, room, result, error)
                                   : tell_host(outcome, &host, to, buffer, room, result, error);
}

OURS int gethostbyname_r(const char *name, struct hostent *to, char *buffer, size_t room, struct hostent **result,
                         int *error) {
    return gethostbyname2_r(name, AF_INET, to, buffer, room, result, error);
}

OURS int gethostbyaddr_r(const void *address, socklen_t length, int family, struct hostent *to, char *buffer,
                         size_t room, struct hostent **result, int *error) {
    LIBCS(gethostbyaddr_r)
    struct host host = {0};
    bool is_libcs = BYPASSED || !address || length != bytes_of(family);
    int outcome = is_libcs ? LEFT_TO_LIBC : host_of_address(family, address, &host);
    return outcome == LEFT_TO_LIBC ? libc_gethostbyaddr_r(address, length, family, to, buffer, room, result, error)
                                   : tell_host(outcome, &host, to, buffer, room, result, error);
}

static struct hostent *tell_static(int outcome, const struct host *host) {
    static struct hostent entry;
    static char buffer[STATIC_BYTES];
    struct hostent *result;
    tell_host(outcome, host, &entry, buffer, sizeof buffer, &result, &h_errno);
    return result;
}

OURS struct hostent *gethostbyname2(const char *name, int family) {
    LIBCS(gethostbyname2)
    struct host host = {0};
    int outcome = BYPASSED ? LEFT_TO_LIBC : host_of_name(name, family, &host);
    return outcome == LEFT_TO_LIBC ? libc_gethostbyname2(name, family) : tell_static(outcome, &host);
}

OURS struct hostent *gethostbyname(const char *name) { return gethostbyname2(name, AF_INET); }

OURS struct hostent *gethostbyaddr(const void *address, socklen_t length, int family) {
    LIBCS(gethostbyaddr)
    struct host host = {0};
    bool is_libcs = BYPASSED || !address || length != bytes_of(family);
    int outcome = is_libcs ? LEFT_TO_LIBC : host_of_address(family, address, &host);
    return outcome == LEFT_TO_LIBC ? libc_gethostbyaddr(address, length, family) : tell_static(outcome, &host);
}

/* Removes the domain of this host from a name (getnameinfo(3), NI_NOFQDN). */
static void cut_domain(char *name) {
    struct __res_state state = {0};
    char *dot = strchr(name, '.');
    if (res_ninit(&state))
        return;
    if (dot && state.dnsrch[0] && !strcasecmp(dot + 1, state.dnsrch[0]))
        *dot = 0;
    res_nclose(&state);
}

/* Finds the address in a name of a socket. Returns NULL if it has none. */
static const void *address_in(const struct sockaddr *name, socklen_t length) {
    if (length >= sizeof(struct sockaddr_in) && name->sa_family == AF_INET)
        return &((const struct sockaddr_in *)name)->sin_addr;
    if (length >= sizeof(struct sockaddr_in6) && name->sa_family == AF_INET6)
        return &((const struct sockaddr_in6 *)name)->sin6_addr;
    return NULL;
}

OURS int getnameinfo(const struct sockaddr *name, socklen_t length, char *host_name, socklen_t host_room, char *service,
                     socklen_t service_room, int flags) {
    LIBCS(getnameinfo)
    struct host host = {0};
    const void *address = name ? address_in(name, length) : NULL;
    bool is_libcs = BYPASSED || !address || !host_name || !host_room || (flags & NI_NUMERICHOST);
    int outcome = is_libcs ? LEFT_TO_LIBC : host_of_address(name->sa_family, address, &host);
    switch (outcome) {
    case LEFT_TO_LIBC:
        return libc_getnameinfo(name, length, host_name, host_room, service, service_room, flags);
    case FOUND:
        if (flags & NI_NOFQDN)
            cut_domain(host.names[0]);
        if (strlen(host.names[0]) >= host_room)
            return EAI_OVERFLOW;
        strcpy(host_name, host.names[0]);
        return service && service_room ? libc_getnameinfo(name, length, NULL, 0, service, service_room, flags) : 0;
    case TRY_AGAIN:
        return EAI_AGAIN;
    case NETDB_INTERNAL:
        return EAI_MEMORY;
    default:
        if (flags & NI_NAMEREQD)
            return EAI_NONAME;
        flags |= NI_NUMERICHOST;
        return libc_getnameinfo(name, length, host_name, host_room, service, service_room, flags);
    }
}
