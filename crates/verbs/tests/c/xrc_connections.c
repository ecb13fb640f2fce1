/* Tests extended reliable connections (XRC) through rdma_cm, in one process and on one device. Needs KIBAN_TRANSPORT=roce
 * and a network namespace in which only `lo` has addresses. */
#include "check.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

enum { ROOM = 64 };

#define HOME "192.0.2.1"

static uint8_t room[2][ROOM];

static struct rdma_addrinfo *address(const char *port, int flags, int port_space, int qp_type) {
    struct rdma_addrinfo hints = {
        .ai_flags = flags, .ai_family = AF_INET, .ai_port_space = port_space, .ai_qp_type = qp_type}, *found = NULL;
    check(rdma_getaddrinfo(HOME, port, &hints, &found) == 0);
    return found;
}

/* Returns an identifier that has the queue pair of `attr` or, if it is passive, whose requests will have one. */
static struct rdma_cm_id *endpoint(const char *port, int flags, int qp_type, struct ibv_qp_init_attr *attr) {
    struct rdma_addrinfo *found = address(port, flags, RDMA_PS_IB, qp_type);
    struct rdma_cm_id *id = NULL;
    check(rdma_create_ep(&id, found, NULL, attr) == 0);
    rdma_freeaddrinfo(found);
    return id;
}

static struct rdma_cm_id *listener(const char *port, int qp_type, struct ibv_qp_init_attr *attr) {
    struct rdma_cm_id *id = endpoint(port, RAI_PASSIVE, qp_type, attr);
    check(rdma_listen(id, 4) == 0);
    return id;
}

static struct ibv_qp_init_attr small(void) {
    struct ibv_qp_init_attr attr = {.sq_sig_all = 1, .cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1,
                                                             .max_recv_sge = 1}};
    return attr;
}

static struct ibv_mr *registered(struct rdma_cm_id *id, int number) {
    struct ibv_mr *mr = rdma_reg_msgs(id, room[number], ROOM);
    check(mr);
    return mr;
}

static void send_to(struct ibv_qp *qp, uint32_t srq, struct ibv_mr *mr) {
    struct ibv_sge sge = {.addr = (uintptr_t)room[0], .length = ROOM, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED, .qp_type.xrc.remote_srqn = srq}, *bad = NULL;
    memset(room[0], 'x', ROOM);
    memset(room[1], 0, ROOM);
    check(ibv_post_send(qp, &wr, &bad) == 0);
}

/* Accepts a request with the number of a shared receive queue, and receives a message through it. */
static void *serve(void *listening) {
    struct rdma_cm_id *id = NULL;
    check(rdma_get_request(listening, &id) == 0);
    check(id->qp && id->qp->qp_type == IBV_QPT_XRC_RECV && id->send_cq == NULL);
    /* More receives than the completion queue of rdma_create_ep has room for. */
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    check(rdma_create_srq(id, NULL, &attr) == 0 && id->srq && id->recv_cq->cqe >= 8);
    struct ibv_mr *mr = registered(id, 1);
    check(rdma_post_recv(id, room[1], room[1], ROOM, mr) == 0);
    uint32_t number = 0;
    check(ibv_get_srq_num(id->srq, &number) == 0);
    number = htonl(number);
    struct rdma_conn_param param = {.private_data = &number, .private_data_len = sizeof number};
    check(rdma_accept(id, &param) == 0);
    struct ibv_wc wc;
    check(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    check(wc.wr_id == (uintptr_t)room[1] && wc.byte_len == ROOM && wc.qp_num == id->qp->qp_num);
    check(memcmp(room[0], room[1], ROOM) == 0);
    check(rdma_disconnect(id) == 0 && rdma_dereg_mr(mr) == 0);
    rdma_destroy_ep(id);
    return NULL;
}

static void endpoints_connect_and_name_their_queue(void) {
    struct ibv_qp_init_attr attr = small();
    struct rdma_cm_id *listening = listener("7471", IBV_QPT_XRC_RECV, &attr);
    pthread_t server;
    check(pthread_create(&server, NULL, serve, listening) == 0);
    attr = small();
    struct rdma_cm_id *id = endpoint("7471", 0, IBV_QPT_XRC_SEND, &attr);
    check(id->qp && id->qp->qp_type == IBV_QPT_XRC_SEND);
    struct ibv_mr *mr = registered(id, 0);
    check(rdma_connect(id, NULL) == 0 && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
    const struct rdma_conn_param *param = &id->event->param.conn;
    check(param->private_data_len >= 4);
    send_to(id->qp, ntohl(*(const uint32_t *)param->private_data), mr);
    struct ibv_wc wc;
    check(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == 7);
    check(pthread_join(server, NULL) == 0);
    check(rdma_disconnect(id) == 0 && rdma_dereg_mr(mr) == 0);
    rdma_destroy_ep(id);
    rdma_destroy_ep(listening);
}

static void *connect_in_vain(void *port) {
    struct ibv_qp_init_attr attr = small();
    struct rdma_cm_id *id = endpoint(port, 0, IBV_QPT_XRC_SEND, &attr);
    check(rdma_connect(id, NULL) == -1 && errno == ECONNREFUSED && id->event->event == RDMA_CM_EVENT_REJECTED);
    rdma_destroy_ep(id);
    return NULL;
}

static void only_a_target_accepts_an_initiator(void) {
    struct ibv_qp_init_attr attr = small();
    struct rdma_cm_id *listening = listener("7472", IBV_QPT_RC, &attr), *id = NULL;
    pthread_t client;
    check(pthread_create(&client, NULL, connect_in_vain, (void *)"7472") == 0);
    check(rdma_get_request(listening, &id) == 0 && id->qp->qp_type == IBV_QPT_RC);
    check(rdma_accept(id, NULL) == -1 && errno == EINVAL);
    check(rdma_reject(id, NULL, 0) == 0);
    check(pthread_join(client, NULL) == 0);
    rdma_destroy_ep(id);
    rdma_destroy_ep(listening);
}

/* RDMA_PS_TCP and RDMA_PS_IB have ports of their own, but a port is taken from both (docs/roce.md). */
static void a_port_space_has_its_own_services(void) {
    struct ibv_qp_init_attr attr = small();
    struct rdma_cm_id *listening = listener("7473", IBV_QPT_XRC_RECV, &attr), *id = NULL;
    struct rdma_addrinfo *found = address("7473", 0, RDMA_PS_TCP, IBV_QPT_RC);
    attr = small();
    check(rdma_create_ep(&id, found, NULL, &attr) == 0);
    rdma_freeaddrinfo(found);
    check(rdma_connect(id, NULL) == -1 && errno == ECONNREFUSED);
    rdma_destroy_ep(id);
    rdma_destroy_ep(listening);
}

static void to_state(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state, int expected) {
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask = 0;
    check(rdma_init_qp_attr(id, &attr, &mask) == 0 && mask == expected);
    check(ibv_modify_qp(qp, &attr, mask) == 0);
}

enum {
    TO_INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
    TO_RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
    RESPONDER = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
    TO_RTS = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT,
    REQUESTER = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
};

/* The objects of a program that creates its queue pairs itself. */
struct target {
    struct rdma_cm_id *listening;
    uint32_t srq;
    struct ibv_cq *cq;
    struct ibv_xrcd *xrcd;
};

static void *serve_with_own_target(void *argument) {
    struct target *target = argument;
    struct rdma_cm_id *id = NULL;
    check(rdma_get_request(target->listening, &id) == 0 && id->qp == NULL);
    struct ibv_qp_init_attr_ex attr = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = target->xrcd};
    struct ibv_qp *qp = ibv_create_qp_ex(id->verbs, &attr);
    check(qp);
    to_state(id, qp, IBV_QPS_INIT, TO_INIT);
    to_state(id, qp, IBV_QPS_RTR, TO_RTR | RESPONDER);
    to_state(id, qp, IBV_QPS_RTS, TO_RTS);
    struct rdma_conn_param param = {.qp_num = qp->qp_num, .responder_resources = 1};
    check(rdma_accept(id, &param) == 0);
    struct ibv_wc wc;
    while (ibv_poll_cq(target->cq, 1, &wc) == 0)
        ;
    check(wc.status == IBV_WC_SUCCESS && wc.qp_num == qp->qp_num && memcmp(room[0], room[1], ROOM) == 0);
    check(ibv_destroy_qp(qp) == 0);
    rdma_destroy_ep(id);
    return NULL;
}

static void programs_connect_queue_pairs_of_their_own(void) {
    struct target target = {.listening = listener("7474", IBV_QPT_XRC_RECV, NULL)};
    struct rdma_cm_id *id = endpoint("7474", 0, IBV_QPT_XRC_SEND, NULL);
    struct ibv_context *context = id->verbs;
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    struct ibv_xrcd_init_attr of_domain = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = 0100 /* O_CREAT */};
    check(pd && cq && (target.cq = ibv_create_cq(context, 4, NULL, NULL, 0)));
    check((target.xrcd = ibv_open_xrcd(context, &of_domain)));
    struct ibv_srq_init_attr_ex of_srq = {
        .attr = {.max_wr = 4, .max_sge = 1}, .srq_type = IBV_SRQT_XRC, .pd = pd, .xrcd = target.xrcd, .cq = target.cq,
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ};
    struct ibv_srq *srq = ibv_create_srq_ex(context, &of_srq);
    struct ibv_mr *mr = ibv_reg_mr(pd, room, sizeof room, IBV_ACCESS_LOCAL_WRITE);
    check(srq && mr && ibv_get_srq_num(srq, &target.srq) == 0);
    struct ibv_sge sge = {.addr = (uintptr_t)room[1], .length = ROOM, .lkey = mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad = NULL;
    check(ibv_post_srq_recv(srq, &receive, &bad) == 0);

    pthread_t server;
    check(pthread_create(&server, NULL, serve_with_own_target, &target) == 0);
    struct ibv_qp_init_attr of_qp = {
        .send_cq = cq, .qp_type = IBV_QPT_XRC_SEND, .cap = {.max_send_wr = 4, .max_send_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(pd, &of_qp);
    check(qp);
    to_state(id, qp, IBV_QPS_INIT, TO_INIT);
    struct rdma_conn_param param = {.qp_num = qp->qp_num, .initiator_depth = 1, .retry_count = 7};
    check(rdma_connect(id, &param) == 0 && id->event->event == RDMA_CM_EVENT_CONNECT_RESPONSE);
    to_state(id, qp, IBV_QPS_RTR, TO_RTR);
    to_state(id, qp, IBV_QPS_RTS, TO_RTS | REQUESTER);
    check(rdma_establish(id) == 0);
    send_to(qp, target.srq, mr);
    struct ibv_wc wc;
    while (ibv_poll_cq(cq, 1, &wc) == 0)
        ;
    check(wc.status == IBV_WC_SUCCESS);
    check(pthread_join(server, NULL) == 0);
    check(ibv_destroy_qp(qp) == 0 && ibv_destroy_srq(srq) == 0 && ibv_dereg_mr(mr) == 0);
    rdma_destroy_ep(id);
    rdma_destroy_ep(target.listening);
    check(ibv_close_xrcd(target.xrcd) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_cq(target.cq) == 0);
    check(ibv_dealloc_pd(pd) == 0);
}

int main(void) {
    run(endpoints_connect_and_name_their_queue);
    run(only_a_target_accepts_an_initiator);
    run(a_port_space_has_its_own_services);
    run(programs_connect_queue_pairs_of_their_own);
    printf("%d tests passed\n", tests_passed);
    return 0;
}
