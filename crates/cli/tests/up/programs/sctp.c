/* A library for LD_PRELOAD that pretends that the system has SCTP: an SCTP stream socket is a TCP socket whose SO_PROTOCOL
 * is SCTP. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

enum { FILES = 1024 };
static bool is_sctp[FILES];

int socket(int domain, int type, int protocol) {
    int (*next)(int, int, int);
    *(void **)&next = dlsym(RTLD_NEXT, "socket");
    int fd = next(domain, type, protocol == IPPROTO_SCTP ? 0 : protocol);
    if (fd >= 0 && fd < FILES)
        is_sctp[fd] = protocol == IPPROTO_SCTP;
    return fd;
}

int getsockopt(int fd, int level, int option, void *value, socklen_t *length) {
    int (*next)(int, int, int, void *, socklen_t *);
    *(void **)&next = dlsym(RTLD_NEXT, "getsockopt");
    int result = next(fd, level, option, value, length);
    if (!result && level == SOL_SOCKET && option == SO_PROTOCOL && fd < FILES && is_sctp[fd])
        *(int *)value = IPPROTO_SCTP;
    return result;
}
