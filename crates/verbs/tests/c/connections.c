/* Queue pairs that the connection manager connects, in one process. */
#include "check.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

static struct rdma_event_channel *channel;

/* Waits for the next event, and returns its identifier. */
static struct rdma_cm_id *next(enum rdma_cm_event_type type) {
    struct rdma_cm_event *event;
    check(rdma_get_cm_event(channel, &event) == 0);
    check(event->event == type && event->status == 0);
    struct rdma_cm_id *id = event->id;
    check(rdma_ack_cm_event(event) == 0);
    return id;
}

static void give_queue_pair(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr asked = {
        .qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    check(rdma_create_qp(id, NULL, &asked) == 0);
}

static void set_timeout(struct rdma_cm_id *id, uint8_t timeout) {
    check(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout) == 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
    int mask = 0;
    check(rdma_init_qp_attr(id, &attr, &mask) == 0 && (!(mask & IBV_QP_TIMEOUT) || attr.timeout == timeout));
}

static uint8_t timeout_of(struct rdma_cm_id *id) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr asked;
    check(ibv_query_qp(id->qp, &attr, IBV_QP_TIMEOUT, &asked) == 0);
    return attr.timeout;
}

static void acknowledgement_timeouts_are_those_that_were_set(void) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    struct rdma_cm_id *listener, *client, *server;
    check(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
    check(rdma_bind_addr(listener, (struct sockaddr *)&here) == 0 && rdma_listen(listener, 1) == 0);
    here.sin_port = rdma_get_src_port(listener);
    check(rdma_create_id(channel, &client, NULL, RDMA_PS_TCP) == 0);
    check(rdma_resolve_addr(client, NULL, (struct sockaddr *)&here, 1000) == 0);
    check(next(RDMA_CM_EVENT_ADDR_RESOLVED) == client && rdma_resolve_route(client, 1000) == 0);
    check(next(RDMA_CM_EVENT_ROUTE_RESOLVED) == client);
    give_queue_pair(client);
    set_timeout(client, 21);
    check(rdma_connect(client, &param) == 0);
    server = next(RDMA_CM_EVENT_CONNECT_REQUEST);
    give_queue_pair(server);
    set_timeout(server, 9);
    check(rdma_accept(server, &param) == 0 && timeout_of(server) == 9);
    next(RDMA_CM_EVENT_ESTABLISHED);
    next(RDMA_CM_EVENT_ESTABLISHED);
    check(timeout_of(client) == 21 && timeout_of(server) == 9);
    rdma_destroy_qp(client);
    rdma_destroy_qp(server);
    check(rdma_destroy_id(client) == 0 && rdma_destroy_id(server) == 0 && rdma_destroy_id(listener) == 0);
}

/* Creates a queue pair without the connection manager. */
static struct ibv_qp *own_queue_pair(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_cq *cq) {
    struct ibv_qp_init_attr asked = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(pd, &asked);
    check(qp != NULL && id->qp == NULL);
    return qp;
}

static void change_states(struct rdma_cm_id *id, struct ibv_qp *qp) {
    for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
        struct ibv_qp_attr attr = {.qp_state = state};
        int mask = 0;
        check(rdma_init_qp_attr(id, &attr, &mask) == 0 && ibv_modify_qp(qp, &attr, mask) == 0);
    }
}

/* As in sideway's cmtime, the client changes the states of its queue pair after the reply has arrived. */
static void programs_change_the_states_of_their_own_queue_pairs(void) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    struct rdma_cm_id *listener, *client, *server;
    check(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
    check(rdma_bind_addr(listener, (struct sockaddr *)&here) == 0 && rdma_listen(listener, 1) == 0);
    here.sin_port = rdma_get_src_port(listener);
    check(rdma_create_id(channel, &client, NULL, RDMA_PS_TCP) == 0);
    check(rdma_resolve_addr(client, NULL, (struct sockaddr *)&here, 1000) == 0);
    check(next(RDMA_CM_EVENT_ADDR_RESOLVED) == client && rdma_resolve_route(client, 1000) == 0);
    check(next(RDMA_CM_EVENT_ROUTE_RESOLVED) == client);
    struct ibv_pd *pd = ibv_alloc_pd(client->verbs);
    struct ibv_cq *cq = ibv_create_cq(client->verbs, 8, NULL, NULL, 0);
    check(pd != NULL && cq != NULL);
    struct ibv_qp *calls = own_queue_pair(client, pd, cq);
    param.qp_num = calls->qp_num;
    check(rdma_connect(client, &param) == 0);
    server = next(RDMA_CM_EVENT_CONNECT_REQUEST);
    struct ibv_qp *answers = own_queue_pair(server, pd, cq);
    change_states(server, answers);
    param.qp_num = answers->qp_num;
    check(rdma_accept(server, &param) == 0);
    for (int is_answered = 0; !is_answered;) {
        struct rdma_cm_event *event;
        check(rdma_get_cm_event(channel, &event) == 0 && event->status == 0);
        is_answered = event->id == client;
        /* On iWARP, the connection manager establishes the connection itself. */
        check(event->event == RDMA_CM_EVENT_ESTABLISHED || event->event == RDMA_CM_EVENT_CONNECT_RESPONSE);
        if (event->event == RDMA_CM_EVENT_CONNECT_RESPONSE) {
            change_states(client, calls);
            check(rdma_establish(client) == 0);
        }
        check(rdma_ack_cm_event(event) == 0);
    }
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive = NULL;
    struct ibv_send_wr send = {.wr_id = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad = NULL;
    check(ibv_post_recv(answers, &receive, &bad_receive) == 0 && ibv_post_send(calls, &send, &bad) == 0);
    for (int left = 2; left > 0;) {
        struct ibv_wc wc;
        int found = ibv_poll_cq(cq, 1, &wc);
        check(found == 0 || (found == 1 && wc.status == IBV_WC_SUCCESS));
        left -= found;
    }
    check(ibv_destroy_qp(calls) == 0 && ibv_destroy_qp(answers) == 0);
    check(rdma_destroy_id(client) == 0 && rdma_destroy_id(server) == 0 && rdma_destroy_id(listener) == 0);
    check(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
}

int main(void) {
    channel = rdma_create_event_channel();
    check(channel != NULL);
    run(acknowledgement_timeouts_are_those_that_were_set);
    run(programs_change_the_states_of_their_own_queue_pairs);
    rdma_destroy_event_channel(channel);
    printf("%d tests passed\n", tests_passed);
    return 0;
}
