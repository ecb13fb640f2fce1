/* The resolver's functions over the board: resolver(3).
 *
 * Operation        res_nsend() and res_send() send a program's query to the servers of its state over the board. The other
 *                  functions build the query with libc and send it in the same way, because those of libc would not call
 *                  these.
 * Errors           as in libc: -1, with h_errno and the state's res_h_errno.
 * Left to libc     everything if the board has no route to a server.
 * Not implemented  HOSTALIASES; the state's rotate option. */
#include "resolve.h"

/* On old systems, these names are macros. */
#undef res_query
#undef res_search
#undef res_querydomain
#undef res_send
#undef res_nquery
#undef res_nsearch
#undef res_nquerydomain
#undef res_nsend

typedef struct __res_state *state_of;

/* Returns libc's function, which older versions have under another name, in libresolv. */
static void *libcs(const char *name, const char *older) {
    void *found = dlsym(RTLD_NEXT, name);
    return found ? found : dlsym(RTLD_NEXT, older);
}

static int failed_with(state_of state, int error) {
    state->res_h_errno = error;
    h_errno = error;
    return -1;
}

/* Returns the state of this thread, as the functions without a state use it. */
static state_of own_state(void) {
    state_of state = &_res;
    return !(state->options & RES_INIT) && res_ninit(state) ? NULL : state;
}

/* Whether a state's servers are reached over the board. If the board has stopped, they are not reached at all. */
static bool is_boards(state_of state, bool *is_down) {
    *is_down = false;
    return board_path && (has_server(state, is_down) || *is_down);
}

/* Sends a query. If the answer does not fit, the rest is lost, and it is marked as cut. */
static int send_on_board(state_of state, const unsigned char *query, int query_bytes, unsigned char *answer, int room) {
    int kept = errno, bytes = -1;
    if (query_bytes < NS_HFIXEDSZ || query_bytes > NS_MAXMSG || room < NS_HFIXEDSZ) {
        errno = EINVAL;
        return -1;
    }
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (lookup) {
        lookup->state = state;
        bytes = ask_servers(lookup, query, query_bytes);
        if (bytes >= 0)
            memcpy(answer, lookup->answer, bytes < room ? bytes : room);
        if (bytes > room)
            answer[2] |= 2;
        free(lookup);
        errno = bytes < 0 ? ETIMEDOUT : kept;
    }
    return bytes;
}

/* Adds the record of EDNS (RFC 6891 6.1.2) for options edns0 of resolv.conf. Returns the length of the query. */
static int with_edns(state_of state, unsigned char *query, int bytes) {
    /* The root's name, the type OPT, the room for an answer, no extended flags and no data. */
    static const unsigned char record[11] = {0, 0, ns_t_opt, 1200 >> 8, 1200 & 0xff};
    if (!(state->options & RES_USE_EDNS0))
        return bytes;
    memcpy(query + bytes, record, sizeof record);
    query[11]++;
    return bytes + (int)sizeof record;
}

static int query_on_board(state_of state, const char *name, int class, int type, unsigned char *answer, int room) {
    unsigned char query[NS_PACKETSZ + 16];
    int bytes = res_nmkquery(state, ns_o_query, name, class, type, NULL, 0, NULL, query, NS_PACKETSZ);
    if (bytes < 0)
        return failed_with(state, NO_RECOVERY);
    int whole = with_edns(state, query, bytes), got = send_on_board(state, query, whole, answer, room);
    if (got >= NS_HFIXEDSZ && (answer[3] & 0xf) == ns_r_formerr && whole > bytes) {
        /* The server does not know EDNS (RFC 6891 6.2.2). */
        query[11]--;
        got = send_on_board(state, query, bytes, answer, room);
    }
    if (got < NS_HFIXEDSZ)
        return failed_with(state, errno == EINVAL ? NO_RECOVERY : TRY_AGAIN);
    switch (answer[3] & 0xf) {
    case ns_r_noerror:
        return answer[6] || answer[7] ? got : failed_with(state, NO_DATA);
    case ns_r_nxdomain:
        return failed_with(state, HOST_NOT_FOUND);
    default:
        return failed_with(state, NO_RECOVERY);
    }
}

/* Queries a name in a domain; NULL: the name is absolute. */
static int query_in(state_of state, const char *name, const char *domain, int class, int type, unsigned char *answer,
                    int room) {
    char whole[NAME_BYTES * 4];
    if (!domain || !*domain)
        return query_on_board(state, name, class, type, answer, room);
    if (snprintf(whole, sizeof whole, "%s.%s", name, domain) >= (int)sizeof whole)
        return failed_with(state, NO_RECOVERY);
    return query_on_board(state, whole, class, type, answer, room);
}

static int search_on_board(state_of state, const char *name, int class, int type, unsigned char *answer, int room) {
    unsigned dots = 0;
    bool has_data = true, is_tried = false, has_failed = false;
    for (const char *at = name; *at; at++)
        dots += *at == '.';
    bool is_absolute = dots && name[strlen(name) - 1] == '.';
    int got;
    if (is_absolute || dots >= state->ndots) {
        got = query_on_board(state, name, class, type, answer, room);
        if (got > 0 || is_absolute)
            return got;
        is_tried = true;
        has_data = h_errno != NO_DATA;
        if (h_errno == TRY_AGAIN)
            return got;
    }
    bool searches = dots ? state->options & RES_DNSRCH : state->options & RES_DEFNAMES;
    for (int at = 0; searches && at < MAXDNSRCH && state->dnsrch[at]; at++) {
        got = query_in(state, name, state->dnsrch[at], class, type, answer, room);
        if (got > 0)
            return got;
        has_data = has_data && h_errno != NO_DATA;
        has_failed = h_errno == TRY_AGAIN;
        if (has_failed || h_errno == NO_RECOVERY || !(state->options & RES_DNSRCH))
            break;
    }
    if (!is_tried && !has_failed && (dots || !searches || !(state->options & RES_NOTLDQUERY)) &&
        (got = query_on_board(state, name, class, type, answer, room)) > 0)
        return got;
    if (has_failed)
        return failed_with(state, TRY_AGAIN);
    /* If the name has other records in one of the domains, say so. */
    return has_data ? -1 : failed_with(state, NO_DATA);
}

/* Defines a function, its form without a state, and their names on old systems. `body` is its result on the board;
 * `broken` is its result if the board has stopped. */
#define RESOLVER(name, parameters, arguments, body)                                                                      \
    OURS int res_n##name(state_of state, PARAMETERS parameters) {                                                          \
        static int (*libc_call)(state_of, PARAMETERS parameters);                                                          \
        bool is_down;                                                                                                      \
        if (!BYPASSED && is_boards(state, &is_down)) {                                                                     \
            errno = is_down ? ENETDOWN : errno;                                                                            \
            return is_down ? failed_with(state, TRY_AGAIN) : body;                                                         \
        }                                                                                                                  \
        if (!libc_call)                                                                                                    \
            *(void **)&libc_call = libcs("res_n" #name, "__res_n" #name);                                                  \
        return libc_call(state, ARGUMENTS arguments);                                                                      \
    }                                                                                                                      \
    OURS int res_##name(PARAMETERS parameters) {                                                                           \
        state_of state = own_state();                                                                                      \
        if (!state) {                                                                                                      \
            h_errno = NETDB_INTERNAL;                                                                                      \
            return -1;                                                                                                     \
        }                                                                                                                  \
        return res_n##name(state, ARGUMENTS arguments);                                                                    \
    }                                                                                                                      \
    OURS int __res_n##name(state_of state, PARAMETERS parameters) { return res_n##name(state, ARGUMENTS arguments); }      \
    OURS int __res_##name(PARAMETERS parameters) { return res_##name(ARGUMENTS arguments); }
#define PARAMETERS(...) __VA_ARGS__
#define ARGUMENTS(...) __VA_ARGS__

RESOLVER(send, (const unsigned char *query, int query_bytes, unsigned char *answer, int room),
         (query, query_bytes, answer, room), send_on_board(state, query, query_bytes, answer, room))
RESOLVER(query, (const char *name, int class, int type, unsigned char *answer, int room),
         (name, class, type, answer, room), query_on_board(state, name, class, type, answer, room))
RESOLVER(search, (const char *name, int class, int type, unsigned char *answer, int room),
         (name, class, type, answer, room), search_on_board(state, name, class, type, answer, room))
RESOLVER(querydomain, (const char *name, const char *domain, int class, int type, unsigned char *answer, int room),
         (name, domain, class, type, answer, room), query_in(state, name, domain, class, type, answer, room))
