/*
 * vi_pingpong: two programs throw a message back and forth through VIs.
 *
 *     cc -std=c99 -O2 -o vi_pingpong vi_pingpong.c -lvipl       (docs/vipl.md says where header and library are)
 *
 *     ./vi_pingpong server shm                    ./vi_pingpong client shm
 *     ./vi_pingpong server udp:127.0.0.1:7400     ./vi_pingpong client udp 127.0.0.1:7400
 *
 * The server prints its address; a client over UDP is given it, one on the same host finds it by looking around.
 * Options, after these: [BYTES [ROUNDS [poll|interrupt|adaptive|MICROSECONDS]]], 8 bytes, 100000 rounds, adaptive.
 * MICROSECONDS is for how long to poll before sleeping. The client prints the mean time of a round trip.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <vipl.h>
#include <vipl_kiban.h>

#define BYTES_MAX 65536

/* What both sides need: one block of memory with a descriptor and a buffer for each direction. */
struct side {
    VIP_NIC_HANDLE nic;
    VIP_NIC_ATTRIBUTES limits;
    VIP_PROTECTION_HANDLE tag;
    VIP_VI_HANDLE vi;
    VIP_MEM_HANDLE memory;
    VIP_DESCRIPTOR *receive[2], *send;
    char *receive_data[2], *send_data;
};

/* An address with room for the longest. */
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

/* The host part of an address is the NIC's; the discriminator is a name that both sides know. */
static void make_address(const struct side *side, const unsigned char *host, const char *name, union address *address) {
    address->net.HostAddressLen = side->limits.NicAddressLen;
    address->net.DiscriminatorLen = (VIP_UINT16)strlen(name);
    memcpy(address->room + offsetof(VIP_NET_ADDRESS, HostAddress), host, side->limits.NicAddressLen);
    memcpy(address->room + offsetof(VIP_NET_ADDRESS, HostAddress) + side->limits.NicAddressLen, name, strlen(name));
}

/* A descriptor with one data segment of `bytes`. */
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

    /* Receives are posted before the connection is there: the first message may come at once. */
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

/* Receives one message, posts the descriptor again; returns its length, or -1 when the other side has gone. */
static long take(const struct side *side) {
    VIP_DESCRIPTOR *descriptor;
    VIP_RETURN code = VipRecvWait(side->vi, VIP_INFINITE, &descriptor);
    long bytes;
    if (code == VIP_DESCRIPTOR_ERROR)
        return -1; /* Status says why: flushed, most likely */
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
    int i;

    printf("waiting at ");
    for (i = 0; i < side->limits.NicAddressLen; i++)
        printf("%s%02x", i ? ":" : "", side->limits.LocalNicAddress[i]);
    printf("\n");
    fflush(stdout);
    make_address(side, side->limits.LocalNicAddress, "pingpong", &local);
    must(VipConnectWait(side->nic, &local.net, VIP_INFINITE, &remote.net, &attributes, &request), "VipConnectWait");
    must(VipConnectAccept(request, side->vi), "VipConnectAccept");
    while ((bytes = take(side)) >= 0)
        give(side, (VIP_UINT32)bytes);
    must(VipDisconnect(side->vi), "VipDisconnect");
}

/* Asks everyone in sight, until somebody waits for "pingpong". */
static void connect_to_anyone(struct side *side) {
    union address room[16], local, remote;
    VIP_NET_ADDRESS *found[16];
    VIP_VI_ATTRIBUTES attributes;
    VIP_AUTODISCOVERY_LIST list;
    double end = seconds() + 10.0;
    VIP_ULONG i;

    make_address(side, side->limits.LocalNicAddress, "client", &local);
    do {
        for (i = 0; i < 16; i++)
            found[i] = &room[i].net;
        list.NumberOfHops = 1;
        list.ADAddrArray = found;
        list.NumAdAddrs = 16;
        must(VipQuerySystemManagementInfo(side->nic, VIP_SMI_AUTODISCOVERY, &list), "VipQuerySystemManagementInfo");
        for (i = 0; i < list.NumAdAddrs; i++) {
            make_address(side, found[i]->HostAddress, "pingpong", &remote);
            if (VipConnectRequest(side->vi, &local.net, &remote.net, 1000, &attributes) == VIP_SUCCESS)
                return;
        }
    } while (seconds() < end);
    fprintf(stderr, "vi_pingpong: nobody waits for us\n");
    exit(1);
}

static void connect_by_name(struct side *side, char *name) {
    union address host, local, remote;
    VIP_VI_ATTRIBUTES attributes;

    must(VipNSInit(side->nic, NULL), "VipNSInit");
    must(VipNSGetHostByName(side->nic, name, &host.net, 0), "VipNSGetHostByName");
    make_address(side, side->limits.LocalNicAddress, "client", &local);
    make_address(side, host.net.HostAddress, "pingpong", &remote);
    must(VipConnectRequest(side->vi, &local.net, &remote.net, 10000, &attributes), "VipConnectRequest");
}

static void play(struct side *side, VIP_UINT32 bytes, long rounds) {
    VIP_WAIT_REPORT report;
    double start;
    long i;

    for (i = 0; i < rounds / 10 + 1; i++) { /* warm up, so that an adaptive wait has seen something */
        give(side, bytes);
        take(side);
    }
    start = seconds();
    for (i = 0; i < rounds; i++) {
        give(side, bytes);
        if (take(side) != (long)bytes) {
            fprintf(stderr, "vi_pingpong: the ball came back changed, or not at all\n");
            exit(1);
        }
    }
    printf("%ld rounds of %lu bytes: %.3f us each\n", rounds, (unsigned long)bytes,
           (seconds() - start) * 1e6 / (double)rounds);
    must(VipQueryViWait(side->vi, VIP_TRUE, &report), "VipQueryViWait");
    printf("waited %lu times: %lu times polling was enough, %lu times it slept\n", (unsigned long)report.Waits,
           (unsigned long)report.SpinHits, (unsigned long)report.Blocks);
    must(VipDisconnect(side->vi), "VipDisconnect");
}

int main(int argc, char **argv) {
    struct side side;
    int server, more = 3;
    char *name = NULL;
    unsigned long bytes;
    long rounds;

    if (argc < 3 || (strcmp(argv[1], "server") != 0 && strcmp(argv[1], "client") != 0)) {
        fprintf(stderr, "usage: vi_pingpong server|client DEVICE [NAME] [BYTES [ROUNDS [WAITING]]]\n");
        return 2;
    }
    server = strcmp(argv[1], "server") == 0;
    if (!server && strncmp(argv[2], "udp", 3) == 0 && argc > 3)
        name = argv[more++];
    bytes = argc > more ? strtoul(argv[more], NULL, 10) : 8;
    rounds = argc > more + 1 ? strtol(argv[more + 1], NULL, 10) : 100000;
    if (bytes > BYTES_MAX || rounds < 1) {
        fprintf(stderr, "vi_pingpong: up to %d bytes, at least one round\n", BYTES_MAX);
        return 2;
    }

    open_side(&side, argv[2]);
    set_policy(&side, argc > more + 2 ? argv[more + 2] : "adaptive");
    if (server) {
        serve(&side);
    } else {
        if (name != NULL)
            connect_by_name(&side, name);
        else
            connect_to_anyone(&side);
        play(&side, (VIP_UINT32)bytes, rounds);
    }
    must(VipCloseNic(side.nic), "VipCloseNic");
    return 0;
}
