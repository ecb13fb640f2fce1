/* Calls from several threads at once, including while the NIC is being closed. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "test.h"

#define PAIRS 4
#define ROUNDS 300

typedef struct {
    Side *side;
    VIP_VI_HANDLE vi;
    int number;
    int serves;
} Player;

/* One side of a ping-pong. It has its own part of the side's descriptors and data. */
static void *play(void *context) {
    Player *p = (Player *)context;
    size_t at = (size_t)p->number * 8192;
    int k;
    for (k = 0; k < ROUNDS; k++) {
        VIP_DESCRIPTOR *r, *s, *done;
        if (p->serves) {
            s = plain(p->side, p->number * 4, at, (VIP_UINT32)(k % 1000));
            paint(p->side->data + at, (size_t)(k % 1000), (unsigned)(k + p->number));
            post_send(p->side, p->vi, s);
            OK(VipSendWait(p->vi, LONG, &done));
            CHECK(done == s);
        }
        OK(VipRecvWait(p->vi, LONG, &r));
        EQUAL(r->CS.Length, k % 1000);
        CHECK(painted((char *)r->DS[0].Local.Data.Address, (size_t)(k % 1000), (unsigned)(k + p->number)));
        if (!p->serves) {
            s = plain(p->side, p->number * 4, at, r->CS.Length);
            memcpy(p->side->data + at, r->DS[0].Local.Data.Address, r->CS.Length);
            post_recv(p->side, p->vi, r);
            post_send(p->side, p->vi, s);
            OK(VipSendWait(p->vi, LONG, &done));
            CHECK(done == s);
        } else {
            post_recv(p->side, p->vi, r);
        }
    }
    return NULL;
}

static volatile int games_are_over;

/* In the meantime, another thread registers memory and creates tags, VIs and queues, and destroys them. */
static void *tinker(void *context) {
    Side *side = (Side *)context;
    unsigned long rounds = 0;
    while (!games_are_over) {
        VIP_PROTECTION_HANDLE tag;
        VIP_MEM_ATTRIBUTES memory;
        VIP_MEM_HANDLE handle;
        VIP_VI_ATTRIBUTES attributes = attributes_for(side, VIP_SERVICE_RELIABLE_DELIVERY);
        VIP_CQ_HANDLE cq;
        VIP_VI_HANDLE vi;
        VIP_DESCRIPTOR *done;
        VIP_NIC_ATTRIBUTES nic;
        OK(VipCreatePtag(side->nic, &tag));
        memory.Ptag = attributes.Ptag = tag;
        memory.EnableRdmaRead = memory.EnableRdmaWrite = VIP_TRUE;
        OK(VipRegisterMem(side->nic, side->block, DESCRIPTORS * DESCRIPTOR_BYTES, &memory, &handle));
        OK(VipCreateCQ(side->nic, 4, &cq));
        OK(VipCreateVi(side->nic, &attributes, cq, NULL, &vi));
        OK(VipPostRecv(vi, blank(side, DESCRIPTORS - 1), handle));
        OK(VipDisconnect(vi));
        EQUAL(VipRecvDone(vi, &done), VIP_DESCRIPTOR_ERROR);
        OK(VipDestroyVi(vi));
        OK(VipDestroyCQ(cq));
        OK(VipDeregisterMem(side->nic, side->block, handle));
        OK(VipDestroyPtag(side->nic, tag));
        OK(VipQueryNic(side->nic, &nic));
        rounds++;
    }
    CHECK(rounds > 0);
    return NULL;
}

static void threads_share_a_nic_while_objects_are_created_and_destroyed(void) {
    Side here, there;
    Player players[2 * PAIRS];
    pthread_t threads[2 * PAIRS], tinkerer;
    int k;
    side_open(&here);
    side_open(&there);
    for (k = 0; k < PAIRS; k++) {
        Player *a = &players[2 * k], *b = &players[2 * k + 1];
        a->side = &here;
        b->side = &there;
        a->vi = vi_of(&here, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        b->vi = vi_of(&there, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        a->number = b->number = k;
        a->serves = 1;
        b->serves = 0;
        join(&here, a->vi, &there, b->vi);
        post_recv(&here, a->vi, plain(&here, 4 * k + 1, (size_t)k * 8192 + 4096, 2048));
        post_recv(&here, a->vi, plain(&here, 4 * k + 2, (size_t)k * 8192 + 6144, 2048));
        post_recv(&there, b->vi, plain(&there, 4 * k + 1, (size_t)k * 8192 + 4096, 2048));
        post_recv(&there, b->vi, plain(&there, 4 * k + 2, (size_t)k * 8192 + 6144, 2048));
    }
    games_are_over = 0;
    CHECK(pthread_create(&tinkerer, NULL, tinker, &here) == 0);
    for (k = 0; k < 2 * PAIRS; k++)
        CHECK(pthread_create(&threads[k], NULL, play, &players[k]) == 0);
    for (k = 0; k < 2 * PAIRS; k++)
        CHECK(pthread_join(threads[k], NULL) == 0);
    games_are_over = 1;
    CHECK(pthread_join(tinkerer, NULL) == 0);
    side_close(&here);
    side_close(&there);
}

typedef struct {
    VIP_RETURN (*wait)(VIP_NIC_HANDLE, VIP_VI_HANDLE, VIP_CQ_HANDLE, Address *);
    VIP_NIC_HANDLE nic;
    VIP_VI_HANDLE vi;
    VIP_CQ_HANDLE cq;
    Address address;
    VIP_RETURN answer;
} Waiter;

static VIP_RETURN for_a_receive(VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_CQ_HANDLE cq, Address *at) {
    VIP_DESCRIPTOR *d;
    (void)nic, (void)cq, (void)at;
    return VipRecvWait(vi, VIP_INFINITE, &d);
}
static VIP_RETURN for_a_send(VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_CQ_HANDLE cq, Address *at) {
    VIP_DESCRIPTOR *d;
    (void)nic, (void)cq, (void)at;
    return VipSendWait(vi, VIP_INFINITE, &d);
}
static VIP_RETURN for_an_entry(VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_CQ_HANDLE cq, Address *at) {
    VIP_BOOLEAN receives;
    (void)nic, (void)at;
    return VipCQWait(cq, VIP_INFINITE, &vi, &receives);
}
static VIP_RETURN for_a_client(VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_CQ_HANDLE cq, Address *at) {
    Address client;
    VIP_VI_ATTRIBUTES attributes;
    VIP_CONN_HANDLE request;
    (void)vi, (void)cq;
    return VipConnectWait(nic, &at->net, VIP_INFINITE, &client.net, &attributes, &request);
}
static VIP_RETURN for_an_equal(VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_CQ_HANDLE cq, Address *at) {
    VIP_VI_ATTRIBUTES attributes;
    VIP_RETURN answer;
    (void)nic, (void)cq;
    answer = VipConnectPeerRequest(vi, &at->net, &at->net, VIP_INFINITE);
    return answer == VIP_SUCCESS ? VipConnectPeerWait(vi, &attributes) : answer;
}

static void *wait_for_ever(void *context) {
    Waiter *waiter = (Waiter *)context;
    waiter->answer = waiter->wait(waiter->nic, waiter->vi, waiter->cq, &waiter->address);
    return NULL;
}

/* Closing a NIC ends every wait without a time limit, with VIP_INVALID_PARAMETER. */
static void closing_a_nic_ends_every_wait(void) {
    int round;
    for (round = 0; round < 20; round++) {
        Side side;
        Waiter waiters[5];
        pthread_t threads[5];
        int k;
        memset(waiters, 0, sizeof waiters);
        side_open(&side);
        waiters[0].wait = for_a_receive;
        waiters[1].wait = for_a_send;
        waiters[2].wait = for_an_entry;
        waiters[3].wait = for_a_client;
        waiters[4].wait = for_an_equal;
        for (k = 0; k < 5; k++) {
            waiters[k].nic = side.nic;
            waiters[k].vi = vi_of(&side, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
            OK(VipCreateCQ(side.nic, 4, &waiters[k].cq));
            address_of(side.nic, "nobody", &waiters[k].address);
            waiters[k].answer = VIP_NOT_DONE;
            CHECK(pthread_create(&threads[k], NULL, wait_for_ever, &waiters[k]) == 0);
        }
        side_close(&side);
        for (k = 0; k < 5; k++) {
            CHECK(pthread_join(threads[k], NULL) == 0);
            /* A connect request may fail with VIP_INVALID_STATE, because closing the NIC has already ended
             * it. */
            if (!(k == 4 && waiters[k].answer == VIP_INVALID_STATE))
                EQUAL(waiters[k].answer, VIP_INVALID_PARAMETER);
        }
    }
}

/* If two threads close one NIC, exactly one of them succeeds. */
static void *close_it(void *context) {
    Waiter *waiter = (Waiter *)context;
    waiter->answer = VipCloseNic(waiter->nic);
    return NULL;
}

static void of_two_threads_that_close_a_nic_one_succeeds(void) {
    int round;
    for (round = 0; round < 50; round++) {
        Waiter both[2];
        pthread_t threads[2];
        int k;
        OK(VipOpenNic(test_device, &both[0].nic));
        both[1].nic = both[0].nic;
        for (k = 0; k < 2; k++)
            CHECK(pthread_create(&threads[k], NULL, close_it, &both[k]) == 0);
        for (k = 0; k < 2; k++)
            CHECK(pthread_join(threads[k], NULL) == 0);
        EQUAL(both[0].answer + both[1].answer, VIP_SUCCESS + VIP_INVALID_PARAMETER);
    }
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(threads_share_a_nic_while_objects_are_created_and_destroyed);
    RUN(closing_a_nic_ends_every_wait);
    RUN(of_two_threads_that_close_a_nic_one_succeeds);
    return test_end();
}
