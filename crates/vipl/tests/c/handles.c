/* Invalid handles and pointers are refused, never dereferenced. */
#include "test.h"

#include "vipl_kiban.h"

#define BAD(call) EQUAL(call, VIP_INVALID_PARAMETER)

static void nothing_here(VIP_PVOID a, VIP_NIC_HANDLE b, VIP_VI_HANDLE c, VIP_DESCRIPTOR *d) {
    (void)a, (void)b, (void)c, (void)d;
}

static void nothing_there(VIP_PVOID a, VIP_NIC_HANDLE b, VIP_VI_HANDLE c, VIP_BOOLEAN d) {
    (void)a, (void)b, (void)c, (void)d;
}

static void every_call_refuses(VIP_PVOID handle, Side *side) {
    VIP_NIC_ATTRIBUTES nic;
    VIP_MEM_ATTRIBUTES memory;
    VIP_VI_ATTRIBUTES vi = attributes_for(side, VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_PVOID out;
    VIP_MEM_HANDLE memory_handle;
    VIP_VI_STATE state;
    VIP_BOOLEAN a, b;
    VIP_DESCRIPTOR *d = plain(side, 0, 0, 8), *done;
    VIP_CHAR name[64];
    VIP_ULONG length = sizeof name;
    VIP_WAIT_REPORT report;
    VIP_AUTODISCOVERY_LIST list = {0, NULL, 0};
    Address address;
    address_of(side->nic, "x", &address);
    memory.Ptag = side->tag;
    memory.EnableRdmaRead = memory.EnableRdmaWrite = VIP_FALSE;

    BAD(VipCloseNic(handle));
    BAD(VipQueryNic(handle, &nic));
    BAD(VipCreatePtag(handle, &out));
    BAD(VipDestroyPtag(handle, side->tag));
    BAD(VipDestroyPtag(side->nic, handle));
    BAD(VipRegisterMem(handle, side->data, 8, &memory, &memory_handle));
    BAD(VipDeregisterMem(handle, side->block, side->memory));
    BAD(VipQueryMem(handle, side->block, side->memory, &memory));
    BAD(VipSetMemAttributes(handle, side->block, side->memory, &memory));
    BAD(VipCreateVi(handle, &vi, NULL, NULL, &out));
    if (handle) {
        BAD(VipCreateVi(side->nic, &vi, handle, NULL, &out));
        BAD(VipCreateVi(side->nic, &vi, NULL, handle, &out));
    }
    BAD(VipDestroyVi(handle));
    BAD(VipQueryVi(handle, &state, &vi, &a, &b));
    BAD(VipSetViAttributes(handle, &vi));
    BAD(VipPostSend(handle, d, side->memory));
    BAD(VipPostRecv(handle, d, side->memory));
    BAD(VipSendDone(handle, &done));
    BAD(VipRecvDone(handle, &done));
    BAD(VipSendWait(handle, VIP_INFINITE, &done));
    BAD(VipRecvWait(handle, VIP_INFINITE, &done));
    BAD(VipSendNotify(handle, NULL, nothing_here));
    BAD(VipRecvNotify(handle, NULL, nothing_here));
    BAD(VipCreateCQ(handle, 8, &out));
    BAD(VipDestroyCQ(handle));
    BAD(VipResizeCQ(handle, 8));
    BAD(VipCQDone(handle, &out, &a));
    BAD(VipCQWait(handle, VIP_INFINITE, &out, &a));
    BAD(VipCQNotify(handle, NULL, nothing_there));
    BAD(VipConnectWait(handle, &address.net, VIP_INFINITE, &address.net, &vi, &out));
    BAD(VipConnectAccept(handle, handle));
    BAD(VipConnectReject(handle));
    BAD(VipConnectRequest(handle, &address.net, &address.net, VIP_INFINITE, &vi));
    BAD(VipDisconnect(handle));
    BAD(VipConnectPeerRequest(handle, &address.net, &address.net, VIP_INFINITE));
    BAD(VipConnectPeerDone(handle, &vi));
    BAD(VipConnectPeerWait(handle, &vi));
    BAD(VipNSInit(handle, NULL));
    BAD(VipNSGetHostByName(handle, name, &address.net, 0));
    BAD(VipNSGetHostByAddr(handle, &address.net, name, &length));
    BAD(VipNSShutdown(handle));
    BAD(VipErrorCallback(handle, NULL, NULL));
    BAD(VipQuerySystemManagementInfo(handle, VIP_SMI_AUTODISCOVERY, &list));
    CHECK(VipGetUserData(handle) == NULL);
    VipSetUserData(handle, &list);
    BAD(VipAddTagCQ(handle, &out, 0, 0));
    BAD(VipRemoveTagCQ(handle, NULL, 0));
    BAD(VipPostDeferredSends(handle, VIP_FALSE, &a));
    BAD(VipSetViWait(handle, VIP_WAIT_POLL, 0));
    BAD(VipSetCQWait(handle, VIP_WAIT_POLL, 0));
    BAD(VipRecvWaitHybrid(handle, 1, VIP_INFINITE, &done));
    BAD(VipRecvWaitAdaptive(handle, VIP_INFINITE, &done));
    BAD(VipQueryViWait(handle, VIP_TRUE, &report));
    BAD(VipQueryCQWait(handle, &report));
}

static void every_call_refuses_a_null_handle(void) {
    Side side;
    side_open(&side);
    every_call_refuses(NULL, &side);
    side_close(&side);
}

static void every_call_refuses_an_invalid_handle(void) {
    static char somewhere[64];
    Side side;
    side_open(&side);
    every_call_refuses((VIP_PVOID)(uintptr_t)1, &side);
    every_call_refuses((VIP_PVOID)(uintptr_t)0xdeadbeef, &side);
    every_call_refuses((VIP_PVOID) ~(uintptr_t)0, &side);
    every_call_refuses(somewhere, &side);
    every_call_refuses((VIP_PVOID)((uintptr_t)side.nic ^ 0x10000), &side);
    side_close(&side);
}

static void a_stale_handle_is_refused_even_if_its_slot_is_reused(void) {
    Side side;
    VIP_VI_HANDLE vi, again;
    VIP_CQ_HANDLE cq;
    VIP_NIC_HANDLE nic;
    side_open(&side);
    vi = vi_of(&side, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    OK(VipDestroyVi(vi));
    again = vi_of(&side, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    CHECK(vi != again);
    every_call_refuses(vi, &side);
    OK(VipCreateCQ(side.nic, 8, &cq));
    OK(VipDestroyCQ(cq));
    every_call_refuses(cq, &side);
    OK(VipOpenNic(test_device, &nic));
    OK(VipCloseNic(nic));
    every_call_refuses(nic, &side);
    OK(VipDestroyVi(again));
    side_close(&side);
}

static void a_handle_of_another_kind_is_refused(void) {
    Side side;
    VIP_VI_HANDLE vi;
    VIP_CQ_HANDLE cq;
    VIP_DESCRIPTOR *done;
    VIP_NIC_ATTRIBUTES nic;
    VIP_BOOLEAN receives;
    side_open(&side);
    vi = vi_of(&side, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    OK(VipCreateCQ(side.nic, 8, &cq));
    BAD(VipQueryNic(vi, &nic));
    BAD(VipQueryNic(cq, &nic));
    BAD(VipRecvDone(side.nic, &done));
    BAD(VipRecvDone(cq, &done));
    BAD(VipCQDone(vi, &vi, &receives));
    BAD(VipCQDone(side.nic, &vi, &receives));
    BAD(VipDestroyVi(side.tag));
    BAD(VipDestroyPtag(side.nic, vi));
    side_close(&side);
}

static void a_handle_of_another_nic_is_refused(void) {
    Pair pair;
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE vi;
    VIP_VI_ATTRIBUTES attributes;
    VIP_MEM_ATTRIBUTES memory;
    VIP_MEM_HANDLE handle;
    if (is_loopback())
        return; /* the loopback device has only one NIC */
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    OK(VipCreateCQ(pair.there.nic, 8, &cq));
    attributes = attributes_for(&pair.here, VIP_SERVICE_RELIABLE_DELIVERY);
    BAD(VipCreateVi(pair.here.nic, &attributes, cq, NULL, &vi));
    attributes.Ptag = pair.there.tag;
    EQUAL(VipCreateVi(pair.here.nic, &attributes, NULL, NULL, &vi), VIP_INVALID_PTAG);
    memory.Ptag = pair.there.tag;
    memory.EnableRdmaRead = memory.EnableRdmaWrite = VIP_FALSE;
    EQUAL(VipRegisterMem(pair.here.nic, pair.here.data, 8, &memory, &handle), VIP_INVALID_PTAG);
    BAD(VipDestroyPtag(pair.here.nic, pair.there.tag));
    pair_close(&pair);
}

static void a_null_pointer_for_a_result_is_refused(void) {
    Side side;
    VIP_VI_HANDLE vi;
    VIP_CQ_HANDLE cq;
    VIP_VI_STATE state;
    VIP_VI_ATTRIBUTES attributes;
    VIP_BOOLEAN empty;
    VIP_NIC_HANDLE nic;
    Address address;
    side_open(&side);
    vi = vi_of(&side, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    attributes = attributes_for(&side, VIP_SERVICE_RELIABLE_DELIVERY);
    address_of(side.nic, "x", &address);
    OK(VipCreateCQ(side.nic, 8, &cq));
    BAD(VipOpenNic(NULL, &nic));
    BAD(VipOpenNic(test_device, NULL));
    BAD(VipQueryNic(side.nic, NULL));
    BAD(VipCreatePtag(side.nic, NULL));
    BAD(VipRegisterMem(side.nic, side.data, 8, NULL, NULL));
    BAD(VipQueryMem(side.nic, side.data, side.memory, NULL));
    BAD(VipSetMemAttributes(side.nic, side.data, side.memory, NULL));
    BAD(VipCreateVi(side.nic, NULL, NULL, NULL, &vi));
    BAD(VipCreateVi(side.nic, &attributes, NULL, NULL, NULL));
    BAD(VipQueryVi(vi, NULL, &attributes, &empty, &empty));
    BAD(VipQueryVi(vi, &state, NULL, &empty, &empty));
    BAD(VipQueryVi(vi, &state, &attributes, NULL, &empty));
    BAD(VipQueryVi(vi, &state, &attributes, &empty, NULL));
    BAD(VipSetViAttributes(vi, NULL));
    BAD(VipPostSend(vi, NULL, side.memory));
    BAD(VipPostRecv(vi, NULL, side.memory));
    BAD(VipSendDone(vi, NULL));
    BAD(VipRecvDone(vi, NULL));
    BAD(VipSendWait(vi, 0, NULL));
    BAD(VipRecvWait(vi, 0, NULL));
    BAD(VipSendNotify(vi, NULL, NULL));
    BAD(VipRecvNotify(vi, NULL, NULL));
    BAD(VipCreateCQ(side.nic, 8, NULL));
    BAD(VipCQDone(cq, NULL, &empty));
    BAD(VipCQWait(cq, 0, &vi, NULL));
    BAD(VipCQNotify(cq, NULL, NULL));
    BAD(VipConnectWait(side.nic, NULL, 0, &address.net, &attributes, &cq));
    BAD(VipConnectWait(side.nic, &address.net, 0, NULL, &attributes, &cq));
    BAD(VipConnectWait(side.nic, &address.net, 0, &address.net, NULL, &cq));
    BAD(VipConnectWait(side.nic, &address.net, 0, &address.net, &attributes, NULL));
    BAD(VipConnectRequest(vi, NULL, &address.net, 0, &attributes));
    BAD(VipConnectRequest(vi, &address.net, NULL, 0, &attributes));
    BAD(VipConnectRequest(vi, &address.net, &address.net, 0, NULL));
    BAD(VipConnectPeerRequest(vi, NULL, &address.net, 0));
    BAD(VipConnectPeerRequest(vi, &address.net, NULL, 0));
    BAD(VipNSGetHostByName(side.nic, NULL, &address.net, 0));
    BAD(VipQuerySystemManagementInfo(side.nic, VIP_SMI_AUTODISCOVERY, NULL));
    BAD(VipQueryViWait(vi, VIP_TRUE, NULL));
    BAD(VipSetViWait(vi, (VIP_WAIT_POLICY)77, 0));
    side_close(&side);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(every_call_refuses_a_null_handle);
    RUN(every_call_refuses_an_invalid_handle);
    RUN(a_stale_handle_is_refused_even_if_its_slot_is_reused);
    RUN(a_handle_of_another_kind_is_refused);
    RUN(a_handle_of_another_nic_is_refused);
    RUN(a_null_pointer_for_a_result_is_refused);
    return test_end();
}
