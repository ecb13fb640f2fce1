/* The state of each descriptor. It uses no locks, so signal handlers and forked children find it consistent.
 *
 * A descriptor's state is an immutable record to which one atomic word refers. Readers copy the record and then check
 * that the word is unchanged; no thread waits for another. */
#include "board.h"
#include <stddef.h>
#include <sys/resource.h>

/* The number of slots for records whose descriptor number has been reused (put_aside()); a test builds fewer. */
#ifndef ASIDE
#define ASIDE 256
#endif
/* The number of records: one per slot, plus some for calls in progress. */
#define RECORDS (FILES + ASIDE + 1024)
#define WORDS (sizeof(struct known) / sizeof(uint64_t))
#define INODE (offsetof(struct known, inode) / sizeof(uint64_t))
_Static_assert(sizeof(struct known) % sizeof(uint64_t) == 0, "copied word by word");
static _Atomic uint64_t records[RECORDS][WORDS];
static _Atomic uint32_t generations[RECORDS], next_free[RECORDS];
/* free_list: the lower half is the index of the first free record plus one; the upper half is a counter. fresh: the
 * index of the first record that has never been used. */
static _Atomic uint64_t free_list;
static _Atomic uint32_t fresh;
/* The index of a record plus one, its state and flags, and its generation. The slots are those of the descriptors, by
 * number, and those of put_aside(). */
static _Atomic uint64_t slots[FILES + ASIDE];
/* Descriptors with this number or a higher one have no record. */
static _Atomic int beyond;
/* Whether any descriptor has ever had a record; if not, a read costs only this check. */
static _Atomic bool any;
_Atomic bool connects, listens;

/* Returns an unused record, or RECORDS if there is none. */
static uint32_t take_record(void) {
    uint64_t head = atomic_load(&free_list);
    while (head & INDEX) {
        uint32_t first = (uint32_t)(head & INDEX) - 1;
        /* The counter detects that the head was taken and returned in the meantime (ABA). */
        uint64_t rest = ((head >> 32) + 1) << 32 | atomic_load(&next_free[first]);
        if (atomic_compare_exchange_weak(&free_list, &head, rest))
            return first;
    }
    uint32_t number = atomic_load(&fresh);
    while (number < RECORDS)
        if (atomic_compare_exchange_weak(&fresh, &number, number + 1))
            return number;
    return RECORDS;
}

static void give_back(uint64_t word) {
    if (!(word & INDEX))
        return;
    uint64_t head = atomic_load(&free_list), now;
    do {
        atomic_store(&next_free[(word & INDEX) - 1], (uint32_t)(head & INDEX));
        now = (head & ~INDEX) | (word & INDEX);
    } while (!atomic_compare_exchange_weak(&free_list, &head, now));
}

/* Stores a record and returns the word that refers to it; 0 if no record is free. */
static uint64_t record_of(const struct known *what, uint64_t flags) {
    uint64_t words[WORDS];
    uint32_t record = take_record();
    if (record == RECORDS)
        return 0;
    memcpy(words, what, sizeof words);
    /* A reader that sees one of these words also sees that the record no longer belongs to its previous descriptor. */
    atomic_thread_fence(memory_order_release);
    for (unsigned at = 0; at < WORDS; at++)
        atomic_store_explicit(&records[record][at], words[at], memory_order_relaxed);
    uint64_t generation = atomic_fetch_add(&generations[record], 1) + 1u;
    return generation << 32 | flags | (record + 1);
}

/* Reads the record in a slot. Returns whether it describes this file; otherwise leaves `found` unchanged. */
static bool read_at(int at, const struct stat *is, struct found *found) {
    uint64_t words[WORDS], word = atomic_load(&slots[at]), now;
    struct known known;
    for (;; word = atomic_load(&slots[at])) {
        if (!(word & INDEX))
            return false;
        _Atomic uint64_t *record = records[(word & INDEX) - 1];
        /* Most records that find() looks at are those of other files, so compare before copying. */
        bool may_match = atomic_load_explicit(&record[INODE], memory_order_relaxed) == is->st_ino;
        for (unsigned part = 0; may_match && part < WORDS; part++)
            words[part] = atomic_load_explicit(&record[part], memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        now = atomic_load(&slots[at]);
        if (!((now ^ word) & ~FLAGS)) {
            if (!may_match)
                return false;
            break;
        }
    }
    memcpy(&known, words, sizeof words);
    if (known.inode != is->st_ino || known.device != is->st_dev)
        return false;
    *found = (struct found){.at = at, .word = now, .state = STATE_OF(now), .known = known};
    return true;
}

/* Returns whether a descriptor is a socket; if so, `is` identifies it. Preserves errno. */
static bool is_socket(int fd, struct stat *is) {
    int kept = errno;
    bool result = fd >= 0 && !fstat(fd, is) && S_ISSOCK(is->st_mode);
    errno = kept;
    return result;
}

/* Looks up the record of a descriptor. If the descriptor now refers to another file, it has no record, and `found` is
 * unchanged. A duplicate is found by its file. */
bool find(int fd, struct found *found) {
    struct stat is;
    if (!board_path || !any || !is_socket(fd, &is))
        return false;
    if (fd < FILES && read_at(fd, &is, found))
        return true;
    int most = atomic_load(&beyond);
    for (int other = 0; other < most; other++)
        if (read_at(other, &is, found))
            return true;
    for (int other = FILES; other < FILES + ASIDE; other++)
        if (read_at(other, &is, found))
            return true;
    return false;
}

/* Like find(), but if there is no record, creates one from the addresses in the socket: the process may have
 * had the socket before exec, or received it from another process. Whether the program has shut down the
 * stream is then unknown, so ended() queries the board. */
bool find_or_adopt(int fd, struct found *found) {
    struct entry entry;
    if (find(fd, found))
        return true;
    if (!board_path || fd >= FILES || !read_entry_name(fd, &entry) || entry.slot)
        return false;
    bool is_listener = entry.what == REPLY_LISTENING;
    struct known known = {.domain = entry.family[LOCAL] == 6 ? AF_INET6 : AF_INET};
    known.name[LOCAL] = name_of(&entry, LOCAL, known.domain);
    known.name[REMOTE] = name_of(&entry, REMOTE, known.domain);
    *(is_listener ? &listens : &connects) = true;
    if (note(fd, known, is_listener ? LISTENING : CONNECTED) || !find(fd, found))
        return false;
    if (!is_listener)
        flag(found, HAS_FINISHED);
    return true;
}

/* ---- Records whose descriptor number has been reused ---- */

/* Returns whether a record that is in no slot describes a file; also true if there is no record. */
static bool is_of(uint64_t word, const struct stat *is) {
    if (!(word & INDEX))
        return true;
    struct known known;
    memcpy(&known, (void *)records[(word & INDEX) - 1], sizeof known);
    return known.device == is->st_dev && known.inode == is->st_ino;
}

/* Gives a record to the slot of a descriptor, and returns the word that was there. */
static uint64_t store(int fd, uint64_t word) {
    int most = atomic_load(&beyond);
    while (most <= fd && !atomic_compare_exchange_weak(&beyond, &most, fd + 1))
        continue;
    return atomic_exchange(&slots[fd], word);
}

/* Puts a record into an empty slot. Returns false if there is none. */
static bool has_put_aside(uint64_t word) {
    for (int at = FILES; at < FILES + ASIDE; at++) {
        uint64_t none = atomic_load(&slots[at]);
        if (!none && atomic_compare_exchange_strong(&slots[at], &none, word))
            return true;
    }
    return false;
}

/* Goes through the open descriptors: a record put aside moves to the slot of a descriptor that refers to its file; if
 * there is none, the record is freed. A record that is moved away for this purpose is put aside in turn. */
static void sweep(void) {
    struct rlimit files;
    struct stat is;
    struct found found;
    uint64_t before[ASIDE];
    for (int at = 0; at < ASIDE; at++)
        before[at] = atomic_load(&slots[FILES + at]);
    int most = getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur > FILES ? FILES : (int)files.rlim_cur;
    for (int fd = 0; fd < most; fd++) {
        /* Most numbers are not in use. */
        if (libc.fcntl(fd, F_GETFD) < 0 || !is_socket(fd, &is) || read_at(fd, &is, &found))
            continue;
        for (int at = 0; at < ASIDE; at++) {
            uint64_t word = before[at];
            if (!word || !read_at(FILES + at, &is, &found) || found.word != word ||
                !atomic_compare_exchange_strong(&slots[FILES + at], &word, 0))
                continue;
            before[at] = 0;
            word = store(fd, word);
            if ((word & INDEX) && !has_put_aside(word))
                give_back(word);
            break;
        }
    }
    for (int at = 0; at < ASIDE; at++)
        if (before[at] && atomic_compare_exchange_strong(&slots[FILES + at], &before[at], 0))
            give_back(before[at]);
}

/* Keeps a record whose descriptor number now refers to another file: its own file may still be open as a duplicate. The
 * system does not tell the library when a file is closed, so records accumulate until a sweep. The second sweep is for
 * the records that the first one has put aside. */
static void put_aside(uint64_t word) {
    for (int sweeps = 0; !has_put_aside(word); sweeps++) {
        if (sweeps == 2) {
            give_back(word);
            return;
        }
        sweep();
    }
}

/* Records the state of a descriptor and its current file. Returns 0 or an error number. */
int note(int fd, struct known what, enum state state) {
    struct stat is;
    if (fd >= FILES)
        return EMFILE;
    if (fd < 0 || fstat(fd, &is))
        return EBADF;
    what.inode = is.st_ino;
    what.device = is.st_dev;
    what.token = token_of(fd);
    uint64_t word = record_of(&what, (uint64_t)state << 24);
    if (!word)
        return ENOBUFS;
    any = true;
    uint64_t before = store(fd, word);
    /* A later record of the same file replaces an earlier one. */
    if (is_of(before, &is))
        give_back(before);
    else
        put_aside(before);
    return 0;
}

/* Changes the state from `from` to `to`. Returns whether this call changed it. */
bool change(struct found *found, enum state from, enum state to) {
    uint64_t word = found->word;
    while (!((word ^ found->word) & ~FLAGS) && STATE_OF(word) == from)
        if (atomic_compare_exchange_weak(&slots[found->at], &word, (word & ~STATE) | (uint64_t)to << 24)) {
            found->state = to;
            return true;
        }
    return false;
}

void flag(const struct found *found, uint64_t flag) {
    uint64_t word = found->word;
    while (!((word ^ found->word) & ~FLAGS) &&
           !atomic_compare_exchange_weak(&slots[found->at], &word, word | flag))
        continue;
}

void unflag(const struct found *found, uint64_t flag) {
    uint64_t word = found->word;
    while (!((word ^ found->word) & ~FLAGS) &&
           !atomic_compare_exchange_weak(&slots[found->at], &word, word & ~flag))
        continue;
}

/* Removes the record, unless another call has replaced it in the meantime. */
void forget(const struct found *found) {
    uint64_t word = found->word;
    while (!((word ^ found->word) & ~FLAGS))
        if (atomic_compare_exchange_weak(&slots[found->at], &word, 0)) {
            give_back(word);
            return;
        }
}

/* Returns whether a descriptor may be a listener, or a duplicate of one; costs one load. */
bool may_listen(int fd) {
    uint64_t word = fd >= 0 && fd < FILES ? atomic_load(&slots[fd]) : 0;
    return !(word & INDEX) || STATE_OF(word) != CONNECTED;
}

/* Replaces the record with `found->known`, unless another call has changed it in the meantime. Returns whether a
 * record was free. */
bool rewrite(struct found *found, enum state state) {
    uint64_t word = record_of(&found->known, (uint64_t)state << 24), before = found->word;
    if (!word)
        return false;
    if (atomic_compare_exchange_strong(&slots[found->at], &before, word)) {
        give_back(before);
        found->word = word;
    } else {
        give_back(word);
    }
    found->state = state;
    return true;
}
