/*
 * Signal actions for SIGSEGV and SIGBUS, in libkiban_paths.so (LD_PRELOAD, ld.so(8)).
 *
 * Purpose   the verbs library handles these signals when a peer accesses memory that the program has unmapped. A program
 *           that sets its own action later, as Java, Go and Python's faulthandler do, must not replace that handler.
 * Method    once the verbs library has called kiban_redirect_sigaction(), calls of sigaction() and signal()
 *           for these signals go to that library, which stores the program's action and performs it for all
 *           other faults. Calls for other signals go to the C library.
 * Limits    a program that makes the system call directly replaces the handler. (Go programs that use C
 *           libraries call sigaction().)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#define OURS __attribute__((visibility("default")))

typedef int sigaction_call(int, const struct sigaction *, struct sigaction *);

/* The C library's functions. They are looked up before main(), because signal handlers may call them but not dlsym()
 * (POSIX.1-2017 2.4.3). */
static sigaction_call *real_sigaction;
static sighandler_t (*real_signal)(int, sighandler_t);
/* The verbs library's function. It returns NOT_OURS if the library does not handle the signals in this
 * process. */
static _Atomic(sigaction_call *) redirected;
enum { NOT_OURS = -2 };

__attribute__((constructor)) static void begin(void)
{
	int before = errno;

	if (!real_sigaction)
		*(void **)&real_sigaction = dlsym(RTLD_NEXT, "sigaction");
	if (!real_signal)
		*(void **)&real_signal = dlsym(RTLD_NEXT, "signal");
	errno = before;
}

OURS void kiban_redirect_sigaction(sigaction_call *to)
{
	atomic_store(&redirected, to);
}

/* Returns the result of the verbs library, or NOT_OURS. */
static int redirect(int number, const struct sigaction *action, struct sigaction *old)
{
	sigaction_call *to = number == SIGSEGV || number == SIGBUS ? atomic_load(&redirected) : NULL;

	return to ? to(number, action, old) : NOT_OURS;
}

OURS int sigaction(int number, const struct sigaction *restrict action, struct sigaction *restrict old)
{
	int result = redirect(number, action, old);

	if (result != NOT_OURS)
		return result;
	/* A constructor in another library may call this before our constructor has run. */
	if (!real_sigaction)
		begin();
	if (!real_sigaction) {
		errno = ENOSYS;
		return -1;
	}
	return real_sigaction(number, action, old);
}

OURS sighandler_t signal(int number, sighandler_t handler)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;

	sigemptyset(&action.sa_mask);
	if (handler != SIG_ERR && redirect(number, &action, &old) != NOT_OURS)
		return old.sa_handler;
	if (!real_signal)
		begin();
	if (!real_signal) {
		errno = ENOSYS;
		return SIG_ERR;
	}
	return real_signal(number, handler);
}
