/* The mapping from descriptors to rsockets, signal handling during a call, and the entry points. */
#include "rsockets.h"
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

struct table table;
bool is_table_usable;

/* The address ranges of the libraries that this one calls. Their own calls go to the system. */
static struct { uintptr_t from, to; } below[2];
int timeout_ms = 3000;
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

/* Returns whether a call with these flags blocks. */
bool blocks(uint64_t entry, int flags) {
    return !(flags & MSG_DONTWAIT) && atomic_load(&table.waits[RSOCKET_OF(entry)]);
}

/* Waits after a call that failed with EAGAIN. Returns whether to retry the call; if not, errno is set. The rsocket's
 * descriptor becomes readable when an event may have occurred since that call. The rsocket is not held meanwhile: a
 * handler may leave with siglongjmp(), and a cancelled thread does not return. If the number is reused, the sleep
 * only lasts too long. */
bool sleeps(int file, uint64_t entry, int flags, int64_t *started, const sigset_t *before) {
    if (errno != EAGAIN || !blocks(entry, flags))
        return false;
    *started = *started ? *started : microseconds();
    if (microseconds() - *started < SPIN_MICROS)
        return true;
    struct pollfd polled = { .fd = RSOCKET_OF(entry), .events = POLLIN };
    struct timespec nap = { 0, SLEEP_NANOS };
    bool is_ended = libc.ppoll(&polled, 1, &nap, before) < 0 && errno == EINTR && ends_calls(before);
    uint64_t found = is_ended ? EINTR : entry_of(file);
    errno = LOOK_ERROR(found) ? LOOK_ERROR(found) : EBADF;
    return found == entry;
}

/* ---- descriptors */

/* The program's descriptor of an rsocket is a copy of its placeholder: a Unix socket that is not
 * connected, so that calls which are not interposed, and those of a forked child, fail. An entry (rsockets.h)
 * is valid only while the descriptor still refers to the placeholder. */

/* Returns the entry of a descriptor without the rsocket's number; 0 if it is not a socket, or closed; or an error
 * number (LOOK_ERROR). Preserves errno. */
uint64_t inode_of(int file) {
    int kept = errno;
    struct stat is;
    uint64_t inode = fstat(file, &is) ? (errno == EBADF ? 0 : (uint64_t)errno)
                     : S_ISSOCK(is.st_mode) ? (uint64_t)is.st_ino << RSOCKET_BITS : 0;
    errno = kept;
    return inode;
}

/* Returns whether this process may change the table. A child that shares its parent's memory, as after vfork(2), may
 * not, because its descriptors are its own. It has no robust list (get_robust_list(2)): libc registers one for each
 * thread and for the child of fork(), and clone(2) gives none to a child. Process IDs do not suffice: a child in
 * another PID namespace may have the same ID as its parent. Preserves errno. */
bool is_owner(void) {
    void *list = NULL;
    size_t length;
    int kept = errno;
    syscall(SYS_get_robust_list, 0, &list, &length);
    errno = kept;
    return list;
}

/* Releases the reference of a descriptor or a call; the last one closes the rsocket. Preserves errno. */
void release(uint64_t entry) {
    int rs = RSOCKET_OF(entry);
    if (rs < 0 || atomic_fetch_sub(&table.numbers_of[rs], 1) != 1)
        return;
    int kept = errno;
    SIGNALS_BLOCKED(rclose(rs));
    errno = kept;
}

/* Returns the entry of a descriptor, or 0. The descriptor may have been closed or replaced since. */
uint64_t known_entry(int file) { return file >= 0 && file < FILES ? atomic_load(&table.entries[file]) : 0; }

/* Removes the entry of a descriptor that has been closed or replaced, unless it has another one by now. Preserves
 * errno. */
void forget(int file, uint64_t entry) {
    if (entry && is_owner() && atomic_compare_exchange_strong(&table.entries[file], &entry, 0))
        release(entry);
}

/* Returns the entry of a descriptor; 0 if it is not an rsocket; or an error number (LOOK_ERROR). If the descriptor has
 * been closed or replaced, removes its entry. Preserves errno. */
uint64_t entry_of(int file) {
    uint64_t entry = known_entry(file), inode = entry ? inode_of(file) : 0;
    if (LOOK_ERROR(inode))
        return inode;
    if (inode >> RSOCKET_BITS == entry >> RSOCKET_BITS)
        return entry;
    forget(file, entry);
    return 0;
}

/* Keeps the rsocket of a descriptor open until release(). Returns its number; fails with EBADF if the
 * descriptor no longer has this entry, or with LOOK_ERROR(entry). Signals must be blocked until release().
 *
 * An rsocket is counted before its entry is stored, and its entry is removed before the count decreases. So
 * if the entry is still there after the increment, the increment counts for this rsocket, not for a later
 * one with its number. */
int hold(int file, uint64_t entry) {
    if (LOOK_ERROR(entry))
        return fail(LOOK_ERROR(entry));
    int rs = RSOCKET_OF(entry), count = atomic_load(&table.numbers_of[rs]);
    while (count > 0 && !atomic_compare_exchange_weak(&table.numbers_of[rs], &count, count + 1))
        ;
    if (count > 0 && atomic_load(&table.entries[file]) == entry)
        return rs;
    if (count > 0)
        release(entry);
    return fail(EBADF);
}

/* Returns a new descriptor that refers to a new placeholder, or -1. */
int placeholder(int flags) { return libc.socket(AF_UNIX, SOCK_SEQPACKET | flags, 0); }

/* Makes a descriptor that refers to a placeholder mean an rsocket. `inode` is the placeholder's (inode_of()). Returns
 * whether it does: a vfork() child has no table of its own. */
bool name(int file, uint64_t inode, int rs) {
    if (!is_owner())
        return false;
    atomic_fetch_add(&table.numbers_of[rs], 1);
    atomic_store(&table.edges_reported[file], 0);
    release(atomic_exchange(&table.entries[file], inode | (uint64_t)(rs + 1)));
    return true;
}

/* Makes the program's descriptor refer to an rsocket, if it still refers to the socket with this inode. */
bool adopt(int file, uint64_t inode, int rs) {
    int other = file < FILES && rs < FILES ? placeholder(SOCK_CLOEXEC) : -1;
    if (other < 0)
        return false;
    uint64_t named = inode_of(other);
    bool is_named = !LOOK_ERROR(named) && SIGNALS_BLOCKED(inode_of(file) == inode && !replace_by_copy(file, other) &&
                                                          name(file, named, rs));
    libc.close(other);
    return is_named;
}

/* ---- entry points */

static void begin(void) {
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
    is_table_usable = !madvise(&table, sizeof table, MADV_WIPEONFORK);
}

/* Closes the rsockets that the program has left open. */
__attribute__((destructor)) static void end(void) {
    if (!is_owner())
        return;
    for (int rs = 0; rs < FILES; rs++)
        if (atomic_exchange(&table.numbers_of[rs], 0) > 0)
            rclose(rs);
}

DATAGRAM_CALLS(ENTRY)
DESCRIPTOR_CALLS(ENTRY)

#define CALL(result, name, declared, given) .name = rs_##name,
const struct backend backend = {begin, is_below, {SOCKET_CALLS(CALL) DATAGRAM_CALLS(CALL) DESCRIPTOR_CALLS(CALL)}};
