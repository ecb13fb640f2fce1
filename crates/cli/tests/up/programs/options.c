/* Sets and reads every option of a TCP socket, and prints the results: before connect(), connected, listening, and
 * accepted. The same program runs on the system and on a board; the test compares the lines.
 *
 *     options ADDRESS PORT OWN
 *
 * connects to ADDRESS and PORT, and listens at the address OWN. Each line has the state, the option, the value that is
 * set, and the results: 0 or the name of the error, and what reading returns afterwards. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NONE (-77)
#define TCP(name) #name, IPPROTO_TCP, name
#define SOCKET(name) #name, SOL_SOCKET, name
#define FOUR(name) #name, IPPROTO_IP, name
#define SIX(name) #name, IPPROTO_IPV6, name

static const struct row {
    const char *word;
    int level, name, values[4];
} rows[] = {
    {TCP(TCP_NODELAY), {1, 0, 7, NONE}},
    {TCP(TCP_CORK), {1, 0, -1, NONE}},
    {TCP(TCP_QUICKACK), {0, 1, NONE}},
    {TCP(TCP_KEEPIDLE), {11, 0, 32768, -1}},
    {TCP(TCP_KEEPINTVL), {12, 0, 32768, -1}},
    {TCP(TCP_KEEPCNT), {13, 0, 128, -1}},
    {TCP(TCP_USER_TIMEOUT), {14000, 0, -1, NONE}},
    {TCP(TCP_NOTSENT_LOWAT), {16384, 0, -1, NONE}},
    {TCP(TCP_LINGER2), {15, 0, -1, 200}},
    {TCP(TCP_SYNCNT), {3, 0, 128, -1}},
    {TCP(TCP_DEFER_ACCEPT), {0, NONE}},
    {TCP(TCP_WINDOW_CLAMP), {100000, NONE}},
    {TCP(TCP_MAXSEG), {1000, 10, NONE}},
    {TCP(TCP_FASTOPEN), {5, 0, 5000, -1}},
    {TCP(TCP_FASTOPEN_CONNECT), {1, 0, 2, -1}},
    {TCP(TCP_FASTOPEN_NO_COOKIE), {1, 0, NONE}},
    {TCP(TCP_REPAIR), {0, NONE}},
    {"99", IPPROTO_TCP, 99, {1, NONE}},
    {SOCKET(SO_KEEPALIVE), {1, 0, 7, NONE}},
    {SOCKET(SO_REUSEADDR), {1, 0, 7, NONE}},
    {SOCKET(SO_REUSEPORT), {1, 0, 7, NONE}},
    {SOCKET(SO_OOBINLINE), {1, 0, 7, NONE}},
    {SOCKET(SO_SNDBUF), {20000, NONE}},
    {SOCKET(SO_RCVBUF), {20000, NONE}},
    {SOCKET(SO_BROADCAST), {1, 0, NONE}},
    {SOCKET(SO_PRIORITY), {3, 0, NONE}},
    {SOCKET(SO_RCVLOWAT), {5, 1, NONE}},
    {SOCKET(SO_MAX_PACING_RATE), {100000, 0, -1, NONE}},
    {SOCKET(SO_DONTROUTE), {1, 0, NONE}},
    {SOCKET(SO_TIMESTAMP), {1, 0, NONE}},
    {SOCKET(SO_ERROR), {NONE}},
    {SOCKET(SO_TYPE), {1, NONE}},
    {SOCKET(SO_DOMAIN), {1, NONE}},
    {SOCKET(SO_PROTOCOL), {1, NONE}},
    {SOCKET(SO_ACCEPTCONN), {1, NONE}},
    {FOUR(IP_TOS), {0x68, 0, 256, NONE}},
    {FOUR(IP_TTL), {9, 0, 256, NONE}},
    {FOUR(IP_MTU_DISCOVER), {1, 9, NONE}},
    {FOUR(IP_RECVERR), {1, 0, NONE}},
    {SIX(IPV6_V6ONLY), {1, NONE}},
};

static const char *word_of(int result) { return result ? strerrorname_np(errno) : "0"; }

static void get(int fd, const struct row *row) {
    int value = 0;
    socklen_t length = sizeof value;
    int result = getsockopt(fd, row->level, row->name, &value, &length);
    printf(" get %s", word_of(result));
    if (!result)
        printf(" %d in %u", value, length);
}

static void set(const char *state, int fd, const struct row *row, const char *word, const void *value, socklen_t length) {
    printf("%s %s set %s: %s", state, row->word, word, word_of(setsockopt(fd, row->level, row->name, value, length)));
    get(fd, row);
    printf("\n");
}

static void others(const char *state, int fd) {
    struct linger linger = {1, 5};
    socklen_t length = sizeof linger;
    printf("%s SO_LINGER set 5: %s", state, word_of(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger)));
    memset(&linger, 0, sizeof linger);
    printf(" get %s", word_of(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length)));
    printf(" %d %d in %u\n", linger.l_onoff, linger.l_linger, length);
    printf("%s SO_LINGER set short: %s\n", state, word_of(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, 4)));
    linger.l_onoff = 0;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    struct timeval time = {3, 500000};
    length = sizeof time;
    printf("%s SO_RCVTIMEO set 3.5: %s", state, word_of(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time)));
    printf(" get %s", word_of(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &length)));
    printf(" %d %d in %u\n", (int)time.tv_sec, (int)time.tv_usec, length);
    char name[16] = "";
    length = sizeof name;
    printf("%s TCP_CONGESTION set unknown: %s\n", state, word_of(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "unknown", 7)));
    printf("%s TCP_CONGESTION get: %s\n", state, word_of(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length)));
    struct tcp_info info = {0};
    length = sizeof info;
    int result = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length);
    printf("%s TCP_INFO get: %s state %d in %u\n", state, word_of(result), info.tcpi_state, length);
}

static void all(const char *state, int fd) {
    for (const struct row *row = rows; row < rows + sizeof rows / sizeof *rows; row++) {
        printf("%s %s", state, row->word);
        get(fd, row);
        printf("\n");
        for (const int *value = row->values; value < row->values + 4 && *value != NONE; value++) {
            char word[16];
            snprintf(word, sizeof word, "%d", *value);
            set(state, fd, row, word, value, sizeof *value);
        }
        if (row->values[0] == NONE)
            continue;
        /* Lengths that are too short, and an address that is not the program's. */
        set(state, fd, row, "nothing", row->values, 0);
        set(state, fd, row, "a byte", row->values, 1);
        set(state, fd, row, "at zero", NULL, sizeof(int));
        set(state, fd, row, "first", row->values, sizeof(int));
    }
    others(state, fd);
}

static int check(int result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return result;
}

int main(int count, char **words) {
    struct sockaddr_in name = {.sin_family = AF_INET}, own = {.sin_family = AF_INET};
    socklen_t length = sizeof own;
    if (count != 4 || inet_pton(AF_INET, words[1], &name.sin_addr) != 1 || inet_pton(AF_INET, words[3], &own.sin_addr) != 1)
        return 2;
    name.sin_port = htons((unsigned short)atoi(words[2]));
    int fresh = check(socket(AF_INET, SOCK_STREAM, 0), "socket");
    all("new", fresh);
    int connected = check(socket(AF_INET, SOCK_STREAM, 0), "socket");
    check(connect(connected, (struct sockaddr *)&name, sizeof name), "connect");
    all("connected", connected);
    int listener = check(socket(AF_INET, SOCK_STREAM, 0), "socket");
    check(bind(listener, (struct sockaddr *)&own, sizeof own), "bind");
    check(listen(listener, 5), "listen");
    check(getsockname(listener, (struct sockaddr *)&own, &length), "getsockname");
    int caller = check(socket(AF_INET, SOCK_STREAM, 0), "socket");
    all("listening", listener);
    check(connect(caller, (struct sockaddr *)&own, sizeof own), "connect");
    int accepted = check(accept(listener, NULL, NULL), "accept");
    all("accepted", accepted);
    return 0;
}
