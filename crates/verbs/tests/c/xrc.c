/* Tests extended reliable connections (XRC) in one process and on one device. Needs KIBAN_TRANSPORT=roce and a network
 * namespace in which only `lo` has addresses. */
#include "check.h"

#include <fcntl.h>
#include <unistd.h>

enum { ROOM = 4096, FIRST_PSN = 0xfffffe };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static uint8_t room[2][ROOM];

static struct ibv_xrcd *open_domain(int fd, int flags) {
    struct ibv_xrcd_init_attr attr = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = flags};
    return ibv_open_xrcd(context, &attr);
}

static struct ibv_srq *shared_queue(struct ibv_xrcd *xrcd, struct ibv_cq *of) {
    struct ibv_srq_init_attr_ex attr = {
        .attr = {.max_wr = 8, .max_sge = 1}, .srq_type = IBV_SRQT_XRC, .pd = pd, .xrcd = xrcd, .cq = of,
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ};
    return ibv_create_srq_ex(context, &attr);
}

static struct ibv_qp *target(struct ibv_xrcd *xrcd) {
    struct ibv_qp_init_attr_ex attr = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd};
    return ibv_create_qp_ex(context, &attr);
}

static struct ibv_qp *initiator(void) {
    struct ibv_qp_init_attr_ex attr = {
        .qp_type = IBV_QPT_XRC_SEND, .send_cq = cq, .pd = pd, .sq_sig_all = 1,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ,
        .cap = {.max_send_wr = 8, .max_send_sge = 1}};
    return ibv_create_qp_ex(context, &attr);
}

static void initialise(struct ibv_qp *qp) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_READ};
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
}

/* Connects an initiator and a target with each other. */
static void connect_both(struct ibv_qp *sends, struct ibv_qp *receives) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .rq_psn = FIRST_PSN, .max_dest_rd_atomic = 4,
        .min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}}};
    int peer = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    int responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    check(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) == 0);
    initialise(sends);
    initialise(receives);
    attr.dest_qp_num = receives->qp_num;
    check(ibv_modify_qp(sends, &attr, peer | responder) == EINVAL && ibv_modify_qp(sends, &attr, peer) == 0);
    attr.dest_qp_num = sends->qp_num;
    check(ibv_modify_qp(receives, &attr, peer) == EINVAL && ibv_modify_qp(receives, &attr, peer | responder) == 0);
    struct ibv_qp_attr rts = {
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = FIRST_PSN, .max_rd_atomic = 4};
    int timer = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
    check(ibv_modify_qp(sends, &rts, timer | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
    check(ibv_modify_qp(receives, &rts, timer) == 0);
}

static void receive(struct ibv_srq *srq, uint64_t id, uint32_t offset) {
    struct ibv_sge sge = {.addr = (uintptr_t)&room[1][offset], .length = 1024, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    check(ibv_post_srq_recv(srq, &wr, &bad) == 0);
}

/* Waits for the next completion; the test runner limits the time. */
static struct ibv_wc next(struct ibv_cq *of) {
    struct ibv_wc wc;
    int found;
    while ((found = ibv_poll_cq(of, 1, &wc)) == 0)
        ;
    check(found == 1);
    return wc;
}

static void messages_go_to_the_queue_that_they_name(void) {
    struct ibv_xrcd *xrcd = open_domain(-1, O_CREAT);
    struct ibv_cq *cqs[2] = {ibv_create_cq(context, 8, NULL, NULL, 0), ibv_create_cq(context, 8, NULL, NULL, 0)};
    check(xrcd && cqs[0] && cqs[1]);
    struct ibv_srq *srqs[2] = {shared_queue(xrcd, cqs[0]), shared_queue(xrcd, cqs[1])};
    struct ibv_qp *sends = initiator(), *receives = target(xrcd);
    check(srqs[0] && srqs[1] && sends && receives);
    connect_both(sends, receives);
    memset(room[0], 'x', ROOM);
    for (int at = 0; at < 2; at++) {
        uint32_t number = 0;
        check(ibv_get_srq_num(srqs[at], &number) == 0 && number > 0 && number <= 0xffffff);
        receive(srqs[at], 20 + at, 1024 * at);
        struct ibv_sge sge = {.addr = (uintptr_t)room[0], .length = 100 + at, .lkey = mr->lkey};
        struct ibv_send_wr wr = {
            .wr_id = 10 + at, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
            .qp_type.xrc.remote_srqn = number}, *bad = NULL;
        if (at == 0) {
            check(ibv_post_send(sends, &wr, &bad) == 0);
        } else {
            struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(sends);
            ibv_wr_start(ex);
            ex->wr_id = 11;
            ex->wr_flags = 0;
            ibv_wr_send(ex);
            ibv_wr_set_xrc_srqn(ex, number);
            ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)room[0], 101);
            check(ibv_wr_complete(ex) == 0);
        }
        struct ibv_wc wc = next(cqs[at]);
        check(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)(20 + at) && wc.byte_len == (uint32_t)(100 + at));
        check(wc.qp_num == receives->qp_num && room[1][1024 * at] == 'x' && room[1][1024 * at + 100 + at] == 0);
        wc = next(cq);
        check(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)(10 + at));
    }

    /* Only the last handle of a target destroys it. */
    struct ibv_qp_open_attr open = {
        .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
        .qp_num = receives->qp_num, .xrcd = xrcd, .qp_type = IBV_QPT_XRC_RECV};
    struct ibv_qp *again = ibv_open_qp(context, &open);
    check(again != NULL && again->qp_num == receives->qp_num);
    open.qp_num = sends->qp_num;
    refuses(ibv_open_qp(context, &open), EINVAL);
    check(ibv_destroy_qp(receives) == 0 && ibv_close_xrcd(xrcd) == EBUSY);
    struct ibv_send_wr to_nobody = {.wr_id = 12, .opcode = IBV_WR_SEND, .qp_type.xrc.remote_srqn = 0}, *bad = NULL;
    check(ibv_post_send(sends, &to_nobody, &bad) == 0);
    struct ibv_wc refused = next(cq);
    check(refused.wr_id == 12 && refused.status == IBV_WC_REM_INV_REQ_ERR);

    check(ibv_destroy_cq(cqs[0]) == EBUSY && ibv_destroy_qp(again) == 0 && ibv_destroy_qp(sends) == 0);
    for (int at = 0; at < 2; at++)
        check(ibv_destroy_srq(srqs[at]) == 0 && ibv_destroy_cq(cqs[at]) == 0);
    check(ibv_close_xrcd(xrcd) == 0);
}

static void a_file_names_one_domain(void) {
    char name[] = "/tmp/kiban-xrc-XXXXXX";
    int fd = mkstemp(name);
    check(fd >= 0 && unlink(name) == 0);
    refuses(open_domain(fd, 0), EAGAIN);
    refuses(open_domain(9999, O_CREAT), EBADF);
    struct ibv_xrcd *one = open_domain(fd, O_CREAT | O_EXCL), *two = open_domain(fd, O_CREAT);
    struct ibv_xrcd *other = open_domain(-1, O_CREAT);
    check(one && two && other);
    refuses(open_domain(fd, O_CREAT | O_EXCL), EINVAL);
    struct ibv_qp *receives = target(one);
    struct ibv_qp_open_attr open = {
        .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
        .qp_num = receives->qp_num, .xrcd = other, .qp_type = IBV_QPT_XRC_RECV};
    refuses(ibv_open_qp(context, &open), EINVAL);
    open.xrcd = two;
    struct ibv_qp *again = ibv_open_qp(context, &open);
    check(again && ibv_destroy_qp(again) == 0);
    check(ibv_close_xrcd(two) == 0 && ibv_close_xrcd(one) == EBUSY && ibv_destroy_qp(receives) == 0);
    check(ibv_close_xrcd(one) == 0 && ibv_close_xrcd(other) == 0 && close(fd) == 0);
}

static void wrong_attributes_are_refused(void) {
    struct ibv_xrcd *xrcd = open_domain(-1, O_CREAT);
    struct ibv_xrcd_init_attr without_fd = {.comp_mask = IBV_XRCD_INIT_ATTR_OFLAGS, .oflags = O_CREAT};
    refuses(ibv_open_xrcd(context, &without_fd), EINVAL);
    refuses(shared_queue(NULL, cq), EINVAL);
    refuses(shared_queue(xrcd, NULL), EINVAL);
    refuses(target(NULL), EINVAL);
    struct ibv_qp_init_attr of_rc = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .srq = shared_queue(xrcd, cq)};
    refuses(ibv_create_qp(pd, &of_rc), EINVAL);
    struct ibv_qp *receives = target(xrcd), *sends = initiator();
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad = NULL;
    struct ibv_send_wr send = {.wr_id = 1, .opcode = IBV_WR_SEND}, *bad_send = NULL;
    check(receives && sends && ibv_post_recv(sends, &wr, &bad) != 0 && ibv_post_send(receives, &send, &bad_send) != 0);
    check(ibv_destroy_qp(receives) == 0 && ibv_destroy_qp(sends) == 0 && ibv_destroy_srq(of_rc.srq) == 0);
    check(ibv_close_xrcd(xrcd) == 0);
}

int main(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    check(list && list[0] && (context = ibv_open_device(list[0])));
    ibv_free_device_list(list);
    struct ibv_device_attr attr;
    check(ibv_query_device(context, &attr) == 0 && attr.device_cap_flags & IBV_DEVICE_XRC);
    check((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 16, NULL, NULL, 0)));
    check((mr = ibv_reg_mr(pd, room, sizeof room, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ)));
    run(messages_go_to_the_queue_that_they_name);
    run(a_file_names_one_domain);
    run(wrong_attributes_are_refused);
    check(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
    check(ibv_close_device(context) == 0);
    printf("%d tests passed\n", tests_passed);
    return 0;
}
