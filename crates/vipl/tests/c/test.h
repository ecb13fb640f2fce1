/*
 * Shared by the test programs: named tests, two NICs that reach each other, and helpers for descriptors.
 *
 *     static void a_message_arrives(void) { ... CHECK(x == y); ... }
 *     int main(int argc, char **argv) { test_begin(argc, argv); RUN(a_message_arrives); return test_end(); }
 *
 * A program gets a device as its argument (loopback by default) and opens it twice, as `here` and `there`; with
 * loopback both are the same NIC, because it reaches only itself. A failed CHECK prints its location and ends the
 * program. There are no sleeps; waits take at most LONG.
 */
#ifndef TEST_H
#define TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vipl.h"

#define LONG 10000UL /* ms: longer than anything here takes */
#define SHORT 30UL   /* ms: for events that must not happen */

static const char *test_device = "loopback";
static const char *test_name = "(before the first)";
static int test_count = 0;

#define FAIL_(what)                                                                                                    \
    do {                                                                                                               \
        fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, test_name, what);                                      \
        exit(1);                                                                                                       \
    } while (0)

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            FAIL_("not true: " #condition);                                                                            \
    } while (0)

#define EQUAL(given, expected)                                                                                         \
    do {                                                                                                               \
        unsigned long given_ = (unsigned long)(given), expected_ = (unsigned long)(expected);                          \
        if (given_ != expected_) {                                                                                     \
            fprintf(stderr, "%s:%d: %s: %s is %lu (0x%lx), expected %s = %lu (0x%lx)\n", __FILE__, __LINE__,           \
                    test_name, #given, given_, given_, #expected, expected_, expected_);                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define OK(call) EQUAL(call, VIP_SUCCESS)

#define RUN(test)                                                                                                     \
    do {                                                                                                               \
        test_name = #test;                                                                                           \
        test();                                                                                                        \
        test_count++;                                                                                                 \
        printf("ok %s\n", #test);                                                                                     \
        fflush(stdout);                                                                                                \
    } while (0)

static inline void test_begin(int argc, char **argv) {
    if (argc > 1)
        test_device = argv[1];
}

static inline int test_end(void) {
    printf("%d tests passed on %s\n", test_count, test_device);
    return test_count > 0 ? 0 : 1;
}

/* ---- addresses ---- */

typedef union {
    VIP_NET_ADDRESS net;
    char room[128];
} Address;

/* Returns a NIC's address with this text as the discriminator. */
static inline void address_of(VIP_NIC_HANDLE nic, const char *discriminator, Address *address) {
    VIP_NIC_ATTRIBUTES attributes;
    size_t length = strlen(discriminator);
    OK(VipQueryNic(nic, &attributes));
    CHECK(4u + attributes.NicAddressLen + length <= sizeof address->room);
    CHECK(length <= attributes.MaxDiscriminatorLen);
    address->net.HostAddressLen = attributes.NicAddressLen;
    address->net.DiscriminatorLen = (VIP_UINT16)length;
    memcpy(address->room + 4, attributes.LocalNicAddress, attributes.NicAddressLen);
    memcpy(address->room + 4 + attributes.NicAddressLen, discriminator, length);
}

/* ---- memory ---- */

/* One side of a test: a NIC, a tag, and registered memory with 64 descriptors of 256 bytes (14 segments each), then
 * data. */
#define DESCRIPTORS 64
#define DESCRIPTOR_BYTES 256
#define DATA_BYTES (256 * 1024)

typedef struct {
    VIP_NIC_HANDLE nic;
    VIP_PROTECTION_HANDLE tag;
    char *block;         /* descriptors, then data */
    char *data;
    VIP_MEM_HANDLE memory;
    VIP_NIC_ATTRIBUTES limits;
} Side;

static inline char *aligned_block(size_t bytes) {
    void *block = NULL;
    char *raw = (char *)malloc(bytes + 4096 + sizeof(void *));
    CHECK(raw != NULL);
    block = (void *)(((uintptr_t)raw + sizeof(void *) + 4095) & ~(uintptr_t)4095);
    ((void **)block)[-1] = raw;
    memset(block, 0, bytes);
    return (char *)block;
}

static inline void free_block(char *block) {
    free(((void **)(void *)block)[-1]);
}

static inline int is_loopback(void) {
    return strcmp(test_device, "loopback") == 0;
}

/* The loopback device's only NIC, and the number of sides that use it. */
static VIP_NIC_HANDLE test_nic = NULL;
static int test_nic_users = 0;

static inline void side_open(Side *side) {
    VIP_MEM_ATTRIBUTES attributes;
    if (!is_loopback() || test_nic_users++ == 0)
        OK(VipOpenNic(test_device, &side->nic));
    if (is_loopback())
        side->nic = test_nic = test_nic_users == 1 ? side->nic : test_nic;
    OK(VipQueryNic(side->nic, &side->limits));
    OK(VipCreatePtag(side->nic, &side->tag));
    side->block = aligned_block(DESCRIPTORS * DESCRIPTOR_BYTES + DATA_BYTES);
    side->data = side->block + DESCRIPTORS * DESCRIPTOR_BYTES;
    attributes.Ptag = side->tag;
    attributes.EnableRdmaWrite = VIP_TRUE;
    attributes.EnableRdmaRead = VIP_TRUE;
    OK(VipRegisterMem(side->nic, side->block, DESCRIPTORS * DESCRIPTOR_BYTES + DATA_BYTES, &attributes, &side->memory));
}

static inline void side_close(Side *side) {
    if (!is_loopback() || --test_nic_users == 0)
        OK(VipCloseNic(side->nic));
    free_block(side->block);
}

/* Clears and returns descriptor number n of a side. */
static inline VIP_DESCRIPTOR *blank(Side *side, int n) {
    char *at = side->block + n * DESCRIPTOR_BYTES;
    CHECK(n < DESCRIPTORS);
    memset(at, 0, DESCRIPTOR_BYTES);
    return (VIP_DESCRIPTOR *)(void *)at;
}

/* Adds a data segment: `length` bytes at `offset` in the side's data. */
static inline void with_data(VIP_DESCRIPTOR *d, Side *side, size_t offset, VIP_UINT32 length) {
    VIP_DESCRIPTOR_SEGMENT *segment = (VIP_DESCRIPTOR_SEGMENT *)(void *)((char *)d + 32) + d->CS.SegCount++;
    segment->Local.Data.AddressBits = 0;
    segment->Local.Data.Address = side->data + offset;
    segment->Local.Handle = side->memory;
    segment->Local.Length = length;
    d->CS.Length += length;
}

/* Adds the address segment: `offset` in the other side's data. */
static inline void with_remote(VIP_DESCRIPTOR *d, Side *other, size_t offset) {
    CHECK(d->CS.SegCount == 0);
    d->DS[0].Remote.Data.AddressBits = 0;
    d->DS[0].Remote.Data.Address = other->data + offset;
    d->DS[0].Remote.Handle = other->memory;
    d->DS[0].Remote.Reserved = 0;
    d->CS.SegCount = 1;
}

/* Returns a descriptor with one data segment. */
static inline VIP_DESCRIPTOR *plain(Side *side, int n, size_t offset, VIP_UINT32 length) {
    VIP_DESCRIPTOR *d = blank(side, n);
    with_data(d, side, offset, length);
    return d;
}

static inline void post_send(Side *side, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d) {
    OK(VipPostSend(vi, d, side->memory));
}

static inline void post_recv(Side *side, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d) {
    OK(VipPostRecv(vi, d, side->memory));
}

/* Collects the next send or receive, which must be `d` with exactly these error bits in Status. */
static inline void sent(VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d, VIP_UINT32 errors) {
    VIP_DESCRIPTOR *done = NULL;
    EQUAL(VipSendWait(vi, LONG, &done), errors ? VIP_DESCRIPTOR_ERROR : VIP_SUCCESS);
    CHECK(done == d);
    EQUAL(d->CS.Status & VIP_STATUS_DONE, VIP_STATUS_DONE);
    EQUAL(d->CS.Status & VIP_STATUS_ERROR_MASK, errors);
    EQUAL(d->CS.Status & VIP_STATUS_RESERVED, 0);
}

static inline void received(VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d, VIP_UINT32 errors) {
    VIP_DESCRIPTOR *done = NULL;
    EQUAL(VipRecvWait(vi, LONG, &done), errors ? VIP_DESCRIPTOR_ERROR : VIP_SUCCESS);
    CHECK(done == d);
    EQUAL(d->CS.Status & VIP_STATUS_DONE, VIP_STATUS_DONE);
    EQUAL(d->CS.Status & VIP_STATUS_ERROR_MASK, errors);
    EQUAL(d->CS.Status & VIP_STATUS_RESERVED, 0);
}

/* ---- VIs ---- */

static inline VIP_VI_ATTRIBUTES attributes_for(Side *side, VIP_RELIABILITY_LEVEL level) {
    VIP_VI_ATTRIBUTES attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.ReliabilityLevel = level;
    attributes.MaxTransferSize = side->limits.MaxTransferSize < 65536 ? side->limits.MaxTransferSize : 65536;
    attributes.Ptag = side->tag;
    attributes.EnableRdmaWrite = VIP_TRUE;
    attributes.EnableRdmaRead = (level & side->limits.RDMAReadSupport) ? VIP_TRUE : VIP_FALSE;
    return attributes;
}

static inline VIP_VI_HANDLE vi_of(Side *side, VIP_RELIABILITY_LEVEL level, VIP_CQ_HANDLE sends,
                                  VIP_CQ_HANDLE receives) {
    VIP_VI_ATTRIBUTES attributes = attributes_for(side, level);
    VIP_VI_HANDLE vi = NULL;
    OK(VipCreateVi(side->nic, &attributes, sends, receives, &vi));
    return vi;
}

/* Connects two VIs peer to peer, in one thread. */
static inline void join(Side *a, VIP_VI_HANDLE vi_a, Side *b, VIP_VI_HANDLE vi_b) {
    static unsigned long pair = 0;
    char name_a[32], name_b[32];
    Address at_a, at_b;
    VIP_VI_ATTRIBUTES remote;
    pair++;
    sprintf(name_a, "a%lu", pair);
    sprintf(name_b, "b%lu", pair);
    address_of(a->nic, name_a, &at_a);
    address_of(b->nic, name_b, &at_b);
    OK(VipConnectPeerRequest(vi_a, &at_a.net, &at_b.net, LONG));
    OK(VipConnectPeerRequest(vi_b, &at_b.net, &at_a.net, LONG));
    OK(VipConnectPeerWait(vi_a, &remote));
    OK(VipConnectPeerWait(vi_b, &remote));
}

static inline VIP_VI_STATE state_of(VIP_VI_HANDLE vi) {
    VIP_VI_STATE state;
    VIP_VI_ATTRIBUTES attributes;
    VIP_BOOLEAN sends, receives;
    OK(VipQueryVi(vi, &state, &attributes, &sends, &receives));
    return state;
}

/* Waits until a VI reaches a state, which may depend on the network. */
static inline void becomes(VIP_VI_HANDLE vi, VIP_VI_STATE state) {
    time_t end = time(NULL) + (time_t)(LONG / 1000);
    while (state_of(vi) != state && time(NULL) <= end) {
    }
    EQUAL(state_of(vi), state);
}

/* Two sides and a connected pair of VIs. */
typedef struct {
    Side here, there;
    VIP_VI_HANDLE near_vi, far_vi;
} Pair;

static inline void pair_open(Pair *pair, VIP_RELIABILITY_LEVEL level) {
    side_open(&pair->here);
    side_open(&pair->there);
    pair->near_vi = vi_of(&pair->here, level, NULL, NULL);
    pair->far_vi = vi_of(&pair->there, level, NULL, NULL);
    join(&pair->here, pair->near_vi, &pair->there, pair->far_vi);
}

static inline void pair_close(Pair *pair) {
    side_close(&pair->here);
    side_close(&pair->there);
}

static const VIP_RELIABILITY_LEVEL LEVELS[] = {VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY,
                                               VIP_SERVICE_RELIABLE_RECEPTION};
#define EACH_LEVEL(i) for (i = 0; i < 3; i++)

/* Writes a pattern that depends on the offset and the seed. */
static inline void paint(char *at, size_t bytes, unsigned seed) {
    size_t i;
    for (i = 0; i < bytes; i++)
        at[i] = (char)((i * 131u + seed * 29u + (i >> 8)) & 0xff);
}

static inline int painted(const char *at, size_t bytes, unsigned seed) {
    size_t i;
    for (i = 0; i < bytes; i++)
        if (at[i] != (char)((i * 131u + seed * 29u + (i >> 8)) & 0xff))
            return 0;
    return 1;
}

#endif
