/* Registered memory that the program unmaps, or whose file it truncates: accesses fail like accesses without
 * rights, and the process survives. Run with libkiban_paths.so preloaded. */
#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SMALL = 4096, LARGE = 1 << 20 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cqs[2];
static struct ibv_qp *qps[2];

/* How the memory disappears. */
enum loss { UNMAPPED, TRUNCATED, PROTECTED };

struct memory {
    uint8_t *at;
    size_t bytes;
    int file;
    struct ibv_mr *mr;
};

static struct memory memory(size_t bytes) {
    struct memory made = {.bytes = bytes, .file = memfd_create("memory", 0)};
    check(made.file >= 0 && ftruncate(made.file, bytes) == 0);
    made.at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.file, 0);
    check(made.at != MAP_FAILED);
    made.mr = ibv_reg_mr(pd, made.at, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                                 IBV_ACCESS_REMOTE_ATOMIC);
    check(made.mr != NULL);
    return made;
}

/* Loses the second half. */
static void lose(struct memory *of, enum loss how) {
    size_t half = of->bytes / 2;
    if (how == UNMAPPED)
        check(munmap(of->at + half, half) == 0);
    else if (how == PROTECTED)
        check(mprotect(of->at + half, half, PROT_NONE) == 0);
    else
        check(ftruncate(of->file, half) == 0);
}

static void drop(struct memory *of) {
    check(ibv_dereg_mr(of->mr) == 0 && munmap(of->at, of->bytes) == 0 && close(of->file) == 0);
}

static void connect_both(void) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC};
    struct ibv_qp_attr rts = {
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
    for (int at = 0; at < 2; at++) {
        cqs[at] = ibv_create_cq(context, 16, NULL, NULL, 0);
        struct ibv_qp_init_attr asked = {
            .send_cq = cqs[at], .recv_cq = cqs[at], .qp_type = IBV_QPT_RC,
            .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
        qps[at] = ibv_create_qp(pd, &asked);
        check(cqs[at] && qps[at]);
        check(ibv_modify_qp(qps[at], &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    }
    for (int at = 0; at < 2; at++) {
        struct ibv_qp_attr rtr = {
            .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qps[1 - at]->qp_num,
            .max_dest_rd_atomic = 4, .min_rnr_timer = 12,
            .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}}};
        check(ibv_query_gid(context, 1, 0, &rtr.ah_attr.grh.dgid) == 0);
        check(ibv_modify_qp(qps[at], &rtr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
        check(ibv_modify_qp(qps[at], &rts,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                IBV_QP_MAX_QP_RD_ATOMIC) == 0);
    }
}

static void disconnect(void) {
    for (int at = 0; at < 2; at++)
        check(ibv_destroy_qp(qps[at]) == 0 && ibv_destroy_cq(cqs[at]) == 0);
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

static void waits_for_error(struct ibv_qp *qp, struct ibv_cq *cq) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr asked;
    struct ibv_wc wc;
    do {
        check(ibv_poll_cq(cq, 1, &wc) >= 0);
        check(ibv_query_qp(qp, &attr, IBV_QP_STATE, &asked) == 0);
    } while (attr.qp_state != IBV_QPS_ERR);
}

/* Waits until the queue pair has reported that it failed. */
static void waits_for_event(struct ibv_qp *qp) {
    struct ibv_async_event event;
    struct ibv_qp *of = NULL;
    enum ibv_event_type type;
    do {
        check(ibv_get_async_event(context, &event) == 0);
        type = event.event_type;
        of = event.element.qp;
        ibv_ack_async_event(&event);
    } while (of != qp || (type != IBV_EVENT_QP_ACCESS_ERR && type != IBV_EVENT_QP_FATAL));
}

static void post(enum ibv_wr_opcode opcode, struct memory *from, struct memory *to, uint32_t bytes) {
    struct ibv_sge sge = {.addr = (uintptr_t)from->at, .length = bytes, .lkey = from->mr->lkey};
    struct ibv_send_wr wr = {
        .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad = NULL;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        sge.length = 8;
        wr.wr.atomic.remote_addr = (uintptr_t)to->at + to->bytes / 2;
        wr.wr.atomic.rkey = to->mr->rkey;
        wr.wr.atomic.compare_add = 1;
    } else if (opcode != IBV_WR_SEND) {
        wr.wr.rdma.remote_addr = (uintptr_t)to->at;
        wr.wr.rdma.rkey = to->mr->rkey;
    }
    check(ibv_post_send(qps[0], &wr, &bad) == 0);
}

static void receive(struct memory *to) {
    struct ibv_sge sge = {.addr = (uintptr_t)to->at, .length = to->bytes, .lkey = to->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    check(ibv_post_recv(qps[1], &wr, &bad) == 0);
}

static const enum ibv_wr_opcode OPCODES[] = {
    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_ATOMIC_FETCH_AND_ADD};

static int is_one_of(enum ibv_wc_status status, enum ibv_wc_status first, enum ibv_wc_status second) {
    if (status != first && status != second)
        printf("status %s\n", ibv_wc_status_str(status));
    return status == first || status == second;
}

/* The target's memory is lost. */
static void target(enum ibv_wr_opcode opcode, size_t bytes, enum loss how) {
    struct memory own = memory(bytes), peers = memory(bytes);
    connect_both();
    if (opcode == IBV_WR_SEND)
        receive(&peers);
    lose(&peers, how);
    post(opcode, &own, &peers, bytes);
    struct ibv_wc wc = next(cqs[0]);
    if (opcode == IBV_WR_SEND) {
        check(is_one_of(wc.status, IBV_WC_REM_OP_ERR, IBV_WC_REM_INV_REQ_ERR));
        wc = next(cqs[1]);
        check(wc.wr_id == 2 && wc.status == IBV_WC_LOC_PROT_ERR);
    } else {
        check(wc.wr_id == 1 && is_one_of(wc.status, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR));
    }
    waits_for_error(qps[0], cqs[0]);
    waits_for_error(qps[1], cqs[1]);
    waits_for_event(qps[1]);
    disconnect();
    drop(&own);
    drop(&peers);
}

static void memory_of_a_target_disappears(void) {
    for (size_t at = 0; at < sizeof(OPCODES) / sizeof(*OPCODES); at++)
        for (int how = UNMAPPED; how <= PROTECTED; how++)
            for (size_t bytes = 2 * SMALL; bytes <= LARGE; bytes *= LARGE / SMALL / 2)
                target(OPCODES[at], bytes, how);
}

/* The requester's memory is lost. */
static void requester(enum ibv_wr_opcode opcode, size_t bytes, enum loss how) {
    struct memory own = memory(bytes), peers = memory(bytes);
    connect_both();
    if (opcode == IBV_WR_SEND)
        receive(&peers);
    lose(&own, how);
    post(opcode, &own, &peers, bytes);
    struct ibv_wc wc = next(cqs[0]);
    check(wc.wr_id == 1 && wc.status == IBV_WC_LOC_PROT_ERR);
    waits_for_error(qps[0], cqs[0]);
    disconnect();
    drop(&own);
    drop(&peers);
}

static void memory_of_a_requester_disappears(void) {
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND};
    for (size_t at = 0; at < sizeof(opcodes) / sizeof(*opcodes); at++)
        for (int how = UNMAPPED; how <= PROTECTED; how++)
            for (size_t bytes = 2 * SMALL; bytes <= LARGE; bytes *= LARGE / SMALL / 2)
                requester(opcodes[at], bytes, how);
}

static sigjmp_buf back;
static volatile sig_atomic_t handled;

static void handler(int number, siginfo_t *info, void *state) {
    handled = number;
    siglongjmp(back, 1);
}

static void simple_handler(int number) {
    handled = number;
    siglongjmp(back, 1);
}

static void raises_sigsegv(void) {
    handled = 0;
    if (!sigsetjmp(back, 1))
        *(volatile int *)8 = 1;
    check(handled == SIGSEGV);
}

/* A program's own handlers, set before or after the first registration. */
static void handlers_of_the_program_get_its_own_faults(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, old;
    sigaddset(&action.sa_mask, SIGUSR1);
    check(sigaction(SIGSEGV, &action, &old) == 0 && old.sa_handler == SIG_DFL);
    raises_sigsegv();
    target(IBV_WR_RDMA_WRITE, LARGE, UNMAPPED);
    raises_sigsegv();
    check(sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_sigaction == handler && old.sa_flags & SA_SIGINFO);
    check(sigismember(&old.sa_mask, SIGUSR1) == 1 && sigismember(&old.sa_mask, SIGUSR2) == 0);
    check(signal(SIGSEGV, simple_handler) == old.sa_handler);
    raises_sigsegv();
    target(IBV_WR_RDMA_READ, LARGE, UNMAPPED);
    action.sa_flags |= SA_RESETHAND;
    check(sigaction(SIGSEGV, &action, &old) == 0 && old.sa_handler == simple_handler);
    raises_sigsegv();
    check(signal(SIGSEGV, SIG_DFL) == SIG_DFL);
    target(IBV_WR_RDMA_WRITE, LARGE, UNMAPPED);
}

/* Without a handler, the program's own faults kill it, as without kiban. */
static void other_faults_kill_the_process(void) {
    for (int how = 0; how < 3; how++) {
        pid_t child = fork();
        check(child >= 0);
        if (child == 0) {
            if (how == 0)
                *(volatile int *)8 = 1;
            if (how == 1)
                raise(SIGBUS);
            signal(SIGSEGV, SIG_IGN);
            raise(SIGSEGV);
            *(volatile int *)8 = 1;
            _exit(0);
        }
        int status = 0;
        check(waitpid(child, &status, 0) == child);
        check(WIFSIGNALED(status) && WTERMSIG(status) == (how == 1 ? SIGBUS : SIGSEGV));
    }
}

int main(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    check(list != NULL && list[0] != NULL);
    context = ibv_open_device(list[0]);
    check(context != NULL);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    check(pd != NULL);
    run(memory_of_a_target_disappears);
    run(memory_of_a_requester_disappears);
    run(handlers_of_the_program_get_its_own_faults);
    run(other_faults_kill_the_process);
    check(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    printf("%d tests passed\n", tests_passed);
    return 0;
}
