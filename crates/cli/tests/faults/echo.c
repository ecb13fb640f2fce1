// A program that knows nothing of kiban: sends so many bytes to an address, reads them back, compares.
//
//     echo ADDRESS PORT BYTES         exit status: 0 all came back, 1 an error was reported, 2 other bytes came
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

int main(int count, char **words) {
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
