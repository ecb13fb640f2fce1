/* The backend of libkiban_sockets.so: declarations shared by its files (calls.c says what the library does).
 *
 *     calls.c     the interposed calls; board_connect() and listen_on_board() choose between board and kernel
 *     records.c   the state of each descriptor
 *     options.c   socket options
 *     exec.c      programs that cannot use the board
 *     request.c   requests to the board; reads addresses and tests them (read_name(), is_loopback())
 *     channel.c   requests of programs that have given up root
 *     more.c      MSG_MORE
 *     late.c      the helper process that waits for a late reply
 *     datagrams.c datagram sockets
 *     control.c   options and ancillary data of datagram sockets
 *     resolve.c   getaddrinfo(), and queries to name servers
 *     queries.c   res_query() and its relatives
 *     names.c     gethostbyname(), gethostbyaddr(), getnameinfo() */
#ifndef KIBAN_BOARD_H
#define KIBAN_BOARD_H
#include "../interpose.h"
#include <sys/stat.h>

/* An entry as in kiban_board::streams. It holds two endpoints: LOCAL and REMOTE. */
struct entry {
    uint8_t what, code;
    uint16_t listener;
    uint32_t slot;
    uint8_t family[2], unused[2];
    uint16_t port[2];
    uint8_t address[2][16];
};
_Static_assert(sizeof(struct entry) == 48, "as the board has it");
enum { ASK_CONNECT = 1, ASK_LISTEN = 2, ASK_FATE = 9, ASK_SET_OPTION = 10, ASK_OPTION = 11, ASK_INFO = 12 };
enum { ASK_BIND = 14, ASK_SET_REMOTE = 15, ASK_REMOTE = 16, ASK_CONNECT_FAST = 17, ASK_MEMBER = 18, ASK_CHANNEL = 20 };
/* The maximum number of bytes of data in ASK_CONNECT_FAST, and the slot of the reply if the SYN waits for data. */
#define FAST_OPEN_BYTES_MAX 16384
#define SYN_WAITS UINT32_MAX
enum { REPLY_LISTENING = 1, REPLY_OPENED = 2, REPLY_ACCEPTED = 3, REPLY_ENDED = 5 };
/* In the code of ASK_LISTEN: IPV6_V6ONLY. The other bit is SO_REUSEPORT. */
#define LISTENS_V6_ONLY 2
/* The same of ASK_BIND. The other bits are SO_REUSEADDR and SO_REUSEPORT. */
#define BINDS_V6_ONLY 4
enum { LOCAL, REMOTE };
enum { CLOSED = 1, NO_ROUTE = 6, BAD_ADDRESS = 7, IN_USE = 8 };

/* An abstract address (unix(7)) that contains an entry. The other end of a program's socket is bound to it,
 * so the entry stays with the socket after fork, exec and descriptor passing, and only the board or the
 * helper process can set it. The random number makes the address unique. */
struct entry_name {
    sa_family_t family;
    char zero, tag[5];
    uint8_t random[16];
    struct entry entry;
};
_Static_assert(sizeof(struct entry_name) == 72, "as the board has it");
#define ENTRY_TAG "kiban"

/* State of a descriptor, valid while it refers to the same file. RESERVED: bound to a port chosen by the board;
 * the board listens on it, although the program has not called listen() yet. FAILED: may connect again. DATAGRAMS: a
 * datagram socket of the board; its remote address has a family if it is connected. */
enum state { NOTHING, BOUND, RESERVED, CONNECTING, FAILED, CONNECTED, LISTENING, DATAGRAMS };
union name {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};
/* The number of options in options.c. */
#define OPTIONS 24
struct known {
    uint64_t device, inode;
    /* Proves to the board that the program has the socket (token_of()); 0 if it has none. */
    uint64_t token;
    union name name[2];
    /* is_late: a helper process waits for the board's reply (connect_by_helper()). */
    int domain, was_bound, is_late;
    /* SO_SNDBUF of a socket that connects, which it gets when it is open: until then, its buffer has to be full. */
    int send_buffer;
    /* Of a datagram socket: an error number that the next call returns, and the packet of the last error (control.c). */
    int pending;
    uint64_t error[6];
    /* The options that the socket had when it became the board's. */
    uint32_t options[OPTIONS];
};

#define INDEX 0xffffffull
#define STATE (7ull << 24)
#define HAS_FINISHED (8ull << 24)
#define END_IS_KNOWN (16ull << 24)
#define HAS_MORE (32ull << 24)
#define FLAGS (0xffull << 24)
#define STATE_OF(word) ((enum state)(((word) & STATE) >> 24))
/* The result of a lookup: index, word, and a copy of the record. */
struct found {
    int at;
    uint64_t word;
    enum state state;
    struct known known;
};

/* ---- records.c ---- */

/* Whether any descriptor has ever connected or tried to; if not, reads skip the lookup. */
extern _Atomic bool connects;
/* Whether any descriptor has ever listened. */
extern _Atomic bool listens;
bool find(int fd, struct found *found);
int note(int fd, struct known what, enum state state);
bool change(struct found *found, enum state from, enum state to);
bool rewrite(struct found *found, enum state state);
void flag(const struct found *found, uint64_t flag);
void unflag(const struct found *found, uint64_t flag);
void forget(const struct found *found);
bool find_or_adopt(int fd, struct found *found);
bool may_listen(int fd);

/* ---- request.c ---- */

/* How long a non-blocking connect() waits for the board's reply, in ms. The reply usually takes less than
 * a tenth of this time. */
#define PROMPT_MS 10

/* How long calls that would not block with the system's TCP, such as listen(), wait for the board's reply. */
#define PATIENCE_SECONDS 10

/* The path of the board's socket; NULL if the program uses no board. */
extern const char *board_path;
void read_board_path(void);
bool is_tcp(int protocol);
int tcp_domain(int fd);
int read_name(union name *to, int domain, const struct sockaddr *name, socklen_t length);
void put(struct entry *entry, int end, const union name *name);
union name name_of(const struct entry *entry, int end, int domain);
bool read_entry_name(int fd, struct entry *entry);
bool is_loopback(const struct entry *entry, int end);
bool is_unspecified(const struct entry *entry, int end);
bool is_mapped_in_vain(int fd, int domain, const struct entry *entry, int end);
int tell_name(const union name *name, struct sockaddr *target, socklen_t *length);
int tell(void *target, socklen_t *length, const void *value, socklen_t bytes);
socklen_t length_of(int domain);
int bind_at_last(int fd, const struct known *known);
int error_of(uint8_t why);
int outcome_of_hangup(int file);
char *write_number(char *to, int number);
bool receive(int socket, struct entry *reply, int *file, int flags);
int new_asker(int flags);
int connect_by_path(int socket);
int patience_of(int fd);
int begin_to_ask(int socket, const struct entry *entry, uint64_t token);
int begin_to_ask_with(int socket, const struct entry *entry, const struct msghdr *data, size_t *bytes);
int ask(const struct entry *entry, uint64_t token, struct entry *reply, int *file);
uint64_t token_of(int fd);
bool has_answer(int asker, int wait_ms);
int answer_soon(int asker, struct entry *reply, int *file, int wait_ms);
bool is_blocking(int fd);
void copy_options(int from, int to);
int buffer_of(int fd, int option);
void set_buffer(int fd, int option, int bytes);
void copy_time(int from, int option, int to, int its);
int replace_file(int fd, int file);
short ready_for(int file, short events);

/* ---- channel.c ---- */

void begin_channel(void);
int find_channel(void);
int connect_over_channel(int channel, int socket);

/* ---- datagrams.c ---- */

/* The packets' header, as in kiban_attach. */
struct header {
    uint8_t kind, reason;
    uint16_t port;
    uint8_t family, class, hops, is_icmp;
    uint64_t nanoseconds;
    uint8_t address[16], local[16];
};
_Static_assert(sizeof(struct header) == 48, "as the board has it");
enum { DATA = 1, PROBLEM = 2, SETTINGS = 3 };
extern _Atomic bool datagrams;
void begin_datagrams(void);
void look_for_datagrams(const struct msghdr *message);
bool find_datagrams(int fd, struct found *found);
bool bind_datagrams(int fd, const struct sockaddr *name, socklen_t length, int *result);
bool connect_datagrams(int fd, const struct sockaddr *name, socklen_t length, int *result);
bool send_datagram(int fd, const struct msghdr *message, int flags, ssize_t *result);
bool receive_datagram(int fd, struct msghdr *message, int flags, ssize_t *result);
bool send_datagrams(int fd, struct mmsghdr *messages, unsigned count, int flags, int *result);
bool receive_datagrams(int fd, struct mmsghdr *messages, unsigned count, int flags, const struct timespec *time, int *result);

/* ---- control.c ---- */

void read_datagram_options(int fd, uint32_t *values);
void apply_datagram_options(int fd, const struct known *known);
bool is_membership(int level, int name);
int set_membership(int fd, const struct found *found, int level, int name, const void *value, socklen_t length);
int set_datagram_option(int fd, struct found *found, int level, int name, const void *value, socklen_t length);
int get_datagram_option(int fd, const struct found *found, int level, int name, void *target, socklen_t *length);
int read_control(const struct known *known, const struct msghdr *message, struct header *header, unsigned *segment);
void write_control(const struct known *known, struct msghdr *message, const struct header *header);
void keep_error(struct found *found, const struct header *header);
ssize_t receive_error(int fd, struct found *found, struct msghdr *message);

/* ---- exec.c ---- */

void begin_exec(void);

/* ---- options.c ---- */

int option_at(int level, int name);
int read_option(int at, const void *value, socklen_t length, uint32_t *to);
int tell_option(int at, uint32_t value, void *target, socklen_t *length);
bool is_v6_only(int fd);
void read_options(int fd, uint32_t *values);
void restore_options(int fd, const uint32_t *values);
int set_option(int at, const struct known *known, bool is_listener, uint32_t value);
int set_more(const struct known *known, bool is_on);
int query_option(int at, const struct known *known, bool is_listener, uint32_t *value);
int get_congestion(void *target, socklen_t *length);
int set_congestion(const void *value, socklen_t length);
void send_options(const struct known *known, bool is_listener);
int query_info(const struct known *known, void *info, socklen_t *bytes);
bool is_beyond_board(int level, int name);
bool is_too_late(int at, enum state state);
bool opens_fast(const struct known *known);
uint8_t traffic_class_of(const struct known *known);
void limit_unsent(int fd, uint32_t bytes);
void size_send_buffer(int fd, const struct known *known);

/* ---- calls.c ---- */

int error_of_end(int fd, int error);

/* ---- more.c ---- */

void begin_write(int fd, bool has_more);
void end_write(int fd, ssize_t count, bool has_more);

/* ---- late.c ---- */

/* The parameters of a connect() to be completed by the helper process. */
struct later {
    struct known known;
    struct entry entry;
    /* Data that the program has sent with MSG_FASTOPEN, and the number of its bytes for which sendto() returns. */
    const struct msghdr *data;
    size_t bytes;
    size_t filled;
    /* own: the program's original socket. asker: the socket on which the board replies. end: the other end of the
     * program's new socket. */
    int own, asker, end;
    bool has_asked;
};
int connect_by_helper(int fd, struct later *later);
int outcome_of_late_reply(int fd, struct found *found, bool is_over);
#endif
