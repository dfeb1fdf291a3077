/*
 * measured: what a training step and an epoch measured, as the data of their events.
 *
 * Purpose    One place for the names of these numbers; one that was not measured is null.
 * Ownership  The object is the caller's, json_free; NULL without memory.
 * Threads    Any.
 * Failure    An object that there was no memory to fill fails to be printed (json.h).
 */
#ifndef NEEDLED_MEASURED_H
#define NEEDLED_MEASURED_H

#include "daemon/base/json.h"
#include "daemon/train/trainer.h"

struct json *measured_step_json(const struct train_step *step);
struct json *measured_epoch_json(const struct train_epoch *epoch);

#endif
