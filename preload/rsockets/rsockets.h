/* The backend of librspreload.so: declarations shared by its files (calls.c says what the library does).
 *
 *     calls.c     connections, copies of descriptors, names and options
 *     data.c      the calls that receive and send
 *     wait.c      poll(), select() and epoll_wait() over rsockets and other descriptors
 *     table.c     the mapping from descriptors to rsockets; signals; the entry points */
#ifndef KIBAN_RSOCKETS_H
#define KIBAN_RSOCKETS_H
#include "../interpose.h"

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

/* By descriptor: the number of its rsocket plus one; 0 if the descriptor is not an rsocket. */
extern _Atomic int rsocket_of[FILES];
/* By rsocket: the number of its descriptors. */
extern _Atomic int numbers_of[FILES];
/* By descriptor: the edges that have been reported, as EPOLLIN and EPOLLOUT. */
extern _Atomic unsigned edges_reported[FILES];

/* By rsocket: whether the program's calls on it block. The rsocket itself is always non-blocking. */
extern _Atomic bool waits[FILES];
/* How long connect() waits for the peer. */
extern int timeout_ms;

#define DECLARE(result, name, declared, given) result rs_##name declared;
SOCKET_CALLS(DECLARE) DESCRIPTOR_CALLS(DECLARE)

int over(int file);
void name(int file, int rs);
void unname(int file);
bool adopt(int file, int rs);
ssize_t reset_edge(int file, unsigned edge, ssize_t done, size_t wanted);
int rpoll_held(struct pollfd *files, nfds_t count, int timeout, const sigset_t *mask);
void forget_epoll(int file);
void on_fork(void);

void block_signals(sigset_t *before);
void restore_signals(const sigset_t *before);
bool sleeps(int rs, int flags, int64_t *started, const sigset_t *before);

#define SIGNALS_BLOCKED(call)             \
    ({                                    \
        sigset_t before_;                 \
        block_signals(&before_);          \
        __typeof__(call) result_ = call;  \
        restore_signals(&before_);        \
        result_;                          \
    })

/* How long a blocking call spins before it sleeps, in us; and the longest time it sleeps, in ns. The sleep is limited
 * because another thread may consume the wake-up. */
#define SPIN_MICROS 60
#define SLEEP_NANOS 100000000

/* Makes a call on an rsocket. If the program's call is a blocking one, retries until it completes. */
#define UNTIL(rs, flags, call)                                        \
    ({                                                                \
        sigset_t before_;                                             \
        int64_t begun_ = 0;                                           \
        __typeof__(call) result_;                                     \
        block_signals(&before_);                                      \
        do                                                            \
            result_ = call;                                           \
        while (result_ < 0 && sleeps(rs, flags, &begun_, &before_));  \
        restore_signals(&before_);                                    \
        result_;                                                      \
    })
#endif
