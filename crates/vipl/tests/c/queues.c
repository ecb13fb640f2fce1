/* Completion queues, which collect the completions of many VIs. */
#include "test.h"

#define BAD(call) EQUAL(call, VIP_INVALID_PARAMETER)

static void the_next_is(VIP_CQ_HANDLE cq, VIP_VI_HANDLE vi, VIP_BOOLEAN receives) {
    VIP_VI_HANDLE reported = NULL;
    VIP_BOOLEAN queue = 77;
    OK(VipCQWait(cq, LONG, &reported, &queue));
    CHECK(reported == vi);
    EQUAL(queue, receives);
}

static void completion_queues_are_created_resized_and_destroyed(void) {
    Side side;
    VIP_CQ_HANDLE cq, many[4096];
    VIP_VI_HANDLE vi;
    VIP_ULONG made = 0, i;
    VIP_BOOLEAN receives;
    VIP_RETURN answer = VIP_SUCCESS;
    side_open(&side);
    BAD(VipCreateCQ(side.nic, 0, &cq));
    EQUAL(VipCreateCQ(side.nic, side.limits.MaxCQEntries + 1, &cq), VIP_ERROR_RESOURCE);
    OK(VipCreateCQ(side.nic, 1, &cq));
    OK(VipResizeCQ(cq, 100));
    BAD(VipResizeCQ(cq, 0));
    EQUAL(VipResizeCQ(cq, side.limits.MaxCQEntries + 1), VIP_ERROR_RESOURCE);
    EQUAL(VipCQDone(cq, &vi, &receives), VIP_NOT_DONE);
    EQUAL(VipCQWait(cq, SHORT, &vi, &receives), VIP_TIMEOUT);
    CHECK(vi == NULL);
    vi = vi_of(&side, VIP_SERVICE_UNRELIABLE, NULL, cq);
    EQUAL(VipDestroyCQ(cq), VIP_ERROR_RESOURCE); /* the VI still uses it */
    OK(VipDestroyVi(vi));
    OK(VipDestroyCQ(cq));
    BAD(VipDestroyCQ(cq));
    CHECK(side.limits.MaxCQ <= 4096);
    while (made < 4096 && (answer = VipCreateCQ(side.nic, 1, &many[made])) == VIP_SUCCESS)
        made++;
    EQUAL(answer, VIP_ERROR_RESOURCE);
    EQUAL(made, side.limits.MaxCQ);
    for (i = 0; i < made; i++)
        OK(VipDestroyCQ(many[i]));
    side_close(&side);
}

static void entries_name_vi_and_queue_in_completion_order(void) {
    int i, k;
    EACH_LEVEL(i) {
        Side here, there;
        VIP_CQ_HANDLE cq;
        VIP_VI_HANDLE a[3], b[3];
        VIP_DESCRIPTOR *s, *r, *d;
        side_open(&here);
        side_open(&there);
        OK(VipCreateCQ(there.nic, 64, &cq));
        for (k = 0; k < 3; k++) {
            a[k] = vi_of(&here, LEVELS[i], NULL, NULL);
            b[k] = vi_of(&there, LEVELS[i], cq, cq);
            join(&here, a[k], &there, b[k]);
            post_recv(&there, b[k], plain(&there, k, (size_t)k * 100, 100));
        }
        for (k = 2; k >= 0; k--) {
            post_send(&here, a[k], s = plain(&here, k, 0, (VIP_UINT32)k + 1));
            sent(a[k], s, 0);
            the_next_is(cq, b[k], VIP_TRUE);
            OK(VipRecvDone(b[k], &d));
            EQUAL(d->CS.Length, k + 1);
        }
        post_recv(&here, a[1], r = plain(&here, 10, 0, 100));
        post_send(&there, b[1], s = plain(&there, 10, 0, 50));
        the_next_is(cq, b[1], VIP_FALSE);
        OK(VipSendDone(b[1], &d));
        CHECK(d == s);
        received(a[1], r, 0);
        /* Flushed descriptors have entries too. */
        post_recv(&there, b[2], r = plain(&there, 11, 0, 100));
        OK(VipDisconnect(b[2]));
        the_next_is(cq, b[2], VIP_TRUE);
        EQUAL(VipRecvDone(b[2], &d), VIP_DESCRIPTOR_ERROR);
        CHECK(d == r);
        side_close(&here);
        side_close(&there);
    }
}

static void a_queue_with_a_completion_queue_cannot_be_waited_for(void) {
    Side side;
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE sends, receives;
    VIP_DESCRIPTOR *d;
    side_open(&side);
    OK(VipCreateCQ(side.nic, 8, &cq));
    sends = vi_of(&side, VIP_SERVICE_UNRELIABLE, cq, NULL);
    receives = vi_of(&side, VIP_SERVICE_UNRELIABLE, NULL, cq);
    BAD(VipSendWait(sends, 0, &d));
    BAD(VipRecvWait(receives, 0, &d));
    EQUAL(VipRecvWait(sends, 0, &d), VIP_TIMEOUT);
    EQUAL(VipSendWait(receives, 0, &d), VIP_TIMEOUT);
    EQUAL(VipSendDone(sends, &d), VIP_NOT_DONE);
    EQUAL(VipRecvDone(receives, &d), VIP_NOT_DONE);
    side_close(&side);
}

/* A hundred completions from two VIs are queued; each is reported once. */
static void entries_stay_until_they_are_collected(void) {
    Side here, there;
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE a[2], b[2];
    VIP_DESCRIPTOR *s, *d;
    int k, reported[2] = {0, 0};
    side_open(&here);
    side_open(&there);
    OK(VipCreateCQ(there.nic, 64, &cq));
    for (k = 0; k < 2; k++) {
        a[k] = vi_of(&here, VIP_SERVICE_RELIABLE_RECEPTION, NULL, NULL);
        b[k] = vi_of(&there, VIP_SERVICE_RELIABLE_RECEPTION, NULL, cq);
        join(&here, a[k], &there, b[k]);
    }
    for (k = 0; k < 32; k++)
        post_recv(&there, b[k & 1], plain(&there, k, (size_t)k * 100, 100));
    for (k = 0; k < 32; k++) {
        post_send(&here, a[k & 1], s = plain(&here, k, 0, (VIP_UINT32)k));
        (void)s;
    }
    for (k = 0; k < 32; k++) {
        VIP_VI_HANDLE vi = NULL;
        VIP_BOOLEAN receives = VIP_FALSE;
        int which;
        OK(VipCQWait(cq, LONG, &vi, &receives));
        CHECK(receives && (vi == b[0] || vi == b[1]));
        which = vi == b[1];
        OK(VipRecvDone(vi, &d));
        EQUAL(d->CS.Length, reported[which] * 2 + which);
        reported[which]++;
    }
    EQUAL(reported[0], 16);
    EQUAL(reported[1], 16);
    side_close(&here);
    side_close(&there);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(completion_queues_are_created_resized_and_destroyed);
    RUN(entries_name_vi_and_queue_in_completion_order);
    RUN(a_queue_with_a_completion_queue_cannot_be_waited_for);
    RUN(entries_stay_until_they_are_collected);
    return test_end();
}
