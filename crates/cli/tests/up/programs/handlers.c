/* Makes the calls that POSIX lists as async-signal-safe (POSIX.1-2017 2.4.3) from a handler that interrupts the same calls.
 *
 *     handlers steps|timer|forks ADDRESS PORT OWN
 *
 * steps     interposes the functions that the preloaded library itself calls, and raises a signal in each of them,
 *           so that the handler runs at every step of every call, no matter which locks the library holds.
 * timer     interrupts the calls with a timer's signal, while threads make the same calls.
 * forks     makes the calls in forked children, while threads of the parent make the same calls.
 * Output    "done", or the name of the call that did not return. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_in far, own;
static int stream = -1, listener = -1;
static const char *volatile doing = "nothing", *volatile handling = "nothing";
static volatile sig_atomic_t raises, is_handling, handled, may_connect;

static void say(const char *words) { syscall(SYS_write, 1, words, strlen(words)); }

static void die(const char *what) {
    say("failed: ");
    say(what);
    say("\n");
    _exit(1);
}

#define check(is) ((is) ? (void)0 : die(#is))

static void on_watch(int signal) {
    (void)signal;
    say("stuck: the program in ");
    say(doing);
    say(", the handler in ");
    say(handling);
    say("\n");
    _exit(1);
}

/* The functions called by the library. */
static int (*system_fstat)(int, struct stat *);
static int (*system_poll)(struct pollfd *, nfds_t, int);
static int (*system_dup3)(int, int, int);

static void step(void) {
    int kept = errno;
    /* Do not raise the signal inside the handler, because that would recurse endlessly. */
    if (raises && !is_handling)
        raise(SIGUSR1);
    errno = kept;
}

int fstat(int file, struct stat *is) {
    int result = system_fstat(file, is);
    step();
    return result;
}

int poll(struct pollfd *files, nfds_t count, int timeout) {
    int result = system_poll(files, count, timeout);
    step();
    return result;
}

int dup3(int from, int to, int flags) {
    int result = system_dup3(from, to, flags);
    step();
    return result;
}

/* Makes each call on the list that the library interposes once. None of them blocks. */
static void call_all(const char *volatile *call, int stream, int listener) {
    char byte[4];
    struct iovec part = {byte, sizeof byte};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    int value = 0;
    *call = "getpeername";
    check(getpeername(stream, (struct sockaddr *)&name, &length) == 0 && name.sin_port == far.sin_port);
    *call = "getsockname";
    length = sizeof name;
    check(getsockname(stream, (struct sockaddr *)&name, &length) == 0 && name.sin_port != 0);
    *call = "getsockopt";
    length = sizeof value;
    check(getsockopt(stream, SOL_SOCKET, SO_ERROR, &value, &length) == 0 && value == 0);
    *call = "setsockopt";
    value = 1;
    check(setsockopt(stream, IPPROTO_TCP, 1, &value, sizeof value) == 0);
    *call = "recv";
    check(recv(stream, byte, sizeof byte, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    *call = "recvfrom";
    check(recvfrom(stream, byte, sizeof byte, MSG_DONTWAIT, NULL, NULL) == -1 && errno == EAGAIN);
    *call = "recvmsg";
    check(recvmsg(stream, &message, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    *call = "read";
    check(read(stream, byte, sizeof byte) == -1 && errno == EAGAIN);
    *call = "accept";
    errno = 0;
    check(accept(listener, NULL, NULL) == -1 && (errno == EAGAIN || errno == ENOTCONN));
    *call = "poll";
    struct pollfd polled = {stream, POLLIN, 0};
    check(poll(&polled, 1, 0) >= 0 || errno == EINTR);
    *call = "socket";
    int other = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    check(other >= 0);
    *call = "bind";
    errno = E2BIG;
    check(bind(other, (struct sockaddr *)&own, sizeof own) == 0 && errno == E2BIG);
    if (may_connect) {
        *call = "listen";
        check(listen(other, 5) == 0);
        *call = "getsockname of a listener";
        length = sizeof name;
        check(getsockname(other, (struct sockaddr *)&name, &length) == 0 && name.sin_port != 0);
        *call = "close";
        check(close(other) == 0);
        other = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        *call = "connect";
        check(connect(other, (struct sockaddr *)&far, sizeof far) == 0 || errno == EINPROGRESS);
        *call = "shutdown";
        shutdown(other, SHUT_WR);
    }
    *call = "close";
    check(close(other) == 0);
    *call = "nothing";
}

/* The timers: one interrupts the calls; the other, a watchdog, raises another signal if no round of calls and no
 * handler ends for 50 s. A round alone may take longer: on a busy machine, it is interrupted many times. */
static timer_t interruption, watchdog;

/* Raises SIGALRM once, in a millisecond. A periodic timer would expire again while a slow handler runs, and the
 * program would only handle signals. */
static void interrupt_soon(void) {
    struct itimerspec soon = {{0, 0}, {0, 1000000}};
    check(timer_settime(interruption, 0, &soon, NULL) == 0);
}

static volatile bool ends;

/* Tells the watchdog that something has ended. */
static void make_progress(void) {
    struct itimerspec patience = {{0, 0}, {50, 0}};
    check(timer_settime(watchdog, 0, &patience, NULL) == 0);
}

static void on_signal(int signal) {
    int kept = errno;
    handled++;
    is_handling = 1;
    call_all(&handling, stream, listener);
    is_handling = 0;
    make_progress();
    if (signal == SIGALRM && !ends)
        interrupt_soon();
    errno = kept;
}

static void *keep_calling(void *unused) {
    const char *volatile call;
    (void)unused;
    while (!ends)
        call_all(&call, stream, listener);
    return NULL;
}

static void begin(void) {
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    check(bind(listener, (struct sockaddr *)&own, sizeof own) == 0 && listen(listener, 5) == 0);
    stream = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(stream, (struct sockaddr *)&far, sizeof far) == 0);
    check(fcntl(stream, F_SETFL, O_NONBLOCK) == 0);
}

static void steps(void) {
    for (int round = 0; round < 20; round++) {
        /* Opening streams makes a handler slow, so do it only in every second round. */
        may_connect = round % 2;
        make_progress();
        raises = 1;
        call_all(&doing, stream, listener);
        raises = 0;
    }
    check(handled > 100);
}

static void timer(void) {
    pthread_t thread;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    check(timer_create(CLOCK_MONOTONIC, &event, &interruption) == 0);
    check(pthread_create(&thread, NULL, keep_calling, NULL) == 0);
    interrupt_soon();
    while (handled < 300) {
        may_connect = handled % 16 == 0;
        make_progress();
        call_all(&doing, stream, listener);
    }
    ends = true;
    check(pthread_join(thread, NULL) == 0);
    /* No handler may run while the library ends with the process. */
    check(timer_delete(interruption) == 0);
}

static void forks(void) {
    pthread_t thread[2];
    for (int i = 0; i < 2; i++)
        check(pthread_create(&thread[i], NULL, keep_calling, NULL) == 0);
    for (int times = 0; times < 100; times++) {
        int status = -1;
        make_progress();
        doing = "fork";
        /* Create every other child with a system call, so that fork handlers do not run (as with _Fork()). */
        pid_t child = times % 2 ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        check(child >= 0);
        if (child == 0) {
            struct sigaction watch = {.sa_handler = on_watch};
            sigaction(SIGVTALRM, &watch, NULL);
            call_all(&handling, stream, listener);
            _exit(0);
        }
        doing = "waitpid";
        check(waitpid(child, &status, 0) == child && status == 0);
    }
    ends = true;
    for (int i = 0; i < 2; i++)
        check(pthread_join(thread[i], NULL) == 0);
}

int main(int count, char **words) {
    check(count == 5);
    *(void **)&system_fstat = dlsym(RTLD_NEXT, "fstat");
    *(void **)&system_poll = dlsym(RTLD_NEXT, "poll");
    *(void **)&system_dup3 = dlsym(RTLD_NEXT, "dup3");
    far = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(words[3]))};
    own = (struct sockaddr_in){.sin_family = AF_INET};
    check(inet_pton(AF_INET, words[2], &far.sin_addr) == 1 && inet_pton(AF_INET, words[4], &own.sin_addr) == 1);
    struct sigaction watch = {.sa_handler = on_watch}, action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    const char *how = words[1];
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
    check(sigaction(SIGUSR2, &watch, NULL) == 0 && timer_create(CLOCK_MONOTONIC, &event, &watchdog) == 0);
    make_progress();
    begin();
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    if (!strcmp(how, "steps"))
        steps();
    else if (!strcmp(how, "timer"))
        timer();
    else
        forks();
    say("done\n");
    return 0;
}
