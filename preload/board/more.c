/* MSG_MORE (send(2)) on the board's streams.
 *
 * Purpose          bytes that do not fill a segment wait for those of the next write.
 * Operation        the first write with MSG_MORE, and the next one without it, each send the board a request. The board
 *                  answers after it has read the bytes written before, so the order of writes and requests holds.
 * State            HAS_MORE in the descriptor's record. After exec it is unknown; then the board releases the bytes when
 *                  their time is over (tcp(7), TCP_CORK).
 * Not implemented  writes of stdio do not end the wait. */
#include "board.h"

/* Whether the process has ever used MSG_MORE; if not, writes skip the lookup. */
static _Atomic bool is_used;

/* Called before a write. */
void begin_write(int fd, bool has_more) {
    struct found found;
    int kept = errno;
    if (!has_more || !find_or_adopt(fd, &found) || found.state != CONNECTED)
        return;
    is_used = true;
    if (!(found.word & HAS_MORE) && !set_more(&found.known, true))
        flag(&found, HAS_MORE);
    errno = kept;
}

/* Called after a write. If it had no MSG_MORE, the bytes of earlier writes need not wait any longer. */
void end_write(int fd, ssize_t count, bool has_more) {
    struct found found;
    int kept = errno;
    if (count < 0 && kept == EPIPE) {
        /* If the program has not finished the stream, the peer has, or has not answered. */
        bool has_finished = find(fd, &found) && (found.word & HAS_FINISHED);
        errno = has_finished ? EPIPE : error_of_end(fd, EPIPE);
        return;
    }
    if (has_more || count <= 0 || !is_used || !find(fd, &found) || !(found.word & HAS_MORE))
        return;
    unflag(&found, HAS_MORE);
    set_more(&found.known, false);
    errno = kept;
}

OURS ssize_t sendfile(int to, int from, off_t *offset, size_t count) {
    bool is_ours = !BYPASSED;
    ssize_t sent = libc.sendfile(to, from, offset, count);
    if (is_ours)
        end_write(to, sent, false);
    return sent;
}

OURS ssize_t sendfile64(int to, int from, off64_t *offset, size_t count) {
    _Static_assert(sizeof(off_t) == sizeof(off64_t), "64-bit files");
    return sendfile(to, from, (off_t *)offset, count);
}
