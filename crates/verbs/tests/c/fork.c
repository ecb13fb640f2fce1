/* A process forks while the library's thread measures the cost of a sleep (once, before the first wait). That
 * thread does not exist in the child, which must still be able to wait. */
#include "check.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 40, STEP_MICROS = 100 };

static void handler(int signal) {
}

static struct ibv_context *open_first(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    check(list != NULL && list[0] != NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    check(context != NULL);
    ibv_free_device_list(list);
    return context;
}

/* Waits for an event that never occurs, until a signal ends the wait. The alarm repeats, because the first
 * one may arrive before the call. */
static void child(void) {
    struct ibv_context *context = open_first();
    struct itimerval in = {.it_value = {.tv_usec = 2000}, .it_interval = {.tv_usec = 20000}};
    struct ibv_async_event event;
    check(setitimer(ITIMER_REAL, &in, NULL) == 0);
    check(ibv_get_async_event(context, &event) == -1 && errno == EINTR);
}

static int64_t micros(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

/* Forks a process that ends with its parent. */
static pid_t forked(void) {
    pid_t process = fork();
    check(process >= 0);
    if (process == 0)
        check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    return process;
}

static void succeeds(pid_t process) {
    int status = 0;
    check(waitpid(process, &status, 0) == process && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Forks `after` microseconds after the library has started its thread. */
static void parent(int after) {
    open_first();
    int64_t until = micros() + after;
    while (micros() < until)
        ;
    pid_t process = forked();
    if (process == 0) {
        child();
        _exit(0);
    }
    succeeds(process);
}

static void children_can_wait_whenever_their_parent_forks(void) {
    struct sigaction action = {.sa_handler = handler};
    check(sigaction(SIGALRM, &action, NULL) == 0);
    for (int at = 0; at < TRIES; at++) {
        pid_t process = forked();
        if (process == 0) {
            parent(at * STEP_MICROS);
            _exit(0);
        }
        succeeds(process);
    }
}

int main(void) {
    run(children_can_wait_whenever_their_parent_forks);
    printf("%d tests passed\n", tests_passed);
    return 0;
}
