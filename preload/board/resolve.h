/* Queries to name servers over the board: declarations shared by resolve.c, queries.c and names.c. */
#ifndef KIBAN_RESOLVE_H
#define KIBAN_RESOLVE_H
#include "board.h"
#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netdb.h>
#include <resolv.h>

#define ANSWER_BYTES 65535
/* As many records as fit into two answers, of each family one: 4095 of 16 bytes, and 2340 of 28 bytes. */
#define ADDRESSES 6435
#define NAME_BYTES 256

/* What is known of a name. */
struct lookup {
    struct __res_state *state;
    char address[ADDRESSES][INET6_ADDRSTRLEN];
    int count;
    /* The name that has the addresses, after aliases. */
    char canonical[NAME_BYTES];
    /* Whether a server has answered, whether one has not, and whether the name exists. */
    bool is_answered, is_silent, exists;
    unsigned char answer[ANSWER_BYTES];
};

bool is_left_to_libc(const char *name);
bool open_resolver(struct __res_state *state);
void close_resolver(struct __res_state *state);
bool is_address_in_hosts(int family, const void *address);
bool has_server(const struct __res_state *state, bool *is_down);
int ask_servers(struct lookup *lookup, const unsigned char *query, int query_bytes);
void look_up_all(struct lookup *lookup, const char *name, int family, char *found);
#endif
