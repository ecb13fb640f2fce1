/* RDMA Write and Read, within the access that both sides allow. */
#include "test.h"

static VIP_DESCRIPTOR *remote(Side *side, int n, VIP_UINT16 control, Side *other, size_t there, size_t here,
                              VIP_UINT32 length) {
    VIP_DESCRIPTOR *d = blank(side, n);
    d->CS.Control = control;
    with_remote(d, other, there);
    with_data(d, side, here, length);
    return d;
}

static void an_rdma_write_uses_no_receive(void) {
    const VIP_UINT32 lengths[] = {1, 100, 1500, 65536};
    int i;
    unsigned k;
    EACH_LEVEL(i) {
        Pair pair;
        VIP_DESCRIPTOR *w, *r, *s;
        pair_open(&pair, LEVELS[i]);
        for (k = 0; k < 4; k++) {
            post_recv(&pair.there, pair.far_vi, r = plain(&pair.there, 0, 0, 8));
            paint(pair.here.data, 65536, k);
            memset(pair.there.data, 0, 100000);
            w = remote(&pair.here, 0, VIP_CONTROL_OP_RDMAWRITE, &pair.there, 1000, 0, lengths[k]);
            post_send(&pair.here, pair.near_vi, w);
            sent(pair.near_vi, w, 0);
            EQUAL(w->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_WRITE);
            EQUAL(w->CS.Length, lengths[k]);
            /* A send after the write confirms that the write has arrived, and uses the receive. */
            post_send(&pair.here, pair.near_vi, s = plain(&pair.here, 1, 0, 8));
            sent(pair.near_vi, s, 0);
            received(pair.far_vi, r, 0);
            EQUAL(r->CS.Status & VIP_STATUS_OP_MASK, VIP_STATUS_OP_RECEIVE);
            CHECK(painted(pair.there.data + 1000, lengths[k], k));
            CHECK(pair.there.data[999] == 0 && pair.there.data[1000 + lengths[k]] == 0);
        }
        pair_close(&pair);
    }
}

static void an_rdma_write_with_immediate_uses_a_receive_but_not_its_memory(void) {
    int i;
    EACH_LEVEL(i) {
        Pair pair;
        VIP_DESCRIPTOR *w, *r;
        pair_open(&pair, LEVELS[i]);
        memset(pair.there.data, 0, 100);
        paint(pair.here.data, 3000, 5);
        post_recv(&pair.there, pair.far_vi, r = plain(&pair.there, 0, 0, 64));
        w = remote(&pair.here, 0, VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_IMMEDIATE, &pair.there, 5000, 0, 3000);
        w->CS.ImmediateData = 0x01020304;
        post_send(&pair.here, pair.near_vi, w);
        sent(pair.near_vi, w, 0);
        received(pair.far_vi, r, 0);
        EQUAL(r->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_REMOTE_RDMA_WRITE | VIP_STATUS_IMMEDIATE);
        EQUAL(r->CS.ImmediateData, 0x01020304);
        CHECK(painted(pair.there.data + 5000, 3000, 5));
        CHECK(pair.there.data[0] == 0 && pair.there.data[63] == 0);
        pair_close(&pair);
    }
}

static void an_rdma_write_gathers(void) {
    Pair pair;
    VIP_DESCRIPTOR *w;
    pair_open(&pair, VIP_SERVICE_RELIABLE_RECEPTION);
    paint(pair.here.data, 6000, 3);
    w = blank(&pair.here, 0);
    w->CS.Control = VIP_CONTROL_OP_RDMAWRITE;
    with_remote(w, &pair.there, 100);
    with_data(w, &pair.here, 0, 10);
    with_data(w, &pair.here, 10, 3990);
    with_data(w, &pair.here, 4000, 2000);
    post_send(&pair.here, pair.near_vi, w);
    sent(pair.near_vi, w, 0); /* reliable reception: it has arrived when the write completes */
    CHECK(painted(pair.there.data + 100, 6000, 3));
    pair_close(&pair);
}

static void an_rdma_read_scatters(void) {
    int i;
    EACH_LEVEL(i) {
        Pair pair;
        VIP_DESCRIPTOR *g;
        pair_open(&pair, LEVELS[i]);
        if (pair.here.limits.RDMAReadSupport & LEVELS[i]) {
            paint(pair.there.data + 777, 50000, 8);
            g = blank(&pair.here, 0);
            g->CS.Control = VIP_CONTROL_OP_RDMAREAD;
            with_remote(g, &pair.there, 777);
            with_data(g, &pair.here, 0, 20000);
            with_data(g, &pair.here, 20000, 30000);
            post_send(&pair.here, pair.near_vi, g);
            sent(pair.near_vi, g, 0);
            EQUAL(g->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_READ);
            EQUAL(g->CS.Length, 50000);
            CHECK(painted(pair.here.data, 50000, 8));
        } else {
            /* The reliability level does not support reads, so the descriptor is invalid. */
            g = remote(&pair.here, 0, VIP_CONTROL_OP_RDMAREAD, &pair.there, 0, 0, 16);
            post_send(&pair.here, pair.near_vi, g);
            sent(pair.near_vi, g, VIP_STATUS_FORMAT_ERROR);
        }
        pair_close(&pair);
    }
}

/* A fenced send starts when earlier reads have completed, so it sends the data that they fetched. */
static void a_fence_delays_a_send_until_reads_complete(void) {
    Pair pair;
    VIP_DESCRIPTOR *g, *s, *r;
    int k;
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    CHECK(pair.here.limits.RDMAReadSupport & VIP_SERVICE_RELIABLE_DELIVERY);
    for (k = 0; k < 50; k++) {
        paint(pair.there.data, 40000, (unsigned)k);
        memset(pair.here.data, 0, 40000);
        post_recv(&pair.there, pair.far_vi, r = plain(&pair.there, 0, 50000, 40000));
        g = remote(&pair.here, 0, VIP_CONTROL_OP_RDMAREAD, &pair.there, 0, 0, 40000);
        s = plain(&pair.here, 1, 0, 40000);
        s->CS.Control = VIP_CONTROL_QFENCE;
        post_send(&pair.here, pair.near_vi, g);
        post_send(&pair.here, pair.near_vi, s);
        sent(pair.near_vi, g, 0);
        sent(pair.near_vi, s, 0);
        received(pair.far_vi, r, 0);
        CHECK(painted(pair.there.data + 50000, 40000, (unsigned)k));
    }
    pair_close(&pair);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(an_rdma_write_uses_no_receive);
    RUN(an_rdma_write_with_immediate_uses_a_receive_but_not_its_memory);
    RUN(an_rdma_write_gathers);
    RUN(an_rdma_read_scatters);
    RUN(a_fence_delays_a_send_until_reads_complete);
    return test_end();
}
