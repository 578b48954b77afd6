/* SPDX-License-Identifier: Apache-2.0 */
/* http_util.c: header look-up, status texts, query strings. */
#include "net/http.h"
#include "base/utf8.h"

#include <string.h>
#include <strings.h>

const char *http_header_find(const struct http_header *headers, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (http_name_equal(headers[i].name, name))
            return headers[i].value;
    return NULL;
}

size_t http_header_occurs(const struct http_header *headers, size_t count, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += http_name_equal(headers[i].name, name);
    return n;
}

bool http_list_has(const char *value, const char *token)
{
    size_t n = strlen(token);
    while (value && *value) {
        value += strspn(value, " \t,");
        size_t len = strcspn(value, ",");
        const char *next = value + len;
        while (len && (value[len - 1] == ' ' || value[len - 1] == '\t'))
            len--;
        if (len == n && strncasecmp(value, token, n) == 0)
            return true;
        value = next;
    }
    return false;
}

const char *http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } table[] = {
        {200, "OK"},
        {100, "Continue"},
        {101, "Switching Protocols"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {205, "Reset Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {402, "Payment Required"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {423, "Locked"},
        {424, "Failed Dependency"},
        {425, "Too Early"},
        {426, "Upgrade Required"},
        {428, "Precondition Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {451, "Unavailable For Legal Reasons"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        if (table[i].status == status)
            return table[i].text;
    return "Unknown";
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The next decoded byte of s (which ends at end), moving *s behind it; -1 for a broken escape. */
static int decode_byte(const char **s, const char *end)
{
    const char *p = *s;
    if (*p == '+') {
        *s = p + 1;
        return ' ';
    }
    if (*p != '%') {
        *s = p + 1;
        return (unsigned char)*p;
    }
    if (end - p < 3 || hex_value(p[1]) < 0 || hex_value(p[2]) < 0)
        return -1;
    *s = p + 3;
    return hex_value(p[1]) << 4 | hex_value(p[2]);
}

static bool name_equals(const char *s, const char *end, const char *name)
{
    while (s < end) {
        int c = decode_byte(&s, end);
        if (c <= 0 || c != (unsigned char)*name++)
            return false;
    }
    return *name == '\0';
}

static bool decode_value(const char *s, const char *end, char *out, size_t cap)
{
    size_t n = 0;
    while (s < end) {
        int c = decode_byte(&s, end);
        if (c <= 0 || n + 1 >= cap)
            return false;
        out[n++] = (char)c;
    }
    if (n >= cap)
        return false;
    out[n] = '\0';
    return utf8_valid(out, n);
}

bool http_query_get(const char *query, const char *name, char *out, size_t cap)
{
    while (*query) {
        size_t len = strcspn(query, "&");
        const char *end = query + len, *equals = memchr(query, '=', len);
        if (name_equals(query, equals ? equals : end, name))
            return decode_value(equals ? equals + 1 : end, end, out, cap);
        query = *end ? end + 1 : end;
    }
    return false;
}
