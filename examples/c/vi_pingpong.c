/*
 * vi_pingpong: two programs send a message back and forth through VIs.
 *
 *     cc -std=c99 -O2 -o vi_pingpong vi_pingpong.c -lvipl       (docs/vipl.md says where header and library are)
 *
 *     ./vi_pingpong server shm:table              ./vi_pingpong client shm table
 *     ./vi_pingpong server udp:127.0.0.1:7400     ./vi_pingpong client udp 127.0.0.1:7400
 *
 * The server prints its address, which is the client's argument. Further arguments of the client are
 * [BYTES [ROUNDS [WAITING]]]; the defaults are 8 bytes, 100000 rounds, adaptive. WAITING is poll, interrupt, adaptive, or a
 * number of microseconds to poll before sleeping; it is the third argument of the server. The client prints the mean
 * round-trip time and how it waited.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <vipl.h>
#include <vipl_kiban.h>

#define BYTES_MAX 65536

/* The state of one side. Its descriptors and buffers are in one block of registered memory. */
struct side {
    VIP_NIC_HANDLE nic;
    VIP_NIC_ATTRIBUTES limits;
    VIP_PROTECTION_HANDLE tag;
    VIP_VI_HANDLE vi;
    VIP_MEM_HANDLE memory;
    VIP_DESCRIPTOR *receive[2], *send;
    char *receive_data[2], *send_data;
};

/* An address, with space for the longest one. */
union address {
    VIP_NET_ADDRESS net;
    unsigned char room[256];
};

static void must(VIP_RETURN code, const char *what) {
    if (code != VIP_SUCCESS) {
        fprintf(stderr, "vi_pingpong: %s: code %d\n", what, (int)code);
        exit(1);
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Makes an endpoint address from a NIC's host address and a name (discriminator) that both sides know. */
static void make_address(const struct side *side, const unsigned char *host, const char *name, union address *address) {
    address->net.HostAddressLen = side->limits.NicAddressLen;
    address->net.DiscriminatorLen = (VIP_UINT16)strlen(name);
    memcpy(address->room + offsetof(VIP_NET_ADDRESS, HostAddress), host, side->limits.NicAddressLen);
    memcpy(address->room + offsetof(VIP_NET_ADDRESS, HostAddress) + side->limits.NicAddressLen, name, strlen(name));
}

/* Fills in a descriptor with one data segment of `bytes`. */
static void fill(const struct side *side, VIP_DESCRIPTOR *descriptor, char *data, VIP_UINT32 bytes) {
    memset(descriptor, 0, sizeof *descriptor);
    descriptor->CS.Control = VIP_CONTROL_OP_SENDRECV;
    descriptor->CS.SegCount = 1;
    descriptor->CS.Length = bytes;
    descriptor->DS[0].Local.Data.Address = data;
    descriptor->DS[0].Local.Handle = side->memory;
    descriptor->DS[0].Local.Length = bytes;
}

static void open_side(struct side *side, const char *device) {
    VIP_MEM_ATTRIBUTES memory_attributes;
    VIP_VI_ATTRIBUTES vi_attributes;
    const size_t bytes = 3 * 64 + 3 * BYTES_MAX;
    char *block;

    must(VipOpenNic(device, &side->nic), "VipOpenNic");
    must(VipQueryNic(side->nic, &side->limits), "VipQueryNic");
    must(VipCreatePtag(side->nic, &side->tag), "VipCreatePtag");

    /* Descriptors are aligned to 64 bytes. */
    if (posix_memalign((void **)&block, VIP_DESCRIPTOR_ALIGNMENT, bytes) != 0)
        exit(1);
    memset(block, 0, bytes);
    side->receive[0] = (VIP_DESCRIPTOR *)(void *)block;
    side->receive[1] = (VIP_DESCRIPTOR *)(void *)(block + 64);
    side->send = (VIP_DESCRIPTOR *)(void *)(block + 128);
    side->receive_data[0] = block + 192;
    side->receive_data[1] = block + 192 + BYTES_MAX;
    side->send_data = block + 192 + 2 * BYTES_MAX;

    memory_attributes.Ptag = side->tag;
    memory_attributes.EnableRdmaWrite = VIP_FALSE;
    memory_attributes.EnableRdmaRead = VIP_FALSE;
    must(VipRegisterMem(side->nic, block, bytes, &memory_attributes, &side->memory), "VipRegisterMem");

    memset(&vi_attributes, 0, sizeof vi_attributes);
    vi_attributes.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
    vi_attributes.MaxTransferSize = BYTES_MAX;
    vi_attributes.Ptag = side->tag;
    must(VipCreateVi(side->nic, &vi_attributes, NULL, NULL, &side->vi), "VipCreateVi");

    /* Receives are posted before the connection is established: the first message may arrive immediately. */
    fill(side, side->receive[0], side->receive_data[0], BYTES_MAX);
    fill(side, side->receive[1], side->receive_data[1], BYTES_MAX);
    must(VipPostRecv(side->vi, side->receive[0], side->memory), "VipPostRecv");
    must(VipPostRecv(side->vi, side->receive[1], side->memory), "VipPostRecv");
}

static void set_policy(const struct side *side, const char *policy) {
    if (strcmp(policy, "poll") == 0)
        must(VipSetViWait(side->vi, VIP_WAIT_POLL, 0), "VipSetViWait");
    else if (strcmp(policy, "interrupt") == 0)
        must(VipSetViWait(side->vi, VIP_WAIT_INTERRUPT, 0), "VipSetViWait");
    else if (strcmp(policy, "adaptive") == 0)
        must(VipSetViWait(side->vi, VIP_WAIT_ADAPTIVE, 0), "VipSetViWait");
    else
        must(VipSetViWait(side->vi, VIP_WAIT_HYBRID, strtoul(policy, NULL, 10)), "VipSetViWait");
}

/* Receives one message and reposts its descriptor; returns the length, or -1 if the peer disconnected. */
static long take(const struct side *side) {
    VIP_DESCRIPTOR *descriptor;
    VIP_RETURN code = VipRecvWait(side->vi, VIP_INFINITE, &descriptor);
    long bytes;
    if (code == VIP_DESCRIPTOR_ERROR)
        return -1; /* the status gives the reason, most likely flushed */
    must(code, "VipRecvWait");
    bytes = (long)descriptor->CS.Length;
    fill(side, descriptor, (char *)descriptor->DS[0].Local.Data.Address, BYTES_MAX);
    must(VipPostRecv(side->vi, descriptor, side->memory), "VipPostRecv");
    return bytes;
}

static void give(const struct side *side, VIP_UINT32 bytes) {
    VIP_DESCRIPTOR *descriptor;
    fill(side, side->send, side->send_data, bytes);
    must(VipPostSend(side->vi, side->send, side->memory), "VipPostSend");
    must(VipSendWait(side->vi, VIP_INFINITE, &descriptor), "VipSendWait");
}

static void serve(struct side *side) {
    union address local, remote;
    VIP_VI_ATTRIBUTES attributes;
    VIP_CONN_HANDLE request;
    long bytes;

    printf("waiting at %s\n", side->limits.Name);
    fflush(stdout);
    make_address(side, side->limits.LocalNicAddress, "pingpong", &local);
    must(VipConnectWait(side->nic, &local.net, VIP_INFINITE, &remote.net, &attributes, &request), "VipConnectWait");
    must(VipConnectAccept(request, side->vi), "VipConnectAccept");
    while ((bytes = take(side)) >= 0)
        give(side, (VIP_UINT32)bytes);
    must(VipDisconnect(side->vi), "VipDisconnect");
}

/* Looks up the server's host address and connects; retries for 10 s, because the server may start later. */
static void find(struct side *side, char *name) {
    union address host, local, remote;
    VIP_VI_ATTRIBUTES attributes;
    VIP_RETURN code;
    double end = seconds() + 10.0;

    must(VipNSInit(side->nic, NULL), "VipNSInit");
    must(VipNSGetHostByName(side->nic, name, &host.net, 0), "VipNSGetHostByName");
    make_address(side, side->limits.LocalNicAddress, "client", &local);
    make_address(side, host.net.HostAddress, "pingpong", &remote);
    do
        code = VipConnectRequest(side->vi, &local.net, &remote.net, 10000, &attributes);
    while (code == VIP_NO_MATCH && seconds() < end);
    must(code, "VipConnectRequest");
}

static void play(struct side *side, VIP_UINT32 bytes, long rounds) {
    VIP_WAIT_REPORT report;
    double start;
    long i;

    for (i = 0; i < rounds / 10 + 1; i++) { /* warm up, so that adaptive waiting has some history */
        give(side, bytes);
        take(side);
    }
    start = seconds();
    for (i = 0; i < rounds; i++) {
        give(side, bytes);
        if (take(side) != (long)bytes) {
            fprintf(stderr, "vi_pingpong: the echo differs or is missing\n");
            exit(1);
        }
    }
    printf("%ld round trips of %lu bytes: %.3f us each\n", rounds, (unsigned long)bytes,
           (seconds() - start) * 1e6 / (double)rounds);
    must(VipQueryViWait(side->vi, VIP_TRUE, &report), "VipQueryViWait");
    printf("waits: %lu, satisfied by polling: %lu, slept: %lu\n", (unsigned long)report.Waits,
           (unsigned long)report.SpinHits, (unsigned long)report.Blocks);
    must(VipDisconnect(side->vi), "VipDisconnect");
}

int main(int argc, char **argv) {
    struct side side;
    int is_server = argc >= 3 && strcmp(argv[1], "server") == 0;
    int is_client = argc >= 4 && strcmp(argv[1], "client") == 0;
    unsigned long bytes = is_client && argc > 4 ? strtoul(argv[4], NULL, 10) : 8;
    long rounds = is_client && argc > 5 ? strtol(argv[5], NULL, 10) : 100000;
    int policy = is_server ? 3 : 6;

    if (!is_server && !is_client) {
        fprintf(stderr, "usage: vi_pingpong server DEVICE [WAITING]\n"
                        "       vi_pingpong client DEVICE NAME [BYTES [ROUNDS [WAITING]]]\n");
        return 2;
    }
    if (bytes > BYTES_MAX || rounds < 1) {
        fprintf(stderr, "vi_pingpong: use at most %d bytes and at least one round\n", BYTES_MAX);
        return 2;
    }

    open_side(&side, argv[2]);
    set_policy(&side, argc > policy ? argv[policy] : "adaptive");
    if (is_server) {
        serve(&side);
    } else {
        find(&side, argv[3]);
        play(&side, (VIP_UINT32)bytes, rounds);
    }
    must(VipCloseNic(side.nic), "VipCloseNic");
    /* Closing the NIC has deregistered the memory. The block begins with the first descriptor. */
    free(side.receive[0]);
    return 0;
}
