/* Proves that of two requests beside each other neither undoes the other: a webhook's change and its new
 * secret, and what a key does while it is revoked. */
#include "tests/support/api_daemon.h"

#include "daemon/base/json.h"
#include "store/webhooks.h"

#include <pthread.h>

#define ROUNDS 30

static int open_it(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){.webhook_hosts = "127.0.0.1"});
    return 0;
}

/* The start of a request with that key; "" none. */
static int begin(const char *method, const char *path, const char *key, size_t size)
{
    int descriptor = key[0] ? web_open(d.port) : web_open_socket(d.socket);
    char text[1024];

    snprintf(text, sizeof(text),
             "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n%s%s%s"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
             method, path, key[0] ? "Authorization: Bearer " : "", key, key[0] ? "\r\n" : "", size);
    web_send_text(descriptor, text);
    return descriptor;
}

static void expect(int descriptor, int status, char *ret_body, size_t capacity)
{
    struct web_answer answer;

    web_receive(descriptor, false, &answer);
    if (answer.status != status)
        fail_msg("wanted %d, got %d %s", status, answer.status, answer.body);
    if (ret_body)
        snprintf(ret_body, capacity, "%s", answer.body);
    web_release(&answer);
    close(descriptor);
}

static void post(const char *path, const char *key, const char *body, int status, char *ret_body,
                 size_t capacity)
{
    int descriptor = begin("POST", path, key, strlen(body));

    web_send_text(descriptor, body);
    expect(descriptor, status, ret_body, capacity);
}

static void member(const char *text, const char *name, char *ret_text, size_t capacity)
{
    struct json *root = NULL;

    assert_true(json_parse(text, strlen(text), &root, NULL));
    assert_non_null(json_text(json_member(root, name)));
    snprintf(ret_text, capacity, "%s", json_text(json_member(root, name)));
    json_free(root);
}

struct made {
    char id[STORE_ID_SIZE], secret[80];
};

static struct made make_key(void)
{
    char answer[1024];
    struct made made;

    post("/v1/keys", "", "{\"name\":\"a\",\"scope\":\"submit\"}", 201, answer, sizeof(answer));
    member(answer, "id", made.id, sizeof(made.id));
    member(answer, "key", made.secret, sizeof(made.secret));
    return made;
}

static void revoke_key(const struct made *key)
{
    char path[128];

    snprintf(path, sizeof(path), "/v1/keys/%s", key->id);
    expect(begin("DELETE", path, "", 0), 200, NULL, 0);
}

static struct made make_hook(const char *key)
{
    char answer[2048];
    struct made made;

    post("/v1/webhook_endpoints", key,
         "{\"name\":\"a\",\"url\":\"http://127.0.0.1:1/hook\","
         "\"event_types\":[\"fine_tuning.job.failed\"]}",
         200, answer, sizeof(answer));
    member(answer, "id", made.id, sizeof(made.id));
    member(answer, "signing_secret", made.secret, sizeof(made.secret));
    return made;
}

static struct webhook_record read_hook(const struct made *hook)
{
    struct webhook_record webhook = {0};
    struct error err = {0};

    api_daemon_must(webhooks_get(d.store, hook->id, &webhook, &err), &err);
    return webhook;
}

struct call {
    pthread_t thread;
    char path[160], body[128], answer[2048];
};

static void *call_once(void *context)
{
    struct call *call = context;

    post(call->path, "", call->body, 200, call->answer, sizeof(call->answer));
    return NULL;
}

static void a_webhooks_change_and_its_new_secret_both_stay(void **state)
{
    (void)state;
    struct made hook = make_hook("");

    for (int round = 0; round < ROUNDS; round++) {
        struct call update, rotate = {.body = "{\"keep_old_secret_active_for_24_hours\":true}"};
        struct webhook_record webhook;
        char secret[WEBHOOK_SECRET_SIZE], name[32];

        snprintf(name, sizeof(name), "name %d", round);
        snprintf(update.path, sizeof(update.path), "/v1/webhook_endpoints/%s", hook.id);
        snprintf(update.body, sizeof(update.body), "{\"name\":\"%s\"}", name);
        snprintf(rotate.path, sizeof(rotate.path), "%s/rotate_secret", update.path);
        assert_int_equal(pthread_create(&update.thread, NULL, call_once, &update), 0);
        assert_int_equal(pthread_create(&rotate.thread, NULL, call_once, &rotate), 0);
        pthread_join(update.thread, NULL);
        pthread_join(rotate.thread, NULL);
        member(rotate.answer, "signing_secret", secret, sizeof(secret));
        webhook = read_hook(&hook);
        assert_string_equal(webhook.name, name);
        assert_string_equal(webhook.secret, secret);
        assert_string_equal(webhook.old_secret, hook.secret);
        assert_string_equal(webhook.url, "http://127.0.0.1:1/hook");
        memcpy(hook.secret, secret, sizeof(secret));
    }
}

static void a_revoked_keys_webhook_stays_off(void **state)
{
    (void)state;
    struct made key = make_key(), hook = make_hook(key.secret);
    char path[160], answer[2048];

    assert_true(read_hook(&hook).enabled);
    revoke_key(&key);
    assert_false(read_hook(&hook).enabled);
    snprintf(path, sizeof(path), "/v1/webhook_endpoints/%s", hook.id);
    post(path, "", "{\"name\":\"b\"}", 200, answer, sizeof(answer));
    assert_non_null(strstr(answer, "\"name\":\"b\""));
    assert_non_null(strstr(answer, "\"enabled\":false"));
    assert_false(read_hook(&hook).enabled);
}

/* The receiver that is gone is the one the call went to. */
static void a_webhook_that_moved_is_not_switched_off_for_its_old_address(void **state)
{
    (void)state;
    struct made hook = make_hook("");
    struct error err = {0};
    bool changed = true;

    api_daemon_must(webhooks_switch_off(d.store, hook.id, "http://127.0.0.1:2/old", &changed, &err),
                    &err);
    assert_false(changed);
    assert_true(read_hook(&hook).enabled);
    api_daemon_must(
        webhooks_switch_off(d.store, hook.id, "http://127.0.0.1:1/hook", &changed, &err), &err);
    assert_true(changed);
    assert_false(read_hook(&hook).enabled);
}

/* The header came before, the body after. */
static void a_revoked_key_does_nothing_with_a_body_that_comes_after(void **state)
{
    (void)state;
    static const struct {
        const char *path, *body;
    } cases[] = {
        {"/v1/files", "{\"name\":\"a.jsonl\",\"bytes\":50}"},
        {"/v1/webhook_endpoints", "{\"name\":\"a\",\"url\":\"http://127.0.0.1:1/hook\","
                                  "\"event_types\":[\"fine_tuning.job.failed\"]}"},
        {"/v1/fine_tuning/jobs", "{\"model\":\"needle\",\"training_file\":\"file-none\"}"},
    };
    struct made keys[COUNT_OF(cases)];
    int descriptors[COUNT_OF(cases)];
    struct webhook_record *webhooks = NULL;
    const struct store_page page = {.after = "", .limit = 10};
    bool has_more = false;
    size_t count = 0;
    struct error err = {0};
    char answer[2048];

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        keys[i] = make_key();
        descriptors[i] = begin("POST", cases[i].path, keys[i].secret, strlen(cases[i].body));
        web_send(descriptors[i], cases[i].body, 4);
        usleep(100000); /* the header is read */
        revoke_key(&keys[i]);
        web_send_text(descriptors[i], cases[i].body + 4);
        expect(descriptors[i], 401, answer, sizeof(answer));
        assert_non_null(strstr(answer, "\"code\":\"invalid_api_key\""));
    }
    api_daemon_must(webhooks_list(d.store, NULL, &page, &webhooks, &count, &has_more, &err), &err);
    assert_int_equal(count, 0);
    free(webhooks);
}

static int begin_without_key(const char *path, size_t size)
{
    int descriptor = web_open(d.port);
    char text[512];

    snprintf(text, sizeof(text),
             "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
             path, size);
    web_send_text(descriptor, text);
    return descriptor;
}

static void the_first_key_closes_the_door_on_who_is_in_it(void **state)
{
    (void)state;
    static const char body[] = "{\"name\":\"a.jsonl\",\"bytes\":50}";
    int before = begin_without_key("/v1/files", strlen(body)), descriptor;

    web_send_text(before, body);
    expect(before, 201, NULL, 0);
    descriptor = begin_without_key("/v1/files", strlen(body));
    web_send(descriptor, body, 4);
    usleep(100000);
    (void)make_key();
    web_send_text(descriptor, body + 4);
    expect(descriptor, 401, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define OPEN(name) cmocka_unit_test_setup_teardown(name, open_it, api_daemon_tear_down)
        OPEN(a_webhooks_change_and_its_new_secret_both_stay),
        OPEN(a_revoked_keys_webhook_stays_off),
        OPEN(a_revoked_key_does_nothing_with_a_body_that_comes_after),
        OPEN(the_first_key_closes_the_door_on_who_is_in_it),
        OPEN(a_webhook_that_moved_is_not_switched_off_for_its_old_address),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
