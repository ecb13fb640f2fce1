/* The backend of librspreload.so: declarations shared by its files (calls.c says what the library does).
 *
 *     calls.c     connections, copies of descriptors, names and options
 *     data.c      the calls that receive and send
 *     wait.c      poll(), select() and epoll_wait() over rsockets and other descriptors
 *     table.c     the mapping from descriptors to rsockets; signals; the entry points */
#ifndef KIBAN_RSOCKETS_H
#define KIBAN_RSOCKETS_H
#include "../interpose.h"
#include <pthread.h>

/* Functions exported by librdmacm (rdma/rsocket.h). */
int rsocket(int, int, int), rbind(int, const struct sockaddr *, socklen_t), rlisten(int, int);
int raccept(int, struct sockaddr *, socklen_t *), rconnect(int, const struct sockaddr *, socklen_t);
int rshutdown(int, int), rclose(int), rpoll(struct pollfd *, nfds_t, int), rfcntl(int, int, ...);
int rgetpeername(int, struct sockaddr *, socklen_t *), rgetsockname(int, struct sockaddr *, socklen_t *);
int rsetsockopt(int, int, int, const void *, socklen_t), rgetsockopt(int, int, int, void *, socklen_t *);
ssize_t rrecv(int, void *, size_t, int), rsend(int, const void *, size_t, int);
ssize_t rrecvfrom(int, void *, size_t, int, struct sockaddr *, socklen_t *);
ssize_t rrecvmsg(int, struct msghdr *, int), rsendmsg(int, const struct msghdr *, int);
ssize_t rreadv(int, const struct iovec *, int), rwritev(int, const struct iovec *, int);

/* An rsocket in an epoll set. */
struct watch {
    int epoll, file;
    uint64_t entry;
    struct epoll_event event;
};

/* What this process knows about its rsockets. A forked child, however it was made, finds it empty, because
 * the kernel wipes it (MADV_WIPEONFORK). A child that shares its parent's memory, as after vfork(2), does not
 * change it (is_owner()). It fills whole pages, of the largest size of any architecture. */
struct table {
    /* By descriptor: its placeholder and its rsocket (table.c); 0 if it is not an rsocket. */
    _Atomic uint64_t entries[FILES];
    /* By descriptor: the edges that have been reported, as EPOLLIN and EPOLLOUT. */
    _Atomic unsigned edges_reported[FILES];
    /* By descriptor: whether it may be an epoll set in `watches`. */
    _Atomic bool has_watches[FILES];
    /* By rsocket: the number of its descriptors, and of the calls that hold it. */
    _Atomic int numbers_of[FILES];
    /* By rsocket: whether the program's calls on it block. The rsocket itself is always non-blocking. */
    _Atomic bool waits[FILES];
    /* Held only while `watches` is read or written, with signals blocked, and never while allocating. */
    pthread_mutex_t watch_lock;
    _Atomic size_t watched;
    struct watch watches[FILES];
} __attribute__((aligned(65536)));
extern struct table table;
/* Whether the kernel wipes the table. If not, there are no rsockets. */
extern bool is_table_usable;
/* How long connect() waits for the peer. */
extern int timeout_ms;

#define DECLARE(result, name, declared, given) result rs_##name declared;
SOCKET_CALLS(DECLARE) DATAGRAM_CALLS(DECLARE) DESCRIPTOR_CALLS(DECLARE)

/* An entry consists of the inode number of a descriptor's placeholder (sockets have 32-bit inode numbers) and the
 * rsocket's number plus one. So the entries of two rsockets differ, even if they had the same number one after the
 * other. */
#define RSOCKET_BITS 17
_Static_assert(FILES < 1 << RSOCKET_BITS, "an entry has room for the number plus one");
#define RSOCKET_OF(entry) ((int)((entry) & ((1 << RSOCKET_BITS) - 1)) - 1)
#define INODE_OF(entry) ((entry) >> RSOCKET_BITS << RSOCKET_BITS)
/* If fstat(2) fails, for example for lack of memory, the result of entry_of() and inode_of() is its error number, which
 * no entry equals, because inode numbers are not 0. hold() fails with it, and so does every call on an rsocket. */
#define LOOK_ERROR(entry) ((entry) >> RSOCKET_BITS ? 0 : (int)(entry))

bool is_owner(void);
uint64_t inode_of(int file);
uint64_t known_entry(int file);
uint64_t entry_of(int file);
void forget(int file, uint64_t entry);
int hold(int file, uint64_t entry);
void release(uint64_t entry);
int placeholder(int flags);
bool name(int file, uint64_t inode, int rs);
bool adopt(int file, uint64_t inode, int rs);
ssize_t reset_edge(int file, unsigned edge, ssize_t done, size_t wanted);
bool becomes_connected(int rs);

void block_signals(sigset_t *before);
void restore_signals(const sigset_t *before);
bool blocks(uint64_t entry, int flags);
bool sleeps(int file, uint64_t entry, int flags, int64_t *started, const sigset_t *before);

#define SIGNALS_BLOCKED(call)             \
    ({                                    \
        sigset_t before_;                 \
        block_signals(&before_);          \
        __typeof__(call) result_ = call;  \
        restore_signals(&before_);        \
        result_;                          \
    })

/* Makes a call on the rsocket `rs` that a descriptor had at the beginning of the program's call. Fails with EBADF if
 * the descriptor no longer refers to that rsocket, because a signal handler or another thread closed it: the number `rs`
 * may already belong to another connection. Fails with LOOK_ERROR(entry), if there is one. The rsocket stays open until
 * `call` returns. */
#define HELD(file, entry, call)                        \
    ({                                                 \
        int rs = hold(file, entry);                    \
        __typeof__(call) held_ = rs < 0 ? -1 : (call); \
        if (rs >= 0)                                   \
            release(entry);                            \
        held_;                                         \
    })

/* Makes one call on an rsocket. */
#define ONCE(file, entry, call) SIGNALS_BLOCKED(HELD(file, entry, call))

/* How long a blocking call spins before it sleeps, in us; and the longest time it sleeps, in ns. The sleep is limited
 * because another thread may consume the wake-up. */
#define SPIN_MICROS 60
#define SLEEP_NANOS 100000000

/* Makes a call on an rsocket. If the program's call is a blocking one, retries until it completes. */
#define UNTIL(file, entry, flags, call)                                          \
    ({                                                                           \
        sigset_t before_;                                                        \
        int64_t begun_ = 0;                                                      \
        ssize_t result_;                                                         \
        block_signals(&before_);                                                 \
        do                                                                       \
            result_ = HELD(file, entry, call);                                   \
        while (result_ < 0 && sleeps(file, entry, flags, &begun_, &before_));    \
        restore_signals(&before_);                                               \
        result_;                                                                 \
    })
#endif
