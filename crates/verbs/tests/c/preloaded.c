/* Calls on descriptors and rsockets, made by a program under librspreload.so.
 *
 *     preloaded NAME       runs one test; prints the line of a check that fails */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                             \
    do {                                                                                        \
        if (!(what)) {                                                                          \
            fprintf(stderr, "line %d: %s (errno: %s)\n", __LINE__, #what, strerror(errno));     \
            _exit(1);                                                                           \
        }                                                                                       \
    } while (0)
#define FAILS(call, error) CHECK((errno = 0, (call) == -1) && errno == (error))

/* ---- Hooks in malloc(), to which the library's calls are bound, too ---- */

extern void __libc_free(void *);
extern void *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
static __thread void (*volatile hook)(void);
static __thread volatile bool is_allocating;

static void allocates(void) {
    if (hook && !is_allocating) {
        is_allocating = true;
        hook();
        is_allocating = false;
    }
}

void free(void *at) {
    allocates();
    __libc_free(at);
}

void *calloc(size_t count, size_t bytes) {
    allocates();
    return __libc_calloc(count, bytes);
}

void *realloc(void *at, size_t bytes) {
    allocates();
    return __libc_realloc(at, bytes);
}

/* ---- A hook in pthread_sigmask(), which the library calls when a call on an rsocket begins ---- */

static __thread void (*volatile block_hook)(void);

int pthread_sigmask(int how, const sigset_t *set, sigset_t *before) {
    static int (*real)(int, const sigset_t *, sigset_t *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_sigmask");
    int result = real(how, set, before);
    if (how == SIG_BLOCK && block_hook)
        block_hook();
    return result;
}

/* ---- fstat(), with which the library looks at descriptors ---- */

static bool fstat_fails;

int fstat(int file, struct stat *to) {
    if (!fstat_fails)
        return fstatat(file, "", to, AT_EMPTY_PATH);
    errno = ENOMEM;
    return -1;
}

/* ---- Connections ---- */

/* Returns the number that the next descriptor gets. */
static int lowest_free(void) {
    int file = dup(STDERR_FILENO);
    CHECK(file >= 0 && close(file) == 0);
    return file;
}

/* The rsocket's own number in the connection that was dialled last. */
static int dialled;

static void *dial(void *to) {
    int *result = malloc(sizeof *result);
    *result = socket(AF_INET, SOCK_STREAM, 0);
    dialled = lowest_free();
    CHECK(*result >= 0 && connect(*result, to, sizeof(struct sockaddr_in)) == 0);
    return result;
}

static bool is_rsocket(int file) {
    char name[16] = "";
    socklen_t length = sizeof name;
    return !getsockopt(file, IPPROTO_TCP, TCP_CONGESTION, name, &length) && !strncmp(name, "rsocket", 7);
}

/* Opens a listener, and sets its address. */
static int listen_at(struct sockaddr_in *at) {
    socklen_t length = sizeof *at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    *at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    CHECK(bind(listener, (struct sockaddr *)at, sizeof *at) == 0 && listen(listener, 8) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)at, &length) == 0);
    return listener;
}

/* Opens an rsocket connection of which both ends are in this process. */
static void pair(int ends[2]) {
    struct sockaddr_in at;
    pthread_t thread;
    void *result;
    int listener = listen_at(&at);
    CHECK(pthread_create(&thread, NULL, dial, &at) == 0);
    ends[1] = accept(listener, NULL, NULL);
    CHECK(ends[1] >= 0 && pthread_join(thread, &result) == 0);
    ends[0] = *(int *)result;
    free(result);
    CHECK(close(listener) == 0);
    CHECK(is_rsocket(ends[0]) && is_rsocket(ends[1]));
}

/* Sends one byte from each end to the other, which receives this byte and no other. */
static void exchange(const int ends[2]) {
    char got[8];
    for (int i = 0; i < 2; i++) {
        CHECK(send(ends[i], "x", 1, 0) == 1);
        CHECK(recv(ends[!i], got, sizeof got, 0) == 1 && *got == 'x');
    }
}

/* Opens a file, which gets the number of a descriptor that was closed, and writes to it. */
static void reuse(int number) {
    char got[6];
    int file = memfd_create("file", MFD_CLOEXEC);
    CHECK(file >= 0 && (file == number || dup2(file, number) == number));
    CHECK(write(number, "secret", 6) == 6);
    CHECK(pread(number, got, 6, 0) == 6 && !memcmp(got, "secret", 6));
    CHECK(close(file) == 0);
    if (file != number)
        CHECK(close(number) == 0);
}

/* ---- Tests ---- */

/* A vfork() child prepares its descriptors for exec; the parent keeps its own, although they share memory. */
static void vforked(void) {
    int ends[2], status = -1, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    pair(ends);
    pid_t child = vfork();
    if (child == 0) {
        dup2(ends[0], 1);
        dup2(null, ends[0]);
        close(ends[1]);
        close_range(3, ~0u, 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    exchange(ends);
    CHECK(!is_rsocket(1));
}

/* Closes a descriptor by another call than close(), and checks that its number no longer means the
 * rsocket. */
static void closed_by(void (*close_by)(int)) {
    int ends[2];
    char byte;
    pair(ends);
    int copy = fcntl(ends[0], F_DUPFD, 300);
    CHECK(copy >= 300 && is_rsocket(copy));
    close_by(copy);
    reuse(copy);
    exchange(ends);
    /* With its last descriptor, the rsocket is closed. */
    CHECK(dup2(ends[0], 300) == 300 && close(ends[0]) == 0);
    close_by(300);
    CHECK(recv(ends[1], &byte, 1, 0) == 0);
    CHECK(close(ends[1]) == 0);
}

static void by_fclose(int file) {
    FILE *stream = fdopen(file, "r");
    CHECK(stream && fclose(stream) == 0);
}

static void by_close_range(int file) { CHECK(close_range(file, file, 0) == 0); }

static void by_closefrom(int file) { closefrom(file); }

static void fclosed(void) { closed_by(by_fclose); }

static void ranges(void) {
    closed_by(by_close_range);
    closed_by(by_closefrom);
}

/* A descriptor that is closed by a system call, which the library cannot see. */
static void unseen(void) {
    int ends[2];
    pair(ends);
    int copy = dup(ends[0]);
    CHECK(syscall(SYS_close, copy) == 0);
    reuse(copy);
    exchange(ends);
}

/* Calls on descriptors that the library cannot look at fail with the error of fstat(), and change nothing. */
static void unknown(void) {
    int ends[2], value = 1, null = open("/dev/null", O_RDWR), data = memfd_create("file", MFD_CLOEXEC);
    struct sockaddr_in at;
    socklen_t length = sizeof at, short_length = sizeof value;
    struct sockaddr *address = (struct sockaddr *)&at;
    char byte = 'y';
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    struct timeval now = { 0, 0 };
    struct epoll_event event = { .events = EPOLLOUT, .data.u32 = 7 };
    fd_set set;
    pair(ends);
    int listener = listen_at(&at), later = socket(AF_INET, SOCK_STREAM, 0), rs = ends[0];
    int epoll = epoll_create1(0), other = epoll_create1(0);
    struct pollfd polled = { .fd = rs, .events = POLLOUT };
    CHECK(write(data, "y", 1) == 1 && lseek(data, 0, SEEK_SET) == 0);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, rs, &event) == 0);
    FD_ZERO(&set);
    FD_SET(rs, &set);
    fstat_fails = true;
    FAILS(connect(rs, address, length), ENOMEM);
    FAILS(connect(later, address, length), ENOMEM);
    FAILS(listen(later, 8), ENOMEM);
    FAILS(listen(listener, 8), ENOMEM);
    FAILS(accept(listener, NULL, NULL), ENOMEM);
    FAILS(accept4(listener, NULL, NULL, SOCK_CLOEXEC), ENOMEM);
    FAILS(shutdown(rs, SHUT_RDWR), ENOMEM);
    FAILS(getsockname(rs, address, &length), ENOMEM);
    FAILS(getpeername(rs, address, &length), ENOMEM);
    FAILS(getsockopt(rs, SOL_SOCKET, SO_ERROR, &value, &short_length), ENOMEM);
    FAILS(getsockopt(rs, IPPROTO_TCP, TCP_CONGESTION, &value, &short_length), ENOMEM);
    FAILS(setsockopt(rs, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value), ENOMEM);
    FAILS(fcntl(rs, F_GETFL), ENOMEM);
    FAILS(fcntl(rs, F_SETFL, O_NONBLOCK), ENOMEM);
    FAILS(fcntl(rs, F_DUPFD, 0), ENOMEM);
    FAILS(ioctl(rs, FIONBIO, &value), ENOMEM);
    FAILS(ioctl(rs, FIONREAD, &value), ENOMEM);
    FAILS(dup(rs), ENOMEM);
    FAILS(dup2(rs, null), ENOMEM);
    FAILS(dup3(rs, null, O_CLOEXEC), ENOMEM);
    FAILS(read(rs, &byte, 1), ENOMEM);
    FAILS(readv(rs, &part, 1), ENOMEM);
    FAILS(recv(rs, &byte, 1, MSG_WAITALL), ENOMEM);
    FAILS(recvfrom(rs, &byte, 1, 0, NULL, NULL), ENOMEM);
    FAILS(recvmsg(rs, &message, 0), ENOMEM);
    FAILS(write(rs, "y", 1), ENOMEM);
    FAILS(writev(rs, &part, 1), ENOMEM);
    FAILS(send(rs, "y", 1, 0), ENOMEM);
    FAILS(sendto(rs, "y", 1, 0, NULL, 0), ENOMEM);
    FAILS(sendmsg(rs, &message, 0), ENOMEM);
    FAILS(sendfile(rs, data, NULL, 1), ENOMEM);
    FAILS(poll(&polled, 1, 0), ENOMEM);
    FAILS(ppoll(&polled, 1, NULL, NULL), ENOMEM);
    FAILS(select(rs + 1, NULL, &set, NULL, &now), ENOMEM);
    FAILS(epoll_ctl(other, EPOLL_CTL_ADD, rs, &event), ENOMEM);
    FAILS(epoll_wait(epoll, &event, 1, 0), ENOMEM);
    fstat_fails = false;
    /* Descriptors, the listener and the socket are as before. */
    CHECK(write(null, "x", 1) == 1 && !is_rsocket(later) && is_rsocket(listener));
    CHECK(epoll_wait(epoll, &event, 1, 10000) == 1 && event.data.u32 == 7);
    exchange(ends);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, dial, &at) == 0 && accept(listener, NULL, NULL) >= 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void fail_looks(void) {
    block_hook = NULL;
    fstat_fails = true;
}

/* A look that fails during a call ends the call. */
static void unknown_later(void) {
    int ends[2], later = socket(AF_INET, SOCK_STREAM, 0);
    char byte;
    pair(ends);
    block_hook = fail_looks;
    FAILS(recv(ends[0], &byte, 1, 0), ENOMEM);
    fstat_fails = false;
    exchange(ends);
    block_hook = fail_looks;
    FAILS(listen(later, 8), ENOMEM);
    fstat_fails = false;
    CHECK(!is_rsocket(later) && listen(later, 8) == 0 && is_rsocket(later));
}

static void by_close(int file) { CHECK(close(file) == 0); }

static void by_dup2(int file) {
    int null = open("/dev/null", O_RDWR);
    CHECK(null >= 0 && dup2(null, file) == file && close(null) == 0);
}

/* An rsocket is closed with its last descriptor, even if the library cannot look at it. */
static void unknown_closed(void) {
    static void (*const ways[])(int) = { by_close, by_fclose, by_close_range, by_dup2, by_closefrom };
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        int ends[2];
        char byte;
        pair(ends);
        CHECK(dup2(ends[0], 300) == 300 && close(ends[0]) == 0);
        fstat_fails = true;
        ways[way](300);
        fstat_fails = false;
        CHECK(recv(ends[1], &byte, 1, 0) == 0 && close(ends[1]) == 0);
    }
}

static void replaced(void) {
    int ends[2], epoll = epoll_create1(0), null = open("/dev/null", O_RDWR);
    struct epoll_event event = { .events = EPOLLIN, .data.u32 = 7 };
    pair(ends);
    int copy = dup(ends[0]);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    CHECK(send(ends[1], "x", 1, 0) == 1);
    CHECK(epoll_wait(epoll, &event, 1, 10000) == 1 && event.data.u32 == 7);
    CHECK(dup2(null, ends[0]) == ends[0]);
    CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
    /* The number is free for another watch. */
    CHECK(dup2(copy, ends[0]) == ends[0]);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    CHECK(epoll_wait(epoll, &event, 1, 10000) == 1);
}

/* Waits for the next event of a set: its number, or -1 if there is none. */
static int next_event(int epoll, int timeout) {
    struct epoll_event event;
    int count = epoll_wait(epoll, &event, 1, timeout);
    CHECK(count >= 0);
    return count ? (int)event.data.u32 : -1;
}

/* A new epoll set has none of the rsockets of a closed one that had the same number. */
static void sets(void) {
    int ends[2], others[2];
    struct epoll_event old = { .events = EPOLLIN, .data.u32 = 7 }, new = { .events = EPOLLIN, .data.u32 = 8 };
    pair(ends);
    pair(others);
    CHECK(send(ends[1], "x", 1, 0) == 1 && send(others[1], "x", 1, 0) == 1);
    int epoll = epoll_create1(0);
    for (int way = 0; way < 4; way++) {
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &old) == 0 && next_event(epoll, 10000) == 7);
        FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &new), EEXIST);
        if (way < 2)
            CHECK((way ? syscall(SYS_close, epoll) : close(epoll)) == 0 && epoll_create1(0) == epoll);
        else {
            int fresh = epoll_create1(0);
            CHECK((way == 2 ? dup2(fresh, epoll) : syscall(SYS_dup3, fresh, epoll, 0)) == epoll && close(fresh) == 0);
        }
        CHECK(next_event(epoll, 0) == -1);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, others[0], &new) == 0 && next_event(epoll, 10000) == 8);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, others[0], NULL) == 0 && next_event(epoll, 0) == -1);
    }
    /* Two descriptors of an rsocket are watched separately, and both watches end with their descriptors. */
    int copy = dup(ends[0]);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &old) == 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, copy, &new) == 0);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL) == 0 && next_event(epoll, 10000) == 8);
    CHECK(syscall(SYS_close, copy) == 0 && dup(others[0]) == copy && next_event(epoll, 0) == -1);
    FAILS(epoll_ctl(ends[1], EPOLL_CTL_ADD, ends[0], &old), EINVAL);
}

/* A forked child, such as a daemon, has none of its parent's rsockets and closes its own when it is done
 * with them. */
static void forked(void) {
    int ends[2], own[2], status = -1;
    char byte;
    pair(ends);
    for (int way = 0; way < 3; way++) {
        /* Only the first child runs fork handlers. The third one is unknown to libc, so it does little. */
        pid_t child = way == 0 ? fork() : way == 1 ? _Fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
            CHECK(recv(ends[0], &byte, 1, MSG_DONTWAIT) == -1 && errno != EAGAIN);
            CHECK(send(ends[0], "y", 1, MSG_NOSIGNAL) == -1);
            CHECK(!is_rsocket(ends[0]) && !is_rsocket(ends[1]));
            if (way < 2) {
                CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
                for (int round = 0; round < 3; round++) {
                    pair(own);
                    exchange(own);
                    CHECK(close(own[0]) == 0 && recv(own[1], &byte, 1, 0) == 0 && close(own[1]) == 0);
                }
            }
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        exchange(ends);
    }
}

static int listens(void *unused) {
    (void)unused;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    _exit(listen(listener, 8) || is_rsocket(listener) || close(listener));
}

static int replaces(void *ends) {
    int null = open("/dev/null", O_RDWR);
    _exit(dup2(null, ((int *)ends)[0]) < 0 || close(((int *)ends)[1]));
}

static int exits(void *unused) {
    (void)unused;
    exit(0);
}

/* Runs a child that shares this process's memory, but not its descriptors. */
static void share(int (*work)(void *), int *ends, int flags) {
    static char stack[1 << 18] __attribute__((aligned(64)));
    int status = -1;
    pid_t child = clone(work, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD | flags, ends);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* A child that shares the memory of its parent owns no rsockets and changes none, even if it is the first to open a
 * socket, and if it has the process number of its parent, in another PID namespace. */
static void shared(void) {
    int ends[2], status = -1;
    /* If namespaces are not allowed, the two numbers differ. */
    bool is_allowed = unshare(CLONE_NEWPID) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0;
    pid_t child = fork();
    if (child == 0) {
        CHECK((getpid() == 1) == is_allowed);
        share(listens, NULL, 0);
        pair(ends);
        share(replaces, ends, is_allowed ? CLONE_NEWPID : 0);
        exchange(ends);
        share(exits, NULL, 0);
        exchange(ends);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void on_signal(int number) {
    (void)number;
    CHECK(!is_allocating);
}

static void interrupt(void) { raise(SIGUSR1); }

#define MANY 100

/* No handler interrupts malloc() in a call of the library, because it might make the same call. */
static void handlers(void) {
    int ends[2], epoll = epoll_create1(0);
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    struct pollfd files[MANY];
    struct epoll_event event = { .events = EPOLLIN };
    pair(ends);
    for (int i = 0; i < MANY; i++)
        files[i] = (struct pollfd){ .fd = ends[i % 2], .events = POLLIN };
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    hook = interrupt;
    poll(files, MANY, 5);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    epoll_wait(epoll, &event, 1, 5);
    hook = NULL;
}

static sem_t go, done;

static void *closes(void *copy) {
    for (;;) {
        CHECK(sem_wait(&go) == 0);
        CHECK(close(dup(*(int *)copy)) == 0);
        CHECK(sem_post(&done) == 0);
    }
}

static void await(void) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    CHECK(sem_post(&go) == 0 && sem_timedwait(&done, &end) == 0);
}

/* close() waits for no thread that allocates, because a handler may have interrupted malloc(). */
static void locks(void) {
    int ends[2], epoll = epoll_create1(0), null = open("/dev/null", O_RDWR);
    struct epoll_event event = { .events = EPOLLIN };
    pthread_t thread;
    pair(ends);
    CHECK(sem_init(&go, 0, 0) == 0 && sem_init(&done, 0, 0) == 0);
    for (int i = 0; i < 2; i++) {
        int file = i ? ends[0] : null;
        hook = NULL;
        CHECK(pthread_create(&thread, NULL, closes, &file) == 0);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[i], &event) == 0);
        hook = await;
        for (int round = 0; round < 100; round++) {
            int copy = dup(ends[1]);
            CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, copy, &event) == 0);
            CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
        }
        hook = NULL;
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
    }
}

/* Another thread that changes a descriptor during a call on it. */
static int changed[2], fresh[2];
static bool is_sending, is_in_handler;

static void *changes(void *change) {
    CHECK(sem_wait(&go) == 0);
    ((void (*)(void))change)();
    CHECK(sem_post(&done) == 0);
    /* The new connection ends without data. */
    char byte;
    CHECK(!is_sending || recv(fresh[1], &byte, 1, 0) == 0);
    return NULL;
}

static void on_change(int number) {
    (void)number;
    await();
}

/* Interrupts a call once: the descriptor changes now, or in a signal handler when signals are unblocked. */
static void change_once(void) {
    block_hook = NULL;
    if (is_in_handler)
        raise(SIGUSR1);
    else
        await();
}

/* Starts the other thread. The next call of this thread on an rsocket is interrupted. */
static pthread_t prepare(void (*change)(void)) {
    struct sigaction action = { .sa_handler = on_change, .sa_flags = SA_RESTART };
    pthread_t thread;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, changes, (void *)change) == 0);
    block_hook = change_once;
    return thread;
}

/* Closes the connection, and opens another one, whose rsocket gets the number of the first. */
static void reconnect(void) {
    struct sockaddr_in at;
    int number = dialled, listener = listen_at(&at), low[64], count = 0;
    fresh[0] = socket(AF_INET, SOCK_STREAM, 0);
    /* The peer closes first if it does not read, because close() would wait until it does. */
    CHECK((!is_sending || close(changed[1]) == 0) && close(changed[0]) == 0);
    /* Another thread of the library may still be closing the rsocket. */
    for (int next; (next = lowest_free()) != number;)
        if (next < number)
            low[count++] = dup(STDERR_FILENO);
        else
            sched_yield();
    CHECK(connect(fresh[0], (struct sockaddr *)&at, sizeof at) == 0);
    fresh[1] = accept(listener, NULL, NULL);
    CHECK(fresh[1] >= 0 && close(listener) == 0);
    for (int end = 0; end < 2 && !is_sending; end++)
        CHECK(send(fresh[end], "x", 1, 0) == 1);
    while (count > 0)
        CHECK(close(low[--count]) == 0);
}

/* A blocking call sends nothing to, and receives nothing from, a later connection with the same number. */
static void during(void) {
    static char room[1 << 25];
    struct iovec part = { room, sizeof room };
    char byte;
    CHECK(sem_init(&go, 0, 0) == 0 && sem_init(&done, 0, 0) == 0);
    for (int way = 0; way < 4; way++) {
        is_sending = way & 1;
        is_in_handler = way & 2;
        pair(changed);
        pthread_t thread = prepare(reconnect);
        if (is_sending) {
            /* The handler runs when a part has been sent. */
            ssize_t sent = writev(changed[0], &part, 1);
            CHECK(is_in_handler ? sent > 0 && sent < (ssize_t)sizeof room : sent == -1 && errno == EBADF);
        } else {
            FAILS(readv(changed[0], &part, 1), EBADF);
            CHECK(close(changed[1]) == 0);
        }
        for (int end = 0; end < 2 && !is_sending; end++)
            CHECK(recv(fresh[end], &byte, 1, 0) == 1);
        CHECK(block_hook == NULL && close(fresh[0]) == 0);
        CHECK(pthread_join(thread, NULL) == 0 && close(fresh[1]) == 0);
    }
}

/* Replaces the descriptor by another socket. */
static void replace(void) {
    int other = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(other >= 0 && dup2(other, changed[0]) == changed[0] && close(other) == 0);
}

/* connect() does not connect another socket that has got the descriptor's number meanwhile. */
static void connecting(void) {
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    int listener = listen_at(&at);
    CHECK(sem_init(&go, 0, 0) == 0 && sem_init(&done, 0, 0) == 0);
    for (int way = 0; way < 2; way++) {
        is_in_handler = way;
        changed[0] = socket(AF_INET, SOCK_STREAM, 0);
        pthread_t thread = prepare(replace);
        FAILS(connect(changed[0], (struct sockaddr *)&at, sizeof at), EBADF);
        CHECK(block_hook == NULL && pthread_join(thread, NULL) == 0);
        FAILS(getpeername(changed[0], (struct sockaddr *)&at, &length), ENOTCONN);
        CHECK(!is_rsocket(changed[0]) && close(changed[0]) == 0);
    }
    CHECK(close(listener) == 0);
}

static struct sockaddr_in listening_at;

static void bind_too(void) {
    int other = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(bind(other, (struct sockaddr *)&listening_at, sizeof listening_at), EADDRINUSE);
    CHECK(close(other) == 0);
}

/* At no time during listen() can another socket get the port. */
static void port(void) {
    socklen_t length = sizeof listening_at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    listening_at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    CHECK(bind(listener, (struct sockaddr *)&listening_at, sizeof listening_at) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&listening_at, &length) == 0);
    block_hook = bind_too;
    CHECK(listen(listener, 8) == 0 && is_rsocket(listener));
    block_hook = NULL;
    CHECK(close(listener) == 0);
}

/* Options for authentication and encryption fail, also before the socket connects. */
static void protection(void) {
    static const struct { int level, option; } options[] = {
        { IPPROTO_TCP, TCP_MD5SIG }, { IPPROTO_TCP, TCP_MD5SIG_EXT }, { IPPROTO_TCP, TCP_ULP },
        { IPPROTO_TCP, 38 /* TCP_AO_ADD_KEY */ }, { IPPROTO_TCP, 40 /* TCP_AO_INFO */ },
        { IPPROTO_IP, IP_MINTTL }, { IPPROTO_IPV6, 73 /* IPV6_MINHOPCOUNT */ },
        { IPPROTO_IP, IP_XFRM_POLICY }, { IPPROTO_IPV6, IPV6_XFRM_POLICY },
    };
    int ends[2], on = 1;
    char value[256] = "tls";
    pair(ends);
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        FAILS(setsockopt(ends[0], options[i].level, options[i].option, value, sizeof value), ENOPROTOOPT);
        FAILS(setsockopt(fresh, options[i].level, options[i].option, value, sizeof value), ENOPROTOOPT);
    }
    FAILS(setsockopt(ends[0], 282 /* SOL_TLS */, 1, value, 40), ENOPROTOOPT);
    CHECK(setsockopt(ends[0], IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on) == 0);
}

int main(int count, char **words) {
    static const struct { const char *name; void (*test)(void); } tests[] = {
        { "vforked", vforked }, { "fclosed", fclosed }, { "ranges", ranges }, { "unseen", unseen }, { "unknown", unknown },
        { "unknown_later", unknown_later }, { "unknown_closed", unknown_closed },
        { "replaced", replaced }, { "sets", sets }, { "shared", shared },
        { "forked", forked }, { "handlers", handlers }, { "locks", locks },
        { "during", during }, { "connecting", connecting }, { "port", port },
        { "protection", protection },
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (count == 2 && !strcmp(words[1], tests[i].name)) {
            tests[i].test();
            return 0;
        }
    return 2;
}
