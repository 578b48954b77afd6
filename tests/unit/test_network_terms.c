/* SPDX-License-Identifier: Apache-2.0 */
/* test_network_terms.c: what a restarted keeper believes of a sandbox's network, above all when it cannot
 * read it. */
#include "keeper/network_terms.h"
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

TEST(terms_are_read_as_written_or_as_the_strictest)
{
    char dir[] = "/tmp/silica-terms-XXXXXX";
    struct error e;
    struct network_terms t = {.listed = true, .policy = {.connections = 5, .rule_count = 1}}, got;
    t.policy.rules[0] =
        (struct keeper_rule){.address = ip_from_v4(inet_addr("10.1.0.0")), .prefix = 112, .port = 443};
    REQUIRE(mkdtemp(dir));
    auto_close int slots = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    REQUIRE(slots >= 0 && mkdirat(slots, "7", 0700) == 0);
    auto_close int slot = openat(slots, "7", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    network_terms_read(slots, 7, &got);
    CHECK(!got.listed && keeper_policy_empty(&got.policy)); /* no file: public */
    CHECK_INT(network_terms_write(slot, &t, &e), 0);
    network_terms_read(slots, 7, &got);
    CHECK(got.listed && got.policy.connections == 5 && got.policy.rule_count == 1 &&
          got.policy.rules[0].port == 443);
    auto_close int file = openat(slot, "network", O_WRONLY | O_CLOEXEC);
    struct stat st;
    REQUIRE(file >= 0 && fstat(file, &st) == 0);
    CHECK(pwrite(file, "\xff", 1, 60) == 1); /* a rule that cannot be */
    network_terms_read(slots, 7, &got);
    CHECK(got.listed && got.policy.rule_count == 0);
    CHECK_INT(network_terms_write(slot, &t, &e), 0);
    auto_close int again = openat(slot, "network", O_WRONLY | O_CLOEXEC);
    CHECK(again >= 0 && ftruncate(again, st.st_size - 1) == 0);
    network_terms_read(slots, 7, &got);
    CHECK(got.listed && got.policy.rule_count == 0 && got.policy.connections == 0);
    /* as an older keeper wrote it: listed, one rule 10.1.0.0/16:443, five connections */
    uint32_t old[10 + 2 * KEEPER_RULES_MAX] = {
        0x53494c4e, 1, 1, 0, 0, 0, 5, 0, 1, 0, inet_addr("10.1.0.0"), 443 | 16 << 16};
    auto_close int before = openat(slot, "network", O_WRONLY | O_TRUNC | O_CLOEXEC);
    CHECK(before >= 0 && write(before, old, sizeof old) == (ssize_t)sizeof old);
    network_terms_read(slots, 7, &got);
    CHECK(got.listed && got.policy.connections == 5 && got.policy.rule_count == 1 &&
          memcmp(&got.policy.rules[0], &t.policy.rules[0], sizeof t.policy.rules[0]) == 0);
    CHECK(pwrite(before, "\x21", 1, 46) == 1); /* a prefix of 33 */
    network_terms_read(slots, 7, &got);
    CHECK(got.listed && got.policy.rule_count == 0 && got.policy.connections == 0);
    (void)unlinkat(slot, "network", 0);
    (void)unlinkat(slots, "7", AT_REMOVEDIR);
    (void)rmdir(dir);
}
