/* SPDX-License-Identifier: Apache-2.0 */
/* test_auth.c: who is let in, with tokens and without. */
#include "gateway/auth.h"
#include "test.h"

#include <errno.h>
#include <openssl/evp.h>

static void hash(const char *token, unsigned char out[TOKEN_HASH_BYTES])
{
    unsigned len;
    CHECK(EVP_Digest(token, strlen(token), out, &len, EVP_sha256(), NULL) == 1);
}

static struct auth *with_token(const char *token)
{
    struct auth *a = NULL;
    struct error e;
    unsigned char h[TOKEN_HASH_BYTES];
    hash(token, h);
    if (auth_new(false, &a, &e) < 0 || auth_add_admin(a, h) < 0)
        test_fail(__FILE__, __LINE__, "no auth");
    return a;
}

static int check_status(struct auth *a, const struct http_header *headers, size_t count, bool has_body)
{
    struct auth_identity who;
    struct problem p = {0};
    int r = auth_check(a, headers, count, has_body, "unix", &who, &p);
    return r == 0 ? 200 : p.status;
}

TEST(auth_accepts_the_token)
{
    struct auth *a = with_token("t0ken");
    static const char *const forms[] = {"Bearer t0ken", "bearer t0ken", "BEARER t0ken"};
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++)
        CHECK_INT(check_status(a, &(struct http_header){"authorization", forms[i]}, 1, false), 200);
    auth_free(a);
}

TEST(auth_gives_one_answer_to_all_others)
{
    struct auth *a = with_token("t0ken");
    static const char *const bad[] = {"",
                                      "Bearer",
                                      "Bearer ",
                                      "t0ken",
                                      "Basic t0ken",
                                      "Bearert0ken",
                                      "Bearer  t0ken",
                                      "Bearer t0ken ",
                                      "Bearer t0ken2",
                                      "Bearer t0ke",
                                      "Bearer T0KEN",
                                      "Bearer t0ken,x",
                                      "Bearer t0ken\t",
                                      "Token t0ken"};
    struct problem first, p;
    struct auth_identity who;
    CHECK_INT(auth_check(a, NULL, 0, false, "unix", &who, &first), -EINVAL);
    CHECK_INT(first.status, 401);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct http_header h = {"Authorization", bad[i]};
        CHECK_INT(auth_check(a, &h, 1, false, "unix", &who, &p), -EINVAL);
        CHECK(memcmp(&p, &first, sizeof p) == 0);
    }
    struct http_header twice[] = {{"Authorization", "Bearer t0ken"}, {"authorization", "Bearer t0ken"}};
    CHECK_INT(auth_check(a, twice, 2, false, "unix", &who, &p), -EINVAL);
    CHECK(memcmp(&p, &first, sizeof p) == 0);
    auth_free(a);
}

TEST(auth_knows_many_tokens)
{
    struct auth *a = with_token("first");
    unsigned char h[TOKEN_HASH_BYTES];
    int added = 1;
    for (char token[16]; added < 5000; added++) {
        (void)snprintf(token, sizeof token, "t%d", added);
        hash(token, h);
        if (auth_add_admin(a, h) < 0)
            break;
    }
    CHECK_INT(added, 1024);
    CHECK_INT(check_status(a, &(struct http_header){"Authorization", "Bearer first"}, 1, false), 200);
    CHECK_INT(check_status(a, &(struct http_header){"Authorization", "Bearer t1023"}, 1, false), 200);
    CHECK_INT(check_status(a, &(struct http_header){"Authorization", "Bearer t1024"}, 1, false), 401);
    auth_free(a);
}

static struct auth *without_tokens(void)
{
    struct auth *a = NULL;
    struct error e;
    if (auth_new(true, &a, &e) < 0)
        test_fail(__FILE__, __LINE__, "no auth");
    return a;
}

TEST(auth_off_answers_to_localhost_only)
{
    struct auth *a = without_tokens();
    static const char *const good[] = {"localhost", "localhost:8787", "127.0.0.1",   "127.0.0.1:1",
                                       "[::1]",     "[::1]:65535",    "LOCALHOST:80"};
    static const char *const bad[] = {
        "",          "evil.example", "127.0.0.1.evil.example", "localhost.evil",
        "[::1].x",   "localhost:",   "localhost:80x",          "localhost:123456",
        "127.0.0.2", "0.0.0.0",      "localhost@evil",         "[::1",
        "evil:8787", "localhost/",   "localhost:80:80",        "xlocalhost"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        CHECK_INT(check_status(a, &(struct http_header){"Host", good[i]}, 1, false), 200);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK_INT(check_status(a, &(struct http_header){"Host", bad[i]}, 1, false), 403);
    CHECK_INT(check_status(a, NULL, 0, false), 403);
    auth_free(a);
}

TEST(auth_off_refuses_other_origins)
{
    struct auth *a = without_tokens();
    static const char *const bad[] = {
        "http://evil.example",        "null", "http://localhost:5173", "https://localhost:8787",
        "http://localhost:8787.evil", "",     "localhost:8787",        "file://"};
    struct http_header h[2] = {{"Host", "localhost:8787"}, {"Origin", "http://localhost:8787"}};
    CHECK_INT(check_status(a, h, 2, false), 200);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        h[1].value = bad[i];
        CHECK_INT(check_status(a, h, 2, false), 403);
    }
    h[1] = (struct http_header){"Sec-Fetch-Site", "cross-site"};
    CHECK_INT(check_status(a, h, 2, false), 403);
    h[1].value = "same-site"; /* another port of this machine */
    CHECK_INT(check_status(a, h, 2, false), 403);
    h[1].value = "none";
    CHECK_INT(check_status(a, h, 2, false), 200);
    auth_free(a);
}

TEST(auth_off_refuses_what_forms_can_send)
{
    struct auth *a = without_tokens();
    static const struct {
        const char *type;
        int status;
    } types[] = {
        {"application/json", 200},
        {"application/json; charset=utf-8", 200},
        {"application/octet-stream", 200},
        {"text/plain", 415},
        {"Text/Plain; charset=utf-8", 415},
        {"application/x-www-form-urlencoded", 415},
        {"multipart/form-data; boundary=x", 415},
        {"", 415},
        {" ; application/json", 415},
    };
    struct http_header h[2] = {{"Host", "localhost"}, {"Content-Type", NULL}};
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        h[1].value = types[i].type;
        CHECK_INT(check_status(a, h, 2, true), types[i].status);
    }
    CHECK_INT(check_status(a, h, 1, true), 415);
    CHECK_INT(check_status(a, h, 1, false), 200);
    auth_free(a);
}

TEST(auth_throttles_who_guesses)
{
    struct auth *a = with_token("right");
    struct auth_identity who;
    struct problem p;
    struct http_header wrong = {"Authorization", "Bearer wrong"}, right = {"Authorization", "Bearer right"};
    for (int i = 0; i < 20; i++) {
        char peer[32]; /* another port is the same guesser */
        (void)snprintf(peer, sizeof peer, "10.0.0.1:%d", 1000 + i);
        CHECK_INT(auth_check(a, &wrong, 1, false, peer, &who, &p), -EINVAL);
        CHECK_INT(p.status, 401);
    }
    CHECK_INT(auth_check(a, &right, 1, false, "10.0.0.1:7", &who, &p), -EINVAL);
    CHECK_INT(p.status, 429);
    CHECK(p.retry_after_s > 0 && p.retry_after_s <= 10);
    CHECK_INT(auth_check(a, &right, 1, false, "10.0.0.2:7", &who, &p), 0);
    CHECK_INT(auth_check(a, &right, 1, false, "[::1]:7", &who, &p), 0);
    for (int i = 0; i < 100; i++) /* asking without a token is no guess */
        CHECK_INT(auth_check(a, NULL, 0, false, "10.0.0.3:1", &who, &p), -EINVAL);
    CHECK_INT(auth_check(a, &right, 1, false, "10.0.0.3:1", &who, &p), 0);
    auth_free(a);
}
