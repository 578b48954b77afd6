/* SPDX-License-Identifier: Apache-2.0 */
/* tls_context.c: certificates and keys as the keeper read them, made ready for use; see tls.h. */
#include "gateway/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>

struct tls_contexts {
    size_t count;
    SSL_CTX *list[TLS_PAIRS_MAX];
};

static int fail(struct error *reterr, size_t pair, const char *what)
{
    char why[128];
    unsigned long code = ERR_get_error();
    ERR_error_string_n(code, why, sizeof why);
    ERR_clear_error();
    return error_set(reterr, EINVAL, "TLS certificate %zu: %s%s%s", pair + 1, what, code ? ": " : "",
                     code ? why : "");
}

/* There is nobody to ask for a passphrase. */
static int no_passphrase(char *buf, int size, int writing, void *arg)
{
    (void)buf;
    (void)size;
    (void)writing;
    (void)arg;
    return -1;
}

static int use_certificate(SSL_CTX *ctx, BIO *bio)
{
    X509 *leaf = PEM_read_bio_X509_AUX(bio, NULL, no_passphrase, NULL), *link;
    int ok = leaf && SSL_CTX_use_certificate(ctx, leaf) == 1;
    X509_free(leaf);
    while (ok && (link = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL)))
        if (SSL_CTX_add0_chain_cert(ctx, link) != 1) {
            X509_free(link);
            ok = 0;
        }
    if (ok)
        ERR_clear_error(); /* the end of the file is told as an error */
    return ok;
}

static int use_key(SSL_CTX *ctx, BIO *bio)
{
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
    int ok = key && SSL_CTX_use_PrivateKey(ctx, key) == 1 && SSL_CTX_check_private_key(ctx) == 1;
    EVP_PKEY_free(key);
    return ok;
}

/* HTTP/1.1 is all we speak; who offers nothing gets nothing, who offers only others is refused. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen;
    (void)ssl;
    (void)arg;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof ours - 1, in, in_len) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* The one whose certificate has the name, else the first. */
static int choose_context(SSL *ssl, int *alert, void *arg)
{
    struct tls_contexts *t = arg;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    (void)alert;
    for (size_t i = 0; name && i < t->count; i++)
        if (X509_check_host(SSL_CTX_get0_certificate(t->list[i]), name, 0, 0, NULL) == 1) {
            (void)SSL_set_SSL_CTX(ssl, t->list[i]);
            break;
        }
    return SSL_TLSEXT_ERR_OK;
}

void *tls_http_context(void)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx || SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1) {
        SSL_CTX_free(ctx);
        return NULL;
    }
    (void)SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                       SSL_OP_CIPHER_SERVER_PREFERENCE);
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                    SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    return ctx;
}

static int context_new(size_t pair, const char *cert, size_t cert_len, const char *key, size_t key_len,
                       SSL_CTX **ret, struct error *reterr)
{
    SSL_CTX *ctx = tls_http_context();
    BIO *cert_bio = BIO_new_mem_buf(cert, (int)cert_len), *key_bio = BIO_new_mem_buf(key, (int)key_len);
    int r = 0;
    if (!ctx || !cert_bio || !key_bio)
        r = fail(reterr, pair, "cannot be set up");
    else if (!use_certificate(ctx, cert_bio))
        r = fail(reterr, pair, "the certificate file cannot be used");
    else if (!use_key(ctx, key_bio))
        r = fail(reterr, pair, "the key file cannot be used with it");
    BIO_free(cert_bio);
    BIO_free(key_bio);
    if (r < 0) {
        SSL_CTX_free(ctx);
        return r;
    }
    *ret = ctx;
    return 0;
}

int tls_contexts_new(const void *files, size_t n, struct tls_contexts **ret, struct error *reterr)
{
    struct gateway_tls head;
    const char *text = (const char *)files + sizeof head;
    size_t left = n - sizeof head;
    if (n < sizeof head)
        return error_set(reterr, EINVAL, "the TLS certificates did not arrive");
    memcpy(&head, files, sizeof head);
    if (head.pair_count < 1 || head.pair_count > TLS_PAIRS_MAX)
        return error_set(reterr, EINVAL, "there is no TLS certificate");
    struct tls_contexts *t = calloc(1, sizeof *t);
    if (!t)
        return error_sys(reterr, ENOMEM, "set up TLS");
    for (size_t i = 0; i < head.pair_count; i++) {
        size_t cert = head.lengths[2 * i], key = head.lengths[2 * i + 1];
        int r = cert > TLS_FILE_MAX || key > TLS_FILE_MAX || cert + key > left
                    ? error_set(reterr, EINVAL, "the TLS certificates did not arrive whole")
                    : context_new(i, text, cert, text + cert, key, &t->list[i], reterr);
        if (r < 0) {
            tls_contexts_free(t);
            return r;
        }
        t->count++;
        text += cert + key;
        left -= cert + key;
    }
    (void)SSL_CTX_set_tlsext_servername_callback(t->list[0], choose_context);
    (void)SSL_CTX_set_tlsext_servername_arg(t->list[0], t);
    *ret = t;
    return 0;
}

int tls_contexts_read(int fd, struct tls_contexts **ret, struct error *reterr)
{
    size_t cap = sizeof(struct gateway_tls) + (size_t)2 * TLS_PAIRS_MAX * TLS_FILE_MAX;
    char *files = malloc(cap);
    ssize_t n = files ? pread(fd, files, cap, 0) : -1;
    int r = n < 0 ? error_sys(reterr, files ? errno : ENOMEM, "read the TLS certificates")
                  : tls_contexts_new(files, (size_t)n, ret, reterr);
    if (files)
        explicit_bzero(files, cap);
    free(files);
    return r;
}

void tls_contexts_free(struct tls_contexts *t)
{
    if (!t)
        return;
    if (t->count) /* a handshake under way must not look here */
        (void)SSL_CTX_set_tlsext_servername_callback(t->list[0], NULL);
    for (size_t i = 0; i < t->count; i++)
        SSL_CTX_free(t->list[i]);
    free(t);
}

void *tls_contexts_session(struct tls_contexts *t, int fd)
{
    SSL *ssl = SSL_new(t->list[0]);
    if (ssl && SSL_set_fd(ssl, fd) == 1) {
        SSL_set_accept_state(ssl);
        return ssl;
    }
    SSL_free(ssl);
    ERR_clear_error();
    return NULL;
}
