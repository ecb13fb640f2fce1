/* Sends and receives: whole, in order, in segments, with immediate data, at every reliability level. */
#include "test.h"

static void a_message_of_every_length_arrives_whole(void) {
    const VIP_UINT32 lengths[] = {0,    1,    3,    8,    63,   64,    65,    1000, 1472,
                                  1500, 4095, 4096, 4097, 9000, 32768, 65535, 65536};
    unsigned k;
    int i;
    EACH_LEVEL(i) {
        Pair pair;
        pair_open(&pair, LEVELS[i]);
        for (k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
            VIP_UINT32 length = lengths[k];
            VIP_DESCRIPTOR *r = plain(&pair.there, 0, 64, 65536), *s;
            memset(pair.there.data, 0, 64 + 65536 + 64);
            paint(pair.here.data, 65536, k);
            s = length ? plain(&pair.here, 0, 0, length) : blank(&pair.here, 0);
            post_recv(&pair.there, pair.far_vi, r);
            post_send(&pair.here, pair.near_vi, s);
            sent(pair.near_vi, s, 0);
            received(pair.far_vi, r, 0);
            EQUAL(s->CS.Length, length);
            EQUAL(s->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_SEND);
            EQUAL(r->CS.Length, length);
            EQUAL(r->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE);
            CHECK(painted(pair.there.data + 64, length, k));
            CHECK(pair.there.data[63] == 0 && pair.there.data[64 + length] == 0); /* and nothing around it */
        }
        pair_close(&pair);
    }
}

static void messages_and_completions_keep_the_posting_order(void) {
    int i, k;
    EACH_LEVEL(i) {
        Pair pair;
        VIP_DESCRIPTOR *s[32], *r[32];
        pair_open(&pair, LEVELS[i]);
        for (k = 0; k < 32; k++)
            post_recv(&pair.there, pair.far_vi, r[k] = plain(&pair.there, k, (size_t)k * 4096, 4096));
        for (k = 0; k < 32; k++) {
            paint(pair.here.data + k * 4096, 4096, (unsigned)k);
            s[k] = plain(&pair.here, k, (size_t)k * 4096, (VIP_UINT32)(k * 128 + 1));
            post_send(&pair.here, pair.near_vi, s[k]);
        }
        for (k = 0; k < 32; k++)
            sent(pair.near_vi, s[k], 0);
        for (k = 0; k < 32; k++) {
            received(pair.far_vi, r[k], 0);
            EQUAL(r[k]->CS.Length, k * 128 + 1);
            CHECK(painted(pair.there.data + k * 4096, (size_t)k * 128 + 1, (unsigned)k));
        }
        pair_close(&pair);
    }
}

static void messages_are_gathered_and_scattered(void) {
    int i;
    EACH_LEVEL(i) {
        Pair pair;
        VIP_DESCRIPTOR *s, *r;
        pair_open(&pair, LEVELS[i]);
        paint(pair.here.data, 10000, 9);
        s = blank(&pair.here, 0);
        with_data(s, &pair.here, 0, 1);
        with_data(s, &pair.here, 1, 2999);
        with_data(s, &pair.here, 3000, 0); /* an empty segment is allowed */
        with_data(s, &pair.here, 3000, 7000);
        r = blank(&pair.there, 0);
        with_data(r, &pair.there, 20000, 4000);
        with_data(r, &pair.there, 30000, 5000);
        with_data(r, &pair.there, 40000, 5000);
        post_recv(&pair.there, pair.far_vi, r);
        post_send(&pair.here, pair.near_vi, s);
        sent(pair.near_vi, s, 0);
        received(pair.far_vi, r, 0);
        EQUAL(r->CS.Length, 10000);
        memcpy(pair.there.data, pair.there.data + 20000, 4000);
        memcpy(pair.there.data + 4000, pair.there.data + 30000, 5000);
        memcpy(pair.there.data + 9000, pair.there.data + 40000, 1000);
        CHECK(painted(pair.there.data, 10000, 9));
        pair_close(&pair);
    }
}

static void immediate_data_arrives_with_the_message(void) {
    int i;
    EACH_LEVEL(i) {
        Pair pair;
        VIP_DESCRIPTOR *s, *r;
        pair_open(&pair, LEVELS[i]);
        /* With data. */
        r = plain(&pair.there, 0, 0, 100);
        s = plain(&pair.here, 0, 0, 100);
        s->CS.Control = VIP_CONTROL_OP_SENDRECV | VIP_CONTROL_IMMEDIATE;
        s->CS.ImmediateData = 0xfeedface;
        post_recv(&pair.there, pair.far_vi, r);
        post_send(&pair.here, pair.near_vi, s);
        sent(pair.near_vi, s, 0);
        received(pair.far_vi, r, 0);
        EQUAL(r->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE | VIP_STATUS_IMMEDIATE);
        EQUAL(r->CS.ImmediateData, 0xfeedface);
        EQUAL(r->CS.Length, 100);
        /* A message without data has no segments on either side. */
        r = blank(&pair.there, 0);
        s = blank(&pair.here, 0);
        s->CS.Control = VIP_CONTROL_OP_SENDRECV | VIP_CONTROL_IMMEDIATE;
        s->CS.ImmediateData = 1;
        post_recv(&pair.there, pair.far_vi, r);
        post_send(&pair.here, pair.near_vi, s);
        sent(pair.near_vi, s, 0);
        received(pair.far_vi, r, 0);
        EQUAL(r->CS.ImmediateData, 1);
        EQUAL(r->CS.Length, 0);
        /* Without immediate data, the receive's Status shows that there is none, and the field is undefined. */
        r = plain(&pair.there, 0, 0, 100);
        s = plain(&pair.here, 0, 0, 100);
        s->CS.ImmediateData = 5;
        post_recv(&pair.there, pair.far_vi, r);
        post_send(&pair.here, pair.near_vi, s);
        sent(pair.near_vi, s, 0);
        received(pair.far_vi, r, 0);
        EQUAL(r->CS.Status & VIP_STATUS_IMMEDIATE, 0);
        pair_close(&pair);
    }
}

static void both_directions_work_at_once(void) {
    int i, k;
    EACH_LEVEL(i) {
        Pair pair;
        pair_open(&pair, LEVELS[i]);
        for (k = 0; k < 200; k++) {
            VIP_DESCRIPTOR *rh = plain(&pair.here, 0, 0, 512), *rt = plain(&pair.there, 0, 0, 512);
            VIP_DESCRIPTOR *sh = plain(&pair.here, 1, 1024, 512), *st = plain(&pair.there, 1, 1024, 512);
            paint(pair.here.data + 1024, 512, (unsigned)k);
            paint(pair.there.data + 1024, 512, (unsigned)k + 1000);
            post_recv(&pair.here, pair.near_vi, rh);
            post_recv(&pair.there, pair.far_vi, rt);
            post_send(&pair.here, pair.near_vi, sh);
            post_send(&pair.there, pair.far_vi, st);
            received(pair.far_vi, rt, 0);
            received(pair.near_vi, rh, 0);
            sent(pair.near_vi, sh, 0);
            sent(pair.far_vi, st, 0);
            CHECK(painted(pair.there.data, 512, (unsigned)k) && painted(pair.here.data, 512, (unsigned)k + 1000));
        }
        pair_close(&pair);
    }
}

static void without_completions_done_returns_at_once_and_wait_times_out(void) {
    Pair pair;
    VIP_DESCRIPTOR *d;
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    d = plain(&pair.here, 0, 0, 8);
    EQUAL(VipSendDone(pair.near_vi, &d), VIP_NOT_DONE);
    CHECK(d == NULL);
    d = plain(&pair.here, 0, 0, 8);
    EQUAL(VipRecvDone(pair.near_vi, &d), VIP_NOT_DONE);
    CHECK(d == NULL);
    EQUAL(VipRecvWait(pair.near_vi, 0, &d), VIP_TIMEOUT);
    post_recv(&pair.here, pair.near_vi, plain(&pair.here, 0, 0, 8));
    d = plain(&pair.here, 1, 0, 8);
    EQUAL(VipRecvDone(pair.near_vi, &d), VIP_NOT_DONE);
    CHECK(d == NULL);
    d = plain(&pair.here, 1, 0, 8);
    EQUAL(VipRecvWait(pair.near_vi, SHORT, &d), VIP_TIMEOUT);
    CHECK(d == NULL);
    EQUAL(VipSendWait(pair.near_vi, SHORT, &d), VIP_TIMEOUT);
    pair_close(&pair);
}

static void a_collected_descriptor_can_be_reused_a_thousand_times(void) {
    Pair pair;
    int k;
    VIP_DESCRIPTOR *s, *r;
    pair_open(&pair, VIP_SERVICE_RELIABLE_RECEPTION);
    r = plain(&pair.there, 0, 0, 64);
    s = plain(&pair.here, 0, 0, 64);
    for (k = 0; k < 1000; k++) {
        post_recv(&pair.there, pair.far_vi, r); /* Status and Length are not cleared: only the segments matter */
        s->CS.Status = 0;
        s->CS.Control = VIP_CONTROL_IMMEDIATE;
        s->CS.ImmediateData = (VIP_UINT32)k;
        s->CS.Length = s->DS[0].Local.Length = (VIP_UINT32)(k % 65);
        post_send(&pair.here, pair.near_vi, s);
        received(pair.far_vi, r, 0);
        sent(pair.near_vi, s, 0);
        EQUAL(r->CS.ImmediateData, k);
        EQUAL(r->CS.Length, k % 65);
    }
    pair_close(&pair);
}

static void a_queue_holds_max_descriptors_per_queue(void) {
    Side side;
    VIP_VI_HANDLE vi;
    VIP_ULONG posted = 0, i;
    VIP_RETURN answer = VIP_SUCCESS;
    char *block;
    VIP_MEM_HANDLE memory;
    VIP_MEM_ATTRIBUTES attributes;
    VIP_DESCRIPTOR *d;
    side_open(&side);
    vi = vi_of(&side, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    block = aligned_block((side.limits.MaxDescriptorsPerQueue + 1) * 64);
    attributes.Ptag = side.tag;
    attributes.EnableRdmaRead = attributes.EnableRdmaWrite = VIP_FALSE;
    OK(VipRegisterMem(side.nic, block, (side.limits.MaxDescriptorsPerQueue + 1) * 64, &attributes, &memory));
    while (posted <= side.limits.MaxDescriptorsPerQueue &&
           (answer = VipPostRecv(vi, (VIP_DESCRIPTOR *)(void *)(block + posted * 64), memory)) == VIP_SUCCESS)
        posted++;
    EQUAL(answer, VIP_ERROR_RESOURCE);
    EQUAL(posted, side.limits.MaxDescriptorsPerQueue);
    OK(VipDisconnect(vi));
    for (i = 0; i < posted; i++) {
        EQUAL(VipRecvDone(vi, &d), VIP_DESCRIPTOR_ERROR);
        CHECK((char *)d == block + i * 64);
    }
    EQUAL(VipRecvDone(vi, &d), VIP_NOT_DONE);
    OK(VipPostRecv(vi, (VIP_DESCRIPTOR *)(void *)block, memory));
    side_close(&side);
    free_block(block);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(a_message_of_every_length_arrives_whole);
    RUN(messages_and_completions_keep_the_posting_order);
    RUN(messages_are_gathered_and_scattered);
    RUN(immediate_data_arrives_with_the_message);
    RUN(both_directions_work_at_once);
    RUN(without_completions_done_returns_at_once_and_wait_times_out);
    RUN(a_collected_descriptor_can_be_reused_a_thousand_times);
    RUN(a_queue_holds_max_descriptors_per_queue);
    return test_end();
}
