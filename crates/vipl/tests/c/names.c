/* Name service, management, and Giganet's additions. */
#include "test.h"

static char *named(const char *text) {
    static char buffer[256];
    CHECK(strlen(text) < sizeof buffer);
    strcpy(buffer, text);
    return buffer;
}

static void names_are_resolved_only_after_ns_init(void) {
    Side side;
    Address address;
    side_open(&side);
    EQUAL(VipNSGetHostByName(side.nic, named("localhost"), &address.net, 0), VIP_ERROR_NAMESERVICE);
    EQUAL(VipNSShutdown(side.nic), VIP_ERROR_NAMESERVICE);
    OK(VipNSInit(side.nic, NULL));
    memset(&address, 0, sizeof address);
    address.net.DiscriminatorLen = 5;
    OK(VipNSGetHostByName(side.nic, named("localhost"), &address.net, 0));
    EQUAL(address.net.HostAddressLen, side.limits.NicAddressLen);
    EQUAL(address.net.DiscriminatorLen, 5); /* unchanged, as old programs expect */
    EQUAL(VipNSGetHostByName(side.nic, named("localhost"), &address.net, 1000), VIP_ERROR_NAMESERVICE);
    EQUAL(VipNSGetHostByName(side.nic, named("no.such.name.invalid"), &address.net, 0), VIP_ERROR_NAMESERVICE);
    EQUAL(VipNSGetHostByName(side.nic, named(""), &address.net, 0), VIP_ERROR_NAMESERVICE);
    OK(VipNSShutdown(side.nic));
    EQUAL(VipNSGetHostByName(side.nic, named("localhost"), &address.net, 0), VIP_ERROR_NAMESERVICE);
    side_close(&side);
}

/* A hosts file with this NIC's address, as text, and two names. */
static void a_hosts_file_maps_names_to_addresses_and_back(void) {
    Side side;
    Address mine, found;
    char path[] = "vipl-hosts-XXXXXX.tmp", text[256], name[64];
    VIP_ULONG room;
    FILE *file;
    int i;
    side_open(&side);
    address_of(side.nic, "", &mine);
    sprintf(path, "vipl-hosts-%s.tmp", "names");
    file = fopen(path, "w");
    CHECK(file != NULL);
    strcpy(text, mine.net.HostAddressLen == 0 ? "loopback" : "");
    for (i = 0; i < mine.net.HostAddressLen; i++)
        sprintf(text + strlen(text), "%s%02x", i ? ":" : "", (unsigned)(unsigned char)mine.room[4 + i]);
    fprintf(file, "# names for the test\n%s  kiban-one kiban-uno # the first\n", text);
    CHECK(fclose(file) == 0);
    OK(VipNSInit(side.nic, path));
    memset(&found, 0, sizeof found);
    OK(VipNSGetHostByName(side.nic, named("kiban-uno"), &found.net, 0));
    EQUAL(found.net.HostAddressLen, mine.net.HostAddressLen);
    CHECK(memcmp(found.room + 4, mine.room + 4, mine.net.HostAddressLen) == 0);
    room = sizeof name;
    OK(VipNSGetHostByAddr(side.nic, &found.net, name, &room));
    CHECK(strcmp(name, "kiban-one") == 0);
    EQUAL(room, sizeof "kiban-one");
    room = 3;
    EQUAL(VipNSGetHostByAddr(side.nic, &found.net, name, &room), VIP_ERROR_RESOURCE);
    EQUAL(room, sizeof "kiban-one");
    OK(VipNSShutdown(side.nic));
    EQUAL(VipNSInit(side.nic, named("/nonexistent/hosts")), VIP_ERROR_NAMESERVICE);
    remove(path);
    side_close(&side);
}

static void discovery_finds_at_least_this_nic(void) {
    Side side;
    Address one, two, mine;
    VIP_NET_ADDRESS *rooms[2];
    VIP_AUTODISCOVERY_LIST list;
    VIP_ULONG i;
    int found = 0;
    side_open(&side);
    address_of(side.nic, "", &mine);
    rooms[0] = &one.net;
    rooms[1] = &two.net;
    list.NumberOfHops = 1;
    list.ADAddrArray = rooms;
    list.NumAdAddrs = 2;
    OK(VipQuerySystemManagementInfo(side.nic, VIP_SMI_AUTODISCOVERY, &list));
    CHECK(list.NumAdAddrs >= 1 && list.NumAdAddrs <= 2);
    for (i = 0; i < list.NumAdAddrs; i++)
        found |= rooms[i]->HostAddressLen == mine.net.HostAddressLen &&
                 memcmp(rooms[i]->HostAddress, mine.net.HostAddress, mine.net.HostAddressLen) == 0;
    CHECK(found);
    list.NumAdAddrs = 0;
    OK(VipQuerySystemManagementInfo(side.nic, VIP_SMI_AUTODISCOVERY, &list));
    EQUAL(list.NumAdAddrs, 0);
    EQUAL(VipQuerySystemManagementInfo(side.nic, 99, &list), VIP_INVALID_PARAMETER);
    side_close(&side);
}

static void a_vi_stores_user_data(void) {
    Side side;
    VIP_VI_HANDLE vi;
    side_open(&side);
    vi = vi_of(&side, VIP_SERVICE_UNRELIABLE, NULL, NULL);
    CHECK(VipGetUserData(vi) == NULL);
    VipSetUserData(vi, &side);
    CHECK(VipGetUserData(vi) == &side);
    OK(VipDestroyVi(vi));
    CHECK(VipGetUserData(vi) == NULL);
    side_close(&side);
}

static void hardware_features_of_clan_are_not_supported(void) {
    Side side;
    VIP_VI_HANDLE vi;
    VIP_CQ_HANDLE cq;
    VIP_EVENT_HANDLE event = NULL;
    VIP_BOOLEAN deferred = VIP_FALSE;
    side_open(&side);
    vi = vi_of(&side, VIP_SERVICE_UNRELIABLE, NULL, NULL);
    OK(VipCreateCQ(side.nic, 8, &cq));
    EQUAL(VipAddTagCQ(cq, &event, 1, 1), VIP_ERROR_NOT_SUPPORTED);
    EQUAL(VipRemoveTagCQ(cq, event, 1), VIP_ERROR_NOT_SUPPORTED);
    EQUAL(VipPostDeferredSends(vi, VIP_FALSE, &deferred), VIP_ERROR_NOT_SUPPORTED);
    side_close(&side);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(names_are_resolved_only_after_ns_init);
    RUN(a_hosts_file_maps_names_to_addresses_and_back);
    RUN(discovery_finds_at_least_this_nic);
    RUN(a_vi_stores_user_data);
    RUN(hardware_features_of_clan_are_not_supported);
    return test_end();
}
