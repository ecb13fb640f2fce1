// An RDMA server and a client that check the result of every call. They connect through the connection manager; the server
// echoes messages.
//
//     verbs server ADDRESS               serves one client after another, even after errors; prints "ready PORT"
//     verbs client ADDRESS PORT COUNT    exit status: 0 all data came back, 1 an error was reported, 2 wrong data
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 3000 };

static int failed(const char *what) {
    fprintf(stderr, "verbs: %s: %s\n", what, strerror(errno));
    return 1;
}

static void attributes(struct ibv_qp_init_attr *attr) {
    memset(attr, 0, sizeof *attr);
    attr->cap.max_send_wr = attr->cap.max_recv_wr = 4;
    attr->cap.max_send_sge = attr->cap.max_recv_sge = 1;
    attr->sq_sig_all = 1;
    attr->qp_type = IBV_QPT_RC;
}

static int completed(struct ibv_wc *wc, int count, const char *what) {
    if (count < 0) return failed(what);
    if (wc->status != IBV_WC_SUCCESS) {
        fprintf(stderr, "verbs: %s: %s\n", what, ibv_wc_status_str(wc->status));
        return 1;
    }
    return 0;
}

static int receive(struct rdma_cm_id *id) {
    struct ibv_wc wc;
    int count;
    do count = rdma_get_recv_comp(id, &wc);
    while (count < 0 && errno == EINTR);
    return completed(&wc, count, "receive");
}

static int send_all(struct rdma_cm_id *id, void *bytes, struct ibv_mr *mr) {
    struct ibv_wc wc;
    int count;
    if (rdma_post_send(id, 0, bytes, BYTES, mr, 0) != 0) return failed("post send");
    do count = rdma_get_send_comp(id, &wc);
    while (count < 0 && errno == EINTR);
    return completed(&wc, count, "send");
}

static int serve_one(struct rdma_cm_id *id) {
    static unsigned char bytes[BYTES];
    struct ibv_mr *mr = rdma_reg_msgs(id, bytes, BYTES);
    if (!mr) return failed("register");
    int result = 1;
    if (rdma_post_recv(id, 0, bytes, BYTES, mr) != 0) failed("post receive");
    else if (rdma_accept(id, 0) != 0) failed("accept");
    else {
        while (receive(id) == 0) {
            // There is only one buffer, so it is reposted only after its contents have been sent.
            if (send_all(id, bytes, mr) != 0) break;
            if (rdma_post_recv(id, 0, bytes, BYTES, mr) != 0) break;
        }
        rdma_disconnect(id);
        result = 0;
    }
    rdma_dereg_mr(mr);
    return result;
}

static int serve(char *address) {
    struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *found;
    struct rdma_cm_id *listener, *id;
    struct ibv_qp_init_attr attr;
    if (rdma_getaddrinfo(address, "0", &hints, &found) != 0) return failed("address");
    attributes(&attr);
    if (rdma_create_ep(&listener, found, 0, &attr) != 0) return failed("endpoint");
    rdma_freeaddrinfo(found);
    if (rdma_listen(listener, 8) != 0) return failed("listen");
    // Do not use stdio, which loses its buffered output if a write is interrupted.
    char ready[32];
    int said = snprintf(ready, sizeof ready, "ready %d\n", ntohs(rdma_get_src_port(listener)));
    while (write(1, ready, (size_t)said) != said)
        if (errno != EINTR) return failed("write");
    for (;;) {
        if (rdma_get_request(listener, &id) != 0) {
            failed("request");
            continue;
        }
        serve_one(id);
        rdma_destroy_ep(id);
    }
}

static int call(char *address, char *port, unsigned long count) {
    static unsigned char sent[BYTES], heard[BYTES];
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
    struct rdma_cm_id *id;
    struct ibv_qp_init_attr attr;
    if (rdma_getaddrinfo(address, port, &hints, &found) != 0) return failed("address");
    attributes(&attr);
    if (rdma_create_ep(&id, found, 0, &attr) != 0) return failed("endpoint");
    rdma_freeaddrinfo(found);
    struct ibv_mr *out = rdma_reg_msgs(id, sent, BYTES), *in = rdma_reg_msgs(id, heard, BYTES);
    if (!out || !in) return failed("register");
    if (rdma_post_recv(id, 0, heard, BYTES, in) != 0) return failed("post receive");
    if (rdma_connect(id, 0) != 0) return failed("connect");
    for (unsigned long round = 0; round < count; round++) {
        for (int at = 0; at < BYTES; at++) sent[at] = (unsigned char)(at * 7 + round);
        if (send_all(id, sent, out) != 0 || receive(id) != 0) return 1;
        if (memcmp(sent, heard, BYTES) != 0) {
            fprintf(stderr, "verbs: other bytes came\n");
            return 2;
        }
        if (round + 1 < count && rdma_post_recv(id, 0, heard, BYTES, in) != 0) return failed("post receive");
    }
    rdma_disconnect(id);
    rdma_dereg_mr(out);
    rdma_dereg_mr(in);
    rdma_destroy_ep(id);
    return 0;
}

int main(int count, char **words) {
    signal(SIGPIPE, SIG_IGN);
    if (count == 3 && strcmp(words[1], "server") == 0) return serve(words[2]);
    if (count == 5 && strcmp(words[1], "client") == 0) return call(words[2], words[3], strtoul(words[4], 0, 10));
    fprintf(stderr, "verbs: server ADDRESS, or client ADDRESS PORT COUNT\n");
    return 2;
}
