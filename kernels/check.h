/*
 * check: what every op takes for granted, asserted before it runs.
 *
 * Purpose    check_<op> has the op's own parameters; one fact an assert, on for every backend.
 * Ownership  None.
 * Threads    Any.
 * Failure    A wrong shape is our bug: the process ends. Device memory is not read here.
 */
#ifndef NEEDLED_CHECK_H
#define NEEDLED_CHECK_H

#include "kernels/backend.h"

#define CHECK_DECLARE(name, parameters, arguments) CHECK_DECLARE_(name, OP_STRIP parameters)
#define CHECK_DECLARE_(name, ...) void check_##name(__VA_ARGS__);
OPS(CHECK_DECLARE)
#undef CHECK_DECLARE

#endif
