/* NICs, protection tags, registered memory, and their limits. */
#include "test.h"

#define BAD(call) EQUAL(call, VIP_INVALID_PARAMETER)

static void a_nic_reports_its_limits_and_address(void) {
    VIP_NIC_HANDLE nic;
    VIP_NIC_ATTRIBUTES a;
    OK(VipOpenNic(test_device, &nic));
    memset(&a, 0xee, sizeof a);
    OK(VipQueryNic(nic, &a));
    CHECK(memchr(a.Name, 0, sizeof a.Name) != NULL && a.Name[0] != 0);
    EQUAL(a.ThreadSafe, VIP_TRUE);
    /* Old programs keep whole addresses in 40 bytes, with discriminators of 8 or 16 bytes. */
    CHECK(a.NicAddressLen <= 20 && a.LocalNicAddress != NULL);
    CHECK(is_loopback() == (a.NicAddressLen == 0));
    CHECK(a.MaxDiscriminatorLen >= 16);
    CHECK(a.MaxVI >= 64 && a.MaxCQ >= 16 && a.MaxCQEntries >= 1024 && a.MaxPtags >= 16);
    /* The architecture requires support for messages of at least 32 KB; cLAN supported 252 segments. */
    CHECK(a.MaxTransferSize >= 32768 && a.NativeMTU >= 64);
    CHECK(a.MaxSegmentsPerDesc >= 252 && a.MaxDescriptorsPerQueue >= 64);
    CHECK(a.MaxRegisterRegions >= 64 && a.MaxRegisterBlockBytes >= 1 << 20);
    CHECK(a.MaxRegisterBytes >= a.MaxRegisterBlockBytes);
    EQUAL(a.ReliabilityLevelSupport, 7);
    EQUAL(a.RDMAReadSupport & VIP_SERVICE_UNRELIABLE, 0);
    OK(VipCloseNic(nic));
    BAD(VipCloseNic(nic));
}

static void device_names_of_old_programs_open_a_nic(void) {
    const char *names[] = {"", "nic0", "/dev/clanvi0", "/dev/via_lo", "VINIC"};
    unsigned i;
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        VIP_NIC_HANDLE nic;
        OK(VipOpenNic(names[i], &nic));
        OK(VipCloseNic(nic));
    }
}

static void an_invalid_device_name_is_refused(void) {
    VIP_NIC_HANDLE nic = &nic;
    BAD(VipOpenNic("udp:nowhere:at:all", &nic));
    BAD(VipOpenNic("udp:127.0.0.1:65536", &nic));
    BAD(VipOpenNic("shm:../../etc", &nic));
    CHECK(nic == NULL);
}

static void tags_are_limited_and_a_tag_in_use_cannot_be_destroyed(void) {
    Side side;
    VIP_PROTECTION_HANDLE tags[4096];
    VIP_VI_HANDLE vi;
    VIP_ULONG made = 0, i;
    VIP_RETURN answer = VIP_SUCCESS;
    side_open(&side);
    CHECK(side.limits.MaxPtags <= 4096);
    while (made < 4096 && (answer = VipCreatePtag(side.nic, &tags[made])) == VIP_SUCCESS)
        made++;
    EQUAL(answer, VIP_ERROR_RESOURCE);
    EQUAL(made, side.limits.MaxPtags - 1);
    for (i = 0; i < made; i++)
        OK(VipDestroyPtag(side.nic, tags[i]));
    BAD(VipDestroyPtag(side.nic, tags[0]));
    EQUAL(VipDestroyPtag(side.nic, side.tag), VIP_ERROR_RESOURCE); /* used by memory */
    OK(VipDeregisterMem(side.nic, side.block, side.memory));
    vi = vi_of(&side, VIP_SERVICE_UNRELIABLE, NULL, NULL);
    EQUAL(VipDestroyPtag(side.nic, side.tag), VIP_ERROR_RESOURCE); /* used by a VI */
    OK(VipDestroyVi(vi));
    OK(VipDestroyPtag(side.nic, side.tag));
    side_close(&side);
}

static void memory_is_registered_queried_changed_and_deregistered(void) {
    Side side;
    VIP_MEM_ATTRIBUTES given, queried;
    VIP_MEM_HANDLE memory;
    VIP_PROTECTION_HANDLE other;
    side_open(&side);
    OK(VipCreatePtag(side.nic, &other));
    given.Ptag = other;
    given.EnableRdmaWrite = VIP_TRUE;
    given.EnableRdmaRead = VIP_FALSE;
    OK(VipRegisterMem(side.nic, side.data + 100, 1000, &given, &memory));
    CHECK(memory != 0 && memory != side.memory);
    OK(VipQueryMem(side.nic, side.data + 100, memory, &queried));
    CHECK(queried.Ptag == other && queried.EnableRdmaWrite && !queried.EnableRdmaRead);
    OK(VipQueryMem(side.nic, side.data + 1099, memory, &queried));
    BAD(VipQueryMem(side.nic, side.data + 99, memory, &queried));
    BAD(VipQueryMem(side.nic, side.data + 1100, memory, &queried));
    BAD(VipQueryMem(side.nic, side.data + 100, memory + 1, &queried));
    given.Ptag = side.tag;
    given.EnableRdmaRead = VIP_TRUE;
    OK(VipSetMemAttributes(side.nic, side.data + 100, memory, &given));
    OK(VipQueryMem(side.nic, side.data + 100, memory, &queried));
    CHECK(queried.Ptag == side.tag && queried.EnableRdmaRead);
    given.Ptag = (VIP_PROTECTION_HANDLE)&given;
    EQUAL(VipSetMemAttributes(side.nic, side.data + 100, memory, &given), VIP_INVALID_PTAG);
    BAD(VipDeregisterMem(side.nic, side.data + 101, memory));
    OK(VipDeregisterMem(side.nic, side.data + 100, memory));
    BAD(VipDeregisterMem(side.nic, side.data + 100, memory));
    BAD(VipQueryMem(side.nic, side.data + 100, memory, &queried));
    side_close(&side);
}

static void registering_invalid_memory_fails(void) {
    Side side;
    VIP_MEM_ATTRIBUTES given;
    VIP_MEM_HANDLE memory = 7;
    side_open(&side);
    given.Ptag = side.tag;
    given.EnableRdmaWrite = given.EnableRdmaRead = VIP_FALSE;
    BAD(VipRegisterMem(side.nic, NULL, 100, &given, &memory));
    BAD(VipRegisterMem(side.nic, side.data, 0, &given, &memory));
    BAD(VipRegisterMem(side.nic, (VIP_PVOID)(uintptr_t)-64, 128, &given, &memory));
    given.Ptag = (VIP_PROTECTION_HANDLE)&given;
    EQUAL(VipRegisterMem(side.nic, side.data, 100, &given, &memory), VIP_INVALID_PTAG);
    given.Ptag = side.tag;
    if (side.limits.MaxRegisterBlockBytes < ~(VIP_ULONG)0 >> 2) {
        EQUAL(VipRegisterMem(side.nic, side.data, side.limits.MaxRegisterBlockBytes + 1, &given, &memory),
              VIP_ERROR_RESOURCE);
    }
    side_close(&side);
}

static void the_number_of_regions_is_limited(void) {
    Side side;
    VIP_MEM_ATTRIBUTES given;
    VIP_MEM_HANDLE *handles;
    VIP_ULONG made = 0, i;
    VIP_RETURN answer = VIP_SUCCESS;
    side_open(&side);
    handles = (VIP_MEM_HANDLE *)calloc(side.limits.MaxRegisterRegions + 1, sizeof *handles);
    CHECK(handles != NULL);
    given.Ptag = side.tag;
    given.EnableRdmaWrite = given.EnableRdmaRead = VIP_FALSE;
    while (made <= side.limits.MaxRegisterRegions &&
           (answer = VipRegisterMem(side.nic, side.data, 64, &given, &handles[made])) == VIP_SUCCESS)
        made++;
    EQUAL(answer, VIP_ERROR_RESOURCE);
    EQUAL(made, side.limits.MaxRegisterRegions - 1);
    for (i = 0; i < made; i++)
        OK(VipDeregisterMem(side.nic, side.data, handles[i]));
    OK(VipRegisterMem(side.nic, side.data, 64, &given, &handles[0]));
    free(handles);
    side_close(&side);
}

static void a_null_tag_means_the_first_tag_as_on_clan(void) {
    Pair pair;
    VIP_VI_ATTRIBUTES attributes, queried;
    VIP_VI_HANDLE vi;
    VIP_VI_STATE state;
    VIP_BOOLEAN a, b;
    VIP_MEM_HANDLE memory;
    VIP_MEM_ATTRIBUTES memory_told;
    VIP_DESCRIPTOR *d;
    pair_open(&pair, VIP_SERVICE_UNRELIABLE);
    attributes = attributes_for(&pair.here, VIP_SERVICE_UNRELIABLE);
    attributes.Ptag = NULL;
    OK(VipCreateVi(pair.here.nic, &attributes, NULL, NULL, &vi));
    OK(VipQueryVi(vi, &state, &queried, &a, &b));
    CHECK(queried.Ptag == pair.here.tag);
    OK(VipRegisterMem(pair.here.nic, pair.here.data, 4096, NULL, &memory));
    OK(VipQueryMem(pair.here.nic, pair.here.data, memory, &memory_told));
    CHECK(memory_told.Ptag == pair.here.tag && !memory_told.EnableRdmaWrite && !memory_told.EnableRdmaRead);
    /* Memory with the first tag and a VI with a NULL tag match. */
    d = plain(&pair.here, 0, 0, 16);
    post_recv(&pair.here, vi, d);
    OK(VipDisconnect(vi));
    received(vi, d, VIP_STATUS_DESC_FLUSHED_ERROR);
    pair_close(&pair);
}

static void closing_a_nic_destroys_its_objects(void) {
    Pair pair;
    VIP_CQ_HANDLE cq;
    VIP_DESCRIPTOR *d;
    VIP_BOOLEAN receives;
    VIP_VI_HANDLE vi;
    if (is_loopback())
        return; /* the loopback device has only one NIC */
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    OK(VipCreateCQ(pair.here.nic, 8, &cq));
    OK(VipCloseNic(pair.here.nic));
    BAD(VipRecvDone(pair.near_vi, &d));
    BAD(VipCQDone(cq, &vi, &receives));
    BAD(VipDisconnect(pair.near_vi));
    becomes(pair.far_vi, VIP_STATE_ERROR);
    free_block(pair.here.block);
    side_close(&pair.there);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(a_nic_reports_its_limits_and_address);
    RUN(device_names_of_old_programs_open_a_nic);
    RUN(an_invalid_device_name_is_refused);
    RUN(tags_are_limited_and_a_tag_in_use_cannot_be_destroyed);
    RUN(memory_is_registered_queried_changed_and_deregistered);
    RUN(registering_invalid_memory_fails);
    RUN(the_number_of_regions_is_limited);
    RUN(a_null_tag_means_the_first_tag_as_on_clan);
    RUN(closing_a_nic_destroys_its_objects);
    return test_end();
}
