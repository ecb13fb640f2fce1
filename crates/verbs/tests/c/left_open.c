/* Tests that the peer of a process that exits without a word learns of it, as with a NIC, whose kernel ends the connection.
 * Needs KIBAN_TRANSPORT=roce and a network namespace in which only `lo` has addresses. */
#include "check.h"

#include <rdma/rdma_cma.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOME "192.0.2.1"
#define PORT "7471"

static struct rdma_cm_id *endpoint(int flags) {
    struct rdma_addrinfo hints = {.ai_flags = flags, .ai_family = AF_INET, .ai_port_space = RDMA_PS_TCP}, *found = NULL;
    struct ibv_qp_init_attr attr = {.sq_sig_all = 1, .cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1,
                                                             .max_recv_sge = 1}};
    struct rdma_cm_id *id = NULL;
    check(rdma_getaddrinfo(HOME, PORT, &hints, &found) == 0);
    check(rdma_create_ep(&id, found, NULL, &attr) == 0);
    rdma_freeaddrinfo(found);
    return id;
}

/* Accepts a connection and exits while it is open. */
static void serve(int ready) {
    struct rdma_cm_id *listening = endpoint(RAI_PASSIVE), *id = NULL;
    check(rdma_listen(listening, 1) == 0);
    check(write(ready, "x", 1) == 1);
    check(rdma_get_request(listening, &id) == 0);
    check(rdma_accept(id, NULL) == 0);
    exit(0);
}

static void the_peer_of_a_process_that_exits_is_told(void) {
    int ready[2], status = 0;
    char byte;
    check(pipe(ready) == 0);
    pid_t server = fork();
    check(server >= 0);
    if (server == 0)
        serve(ready[1]);
    check(read(ready[0], &byte, 1) == 1);
    struct rdma_cm_id *id = endpoint(0);
    check(rdma_connect(id, NULL) == 0);
    /* A child that exits leaves its parent's connection alone. */
    pid_t child = fork();
    check(child >= 0);
    if (child == 0)
        exit(0);
    check(waitpid(child, &status, 0) == child && status == 0);
    check(waitpid(server, &status, 0) == server && status == 0);
    struct rdma_cm_event *event = NULL;
    check(rdma_get_cm_event(id->channel, &event) == 0);
    check(event->event == RDMA_CM_EVENT_DISCONNECTED && event->id == id);
    check(rdma_ack_cm_event(event) == 0);
    rdma_destroy_ep(id);
}

int main(void) {
    run(the_peer_of_a_process_that_exits_is_told);
    printf("%d tests passed\n", tests_passed);
    return 0;
}
