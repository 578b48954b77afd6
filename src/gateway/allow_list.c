/* SPDX-License-Identifier: Apache-2.0 */
/* allow_list.c: see allow_list.h. Names are compared label by label from the end: "good.com.evil" has nothing
 * of "good.com", and neither has "notgood.com". */
#include "gateway/allow_list.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct entry {
    bool is_name, star;
    char name[DNS_NAME_MAX + 1]; /* behind the star */
    struct keeper_rule rule;     /* not a name */
    uint16_t port;               /* 0: any */
};

struct allow_list {
    size_t count;
    struct entry entries[];
};

static int refuse(const char *text, const char *why, struct error *reterr)
{
    return error_set(reterr, EINVAL, "'%.80s' %s", text, why);
}

/* Digits only, without a sign or spaces; max is below 100000. */
static int read_number(const char *s, unsigned max, unsigned *ret)
{
    unsigned v = 0;
    size_t n = strlen(s);
    if (n == 0 || n > 5 || strspn(s, "0123456789") != n)
        return -EINVAL;
    for (; *s; s++)
        v = v * 10 + (unsigned)(*s - '0');
    *ret = v;
    return v > max ? -EINVAL : 0;
}

static bool is_label(const char *s, size_t n)
{
    if (n == 0 || n > 63 || s[0] == '-' || s[n - 1] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9') || s[i] == '-' || s[i] == '_'))
            return false;
    return true;
}

static int read_name(const char *text, char *host, struct entry *e, struct error *reterr)
{
    size_t n = strlen(host);
    e->is_name = true;
    if (strcmp(host, "*") == 0) {
        e->star = true;
        return 0;
    }
    if (strncmp(host, "*.", 2) == 0) {
        e->star = true;
        host += 2;
        n -= 2;
    }
    if (n && host[n - 1] == '.')
        host[--n] = '\0';
    if (strchr(host, '*'))
        return refuse(text, "has a star inside: it can only stand in front, as in *.example.org", reterr);
    if (n == 0 || n > DNS_NAME_MAX)
        return refuse(text, "is not a name", reterr);
    const char *label = host, *last = host;
    for (char *p = host;; p++) {
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
        if ((unsigned char)*p >= 0x80)
            return refuse(text, "has letters beyond ASCII: write it as its servers know it, xn--...", reterr);
        if (*p != '.' && *p)
            continue;
        if (!is_label(label, (size_t)(p - label)))
            return refuse(text, "is neither a name, nor an address, nor a network", reterr);
        last = label;
        if (!*p)
            break;
        label = p + 1;
    }
    if (strspn(last, "0123456789") == strlen(last))
        return refuse(text, "looks like an address and is none", reterr);
    memcpy(e->name, host, n + 1);
    return 0;
}

static int read_network(const char *text, char *host, struct entry *e, struct error *reterr)
{
    char *slash = strchr(host, '/');
    unsigned bits = strchr(host, ':') ? IP_BITS : IP_BITS - IP_V4_BITS, prefix = bits;
    struct ip address;
    if (slash) {
        *slash = '\0';
        if (read_number(slash + 1, bits, &prefix) < 0)
            return refuse(
                text, bits == IP_BITS ? "has no prefix between 1 and 128" : "has no prefix between 1 and 32",
                reterr);
    }
    if (!ip_parse(host, &address))
        return refuse(text, "looks like an address and is none", reterr);
    e->rule = (struct keeper_rule){
        .address = address, .prefix = (uint8_t)(IP_BITS - bits + prefix), .port = e->port};
    if (!ip_is_network(&address, e->rule.prefix))
        return refuse(text, "has bits behind its prefix", reterr);
    if (!keeper_rule_can_open(&e->rule))
        return refuse(text, "contains addresses that no list can open (this host, link-local, multicast)",
                      reterr);
    return 0;
}

/* Where the host ends and a port begins; NULL: there is none. IPv6 has colons of its own, and brackets if
 * there is a port behind them. *host: without them. */
static int split_port(const char *text, char **host, char **ret_port, struct error *reterr)
{
    *ret_port = NULL;
    if ((*host)[0] == '[') {
        char *end = strchr(++*host, ']');
        if (!end || (end[1] && end[1] != ':') || !strchr(*host, ':') || strchr(*host, ':') > end)
            return refuse(text, "is not an address in brackets, such as [2606:4700::1111]:443", reterr);
        *ret_port = end[1] ? end + 2 : NULL;
        *end = '\0';
        return 0;
    }
    char *colon = strchr(*host, ':');
    if (!colon || strchr(colon + 1, ':'))
        return 0;
    *colon = '\0';
    *ret_port = colon + 1;
    return 0;
}

static int entry_read(const char *text, struct entry *e, struct error *reterr)
{
    char place[ALLOW_ENTRY_CHARS + 1], *host = place, *port_text;
    size_t n = strlen(text);
    unsigned port = 0;
    *e = (struct entry){0};
    if (n == 0 || n > ALLOW_ENTRY_CHARS)
        return refuse(text, n ? "is too long" : "is empty", reterr);
    memcpy(place, text, n + 1);
    int r = split_port(text, &host, &port_text, reterr);
    if (r < 0)
        return r;
    if (port_text && (read_number(port_text, 65535, &port) < 0 || port == 0))
        return refuse(text, "has no port between 1 and 65535", reterr);
    e->port = (uint16_t)port;
    size_t digits = strspn(host, "0123456789./");
    return (digits && host[digits] == '\0') || strchr(host, ':') ? read_network(text, host, e, reterr)
                                                                 : read_name(text, host, e, reterr);
}

static void network_write(const struct entry *e, char out[ALLOW_ENTRY_CHARS + 1])
{
    char address[IP_TEXT], prefix[8] = "";
    bool v4 = ip_is_v4(&e->rule.address);
    if (e->rule.prefix != IP_BITS)
        (void)snprintf(prefix, sizeof prefix, "/%d", e->rule.prefix - (v4 ? IP_V4_BITS : 0));
    (void)ip_text(&e->rule.address, address);
    if (!e->port)
        (void)snprintf(out, ALLOW_ENTRY_CHARS + 1, "%s%s", address, prefix);
    else
        (void)snprintf(out, ALLOW_ENTRY_CHARS + 1, v4 ? "%s%s:%u" : "[%s%s]:%u", address, prefix, e->port);
}

int allow_entry_check(const char *text, char out[ALLOW_ENTRY_CHARS + 1], struct error *reterr)
{
    struct entry e;
    char port[8] = "";
    int r = entry_read(text, &e, reterr);
    if (r < 0)
        return r;
    if (!e.is_name) {
        network_write(&e, out);
        return 0;
    }
    if (e.port)
        (void)snprintf(port, sizeof port, ":%u", e.port);
    const char *star = !e.star ? "" : e.name[0] ? "*." : "*";
    (void)snprintf(out, ALLOW_ENTRY_CHARS + 1, "%s%s%s", star, e.name, port);
    return 0;
}

bool allow_entry_is_private(const char *entry)
{
    struct entry e;
    return entry_read(entry, &e, NULL) == 0 && !e.is_name && !keeper_rule_is_public(&e.rule);
}

int allow_list_parse(const char *text, struct allow_list **ret, struct error *reterr)
{
    size_t lines = 0, nets = 0;
    for (const char *p = text ? text : ""; *p; p += strcspn(p, "\n"), p += *p == '\n')
        lines++;
    if (lines > ALLOW_ENTRIES_MAX)
        return error_set(reterr, E2BIG, "a list has %d entries at most", ALLOW_ENTRIES_MAX);
    struct allow_list *l = calloc(1, sizeof *l + lines * sizeof l->entries[0]);
    if (!l)
        return error_sys(reterr, ENOMEM, "read a list");
    int r = 0;
    for (const char *p = text ? text : ""; *p && r == 0;) {
        char line[ALLOW_ENTRY_CHARS + 2];
        size_t n = strcspn(p, "\n");
        (void)snprintf(line, sizeof line, "%.*s", (int)MIN(n, sizeof line - 1), p);
        r = entry_read(line, &l->entries[l->count], reterr);
        nets += r == 0 && !l->entries[l->count++].is_name;
        p += n + (p[n] == '\n');
    }
    if (r == 0 && nets > KEEPER_RULES_MAX)
        r = error_set(reterr, E2BIG, "a list has %d addresses and networks at most", KEEPER_RULES_MAX);
    if (r < 0) {
        allow_list_free(l);
        return r;
    }
    *ret = l;
    return 0;
}

void allow_list_free(struct allow_list *l)
{
    free(l);
}

/* What stands for the star, as long as nothing can be hidden in it. */
static bool star_fits(const char *name, size_t len)
{
    size_t labels = len > 0;
    for (size_t i = 0; i < len; i++)
        labels += name[i] == '.';
    return len > 0 && len <= ALLOW_STAR_CHARS && labels <= ALLOW_STAR_LABELS;
}

static bool name_matches(const struct entry *e, const char *name)
{
    size_t n = strlen(name), tail = strlen(e->name);
    if (!e->star)
        return strcmp(e->name, name) == 0;
    if (!e->name[0]) /* "*": of the last two labels nobody can make up more than one */
        return star_fits(name, n);
    return n > tail + 1 && name[n - tail - 1] == '.' && strcmp(name + n - tail, e->name) == 0 &&
           star_fits(name, n - tail - 1);
}

size_t allow_list_ports(const struct allow_list *l, const char *name, uint16_t out[ALLOW_PORTS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < l->count; i++) {
        const struct entry *e = &l->entries[i];
        bool known = false;
        if (!e->is_name || !name_matches(e, name))
            continue;
        if (!e->port) {
            out[0] = 0;
            return 1;
        }
        for (size_t k = 0; k < count; k++)
            known |= out[k] == e->port;
        if (!known && count < ALLOW_PORTS_MAX)
            out[count++] = e->port;
    }
    return count;
}

void allow_list_rules(const struct allow_list *l, struct keeper_policy *p)
{
    p->rule_count = 0;
    for (size_t i = 0; i < l->count && p->rule_count < KEEPER_RULES_MAX; i++)
        if (!l->entries[i].is_name)
            p->rules[p->rule_count++] = l->entries[i].rule;
}

bool allow_list_has_address(const struct allow_list *l, const struct ip *address)
{
    for (size_t i = 0; i < l->count; i++)
        if (!l->entries[i].is_name &&
            ip_same_prefix(&l->entries[i].rule.address, address, l->entries[i].rule.prefix))
            return true;
    return false;
}
