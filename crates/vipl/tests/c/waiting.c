/* Waiting policies of queues and of single calls, and their statistics. Times are not checked. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "test.h"

#include "vipl_kiban.h"

typedef struct {
    Pair *pair;
    int count;
} Echo;

/* The peer echoes every message. */
static void *echo(void *context) {
    Echo *e = (Echo *)context;
    int k;
    for (k = 0; k < e->count; k++) {
        VIP_DESCRIPTOR *r, *s, *done;
        if (VipRecvWait(e->pair->far_vi, LONG, &r) != VIP_SUCCESS)
            return NULL;
        s = plain(&e->pair->there, 8, 4096, r->CS.Length);
        memcpy(e->pair->there.data + 4096, e->pair->there.data, r->CS.Length);
        r->CS.Status = 0;
        post_recv(&e->pair->there, e->pair->far_vi, r);
        post_send(&e->pair->there, e->pair->far_vi, s);
        OK(VipSendWait(e->pair->far_vi, LONG, &done));
    }
    return context;
}

typedef VIP_RETURN (*Wait)(VIP_VI_HANDLE vi, VIP_DESCRIPTOR **descriptor);

static VIP_RETURN as_set(VIP_VI_HANDLE vi, VIP_DESCRIPTOR **d) {
    return VipRecvWait(vi, LONG, d);
}
static VIP_RETURN hybrid(VIP_VI_HANDLE vi, VIP_DESCRIPTOR **d) {
    return VipRecvWaitHybrid(vi, 100, LONG, d);
}
static VIP_RETURN adaptive(VIP_VI_HANDLE vi, VIP_DESCRIPTOR **d) {
    return VipRecvWaitAdaptive(vi, LONG, d);
}

/* Makes twenty round trips with a given policy. */
static void round_trips(Pair *pair, Wait wait) {
    pthread_t thread;
    Echo e;
    void *whole;
    int k;
    VIP_DESCRIPTOR *r, *s, *done;
    e.pair = pair;
    e.count = 20;
    post_recv(&pair->there, pair->far_vi, plain(&pair->there, 0, 0, 64));
    post_recv(&pair->there, pair->far_vi, plain(&pair->there, 1, 0, 64));
    CHECK(pthread_create(&thread, NULL, echo, &e) == 0);
    for (k = 0; k < e.count; k++) {
        post_recv(&pair->here, pair->near_vi, r = plain(&pair->here, 0, 0, 64));
        paint(pair->here.data + 1000, 64, (unsigned)k);
        post_send(&pair->here, pair->near_vi, s = plain(&pair->here, 1, 1000, 64));
        OK(wait(pair->near_vi, &done));
        CHECK(done == r);
        CHECK(painted(pair->here.data, 64, (unsigned)k));
        sent(pair->near_vi, s, 0);
    }
    CHECK(pthread_join(thread, &whole) == 0 && whole == &e);
    OK(VipDisconnect(pair->far_vi));
    while (VipRecvDone(pair->far_vi, &done) == VIP_DESCRIPTOR_ERROR) {
    }
    becomes(pair->near_vi, VIP_STATE_ERROR);
    OK(VipDisconnect(pair->near_vi));
    join(&pair->here, pair->near_vi, &pair->there, pair->far_vi);
}

static void messages_arrive_with_every_policy(void) {
    const VIP_WAIT_POLICY policies[] = {VIP_WAIT_ADAPTIVE, VIP_WAIT_POLL, VIP_WAIT_INTERRUPT, VIP_WAIT_HYBRID};
    Pair pair;
    int k;
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    for (k = 0; k < 4; k++) {
        VIP_WAIT_REPORT report;
        OK(VipSetViWait(pair.near_vi, policies[k], 50));
        round_trips(&pair, as_set);
        memset(&report, 0xee, sizeof report);
        OK(VipQueryViWait(pair.near_vi, VIP_TRUE, &report));
        EQUAL(report.Policy, policies[k]);
        EQUAL(report.Reserved, 0);
        CHECK(report.SpinHits <= report.Waits);
        if (policies[k] == VIP_WAIT_HYBRID)
            EQUAL(report.SpinNs, 50000);
        if (policies[k] == VIP_WAIT_INTERRUPT)
            EQUAL(report.SpinNs, 0);
        if (policies[k] == VIP_WAIT_POLL)
            CHECK(report.SpinNs == ~(VIP_UINT64)0);
    }
    pair_close(&pair);
}

static void the_policy_of_one_call_does_not_change_that_of_the_queue(void) {
    Pair pair;
    VIP_WAIT_REPORT report;
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    OK(VipSetViWait(pair.near_vi, VIP_WAIT_INTERRUPT, 0));
    round_trips(&pair, hybrid);
    round_trips(&pair, adaptive);
    OK(VipQueryViWait(pair.near_vi, VIP_TRUE, &report));
    EQUAL(report.Policy, VIP_WAIT_INTERRUPT);
    pair_close(&pair);
}

static void waits_with_every_policy_time_out(void) {
    const VIP_WAIT_POLICY policies[] = {VIP_WAIT_ADAPTIVE, VIP_WAIT_POLL, VIP_WAIT_INTERRUPT, VIP_WAIT_HYBRID};
    Pair pair;
    VIP_DESCRIPTOR *d;
    int k;
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    post_recv(&pair.here, pair.near_vi, plain(&pair.here, 0, 0, 64));
    for (k = 0; k < 4; k++) {
        OK(VipSetViWait(pair.near_vi, policies[k], 1000));
        EQUAL(VipRecvWait(pair.near_vi, SHORT, &d), VIP_TIMEOUT);
        CHECK(d == NULL);
    }
    EQUAL(VipRecvWaitHybrid(pair.near_vi, 100, SHORT, &d), VIP_TIMEOUT);
    EQUAL(VipRecvWaitHybrid(pair.near_vi, 1000000, SHORT, &d), VIP_TIMEOUT); /* the timeout is shorter */
    EQUAL(VipRecvWaitAdaptive(pair.near_vi, SHORT, &d), VIP_TIMEOUT);
    pair_close(&pair);
}

/* Completions that are available at once do not count as waits, so make round trips until one counts. */
static void the_report_counts_waits(void) {
    Pair pair;
    VIP_WAIT_REPORT before, after;
    time_t end = time(NULL) + (time_t)(LONG / 1000);
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    OK(VipSetViWait(pair.near_vi, VIP_WAIT_INTERRUPT, 0));
    OK(VipQueryViWait(pair.near_vi, VIP_TRUE, &before));
    EQUAL(before.Waits, 0);
    CHECK(before.BlockCostNs > 0);
    do {
        round_trips(&pair, as_set);
        OK(VipQueryViWait(pair.near_vi, VIP_TRUE, &after));
    } while (after.Waits == 0 && time(NULL) <= end);
    CHECK(after.Waits > 0 && after.SpinHits <= after.Waits);
    pair_close(&pair);
}

static void completion_queues_have_policies_too(void) {
    const VIP_WAIT_POLICY policies[] = {VIP_WAIT_ADAPTIVE, VIP_WAIT_POLL, VIP_WAIT_INTERRUPT, VIP_WAIT_HYBRID};
    Side here, there;
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE a, b, vi;
    VIP_BOOLEAN receives;
    VIP_DESCRIPTOR *s, *d;
    VIP_WAIT_REPORT report;
    int k;
    side_open(&here);
    side_open(&there);
    OK(VipCreateCQ(there.nic, 8, &cq));
    a = vi_of(&here, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    b = vi_of(&there, VIP_SERVICE_RELIABLE_DELIVERY, NULL, cq);
    join(&here, a, &there, b);
    for (k = 0; k < 4; k++) {
        OK(VipSetCQWait(cq, policies[k], 20));
        EQUAL(VipCQWait(cq, SHORT, &vi, &receives), VIP_TIMEOUT);
        post_recv(&there, b, plain(&there, 0, 0, 64));
        post_send(&here, a, s = plain(&here, 0, 0, 64));
        sent(a, s, 0);
        OK(VipCQWait(cq, LONG, &vi, &receives));
        CHECK(vi == b && receives);
        OK(VipRecvDone(b, &d));
        OK(VipQueryCQWait(cq, &report));
        EQUAL(report.Policy, policies[k]);
    }
    side_close(&here);
    side_close(&there);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(messages_arrive_with_every_policy);
    RUN(the_policy_of_one_call_does_not_change_that_of_the_queue);
    RUN(waits_with_every_policy_time_out);
    RUN(the_report_counts_waits);
    RUN(completion_queues_have_policies_too);
    return test_end();
}
