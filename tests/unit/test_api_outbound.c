/* Proves which addresses this server may call, and that a call is signed as Standard Webhooks has it. */
#include "tests/support/test.h"

#include "api/hookcall.h"
#include "api/outbound.h"

#include <arpa/inet.h>
#include <string.h>

static void a_signature_is_the_standards(void **state)
{
    (void)state;
    /* From the documents of Standard Webhooks. */
    static const char text[] = "msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{\"test\": 2432232314}";
    char signature[HOOKCALL_SIGNATURE_SIZE];

    assert_true(hookcall_sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", text, signature));
    assert_string_equal(signature, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    assert_false(hookcall_sign("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", text, signature));
    assert_false(hookcall_sign("whsec_!", text, signature));
}

static void only_listed_hosts_are_called(void **state)
{
    (void)state;
    static const struct {
        const char *hosts, *url;
        bool allowed;
    } cases[] = {
        {"a.example", "https://a.example/x", true},
        {"a.example", "https://A.EXAMPLE:8443/x?y=1", true},
        {"a.example", "https://a.example./x", true},
        {"b.example, a.example", "http://a.example", true},
        {"a.example", "https://b.example/x", false},
        {"a.example", "https://a.example.evil/x", false},
        {"a.example", "https://evil/a.example", false},
        {"a.example", "https://a.example@evil/", false},
        {"a.example", "https://user:secret@a.example/", false},
        {"a.example", "ftp://a.example/x", false},
        {"a.example", "file:///etc/passwd", false},
        {"a.example", "gopher://a.example/", false},
        {"a.example", "a.example/x", false},
        {"a.example", "https://a.example/x y", false},
        {"a.example", "https://a.example/\r\nX: y", false},
        {"*.example", "https://a.example/", true},
        {"*.example", "https://b.a.example/", true},
        {"*.example", "https://example/", false},
        {"*.example", "https://aexample/", false},
        {"*", "https://whatever.example/", true},
        {"127.0.0.1", "http://127.0.0.1:8000/", true},
        {"127.0.0.1", "http://2130706433/", true}, /* the same address, written in one number */
        {"::1", "http://[::1]:8000/", true},
        {"", "https://a.example/", false},
        {NULL, "https://a.example/", false},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct error err = {0};

        if (outbound_check_url(cases[i].hosts, cases[i].url, &err) != cases[i].allowed)
            fail_msg("'%s' with '%s': %s", cases[i].url, cases[i].hosts, err.message);
        if (!cases[i].allowed)
            assert_string_equal(err.param, "url");
    }
}

static void special_addresses_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *address;
        bool is_public;
    } cases[] = {
        {"8.8.8.8", true},           {"172.15.255.255", true}, {"172.32.0.1", true},
        {"100.63.0.1", true},        {"192.169.0.1", true},    {"127.0.0.1", false},
        {"127.255.0.1", false},      {"10.1.2.3", false},      {"172.16.0.1", false},
        {"172.31.255.255", false},   {"192.168.0.1", false},   {"169.254.169.254", false},
        {"100.64.0.1", false},       {"0.0.0.0", false},       {"224.0.0.1", false},
        {"255.255.255.255", false},  {"198.18.0.1", false},    {"192.0.2.1", false},
        {"2606:4700::1", true},      {"::1", false},           {"::", false},
        {"fe80::1", false},          {"fd00::1", false},       {"ff02::1", false},
        {"::ffff:127.0.0.1", false}, {"::ffff:8.8.8.8", true}, {"64:ff9b::7f00:1", false},
        {"2002:7f00:1::", false},    {"2002:808:808::", true}, {"2001:db8::1", false},
        {"2001:0:1::1", false},      {"::127.0.0.1", false},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct sockaddr_in six_or_four = {.sin_family = AF_INET};
        struct sockaddr_in6 six = {.sin6_family = AF_INET6};
        bool is_six = strchr(cases[i].address, ':') != NULL;
        bool is_public;

        assert_int_equal(inet_pton(is_six ? AF_INET6 : AF_INET, cases[i].address,
                                   is_six ? (void *)&six.sin6_addr : (void *)&six_or_four.sin_addr),
                         1);
        is_public =
            outbound_is_public(is_six ? (struct sockaddr *)&six : (struct sockaddr *)&six_or_four);
        if (is_public != cases[i].is_public)
            fail_msg("%s", cases[i].address);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signature_is_the_standards),
        cmocka_unit_test(only_listed_hosts_are_called),
        cmocka_unit_test(special_addresses_are_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
