/*
 * limits: every bound on what a user or a file can make grow, in one place.
 *
 * Purpose    A reader finds each number and its reason here; nothing is bounded by an unnamed one.
 * Ownership  None.
 * Threads    Constants.
 * Failure    None.
 */
#ifndef NEEDLED_LIMITS_H
#define NEEDLED_LIMITS_H

#define LIMIT_UPLOAD_BYTES ((size_t)512 << 20) /* one file; the hosted API's figure */
#define LIMIT_RESERVATIONS 256                 /* uploads of an owner, announced and not whole */
#define LIMIT_RESERVATION_S 3600               /* for a reserved upload to be completed */
#define LIMIT_KEYS 1000                        /* API keys in force */
#define LIMIT_WEBHOOKS 16                      /* webhook endpoints of an owner */
#define LIMIT_BODY_BYTES ((size_t)1 << 20)     /* a JSON request body */
#define LIMIT_LINE_BYTES ((size_t)16 << 20)    /* one line of a data set */
#define LIMIT_LINE_TREE_BYTES (8 * LIMIT_LINE_BYTES) /* its values in memory */
#define LIMIT_DATASET_BYTES ((size_t)8 << 30)        /* token ids of a whole data set in memory */
#define LIMIT_JSON_DEPTH 64                          /* nesting; a thread stack holds far more */
#define LIMIT_PROBLEM_COUNT 20                       /* bad lines reported at once */
#define LIMIT_HEADER_BYTES ((size_t)100 << 20)       /* a safetensors header */
#define LIMIT_TENSOR_RANK 8                          /* dimensions of one tensor */
#define LIMIT_EXAMPLE_BYTES ((size_t)1 << 20)        /* a line's texts, shown */
#define LIMIT_EXAMPLE_TOKENS 16384                   /* its tokens, shown */
#define LIMIT_EVENT_PAGE 1000                        /* events answered at once */
#define LIMIT_SERIES_POINTS 10000                    /* steps of a curve, answered at once */
#define LIMIT_CONNECTIONS 2048                       /* open HTTP connections, */
#define LIMIT_STREAMS 1024                           /* event streams among them */
#define LIMIT_HEADER_TIMEOUT_S 15                    /* a request's header must be whole by then */
#define LIMIT_CHECKED_DOWNLOAD_BYTES ((uint64_t)64 << 20) /* hashed before they are sent: 0.1 s */
#define LIMIT_SWEEP_JOBS 64                           /* that one create makes of lists of values */
#define LIMIT_JOBS_PER_DEVICE 8                       /* at once; each has a worker's threads */
#define LIMIT_CHECKPOINT_INTERVAL_S 86400             /* between resume checkpoints of a job */
#define LIMIT_JOB_FILES 32                            /* of a job, of each kind */
#define LIMIT_DISK_RESERVE_BYTES ((uint64_t)64 << 20) /* left free, unless set otherwise */
#define LIMIT_PATH_BYTES 4096                         /* a path of ours, with its NUL */

/* Connections of one client, where no proxy stands between. */
#define LIMIT_CONNECTIONS_PER_ADDRESS 256

#endif
