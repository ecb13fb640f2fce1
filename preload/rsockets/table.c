/* The mapping from descriptors to rsockets, signal handling during a call, and the entry points. */
#include "rsockets.h"
#include <link.h>
#include <pthread.h>

_Atomic int rsocket_of[FILES];
_Atomic int numbers_of[FILES];
_Atomic unsigned edges_reported[FILES];

/* The address ranges of the libraries that this one calls. Their own calls go to the system. */
static struct { uintptr_t from, to; } below[2];
int timeout_ms = 3000;
_Atomic bool waits[FILES];
/* All signals except synchronous ones, such as SIGSEGV. */
static sigset_t blocked_signals;

struct range { uintptr_t at, from, to; };

static int note_range(struct dl_phdr_info *info, size_t size, void *data) {
    struct range *range = data;
    uintptr_t from = UINTPTR_MAX, to = 0;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD)
            continue;
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        from = start < from ? start : from;
        to = start + part->p_memsz > to ? start + part->p_memsz : to;
    }
    if (range->at < from || range->at >= to)
        return 0;
    range->from = from;
    range->to = to;
    return 1;
}

static bool is_below(void *caller) {
    uintptr_t at = (uintptr_t)caller;
    return (at >= below[0].from && at < below[0].to) || (at >= below[1].from && at < below[1].to);
}

/* Returns the rsocket of a descriptor, or -1. */
int over(int file) {
    return file >= 0 && file < FILES ? atomic_load(&rsocket_of[file]) - 1 : -1;
}

/* ---- signals */

/* Blocks signals in this thread until restore_signals(). */
void block_signals(sigset_t *before) {
    pthread_sigmask(SIG_BLOCK, &blocked_signals, before);
}

void restore_signals(const sigset_t *before) {
    int kept = errno;
    pthread_sigmask(SIG_SETMASK, before, NULL);
    errno = kept;
}

/* Returns whether the handler that interrupted a sleep may have been installed without SA_RESTART (sigaction(2)). */
static bool ends_calls(const sigset_t *mask) {
    for (int number = 1; number <= 64; number++) {
        struct sigaction action;
        if (sigismember(mask, number) == 0 && sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
            action.sa_handler != SIG_IGN && !(action.sa_flags & SA_RESTART))
            return true;
    }
    return false;
}

/* Waits after a call that failed with EAGAIN. Returns whether to retry the call; if not, errno is set. The rsocket's
 * descriptor becomes readable when an event may have occurred since that call. */
bool sleeps(int rs, int flags, int64_t *started, const sigset_t *before) {
    if (errno != EAGAIN || (flags & MSG_DONTWAIT) || rs >= FILES || !atomic_load(&waits[rs]))
        return false;
    *started = *started ? *started : microseconds();
    if (microseconds() - *started < SPIN_MICROS)
        return true;
    struct pollfd file = { .fd = rs, .events = POLLIN };
    struct timespec nap = { 0, SLEEP_NANOS };
    if (libc.ppoll(&file, 1, &nap, before) < 0 && errno == EINTR && ends_calls(before)) {
        errno = EINTR;
        return false;
    }
    return true;
}

/* ---- descriptors */

void name(int file, int rs) {
    atomic_store(&edges_reported[file], 0);
    atomic_store(&rsocket_of[file], rs + 1);
    atomic_fetch_add(&numbers_of[rs], 1);
}

/* Removes a descriptor from its rsocket. */
void unname(int file) {
    int rs = over(file);
    if (rs < 0)
        return;
    atomic_store(&rsocket_of[file], 0);
    if (atomic_fetch_sub(&numbers_of[rs], 1) == 1) {
        int kept = errno;
        SIGNALS_BLOCKED(rclose(rs));
        errno = kept;
    }
}

/* Makes the program's descriptor refer to an rsocket. */
bool adopt(int file, int rs) {
    if (file >= FILES || rs >= FILES || replace_by_copy(file, rs))
        return false;
    name(file, rs);
    return true;
}

/* ---- entry points */

static void begin(void) {
    static _Atomic bool is_registered;
    void *inside[2] = { dlsym(RTLD_DEFAULT, "ibv_get_device_list"), (void *)rsocket };
    for (int i = 0; i < 2; i++) {
        struct range range = { (uintptr_t)inside[i], 0, 0 };
        dl_iterate_phdr(note_range, &range);
        below[i].from = range.from;
        below[i].to = range.to;
    }
    const char *timeout_text = getenv("KIBAN_RSPRELOAD_MS");
    if (timeout_text && atoi(timeout_text) > 0)
        timeout_ms = atoi(timeout_text);
    sigfillset(&blocked_signals);
    static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked_signals, faults[i]);
    if (!atomic_exchange(&is_registered, true))
        pthread_atfork(NULL, NULL, on_fork);
}

/* Closes the rsockets that the program has left open. */
__attribute__((destructor)) static void end(void) {
    for (int rs = 0; rs < FILES; rs++)
        if (atomic_exchange(&numbers_of[rs], 0) > 0)
            rclose(rs);
}

DESCRIPTOR_CALLS(ENTRY)

#define CALL(result, name, declared, given) .name = rs_##name,
const struct backend backend = {begin, is_below, {SOCKET_CALLS(CALL) DESCRIPTOR_CALLS(CALL)}};
