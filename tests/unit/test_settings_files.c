/* SPDX-License-Identifier: Apache-2.0 */
/* test_settings_files.c: what becomes of an image's files: the text, twice, because every start does it. */
#include "agent/settings_files.h"
#include "test.h"

typedef int text_fn(const char *text, size_t n, const char *value, struct buf *out);

static void check_text(text_fn *fn, const char *text, const char *value, const char *expected)
{
    struct buf once = BUF_INIT(65536), twice = BUF_INIT(65536);
    CHECK_INT(fn(*text ? text : NULL, strlen(text), value, &once), 0);
    CHECK_STREQ(buf_cstr(&once), expected);
    CHECK_INT(fn(buf_data(&once), buf_len(&once), value, &twice), 0);
    CHECK_STREQ(buf_cstr(&twice), expected);
    buf_done(&once);
    buf_done(&twice);
}

#define BEGIN "# certificates of this server's operator\n"
#define END   "# end of the certificates of this server's operator\n"

TEST(certificates_go_to_the_end)
{
    check_text(settings_bundle_text, "A\nB\n", "X\n", "A\nB\n" BEGIN "X\n" END);
    check_text(settings_bundle_text, "A\nB", "X", "A\nB\n" BEGIN "X\n" END);
    check_text(settings_bundle_text, "", "X\n", BEGIN "X\n" END);
}

TEST(other_certificates_take_their_place)
{
    check_text(settings_bundle_text, "A\n" BEGIN "X\n" END, "Y\n", "A\n" BEGIN "Y\n" END);
    check_text(settings_bundle_text, "A\n" BEGIN "X\n" END "B\n", "Y\n", "A\nB\n" BEGIN "Y\n" END);
    check_text(settings_bundle_text, "A\n" BEGIN "cut off", "Y\n", "A\n" BEGIN "Y\n" END);
}

TEST(sources_lead_to_the_mirror)
{
    check_text(settings_sources_text, "deb http://deb.debian.org/debian bookworm main\n", "http://m/apt",
               "deb http://m/apt/debian bookworm main\n");
    check_text(
        settings_sources_text,
        "URIs: https://deb.debian.org/debian-security/\nURIs: http://security.debian.org/debian-security\n",
        "https://m:8080/", "URIs: https://m:8080/debian-security/\nURIs: https://m:8080/debian-security\n");
    check_text(settings_sources_text, "deb http://archive.ubuntu.com/ubuntu noble main", "http://m",
               "deb http://m/ubuntu noble main");
    check_text(settings_sources_text, "deb https://deb.nodesource.com/node_22.x nodistro main\n", "http://m",
               "deb https://deb.nodesource.com/node_22.x nodistro main\n");
    check_text(settings_sources_text, "deb http://deb.debian.org.evil/debian x\nhttp://deb.debian.org",
               "http://m", "deb http://deb.debian.org.evil/debian x\nhttp://deb.debian.org");
    check_text(settings_sources_text, "", "http://m", "");
}

TEST(a_name_in_hosts)
{
    check_text(settings_hosts_text, "127.0.0.1\tlocalhost\n", "web",
               "127.0.0.1\tlocalhost\n127.0.1.1\tweb\n");
    check_text(settings_hosts_text, "127.0.0.1 localhost", "web", "127.0.0.1 localhost\n127.0.1.1\tweb\n");
    check_text(settings_hosts_text, "10.0.0.1 web-1 web # mine\n", "web", "10.0.0.1 web-1 web # mine\n");
    check_text(settings_hosts_text, "10.0.0.1 web-1 # web\n", "web",
               "10.0.0.1 web-1 # web\n127.0.1.1\tweb\n");
    check_text(settings_hosts_text, "", "web", "127.0.1.1\tweb\n");
}
