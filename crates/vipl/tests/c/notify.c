/* Callbacks for the next completion, and for asynchronous errors. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "test.h"

/* The results of callbacks, with a condition variable for waiting. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t bell;
    int calls;
    VIP_PVOID context;
    VIP_NIC_HANDLE nic;
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR *descriptor;
    VIP_BOOLEAN receives;
    VIP_ERROR_CODE errors[64];
    int error_count;
    VIP_ERROR_DESCRIPTOR last_error;
    pthread_t thread;
    Side *side;
} heard = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, NULL, NULL, NULL, NULL, 0, {VIP_ERROR_POST_DESC}, 0,
           {NULL, NULL, NULL, NULL, 0, VIP_RESOURCE_NIC, VIP_ERROR_POST_DESC}, 0, NULL};

static void deadline(struct timespec *end) {
    CHECK(clock_gettime(CLOCK_REALTIME, end) == 0);
    end->tv_sec += (time_t)(LONG / 1000);
}

/* Waits until there have been `calls` callbacks in total. */
static void hear(int calls) {
    struct timespec end;
    deadline(&end);
    pthread_mutex_lock(&heard.lock);
    while (heard.calls < calls)
        CHECK(pthread_cond_timedwait(&heard.bell, &heard.lock, &end) == 0);
    EQUAL(heard.calls, calls);
    pthread_mutex_unlock(&heard.lock);
}

static int count_of(VIP_ERROR_CODE code) {
    int i, count = 0;
    for (i = 0; i < heard.error_count; i++)
        count += heard.errors[i] == code;
    return count;
}

static void hear_error(VIP_ERROR_CODE code) {
    struct timespec end;
    deadline(&end);
    pthread_mutex_lock(&heard.lock);
    while (count_of(code) == 0)
        CHECK(pthread_cond_timedwait(&heard.bell, &heard.lock, &end) == 0);
    pthread_mutex_unlock(&heard.lock);
}

static void forget(void) {
    pthread_mutex_lock(&heard.lock);
    heard.calls = heard.error_count = 0;
    pthread_mutex_unlock(&heard.lock);
}

static void on_work(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *descriptor) {
    pthread_mutex_lock(&heard.lock);
    heard.calls++;
    heard.context = context;
    heard.nic = nic;
    heard.vi = vi;
    heard.descriptor = descriptor;
    heard.thread = pthread_self();
    pthread_cond_broadcast(&heard.bell);
    pthread_mutex_unlock(&heard.lock);
}

static void on_queue(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_BOOLEAN receives) {
    pthread_mutex_lock(&heard.lock);
    heard.calls++;
    heard.context = context;
    heard.nic = nic;
    heard.vi = vi;
    heard.receives = receives;
    pthread_cond_broadcast(&heard.bell);
    pthread_mutex_unlock(&heard.lock);
}

static void on_error(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *error) {
    pthread_mutex_lock(&heard.lock);
    heard.context = context;
    if (heard.error_count < 64)
        heard.errors[heard.error_count++] = error->ErrorCode;
    heard.last_error = *error;
    pthread_cond_broadcast(&heard.bell);
    pthread_mutex_unlock(&heard.lock);
}

/* Reposts the receive and requests another callback, as in a server without a thread of its own. */
static void on_work_again(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *descriptor) {
    Side *side = heard.side;
    if (descriptor->CS.Status & VIP_STATUS_ERROR_MASK)
        return; /* flushed: the test is over */
    descriptor->CS.Status = 0;
    post_recv(side, vi, descriptor);
    OK(VipRecvNotify(vi, context, on_work_again));
    on_work(context, nic, vi, descriptor);
}

static void a_callback_is_called_once_for_the_next_receive(void) {
    Pair pair;
    int mark = 0;
    VIP_DESCRIPTOR *r1, *r2, *s;
    forget();
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    post_recv(&pair.there, pair.far_vi, r1 = plain(&pair.there, 0, 0, 16));
    post_recv(&pair.there, pair.far_vi, r2 = plain(&pair.there, 1, 16, 16));
    OK(VipRecvNotify(pair.far_vi, &mark, on_work));
    post_send(&pair.here, pair.near_vi, s = plain(&pair.here, 0, 0, 5));
    sent(pair.near_vi, s, 0);
    hear(1);
    CHECK(heard.context == &mark && heard.nic == pair.there.nic && heard.vi == pair.far_vi && heard.descriptor == r1);
    CHECK(!pthread_equal(heard.thread, pthread_self()));
    EQUAL(r1->CS.Length, 5);
    EQUAL(r1->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE);
    /* Collect the second descriptor directly, because no callback was requested for it. */
    post_send(&pair.here, pair.near_vi, s = plain(&pair.here, 0, 0, 6));
    sent(pair.near_vi, s, 0);
    received(pair.far_vi, r2, 0);
    EQUAL(heard.calls, 1);
    pair_close(&pair);
}

static void a_callback_is_called_at_once_for_a_completed_receive(void) {
    Pair pair;
    VIP_DESCRIPTOR *r;
    VIP_VI_HANDLE idle;
    forget();
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    idle = vi_of(&pair.here, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    post_recv(&pair.here, idle, r = plain(&pair.here, 0, 0, 5));
    OK(VipDisconnect(idle)); /* flushed: done */
    OK(VipRecvNotify(idle, NULL, on_work));
    hear(1);
    CHECK(heard.descriptor == r);
    EQUAL(r->CS.Status & VIP_STATUS_ERROR_MASK, VIP_STATUS_DESC_FLUSHED_ERROR);
    pair_close(&pair);
}

static void a_callback_may_post_and_request_another_callback(void) {
    Pair pair;
    int k;
    VIP_DESCRIPTOR *s;
    forget();
    pair_open(&pair, VIP_SERVICE_RELIABLE_RECEPTION);
    heard.side = &pair.there;
    post_recv(&pair.there, pair.far_vi, plain(&pair.there, 0, 0, 16));
    post_recv(&pair.there, pair.far_vi, plain(&pair.there, 1, 0, 16));
    OK(VipRecvNotify(pair.far_vi, NULL, on_work_again));
    for (k = 1; k <= 100; k++) {
        post_send(&pair.here, pair.near_vi, s = plain(&pair.here, 0, 0, 16));
        sent(pair.near_vi, s, 0);
        hear(k);
    }
    pair_close(&pair);
}

static void sends_have_callbacks_too(void) {
    Pair pair;
    VIP_DESCRIPTOR *r, *s;
    forget();
    pair_open(&pair, VIP_SERVICE_RELIABLE_RECEPTION);
    post_recv(&pair.there, pair.far_vi, r = plain(&pair.there, 0, 0, 16));
    OK(VipSendNotify(pair.near_vi, NULL, on_work));
    post_send(&pair.here, pair.near_vi, s = plain(&pair.here, 0, 0, 16));
    hear(1);
    CHECK(heard.descriptor == s && heard.vi == pair.near_vi);
    received(pair.far_vi, r, 0);
    pair_close(&pair);
}

static void completion_queue_callbacks_get_vi_and_queue(void) {
    Side here, there;
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE a, b;
    VIP_DESCRIPTOR *d, *r, *s;
    forget();
    side_open(&here);
    side_open(&there);
    OK(VipCreateCQ(there.nic, 8, &cq));
    a = vi_of(&here, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    b = vi_of(&there, VIP_SERVICE_RELIABLE_DELIVERY, cq, cq);
    join(&here, a, &there, b);
    EQUAL(VipRecvNotify(b, NULL, on_work), VIP_INVALID_PARAMETER);
    EQUAL(VipSendNotify(b, NULL, on_work), VIP_INVALID_PARAMETER);
    OK(VipCQNotify(cq, &here, on_queue));
    post_recv(&there, b, r = plain(&there, 0, 0, 16));
    post_send(&here, a, s = plain(&here, 0, 0, 16));
    sent(a, s, 0);
    hear(1);
    CHECK(heard.context == &here && heard.nic == there.nic && heard.vi == b && heard.receives == VIP_TRUE);
    OK(VipRecvDone(b, &d));
    CHECK(d == r);
    side_close(&here);
    side_close(&there);
}

static void the_error_handler_reports_a_lost_connection(void) {
    Pair pair;
    int mark = 0;
    forget();
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    OK(VipErrorCallback(pair.here.nic, &mark, on_error));
    OK(VipDisconnect(pair.far_vi));
    hear_error(VIP_ERROR_CONN_LOST);
    CHECK(heard.context == &mark && heard.last_error.NicHandle == pair.here.nic);
    CHECK(heard.last_error.ViHandle == pair.near_vi && heard.last_error.CQHandle == NULL);
    CHECK(heard.last_error.DescriptorPtr == NULL);
    EQUAL(heard.last_error.ResourceCode, VIP_RESOURCE_VI);
    EQUAL(state_of(pair.near_vi), VIP_STATE_ERROR);
    /* A handler that was removed is not called. */
    forget();
    OK(VipErrorCallback(pair.here.nic, NULL, NULL));
    OK(VipDisconnect(pair.near_vi));
    join(&pair.here, pair.near_vi, &pair.there, pair.far_vi);
    OK(VipDisconnect(pair.far_vi));
    becomes(pair.near_vi, VIP_STATE_ERROR);
    EQUAL(heard.error_count, 0);
    pair_close(&pair);
}

static void the_error_handler_reports_an_empty_receive_queue(void) {
    Pair pair;
    VIP_DESCRIPTOR *s, *done;
    forget();
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    OK(VipErrorCallback(pair.there.nic, NULL, on_error));
    post_send(&pair.here, pair.near_vi, s = plain(&pair.here, 0, 0, 16));
    hear_error(VIP_ERROR_RECVQ_EMPTY);
    CHECK(heard.last_error.ViHandle == pair.far_vi || count_of(VIP_ERROR_CONN_LOST) > 0);
    (void)VipSendWait(pair.near_vi, LONG, &done);
    CHECK(done == s);
    becomes(pair.far_vi, VIP_STATE_ERROR);
    pair_close(&pair);
}

/* Refused RDMA is reported to the target. */
static void the_error_handler_reports_refused_rdma_at_the_target(void) {
    int read;
    for (read = 0; read < 2; read++) {
        Pair pair;
        VIP_DESCRIPTOR *d, *done;
        forget();
        pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
        OK(VipErrorCallback(pair.there.nic, NULL, on_error));
        d = blank(&pair.here, 0);
        d->CS.Control = read ? VIP_CONTROL_OP_RDMAREAD : VIP_CONTROL_OP_RDMAWRITE;
        with_remote(d, &pair.there, 0);
        d->DS[0].Remote.Handle ^= 0x40000000;
        with_data(d, &pair.here, 0, 8);
        post_send(&pair.here, pair.near_vi, d);
        hear_error(read ? VIP_ERROR_RDMAR_PROT : VIP_ERROR_RDMAW_PROT);
        hear_error(VIP_ERROR_CONN_LOST);
        (void)VipSendWait(pair.near_vi, LONG, &done);
        CHECK(done == d);
        pair_close(&pair);
    }
}

static void the_error_handler_reports_a_full_completion_queue(void) {
    Side side;
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN receives;
    forget();
    side_open(&side);
    OK(VipErrorCallback(side.nic, NULL, on_error));
    OK(VipCreateCQ(side.nic, 1, &cq));
    vi = vi_of(&side, VIP_SERVICE_RELIABLE_DELIVERY, NULL, cq);
    post_recv(&side, vi, plain(&side, 0, 0, 8));
    post_recv(&side, vi, plain(&side, 1, 0, 8));
    OK(VipDisconnect(vi)); /* flushes both: two completions, room for one */
    hear_error(VIP_ERROR_VI_OVERRUN);
    EQUAL(heard.last_error.ResourceCode, VIP_RESOURCE_CQ);
    CHECK(heard.last_error.CQHandle == cq && heard.last_error.ViHandle == NULL);
    OK(VipCQWait(cq, LONG, &vi, &receives));
    EQUAL(VipCQDone(cq, &vi, &receives), VIP_NOT_DONE);
    side_close(&side);
}

static void the_error_handler_reports_deregistered_descriptor_memory(void) {
    Side side;
    VIP_VI_HANDLE vi;
    VIP_MEM_HANDLE memory;
    VIP_DESCRIPTOR *d, *done;
    forget();
    side_open(&side);
    OK(VipErrorCallback(side.nic, NULL, on_error));
    vi = vi_of(&side, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    d = blank(&side, 0);
    OK(VipRegisterMem(side.nic, d, 64, NULL, &memory));
    OK(VipPostRecv(vi, d, memory));
    OK(VipDeregisterMem(side.nic, d, memory));
    OK(VipDisconnect(vi));
    EQUAL(VipRecvDone(vi, &done), VIP_DESCRIPTOR_ERROR);
    CHECK(done == d);
    EQUAL(d->CS.Status, 0);
    hear_error(VIP_ERROR_COMP_PROT);
    EQUAL(heard.last_error.ResourceCode, VIP_RESOURCE_DESCRIPTOR);
    CHECK(heard.last_error.DescriptorPtr == d);
    EQUAL(heard.last_error.OpCode, VIP_STATUS_OP_RECEIVE);
    side_close(&side);
}

static void closing_a_nic_drops_pending_callbacks(void) {
    Pair pair;
    forget();
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    OK(VipRecvNotify(pair.far_vi, NULL, on_work));
    OK(VipErrorCallback(pair.there.nic, NULL, on_error));
    pair_close(&pair);
    EQUAL(heard.calls, 0);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(a_callback_is_called_once_for_the_next_receive);
    RUN(a_callback_is_called_at_once_for_a_completed_receive);
    RUN(a_callback_may_post_and_request_another_callback);
    RUN(sends_have_callbacks_too);
    RUN(completion_queue_callbacks_get_vi_and_queue);
    RUN(the_error_handler_reports_a_lost_connection);
    RUN(the_error_handler_reports_an_empty_receive_queue);
    RUN(the_error_handler_reports_refused_rdma_at_the_target);
    RUN(the_error_handler_reports_a_full_completion_queue);
    RUN(the_error_handler_reports_deregistered_descriptor_memory);
    RUN(closing_a_nic_drops_pending_callbacks);
    return test_end();
}
