/* Tests datagrams of the connection manager (RDMA_PS_UDP) and multicast groups, in one process and on one device. Needs
 * KIBAN_TRANSPORT=roce and a network namespace in which only `lo` has addresses, of which two are these. */
#include "check.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

enum { ROOM = 1024, GRH = 40, ALL_QPN = 0xffffff };

/* The address of the device, one at which no program speaks RoCEv2, and a group. */
#define HOME "192.0.2.1"
#define NOBODY "192.0.2.2"
#define GROUP "239.77.4.1"

static uint8_t room[2][ROOM];

/* An identifier with a queue pair, its memory, and its events. */
struct end {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    uint8_t *room;
};

static struct sockaddr *at(const char *address, uint16_t port) {
    /* A call has at most two addresses. */
    static struct sockaddr_in places[2];
    static int turn;
    struct sockaddr_in *place = &places[turn++ % 2];
    *place = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    check(inet_pton(AF_INET, address, &place->sin_addr) == 1);
    return (struct sockaddr *)place;
}

/* Returns the next event, which must be this one. */
static struct rdma_cm_event *next_event(struct rdma_event_channel *channel, enum rdma_cm_event_type expected) {
    struct rdma_cm_event *event = NULL;
    check(rdma_get_cm_event(channel, &event) == 0);
    if (event->event != expected)
        printf("%s (%d)\n", rdma_event_str(event->event), event->status);
    check(event->event == expected);
    return event;
}

static void pass(struct rdma_event_channel *channel, enum rdma_cm_event_type expected) {
    struct rdma_cm_event *event = next_event(channel, expected);
    check(event->status == 0 && rdma_ack_cm_event(event) == 0);
}

/* Gives an identifier that has a device a queue pair for datagrams. */
static void equip(struct end *end, struct rdma_cm_id *id, int number) {
    end->id = id;
    end->room = room[number];
    end->pd = ibv_alloc_pd(id->verbs);
    end->cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
    end->mr = ibv_reg_mr(end->pd, end->room, ROOM, IBV_ACCESS_LOCAL_WRITE);
    check(end->pd && end->cq && end->mr);
    struct ibv_qp_init_attr asked = {
        .send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_UD,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
    check(rdma_create_qp(id, end->pd, &asked) == 0 && id->qp->state == IBV_QPS_RTS);
}

static void strip(struct end *end) {
    rdma_destroy_qp(end->id);
    check(rdma_destroy_id(end->id) == 0);
    check(ibv_dereg_mr(end->mr) == 0 && ibv_destroy_cq(end->cq) == 0 && ibv_dealloc_pd(end->pd) == 0);
}

/* Returns an identifier with a resolved route to a port of this host. */
static struct rdma_cm_id *towards(struct rdma_event_channel *channel, uint16_t port) {
    struct rdma_cm_id *id;
    check(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP) == 0);
    check(rdma_resolve_addr(id, NULL, at(HOME, port), 1000) == 0);
    pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    check(rdma_resolve_route(id, 1000) == 0);
    pass(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
}

static void receive(struct end *end) {
    struct ibv_sge sge = {.addr = (uintptr_t)end->room, .length = ROOM, .lkey = end->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    check(ibv_post_recv(end->id->qp, &wr, &bad) == 0);
}

static void send_to(struct end *end, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey) {
    struct ibv_sge sge = {.addr = (uintptr_t)end->room + ROOM - 5, .length = 5, .lkey = end->mr->lkey};
    struct ibv_send_wr wr = {
        .wr_id = 8, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
        .wr.ud = {.ah = ah, .remote_qpn = qpn, .remote_qkey = qkey}}, *bad = NULL;
    memcpy(end->room + ROOM - 5, "hello", 5);
    check(ibv_post_send(end->id->qp, &wr, &bad) == 0);
}

/* Waits for the next completion; the test runner limits the time. */
static struct ibv_wc next(struct end *end) {
    struct ibv_wc wc;
    int found;
    while ((found = ibv_poll_cq(end->cq, 1, &wc)) == 0)
        ;
    check(found == 1 && wc.status == IBV_WC_SUCCESS);
    return wc;
}

/* Listens at a free port. */
static struct rdma_cm_id *listener(struct rdma_event_channel *channel) {
    struct rdma_cm_id *id;
    check(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP) == 0);
    check(rdma_bind_addr(id, at(HOME, 0)) == 0 && rdma_listen(id, 4) == 0);
    return id;
}

static void a_service_resolves_and_datagrams_go_both_ways(void) {
    struct end server = {.channel = rdma_create_event_channel()}, client = {.channel = rdma_create_event_channel()};
    struct rdma_cm_id *listening = listener(server.channel);
    equip(&client, towards(client.channel, ntohs(rdma_get_src_port(listening))), 0);
    struct rdma_conn_param who = {.private_data = "who", .private_data_len = 4};
    check(rdma_connect(client.id, &who) == 0);

    struct rdma_cm_event *event = next_event(server.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    check(event->listen_id == listening && event->id->qp_type == IBV_QPT_UD && event->id->ps == RDMA_PS_UDP);
    check(event->param.ud.private_data_len == 180 && strcmp(event->param.ud.private_data, "who") == 0);
    equip(&server, event->id, 1);
    check(rdma_ack_cm_event(event) == 0);
    receive(&server);
    struct rdma_conn_param me = {.private_data = "me", .private_data_len = 3};
    check(rdma_accept(server.id, &me) == 0);
    check(rdma_disconnect(server.id) == -1 && errno == EINVAL);

    event = next_event(client.channel, RDMA_CM_EVENT_ESTABLISHED);
    struct rdma_ud_param ud = event->param.ud;
    check(event->status == 0 && ud.qp_num == server.id->qp->qp_num && ud.qkey == RDMA_UDP_QKEY);
    check(ud.private_data_len == 136 && strcmp(ud.private_data, "me") == 0);
    check(ud.ah_attr.is_global && ud.ah_attr.port_num == 1);
    struct ibv_ah *ah = ibv_create_ah(client.pd, &ud.ah_attr);
    check(ah != NULL && rdma_ack_cm_event(event) == 0);
    send_to(&client, ah, ud.qp_num, ud.qkey);
    next(&client);
    struct ibv_wc wc = next(&server);
    check(wc.src_qp == client.id->qp->qp_num && wc.byte_len == GRH + 5 && memcmp(server.room + GRH, "hello", 5) == 0);

    struct ibv_ah *back = ibv_create_ah_from_wc(server.pd, &wc, (struct ibv_grh *)server.room, 1);
    check(back != NULL);
    receive(&client);
    send_to(&server, back, wc.src_qp, RDMA_UDP_QKEY);
    next(&server);
    check(next(&client).src_qp == server.id->qp->qp_num);
    check(ibv_destroy_ah(ah) == 0 && ibv_destroy_ah(back) == 0);
    strip(&server);
    strip(&client);
    check(rdma_destroy_id(listening) == 0);
    rdma_destroy_event_channel(server.channel);
    rdma_destroy_event_channel(client.channel);
}

static void a_refused_service_is_unreachable_with_its_status(void) {
    enum { NOT_SUPPORTED = 1, REJECTED = 2 };
    struct rdma_event_channel *passive = rdma_create_event_channel(), *active = rdma_create_event_channel();
    struct rdma_cm_id *listening = listener(passive);
    uint16_t port = ntohs(rdma_get_src_port(listening));
    struct rdma_conn_param none = {0};
    struct rdma_cm_id *id = towards(active, port);
    check(rdma_connect(id, &none) == 0);
    struct rdma_cm_event *event = next_event(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *request = event->id;
    check(rdma_ack_cm_event(event) == 0 && rdma_reject(request, "no", 3) == 0 && rdma_destroy_id(request) == 0);
    event = next_event(active, RDMA_CM_EVENT_UNREACHABLE);
    check(event->status == REJECTED && strcmp(event->param.ud.private_data, "no") == 0);
    check(rdma_ack_cm_event(event) == 0 && rdma_destroy_id(id) == 0 && rdma_destroy_id(listening) == 0);

    /* The device's address still speaks RoCEv2, but there is no listener. */
    struct rdma_cm_id *other = listener(passive);
    id = towards(active, port);
    check(rdma_connect(id, &none) == 0);
    event = next_event(active, RDMA_CM_EVENT_UNREACHABLE);
    check(event->status == NOT_SUPPORTED && rdma_ack_cm_event(event) == 0);
    check(rdma_destroy_id(id) == 0 && rdma_destroy_id(other) == 0);
    rdma_destroy_event_channel(passive);
    rdma_destroy_event_channel(active);
}

static void synchronous_identifiers_return_errors(void) {
    struct rdma_cm_id *id;
    struct rdma_conn_param none = {0};
    check(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP) == 0);
    check(rdma_resolve_addr(id, at(HOME, 0), at(NOBODY, 4000), 1000) == 0 && rdma_resolve_route(id, 1000) == 0);
    /* No process speaks RoCEv2 at the address: an ICMP error says so. */
    check(rdma_connect(id, &none) == -1 && errno == ECONNREFUSED);
    check(id->event->event == RDMA_CM_EVENT_UNREACHABLE && id->event->status == -ECONNREFUSED);
    check(rdma_destroy_id(id) == 0);
}

/* Returns an identifier bound to this host's device, with a queue pair. */
static void bind_end(struct end *end, int number) {
    struct rdma_cm_id *id;
    end->channel = rdma_create_event_channel();
    check(rdma_create_id(end->channel, &id, NULL, RDMA_PS_UDP) == 0);
    check(rdma_resolve_addr(id, at(HOME, 0), at(GROUP, 0), 1000) == 0);
    pass(end->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    equip(end, id, number);
}

static void members_of_a_group_receive_copies(void) {
    struct end sender, member;
    struct rdma_cm_join_mc_attr_ex sends_only = {
        .comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
        .join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER};
    bind_end(&sender, 0);
    bind_end(&member, 1);
    sends_only.addr = at(GROUP, 0);
    check(rdma_join_multicast_ex(sender.id, &sends_only, &sender) == 0);
    struct rdma_cm_event *event = next_event(sender.channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    static const uint8_t group[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 77, 4, 1};
    struct rdma_ud_param ud = event->param.ud;
    check(event->status == 0 && ud.private_data == &sender && ud.private_data_len == 0);
    check(ud.qp_num == ALL_QPN && ud.qkey == RDMA_UDP_QKEY && memcmp(ud.ah_attr.grh.dgid.raw, group, 16) == 0);
    struct ibv_ah *ah = ibv_create_ah(sender.pd, &ud.ah_attr);
    check(ah != NULL && rdma_ack_cm_event(event) == 0);

    check(rdma_join_multicast(member.id, at(GROUP, 0), NULL) == 0);
    pass(member.channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    receive(&member);
    receive(&sender);
    send_to(&sender, ah, ALL_QPN, RDMA_UDP_QKEY);
    struct ibv_wc wc = next(&member);
    check(wc.src_qp == sender.id->qp->qp_num && wc.byte_len == GRH + 5 && memcmp(member.room + GRH, "hello", 5) == 0);
    check(memcmp(((struct ibv_grh *)member.room)->dgid.raw, group, 16) == 0);
    check(next(&sender).wr_id == 8);

    /* An attached queue pair cannot be destroyed. */
    check(ibv_destroy_qp(member.id->qp) == EBUSY);
    check(rdma_leave_multicast(member.id, at(GROUP, 0)) == 0);
    check(rdma_leave_multicast(member.id, at(GROUP, 0)) == -1 && errno == EADDRNOTAVAIL);
    union ibv_gid gid = ud.ah_attr.grh.dgid;
    check(ibv_detach_mcast(member.id->qp, &gid, 0) == EINVAL);
    receive(&member);
    send_to(&sender, ah, ALL_QPN, RDMA_UDP_QKEY);
    check(next(&sender).wr_id == 8);
    check(ibv_attach_mcast(member.id->qp, &gid, 0) == 0 && ibv_attach_mcast(member.id->qp, &gid, 0) == 0);
    send_to(&sender, ah, ALL_QPN, RDMA_UDP_QKEY);
    check(next(&sender).wr_id == 8 && next(&member).wr_id == 7);
    struct ibv_wc none;
    check(ibv_poll_cq(member.cq, 1, &none) == 0);
    check(ibv_detach_mcast(member.id->qp, &gid, 0) == 0);

    /* Joined again, the queue pair leaves when it is destroyed. */
    check(rdma_join_multicast(member.id, at(GROUP, 0), NULL) == 0);
    pass(member.channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    check(ibv_destroy_ah(ah) == 0);
    strip(&member);
    strip(&sender);
    rdma_destroy_event_channel(member.channel);
    rdma_destroy_event_channel(sender.channel);
}

static void only_groups_can_be_joined_and_only_by_datagrams(void) {
    struct end end;
    struct rdma_cm_id *connects;
    bind_end(&end, 0);
    check(rdma_join_multicast(end.id, at(HOME, 0), NULL) == -1 && errno == EINVAL);
    check(rdma_create_id(end.channel, &connects, NULL, RDMA_PS_TCP) == 0);
    check(rdma_join_multicast(connects, at(GROUP, 0), NULL) == -1 && errno == EINVAL);
    check(rdma_destroy_id(connects) == 0);
    struct ibv_device_attr attr;
    check(ibv_query_device(end.id->verbs, &attr) == 0 && attr.max_mcast_grp > 0 && attr.max_mcast_qp_attach > 0);
    strip(&end);
    rdma_destroy_event_channel(end.channel);
}

int main(void) {
    run(synchronous_identifiers_return_errors);
    run(a_service_resolves_and_datagrams_go_both_ways);
    run(a_refused_service_is_unreachable_with_its_status);
    run(members_of_a_group_receive_copies);
    run(only_groups_can_be_joined_and_only_by_datagrams);
    printf("%d tests passed\n", tests_passed);
    return 0;
}
