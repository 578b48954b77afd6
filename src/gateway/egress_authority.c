/* SPDX-License-Identifier: Apache-2.0 */
/* egress_authority.c: see egress_authority.h.
 *
 * One key for the authority, which signs, and one for all leaves, which is in no file: a certificate costs
 * one signature. Certificates are kept for the names asked for last; whoever asks for many different names
 * pays with signatures and not with our memory. */
#include "gateway/egress_authority.h"
#include "base/clock.h"
#include "gateway/tls.h"
#include "net/dns.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>

enum {
    LEAVES_MAX = 256,
    DAY_S = 24 * 60 * 60,
    AUTHORITY_DAYS = 3650,
    LEAF_DAYS = 90,
    LEAF_FRESH_MS = 7 * DAY_S * 1000, /* then a new one is made */
    CLOCK_SKEW_S = DAY_S,             /* a sandbox whose clock is behind */
    COMMON_NAME_MAX = 64,             /* of X.509 */
};

struct leaf {
    char name[DNS_NAME_MAX + 1];
    X509 *certificate; /* NULL: free */
    int64_t made_ms;
    uint64_t used; /* when, in uses */
};

struct authority {
    X509 *certificate;
    EVP_PKEY *key, *leaf_key;
    SSL_CTX *context;
    char *ca_pem, *secret_pem;
    uint64_t uses;
    struct leaf leaves[LEAVES_MAX];
};

static int fail(struct error *reterr, const char *what)
{
    ERR_clear_error();
    return error_set(reterr, EIO, "the sidecar's certificates: %s", what);
}

/* ------------------------------------------------------------------ certificates */

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    bool ok = e && X509_add_ext(x, e, -1) == 1;
    X509_EXTENSION_free(e);
    return ok;
}

/* The name as data: it is never read as a configuration. */
static bool add_dns_name(X509 *x, const char *name)
{
    GENERAL_NAMES *names = sk_GENERAL_NAME_new_null();
    GENERAL_NAME *g = GENERAL_NAME_new();
    ASN1_IA5STRING *text = ASN1_IA5STRING_new();
    bool ok = names && g && text && ASN1_STRING_set(text, name, (int)strlen(name)) == 1;
    if (ok) {
        GENERAL_NAME_set0_value(g, GEN_DNS, text);
        text = NULL;
        ok = sk_GENERAL_NAME_push(names, g) > 0;
        if (ok)
            g = NULL;
        ok = ok && X509_add1_ext_i2d(x, NID_subject_alt_name, names, 0, 0) == 1;
    }
    ASN1_IA5STRING_free(text);
    GENERAL_NAME_free(g);
    sk_GENERAL_NAME_pop_free(names, GENERAL_NAME_free);
    return ok;
}

/* Everything but the extensions and the signature. */
static X509 *certificate_begin(EVP_PKEY *key, const char *common_name, int days)
{
    uint64_t serial;
    X509 *x = X509_new();
    X509_NAME *subject = x ? X509_get_subject_name(x) : NULL;
    if (!x || RAND_bytes((unsigned char *)&serial, sizeof serial) != 1 || X509_set_version(x, 2) != 1 ||
        ASN1_INTEGER_set_uint64(X509_get_serialNumber(x), serial >> 1 | 1) != 1 ||
        !X509_gmtime_adj(X509_getm_notBefore(x), -CLOCK_SKEW_S) ||
        !X509_time_adj_ex(X509_getm_notAfter(x), days, 0, NULL) || X509_set_pubkey(x, key) != 1 ||
        X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_ASC, (const unsigned char *)"Silica", -1, -1, 0) !=
            1 ||
        X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)common_name, -1, -1,
                                   0) != 1) {
        X509_free(x);
        return NULL;
    }
    return x;
}

static X509 *authority_make(EVP_PKEY *key)
{
    X509 *x = certificate_begin(key, "sidecar authority", AUTHORITY_DAYS);
    if (x && X509_set_issuer_name(x, X509_get_subject_name(x)) == 1 &&
        add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
        add_extension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") &&
        add_extension(x, x, NID_subject_key_identifier, "hash") && X509_sign(x, key, EVP_sha256()) > 0)
        return x;
    X509_free(x);
    return NULL;
}

static X509 *leaf_make(const struct authority *a, const char *name)
{
    X509 *x = certificate_begin(a->leaf_key, strlen(name) <= COMMON_NAME_MAX ? name : "host", LEAF_DAYS);
    if (x && X509_set_issuer_name(x, X509_get_subject_name(a->certificate)) == 1 &&
        add_extension(x, a->certificate, NID_basic_constraints, "critical,CA:FALSE") &&
        add_extension(x, a->certificate, NID_key_usage, "critical,digitalSignature") &&
        add_extension(x, a->certificate, NID_ext_key_usage, "serverAuth") &&
        add_extension(x, a->certificate, NID_subject_key_identifier, "hash") &&
        add_extension(x, a->certificate, NID_authority_key_identifier, "keyid:always") &&
        add_dns_name(x, name) && X509_sign(x, a->key, EVP_sha256()) > 0)
        return x;
    X509_free(x);
    return NULL;
}

/* ------------------------------------------------------------------ texts */

static char *bio_text(BIO *bio)
{
    char *data = NULL;
    long n = BIO_get_mem_data(bio, &data);
    return n > 0 ? strndup(data, (size_t)n) : NULL;
}

static int write_texts(struct authority *a, struct error *reterr)
{
    BIO *bio = BIO_new(BIO_s_secmem());
    if (bio && PEM_write_bio_X509(bio, a->certificate) == 1) {
        a->ca_pem = bio_text(bio);
        if (PEM_write_bio_PKCS8PrivateKey(bio, a->key, NULL, NULL, 0, NULL, NULL) == 1)
            a->secret_pem = bio_text(bio);
    }
    BIO_free(bio);
    return a->ca_pem && a->secret_pem ? 0 : fail(reterr, "out of memory");
}

static int load(struct authority *a, const char *saved, struct error *reterr)
{
    BIO *bio = BIO_new_mem_buf(saved, -1);
    a->certificate = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    a->key = a->certificate ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    if (!a->key || X509_check_private_key(a->certificate, a->key) != 1)
        return fail(reterr, "what was kept of them is damaged");
    return 0;
}

/* ------------------------------------------------------------------ life */

int authority_new(const char *saved, struct authority **ret, struct error *reterr)
{
    struct authority *a = calloc(1, sizeof *a);
    int r = a ? 0 : fail(reterr, "out of memory");
    if (r == 0 && saved) {
        r = load(a, saved, reterr);
    } else if (r == 0) {
        a->key = EVP_EC_gen("P-256");
        a->certificate = a->key ? authority_make(a->key) : NULL;
        r = a->certificate ? 0 : fail(reterr, "cannot be made");
    }
    if (r == 0) {
        a->leaf_key = EVP_EC_gen("P-256");
        a->context = tls_http_context();
        r = a->leaf_key && a->context ? write_texts(a, reterr) : fail(reterr, "cannot be made");
    }
    if (r < 0) {
        authority_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

void authority_free(struct authority *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < LEAVES_MAX; i++)
        X509_free(a->leaves[i].certificate);
    X509_free(a->certificate);
    EVP_PKEY_free(a->key);
    EVP_PKEY_free(a->leaf_key);
    SSL_CTX_free(a->context);
    free(a->ca_pem);
    if (a->secret_pem)
        explicit_bzero(a->secret_pem, strlen(a->secret_pem));
    free(a->secret_pem);
    free(a);
}

const char *authority_ca_pem(const struct authority *a)
{
    return a->ca_pem;
}

const char *authority_secret_pem(const struct authority *a)
{
    return a->secret_pem;
}

/* ------------------------------------------------------------------ sessions */

/* The certificate of a name: a kept one, or a new one in the place of the one not used for longest. */
static X509 *leaf_get(struct authority *a, const char *name)
{
    struct leaf *place = &a->leaves[0];
    int64_t now_ms = clock_mono_ms();
    for (size_t i = 0; i < LEAVES_MAX; i++) {
        struct leaf *l = &a->leaves[i];
        if (l->certificate && strcmp(l->name, name) == 0) {
            place = l;
            break;
        }
        if (l->used < place->used)
            place = l;
    }
    bool fresh = place->certificate && strcmp(place->name, name) == 0 &&
                 now_ms - place->made_ms < (int64_t)LEAF_FRESH_MS;
    if (!fresh) {
        X509 *x = leaf_make(a, name);
        if (!x)
            return NULL;
        X509_free(place->certificate);
        place->certificate = x;
        place->made_ms = now_ms;
        memcpy(place->name, name, strlen(name) + 1);
    }
    place->used = ++a->uses;
    return place->certificate;
}

void *authority_session(struct authority *a, const char *name, int fd)
{
    X509 *leaf = strlen(name) <= DNS_NAME_MAX ? leaf_get(a, name) : NULL;
    SSL *ssl = leaf ? SSL_new(a->context) : NULL;
    if (ssl && SSL_use_certificate(ssl, leaf) == 1 && SSL_use_PrivateKey(ssl, a->leaf_key) == 1 &&
        SSL_set_fd(ssl, fd) == 1) {
        SSL_set_accept_state(ssl);
        return ssl;
    }
    SSL_free(ssl);
    ERR_clear_error();
    return NULL;
}
