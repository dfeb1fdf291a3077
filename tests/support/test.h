/*
 * test: what every unit test includes.
 *
 * Purpose    cmocka with the headers it wants before it, and where the fixtures are.
 * Ownership  None.
 * Threads    A test runs on the main thread.
 * Failure    cmocka's own.
 */
#ifndef NEEDLED_TEST_H
#define NEEDLED_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/base/error.h"

/* Tests run from the root of the source tree. */
#define FIXTURES "tests/fixtures/"

#endif
