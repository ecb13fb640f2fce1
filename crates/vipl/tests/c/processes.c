/* Two processes: each opens its own NIC after the fork and sends its address to the other through a pipe. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

/* One pipe in each direction: [0] is read by the parent, [1] by the child. */
static int pipes[2][2];
static int is_child;

static void tell(const void *bytes, size_t count) {
    CHECK(write(pipes[is_child ? 0 : 1][1], bytes, count) == (ssize_t)count);
}

static void listen_for(void *bytes, size_t count) {
    size_t got = 0;
    while (got < count) {
        ssize_t more = read(pipes[is_child ? 1 : 0][0], (char *)bytes + got, count - got);
        CHECK(more > 0);
        got += (size_t)more;
    }
}

/* Runs one function in the parent and one in a child. The child must exit with 0, or be killed if `killed` is set. */
static void in_two_processes(void (*parent)(void), void (*child)(void), int killed) {
    pid_t pid;
    int status;
    CHECK(pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0);
    fflush(stdout);
    pid = fork();
    CHECK(pid >= 0);
    is_child = pid == 0;
    close(pipes[is_child ? 0 : 1][0]);
    close(pipes[is_child ? 1 : 0][1]);
    if (is_child) {
        child();
        _exit(0);
    }
    parent();
    CHECK(waitpid(pid, &status, 0) == pid);
    if (killed)
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    else
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(pipes[0][0]);
    close(pipes[1][1]);
}

/* Both processes open a NIC, exchange addresses, and connect: the parent as server, the child as client. */
static void meet(Side *side, VIP_VI_HANDLE *vi, VIP_RELIABILITY_LEVEL level) {
    Address local, remote;
    VIP_VI_ATTRIBUTES attributes;
    side_open(side);
    *vi = vi_of(side, level, NULL, NULL);
    address_of(side->nic, is_child ? "child" : "parent", &local);
    tell(&local, sizeof local);
    listen_for(&remote, sizeof remote);
    if (is_child) {
        VIP_RETURN answer;
        time_t end = time(NULL) + (time_t)(LONG / 1000);
        do
            answer = VipConnectRequest(*vi, &local.net, &remote.net, LONG, &attributes);
        while (answer == VIP_NO_MATCH && time(NULL) <= end);
        OK(answer);
    } else {
        Address reported;
        VIP_CONN_HANDLE request;
        OK(VipConnectWait(side->nic, &local.net, LONG, &reported.net, &attributes, &request));
        CHECK(memcmp(&reported, &remote, 4u + remote.net.HostAddressLen + remote.net.DiscriminatorLen) == 0);
        OK(VipConnectAccept(request, *vi));
    }
}

#define ROUNDS 2000
static VIP_RELIABILITY_LEVEL level_now;

static void ping(void) {
    Side side;
    VIP_VI_HANDLE vi;
    int k;
    char word;
    meet(&side, &vi, level_now);
    listen_for(&word, 1); /* the other side has posted its receives */
    for (k = 0; k < ROUNDS; k++) {
        VIP_UINT32 length = (VIP_UINT32)((k * 37) % 5000);
        VIP_DESCRIPTOR *r = plain(&side, 0, 0, 8192), *s = plain(&side, 1, 8192, length), *done;
        post_recv(&side, vi, r);
        paint(side.data + 8192, length, (unsigned)k);
        post_send(&side, vi, s);
        received(vi, r, 0);
        EQUAL(r->CS.Length, length);
        CHECK(painted(side.data, length, (unsigned)k));
        EQUAL(VipSendWait(vi, LONG, &done), VIP_SUCCESS);
    }
    OK(VipDisconnect(vi));
    side_close(&side);
}

static void pong(void) {
    Side side;
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR *r, *done;
    int k;
    meet(&side, &vi, level_now);
    post_recv(&side, vi, plain(&side, 0, 0, 8192));
    post_recv(&side, vi, plain(&side, 1, 8192, 8192));
    tell("!", 1);
    for (k = 0; k < ROUNDS; k++) {
        VIP_DESCRIPTOR *s;
        OK(VipRecvWait(vi, LONG, &r));
        s = plain(&side, 2, (size_t)((char *)r->DS[0].Local.Data.Address - side.data), r->CS.Length);
        post_send(&side, vi, s);
        OK(VipSendWait(vi, LONG, &done));
        post_recv(&side, vi, r);
    }
    /* The peer's disconnect flushes the receives. */
    EQUAL(VipRecvWait(vi, LONG, &r), VIP_DESCRIPTOR_ERROR);
    EQUAL(r->CS.Status & VIP_STATUS_ERROR_MASK, VIP_STATUS_DESC_FLUSHED_ERROR);
    EQUAL(state_of(vi), VIP_STATE_ERROR);
    side_close(&side);
}

static void two_processes_play_ping_pong(void) {
    int i;
    EACH_LEVEL(i) {
        level_now = LEVELS[i];
        in_two_processes(pong, ping, 0);
    }
}

/* The child registers memory; the parent writes to it and reads it back; immediate data notifies the child. */
static void offer(void) {
    Side side;
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR *r;
    meet(&side, &vi, VIP_SERVICE_RELIABLE_RECEPTION);
    post_recv(&side, vi, r = blank(&side, 0));
    tell(&side, sizeof side); /* the address of its memory */
    received(vi, r, 0);
    EQUAL(r->CS.Status & VIP_STATUS_OP_MASK, VIP_STATUS_OP_REMOTE_RDMA_WRITE);
    EQUAL(r->CS.ImmediateData, 99);
    CHECK(painted(side.data + 1000, 50000, 4));
    post_recv(&side, vi, r = blank(&side, 0));
    tell("!", 1);
    received(vi, r, VIP_STATUS_DESC_FLUSHED_ERROR);
    side_close(&side);
}

static void reach_over(void) {
    Side side, other;
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR *d;
    char word;
    meet(&side, &vi, VIP_SERVICE_RELIABLE_RECEPTION);
    listen_for(&other, sizeof other);
    paint(side.data, 50000, 4);
    d = blank(&side, 0);
    d->CS.Control = VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_IMMEDIATE;
    d->CS.ImmediateData = 99;
    with_remote(d, &other, 1000);
    with_data(d, &side, 0, 50000);
    post_send(&side, vi, d);
    sent(vi, d, 0);
    d = blank(&side, 0);
    d->CS.Control = VIP_CONTROL_OP_RDMAREAD;
    with_remote(d, &other, 1000);
    with_data(d, &side, 60000, 50000);
    post_send(&side, vi, d);
    sent(vi, d, 0);
    CHECK(painted(side.data + 60000, 50000, 4));
    listen_for(&word, 1);
    OK(VipDisconnect(vi));
    side_close(&side);
}

static void rdma_works_between_processes(void) {
    in_two_processes(reach_over, offer, 0);
}

/* When a peer is killed, the other side gets errors for sends in progress, and no call hangs. */
static void wait_to_be_killed(void) {
    Side side;
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR *r;
    meet(&side, &vi, VIP_SERVICE_RELIABLE_RECEPTION);
    post_recv(&side, vi, r = plain(&side, 0, 0, 64));
    received(vi, r, 0);
    raise(SIGKILL);
}

static void survive(void) {
    Side side;
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR *r, *first, *second;
    meet(&side, &vi, VIP_SERVICE_RELIABLE_RECEPTION);
    post_recv(&side, vi, r = plain(&side, 0, 0, 64));
    post_send(&side, vi, first = plain(&side, 1, 0, 64));
    sent(vi, first, 0);
    /* The peer is dead or dying: this send cannot complete. */
    post_send(&side, vi, second = plain(&side, 2, 0, 64));
    received(vi, r, VIP_STATUS_DESC_FLUSHED_ERROR);
    {
        VIP_DESCRIPTOR *done;
        EQUAL(VipSendWait(vi, LONG, &done), VIP_DESCRIPTOR_ERROR);
        CHECK(done == second);
        /* The send was in progress, unless the peer's end was detected before it was posted. */
        CHECK((second->CS.Status & VIP_STATUS_ERROR_MASK) == VIP_STATUS_TRANSPORT_ERROR ||
              (second->CS.Status & VIP_STATUS_ERROR_MASK) == VIP_STATUS_DESC_FLUSHED_ERROR);
    }
    EQUAL(state_of(vi), VIP_STATE_ERROR);
    OK(VipDisconnect(vi));
    OK(VipDestroyVi(vi));
    side_close(&side);
}

static void a_killed_peer_is_detected(void) {
    in_two_processes(survive, wait_to_be_killed, 1);
}

/* The message waits for a receive that is never posted, so it is in progress when the peer dies. */
static void be_killed_on_a_word(void) {
    Side side;
    VIP_VI_HANDLE vi;
    char word;
    meet(&side, &vi, VIP_SERVICE_RELIABLE_RECEPTION);
    tell("?", 1);
    listen_for(&word, 1);
    raise(SIGKILL);
}

static void lose_what_was_under_way(void) {
    Side side;
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR *s, *done;
    char word;
    meet(&side, &vi, VIP_SERVICE_RELIABLE_RECEPTION);
    listen_for(&word, 1);
    post_send(&side, vi, s = plain(&side, 0, 0, 64));
    EQUAL(VipSendWait(vi, SHORT, &done), VIP_TIMEOUT);
    tell("!", 1);
    sent(vi, s, VIP_STATUS_TRANSPORT_ERROR);
    EQUAL(state_of(vi), VIP_STATE_ERROR);
    side_close(&side);
}

static void sends_to_a_killed_peer_have_a_transport_error(void) {
    in_two_processes(lose_what_was_under_way, be_killed_on_a_word, 1);
}

int main(int argc, char **argv) {
    test_begin(argc, argv);
    RUN(two_processes_play_ping_pong);
    RUN(rdma_works_between_processes);
    RUN(a_killed_peer_is_detected);
    RUN(sends_to_a_killed_peer_have_a_transport_error);
    return test_end();
}
