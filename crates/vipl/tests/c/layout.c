/* Checks the header's binary interface: sizes, offsets and values, and that every call can be linked. */
#include "test.h"

#include "vipl_kiban.h"

static void return_codes_have_the_numbers_of_the_guide(void) {
    EQUAL(VIP_SUCCESS, 0);
    EQUAL(VIP_NOT_DONE, 1);
    EQUAL(VIP_INVALID_PARAMETER, 2);
    EQUAL(VIP_ERROR_RESOURCE, 3);
    EQUAL(VIP_TIMEOUT, 4);
    EQUAL(VIP_REJECT, 5);
    EQUAL(VIP_INVALID_RELIABILITY_LEVEL, 6);
    EQUAL(VIP_INVALID_MTU, 7);
    EQUAL(VIP_INVALID_QOS, 8);
    EQUAL(VIP_INVALID_PTAG, 9);
    EQUAL(VIP_INVALID_RDMAREAD, 10);
    EQUAL(VIP_DESCRIPTOR_ERROR, 11);
    EQUAL(VIP_INVALID_STATE, 12);
    EQUAL(VIP_ERROR_NAMESERVICE, 13);
    EQUAL(VIP_NO_MATCH, 14);
    EQUAL(VIP_NOT_REACHABLE, 15);
    EQUAL(VIP_ERROR_NOT_SUPPORTED, 16);
    EQUAL(sizeof(VIP_RETURN), 4);
}

static void status_bits_and_operations_do_not_overlap(void) {
    const VIP_UINT32 errors[] = {VIP_STATUS_FORMAT_ERROR,       VIP_STATUS_PROTECTION_ERROR, VIP_STATUS_LENGTH_ERROR,
                                 VIP_STATUS_PARTIAL_ERROR,      VIP_STATUS_DESC_FLUSHED_ERROR,
                                 VIP_STATUS_TRANSPORT_ERROR,    VIP_STATUS_RDMA_PROT_ERROR,
                                 VIP_STATUS_REMOTE_DESC_ERROR};
    VIP_UINT32 all = 0;
    unsigned i;
    for (i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        EQUAL(all & errors[i], 0);
        EQUAL(errors[i], 2u << i);
        all |= errors[i];
    }
    EQUAL(all, VIP_STATUS_ERROR_MASK);
    EQUAL(VIP_STATUS_DONE | VIP_STATUS_ERROR_MASK | VIP_STATUS_OP_MASK | VIP_STATUS_IMMEDIATE | VIP_STATUS_RESERVED,
          0xffffffffUL);
    EQUAL(VIP_STATUS_OP_SEND, 0 << 16);
    EQUAL(VIP_STATUS_OP_RECEIVE, 1 << 16);
    EQUAL(VIP_STATUS_OP_RDMA_WRITE, 2 << 16);
    EQUAL(VIP_STATUS_OP_REMOTE_RDMA_WRITE, 3 << 16);
    EQUAL(VIP_STATUS_OP_RDMA_READ, 4 << 16);
    EQUAL(VIP_CONTROL_OP_MASK | VIP_CONTROL_IMMEDIATE | VIP_CONTROL_QFENCE | VIP_CONTROL_RESERVED, 0xffff);
}

static void a_descriptor_has_64_bytes_in_little_endian_order(void) {
    union {
        VIP_DESCRIPTOR d;
        unsigned char byte[64];
    } u;
    memset(&u, 0, sizeof u);
    u.d.CS.Next.AddressBits = ((VIP_UINT64)0x08070605u << 32) | 0x04030201u;
    u.d.CS.NextHandle = 0x0c0b0a09;
    u.d.CS.SegCount = 0x0e0d;
    u.d.CS.Control = 0x100f;
    u.d.CS.Reserved = 0x14131211;
    u.d.CS.ImmediateData = 0x18171615;
    u.d.CS.Length = 0x1c1b1a19;
    u.d.CS.Status = 0x201f1e1d;
    u.d.DS[0].Remote.Data.AddressBits = ((VIP_UINT64)0x28272625u << 32) | 0x24232221u;
    u.d.DS[0].Remote.Handle = 0x2c2b2a29;
    u.d.DS[0].Remote.Reserved = 0x302f2e2d;
    u.d.DS[1].Local.Data.AddressBits = ((VIP_UINT64)0x38373635u << 32) | 0x34333231u;
    u.d.DS[1].Local.Handle = 0x3c3b3a39;
    u.d.DS[1].Local.Length = 0x403f3e3d;
    {
        int i;
        for (i = 0; i < 64; i++)
            EQUAL(u.byte[i], i + 1);
    }
    CHECK((void *)&u.d.Control == (void *)&u.d.CS && (void *)&u.d.Data[1] == (void *)&u.d.DS[1]);
}

static void enumerations_have_the_values_of_the_guide(void) {
    EQUAL(VIP_STATE_IDLE, 0);
    EQUAL(VIP_STATE_CONNECTED, 1);
    EQUAL(VIP_STATE_CONNECT_PENDING, 2);
    EQUAL(VIP_STATE_ERROR, 3);
    EQUAL(VIP_ERROR_POST_DESC, 0);
    EQUAL(VIP_ERROR_CONN_LOST, 1);
    EQUAL(VIP_ERROR_RECVQ_EMPTY, 2);
    EQUAL(VIP_ERROR_VI_OVERRUN, 3);
    EQUAL(VIP_ERROR_RDMAW_PROT, 4);
    EQUAL(VIP_ERROR_RDMAW_DATA, 5);
    EQUAL(VIP_ERROR_RDMAW_ABORT, 6);
    EQUAL(VIP_ERROR_RDMAR_PROT, 7);
    EQUAL(VIP_ERROR_COMP_PROT, 8);
    EQUAL(VIP_ERROR_RDMA_TRANSPORT, 9);
    EQUAL(VIP_ERROR_CATASTROPHIC, 10);
    EQUAL(VIP_RESOURCE_NIC, 0);
    EQUAL(VIP_RESOURCE_VI, 1);
    EQUAL(VIP_RESOURCE_CQ, 2);
    EQUAL(VIP_RESOURCE_DESCRIPTOR, 3);
    EQUAL(VIP_SERVICE_UNRELIABLE, 1);
    EQUAL(VIP_SERVICE_RELIABLE_DELIVERY, 2);
    EQUAL(VIP_SERVICE_RELIABLE_RECEPTION, 4);
    EQUAL(VIP_INFINITE, 0xffffffffUL);
    EQUAL(VIP_SMI_AUTODISCOVERY, 1);
    EQUAL(VIP_DESCRIPTOR_ALIGNMENT, 64);
}

typedef void (*Call)(void);

static void every_call_is_in_the_library(void) {
    const Call calls[] = {
        (Call)VipOpenNic,          (Call)VipCloseNic,          (Call)VipQueryNic,
        (Call)VipCreatePtag,       (Call)VipDestroyPtag,       (Call)VipRegisterMem,
        (Call)VipDeregisterMem,    (Call)VipQueryMem,          (Call)VipSetMemAttributes,
        (Call)VipCreateVi,         (Call)VipDestroyVi,         (Call)VipQueryVi,
        (Call)VipSetViAttributes,  (Call)VipPostSend,          (Call)VipPostRecv,
        (Call)VipSendDone,         (Call)VipRecvDone,          (Call)VipSendWait,
        (Call)VipRecvWait,         (Call)VipSendNotify,        (Call)VipRecvNotify,
        (Call)VipCreateCQ,         (Call)VipDestroyCQ,         (Call)VipResizeCQ,
        (Call)VipCQDone,           (Call)VipCQWait,            (Call)VipCQNotify,
        (Call)VipConnectWait,      (Call)VipConnectAccept,     (Call)VipConnectReject,
        (Call)VipConnectRequest,   (Call)VipDisconnect,        (Call)VipConnectPeerRequest,
        (Call)VipConnectPeerDone,  (Call)VipConnectPeerWait,   (Call)VipNSInit,
        (Call)VipNSGetHostByName,  (Call)VipNSGetHostByAddr,   (Call)VipNSShutdown,
        (Call)VipErrorCallback,    (Call)VipQuerySystemManagementInfo,
        (Call)VipGetUserData,      (Call)VipSetUserData,       (Call)VipAddTagCQ,
        (Call)VipRemoveTagCQ,      (Call)VipPostDeferredSends, (Call)VipSetViWait,
        (Call)VipSetCQWait,        (Call)VipRecvWaitHybrid,    (Call)VipRecvWaitAdaptive,
        (Call)VipQueryViWait,      (Call)VipQueryCQWait,
    };
    unsigned i, j;
    EQUAL(sizeof calls / sizeof calls[0], 52);
    for (i = 0; i < sizeof calls / sizeof calls[0]; i++)
        for (j = 0; j < i; j++)
            CHECK(calls[i] != calls[j]);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(return_codes_have_the_numbers_of_the_guide);
    RUN(status_bits_and_operations_do_not_overlap);
    RUN(a_descriptor_has_64_bytes_in_little_endian_order);
    RUN(enumerations_have_the_values_of_the_guide);
    RUN(every_call_is_in_the_library);
    return test_end();
}
