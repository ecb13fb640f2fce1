/* Connections: client and server, and peer to peer. The server runs in a thread of its own. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "test.h"

/* How the server handles the first request, and the results of its calls. */
typedef struct {
    Side *side;
    VIP_VI_HANDLE vi;     /* accepts with this VI; or NULL, to reject */
    VIP_VI_HANDLE second; /* if that fails, accepts with this VI; or NULL */
    const char *discriminator;
    VIP_ULONG timeout;
    VIP_RETURN waited, answered, answered_again;
    VIP_VI_ATTRIBUTES asked;
    Address client;
    VIP_CONN_HANDLE request;
    int closes; /* whether to close its NIC afterwards */
} Server;

static void *serve(void *context) {
    Server *server = (Server *)context;
    Address local;
    address_of(server->side->nic, server->discriminator, &local);
    server->waited = VipConnectWait(server->side->nic, &local.net, server->timeout, &server->client.net, &server->asked,
                                    &server->request);
    if (server->waited == VIP_SUCCESS)
        server->answered =
            server->vi ? VipConnectAccept(server->request, server->vi) : VipConnectReject(server->request);
    if (server->waited == VIP_SUCCESS && server->second)
        server->answered_again = VipConnectAccept(server->request, server->second);
    if (server->closes)
        OK(VipCloseNic(server->side->nic));
    return NULL;
}

static pthread_t server_start(Server *server, Side *side, VIP_VI_HANDLE vi, VIP_VI_HANDLE second,
                              const char *discriminator) {
    pthread_t thread;
    memset(server, 0, sizeof *server);
    server->side = side;
    server->vi = vi;
    server->second = second;
    server->discriminator = discriminator;
    server->closes = strchr(discriminator, '!') != NULL; /* a name with ! means that the server closes its NIC */
    server->timeout = LONG;
    server->waited = server->answered = server->answered_again = VIP_NOT_DONE;
    CHECK(pthread_create(&thread, NULL, serve, server) == 0);
    return thread;
}

/* Retries while there is no server yet, because server and client start together. */
static VIP_RETURN request(Side *side, VIP_VI_HANDLE vi, Side *other, const char *local, const char *remote,
                          VIP_VI_ATTRIBUTES *attributes) {
    Address from, to;
    VIP_RETURN answer;
    time_t end = time(NULL) + (time_t)(LONG / 1000);
    address_of(side->nic, local, &from);
    address_of(other->nic, remote, &to);
    do
        answer = VipConnectRequest(vi, &from.net, &to.net, LONG, attributes);
    while (answer == VIP_NO_MATCH && time(NULL) <= end);
    return answer;
}

static void client_and_server_get_each_other_s_address_and_attributes(void) {
    int i;
    EACH_LEVEL(i) {
        Side here, there;
        Server server;
        pthread_t thread;
        VIP_VI_ATTRIBUTES mine, theirs, learnt;
        VIP_VI_HANDLE vi, server_vi;
        Address client;
        side_open(&here);
        side_open(&there);
        mine = attributes_for(&here, LEVELS[i]);
        theirs = attributes_for(&there, LEVELS[i]);
        mine.EnableRdmaWrite = VIP_FALSE; /* RDMA permissions may differ */
        mine.QoS = theirs.QoS = (VIP_QOS)(uintptr_t)7;
        OK(VipCreateVi(here.nic, &mine, NULL, NULL, &vi));
        OK(VipCreateVi(there.nic, &theirs, NULL, NULL, &server_vi));
        thread = server_start(&server, &there, server_vi, NULL, "the server");
        memset(&learnt, 0, sizeof learnt);
        OK(request(&here, vi, &there, "the client", "the server", &learnt));
        CHECK(pthread_join(thread, NULL) == 0);
        OK(server.waited);
        OK(server.answered);
        EQUAL(state_of(vi), VIP_STATE_CONNECTED);
        EQUAL(state_of(server_vi), VIP_STATE_CONNECTED);
        EQUAL(learnt.ReliabilityLevel, LEVELS[i]);
        EQUAL(learnt.MaxTransferSize, theirs.MaxTransferSize);
        EQUAL(learnt.EnableRdmaWrite, VIP_TRUE);
        CHECK(learnt.QoS == theirs.QoS);
        EQUAL(server.asked.ReliabilityLevel, LEVELS[i]);
        EQUAL(server.asked.MaxTransferSize, mine.MaxTransferSize);
        EQUAL(server.asked.EnableRdmaWrite, VIP_FALSE);
        CHECK(server.asked.QoS == mine.QoS);
        address_of(here.nic, "the client", &client);
        EQUAL(server.client.net.HostAddressLen, client.net.HostAddressLen);
        EQUAL(server.client.net.DiscriminatorLen, client.net.DiscriminatorLen);
        CHECK(memcmp(server.client.room, client.room, 4u + client.net.HostAddressLen + client.net.DiscriminatorLen) ==
              0);
        /* A request can be answered only once. */
        EQUAL(VipConnectReject(server.request), VIP_INVALID_PARAMETER);
        EQUAL(VipConnectAccept(server.request, server_vi), VIP_INVALID_PARAMETER);
        side_close(&here);
        side_close(&there);
    }
}

static void a_rejected_client_gets_vip_reject(void) {
    Side here, there;
    Server server;
    pthread_t thread;
    VIP_VI_ATTRIBUTES learnt;
    VIP_VI_HANDLE vi;
    side_open(&here);
    side_open(&there);
    vi = vi_of(&here, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    thread = server_start(&server, &there, NULL, NULL, "no");
    EQUAL(request(&here, vi, &there, "me", "no", &learnt), VIP_REJECT);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(server.answered);
    EQUAL(state_of(vi), VIP_STATE_IDLE);
    OK(VipDestroyVi(vi));
    side_close(&here);
    side_close(&there);
}

static void connecting_without_a_server_fails_and_waiting_without_a_client_times_out(void) {
    Side here, there;
    Address from, to, client;
    VIP_VI_ATTRIBUTES learnt;
    VIP_VI_HANDLE vi;
    VIP_CONN_HANDLE request = &from;
    side_open(&here);
    side_open(&there);
    vi = vi_of(&here, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    address_of(here.nic, "me", &from);
    address_of(there.nic, "nobody", &to);
    EQUAL(VipConnectRequest(vi, &from.net, &to.net, LONG, &learnt), VIP_NO_MATCH);
    EQUAL(state_of(vi), VIP_STATE_IDLE);
    EQUAL(VipConnectWait(there.nic, &to.net, SHORT, &client.net, &learnt, &request), VIP_TIMEOUT);
    CHECK(request == NULL);
    side_close(&here);
    side_close(&there);
}

/* One of three attributes differs: the error code shows which, and the server accepts the request with another VI. */
static void a_connection_needs_equal_attributes(void) {
    const VIP_RETURN codes[] = {VIP_INVALID_RELIABILITY_LEVEL, VIP_INVALID_MTU, VIP_INVALID_QOS};
    int k;
    for (k = 0; k < 3; k++) {
        Side here, there;
        Server server;
        pthread_t thread;
        VIP_VI_ATTRIBUTES mine, theirs, learnt;
        VIP_VI_HANDLE vi, wrong_vi, right_vi;
        side_open(&here);
        side_open(&there);
        mine = attributes_for(&here, VIP_SERVICE_RELIABLE_DELIVERY);
        theirs = attributes_for(&there, k == 0 ? VIP_SERVICE_RELIABLE_RECEPTION : VIP_SERVICE_RELIABLE_DELIVERY);
        if (k == 1)
            theirs.MaxTransferSize = mine.MaxTransferSize - 1;
        if (k == 2)
            theirs.QoS = (VIP_QOS)(uintptr_t)99;
        OK(VipCreateVi(here.nic, &mine, NULL, NULL, &vi));
        OK(VipCreateVi(there.nic, &theirs, NULL, NULL, &wrong_vi));
        right_vi = vi_of(&there, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        thread = server_start(&server, &there, wrong_vi, right_vi, "picky");
        OK(request(&here, vi, &there, "me", "picky", &learnt));
        CHECK(pthread_join(thread, NULL) == 0);
        EQUAL(server.answered, codes[k]);
        OK(server.answered_again);
        EQUAL(state_of(wrong_vi), VIP_STATE_IDLE);
        EQUAL(state_of(right_vi), VIP_STATE_CONNECTED);
        EQUAL(state_of(vi), VIP_STATE_CONNECTED);
        side_close(&here);
        side_close(&there);
    }
}

static void accepting_needs_an_idle_vi_of_the_same_nic(void) {
    Side here, there;
    Server server;
    pthread_t thread;
    VIP_VI_ATTRIBUTES learnt;
    VIP_VI_HANDLE vi, busy, busy_too, server_vi;
    side_open(&here);
    side_open(&there);
    vi = vi_of(&here, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    server_vi = vi_of(&there, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    busy = vi_of(&there, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    busy_too = vi_of(&here, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    join(&there, busy, &here, busy_too);
    thread = server_start(&server, &there, busy, server_vi, "busy");
    OK(request(&here, vi, &there, "me", "busy", &learnt));
    CHECK(pthread_join(thread, NULL) == 0);
    EQUAL(server.answered, VIP_INVALID_STATE);
    OK(server.answered_again);
    OK(VipDisconnect(vi));
    becomes(server_vi, VIP_STATE_ERROR);
    OK(VipDisconnect(server_vi));
    /* A VI on another NIC; the loopback device has only one NIC. */
    thread = server_start(&server, &there, busy_too, server_vi, "stranger");
    OK(request(&here, vi, &there, "me", "stranger", &learnt));
    CHECK(pthread_join(thread, NULL) == 0);
    EQUAL(server.answered, is_loopback() ? VIP_INVALID_STATE : VIP_INVALID_PARAMETER);
    OK(server.answered_again);
    side_close(&here);
    side_close(&there);
}

static void invalid_addresses_are_refused(void) {
    Side side;
    VIP_VI_HANDLE vi;
    Address good, bad;
    VIP_VI_ATTRIBUTES learnt;
    VIP_CONN_HANDLE request;
    side_open(&side);
    vi = vi_of(&side, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    address_of(side.nic, "good", &good);
    bad = good;
    bad.net.HostAddressLen = (VIP_UINT16)(good.net.HostAddressLen + 1);
    EQUAL(VipConnectRequest(vi, &good.net, &bad.net, SHORT, &learnt), VIP_INVALID_PARAMETER);
    EQUAL(VipConnectPeerRequest(vi, &good.net, &bad.net, SHORT), VIP_INVALID_PARAMETER);
    bad = good;
    bad.net.DiscriminatorLen = (VIP_UINT16)(side.limits.MaxDiscriminatorLen + 1);
    EQUAL(VipConnectRequest(vi, &bad.net, &good.net, SHORT, &learnt), VIP_INVALID_PARAMETER);
    EQUAL(VipConnectRequest(vi, &good.net, &bad.net, SHORT, &learnt), VIP_INVALID_PARAMETER);
    EQUAL(VipConnectPeerRequest(vi, &bad.net, &good.net, SHORT), VIP_INVALID_PARAMETER);
    EQUAL(VipConnectWait(side.nic, &bad.net, SHORT, &good.net, &learnt, &request), VIP_INVALID_PARAMETER);
    EQUAL(state_of(vi), VIP_STATE_IDLE);
    side_close(&side);
}

static void receives_may_be_posted_before_connecting(void) {
    Side here, there;
    Server server;
    pthread_t thread;
    VIP_VI_ATTRIBUTES learnt;
    VIP_VI_HANDLE vi, server_vi;
    VIP_DESCRIPTOR *r[4], *s;
    int k;
    side_open(&here);
    side_open(&there);
    vi = vi_of(&here, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    server_vi = vi_of(&there, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    for (k = 0; k < 4; k++)
        post_recv(&there, server_vi, r[k] = plain(&there, k, (size_t)k * 100, 100));
    thread = server_start(&server, &there, server_vi, NULL, "early");
    OK(request(&here, vi, &there, "me", "early", &learnt));
    for (k = 0; k < 4; k++) {
        post_send(&here, vi, s = plain(&here, 0, 0, (VIP_UINT32)k + 10));
        sent(vi, s, 0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    for (k = 0; k < 4; k++) {
        received(server_vi, r[k], 0);
        EQUAL(r[k]->CS.Length, k + 10);
    }
    side_close(&here);
    side_close(&there);
}

static void peers_with_different_attributes_do_not_connect(void) {
    const VIP_RETURN codes[] = {VIP_INVALID_RELIABILITY_LEVEL, VIP_INVALID_MTU, VIP_INVALID_QOS};
    int k;
    for (k = 0; k < 3; k++) {
        Side here, there;
        VIP_VI_ATTRIBUTES mine, theirs, learnt;
        VIP_VI_HANDLE vi, other;
        VIP_RETURN first, second;
        Address a, b;
        side_open(&here);
        side_open(&there);
        mine = attributes_for(&here, VIP_SERVICE_RELIABLE_DELIVERY);
        theirs = attributes_for(&there, k == 0 ? VIP_SERVICE_UNRELIABLE : VIP_SERVICE_RELIABLE_DELIVERY);
        if (k == 1)
            theirs.MaxTransferSize /= 2;
        if (k == 2)
            theirs.QoS = (VIP_QOS)(uintptr_t)1;
        OK(VipCreateVi(here.nic, &mine, NULL, NULL, &vi));
        OK(VipCreateVi(there.nic, &theirs, NULL, NULL, &other));
        address_of(here.nic, "a", &a);
        address_of(there.nic, "b", &b);
        OK(VipConnectPeerRequest(vi, &a.net, &b.net, 1000));
        OK(VipConnectPeerRequest(other, &b.net, &a.net, 1000));
        first = VipConnectPeerWait(vi, &learnt);
        second = VipConnectPeerWait(other, &learnt);
        /* One side detects the difference; the other side gets the same error or times out. */
        CHECK(first == codes[k] || second == codes[k]);
        CHECK(first == codes[k] || first == VIP_TIMEOUT || first == VIP_REJECT);
        CHECK(second == codes[k] || second == VIP_TIMEOUT || second == VIP_REJECT);
        EQUAL(state_of(vi), VIP_STATE_IDLE);
        EQUAL(state_of(other), VIP_STATE_IDLE);
        side_close(&here);
        side_close(&there);
    }
}

static void a_peer_request_times_out(void) {
    Side here, there;
    VIP_VI_ATTRIBUTES learnt;
    VIP_VI_HANDLE vi;
    Address a, b;
    side_open(&here);
    side_open(&there);
    vi = vi_of(&here, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    address_of(here.nic, "a", &a);
    address_of(there.nic, "silent", &b);
    OK(VipConnectPeerRequest(vi, &a.net, &b.net, SHORT));
    EQUAL(VipConnectPeerWait(vi, &learnt), VIP_TIMEOUT);
    EQUAL(state_of(vi), VIP_STATE_IDLE);
    EQUAL(VipConnectPeerDone(vi, &learnt), VIP_INVALID_STATE);
    side_close(&here);
    side_close(&there);
}

static void peer_done_does_not_wait(void) {
    Side here, there;
    VIP_VI_ATTRIBUTES learnt;
    VIP_VI_HANDLE vi, other;
    Address a, b;
    VIP_RETURN answer;
    time_t end = time(NULL) + (time_t)(LONG / 1000);
    side_open(&here);
    side_open(&there);
    vi = vi_of(&here, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    other = vi_of(&there, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    address_of(here.nic, "a", &a);
    address_of(there.nic, "b", &b);
    OK(VipConnectPeerRequest(vi, &a.net, &b.net, VIP_INFINITE));
    EQUAL(VipConnectPeerDone(vi, &learnt), VIP_NOT_DONE);
    OK(VipConnectPeerRequest(other, &b.net, &a.net, VIP_INFINITE));
    do
        answer = VipConnectPeerDone(vi, &learnt);
    while (answer == VIP_NOT_DONE && time(NULL) <= end);
    OK(answer);
    EQUAL(learnt.ReliabilityLevel, VIP_SERVICE_RELIABLE_DELIVERY);
    OK(VipConnectPeerWait(other, &learnt));
    side_close(&here);
    side_close(&there);
}

/* The server disappears while a client waits for its answer. Over UDP, the client gets no answer; on loopback, its own
 * NIC is closed. */
static void a_lost_host_is_not_reachable(void) {
    Side here, there;
    Server server;
    pthread_t thread;
    VIP_VI_ATTRIBUTES learnt;
    VIP_VI_HANDLE vi, elsewhere;
    if (strncmp(test_device, "shm", 3) != 0)
        return;
    side_open(&here);
    side_open(&there);
    vi = vi_of(&here, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    elsewhere = vi_of(&here, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    /* Accepting with a VI on another NIC is refused; then the NIC is closed. */
    thread = server_start(&server, &there, elsewhere, NULL, "going!");
    EQUAL(request(&here, vi, &there, "me", "going!", &learnt), VIP_NOT_REACHABLE);
    CHECK(pthread_join(thread, NULL) == 0);
    EQUAL(server.answered, VIP_INVALID_PARAMETER);
    EQUAL(state_of(vi), VIP_STATE_IDLE);
    free_block(there.block);
    side_close(&here);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(client_and_server_get_each_other_s_address_and_attributes);
    RUN(a_rejected_client_gets_vip_reject);
    RUN(connecting_without_a_server_fails_and_waiting_without_a_client_times_out);
    RUN(a_connection_needs_equal_attributes);
    RUN(accepting_needs_an_idle_vi_of_the_same_nic);
    RUN(invalid_addresses_are_refused);
    RUN(receives_may_be_posted_before_connecting);
    RUN(peers_with_different_attributes_do_not_connect);
    RUN(a_peer_request_times_out);
    RUN(peer_done_does_not_wait);
    RUN(a_lost_host_is_not_reachable);
    return test_end();
}
