/* Stories: what every program of this folder is made of.
 *
 * A story checks; the first check that fails ends the program and says where. A program prints "ok NAME" for each.
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
            printf("%s:%d: not so: %s (errno %d, %s)\n", __FILE__, __LINE__, #what, errno, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

/* A function that answers with null and errno. */
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
