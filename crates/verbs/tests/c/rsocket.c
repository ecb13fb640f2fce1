/* Tests of rsockets: `rsocket NAME` runs one of them and prints the line of a check that fails. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/rsocket.h>

#define CHECK(what)                                                                             \
    do {                                                                                        \
        if (!(what)) {                                                                          \
            fprintf(stderr, "line %d: %s (errno: %s)\n", __LINE__, #what, strerror(errno));     \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)
#define FAILS(call, error) CHECK((errno = 0, (call) == -1) && errno == (error))

static struct sockaddr_in here(int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}

static int listener(struct sockaddr_in *at)
{
    socklen_t length = sizeof *at;
    int rs = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(rs >= 0);
    *at = here(0);
    CHECK(rbind(rs, (struct sockaddr *)at, sizeof *at) == 0);
    CHECK(rgetsockname(rs, (struct sockaddr *)at, &length) == 0 && length == sizeof *at && at->sin_port != 0);
    CHECK(rlisten(rs, 128) == 0);
    return rs;
}

static int dial(const struct sockaddr_in *to)
{
    int rs = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(rs >= 0 && rconnect(rs, (const struct sockaddr *)to, sizeof *to) == 0);
    return rs;
}

/* A connected pair in one process: a connect succeeds before raccept() is called. */
static void pair(int ends[2])
{
    struct sockaddr_in at;
    int rs = listener(&at);
    ends[0] = dial(&at);
    ends[1] = raccept(rs, NULL, NULL);
    CHECK(ends[1] >= 0 && rclose(rs) == 0);
}

static int readiness(int rs, short events, int timeout)
{
    struct pollfd file = { .fd = rs, .events = events };
    CHECK(rpoll(&file, 1, timeout) >= 0);
    return file.revents;
}

static void set_nonblocking(int rs)
{
    CHECK(rfcntl(rs, F_SETFL, O_NONBLOCK) == 0 && (rfcntl(rs, F_GETFL) & O_NONBLOCK));
}

static void errors(void)
{
    struct sockaddr_in at, other;
    socklen_t length = sizeof other;
    char byte = 0;
    FAILS(rsocket(AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
    FAILS(rsocket(AF_INET, SOCK_DGRAM, 0), EPROTONOSUPPORT);
    FAILS(rsocket(AF_INET, SOCK_RAW, 0), ENOTSUP);
    FAILS(rsocket(AF_INET, SOCK_STREAM, 77), EINVAL);
    FAILS(rsend(0, &byte, 1, 0), EBADF);
    FAILS(rclose(-1), EBADF);
    FAILS(rclose(1 << 30), EBADF);
    int rs = rsocket(AF_INET, SOCK_STREAM, 0), lrs = listener(&at);
    CHECK(rs >= 0 && fcntl(rs, F_GETFD) >= 0);
    FAILS(rbind(rs, NULL, 16), EFAULT);
    FAILS(rbind(rs, (struct sockaddr *)&at, 3), EINVAL);
    FAILS(rsend(rs, &byte, 1, 0), ENOTCONN);
    FAILS(rrecv(rs, &byte, 1, 0), ENOTCONN);
    FAILS(raccept(rs, NULL, NULL), EINVAL);
    FAILS(rgetpeername(rs, (struct sockaddr *)&other, &length), ENOTCONN);
    FAILS(rshutdown(rs, SHUT_RDWR), ENOTCONN);
    FAILS(rconnect(lrs, (struct sockaddr *)&at, sizeof at), EINVAL);
    /* Two sockets at one address. */
    int second = rsocket(AF_INET, SOCK_STREAM, 0);
    FAILS(rbind(second, (struct sockaddr *)&at, sizeof at), EADDRINUSE);
    CHECK(rclose(second) == 0);
    /* With IPV6_V6ONLY, [::] does not stand for the IPv4 address of the listener. */
    int yes = 1;
    struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = at.sin_port };
    second = rsocket(AF_INET6, SOCK_STREAM, 0);
    CHECK(rsetsockopt(second, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes) == 0);
    CHECK(rbind(second, (struct sockaddr *)&any, sizeof any) == 0 && rlisten(second, 1) == 0);
    CHECK(rclose(second) == 0 && rclose(lrs) == 0);
    /* The listener is closed. */
    FAILS(rconnect(rs, (struct sockaddr *)&at, sizeof at), ECONNREFUSED);
    CHECK(rclose(rs) == 0);
    FAILS(rclose(rs), EBADF);
    /* A non-blocking connect reports the error once, through SO_ERROR. */
    rs = rsocket(AF_INET, SOCK_STREAM, 0);
    set_nonblocking(rs);
    FAILS(rconnect(rs, (struct sockaddr *)&at, sizeof at), EINPROGRESS);
    CHECK(readiness(rs, POLLOUT, 5000) & POLLERR);
    int error = 0;
    length = sizeof error;
    CHECK(rgetsockopt(rs, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == ECONNREFUSED);
    CHECK(rgetsockopt(rs, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0);
    CHECK(rclose(rs) == 0);
    int ends[2];
    pair(ends);
    FAILS(rsend(ends[0], NULL, 1, 0), EFAULT);
    FAILS(rrecv(ends[0], NULL, 1, 0), EFAULT);
    FAILS(rsend(ends[0], &byte, 1, MSG_OOB), EOPNOTSUPP);
    FAILS(rrecv(ends[0], &byte, 1, MSG_DONTWAIT), EAGAIN);
    FAILS(rshutdown(ends[0], 9), EINVAL);
    FAILS(rsetsockopt(ends[0], SOL_SOCKET, 9999, &error, sizeof error), ENOTSUP);
    CHECK(rclose(ends[0]) == 0 && rclose(ends[1]) == 0);
}

static void halves(void)
{
    int ends[2];
    char text[8] = { 0 };
    pair(ends);
    CHECK(rsend(ends[0], "hello", 5, 0) == 5 && rshutdown(ends[0], SHUT_WR) == 0);
    FAILS(rsend(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(rrecv(ends[1], text, 2, MSG_PEEK) == 2 && !memcmp(text, "he", 2));
    CHECK(rrecv(ends[1], text, 8, MSG_WAITALL) == 5 && !memcmp(text, "hello", 5));
    CHECK(rrecv(ends[1], text, 8, 0) == 0);
    /* The other direction is still open. */
    struct iovec parts[2] = { { "goo", 3 }, { "dbye", 4 } };
    CHECK(rwritev(ends[1], parts, 2) == 7);
    char first[4], second[4];
    struct iovec rooms[2] = { { first, 4 }, { second, 4 } };
    CHECK(rreadv(ends[0], rooms, 2) == 7 && !memcmp(first, "good", 4) && !memcmp(second, "bye", 3));
    CHECK(rclose(ends[1]) == 0);
    CHECK(readiness(ends[0], POLLIN, 5000) & POLLHUP);
    CHECK(rrecv(ends[0], text, 8, 0) == 0 && rclose(ends[0]) == 0);
    /* Closing does not discard data that the peer has not read yet. */
    pair(ends);
    CHECK(rsend(ends[0], "last", 4, 0) == 4 && rclose(ends[0]) == 0);
    CHECK(rrecv(ends[1], text, 8, 0) == 4 && !memcmp(text, "last", 4) && rrecv(ends[1], text, 8, 0) == 0);
    FAILS(rsend(ends[1], "x", 1, MSG_NOSIGNAL), ECONNRESET);
    CHECK(rclose(ends[1]) == 0);
}

struct flow {
    int rs;
    bool sends;
    size_t bytes;
};

static uint8_t byte_of(size_t at, int salt)
{
    return (uint8_t)(at * 31 + (at >> 11) + salt);
}

static void *run(void *argument)
{
    struct flow *flow = argument;
    static const size_t sizes[] = { 1, 63, 64, 65, 4095, 65536, 100001, 300000 };
    uint8_t *room = malloc(300000);
    int salt = 7, step = 0;
    for (size_t at = 0; at < flow->bytes;) {
        size_t size = sizes[step++ % 8];
        size = size < flow->bytes - at ? size : flow->bytes - at;
        for (size_t i = 0; i < size && flow->sends; i++)
            room[i] = byte_of(at + i, salt);
        ssize_t done = flow->sends ? rsend(flow->rs, room, size, 0) : rrecv(flow->rs, room, size, 0);
        CHECK(done > 0 && (!flow->sends || done == (ssize_t)size));
        for (ssize_t i = 0; i < done && !flow->sends; i++)
            CHECK(room[i] == byte_of(at + i, salt));
        at += done;
    }
    free(room);
    return NULL;
}

/* Transfers 48 MB in each direction at the same time, with one thread per direction. */
static void both_ways(void)
{
    int ends[2];
    pair(ends);
    struct flow flows[4] = { { ends[0], true, 48 << 20 }, { ends[0], false, 48 << 20 },
                             { ends[1], true, 48 << 20 }, { ends[1], false, 48 << 20 } };
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, run, &flows[i]) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(rclose(ends[0]) == 0 && rclose(ends[1]) == 0);
}

/* A sender blocks (EAGAIN) when the peer does not read, and resumes. */
static void nonblocking(void)
{
    int ends[2];
    pair(ends);
    set_nonblocking(ends[0]);
    char block[10000];
    memset(block, 'a', sizeof block);
    size_t sent = 0, got = 0;
    ssize_t done;
    while ((done = rsend(ends[0], block, sizeof block, 0)) > 0)
        sent += done;
    CHECK(done == -1 && errno == EAGAIN && sent > sizeof block);
    CHECK(readiness(ends[0], POLLOUT, 0) == 0 && readiness(ends[1], POLLIN, 5000) == POLLIN);
    while (got < sent) {
        CHECK((done = rrecv(ends[1], block, sizeof block, 0)) > 0);
        got += done;
    }
    CHECK(got == sent && readiness(ends[0], POLLOUT, 5000) == POLLOUT);
    CHECK(readiness(ends[1], POLLIN, 0) == 0 && rsend(ends[0], "x", 1, 0) == 1);
    CHECK(readiness(ends[1], POLLIN, 5000) == POLLIN);
    /* rpoll and rselect together with a pipe. */
    int tube[2];
    CHECK(pipe(tube) == 0);
    struct pollfd files[2] = { { .fd = ends[0], .events = POLLIN }, { .fd = tube[0], .events = POLLIN } };
    CHECK(rpoll(files, 2, 10) == 0 && write(tube[1], "x", 1) == 1);
    CHECK(rpoll(files, 2, 5000) == 1 && files[1].revents == POLLIN && files[0].revents == 0);
    fd_set reads, writes;
    FD_ZERO(&reads);
    FD_ZERO(&writes);
    FD_SET(ends[0], &reads);
    FD_SET(ends[1], &reads);
    FD_SET(tube[0], &reads);
    FD_SET(ends[0], &writes);
    int most = ends[0] > ends[1] ? ends[0] : ends[1];
    struct timeval time = { 5, 0 };
    CHECK(rselect((tube[1] > most ? tube[1] : most) + 1, &reads, &writes, NULL, &time) == 3);
    CHECK(!FD_ISSET(ends[0], &reads) && FD_ISSET(ends[1], &reads) && FD_ISSET(tube[0], &reads));
    CHECK(FD_ISSET(ends[0], &writes) && rclose(ends[0]) == 0 && rclose(ends[1]) == 0);
}

static void *close_later(void *argument)
{
    /* The other thread sleeps or is about to; both must return. */
    CHECK(rshutdown(*(int *)argument, SHUT_RDWR) == 0);
    return NULL;
}

static void hundred(void)
{
    enum { COUNT = 100 };
    struct sockaddr_in at, peer, own;
    int lrs = listener(&at), dialled[COUNT], taken[COUNT];
    for (int i = 0; i < COUNT; i++)
        dialled[i] = dial(&at);
    struct pollfd files[COUNT];
    for (int i = 0; i < COUNT; i++) {
        socklen_t length = sizeof peer;
        CHECK((taken[i] = raccept(lrs, (struct sockaddr *)&peer, &length)) >= 0 && length == sizeof peer);
        files[i] = (struct pollfd){ .fd = taken[i], .events = POLLIN };
    }
    for (int i = COUNT - 1; i >= 0; i -= 7)
        CHECK(rsend(dialled[i], &i, sizeof i, 0) == sizeof i);
    int expected = (COUNT + 6) / 7, seen = 0;
    while (seen < expected) {
        CHECK(rpoll(files, COUNT, 5000) > 0);
        for (int i = 0; i < COUNT; i++) {
            int number = -1;
            if (files[i].revents) {
                CHECK(rrecv(taken[i], &number, sizeof number, MSG_WAITALL) == sizeof number);
                socklen_t length = sizeof own;
                CHECK(rgetsockname(dialled[number], (struct sockaddr *)&own, &length) == 0);
                CHECK(rgetpeername(taken[i], (struct sockaddr *)&peer, &length) == 0);
                CHECK(own.sin_port == peer.sin_port && (COUNT - 1 - number) % 7 == 0);
                seen++;
            }
        }
    }
    pthread_t thread;
    char byte;
    CHECK(pthread_create(&thread, NULL, close_later, &dialled[0]) == 0);
    CHECK(rrecv(taken[0] == files[0].fd ? dialled[0] : -1, &byte, 1, 0) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < COUNT; i++)
        CHECK(rclose(dialled[i]) == 0 && rclose(taken[i]) == 0);
    CHECK(rclose(lrs) == 0);
}

/* A killed peer is detected, even by a sleeping thread; data that the peer sent is read first. */
static void killed(void)
{
    int tube[2];
    struct sockaddr_in at;
    CHECK(pipe(tube) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int lrs = listener(&at);
        CHECK(write(tube[1], &at, sizeof at) == sizeof at);
        int rs = raccept(lrs, NULL, NULL);
        CHECK(rs >= 0 && rsend(rs, "here", 4, 0) == 4);
        for (;;)
            pause();
    }
    CHECK(read(tube[0], &at, sizeof at) == sizeof at);
    int rs = dial(&at);
    char text[8];
    CHECK(rrecv(rs, text, 2, 0) == 2 && readiness(rs, POLLIN, 1000) == POLLIN);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    CHECK(rrecv(rs, text, 2, 0) == 2 && !memcmp(text, "re", 2));
    FAILS(rrecv(rs, text, 8, 0), ECONNRESET);
    CHECK(rrecv(rs, text, 8, 0) == 0 && (readiness(rs, POLLIN, 0) & POLLHUP));
    FAILS(rsend(rs, text, 1, MSG_NOSIGNAL), ECONNRESET);
    CHECK(rclose(rs) == 0);
}

/* A forked child does not inherit its parent's rsockets, but can create its own, even if it runs no fork handlers. */
static void forked(void)
{
    int ends[2], status;
    char byte;
    pair(ends);
    for (int way = 0; way < 2; way++) {
        pid_t child = way ? _Fork() : fork();
        CHECK(child >= 0);
        if (child == 0) {
            FAILS(rsend(ends[0], "x", 1, 0), EBADF);
            int own[2];
            pair(own);
            CHECK(rsend(own[0], "y", 1, 0) == 1 && rrecv(own[1], &byte, 1, 0) == 1 && byte == 'y');
            CHECK(rclose(own[0]) == 0 && rclose(own[1]) == 0);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(rsend(ends[0], "z", 1, 0) == 1 && rrecv(ends[1], &byte, 1, 0) == 1 && byte == 'z');
    CHECK(rclose(ends[0]) == 0 && rclose(ends[1]) == 0);
}

/* Memory mapped by a peer is written outside the stream. */
static void mapped(void)
{
    struct sockaddr_in at;
    int lrs = rsocket(AF_INET, SOCK_STREAM, 0), one = 1;
    socklen_t length = sizeof at;
    at = here(0);
    CHECK(rsetsockopt(lrs, SOL_RDMA, RDMA_IOMAPSIZE, &one, sizeof one) == 0);
    CHECK(rbind(lrs, (struct sockaddr *)&at, sizeof at) == 0 && rlisten(lrs, 1) == 0);
    CHECK(rgetsockname(lrs, (struct sockaddr *)&at, &length) == 0);
    int a = dial(&at), b = raccept(lrs, NULL, NULL);
    static uint8_t memory[200000], source[200000];
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = byte_of(i, 3);
    FAILS(riomap(a, memory, sizeof memory, PROT_READ, 0, 0), EINVAL);
    CHECK(riomap(a, memory, sizeof memory, PROT_WRITE, 0, 1000) == 1000);
    FAILS(riomap(a, memory, 8, PROT_WRITE, 0, 0), ENOMEM);
    char byte;
    /* The mapping is announced before the next bytes of the stream. */
    CHECK(rsend(a, "m", 1, 0) == 1 && rrecv(b, &byte, 1, 0) == 1);
    CHECK(riowrite(b, source, sizeof source, 1000, 0) == sizeof source);
    /* Writes end at the end of the mapping, and fail outside of it. */
    CHECK(riowrite(b, "ab", 2, 1000 + sizeof source - 1, 0) == 1);
    CHECK(riowrite(b, "ab", 2, 10, 0) == 0);
    CHECK(rsend(b, "w", 1, 0) == 1 && rrecv(a, &byte, 1, 0) == 1);
    source[sizeof source - 1] = 'a';
    CHECK(!memcmp(memory, source, sizeof memory));
    CHECK(riounmap(a, memory, sizeof memory) == 0);
    FAILS(riounmap(a, memory, sizeof memory), EINVAL);
    CHECK(rclose(a) == 0 && rclose(b) == 0 && rclose(lrs) == 0);
}

static int files_open(void)
{
    int count = 0;
    for (int file = 0; file < 1024; file++)
        count += fcntl(file, F_GETFD) >= 0;
    return count;
}

/* Closed connections leave no open files, no matter which side closes first. */
static void again(void)
{
    int ends[2], before = 0;
    for (int i = 0; i < 300; i++) {
        pair(ends);
        CHECK(rsend(ends[i % 2], "x", 1, 0) == 1);
        CHECK(rclose(ends[i % 2]) == 0 && rclose(ends[1 - i % 2]) == 0);
        if (i == 20)
            before = files_open();
    }
    for (int tries = 0; tries < 500 && files_open() > before + 2; tries++)
        poll(NULL, 0, 10);
    CHECK(files_open() <= before + 2);
}

int main(int count, char **arguments)
{
    static const struct { const char *name; void (*run)(void); } tests[] = {
        { "errors", errors }, { "halves", halves }, { "both_ways", both_ways }, { "nonblocking", nonblocking },
        { "hundred", hundred }, { "killed", killed }, { "forked", forked }, { "mapped", mapped }, { "again", again },
    };
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof tests / sizeof *tests && count == 2; i++)
        if (!strcmp(arguments[1], tests[i].name)) {
            tests[i].run();
            return 0;
        }
    return 2;
}
