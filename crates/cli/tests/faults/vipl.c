// A VIPL server and a client that check the result of every call. The server echoes messages over a VI in shared memory.
//
//     vipl server DEVICE             serves one client after another, even after errors; prints "ready NAME"
//     vipl client NAME COUNT         exit status: 0 all data came back, 1 an error was reported, 2 wrong data
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <vipl.h>

enum { BYTES = 3000 };

static struct {
    VIP_NIC_HANDLE nic;
    VIP_NIC_ATTRIBUTES limits;
    VIP_PROTECTION_HANDLE tag;
    VIP_MEM_HANDLE memory;
    // Two descriptors, followed by their buffers.
    VIP_DESCRIPTOR *in, *out;
    unsigned char *heard, *sent;
} side;

union address {
    VIP_NET_ADDRESS net;
    unsigned char room[256];
};

static int failed(const char *what, VIP_RETURN code) {
    fprintf(stderr, "vipl: %s: code %d\n", what, (int)code);
    return 1;
}

#define TRY(call)                                             \
    do {                                                      \
        VIP_RETURN code_ = call;                              \
        if (code_ != VIP_SUCCESS) return failed(#call, code_); \
    } while (0)

static int open_side(const char *device) {
    VIP_MEM_ATTRIBUTES attributes = {0};
    void *block;
    TRY(VipOpenNic(device, &side.nic));
    TRY(VipQueryNic(side.nic, &side.limits));
    TRY(VipCreatePtag(side.nic, &side.tag));
    if (posix_memalign(&block, VIP_DESCRIPTOR_ALIGNMENT, 128 + 2 * BYTES) != 0) {
        fprintf(stderr, "vipl: out of memory\n");
        return 1;
    }
    memset(block, 0, 128 + 2 * BYTES);
    side.in = block;
    side.out = (VIP_DESCRIPTOR *)(void *)((char *)block + 64);
    side.heard = (unsigned char *)block + 128;
    side.sent = side.heard + BYTES;
    attributes.Ptag = side.tag;
    TRY(VipRegisterMem(side.nic, block, 128 + 2 * BYTES, &attributes, &side.memory));
    return 0;
}

static int create(VIP_VI_HANDLE *vi) {
    VIP_VI_ATTRIBUTES attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
    attributes.MaxTransferSize = BYTES;
    attributes.Ptag = side.tag;
    TRY(VipCreateVi(side.nic, &attributes, NULL, NULL, vi));
    return 0;
}

static void make_address(const unsigned char *host, const char *name, union address *to) {
    to->net.HostAddressLen = side.limits.NicAddressLen;
    to->net.DiscriminatorLen = (VIP_UINT16)strlen(name);
    unsigned char *at = to->room + offsetof(VIP_NET_ADDRESS, HostAddress);
    memcpy(at, host, side.limits.NicAddressLen);
    memcpy(at + side.limits.NicAddressLen, name, strlen(name));
}

static void fill(VIP_DESCRIPTOR *descriptor, unsigned char *data) {
    memset(descriptor, 0, sizeof *descriptor);
    descriptor->CS.Control = VIP_CONTROL_OP_SENDRECV;
    descriptor->CS.SegCount = 1;
    descriptor->CS.Length = BYTES;
    descriptor->DS[0].Local.Data.Address = data;
    descriptor->DS[0].Local.Handle = side.memory;
    descriptor->DS[0].Local.Length = BYTES;
}

static int post_receive(VIP_VI_HANDLE vi) {
    fill(side.in, side.heard);
    TRY(VipPostRecv(vi, side.in, side.memory));
    return 0;
}

static int receive(VIP_VI_HANDLE vi) {
    VIP_DESCRIPTOR *done;
    TRY(VipRecvWait(vi, VIP_INFINITE, &done));
    return 0;
}

static int send_all(VIP_VI_HANDLE vi, unsigned char *data) {
    VIP_DESCRIPTOR *done;
    fill(side.out, data);
    TRY(VipPostSend(vi, side.out, side.memory));
    TRY(VipSendWait(vi, VIP_INFINITE, &done));
    return 0;
}

static int serve_one(VIP_VI_HANDLE vi, const union address *local) {
    union address remote;
    VIP_VI_ATTRIBUTES attributes;
    VIP_CONN_HANDLE request;
    if (post_receive(vi) != 0) return 1;
    TRY(VipConnectWait(side.nic, &local->net, VIP_INFINITE, &remote.net, &attributes, &request));
    TRY(VipConnectAccept(request, vi));
    // There is only one buffer, so it is reposted only after its contents have been sent.
    while (receive(vi) == 0)
        if (send_all(vi, side.heard) != 0 || post_receive(vi) != 0) break;
    return 0;
}

static int serve(const char *device) {
    union address local;
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR *done;
    if (open_side(device) != 0) return 1;
    make_address(side.limits.LocalNicAddress, "faults", &local);
    // Do not use stdio, which loses its buffered output if a write is interrupted.
    char ready[64];
    int said = snprintf(ready, sizeof ready, "ready %s\n", strchr(device, ':') ? strchr(device, ':') + 1 : device);
    while (write(1, ready, (size_t)said) != said)
        if (errno != EINTR) {
            perror("vipl: write");
            return 1;
        }
    for (;;) {
        if (create(&vi) != 0) continue;
        serve_one(vi, &local);
        VipDisconnect(vi);
        // A VI that still has descriptors cannot be destroyed.
        VIP_RETURN code;
        do code = VipRecvDone(vi, &done);
        while (code == VIP_SUCCESS || code == VIP_DESCRIPTOR_ERROR);
        do code = VipSendDone(vi, &done);
        while (code == VIP_SUCCESS || code == VIP_DESCRIPTOR_ERROR);
        code = VipDestroyVi(vi);
        if (code != VIP_SUCCESS) failed("VipDestroyVi", code);
    }
}

static int call(char *name, unsigned long count) {
    union address host, local, remote;
    VIP_VI_ATTRIBUTES attributes;
    VIP_VI_HANDLE vi;
    if (open_side("shm") != 0 || create(&vi) != 0 || post_receive(vi) != 0) return 1;
    TRY(VipNSInit(side.nic, NULL));
    TRY(VipNSGetHostByName(side.nic, name, &host.net, 0));
    make_address(side.limits.LocalNicAddress, "client", &local);
    make_address(host.net.HostAddress, "faults", &remote);
    // Between two clients, the server is briefly not waiting for a connection.
    VIP_RETURN code;
    time_t end = time(0) + 10;
    do code = VipConnectRequest(vi, &local.net, &remote.net, 10000, &attributes);
    while (code == VIP_NO_MATCH && time(0) < end);
    if (code != VIP_SUCCESS) return failed("VipConnectRequest", code);
    for (unsigned long round = 0; round < count; round++) {
        for (int at = 0; at < BYTES; at++) side.sent[at] = (unsigned char)(at * 7 + round);
        if (send_all(vi, side.sent) != 0 || receive(vi) != 0) return 1;
        if (memcmp(side.sent, side.heard, BYTES) != 0) {
            fprintf(stderr, "vipl: other bytes came\n");
            return 2;
        }
        if (round + 1 < count && post_receive(vi) != 0) return 1;
    }
    TRY(VipDisconnect(vi));
    TRY(VipCloseNic(side.nic));
    free(side.in);
    return 0;
}

int main(int count, char **words) {
    if (count == 3 && strcmp(words[1], "server") == 0) return serve(words[2]);
    if (count == 4 && strcmp(words[1], "client") == 0) return call(words[2], strtoul(words[3], 0, 10));
    fprintf(stderr, "vipl: server DEVICE, or client NAME COUNT\n");
    return 2;
}
