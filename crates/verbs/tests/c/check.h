/* Shared by the test programs in this directory.
 *
 * The first check that fails prints its location and ends the program. A program prints "ok NAME" after each test.
 */
#ifndef KIBAN_CHECK_H
#define KIBAN_CHECK_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tests_passed;

#define check(what) \
    do { \
        if (!(what)) { \
            printf("%s:%d: check failed: %s (errno %d, %s)\n", __FILE__, __LINE__, #what, errno, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

/* Checks that a call returns NULL and sets errno. */
#define refuses(call, error) \
    do { \
        errno = 0; \
        check((call) == NULL); \
        check(errno == (error)); \
    } while (0)

#define run(test) \
    do { \
        test(); \
        tests_passed++; \
        printf("ok %s\n", #test); \
        fflush(stdout); \
    } while (0)

#endif
