/*
 * plan: what a run is going to do and take, as its job's record and events say it.
 *
 * Purpose    The trainer's plan as JSON, over what validating the files has put there.
 * Ownership  Trees belong to the caller.
 * Threads    Any.
 * Failure    Without memory the tree is NULL or marked; printing it then fails.
 */
#ifndef NEEDLED_PLAN_H
#define NEEDLED_PLAN_H

struct job_record;
struct json;
struct notes;
struct train_plan;

struct json *plan_json(const struct job_record *job, const struct train_plan *plan);
/* What the job will take, said where it is followed and in the log. */
void plan_note_memory(const struct job_record *job, const struct train_plan *plan,
                      struct notes *notes);

#endif
