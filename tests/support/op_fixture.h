/*
 * op_fixture: recorded tensors for the tests of kernels/, which know no room above them.
 *
 * Purpose    A safetensors file of ours as float arrays by name, and its config. It trusts the
 *            file: the reader that trusts nothing is the model's.
 * Ownership  fixture_open / fixture_close; values live as long as the fixture.
 * Threads    One.
 * Failure    A missing file or name fails the test.
 */
#ifndef NEEDLED_TEST_OP_FIXTURE_H
#define NEEDLED_TEST_OP_FIXTURE_H

#include "tests/support/test.h"

struct fixture;

struct fixture *fixture_open(const char *path);
void fixture_close(struct fixture *fixture);
bool fixture_has(const struct fixture *fixture, const char *name);
/* F32, F16, I32 or U8 as float; ret_count may be NULL. */
const float *fixture_values(struct fixture *fixture, const char *name, size_t *ret_count);
/* Size of one axis; axes from the back: 0 is the last. */
size_t fixture_axis(const struct fixture *fixture, const char *name, size_t from_last);
/* A number of the config in the metadata; `absent` when there is none. */
double fixture_config(const struct fixture *fixture, const char *field, double absent);
/* Number of elements of an array in the config. */
size_t fixture_config_count(const struct fixture *fixture, const char *field);

#endif
