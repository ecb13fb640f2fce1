/* Names over the board: getaddrinfo(3).
 *
 * Purpose          libc's resolver makes its calls without the entry points of libc, so they cannot be interposed and would
 *                  use the host's network.
 * Operation        a name is looked up here if it is not an address and not in /etc/hosts, and the board has a route to a
 *                  server of /etc/resolv.conf. The queries go over UDP and, if an answer is cut, TCP, through the calls of
 *                  this library. libc makes the result from the addresses, as it does from addresses in text form.
 * Configuration    servers, search list, ndots, timeout and attempts as libc reads them (resolv.conf(5)).
 * Order            IPv4 addresses come first: boards rarely have an IPv6 route to the Internet.
 * Left to libc     names in /etc/hosts, and everything if the board has no route to a server.
 * Other calls      queries.c has res_query() and its relatives, names.c gethostbyname() and the reverse lookups.
 * Not implemented  other sources that the hosts line of nsswitch.conf may name (files and dns are its usual ones); the
 *                  aliases of a name in getaddrinfo() (AI_CANONNAME returns the name that was asked for), AI_V4MAPPED;
 *                  DNSSEC; a cache. */
#include "resolve.h"
#include <ctype.h>
#include <strings.h>
#include <sys/random.h>

static int (*libc_getaddrinfo)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

/* Whether /etc/hosts has a name or, if that is NULL, an address. */
static bool is_in_hosts(const char *name, int family, const void *address) {
    char *line = NULL, *rest, *word, its[sizeof(struct in6_addr)];
    size_t room = 0, length = family == AF_INET ? 4 : 16;
    bool is_there = false;
    FILE *hosts = fopen("/etc/hosts", "re");
    while (hosts && !is_there && getline(&line, &room, hosts) > 0) {
        line[strcspn(line, "#")] = 0;
        if (!(word = strtok_r(line, " \t\n", &rest)))
            continue;
        is_there = !name && inet_pton(family, word, its) == 1 && !memcmp(its, address, length);
        while (name && !is_there && (word = strtok_r(NULL, " \t\n", &rest)))
            is_there = !strcasecmp(word, name);
    }
    free(line);
    if (hosts)
        fclose(hosts);
    return is_there;
}

bool is_address_in_hosts(int family, const void *address) { return is_in_hosts(NULL, family, address); }

/* Whether a name is that of this host (RFC 6761 6.3). */
static bool is_localhost(const char *name) {
    static const char local[] = "localhost";
    size_t length = strlen(name) - (*name && name[strlen(name) - 1] == '.'), its = sizeof local - 1;
    return length >= its && !strncasecmp(name + length - its, local, its) &&
           (length == its || name[length - its - 1] == '.');
}

/* Reads the address of a server. Returns its length, or 0. */
static socklen_t server_at(const struct __res_state *state, int at, union name *server) {
    const struct sockaddr_in6 *six = state->_u._ext.nsaddrs[at];
    if (state->nsaddr_list[at].sin_family == AF_INET) {
        server->in = state->nsaddr_list[at];
        return sizeof server->in;
    }
    if (!six)
        return 0;
    server->in6 = *six;
    return sizeof server->in6;
}

/* Opens a socket to a server. Returns -1 if it would not be the board's. */
static int open_server(const struct __res_state *state, int at, int type) {
    union name server;
    struct found found;
    struct timeval patience = {.tv_sec = state->retrans};
    socklen_t length = server_at(state, at, &server);
    int file = length ? socket(server.any.sa_family, type | SOCK_CLOEXEC, 0) : -1;
    if (file < 0)
        return -1;
    setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    int failed = connect(file, &server.any, length) ? errno : 0;
    if (!failed && (type == SOCK_DGRAM ? find_datagrams(file, &found) : find_or_adopt(file, &found)))
        return file;
    close(file);
    errno = failed;
    return -1;
}

/* Returns the length of the question in a message; 0 if it has not exactly one. */
static int question_bytes(const unsigned char *message, int bytes) {
    int at = NS_HFIXEDSZ;
    if (bytes < NS_HFIXEDSZ || message[4] || message[5] != 1)
        return 0;
    while (at < bytes && message[at] && message[at] < 0x40)
        at += message[at] + 1;
    at += 1 + NS_QFIXEDSZ;
    return at <= bytes && !message[at - 1 - NS_QFIXEDSZ] ? at - NS_HFIXEDSZ : 0;
}

/* Whether an answer is that to a query: the same number and question (RFC 5452 9.1). The letters of the name may differ
 * in case, and the query may have more sections, such as that of EDNS. An error may come without the question. */
static bool answers(const unsigned char *query, int query_bytes, const unsigned char *answer, int bytes) {
    int length = question_bytes(query, query_bytes), its = question_bytes(answer, bytes);
    if (bytes < NS_HFIXEDSZ || memcmp(query, answer, 2) || !(answer[2] & 0x80))
        return false;
    if (!length || (!answer[4] && !answer[5] && (answer[3] & 0xf)))
        return true;
    bool is_same = its == length;
    for (int at = NS_HFIXEDSZ; is_same && at < NS_HFIXEDSZ + length; at++)
        is_same = tolower(query[at]) == tolower(answer[at]);
    return is_same;
}

static bool receive_whole(int file, void *to, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        ssize_t count = recv(file, (char *)to + at, bytes - at, 0);
        if (count <= 0)
            return false;
        at += count;
    }
    return true;
}

static int ask_by_tcp(struct lookup *lookup, int at, const unsigned char *query, int query_bytes) {
    unsigned char length[2] = {(unsigned char)(query_bytes >> 8), (unsigned char)query_bytes};
    struct iovec parts[] = {{length, 2}, {(void *)query, query_bytes}};
    int file = open_server(lookup->state, at, SOCK_STREAM), bytes = -1;
    if (file < 0)
        return -1;
    if (writev(file, parts, 2) == query_bytes + 2 && receive_whole(file, length, 2)) {
        bytes = length[0] << 8 | length[1];
        if (!receive_whole(file, lookup->answer, bytes))
            bytes = -1;
    }
    close(file);
    return bytes;
}

/* Sends a query to a server over UDP, and again over TCP if the answer is cut. Returns the length of the answer; -1 if
 * there is none. */
static int ask_server(struct lookup *lookup, int at, const unsigned char *query, int query_bytes) {
    bool is_stream = (lookup->state->options & RES_USEVC) || query_bytes > NS_PACKETSZ;
    int file = is_stream ? -1 : open_server(lookup->state, at, SOCK_DGRAM), bytes = -1;
    if (file < 0 && !is_stream)
        return -1;
    int64_t until = microseconds() + (int64_t)lookup->state->retrans * 1000000;
    if (!is_stream && send(file, query, query_bytes, 0) == query_bytes)
        while (microseconds() < until) {
            bytes = (int)recv(file, lookup->answer, sizeof lookup->answer, 0);
            if (bytes < 0 || answers(query, query_bytes, lookup->answer, bytes))
                break;
            bytes = -1;
        }
    if (file >= 0)
        close(file);
    bool is_cut = bytes >= NS_HFIXEDSZ && (lookup->answer[2] & 2) && !(lookup->state->options & RES_IGNTC);
    if (is_stream || is_cut) {
        int whole = ask_by_tcp(lookup, at, query, query_bytes);
        bytes = whole >= 0 && answers(query, query_bytes, lookup->answer, whole) ? whole : -1;
    }
    return bytes;
}

/* Sends a query to the servers in turn until one answers. Returns the length of the answer; -1 if there is none. */
int ask_servers(struct lookup *lookup, const unsigned char *query, int query_bytes) {
    for (int attempt = 0; attempt < lookup->state->retry; attempt++)
        for (int at = 0; at < lookup->state->nscount; at++) {
            int bytes = ask_server(lookup, at, query, query_bytes);
            int code = bytes < NS_HFIXEDSZ ? ns_r_servfail : lookup->answer[3] & 0xf;
            if (code != ns_r_servfail && code != ns_r_notimpl && code != ns_r_refused)
                return bytes;
        }
    return -1;
}

/* Adds the addresses of an answer. */
static void read_answer(struct lookup *lookup, int bytes, int type) {
    ns_msg message;
    ns_rr record;
    size_t length = type == ns_t_a ? 4 : 16;
    if (ns_initparse(lookup->answer, bytes, &message))
        return;
    for (int at = 0; at < ns_msg_count(message, ns_s_an) && lookup->count < ADDRESSES; at++) {
        if (ns_parserr(&message, ns_s_an, at, &record) || (int)ns_rr_type(record) != type ||
            ns_rr_class(record) != ns_c_in || ns_rr_rdlen(record) != length)
            continue;
        inet_ntop(type == ns_t_a ? AF_INET : AF_INET6, ns_rr_rdata(record), lookup->address[lookup->count++],
                  INET6_ADDRSTRLEN);
        if (!*lookup->canonical && strlen(ns_rr_name(record)) < NAME_BYTES && res_hnok(ns_rr_name(record)))
            strcpy(lookup->canonical, ns_rr_name(record));
    }
}

/* Asks for the addresses of one family that a name has. */
static void ask_for(struct lookup *lookup, const char *name, int type) {
    unsigned char query[NS_PACKETSZ];
    int bytes = res_nmkquery(lookup->state, ns_o_query, name, ns_c_in, type, NULL, 0, NULL, query, sizeof query);
    if (bytes < 0 || getrandom(query, 2, 0) != 2)
        return;
    bytes = ask_servers(lookup, query, bytes);
    int code = bytes < 0 ? ns_r_servfail : lookup->answer[3] & 0xf;
    if (code != ns_r_noerror && code != ns_r_nxdomain) {
        lookup->is_silent = true;
        return;
    }
    lookup->is_answered = true;
    lookup->exists |= code == ns_r_noerror;
    read_answer(lookup, bytes, type);
}

static void look_up(struct lookup *lookup, const char *name, int family) {
    if (family != AF_INET6)
        ask_for(lookup, name, ns_t_a);
    if (family != AF_INET)
        ask_for(lookup, name, ns_t_aaaa);
}

/* Looks a name up with the search list (resolv.conf(5)). `found` becomes the name that has addresses. */
void look_up_all(struct lookup *lookup, const char *name, int family, char *found) {
    const struct __res_state *state = lookup->state;
    unsigned dots = 0;
    for (const char *at = name; *at; at++)
        dots += *at == '.';
    bool is_absolute = *name && name[strlen(name) - 1] == '.', is_first = is_absolute || dots >= state->ndots;
    snprintf(found, NAME_BYTES, "%s", name);
    if (is_first)
        look_up(lookup, found, family);
    for (int at = 0; !is_absolute && !lookup->count && !lookup->is_silent && at < MAXDNSRCH && state->dnsrch[at]; at++)
        if (snprintf(found, NAME_BYTES, "%s.%s", name, state->dnsrch[at]) < NAME_BYTES)
            look_up(lookup, found, family);
    if (!is_first && !lookup->count && !lookup->is_silent) {
        snprintf(found, NAME_BYTES, "%s", name);
        look_up(lookup, found, family);
    }
}

/* Makes the result from addresses in text form. */
static int make_result(const struct lookup *lookup, const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **result) {
    struct addrinfo wanted = {0}, **end = result;
    if (hints)
        wanted = *hints;
    bool wants_name = wanted.ai_flags & AI_CANONNAME;
    wanted.ai_flags = AI_NUMERICHOST | (wanted.ai_flags & AI_NUMERICSERV);
    *result = NULL;
    for (int at = 0; at < lookup->count; at++) {
        int error = libc_getaddrinfo(lookup->address[at], service, &wanted, end);
        if (error) {
            *end = NULL;
            if (*result)
                freeaddrinfo(*result);
            return error;
        }
        while (*end)
            end = &(*end)->ai_next;
    }
    if (wants_name && !((*result)->ai_canonname = strdup(name))) {
        freeaddrinfo(*result);
        return EAI_MEMORY;
    }
    return 0;
}

/* Whether the board has a route to one of the servers. Sets `*is_down` if it has stopped: then the host's network must
 * not be used. */
bool has_server(const struct __res_state *state, bool *is_down) {
    *is_down = false;
    for (int at = 0; at < state->nscount; at++) {
        errno = 0;
        int file = open_server(state, at, SOCK_DGRAM);
        if (file >= 0) {
            close(file);
            return true;
        }
        *is_down = *is_down || errno == ENETDOWN;
    }
    return false;
}

/* Replaces the servers of /etc/resolv.conf by those that `kiban run` names: the ones that the board has leased. */
static void use_named_servers(struct __res_state *state) {
    const char *said = getenv("KIBAN_NAME_SERVERS");
    char copy[MAXNS * INET_ADDRSTRLEN + MAXNS], *rest;
    struct sockaddr_in servers[MAXNS];
    int count = 0;
    if (!said || strlen(said) >= sizeof copy)
        return;
    strcpy(copy, said);
    for (char *word = strtok_r(copy, " ", &rest); word && count < MAXNS; word = strtok_r(NULL, " ", &rest)) {
        servers[count] = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(NAMESERVER_PORT)};
        count += inet_pton(AF_INET, word, &servers[count].sin_addr) == 1;
    }
    if (count) {
        memcpy(state->nsaddr_list, servers, sizeof servers[0] * count);
        state->nscount = count;
    }
}

/* As res_ninit, for a state that is zero, but with the name servers of `kiban run`. Returns false on failure. */
bool open_resolver(struct __res_state *state) {
    if (res_ninit(state))
        return false;
    use_named_servers(state);
    return true;
}

void close_resolver(struct __res_state *state) {
    /* res_nclose frees what res_ninit has allocated for this many servers; for others, there is nothing. */
    state->nscount = MAXNS;
    res_nclose(state);
}

/* Whether libc looks a name up: it is an address, or in /etc/hosts, or too long. */
bool is_left_to_libc(const char *name) {
    struct in6_addr address;
    return !board_path || !name || !*name || strlen(name) >= NAME_BYTES || inet_pton(AF_INET, name, &address) == 1 ||
           strchr(name, ':') || inet_aton(name, (struct in_addr *)&address) || is_localhost(name) ||
           is_in_hosts(name, AF_UNSPEC, NULL);
}

OURS int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **result) {
    if (!libc_getaddrinfo)
        *(void **)&libc_getaddrinfo = dlsym(RTLD_NEXT, "getaddrinfo");
    if (BYPASSED || (hints && (hints->ai_flags & AI_NUMERICHOST)) || is_left_to_libc(name))
        return libc_getaddrinfo(name, service, hints, result);
    int kept = errno, error = EAI_MEMORY;
    bool is_down;
    struct __res_state state = {0};
    struct lookup *lookup = NULL;
    if (!open_resolver(&state))
        return libc_getaddrinfo(name, service, hints, result);
    if (!has_server(&state, &is_down)) {
        error = is_down ? EAI_AGAIN : libc_getaddrinfo(name, service, hints, result);
    } else if ((lookup = calloc(1, sizeof *lookup))) {
        char found[NAME_BYTES];
        lookup->state = &state;
        look_up_all(lookup, name, hints ? hints->ai_family : AF_UNSPEC, found);
        error = lookup->count ? make_result(lookup, found, service, hints, result)
                : lookup->is_silent ? EAI_AGAIN
                                    : EAI_NONAME;
        free(lookup);
        errno = kept;
    }
    close_resolver(&state);
    return error;
}
