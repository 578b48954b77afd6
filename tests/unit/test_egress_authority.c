/* SPDX-License-Identifier: Apache-2.0 */
/* test_egress_authority.c: certificates made on the fly, as a client sees them. */
#include "gateway/egress_authority.h"
#include "test.h"

#include <errno.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static X509 *read_certificate(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *x = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    return x;
}

/* What a strict client says about the certificate for `name`: X509_V_OK, or why not. */
static long verdict(struct authority *a, const char *trusted_pem, const char *name, const char *expected)
{
    int pair[2];
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    X509 *trusted = read_certificate(trusted_pem);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    CHECK(X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), trusted) == 1);
    SSL *server = authority_session(a, name, pair[0]), *client = SSL_new(ctx);
    CHECK(server != NULL);
    SSL_set_fd(client, pair[1]);
    SSL_set_connect_state(client);
    CHECK(SSL_set1_host(client, expected) == 1);
    X509_VERIFY_PARAM_set_flags(SSL_get0_param(client), X509_V_FLAG_X509_STRICT);
    for (int i = 0; i < 20; i++) {
        (void)SSL_do_handshake(client);
        (void)SSL_do_handshake(server);
    }
    CHECK(SSL_is_init_finished(client) && SSL_is_init_finished(server));
    long r = SSL_get_verify_result(client);
    SSL_free(client);
    SSL_free(server);
    SSL_CTX_free(ctx);
    X509_free(trusted);
    (void)close(pair[0]);
    (void)close(pair[1]);
    return r;
}

TEST(a_strict_client_is_satisfied)
{
    struct authority *a, *other;
    struct error e = {0};
    char big[254];
    REQUIRE(authority_new(NULL, &a, &e) == 0);
    REQUIRE(authority_new(NULL, &other, &e) == 0);
    CHECK_INT(verdict(a, authority_ca_pem(a), "www.example.org", "www.example.org"), X509_V_OK);
    CHECK_INT(verdict(a, authority_ca_pem(a), "www.example.org", "example.org"),
              X509_V_ERR_HOSTNAME_MISMATCH);
    CHECK(verdict(a, authority_ca_pem(other), "www.example.org", "www.example.org") != X509_V_OK);
    memset(big, 'a', sizeof big - 1); /* more than a common name has room for */
    for (size_t i = 60; i < sizeof big - 1; i += 60)
        big[i] = '.';
    big[sizeof big - 1] = '\0';
    CHECK_INT(verdict(a, authority_ca_pem(a), big, big), X509_V_OK);
    authority_free(a);
    authority_free(other);
}

TEST(an_authority_is_kept)
{
    struct authority *a, *again;
    struct error e = {0};
    REQUIRE(authority_new(NULL, &a, &e) == 0);
    REQUIRE(authority_new(authority_secret_pem(a), &again, &e) == 0);
    CHECK_STREQ(authority_ca_pem(again), authority_ca_pem(a));
    CHECK(strstr(authority_ca_pem(a), "PRIVATE") == NULL);
    CHECK_INT(verdict(again, authority_ca_pem(a), "kept.test", "kept.test"), X509_V_OK);
    authority_free(a);
    authority_free(again);
}

TEST(what_was_kept_may_be_damaged)
{
    struct authority *a, *b, *none = NULL;
    struct error e = {0};
    REQUIRE(authority_new(NULL, &a, &e) == 0);
    REQUIRE(authority_new(NULL, &b, &e) == 0);
    CHECK_INT(authority_new("", &none, &e), -EIO);
    CHECK_INT(authority_new("nonsense", &none, &e), -EIO);
    CHECK_INT(authority_new(authority_ca_pem(a), &none, &e), -EIO); /* without its key */
    char *mixed = NULL;                                             /* with another's */
    CHECK(asprintf(&mixed, "%s%s", authority_ca_pem(a),
                   strstr(authority_secret_pem(b), "-----BEGIN PRIVATE")) > 0);
    CHECK_INT(authority_new(mixed, &none, &e), -EIO);
    free(mixed);
    authority_free(a);
    authority_free(b);
}

TEST(many_names_do_not_grow_it)
{
    struct authority *a;
    struct error e = {0};
    char name[32];
    REQUIRE(authority_new(NULL, &a, &e) == 0);
    for (int i = 0; i < 600; i++) { /* more than are kept */
        int pair[2];
        (void)snprintf(name, sizeof name, "n%d.test", i);
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        SSL *s = authority_session(a, name, pair[0]);
        CHECK(s != NULL);
        SSL_free(s);
        (void)close(pair[0]);
        (void)close(pair[1]);
    }
    CHECK_INT(verdict(a, authority_ca_pem(a), "n0.test", "n0.test"), X509_V_OK);
    CHECK_INT(verdict(a, authority_ca_pem(a), "n599.test", "n599.test"), X509_V_OK);
    authority_free(a);
}
