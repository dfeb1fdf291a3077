#include "api/visitors.h"

#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct visitors {
    pthread_mutex_t lock;
    struct session_record sessions[VISITORS_MAX]; /* guarded by lock */
    size_t count;                                 /* guarded by lock */
};

bool visitors_open(struct store *store, struct visitors **ret_visitors, struct error *err)
{
    struct visitors *visitors = calloc(1, sizeof(*visitors));
    struct session_record *sessions = NULL;
    size_t count = 0;

    if (!visitors)
        return error_set(err, ERR_NO_MEMORY, "no memory for the sessions of browsers");
    if (!sessions_list(store, VISITORS_MAX, &sessions, &count, err)) {
        free(visitors);
        error_wrap(err, "the sessions of browsers");
        return false;
    }
    pthread_mutex_init(&visitors->lock, NULL);
    if (count > 0)
        memcpy(visitors->sessions, sessions, count * sizeof(*sessions));
    visitors->count = count;
    free(sessions);
    *ret_visitors = visitors;
    return true;
}

void visitors_free(struct visitors *visitors)
{
    if (!visitors)
        return;
    pthread_mutex_destroy(&visitors->lock);
    free(visitors);
}

/* With the lock held; NULL: not there, or over. */
static struct session_record *find(struct visitors *visitors, const char *token_sha256)
{
    for (size_t i = 0; i < visitors->count; i++) {
        struct session_record *session = &visitors->sessions[i];

        if (strcmp(session->token_sha256, token_sha256) == 0)
            return session->expires_unix_s > clock_unix_s() ? session : NULL;
    }
    return NULL;
}

bool visitors_find(struct visitors *visitors, const char *token, struct session_record *ret_session)
{
    const size_t size = strnlen(token, VISITORS_TOKEN_SIZE);
    const struct session_record *session;
    char sha256[SHA256_HEX_SIZE];

    if (size != VISITORS_TOKEN_SIZE - 1 || token[size])
        return false;
    /* What the time of a comparison tells of a digest tells nothing of the token. */
    file_sha256_of(token, size, sha256);
    pthread_mutex_lock(&visitors->lock);
    session = find(visitors, sha256);
    if (session)
        *ret_session = *session;
    pthread_mutex_unlock(&visitors->lock);
    return session != NULL;
}

bool visitors_hold(struct visitors *visitors, const char *token_sha256)
{
    bool holds;

    pthread_mutex_lock(&visitors->lock);
    holds = find(visitors, token_sha256) != NULL;
    pthread_mutex_unlock(&visitors->lock);
    return holds;
}

/* With the lock held. */
static void drop(struct visitors *visitors, struct session_record *session)
{
    visitors->count--;
    *session = visitors->sessions[visitors->count];
}

/* With the lock held: the place that a further session of that owner takes from an older one, or NULL. */
static struct session_record *choose_loser(struct visitors *visitors, const char *owner)
{
    struct session_record *own = NULL, *any = NULL;
    size_t own_count = 0;

    for (size_t i = 0; i < visitors->count; i++) {
        struct session_record *session = &visitors->sessions[i];

        if (!any || session->expires_unix_s < any->expires_unix_s)
            any = session;
        if (strcmp(session->owner, owner) != 0)
            continue;
        own_count++;
        if (!own || session->expires_unix_s < own->expires_unix_s)
            own = session;
    }
    if (own_count >= VISITORS_PER_KEY)
        return own;
    return visitors->count >= VISITORS_MAX ? any : NULL;
}

static void keep(struct visitors *visitors, const struct session_record *session,
                 struct session_record *ret_loser)
{
    const int64_t now_unix_s = clock_unix_s();
    struct session_record *loser;

    pthread_mutex_lock(&visitors->lock);
    for (size_t i = visitors->count; i-- > 0;) {
        if (visitors->sessions[i].expires_unix_s <= now_unix_s)
            drop(visitors, &visitors->sessions[i]);
    }
    loser = choose_loser(visitors, session->owner);
    if (loser) {
        *ret_loser = *loser;
        drop(visitors, loser);
    }
    visitors->sessions[visitors->count++] = *session;
    pthread_mutex_unlock(&visitors->lock);
}

static void warn(const struct error *err)
{
    log_write(LOG_LEVEL_WARN, "the session of a browser is not kept past a restart: %s",
              err->message);
}

bool visitors_add(struct visitors *visitors, struct store *store,
                  const struct session_record *session, char ret_token[VISITORS_TOKEN_SIZE],
                  struct error *err)
{
    struct session_record full = *session, loser = {0};
    char token[VISITORS_TOKEN_SIZE];
    struct error trouble = {0};

    if (!file_random_id(token, sizeof(token), "", VISITORS_TOKEN_SIZE - 1, err))
        return false;
    file_sha256_of(token, sizeof(token) - 1, full.token_sha256);
    if (!sessions_insert(store, &full, &trouble))
        warn(&trouble);
    keep(visitors, &full, &loser);
    if (loser.token_sha256[0] && !sessions_delete(store, loser.token_sha256, &trouble))
        log_write(LOG_LEVEL_WARN, "the oldest session of a key ends at its time: %s",
                  trouble.message);
    memcpy(ret_token, token, sizeof(token));
    return true;
}

bool visitors_extend(struct visitors *visitors, struct store *store, const char *token_sha256,
                     int64_t expires_unix_s)
{
    struct session_record *session;
    struct error trouble = {0};

    pthread_mutex_lock(&visitors->lock);
    session = find(visitors, token_sha256);
    if (session)
        session->expires_unix_s = expires_unix_s;
    pthread_mutex_unlock(&visitors->lock);
    if (session && !sessions_extend(store, token_sha256, expires_unix_s, &trouble))
        warn(&trouble);
    return session != NULL;
}

bool visitors_end(struct visitors *visitors, struct store *store, const char *token_sha256,
                  struct error *err)
{
    struct session_record *session;

    if (!sessions_delete(store, token_sha256, err))
        return false;
    pthread_mutex_lock(&visitors->lock);
    session = find(visitors, token_sha256);
    if (session)
        drop(visitors, session);
    pthread_mutex_unlock(&visitors->lock);
    return true;
}
