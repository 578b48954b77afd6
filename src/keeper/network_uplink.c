/* SPDX-License-Identifier: Apache-2.0 */
/* network_uplink.c: what the network changes on the host besides its links and its table.
 *
 * For a packet to be routed on, the interface it came in through must forward. For packets of sandboxes that
 * is our own link; for the answers it is the uplink, which belongs to the host. If it does not yet, we make
 * it, for that one interface, and the filter drops everything that comes in through it and is not for a
 * sandbox: the host is as little a router as before. A note in the run directory tells the next keeper that
 * it was us, so that it keeps the guard and undoes both.
 *
 * IPv4 has a setting for one interface, `forwarding`. That of IPv6 (`force_forwarding`) is young; before it
 * there is only the one for the whole host, which also makes the host deaf to its own router's
 * advertisements. That one is the operator's to set, never ours. */
#include "base/log.h"
#include "keeper/network_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define ACCOUNTING "/proc/sys/net/netfilter/nf_conntrack_acct"

static const struct {
    const char *name;      /* below /proc/sys/net */
    const char *forwards;  /* the setting of one interface */
    const char *note;      /* in the run directory */
    const char *somewhere; /* a public address to ask the routing table about */
} families[] = {
    [NFT_V4] = {"ipv4", "forwarding", "uplink", "1.1.1.1"},
    [NFT_V6] = {"ipv6", "force_forwarding", "uplink6", "2600::1"},
};
_Static_assert(ARRAY_SIZE(families) == NFT_FAMILIES, "both families");

/* ---- settings */

static int setting_path(char *out, size_t cap, const char *family, const char *link, const char *name)
{
    int n = snprintf(out, cap, "/proc/sys/net/%s/conf/%s/%s", family, link, name);
    return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

int network_setting_write(const char *family, const char *link, const char *name, const char *value)
{
    char path[128];
    int r = setting_path(path, sizeof path, family, link, name);
    if (r < 0)
        return r;
    auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, value, strlen(value)) < 0 ? -errno : 0;
}

/* 1, 0 or -errno. */
static int setting_read(const char *family, const char *link, const char *name)
{
    char path[128], value = '0';
    int r = setting_path(path, sizeof path, family, link, name);
    if (r < 0)
        return r;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 || read(fd, &value, 1) != 1 ? -errno : value != '0';
}

static bool host_forwards(enum nft_family_index f)
{
    return setting_read(families[f].name, "all", "forwarding") == 1;
}

/* Whether the interface forwards: 1, 0, or -ENOENT when it cannot be said for one alone. */
static int link_forwards(enum nft_family_index f, const char *link)
{
    return f == NFT_V6 && host_forwards(f) ? 1 : setting_read(families[f].name, link, families[f].forwards);
}

/* ---- notes */

void network_name_notes(struct network *n, const char *run_dir)
{
    for (int f = 0; f < NFT_FAMILIES; f++)
        (void)snprintf(n->note[f], sizeof n->note[f], "%s/%s", run_dir, families[f].note);
    (void)snprintf(n->accounting_note, sizeof n->accounting_note, "%s/accounting", run_dir);
}

static void note_read(const struct network *n, enum nft_family_index f, char out[IFNAMSIZ])
{
    auto_close int fd = open(n->note[f], O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, out, IFNAMSIZ - 1);
    out[len > 0 ? len : 0] = '\0';
    if (strchr(out, '/') || out[0] == '.')
        out[0] = '\0';
}

static int note_write(const struct network *n, enum nft_family_index f, struct error *reterr)
{
    const char *link = n->table.closed[f];
    auto_close int fd = open(n->note[f], O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, link, strlen(link)) != (ssize_t)strlen(link))
        return error_sys(reterr, errno, "note which interface is made to forward");
    return 0;
}

/* ---- forwarding */

/* Undoes our setting. With IPv4, unless by now forwarding is on for the whole host: that sets it for every
 * interface, so it is somebody else's, too. */
static void restore(const struct network *n, enum nft_family_index f, const char *link)
{
    if (f == NFT_V6 || !host_forwards(f))
        (void)network_setting_write(families[f].name, link, families[f].forwards,
                                    "0"); /* the interface may be gone */
    (void)unlink(n->note[f]);
}

static int route_interface(enum nft_family_index f, char ret[IFNAMSIZ])
{
    struct ip somewhere;
    unsigned index;
    if (!ip_parse(families[f].somewhere, &somewhere))
        return -EINVAL;
    int r = nl_route_interface(&somewhere, &index);
    return r < 0 ? r : if_indextoname(index, ret) ? 0 : -errno;
}

/* IPv6 is there because somebody asked for it: what it lacks is an error. */
static int no_uplink(enum nft_family_index f, int err, struct error *reterr)
{
    if (f == NFT_V6)
        return error_set(reterr, ENONET,
                         "this host has no way to the internet over IPv6 (%s): give it one, or start without "
                         "--ipv6",
                         strerror(-err));
    log_warn("this host has no way to the internet: sandboxes have none either until silica is restarted");
    return 0;
}

int network_uplink_choose(struct network *n, enum nft_family_index f, struct error *reterr)
{
    char noted[IFNAMSIZ], uplink[IFNAMSIZ] = "";
    note_read(n, f, noted);
    int found = route_interface(f, uplink);
    if (noted[0] && (strcmp(noted, uplink) != 0 || host_forwards(f))) {
        restore(n, f, noted);
        noted[0] = '\0';
    }
    if (found < 0)
        return no_uplink(f, found, reterr);
    int forwards = link_forwards(f, uplink);
    if (forwards == -ENOENT && f == NFT_V6)
        return error_set(
            reterr, EOPNOTSUPP,
            "this kernel forwards IPv6 for the whole host or not at all (Linux 6.17 can do it for "
            "one interface): set net.ipv6.conf.all.forwarding=1, with accept_ra=2 for an interface "
            "that a router configures, or start without --ipv6");
    if (!noted[0] && forwards == 1)
        return 0;
    memcpy(n->table.closed[f], uplink, sizeof n->table.closed[f]);
    return note_write(n, f, reterr);
}

int network_uplink_open(struct network *n, struct error *reterr)
{
    for (int f = 0; f < NFT_FAMILIES; f++) {
        const char *link = n->table.closed[f];
        int r = link[0] ? network_setting_write(families[f].name, link, families[f].forwards, "1") : 0;
        if (r < 0)
            return error_sys(reterr, -r, "let interface %s forward the answers to sandboxes", link);
    }
    return 0;
}

void network_uplink_undo(struct network *n, enum nft_family_index f)
{
    char *link = n->table.closed[f];
    if (!link[0])
        note_read(n, f, link);
    if (link[0])
        restore(n, f, link);
    link[0] = '\0';
}

int network_uplink(enum nft_family_index f, char ret_name[IFNAMSIZ])
{
    char path[128];
    int r = route_interface(f, ret_name);
    if (r < 0)
        return r;
    if ((r = link_forwards(f, ret_name)) == 1 || (r < 0 && f == NFT_V6))
        return r;
    r = setting_path(path, sizeof path, families[f].name, ret_name, families[f].forwards);
    return r < 0 ? r : access(path, W_OK) < 0 ? -EROFS : 0;
}

/* ---- accounting */

/* Connections count their bytes, for the log. Without it the log has none, which is no reason not to start.
 */
void network_accounting_on(const struct network *n)
{
    char value = '1';
    auto_close int fd = open(ACCOUNTING, O_RDWR | O_CLOEXEC);
    if (fd < 0 || read(fd, &value, 1) != 1 || value != '0')
        return;
    auto_close int note = open(n->accounting_note, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (note >= 0)
        (void)!pwrite(fd, "1", 1, 0);
}

/* As it was, if it was us. */
void network_accounting_restore(const struct network *n)
{
    if (unlink(n->accounting_note) < 0)
        return;
    auto_close int fd = open(ACCOUNTING, O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)!write(fd, "0", 1);
}
