/* Creates, queries and destroys objects; checks that invalid calls fail with rdma-core's errors. */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ibv_context *context;
static struct ibv_pd *pd;

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

static void devices_can_be_queried(void) {
    struct ibv_device_attr attr;
    struct ibv_device_attr_ex more;
    struct ibv_port_attr port;
    struct ibv_gid_entry entry, entries[4];
    union ibv_gid gid, same;
    uint16_t pkey;
    check(ibv_query_device(context, &attr) == 0 && attr.phys_port_cnt == 1 && attr.max_qp > 0);
    check(ibv_query_device_ex(context, NULL, &more) == 0);
    check(more.orig_attr.max_qp == attr.max_qp && more.completion_timestamp_mask != 0);
    check(attr.node_guid == ibv_get_device_guid(context->device));
    memset(&port, 0x5a, sizeof port);
    check(ibv_query_port(context, 1, &port) == 0);
    check(port.state == IBV_PORT_ACTIVE && port.gid_tbl_len == 4 && port.link_layer == IBV_LINK_LAYER_ETHERNET);
    check(port.port_cap_flags2 == 0 && port.active_mtu == IBV_MTU_4096);
    check(ibv_query_port(context, 0, &port) == EINVAL && ibv_query_port(context, 2, &port) == EINVAL);
    errno = 0;
    check(ibv_query_gid(context, 1, 4, &gid) == -1 && errno == EINVAL);
    check(ibv_query_gid(context, 2, 0, &gid) == -1 && ibv_query_gid(context, 1, -1, &gid) == -1);
    check(ibv_query_gid(context, 1, 0, &gid) == 0 && ibv_query_gid(context, 1, 3, &same) == 0);
    check(memcmp(&gid, &same, sizeof gid) == 0);
    check(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff);
    check(ibv_query_pkey(context, 1, 1, &pkey) == -1 && ibv_get_pkey_index(context, 1, 0xffff) == 0);
    check(ibv_query_gid_ex(context, 1, 0, &entry, 0) == 0);
    check(entry.gid_type == IBV_GID_TYPE_ROCE_V2 && entry.ndev_ifindex > 0 && entry.port_num == 1);
    check(ibv_query_gid_ex(context, 1, 4, &entry, 0) == EINVAL);
    check(ibv_query_gid_table(context, &entry, 1, 0) == -EINVAL && ibv_query_gid_table(context, entries, 4, 1) == -EINVAL);
    check(ibv_query_gid_table(context, entries, 4, 0) == 4);
    for (uint32_t at = 0; at < 4; at++)
        check(entries[at].gid_index == at && entries[at].gid_type == IBV_GID_TYPE_ROCE_V2);
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    check(ibv_query_rt_values_ex(context, &values) == 0 && values.raw_clock.tv_nsec != 0);
}

static void null_pointers_are_refused(void) {
    struct ibv_qp_attr attr;
    struct ibv_device_attr device;
    memset(&attr, 0, sizeof attr);
    refuses(ibv_open_device(NULL), EINVAL);
    refuses(ibv_alloc_pd(NULL), EINVAL);
    refuses(ibv_create_cq(NULL, 1, NULL, NULL, 0), EINVAL);
    refuses(ibv_create_comp_channel(NULL), EINVAL);
    refuses(ibv_create_qp(NULL, NULL), EINVAL);
    refuses(ibv_create_qp(pd, NULL), EINVAL);
    refuses(ibv_create_srq(pd, NULL), EINVAL);
    refuses(ibv_create_ah(pd, NULL), EINVAL);
    check(ibv_close_device(NULL) == EINVAL && ibv_dealloc_pd(NULL) == EINVAL && ibv_dereg_mr(NULL) == EINVAL);
    check(ibv_destroy_cq(NULL) == EINVAL && ibv_destroy_qp(NULL) == EINVAL && ibv_destroy_srq(NULL) == EINVAL);
    check(ibv_modify_qp(NULL, &attr, IBV_QP_STATE) == EINVAL && ibv_destroy_ah(NULL) == EINVAL);
    check(ibv_query_device(context, NULL) == EINVAL && ibv_query_device(NULL, &device) == EINVAL);
    check(ibv_get_device_name(NULL) == NULL);
}

static void registration_checks_memory(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *room = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(room != MAP_FAILED && munmap(room + 2 * page, page) == 0);
    check(mprotect(room + page, page, PROT_READ) == 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, room, page, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    check(mr != NULL && mr->addr == room && mr->length == page && mr->pd == pd && mr->context == context);
    check(ibv_dealloc_pd(pd) == EBUSY);
    refuses(ibv_reg_mr(pd, room, 2 * page, IBV_ACCESS_LOCAL_WRITE), EFAULT);
    refuses(ibv_reg_mr(pd, room, 4 * page, 0), EFAULT);
    struct ibv_mr *readable = ibv_reg_mr(pd, room, 2 * page, IBV_ACCESS_REMOTE_READ);
    check(readable != NULL && ibv_dereg_mr(readable) == 0);
    refuses(ibv_reg_mr(pd, room, page, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    refuses(ibv_reg_mr(pd, room, page, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
    refuses(ibv_reg_mr(pd, room, page, 1 << 12), EINVAL);
    refuses(ibv_reg_mr(pd, room, 0, 0), EINVAL);
    refuses(ibv_reg_mr(pd, NULL, SIZE_MAX, 0), EINVAL);
    struct ibv_mr *loose = ibv_reg_mr(pd, room, page, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
    check(loose != NULL && ibv_dereg_mr(loose) == 0);
    uint32_t key = mr->rkey;
    check(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE) == IBV_REREG_MR_ERR_CMD);
    check(mr->rkey == key);
    check(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
    check(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, room, page / 2, 0) == 0);
    check(mr->length == page / 2 && mr->rkey == key && mr->lkey == key);
    check(ibv_dereg_mr(mr) == 0 && munmap(room, 4 * page) == 0);
    refuses(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, 0), EOPNOTSUPP);
}

static void parent_and_thread_domains_work(void) {
    struct ibv_td_init_attr nothing = {0};
    struct ibv_td *td = ibv_alloc_td(context, &nothing);
    check(td != NULL);
    struct ibv_parent_domain_init_attr asked = {.pd = pd, .td = td};
    struct ibv_pd *parent = ibv_alloc_parent_domain(context, &asked);
    check(parent != NULL && ibv_dealloc_td(td) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
    check(ibv_dealloc_pd(parent) == 0 && ibv_dealloc_td(td) == 0);
    /* The program's allocators are accepted, and never called. */
    asked = (struct ibv_parent_domain_init_attr){.pd = pd, .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS};
    parent = ibv_alloc_parent_domain(context, &asked);
    check(parent != NULL && ibv_dealloc_pd(parent) == 0);
    asked.comp_mask = 1 << 9;
    refuses(ibv_alloc_parent_domain(context, &asked), EINVAL);
}

static void device_memory_is_addressed_by_offsets(void) {
    struct ibv_device_attr_ex device;
    struct ibv_alloc_dm_attr asked = {.length = 100};
    char text[8] = "0123456";
    const int access = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    check(!ibv_query_device_ex(context, NULL, &device) && device.max_dm_size > 100);
    struct ibv_dm *dm = ibv_alloc_dm(context, &asked);
    check(dm != NULL && !ibv_memcpy_to_dm(dm, 8, text, 8));
    check(!ibv_memcpy_from_dm(text + 4, dm, 8, 4) && !memcmp(text, "01230123", 8));
    check(ibv_memcpy_to_dm(dm, 1, text, 4) == EINVAL && ibv_memcpy_to_dm(dm, 0, text, 3) == EINVAL);
    check(ibv_memcpy_to_dm(dm, 96, text, 8) == EINVAL && ibv_memcpy_from_dm(text, dm, 104, 4) == EINVAL);
    struct ibv_mr *mr = ibv_reg_dm_mr(pd, dm, 4, 96, access);
    check(mr != NULL && mr->addr == NULL && mr->length == 96 && ibv_dereg_mr(mr) == 0);
    refuses(ibv_reg_dm_mr(pd, dm, 8, 96, access), EINVAL);
    refuses(ibv_reg_dm_mr(pd, dm, 0, 96, IBV_ACCESS_LOCAL_WRITE), EINVAL);
    struct ibv_dm *same = ibv_import_dm(context, dm->handle);
    check(same != NULL && !ibv_memcpy_from_dm(text, same, 12, 4) && !memcmp(text, "456", 4));
    ibv_unimport_dm(same);
    check(ibv_free_dm(dm) == 0);
    refuses(ibv_import_dm(context, 1 << 30), ENOENT);
    asked.length = device.max_dm_size + 1;
    refuses(ibv_alloc_dm(context, &asked), ENOMEM);
    asked = (struct ibv_alloc_dm_attr){.length = 100, .comp_mask = 1};
    refuses(ibv_alloc_dm(context, &asked), EINVAL);
}

/* Returns the memory that this process has in RAM, in pages. */
static long resident(void) {
    long size, pages;
    FILE *file = fopen("/proc/self/statm", "r");
    check(file && fscanf(file, "%ld %ld", &size, &pages) == 2 && !fclose(file));
    return pages;
}

static void memory_on_demand_is_not_touched_before_it_is_used(void) {
    const size_t bytes = 64 << 20;
    const int access = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE;
    struct ibv_device_attr_ex device;
    check(!ibv_query_device_ex(context, NULL, &device));
    check(device.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
    check(device.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_READ);
    char *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(room != MAP_FAILED);
    long before = resident();
    struct ibv_mr *mr = ibv_reg_mr(pd, room, bytes, access);
    check(mr != NULL && resident() - before < 4096);
    struct ibv_sge sge = {.addr = (uintptr_t)room, .length = bytes, .lkey = mr->lkey};
    check(!ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, &sge, 1) && resident() - before < 4096);
    check(!ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge, 1) && resident() - before > 12000);
    sge.lkey += 256;
    check(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == ENOENT);
    check(ibv_dereg_mr(mr) == 0 && munmap(room, bytes) == 0);
    /* An implicit region has all memory. */
    mr = ibv_reg_mr(pd, NULL, SIZE_MAX, access);
    check(mr != NULL && mr->addr == NULL && mr->length == SIZE_MAX && ibv_dereg_mr(mr) == 0);
}

static void large_registrations_touch_no_page(void) {
    const size_t bytes = (size_t)8 << 30, page = (size_t)sysconf(_SC_PAGESIZE);
    char *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(room != MAP_FAILED);
    long before = resident();
    struct ibv_mr *mr = ibv_reg_mr(pd, room, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    check(mr != NULL && mr->length == bytes && resident() - before < 4096 && ibv_dereg_mr(mr) == 0);
    /* One read-only page in the middle, and then a gap. */
    check(mprotect(room + bytes / 2, page, PROT_READ) == 0);
    refuses(ibv_reg_mr(pd, room, bytes, IBV_ACCESS_LOCAL_WRITE), EFAULT);
    mr = ibv_reg_mr(pd, room, bytes, IBV_ACCESS_REMOTE_READ);
    check(mr != NULL && ibv_dereg_mr(mr) == 0 && munmap(room + bytes / 2, page) == 0);
    refuses(ibv_reg_mr(pd, room, bytes, 0), EFAULT);
    check(resident() - before < 4096 && munmap(room, bytes) == 0);
}

static void objects_are_imported_from_another_context(void) {
    char room[64];
    struct ibv_mr *mr = ibv_reg_mr(pd, room, sizeof room, IBV_ACCESS_LOCAL_WRITE);
    check(mr != NULL);
    struct ibv_context *other = ibv_import_device(dup(context->cmd_fd));
    check(other != NULL && other != context && other->device == context->device);
    struct ibv_pd *same = ibv_import_pd(other, pd->handle);
    check(same != NULL && same->handle == pd->handle);
    refuses(ibv_import_pd(other, pd->handle + 12345), ENOENT);
    struct ibv_mr *region = ibv_import_mr(same, mr->handle);
    check(region != NULL && region->lkey == mr->lkey && region->rkey == mr->rkey && region->addr == NULL);
    refuses(ibv_import_mr(same, mr->handle + 12345), ENOENT);
    ibv_unimport_mr(region);
    ibv_unimport_pd(same);
    check(ibv_close_device(other) == 0 && ibv_dereg_mr(mr) == 0);
    refuses(ibv_import_device(-1), EBADF);
    int null = open("/dev/null", O_RDWR);
    refuses(ibv_import_device(null), EOPNOTSUPP);
    check(close(null) == 0);
}

static void completion_queues_and_channels_work(void) {
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    int cookie;
    check(channel != NULL);
    struct ibv_cq *cq = ibv_create_cq(context, 10, &cookie, channel, 0);
    check(cq != NULL && cq->cqe >= 10 && cq->cq_context == &cookie && channel->refcnt == 1);
    refuses(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
    refuses(ibv_create_cq(context, -1, NULL, NULL, 0), EINVAL);
    refuses(ibv_create_cq(context, 1 << 30, NULL, NULL, 0), EINVAL);
    refuses(ibv_create_cq(context, 1, NULL, NULL, context->num_comp_vectors), EINVAL);
    check(ibv_destroy_comp_channel(channel) == EBUSY);
    check(ibv_resize_cq(cq, 20) == 0 && cq->cqe >= 20 && ibv_resize_cq(cq, 0) == EINVAL);
    struct ibv_wc wc;
    struct ibv_cq *cq_of_event;
    void *cookie_of_event;
    check(ibv_poll_cq(cq, 1, &wc) == 0 && ibv_poll_cq(cq, 0, NULL) == 0 && ibv_req_notify_cq(cq, 0) == 0);
    check(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
    errno = 0;
    check(ibv_get_cq_event(channel, &cq_of_event, &cookie_of_event) == -1 && errno == EAGAIN);
    struct pollfd file = {.fd = channel->fd, .events = POLLIN};
    check(poll(&file, 1, 0) == 0);
    check(ibv_destroy_cq(cq) == 0 && channel->refcnt == 0 && ibv_destroy_comp_channel(channel) == 0);
    struct ibv_cq_init_attr_ex asked = {.cqe = 4, .wc_flags = IBV_WC_EX_WITH_CVLAN};
    refuses(ibv_create_cq_ex(context, &asked), EOPNOTSUPP);
    asked.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    struct ibv_cq_ex *more = ibv_create_cq_ex(context, &asked);
    struct ibv_poll_cq_attr none = {0};
    check(more != NULL && ibv_start_poll(more, &none) == ENOENT && ibv_start_poll(more, &none) == ENOENT);
    check(ibv_destroy_cq(ibv_cq_ex_to_cq(more)) == 0);
}

static void queue_pairs_change_states(void) {
    struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, NULL, 0);
    struct ibv_qp_init_attr asked = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 1}};
    struct ibv_qp_init_attr wrong = asked;
    wrong.qp_type = IBV_QPT_RAW_PACKET;
    refuses(ibv_create_qp(pd, &wrong), EOPNOTSUPP);
    /* Dynamically connected (DC) queue pairs, as mlx5dv_create_qp creates them. */
    wrong.qp_type = IBV_QPT_DRIVER;
    refuses(ibv_create_qp(pd, &wrong), EOPNOTSUPP);
    struct ibv_qp_init_attr unreliable = asked;
    unreliable.qp_type = IBV_QPT_UC;
    struct ibv_qp *uc = ibv_create_qp(pd, &unreliable);
    struct ibv_send_wr read = {.opcode = IBV_WR_RDMA_READ}, *bad_read = NULL;
    check(uc != NULL && uc->qp_type == IBV_QPT_UC);
    check(ibv_post_send(uc, &read, &bad_read) == EINVAL && bad_read == &read && ibv_destroy_qp(uc) == 0);
    wrong = asked;
    wrong.send_cq = NULL;
    refuses(ibv_create_qp(pd, &wrong), EINVAL);
    wrong = asked;
    wrong.cap.max_send_wr = 1 << 30;
    refuses(ibv_create_qp(pd, &wrong), EINVAL);
    wrong = asked;
    wrong.cap.max_inline_data = 1 << 20;
    refuses(ibv_create_qp(pd, &wrong), EINVAL);
    struct ibv_qp *qp = ibv_create_qp(pd, &asked);
    check(qp != NULL && qp->state == IBV_QPS_RESET && qp->qp_num > 0 && qp->qp_num < 1 << 24);
    check(ibv_qp_to_qp_ex(qp) == NULL && asked.cap.max_inline_data > 0);
    check(ibv_destroy_cq(cq) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);

    struct ibv_send_wr send = {.wr_id = 1, .opcode = IBV_WR_SEND}, *bad_send = NULL;
    struct ibv_recv_wr receive = {.wr_id = 2}, *bad_receive = NULL;
    check(ibv_post_send(qp, &send, &bad_send) == EINVAL && bad_send == &send);
    check(ibv_post_recv(qp, &receive, &bad_receive) == EINVAL && bad_receive == &receive);

    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_READ};
    int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
    check(ibv_modify_qp(qp, &attr, init | IBV_QP_TIMEOUT) == EINVAL);
    attr.port_num = 2;
    check(ibv_modify_qp(qp, &attr, init) == EINVAL);
    attr.port_num = 1;
    attr.pkey_index = 1;
    check(ibv_modify_qp(qp, &attr, init) == EINVAL);
    attr.pkey_index = 0;
    check(ibv_modify_qp(qp, &attr, init) == 0 && qp->state == IBV_QPS_INIT);
    check(ibv_post_send(qp, &send, &bad_send) == EINVAL);

    struct ibv_recv_wr many[5];
    memset(many, 0, sizeof many);
    for (int at = 0; at < 5; at++) {
        many[at].wr_id = (uint64_t)at;
        many[at].next = at < 4 ? &many[at + 1] : NULL;
    }
    check(ibv_post_recv(qp, many, &bad_receive) == ENOMEM && bad_receive == &many[4]);
    struct ibv_sge two[2] = {{0, 0, 0}, {0, 0, 0}};
    receive.sg_list = two;
    receive.num_sge = 2;
    check(ibv_post_recv(qp, &receive, &bad_receive) == EINVAL && bad_receive == &receive);

    struct ibv_qp_attr answer;
    struct ibv_qp_init_attr made;
    check(ibv_query_qp(qp, &answer, IBV_QP_STATE, &made) == 0);
    check(answer.qp_state == IBV_QPS_INIT && answer.qp_access_flags == IBV_ACCESS_REMOTE_READ);
    check(answer.port_num == 1 && made.cap.max_recv_wr == 4 && made.send_cq == cq);

    attr.qp_state = IBV_QPS_RTS;
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
    attr.qp_state = IBV_QPS_ERR;
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    struct ibv_wc wc;
    for (uint64_t at = 0; at < 4; at++)
        check(ibv_poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == at &&
              wc.qp_num == qp->qp_num);
    attr.qp_state = IBV_QPS_RESET;
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    check(ibv_query_qp(qp, &answer, IBV_QP_STATE, &made) == 0 && answer.qp_state == IBV_QPS_RESET);
    check(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
}

static void shared_receive_queues_have_limits(void) {
    struct ibv_srq_init_attr asked = {.attr = {.max_wr = 2, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &asked);
    struct ibv_srq_attr attr = {.srq_limit = 1};
    struct ibv_recv_wr receive = {.wr_id = 2}, *bad = NULL;
    check(srq != NULL && ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
    check(ibv_query_srq(srq, &attr) == 0 && attr.srq_limit == 1 && attr.max_wr == 2);
    attr.srq_limit = 3;
    check(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == EINVAL && ibv_modify_srq(srq, &attr, 1 << 9) == EINVAL);
    check(ibv_post_srq_recv(srq, &receive, &bad) == 0 && ibv_post_srq_recv(srq, &receive, &bad) == 0);
    check(ibv_post_srq_recv(srq, &receive, &bad) == ENOMEM && bad == &receive);
    check(ibv_destroy_srq(srq) == 0);
    asked.attr.max_wr = 1 << 30;
    refuses(ibv_create_srq(pd, &asked), EINVAL);
}

static void unsupported_objects_fail_with_eopnotsupp(void) {
    struct ibv_xrcd_init_attr xrcd = {0};
    refuses(ibv_open_xrcd(context, &xrcd), EOPNOTSUPP);
    refuses(ibv_alloc_null_mr(pd), EOPNOTSUPP);
}

static void a_forked_child_does_not_disturb_its_parent(void) {
    pid_t child = fork();
    check(child >= 0);
    if (child == 0) {
        int count = 0;
        struct ibv_device **list = ibv_get_device_list(&count);
        struct ibv_context *own = list && count > 0 ? ibv_open_device(list[0]) : NULL;
        struct ibv_pd *domain = own ? ibv_alloc_pd(own) : NULL;
        errno = 0;
        int parents = ibv_alloc_pd(context) == NULL && errno == EIO && ibv_dealloc_pd(pd) == EIO;
        struct ibv_alloc_dm_attr memory = {.length = 8};
        struct ibv_dm *dm = ibv_alloc_dm(context, &memory);
        parents = parents && dm && ibv_free_dm(dm) == 0;
        _exit(domain && parents && ibv_dealloc_pd(domain) == 0 && ibv_close_device(own) == 0 ? 0 : 1);
    }
    int status = -1;
    check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    struct ibv_pd *another = ibv_alloc_pd(context);
    check(another != NULL && ibv_dealloc_pd(another) == 0);
}

int main(void) {
    context = open_first();
    pd = ibv_alloc_pd(context);
    check(pd != NULL && pd->context == context);
    run(devices_can_be_queried);
    run(null_pointers_are_refused);
    run(registration_checks_memory);
    run(parent_and_thread_domains_work);
    run(device_memory_is_addressed_by_offsets);
    run(memory_on_demand_is_not_touched_before_it_is_used);
    run(large_registrations_touch_no_page);
    run(objects_are_imported_from_another_context);
    run(completion_queues_and_channels_work);
    run(queue_pairs_change_states);
    run(shared_receive_queues_have_limits);
    run(unsupported_objects_fail_with_eopnotsupp);
    run(a_forked_child_does_not_disturb_its_parent);
    check(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    printf("%d tests passed\n", tests_passed);
    return 0;
}
