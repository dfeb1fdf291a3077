/*
 * test: cmocka for tests in C++, whose header says nothing about it.
 *
 * Purpose    As tests/support/test.h.
 * Ownership  None.
 * Threads    A test runs on the main thread.
 * Failure    cmocka's own.
 */
#ifndef NEEDLED_KERNELS_TEST_H
#define NEEDLED_KERNELS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include <cmocka.h>
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#endif
