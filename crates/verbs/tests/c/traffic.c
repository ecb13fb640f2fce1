/* Connects two queue pairs in one process out of band and tests all operations, and then datagrams. */
#include "check.h"

#include <arpa/inet.h>

enum { ROOM = 8192 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq_a, *cq_b;
static struct ibv_qp *a, *b;
static struct ibv_mr *mr_a, *mr_b;
static _Alignas(8) uint8_t room_a[ROOM], room_b[ROOM];

static struct ibv_context *open_first(void) {
    int count = -1;
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_context *first;
    check(list != NULL && count > 0 && list[count] == NULL);
    first = ibv_open_device(list[0]);
    check(first != NULL);
    ibv_free_device_list(list);
    return first;
}

static struct ibv_qp *make(struct ibv_cq *cq, enum ibv_qp_type type) {
    struct ibv_qp_init_attr_ex asked = {
        .send_cq = cq, .recv_cq = cq, .qp_type = type, .pd = pd,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64}};
    if (type == IBV_QPT_RC)
        asked.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    struct ibv_qp *qp = ibv_create_qp_ex(context, &asked);
    check(qp != NULL && ibv_qp_to_qp_ex(qp) != NULL);
    return qp;
}

static union ibv_gid own_gid(void) {
    union ibv_gid gid;
    check(ibv_query_gid(context, 1, 0, &gid) == 0);
    return gid;
}

static void initialise(struct ibv_qp *qp) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC};
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
}

static void connect_to(struct ibv_qp *qp, uint32_t peer, uint32_t begins, uint32_t peer_begins) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = peer_begins,
        .max_dest_rd_atomic = 4, .min_rnr_timer = 32 + 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = own_gid(), .hop_limit = 1, .sgid_index = 3}}};
    int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    check(ibv_modify_qp(qp, &attr, rtr & ~IBV_QP_AV) == EINVAL);
    struct ibv_qp_attr wrong = attr;
    wrong.ah_attr.grh.sgid_index = 4;
    check(ibv_modify_qp(qp, &wrong, rtr) == EINVAL);
    check(ibv_modify_qp(qp, &attr, rtr) == 0 && qp->state == IBV_QPS_RTR);
    struct ibv_qp_attr rts = {
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = begins, .max_rd_atomic = 4};
    check(ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
    check(qp->state == IBV_QPS_RTS);
}

/* Waits for the next completion; the test runner limits the time. */
static struct ibv_wc next(struct ibv_cq *cq) {
    struct ibv_wc wc;
    int found;
    while ((found = ibv_poll_cq(cq, 1, &wc)) == 0)
        ;
    check(found == 1);
    return wc;
}

static void receive(struct ibv_qp *qp, uint8_t *at, uint32_t bytes, struct ibv_mr *mr, uint64_t id) {
    struct ibv_sge sge = {.addr = (uintptr_t)at, .length = bytes, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    check(ibv_post_recv(qp, &wr, &bad) == 0);
}

static int post(struct ibv_qp *qp, struct ibv_send_wr wr, uint8_t *from, uint32_t bytes, struct ibv_mr *mr) {
    struct ibv_sge sge = {.addr = (uintptr_t)from, .length = bytes, .lkey = mr->lkey};
    struct ibv_send_wr *bad = NULL;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags |= IBV_SEND_SIGNALED;
    return ibv_post_send(qp, &wr, &bad);
}

static void two_queue_pairs_connect_out_of_band(void) {
    a = make(cq_a, IBV_QPT_RC);
    b = make(cq_b, IBV_QPT_RC);
    initialise(a);
    initialise(b);
    connect_to(a, b->qp_num, 0x111, 0x222);
    connect_to(b, a->qp_num, 0x222, 0x111);
}

static void sends_arrive_with_immediate_data(void) {
    memset(room_a, 7, 100);
    receive(b, room_b, 200, mr_b, 21);
    check(post(a, (struct ibv_send_wr){.wr_id = 1, .opcode = IBV_WR_SEND}, room_a, 100, mr_a) == 0);
    struct ibv_wc sent = next(cq_a), got = next(cq_b);
    check(sent.status == IBV_WC_SUCCESS && sent.wr_id == 1 && sent.opcode == IBV_WC_SEND && sent.qp_num == a->qp_num);
    check(got.status == IBV_WC_SUCCESS && got.wr_id == 21 && got.opcode == IBV_WC_RECV && got.byte_len == 100);
    check(got.qp_num == b->qp_num && got.wc_flags == 0 && memcmp(room_a, room_b, 100) == 0);

    receive(b, room_b, 200, mr_b, 22);
    struct ibv_send_wr imm = {.wr_id = 2, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(0x01020304)};
    imm.send_flags = IBV_SEND_INLINE;
    check(post(a, imm, room_a, 50, mr_a) == 0);
    got = next(cq_b);
    check(got.byte_len == 50 && got.wc_flags == IBV_WC_WITH_IMM && ntohl(got.imm_data) == 0x01020304);
    check(next(cq_a).wr_id == 2);
}

static void rdma_write_and_read_work(void) {
    struct ibv_send_wr write = {.wr_id = 3, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(0xaabbccdd)};
    write.wr.rdma.remote_addr = (uintptr_t)room_b + 1000;
    write.wr.rdma.rkey = mr_b->rkey;
    memset(room_a, 9, 3000);
    receive(b, room_b, 0, mr_b, 23);
    check(post(a, write, room_a, 3000, mr_a) == 0);
    struct ibv_wc sent = next(cq_a), got = next(cq_b);
    check(sent.status == IBV_WC_SUCCESS && sent.opcode == IBV_WC_RDMA_WRITE);
    check(got.status == IBV_WC_SUCCESS && got.opcode == IBV_WC_RECV_RDMA_WITH_IMM && got.byte_len == 3000);
    check(got.wc_flags == IBV_WC_WITH_IMM && ntohl(got.imm_data) == 0xaabbccdd);
    check(memcmp(room_a, room_b + 1000, 3000) == 0);

    struct ibv_send_wr read = {.wr_id = 4, .opcode = IBV_WR_RDMA_READ};
    read.wr.rdma.remote_addr = (uintptr_t)room_b + 1000;
    read.wr.rdma.rkey = mr_b->rkey;
    check(post(a, read, room_a + 4000, 3000, mr_a) == 0);
    sent = next(cq_a);
    check(sent.status == IBV_WC_SUCCESS && sent.opcode == IBV_WC_RDMA_READ && sent.byte_len == 3000);
    check(memcmp(room_a + 4000, room_b + 1000, 3000) == 0);
    read.send_flags = IBV_SEND_INLINE;
    check(post(a, read, room_a, 8, mr_a) == EINVAL);
}

static void atomics_return_the_old_value(void) {
    uint64_t *there = (uint64_t *)(void *)room_b, *here = (uint64_t *)(void *)room_a;
    *there = 40;
    struct ibv_send_wr add = {.wr_id = 5, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
    add.wr.atomic.remote_addr = (uintptr_t)there;
    add.wr.atomic.rkey = mr_b->rkey;
    add.wr.atomic.compare_add = 2;
    check(post(a, add, room_a, 8, mr_a) == 0);
    struct ibv_wc wc = next(cq_a);
    check(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_FETCH_ADD && *here == 40 && *there == 42);
    struct ibv_send_wr swap = add;
    swap.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    swap.wr.atomic.compare_add = 42;
    swap.wr.atomic.swap = 7;
    check(post(a, swap, room_a, 8, mr_a) == 0);
    wc = next(cq_a);
    check(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_COMP_SWAP && *here == 42 && *there == 7);
}

static void ibv_wr_calls_post_a_batch(void) {
    struct ibv_qp_ex *calls = ibv_qp_to_qp_ex(a);
    receive(b, room_b, 100, mr_b, 24);
    ibv_wr_start(calls);
    calls->wr_id = 60;
    calls->wr_flags = 0;
    ibv_wr_rdma_write(calls, mr_b->rkey, (uintptr_t)room_b + 500);
    ibv_wr_set_inline_data(calls, (void *)(uintptr_t)"gathered", 8);
    calls->wr_id = 61;
    calls->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send_imm(calls, htonl(99));
    ibv_wr_set_sge(calls, mr_a->lkey, (uintptr_t)room_a, 10);
    check(ibv_poll_cq(cq_b, 1, &(struct ibv_wc){0}) == 0);
    check(ibv_wr_complete(calls) == 0);
    check(next(cq_a).wr_id == 61);
    struct ibv_wc got = next(cq_b);
    check(ntohl(got.imm_data) == 99 && got.byte_len == 10 && memcmp(room_b + 500, "gathered", 8) == 0);
    ibv_wr_start(calls);
    ibv_wr_send(calls);
    ibv_wr_set_inline_data(calls, room_a, 1 << 20);
    check(ibv_wr_complete(calls) == EINVAL);
    ibv_wr_start(calls);
    ibv_wr_send(calls);
    ibv_wr_abort(calls);
    ibv_wr_start(calls);
    for (int at = 0; at < 17; at++)
        ibv_wr_send(calls);
    check(ibv_wr_complete(calls) == ENOMEM);
    check(ibv_poll_cq(cq_a, 1, &(struct ibv_wc){0}) == 0);
}

static void a_memory_window_grants_access_to_its_range(void) {
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    check(mw != NULL);
    uint32_t before = mw->rkey;
    struct ibv_mw_bind bind = {
        .wr_id = 70, .send_flags = IBV_SEND_SIGNALED,
        .bind_info = {.mr = mr_b, .addr = (uintptr_t)room_b, .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
    check(ibv_bind_mw(b, mw, &bind) == 0 && mw->rkey != before && mw->rkey >> 8 == before >> 8);
    struct ibv_wc wc = next(cq_b);
    check(wc.status == IBV_WC_SUCCESS && wc.wr_id == 70 && wc.opcode == IBV_WC_BIND_MW);
    struct ibv_send_wr write = {.wr_id = 71, .opcode = IBV_WR_RDMA_WRITE};
    write.wr.rdma.remote_addr = (uintptr_t)room_b;
    write.wr.rdma.rkey = mw->rkey;
    memset(room_a, 0x33, 64);
    check(post(a, write, room_a, 64, mr_a) == 0 && next(cq_a).status == IBV_WC_SUCCESS);
    /* The write has been sent; a read after it confirms that it has arrived. */
    struct ibv_send_wr read = {.wr_id = 72, .opcode = IBV_WR_RDMA_READ};
    read.wr.rdma.remote_addr = (uintptr_t)room_b;
    read.wr.rdma.rkey = mr_b->rkey;
    check(post(a, read, room_a + 100, 64, mr_a) == 0 && next(cq_a).status == IBV_WC_SUCCESS);
    check(memcmp(room_a, room_a + 100, 64) == 0);
    check(ibv_dereg_mr(mr_b) == EBUSY && ibv_dealloc_mw(mw) == 0);
}

static void completion_events_arrive_through_the_channel(void) {
    struct ibv_cq *cq_of_event;
    void *cookie;
    check(ibv_req_notify_cq(cq_b, 0) == 0);
    receive(b, room_b, 100, mr_b, 25);
    check(post(a, (struct ibv_send_wr){.wr_id = 8, .opcode = IBV_WR_SEND}, room_a, 4, mr_a) == 0);
    check(ibv_get_cq_event(channel, &cq_of_event, &cookie) == 0 && cq_of_event == cq_b && cookie == &cq_b);
    ibv_ack_cq_events(cq_of_event, 1);
    check(next(cq_b).wr_id == 25 && next(cq_a).wr_id == 8);
}

static void an_invalid_rkey_ends_both_queue_pairs(void) {
    struct ibv_send_wr write = {.wr_id = 9, .opcode = IBV_WR_RDMA_READ};
    write.wr.rdma.remote_addr = (uintptr_t)room_b;
    write.wr.rdma.rkey = mr_b->rkey ^ 0x5500;
    receive(a, room_a, 10, mr_a, 26);
    check(post(a, write, room_a, 4, mr_a) == 0);
    struct ibv_wc first = next(cq_a), second = next(cq_a);
    struct ibv_wc sent = first.wr_id == 9 ? first : second, flushed = first.wr_id == 9 ? second : first;
    check(sent.status == IBV_WC_REM_ACCESS_ERR && flushed.wr_id == 26 && flushed.status == IBV_WC_WR_FLUSH_ERR);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr made;
    check(ibv_query_qp(a, &attr, IBV_QP_STATE, &made) == 0 && attr.qp_state == IBV_QPS_ERR);
    struct ibv_async_event event;
    check(ibv_get_async_event(context, &event) == 0);
    check(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == b);
    ibv_ack_async_event(&event);
    check(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
}

static void datagrams_arrive_at_their_queue_pair(void) {
    struct ibv_qp *both[2] = {make(cq_a, IBV_QPT_UD), make(cq_b, IBV_QPT_UD)};
    for (int at = 0; at < 2; at++) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x1111};
        check(ibv_modify_qp(both[at], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
        attr.qp_state = IBV_QPS_RTR;
        check(ibv_modify_qp(both[at], &attr, IBV_QP_STATE) == 0);
        attr.qp_state = IBV_QPS_RTS;
        check(ibv_modify_qp(both[at], &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
    }
    struct ibv_ah_attr way = {.is_global = 1, .port_num = 1, .grh = {.dgid = own_gid()}};
    struct ibv_ah *ah = ibv_create_ah(pd, &way);
    check(ah != NULL && ibv_dealloc_pd(pd) == EBUSY);
    way.port_num = 2;
    refuses(ibv_create_ah(pd, &way), EINVAL);
    receive(both[1], room_b, 200, mr_b, 30);
    struct ibv_send_wr send = {.wr_id = 10, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(5)};
    send.wr.ud.ah = ah;
    send.wr.ud.remote_qpn = both[1]->qp_num;
    send.wr.ud.remote_qkey = 0x1111;
    memset(room_a, 0x44, 100);
    check(post(both[0], send, room_a, 100, mr_a) == 0 && next(cq_a).status == IBV_WC_SUCCESS);
    struct ibv_wc got = next(cq_b);
    check(got.wr_id == 30 && got.byte_len == 140 && (got.wc_flags & IBV_WC_GRH) && ntohl(got.imm_data) == 5);
    check(got.src_qp == both[0]->qp_num && memcmp(room_a, room_b + 40, 100) == 0);
    struct ibv_ah *back = ibv_create_ah_from_wc(pd, &got, (struct ibv_grh *)(void *)room_b, 1);
    check(back != NULL);
    /* A datagram with a wrong Q_Key is dropped: of two datagrams, only the second arrives. */
    struct ibv_qp_attr other = {.qkey = 0x2222};
    check(ibv_modify_qp(both[1], &other, IBV_QP_QKEY) == 0);
    check(ibv_req_notify_cq(cq_b, 0) == 0);
    receive(both[1], room_b, 200, mr_b, 31);
    check(post(both[0], send, room_a, 100, mr_a) == 0 && next(cq_a).status == IBV_WC_SUCCESS);
    send.wr.ud.remote_qkey = 0x2222;
    check(post(both[0], send, room_a, 50, mr_a) == 0 && next(cq_a).status == IBV_WC_SUCCESS);
    struct ibv_cq *cq_of_event;
    void *cookie;
    check(ibv_get_cq_event(channel, &cq_of_event, &cookie) == 0 && cq_of_event == cq_b);
    ibv_ack_cq_events(cq_of_event, 1);
    struct ibv_wc heard = next(cq_b);
    check(heard.wr_id == 31 && heard.byte_len == 90);
    struct ibv_send_wr write = {.opcode = IBV_WR_RDMA_WRITE};
    check(post(both[0], write, room_a, 4, mr_a) == EINVAL);
    check(ibv_destroy_ah(back) == 0 && ibv_destroy_ah(ah) == 0);
    check(ibv_destroy_qp(both[0]) == 0 && ibv_destroy_qp(both[1]) == 0);
}

int main(void) {
    context = open_first();
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    cq_a = ibv_create_cq(context, 64, NULL, NULL, 0);
    cq_b = ibv_create_cq(context, 64, &cq_b, channel, 0);
    int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
              IBV_ACCESS_MW_BIND;
    mr_a = ibv_reg_mr(pd, room_a, ROOM, all);
    mr_b = ibv_reg_mr(pd, room_b, ROOM, all);
    check(pd && channel && cq_a && cq_b && mr_a && mr_b);
    run(two_queue_pairs_connect_out_of_band);
    run(sends_arrive_with_immediate_data);
    run(rdma_write_and_read_work);
    run(atomics_return_the_old_value);
    run(ibv_wr_calls_post_a_batch);
    run(a_memory_window_grants_access_to_its_range);
    run(completion_events_arrive_through_the_channel);
    run(an_invalid_rkey_ends_both_queue_pairs);
    run(datagrams_arrive_at_their_queue_pair);
    check(ibv_dereg_mr(mr_a) == 0 && ibv_dereg_mr(mr_b) == 0);
    check(ibv_destroy_cq(cq_a) == 0 && ibv_destroy_cq(cq_b) == 0 && ibv_destroy_comp_channel(channel) == 0);
    check(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    printf("%d tests passed\n", tests_passed);
    return 0;
}
