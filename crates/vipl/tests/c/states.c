/* VIs: attributes, states, and the calls that each state allows. */
#include "test.h"

static void invalid_attributes_have_specific_errors(void) {
    Side side;
    VIP_VI_ATTRIBUTES a;
    VIP_VI_HANDLE vi = &vi;
    side_open(&side);
    a = attributes_for(&side, 0);
    EQUAL(VipCreateVi(side.nic, &a, NULL, NULL, &vi), VIP_INVALID_RELIABILITY_LEVEL);
    a = attributes_for(&side, VIP_SERVICE_UNRELIABLE | VIP_SERVICE_RELIABLE_DELIVERY);
    EQUAL(VipCreateVi(side.nic, &a, NULL, NULL, &vi), VIP_INVALID_RELIABILITY_LEVEL);
    a = attributes_for(&side, 8);
    EQUAL(VipCreateVi(side.nic, &a, NULL, NULL, &vi), VIP_INVALID_RELIABILITY_LEVEL);
    a = attributes_for(&side, VIP_SERVICE_RELIABLE_DELIVERY);
    a.MaxTransferSize = side.limits.MaxTransferSize + 1;
    EQUAL(VipCreateVi(side.nic, &a, NULL, NULL, &vi), VIP_INVALID_MTU);
    a = attributes_for(&side, VIP_SERVICE_RELIABLE_DELIVERY);
    a.Ptag = (VIP_PROTECTION_HANDLE)&a;
    EQUAL(VipCreateVi(side.nic, &a, NULL, NULL, &vi), VIP_INVALID_PTAG);
    a = attributes_for(&side, VIP_SERVICE_UNRELIABLE);
    a.EnableRdmaRead = VIP_TRUE;
    EQUAL(VipCreateVi(side.nic, &a, NULL, NULL, &vi), VIP_INVALID_RDMAREAD);
    CHECK(vi == NULL);
    side_close(&side);
}

static void queried_attributes_are_those_that_were_set(void) {
    Side side;
    int i;
    side_open(&side);
    EACH_LEVEL(i) {
        VIP_VI_ATTRIBUTES a = attributes_for(&side, LEVELS[i]), queried;
        VIP_VI_HANDLE vi;
        VIP_VI_STATE state;
        VIP_BOOLEAN sends, receives;
        a.MaxTransferSize = 5000;
        a.QoS = (VIP_QOS)(uintptr_t)3;
        OK(VipCreateVi(side.nic, &a, NULL, NULL, &vi));
        OK(VipQueryVi(vi, &state, &queried, &sends, &receives));
        EQUAL(state, VIP_STATE_IDLE);
        EQUAL(queried.ReliabilityLevel, LEVELS[i]);
        EQUAL(queried.MaxTransferSize, 5000);
        CHECK(queried.QoS == a.QoS && queried.Ptag == a.Ptag);
        EQUAL(queried.EnableRdmaWrite, a.EnableRdmaWrite);
        EQUAL(queried.EnableRdmaRead, a.EnableRdmaRead);
        CHECK(sends && receives);
        a.MaxTransferSize = 6000;
        a.EnableRdmaWrite = VIP_FALSE;
        OK(VipSetViAttributes(vi, &a));
        OK(VipQueryVi(vi, &state, &queried, &sends, &receives));
        EQUAL(queried.MaxTransferSize, 6000);
        EQUAL(queried.EnableRdmaWrite, VIP_FALSE);
        a.MaxTransferSize = side.limits.MaxTransferSize + 1;
        EQUAL(VipSetViAttributes(vi, &a), VIP_INVALID_MTU);
    }
    side_close(&side);
}

static void the_number_of_vis_is_limited(void) {
    Side side;
    VIP_VI_HANDLE *vis;
    VIP_VI_ATTRIBUTES a;
    VIP_ULONG made = 0, i;
    VIP_RETURN answer = VIP_SUCCESS;
    side_open(&side);
    a = attributes_for(&side, VIP_SERVICE_UNRELIABLE);
    vis = (VIP_VI_HANDLE *)calloc(side.limits.MaxVI + 1, sizeof *vis);
    CHECK(vis != NULL);
    while (made <= side.limits.MaxVI &&
           (answer = VipCreateVi(side.nic, &a, NULL, NULL, &vis[made])) == VIP_SUCCESS)
        made++;
    EQUAL(answer, VIP_ERROR_RESOURCE);
    EQUAL(made, side.limits.MaxVI);
    for (i = 0; i < made; i++)
        OK(VipDestroyVi(vis[i]));
    OK(VipCreateVi(side.nic, &a, NULL, NULL, &vis[0]));
    free(vis);
    side_close(&side);
}

static void a_vi_goes_from_idle_to_connected_and_back(void) {
    int i;
    EACH_LEVEL(i) {
        Pair pair;
        side_open(&pair.here);
        side_open(&pair.there);
        pair.near_vi = vi_of(&pair.here, LEVELS[i], NULL, NULL);
        pair.far_vi = vi_of(&pair.there, LEVELS[i], NULL, NULL);
        EQUAL(state_of(pair.near_vi), VIP_STATE_IDLE);
        join(&pair.here, pair.near_vi, &pair.there, pair.far_vi);
        EQUAL(state_of(pair.near_vi), VIP_STATE_CONNECTED);
        EQUAL(state_of(pair.far_vi), VIP_STATE_CONNECTED);
        OK(VipDisconnect(pair.near_vi));
        EQUAL(state_of(pair.near_vi), VIP_STATE_IDLE);
        becomes(pair.far_vi, VIP_STATE_ERROR);
        OK(VipDisconnect(pair.far_vi));
        EQUAL(state_of(pair.far_vi), VIP_STATE_IDLE);
        /* Repeat with the same VIs. */
        join(&pair.here, pair.near_vi, &pair.there, pair.far_vi);
        {
            VIP_DESCRIPTOR *r = plain(&pair.there, 0, 0, 4), *s = plain(&pair.here, 0, 0, 4);
            post_recv(&pair.there, pair.far_vi, r);
            post_send(&pair.here, pair.near_vi, s);
            sent(pair.near_vi, s, 0);
            received(pair.far_vi, r, 0);
        }
        OK(VipDisconnect(pair.far_vi));
        becomes(pair.near_vi, VIP_STATE_ERROR);
        OK(VipDisconnect(pair.near_vi));
        OK(VipDestroyVi(pair.near_vi));
        OK(VipDestroyVi(pair.far_vi));
        pair_close(&pair);
    }
}

static void only_an_idle_vi_can_be_destroyed_changed_or_connected(void) {
    Pair pair;
    Address address;
    VIP_VI_ATTRIBUTES a;
    pair_open(&pair, VIP_SERVICE_RELIABLE_DELIVERY);
    a = attributes_for(&pair.here, VIP_SERVICE_RELIABLE_DELIVERY);
    address_of(pair.there.nic, "nobody", &address);
    EQUAL(VipDestroyVi(pair.near_vi), VIP_INVALID_STATE);
    EQUAL(VipSetViAttributes(pair.near_vi, &a), VIP_INVALID_STATE);
    EQUAL(VipConnectRequest(pair.near_vi, &address.net, &address.net, SHORT, &a), VIP_INVALID_STATE);
    EQUAL(VipConnectPeerRequest(pair.near_vi, &address.net, &address.net, SHORT), VIP_INVALID_STATE);
    OK(VipDisconnect(pair.far_vi));
    becomes(pair.near_vi, VIP_STATE_ERROR);
    EQUAL(VipDestroyVi(pair.near_vi), VIP_INVALID_STATE);
    EQUAL(VipSetViAttributes(pair.near_vi, &a), VIP_INVALID_STATE);
    EQUAL(VipConnectPeerRequest(pair.near_vi, &address.net, &address.net, SHORT), VIP_INVALID_STATE);
    OK(VipDisconnect(pair.near_vi));
    EQUAL(VipConnectPeerDone(pair.near_vi, &a), VIP_INVALID_STATE);
    EQUAL(VipConnectPeerWait(pair.near_vi, &a), VIP_INVALID_STATE);
    OK(VipSetViAttributes(pair.near_vi, &a));
    OK(VipDestroyVi(pair.near_vi));
    pair_close(&pair);
}

static void a_vi_with_uncollected_descriptors_cannot_be_destroyed(void) {
    Side side;
    VIP_VI_HANDLE vi;
    VIP_VI_STATE state;
    VIP_VI_ATTRIBUTES a;
    VIP_BOOLEAN sends, receives;
    VIP_DESCRIPTOR *r;
    side_open(&side);
    vi = vi_of(&side, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    r = plain(&side, 0, 0, 16);
    post_recv(&side, vi, r);
    OK(VipQueryVi(vi, &state, &a, &sends, &receives));
    CHECK(sends && !receives);
    EQUAL(VipDestroyVi(vi), VIP_ERROR_RESOURCE);
    OK(VipDisconnect(vi));
    OK(VipQueryVi(vi, &state, &a, &sends, &receives));
    CHECK(!receives); /* completed, but not collected */
    EQUAL(VipDestroyVi(vi), VIP_ERROR_RESOURCE);
    received(vi, r, VIP_STATUS_DESC_FLUSHED_ERROR);
    EQUAL(r->CS.Length, 0);
    OK(VipQueryVi(vi, &state, &a, &sends, &receives));
    CHECK(sends && receives);
    OK(VipDestroyVi(vi));
    side_close(&side);
}

static void a_send_needs_a_connection_and_is_flushed_in_the_error_state(void) {
    int i;
    EACH_LEVEL(i) {
        Pair pair;
        VIP_DESCRIPTOR *s, *r;
        VIP_VI_HANDLE idle;
        pair_open(&pair, LEVELS[i]);
        idle = vi_of(&pair.here, LEVELS[i], NULL, NULL);
        s = plain(&pair.here, 0, 0, 16);
        EQUAL(VipPostSend(idle, s, pair.here.memory), VIP_INVALID_STATE); /* not connected */
        EQUAL(VipSendDone(idle, &r), VIP_NOT_DONE);
        OK(VipDisconnect(pair.far_vi));
        becomes(pair.near_vi, VIP_STATE_ERROR);
        s = plain(&pair.here, 0, 0, 16);
        post_send(&pair.here, pair.near_vi, s);
        sent(pair.near_vi, s, VIP_STATUS_DESC_FLUSHED_ERROR);
        EQUAL(s->CS.Status & VIP_STATUS_OP_MASK, VIP_STATUS_OP_SEND);
        r = plain(&pair.here, 1, 0, 16);
        post_recv(&pair.here, pair.near_vi, r);
        received(pair.near_vi, r, VIP_STATUS_DESC_FLUSHED_ERROR);
        EQUAL(r->CS.Status & VIP_STATUS_OP_MASK, VIP_STATUS_OP_RECEIVE);
        pair_close(&pair);
    }
}

static void a_lost_connection_flushes_posted_descriptors_in_order(void) {
    int i, k;
    EACH_LEVEL(i) {
        Pair pair;
        VIP_DESCRIPTOR *r[10];
        pair_open(&pair, LEVELS[i]);
        for (k = 0; k < 10; k++)
            post_recv(&pair.here, pair.near_vi, r[k] = plain(&pair.here, k, 0, 16));
        OK(VipDisconnect(pair.far_vi));
        for (k = 0; k < 10; k++) {
            received(pair.near_vi, r[k], VIP_STATUS_DESC_FLUSHED_ERROR);
            EQUAL(r[k]->CS.Length, 0);
        }
        EQUAL(state_of(pair.near_vi), VIP_STATE_ERROR);
        pair_close(&pair);
    }
}

static void a_connect_request_is_pending_until_answered_or_timed_out(void) {
    Pair pair;
    Address near_address, far_address;
    VIP_VI_ATTRIBUTES a;
    side_open(&pair.here);
    side_open(&pair.there);
    pair.near_vi = vi_of(&pair.here, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    address_of(pair.here.nic, "pending-here", &near_address);
    address_of(pair.there.nic, "pending-there", &far_address);
    OK(VipConnectPeerRequest(pair.near_vi, &near_address.net, &far_address.net, VIP_INFINITE));
    EQUAL(state_of(pair.near_vi), VIP_STATE_CONNECT_PENDING);
    EQUAL(VipConnectPeerDone(pair.near_vi, &a), VIP_NOT_DONE);
    EQUAL(VipPostSend(pair.near_vi, plain(&pair.here, 0, 0, 16), pair.here.memory), VIP_INVALID_STATE);
    EQUAL(VipDestroyVi(pair.near_vi), VIP_INVALID_STATE);
    OK(VipDisconnect(pair.near_vi));
    EQUAL(state_of(pair.near_vi), VIP_STATE_IDLE);
    OK(VipDestroyVi(pair.near_vi));
    pair_close(&pair);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(invalid_attributes_have_specific_errors);
    RUN(queried_attributes_are_those_that_were_set);
    RUN(the_number_of_vis_is_limited);
    RUN(a_vi_goes_from_idle_to_connected_and_back);
    RUN(only_an_idle_vi_can_be_destroyed_changed_or_connected);
    RUN(a_vi_with_uncollected_descriptors_cannot_be_destroyed);
    RUN(a_send_needs_a_connection_and_is_flushed_in_the_error_state);
    RUN(a_lost_connection_flushes_posted_descriptors_in_order);
    RUN(a_connect_request_is_pending_until_answered_or_timed_out);
    return test_end();
}
