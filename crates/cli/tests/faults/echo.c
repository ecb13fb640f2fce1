// An ordinary program that does not use kiban's API: sends bytes to an echo server, reads them back, and compares.
//
//     echo ADDRESS PORT BYTES         exit status: 0 all data came back, 1 an error was reported, 2 wrong data
//     echo serve                      echoes data, to one client after another; prints "ready PORT"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int failed(const char *what) {
    fprintf(stderr, "echo: %s: %s\n", what, strerror(errno));
    return 1;
}

static void serve_one(int file) {
    static char bytes[1 << 16];
    for (;;) {
        ssize_t got = recv(file, bytes, sizeof bytes, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) failed("recv");
        if (got <= 0) return;
        for (ssize_t done = 0; done < got;) {
            ssize_t now = send(file, bytes + done, (size_t)(got - done), MSG_NOSIGNAL);
            if (now < 0 && errno == EINTR) continue;
            if (now < 0) {
                failed("send");
                return;
            }
            done += now;
        }
    }
}

// Returns whether accept() may succeed later (accept(2)). After any other error, the listener is of no use, and a
// server that went on would fill the disk with messages.
static int is_temporary(int error) {
    return error == EINTR || error == ECONNABORTED || error == EMFILE || error == ENFILE || error == ENOBUFS ||
           error == ENOMEM;
}

static int serve(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0) return failed("socket");
    if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0) return failed("bind");
    if (listen(listener, 8) != 0) return failed("listen");
    if (getsockname(listener, (struct sockaddr *)&at, &length) != 0) return failed("getsockname");
    // Do not use stdio, which loses its buffered output if a write is interrupted.
    char ready[32];
    int said = snprintf(ready, sizeof ready, "ready %d\n", ntohs(at.sin_port));
    while (write(1, ready, (size_t)said) != said)
        if (errno != EINTR) return failed("write");
    for (;;) {
        int file = accept(listener, 0, 0);
        if (file < 0) {
            int error = errno;
            failed("accept");
            if (is_temporary(error)) continue;
            return 1;
        }
        serve_one(file);
        close(file);
    }
}

int main(int count, char **words) {
    if (count == 2 && strcmp(words[1], "serve") == 0) return serve();
    if (count != 4) return 2;
    static unsigned char sent[1 << 16], heard[1 << 16];
    size_t left = strtoul(words[3], 0, 10);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(words[2]))};
    if (inet_pton(AF_INET, words[1], &to.sin_addr) != 1) return 2;
    int file = socket(AF_INET, SOCK_STREAM, 0);
    if (file < 0) return failed("socket");
    while (connect(file, (struct sockaddr *)&to, sizeof to) != 0)
        if (errno != EINTR) return failed("connect");
    for (unsigned round = 0; left > 0; round++) {
        size_t piece = left < 4000 ? left : 4000, done = 0;
        for (size_t at = 0; at < piece; at++) sent[at] = (unsigned char)(at * 7 + round);
        while (done < piece) {
            ssize_t now = send(file, sent + done, piece - done, MSG_NOSIGNAL);
            if (now < 0 && errno == EINTR) continue;
            if (now < 0) return failed("send");
            done += (size_t)now;
        }
        for (done = 0; done < piece;) {
            ssize_t now = recv(file, heard + done, piece - done, 0);
            if (now < 0 && errno == EINTR) continue;
            if (now < 0) return failed("recv");
            if (now == 0) {
                fprintf(stderr, "echo: the stream ended early\n");
                return 1;
            }
            done += (size_t)now;
        }
        if (memcmp(sent, heard, piece) != 0) {
            fprintf(stderr, "echo: other bytes came\n");
            return 2;
        }
        left -= piece;
    }
    close(file);
    return 0;
}
