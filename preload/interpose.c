/* The entry points of the socket libraries, and the code shared by their backends (interpose.h). */
#include "interpose.h"

struct calls libc;
static _Atomic bool is_prepared;

/* Runs before main(), or earlier if another library's constructor makes a call; running twice is harmless. */
__attribute__((constructor)) static void begin(void) {
    if (atomic_load_explicit(&is_prepared, memory_order_acquire))
        return;
#define LOOK_UP(result, name, declared, given) *(void **)&libc.name = dlsym(RTLD_NEXT, #name);
    SOCKET_CALLS(LOOK_UP) BOARD_CALLS(LOOK_UP) DATAGRAM_CALLS(LOOK_UP) DESCRIPTOR_CALLS(LOOK_UP)
    LOOK_UP(, socket, , ) LOOK_UP(, fcntl, , ) LOOK_UP(, ioctl, , )
    backend.begin();
    atomic_store(&is_prepared, true);
}

bool is_bypassed(void *caller) {
    begin();
    return backend.is_below && backend.is_below(caller);
}

SOCKET_CALLS(ENTRY)

OURS int accept(int fd, struct sockaddr *name, socklen_t *length) {
    return (BYPASSED ? libc.accept4 : backend.calls.accept4)(fd, name, length, 0);
}

/* Entry points for programs compiled with _FORTIFY_SOURCE. */
void __chk_fail(void) __attribute__((noreturn));
ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __recv_chk(int, void *, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);

OURS ssize_t __read_chk(int fd, void *at, size_t bytes, size_t room) {
    if (bytes > room)
        __chk_fail();
    return read(fd, at, bytes);
}

OURS ssize_t __recv_chk(int fd, void *at, size_t bytes, size_t room, int flags) {
    if (bytes > room)
        __chk_fail();
    return recv(fd, at, bytes, flags);
}

OURS ssize_t __recvfrom_chk(int fd, void *at, size_t bytes, size_t room, int flags, struct sockaddr *name,
                            socklen_t *length) {
    if (bytes > room)
        __chk_fail();
    return recvfrom(fd, at, bytes, flags, name, length);
}

int replace_by_copy(int fd, int other) {
    int closes = libc.fcntl(fd, F_GETFD);
    return libc.dup3(other, fd, closes & FD_CLOEXEC ? O_CLOEXEC : 0) < 0 ? -1 : 0;
}

int stream_family(int fd) {
    int kept = errno, family = 0, type = 0;
    socklen_t length = sizeof(int);
    bool is_stream = !libc.getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length) &&
                     (family == AF_INET || family == AF_INET6);
    length = sizeof(int);
    is_stream = is_stream && !libc.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) && type == SOCK_STREAM;
    errno = kept;
    return is_stream ? family : 0;
}

/* A program that asks for protection must not run without it: the backends refuse these options instead of
 * ignoring them, on every stream socket, because it is not known yet where the socket will connect. */
bool asks_for_protection(int level, int option) {
    /* The kernel's headers, which define the newer options, cannot be included beside netinet/tcp.h. */
    enum { AO_ADD_KEY = 38, AO_GET_KEYS = 41, MIN_HOP_COUNT = 73 };
    switch (level) {
    case IPPROTO_TCP:
        return option == TCP_MD5SIG || option == TCP_MD5SIG_EXT || option == TCP_ULP ||
               (option >= AO_ADD_KEY && option <= AO_GET_KEYS);
    case IPPROTO_IP:
        return option == IP_MINTTL || option == IP_IPSEC_POLICY || option == IP_XFRM_POLICY;
    case IPPROTO_IPV6:
        return option == MIN_HOP_COUNT || option == IPV6_IPSEC_POLICY || option == IPV6_XFRM_POLICY;
    default:
        return false;
    }
}

int64_t microseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}
