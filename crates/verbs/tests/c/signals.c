/* Signals and blocking calls, which must behave like read(2), as in rdma-core. */
#include "check.h"

#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/time.h>

static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct rdma_event_channel *manager;
static volatile sig_atomic_t ran;

static void handler(int signal) {
    ran++;
}

static void handle(int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    check(sigaction(SIGALRM, &action, NULL) == 0);
}

static void alarm_in(long micros, long again) {
    struct itimerval in = {.it_value = {.tv_usec = micros}, .it_interval = {.tv_usec = again}};
    ran = 0;
    check(setitimer(ITIMER_REAL, &in, NULL) == 0);
}

static int wait_for(int what) {
    struct ibv_cq *cq;
    void *cookie;
    struct ibv_async_event async_event;
    struct rdma_cm_event *event;
    switch (what) {
    case 0:
        return ibv_get_cq_event(channel, &cq, &cookie);
    case 1:
        return ibv_get_async_event(context, &async_event);
    default:
        return rdma_get_cm_event(manager, &event);
    }
}

/* The alarm repeats, because an alarm before the call has started would interrupt nothing. */
static void handlers_interrupt_calls(void) {
    handle(0);
    for (int what = 0; what < 3; what++) {
        for (int times = 0; times < 5; times++) {
            alarm_in(2000, 20000);
            errno = 0;
            check(wait_for(what) == -1 && errno == EINTR && ran > 0);
            alarm_in(0, 0);
        }
    }
}

static struct rdma_cm_id *loud;

static void count_to_three(int signal) {
    struct itimerval never = {.it_value = {0}};
    if (++ran == 3)
        setitimer(ITIMER_REAL, &never, NULL);
}

/* A restarted call waits until its event arrives; here, another thread causes the event. */
static void *say(void *unused) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(9)};
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    while (ran < 3) {
    }
    check(rdma_resolve_addr(loud, NULL, (struct sockaddr *)&here, 1000) == 0);
    return NULL;
}

static void handlers_with_sa_restart_do_not_interrupt_calls(void) {
    struct sigaction action = {.sa_handler = count_to_three, .sa_flags = SA_RESTART};
    struct rdma_cm_event *event;
    pthread_t thread;
    check(rdma_create_id(manager, &loud, NULL, RDMA_PS_TCP) == 0);
    check(sigaction(SIGALRM, &action, NULL) == 0);
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    ran = 0;
    check(pthread_sigmask(SIG_BLOCK, &alarms, NULL) == 0);
    check(pthread_create(&thread, NULL, say, NULL) == 0);
    check(pthread_sigmask(SIG_UNBLOCK, &alarms, NULL) == 0);
    alarm_in(5000, 5000);
    check(rdma_get_cm_event(manager, &event) == 0);
    check(event->event == RDMA_CM_EVENT_ADDR_RESOLVED && ran == 3);
    check(rdma_ack_cm_event(event) == 0 && pthread_join(thread, NULL) == 0 && rdma_destroy_id(loud) == 0);
}

int main(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    check(list != NULL && list[0] != NULL);
    context = ibv_open_device(list[0]);
    check(context != NULL);
    channel = ibv_create_comp_channel(context);
    manager = rdma_create_event_channel();
    check(channel != NULL && manager != NULL);
    run(handlers_interrupt_calls);
    run(handlers_with_sa_restart_do_not_interrupt_calls);
    rdma_destroy_event_channel(manager);
    check(ibv_destroy_comp_channel(channel) == 0 && ibv_close_device(context) == 0);
    ibv_free_device_list(list);
    printf("%d tests passed\n", tests_passed);
    return 0;
}
