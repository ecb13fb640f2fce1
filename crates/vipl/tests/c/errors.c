/* Every status bit: what sets it, how it affects the connection at each reliability level, and what the peer sees. */
#include "test.h"

#define RELIABLE(level) ((level) != VIP_SERVICE_UNRELIABLE)

/* An invalid send completes with an error at every level. An unreliable VI continues; a reliable connection is lost. */
static void faulty_send(VIP_RELIABILITY_LEVEL level, void (*spoil)(Pair *, VIP_DESCRIPTOR *), VIP_UINT32 error) {
    Pair pair;
    VIP_DESCRIPTOR *good, *bad, *after, *r1, *r2;
    pair_open(&pair, level);
    post_recv(&pair.there, pair.far_vi, r1 = plain(&pair.there, 0, 0, 64));
    post_recv(&pair.there, pair.far_vi, r2 = plain(&pair.there, 1, 64, 64));
    post_send(&pair.here, pair.near_vi, good = plain(&pair.here, 0, 0, 16));
    sent(pair.near_vi, good, 0);
    received(pair.far_vi, r1, 0);
    bad = plain(&pair.here, 1, 0, 16);
    spoil(&pair, bad);
    post_send(&pair.here, pair.near_vi, bad);
    sent(pair.near_vi, bad, error);
    EQUAL(bad->CS.Length, 0);
    after = plain(&pair.here, 2, 0, 16);
    if (RELIABLE(level)) {
        EQUAL(state_of(pair.near_vi), VIP_STATE_ERROR);
        becomes(pair.far_vi, VIP_STATE_ERROR);
        received(pair.far_vi, r2, VIP_STATUS_DESC_FLUSHED_ERROR);
        post_send(&pair.here, pair.near_vi, after);
        sent(pair.near_vi, after, VIP_STATUS_DESC_FLUSHED_ERROR);
    } else {
        EQUAL(state_of(pair.near_vi), VIP_STATE_CONNECTED);
        post_send(&pair.here, pair.near_vi, after);
        sent(pair.near_vi, after, 0);
        received(pair.far_vi, r2, 0);
    }
    pair_close(&pair);
}

static void reserved_bits(Pair *pair, VIP_DESCRIPTOR *d) {
    (void)pair;
    d->CS.Control = 0x10;
}
static void no_operation(Pair *pair, VIP_DESCRIPTOR *d) {
    (void)pair;
    d->CS.Control = VIP_CONTROL_OP_RESERVED;
}
static void too_many_segments(Pair *pair, VIP_DESCRIPTOR *d) {
    (void)pair;
    d->CS.SegCount = 0xffff;
}
static void a_write_without_its_place(Pair *pair, VIP_DESCRIPTOR *d) {
    (void)pair;
    d->CS.Control = VIP_CONTROL_OP_RDMAWRITE;
    d->CS.SegCount = 0;
}
static void a_read_with_immediate_data(Pair *pair, VIP_DESCRIPTOR *d) {
    (void)pair;
    d->CS.Control = VIP_CONTROL_OP_RDMAREAD | VIP_CONTROL_IMMEDIATE;
}
static void a_length_that_is_not_the_sum(Pair *pair, VIP_DESCRIPTOR *d) {
    (void)pair;
    d->CS.Length = 15;
}
static void more_than_the_vi_takes(Pair *pair, VIP_DESCRIPTOR *d) {
    d->CS.SegCount = 0;
    d->CS.Length = 0;
    with_data(d, &pair->here, 0, 65536);
    with_data(d, &pair->here, 0, 1);
}
static void an_unknown_handle(Pair *pair, VIP_DESCRIPTOR *d) {
    (void)pair;
    d->DS[0].Local.Handle ^= 0x40000000;
}
static void beyond_the_region(Pair *pair, VIP_DESCRIPTOR *d) {
    d->DS[0].Local.Data.Address = pair->here.data + DATA_BYTES - 15;
}
static void before_the_region(Pair *pair, VIP_DESCRIPTOR *d) {
    d->DS[0].Local.Data.Address = pair->here.block - 1;
}
static void around_the_end_of_the_address_space(Pair *pair, VIP_DESCRIPTOR *d) {
    (void)pair;
    d->DS[0].Local.Data.AddressBits = ~(VIP_UINT64)0 - 7;
}
static void another_tag(Pair *pair, VIP_DESCRIPTOR *d) {
    VIP_MEM_ATTRIBUTES attributes;
    OK(VipCreatePtag(pair->here.nic, &attributes.Ptag));
    attributes.EnableRdmaRead = attributes.EnableRdmaWrite = VIP_TRUE;
    OK(VipRegisterMem(pair->here.nic, pair->here.data, 4096, &attributes, &d->DS[0].Local.Handle));
}
static void memory_given_back(Pair *pair, VIP_DESCRIPTOR *d) {
    OK(VipRegisterMem(pair->here.nic, pair->here.data, 4096, NULL, &d->DS[0].Local.Handle));
    OK(VipDeregisterMem(pair->here.nic, pair->here.data, d->DS[0].Local.Handle));
}

static void an_invalid_send_has_a_format_error(void) {
    int i;
    EACH_LEVEL(i) {
        faulty_send(LEVELS[i], reserved_bits, VIP_STATUS_FORMAT_ERROR);
        faulty_send(LEVELS[i], no_operation, VIP_STATUS_FORMAT_ERROR);
        faulty_send(LEVELS[i], too_many_segments, VIP_STATUS_FORMAT_ERROR);
        faulty_send(LEVELS[i], a_write_without_its_place, VIP_STATUS_FORMAT_ERROR);
        faulty_send(LEVELS[i], a_read_with_immediate_data, VIP_STATUS_FORMAT_ERROR);
    }
}

static void a_send_with_a_wrong_length_has_a_length_error(void) {
    int i;
    EACH_LEVEL(i) {
        faulty_send(LEVELS[i], a_length_that_is_not_the_sum, VIP_STATUS_LENGTH_ERROR);
        faulty_send(LEVELS[i], more_than_the_vi_takes, VIP_STATUS_LENGTH_ERROR);
    }
}

static void a_send_from_memory_with_another_tag_has_a_protection_error(void) {
    int i;
    EACH_LEVEL(i) {
        faulty_send(LEVELS[i], an_unknown_handle, VIP_STATUS_PROTECTION_ERROR);
        faulty_send(LEVELS[i], beyond_the_region, VIP_STATUS_PROTECTION_ERROR);
        faulty_send(LEVELS[i], before_the_region, VIP_STATUS_PROTECTION_ERROR);
        faulty_send(LEVELS[i], around_the_end_of_the_address_space, VIP_STATUS_PROTECTION_ERROR);
        faulty_send(LEVELS[i], another_tag, VIP_STATUS_PROTECTION_ERROR);
        faulty_send(LEVELS[i], memory_given_back, VIP_STATUS_PROTECTION_ERROR);
    }
}

/* A receive that cannot hold its message. `partly`: part of the message had been stored before the error. */
static void faulty_receive(VIP_RELIABILITY_LEVEL level, VIP_DESCRIPTOR *(*make)(Pair *), VIP_UINT32 bytes,
                           VIP_UINT32 error, int partly) {
    Pair pair;
    VIP_DESCRIPTOR *r, *next, *s, *done;
    pair_open(&pair, level);
    r = make(&pair);
    post_recv(&pair.there, pair.far_vi, r);
    post_recv(&pair.there, pair.far_vi, next = plain(&pair.there, 1, 0, 64));
    post_send(&pair.here, pair.near_vi, s = plain(&pair.here, 0, 0, bytes));
    received(pair.far_vi, r, error | (partly ? VIP_STATUS_PARTIAL_ERROR : 0));
    CHECK(partly ? r->CS.Length > 0 && r->CS.Length < bytes : r->CS.Length == 0);
    if (level == VIP_SERVICE_UNRELIABLE) {
        /* The message is lost, but not the connection. */
        sent(pair.near_vi, s, 0);
        post_send(&pair.here, pair.near_vi, s = plain(&pair.here, 0, 0, 8));
        sent(pair.near_vi, s, 0);
        received(pair.far_vi, next, 0);
    } else {
        becomes(pair.far_vi, VIP_STATE_ERROR);
        becomes(pair.near_vi, VIP_STATE_ERROR);
        received(pair.far_vi, next, VIP_STATUS_DESC_FLUSHED_ERROR);
        if (level == VIP_SERVICE_RELIABLE_RECEPTION) {
            sent(pair.near_vi, s, VIP_STATUS_REMOTE_DESC_ERROR); /* the error is reported at the receiver */
        } else {
            (void)VipSendWait(pair.near_vi, LONG, &done); /* it may have completed before */
            CHECK(done == s);
        }
    }
    pair_close(&pair);
}

static VIP_DESCRIPTOR *too_short(Pair *pair) {
    return plain(&pair->there, 0, 0, 100);
}
static VIP_DESCRIPTOR *short_of_the_last_byte(Pair *pair) {
    return plain(&pair->there, 0, 0, 59999);
}
static VIP_DESCRIPTOR *without_segments(Pair *pair) {
    return blank(&pair->there, 0);
}
static VIP_DESCRIPTOR *in_no_memory(Pair *pair) {
    VIP_DESCRIPTOR *r = plain(&pair->there, 0, 0, 65536);
    r->DS[0].Local.Handle ^= 0x40000000;
    return r;
}
static VIP_DESCRIPTOR *half_in_no_memory(Pair *pair) {
    VIP_DESCRIPTOR *r = blank(&pair->there, 0);
    with_data(r, &pair->there, 0, 30000);
    with_data(r, &pair->there, 30000, 30000);
    r->DS[1].Local.Handle ^= 0x40000000;
    return r;
}

static void a_message_longer_than_its_receive_is_a_length_error(void) {
    int i;
    EACH_LEVEL(i) {
        faulty_receive(LEVELS[i], too_short, 101, VIP_STATUS_LENGTH_ERROR, 0);
        faulty_receive(LEVELS[i], without_segments, 1, VIP_STATUS_LENGTH_ERROR, 0);
    }
}

static void a_receive_to_memory_with_another_tag_has_a_protection_error(void) {
    int i;
    EACH_LEVEL(i) {
        faulty_receive(LEVELS[i], in_no_memory, 100, VIP_STATUS_PROTECTION_ERROR, 0);
    }
}

/* Messages with several packets: the error is detected in a later packet. */
static void an_error_after_part_of_a_message_is_partial(void) {
    int i;
    EACH_LEVEL(i) {
        faulty_receive(LEVELS[i], half_in_no_memory, 60000, VIP_STATUS_PROTECTION_ERROR, 1);
        faulty_receive(LEVELS[i], short_of_the_last_byte, 60000, VIP_STATUS_LENGTH_ERROR, 1);
    }
}

static void an_invalid_receive_completes_at_once(void) {
    int i;
    EACH_LEVEL(i) {
        Pair pair;
        VIP_DESCRIPTOR *r;
        pair_open(&pair, LEVELS[i]);
        r = plain(&pair.there, 0, 0, 64);
        r->CS.Control = VIP_CONTROL_OP_RDMAREAD;
        post_recv(&pair.there, pair.far_vi, r);
        received(pair.far_vi, r, VIP_STATUS_FORMAT_ERROR);
        EQUAL(state_of(pair.far_vi), RELIABLE(LEVELS[i]) ? VIP_STATE_ERROR : VIP_STATE_CONNECTED);
        pair_close(&pair);
    }
}

/* RDMA that the peer's VI or memory does not allow, or that targets invalid memory. */
static void forbidden(VIP_RELIABILITY_LEVEL level, int read, int what) {
    Pair pair;
    VIP_DESCRIPTOR *d, *r;
    VIP_VI_ATTRIBUTES vi;
    VIP_MEM_ATTRIBUTES memory;
    side_open(&pair.here);
    side_open(&pair.there);
    pair.near_vi = vi_of(&pair.here, level, NULL, NULL);
    vi = attributes_for(&pair.there, level);
    if (what == 0) {
        vi.EnableRdmaWrite = read ? vi.EnableRdmaWrite : VIP_FALSE;
        vi.EnableRdmaRead = read ? VIP_FALSE : vi.EnableRdmaRead;
    }
    OK(VipCreateVi(pair.there.nic, &vi, NULL, NULL, &pair.far_vi));
    join(&pair.here, pair.near_vi, &pair.there, pair.far_vi);
    memset(pair.there.data, 7, 4096);
    memset(pair.here.data, 8, 4096);
    d = blank(&pair.here, 0);
    d->CS.Control = read ? VIP_CONTROL_OP_RDMAREAD : VIP_CONTROL_OP_RDMAWRITE;
    with_remote(d, &pair.there, 0);
    with_data(d, &pair.here, 0, 64);
    memory.Ptag = pair.there.tag;
    memory.EnableRdmaWrite = read ? VIP_TRUE : VIP_FALSE;
    memory.EnableRdmaRead = read ? VIP_FALSE : VIP_TRUE;
    if (what == 1)
        OK(VipSetMemAttributes(pair.there.nic, pair.there.block, pair.there.memory, &memory));
    if (what == 2)
        d->DS[0].Remote.Handle ^= 0x40000000;
    if (what == 3)
        d->DS[0].Remote.Data.Address = pair.there.data + DATA_BYTES - 63;
    if (what == 4) { /* registered with another tag */
        OK(VipCreatePtag(pair.there.nic, &memory.Ptag));
        memory.EnableRdmaRead = memory.EnableRdmaWrite = VIP_TRUE;
        OK(VipRegisterMem(pair.there.nic, pair.there.data, 4096, &memory, &d->DS[0].Remote.Handle));
    }
    post_recv(&pair.there, pair.far_vi, r = plain(&pair.there, 0, 8192, 64));
    post_send(&pair.here, pair.near_vi, d);
    if (level == VIP_SERVICE_RELIABLE_RECEPTION || read) {
        sent(pair.near_vi, d, VIP_STATUS_RDMA_PROT_ERROR);
    } else {
        VIP_DESCRIPTOR *done;
        (void)VipSendWait(pair.near_vi, LONG, &done);
        CHECK(done == d);
    }
    if (RELIABLE(level)) {
        becomes(pair.near_vi, VIP_STATE_ERROR);
        becomes(pair.far_vi, VIP_STATE_ERROR);
        received(pair.far_vi, r, VIP_STATUS_DESC_FLUSHED_ERROR);
    } else {
        VIP_DESCRIPTOR *s;
        post_send(&pair.here, pair.near_vi, s = plain(&pair.here, 1, 0, 8));
        sent(pair.near_vi, s, 0);
        received(pair.far_vi, r, 0);
    }
    CHECK(pair.there.data[0] == 7 && pair.there.data[63] == 7); /* nothing was written, */
    CHECK(pair.here.data[0] == 8 && pair.here.data[63] == 8);   /* and nothing read */
    pair_close(&pair);
}

static void rdma_needs_permission_of_vi_and_memory(void) {
    int i, what;
    EACH_LEVEL(i) {
        for (what = 0; what < 5; what++) {
            forbidden(LEVELS[i], 0, what);
            if (RELIABLE(LEVELS[i]))
                forbidden(LEVELS[i], 1, what);
        }
    }
}

/* An empty receive queue causes a lost message, a lost connection, or a waiting sender. */
static void an_unreliable_message_without_a_receive_is_lost_silently(void) {
    Pair pair;
    VIP_DESCRIPTOR *s, *r;
    pair_open(&pair, VIP_SERVICE_UNRELIABLE);
    paint(pair.here.data, 64, 1);
    post_send(&pair.here, pair.near_vi, s = plain(&pair.here, 0, 0, 32));
    sent(pair.near_vi, s, 0);
    EQUAL(VipRecvWait(pair.far_vi, SHORT, &r), VIP_TIMEOUT);
    EQUAL(state_of(pair.far_vi), VIP_STATE_CONNECTED);
    post_recv(&pair.there, pair.far_vi, r = plain(&pair.there, 0, 0, 64));
    post_send(&pair.here, pair.near_vi, s = plain(&pair.here, 0, 0, 16));
    sent(pair.near_vi, s, 0);
    received(pair.far_vi, r, 0);
    EQUAL(r->CS.Length, 16);
    pair_close(&pair);
}

static void a_message_without_a_receive_ends_a_connection_with_reliable_delivery(void) {
    Pair pair;
    VIP_DESCRIPTOR *s, *done;
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    post_send(&pair.here, pair.near_vi, s = plain(&pair.here, 0, 0, 32));
    becomes(pair.far_vi, VIP_STATE_ERROR);
    becomes(pair.near_vi, VIP_STATE_ERROR);
    (void)VipSendWait(pair.near_vi, LONG, &done);
    CHECK(done == s);
    pair_close(&pair);
}

static void a_sender_with_reliable_reception_waits_for_a_receive(void) {
    Pair pair;
    VIP_DESCRIPTOR *s[4], *r, *done;
    int k;
    pair_open(&pair, VIP_SERVICE_RELIABLE_RECEPTION);
    for (k = 0; k < 4; k++) {
        paint(pair.here.data + k * 1000, 1000, (unsigned)k);
        post_send(&pair.here, pair.near_vi, s[k] = plain(&pair.here, k, (size_t)k * 1000, 1000));
    }
    EQUAL(VipSendWait(pair.near_vi, SHORT, &done), VIP_TIMEOUT); /* it has not been received */
    for (k = 0; k < 4; k++) {
        post_recv(&pair.there, pair.far_vi, r = plain(&pair.there, 0, 0, 1000));
        received(pair.far_vi, r, 0);
        CHECK(painted(pair.there.data, 1000, (unsigned)k));
        sent(pair.near_vi, s[k], 0);
    }
    EQUAL(state_of(pair.near_vi), VIP_STATE_CONNECTED);
    pair_close(&pair);
}

/* Descriptors in progress are flushed when the connection ends. */
static void disconnecting_flushes_waiting_sends(void) {
    Pair pair;
    VIP_DESCRIPTOR *s[4];
    int k;
    pair_open(&pair, VIP_SERVICE_RELIABLE_RECEPTION);
    for (k = 0; k < 4; k++)
        post_send(&pair.here, pair.near_vi, s[k] = plain(&pair.here, k, 0, 1000));
    OK(VipDisconnect(pair.near_vi));
    for (k = 0; k < 4; k++)
        sent(pair.near_vi, s[k], VIP_STATUS_DESC_FLUSHED_ERROR);
    EQUAL(state_of(pair.near_vi), VIP_STATE_IDLE);
    OK(VipDestroyVi(pair.near_vi));
    pair_close(&pair);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(an_invalid_send_has_a_format_error);
    RUN(a_send_with_a_wrong_length_has_a_length_error);
    RUN(a_send_from_memory_with_another_tag_has_a_protection_error);
    RUN(a_message_longer_than_its_receive_is_a_length_error);
    RUN(a_receive_to_memory_with_another_tag_has_a_protection_error);
    RUN(an_error_after_part_of_a_message_is_partial);
    RUN(an_invalid_receive_completes_at_once);
    RUN(rdma_needs_permission_of_vi_and_memory);
    RUN(an_unreliable_message_without_a_receive_is_lost_silently);
    RUN(a_message_without_a_receive_ends_a_connection_with_reliable_delivery);
    RUN(a_sender_with_reliable_reception_waits_for_a_receive);
    RUN(disconnecting_flushes_waiting_sends);
    return test_end();
}
