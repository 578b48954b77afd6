/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/preview_headers.h"
#include "test.h"

static const struct preview_origin origin = {
    .host = "8080-a-b.localhost:8787", .address = "1.2.3.4", .scheme = "http", .sandbox = "a"};

/* The headers as one text. */
static const char *joined(const struct proxy_headers *h)
{
    static char text[4096];
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < h->count; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s=%s|", h->list[i].name, h->list[i].value);
    return text;
}

static const char *to(const struct http_header *headers, size_t count, bool upgrade)
{
    static struct proxy_headers out;
    CHECK(preview_headers_to_service(headers, count, &origin, upgrade, &out));
    return joined(&out);
}

static const char *from(const struct http_header *headers, size_t count, bool upgrade)
{
    static struct proxy_headers out;
    CHECK(preview_headers_from_service(headers, count, origin.host, upgrade, &out));
    return joined(&out);
}

#define OURS                                                                                             \
    "X-Forwarded-For=1.2.3.4|X-Forwarded-Host=8080-a-b.localhost:8787|X-Forwarded-Proto=http|X-Sandbox-" \
    "Name=a|"

TEST(preview_headers_to_service)
{
    const struct http_header in[] = {{"Host", "8080-a-b.localhost:8787"},
                                     {"connection", "Host, x-foo, close"},
                                     {"X-Foo", "1"},
                                     {"x-forwarded-for", "6.6.6.6"},
                                     {"TE", "trailers"},
                                     {"Transfer-Encoding", "chunked"},
                                     {"Authorization", "Bearer x"},
                                     {"Upgrade", "websocket"},
                                     {"Expect", "100-continue"},
                                     {"Accept", "*/*"},
                                     {"Cookie", "a=b"}};
    CHECK_STREQ(to(in, ARRAY_SIZE(in), false),
                "Host=8080-a-b.localhost:8787|Authorization=Bearer x|Accept=*/*|Cookie=a=b|" OURS);
    CHECK_STREQ(
        to(in, ARRAY_SIZE(in), true),
        "Host=8080-a-b.localhost:8787|Authorization=Bearer x|Accept=*/*|Cookie=a=b|Connection=Upgrade|"
        "Upgrade=websocket|" OURS);
    struct preview_origin hiding = origin;
    struct proxy_headers out;
    hiding.hide_authorization = true;
    CHECK(preview_headers_to_service(in, ARRAY_SIZE(in), &hiding, false, &out));
    CHECK(!http_header_find(out.list, out.count, "Authorization"));
}

TEST(preview_headers_upgrades)
{
    static const struct {
        const char *value;
        bool ok;
    } cases[] = {{"websocket", true},      {"WebSocket", true}, {"tcp", true},
                 {"h2c", false},           {"H2C", false},      {"h2", false},
                 {"TLS/1.3", false},       {"HTTP/2", false},   {"websocket, h2c", false},
                 {"h2c,websocket", false}, {"", false},         {" , h2c", false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct http_header in[] = {{"Upgrade", cases[i].value}};
        if (preview_upgrade_ok(in, 1) != cases[i].ok)
            test_fail(__FILE__, __LINE__, cases[i].value);
    }
    const struct http_header two[] = {{"Upgrade", "websocket"}, {"Upgrade", "h2c"}};
    CHECK(!preview_upgrade_ok(two, 2));
    CHECK(!preview_upgrade_ok(two, 0));
}

TEST(preview_headers_from_service)
{
    const struct http_header in[] = {{"Content-Type", "text/html"},     {"Content-Length", "5"},
                                     {"Connection", "x-hop"},           {"X-Hop", "1"},
                                     {"Clear-Site-Data", "*"},          {"alt-svc", "h3"},
                                     {"Location", "http://127.0.0.1/"}, {"Upgrade", "websocket"}};
    CHECK_STREQ(from(in, ARRAY_SIZE(in), false), "Content-Type=text/html|Location=http://127.0.0.1/|");
    CHECK_STREQ(from(in, ARRAY_SIZE(in), true),
                "Content-Type=text/html|Location=http://127.0.0.1/|Connection=Upgrade|Upgrade=websocket|");
}

TEST(preview_headers_cookies)
{
    static const struct {
        const char *cookie;
        bool passes;
    } cases[] = {
        {"a=b", true},
        {"a=b; Path=/; Secure", true},
        {"a=b; Domain=8080-a-b.localhost", true},
        {"a=b; domain = 8080-A-B.localhost ; Path=/", true},
        {"a=b; Domain=.8080-a-b.localhost", true},
        {"a=b; Domain=", true},
        {"a=b; Domain", true},
        {"a=Domain=localhost", true},
        {"a=b; Domain=localhost", false},
        {"a=b;Domain=localhost", false},
        {"a=b; Domain=.localhost", false},
        {"a=b; Domain=8081-a-b.localhost", false},
        {"a=b; Domain=8080-a-b.localhost:8787", false},
        {"a=b; Domain=8080-a-b.localhost; Domain=localhost", false},
        {"a=b; Domain=localhost; Domain=8080-a-b.localhost", false},
        {"a=b; Domain; Domain=localhost", false},
        {"; Domain=localhost", false},
        {"a=b;\tDOMAIN\t=\tlocalhost\t", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct http_header in[] = {{"Set-Cookie", cases[i].cookie}};
        if ((from(in, 1, false)[0] != '\0') != cases[i].passes)
            test_fail(__FILE__, __LINE__, cases[i].cookie);
    }
}

TEST(preview_headers_transport_security)
{
    static const struct {
        const char *value;
        bool passes;
    } cases[] = {{"max-age=1", true},
                 {"max-age=1; preload", true},
                 {"max-age=1; includeSubDomains", false},
                 {"includesubdomains", false},
                 {"max-age=1;INCLUDESUBDOMAINS;x", false},
                 {"max-age=1; includeSubDomains=1", false},
                 {"includeSubDomainsX", true}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct http_header in[] = {{"Strict-Transport-Security", cases[i].value}};
        if ((from(in, 1, false)[0] != '\0') != cases[i].passes)
            test_fail(__FILE__, __LINE__, cases[i].value);
    }
}

TEST(preview_headers_are_bounded)
{
    static struct http_header many[PROXY_HEADERS_MAX + 1];
    struct proxy_headers out;
    for (size_t i = 0; i < ARRAY_SIZE(many); i++)
        many[i] = (struct http_header){"X-A", "b"};
    CHECK(!preview_headers_to_service(many, PROXY_HEADERS_MAX - 3, &origin, false, &out));
    CHECK(preview_headers_to_service(many, PROXY_HEADERS_MAX - 4, &origin, false, &out));
    CHECK(!preview_headers_from_service(many, ARRAY_SIZE(many), origin.host, false, &out));
}
