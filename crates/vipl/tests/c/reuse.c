/* Misuse of descriptors and memory by a program. */
#include "test.h"

#define BAD(call) EQUAL(call, VIP_INVALID_PARAMETER)

static void a_posted_descriptor_cannot_be_posted_again(void) {
    Pair pair;
    VIP_DESCRIPTOR *r;
    VIP_VI_HANDLE other;
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    other = vi_of(&pair.here, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    r = plain(&pair.here, 0, 0, 16);
    post_recv(&pair.here, pair.near_vi, r);
    BAD(VipPostRecv(pair.near_vi, r, pair.here.memory)); /* to the same queue, */
    BAD(VipPostSend(pair.near_vi, r, pair.here.memory)); /* the other one, */
    BAD(VipPostRecv(other, r, pair.here.memory));        /* or another VI, */
    r = plain(&pair.here, 0, 0, 16);                     /* even if it was rewritten. */
    BAD(VipPostRecv(other, r, pair.here.memory));
    OK(VipDisconnect(pair.near_vi));
    received(pair.near_vi, r, VIP_STATUS_DESC_FLUSHED_ERROR);
    OK(VipPostRecv(other, r, pair.here.memory)); /* it was collected, so it can be posted */
    pair_close(&pair);
}

static void changes_to_a_posted_descriptor_have_no_effect(void) {
    Pair pair;
    VIP_DESCRIPTOR *r, *s;
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    memset(pair.there.data, 0, 1000);
    paint(pair.here.data, 16, 1);
    r = plain(&pair.there, 0, 0, 16);
    post_recv(&pair.there, pair.far_vi, r);
    /* Overwrite the descriptor, which now belongs to the NIC, with garbage. */
    memset(r, 0xff, 64);
    post_send(&pair.here, pair.near_vi, s = plain(&pair.here, 0, 0, 16));
    sent(pair.near_vi, s, 0);
    received(pair.far_vi, r, 0);
    EQUAL(r->CS.Length, 16);
    CHECK(painted(pair.there.data, 16, 1));
    pair_close(&pair);
}

static void descriptors_must_be_aligned_and_in_registered_memory_of_the_tag(void) {
    Pair pair;
    char *elsewhere = aligned_block(4096);
    VIP_DESCRIPTOR *d = (VIP_DESCRIPTOR *)(void *)elsewhere;
    VIP_MEM_ATTRIBUTES attributes;
    VIP_MEM_HANDLE memory, short_memory;
    VIP_PROTECTION_HANDLE other_tag;
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    BAD(VipPostRecv(pair.near_vi, (VIP_DESCRIPTOR *)(void *)(pair.here.block + 32), pair.here.memory));
    BAD(VipPostRecv(pair.near_vi, (VIP_DESCRIPTOR *)(void *)(pair.here.block + 1), pair.here.memory));
    BAD(VipPostRecv(pair.near_vi, d, pair.here.memory)); /* outside the region */
    BAD(VipPostSend(pair.near_vi, d, pair.here.memory + 1));
    BAD(VipPostSend(pair.near_vi, d, 0));
    BAD(VipPostSend(pair.near_vi, (VIP_DESCRIPTOR *)(uintptr_t)64, pair.here.memory)); /* not even memory */
    OK(VipCreatePtag(pair.here.nic, &other_tag));
    attributes.Ptag = other_tag;
    attributes.EnableRdmaRead = attributes.EnableRdmaWrite = VIP_FALSE;
    OK(VipRegisterMem(pair.here.nic, elsewhere, 4096, &attributes, &memory));
    BAD(VipPostRecv(pair.near_vi, d, memory)); /* registered with another tag */
    attributes.Ptag = pair.here.tag;
    OK(VipRegisterMem(pair.here.nic, elsewhere, 40, &attributes, &short_memory));
    d->CS.SegCount = 1;
    BAD(VipPostRecv(pair.near_vi, d, short_memory)); /* the control segment fits, the data segment does not */
    d->CS.SegCount = 0;
    OK(VipSetMemAttributes(pair.here.nic, elsewhere, memory, &attributes));
    OK(VipPostRecv(pair.near_vi, d, memory));
    OK(VipDeregisterMem(pair.here.nic, elsewhere, memory));
    BAD(VipPostRecv(pair.near_vi, d + 1, memory));
    pair_close(&pair);
    free_block(elsewhere);
}

static void segments_outside_the_descriptor_s_memory_are_not_read(void) {
    Pair pair;
    char *elsewhere = aligned_block(8192);
    VIP_DESCRIPTOR *d = (VIP_DESCRIPTOR *)(void *)(elsewhere + 4096 - 64);
    VIP_MEM_ATTRIBUTES attributes;
    VIP_MEM_HANDLE memory;
    pair_open(&pair, VIP_SERVICE_UNRELIABLE);
    attributes.Ptag = pair.here.tag;
    attributes.EnableRdmaRead = attributes.EnableRdmaWrite = VIP_FALSE;
    OK(VipRegisterMem(pair.here.nic, elsewhere, 4096, &attributes, &memory));
    d->CS.SegCount = 3; /* two fit */
    BAD(VipPostRecv(pair.near_vi, d, memory));
    d->CS.SegCount = 2;
    OK(VipPostRecv(pair.near_vi, d, memory));
    pair_close(&pair);
    free_block(elsewhere);
}

/* The descriptor's memory is deregistered while it is posted: the result is not written. */
static void a_descriptor_in_deregistered_memory_is_not_written(void) {
    Pair pair;
    char *elsewhere = aligned_block(4096);
    VIP_DESCRIPTOR *d = (VIP_DESCRIPTOR *)(void *)elsewhere, *done;
    VIP_MEM_ATTRIBUTES attributes;
    VIP_MEM_HANDLE memory;
    pair_open(&pair, VIP_SERVICE_UNRELIABLE);
    attributes.Ptag = pair.here.tag;
    attributes.EnableRdmaRead = attributes.EnableRdmaWrite = VIP_FALSE;
    OK(VipRegisterMem(pair.here.nic, elsewhere, 4096, &attributes, &memory));
    OK(VipPostRecv(pair.near_vi, d, memory));
    OK(VipDeregisterMem(pair.here.nic, elsewhere, memory));
    memset(elsewhere, 0x55, 4096);
    OK(VipDisconnect(pair.near_vi));
    EQUAL(VipRecvWait(pair.near_vi, LONG, &done), VIP_DESCRIPTOR_ERROR);
    CHECK(done == d);
    EQUAL(d->CS.Status, 0x55555555);
    EQUAL(d->CS.Length, 0x55555555);
    pair_close(&pair);
    free_block(elsewhere);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(a_posted_descriptor_cannot_be_posted_again);
    RUN(changes_to_a_posted_descriptor_have_no_effect);
    RUN(descriptors_must_be_aligned_and_in_registered_memory_of_the_tag);
    RUN(segments_outside_the_descriptor_s_memory_are_not_read);
    RUN(a_descriptor_in_deregistered_memory_is_not_written);
    return test_end();
}
