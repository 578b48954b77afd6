/* SPDX-License-Identifier: Apache-2.0 */
/* test_record.c: slot directories and records, images' environment, opening beneath a root. */
#include "keeper/image.h"
#include "keeper/mount_util.h"
#include "keeper/record.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static char dir_path[64];

static int scratch_make(void)
{
    (void)snprintf(dir_path, sizeof dir_path, "/tmp/silica-test-XXXXXX");
    return mkdtemp(dir_path) ? open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

static void file_write(int dir, const char *name, const char *text)
{
    auto_close int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static struct record sample(void)
{
    struct record r = {.generation = 7, .disk = 12, .start_time = 99, .pid = 4242, .loop_index = 3};
    (void)snprintf(r.id, sizeof r.id, "demo");
    (void)snprintf(r.image, sizeof r.image, "base");
    return r;
}

static unsigned found_slots[4];
static size_t found_count;

static void found(unsigned slot, void *arg)
{
    (void)arg;
    if (found_count < ARRAY_SIZE(found_slots))
        found_slots[found_count++] = slot;
}

TEST(record_survives_and_goes_with_its_slot)
{
    auto_close int slots = scratch_make();
    struct error e = {0};
    auto_close int dir = -1;
    REQUIRE(slots >= 0);
    REQUIRE(slot_dir_make(slots, 5, &dir, &e) == 0);
    int again = -1;
    CHECK_INT(slot_dir_make(slots, 5, &again, &e), -EEXIST); /* a slot is nobody else's */
    struct record in = sample(), out;
    CHECK_INT(record_read(dir, &out, &e), -ENOENT);
    CHECK_INT(record_write(dir, &in, &e), 0);
    REQUIRE(record_read(dir, &out, &e) == 0);
    CHECK_STREQ(out.id, "demo");
    CHECK_INT(out.pid, 4242);
    CHECK_INT(out.disk, 12);
    file_write(slots, "not-a-slot", "x");
    found_count = 0;
    CHECK_INT(slot_dir_scan(slots, found, NULL), 0);
    CHECK_INT(found_count, 1);
    CHECK_INT(found_slots[0], 5);
    slot_dir_remove(slots, 5);
    found_count = 0;
    (void)slot_dir_scan(slots, found, NULL);
    CHECK_INT(found_count, 0);
    (void)unlinkat(slots, "not-a-slot", 0);
    CHECK_INT(rmdir(dir_path), 0);
}

TEST(record_that_is_damaged_is_refused)
{
    auto_close int dir = scratch_make();
    struct error e = {0};
    struct record in = sample(), out;
    REQUIRE(dir >= 0 && record_write(dir, &in, &e) == 0);
    static const size_t at[] = {0, offsetof(struct record, version)};
    for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
        auto_close int fd = openat(dir, "record", O_RDWR | O_CLOEXEC);
        char c = 0x55;
        CHECK(pwrite(fd, &c, 1, (off_t)at[i]) == 1);
        CHECK_INT(record_read(dir, &out, &e), -EBADMSG);
        CHECK_INT(record_write(dir, &in, &e), 0);
    }
    auto_close int fd = openat(dir, "record", O_RDWR | O_CLOEXEC);
    CHECK(ftruncate(fd, 20) == 0);
    CHECK_INT(record_read(dir, &out, &e), -EBADMSG);
    in.pid = 1; /* never ours: adopting it would mean killing the host's init one day */
    CHECK_INT(record_write(dir, &in, &e), 0);
    CHECK_INT(record_read(dir, &out, &e), -EBADMSG);
    (void)unlinkat(dir, "record", 0);
    CHECK_INT(rmdir(dir_path), 0);
}

TEST(image_names_are_plain_and_links_are_not_followed)
{
    auto_close int dir = scratch_make();
    struct error e = {0};
    struct image i;
    REQUIRE(dir >= 0);
    static const char *const bad[] = {"", "..", ".hidden", "a/b", "Base", "x y", "../images/base", "none"};
    for (size_t n = 0; n < ARRAY_SIZE(bad); n++)
        CHECK_INT(image_open(NULL, dir, bad[n], &i, &e), -ENOENT);
    CHECK(mkdirat(dir, "good", 0755) == 0 && mkdirat(dir, "good/rootfs", 0755) == 0);
    CHECK(symlinkat("good", dir, "link") == 0);
    CHECK_INT(image_open(NULL, dir, "link", &i, &e), -ENOENT);
    file_write(dir, "good/env", "PATH=/bin\nnonsense\nA=b=c\n");
    REQUIRE(image_open(NULL, dir, "good", &i, &e) == 0);
    CHECK_STREQ(i.env[0], "PATH=/bin");
    CHECK_STREQ(i.env[1], "A=b=c");
    CHECK(i.env[2] == NULL);
    image_done(&i);
    (void)unlinkat(dir, "good/env", 0);
    (void)unlinkat(dir, "good/rootfs", AT_REMOVEDIR);
    (void)unlinkat(dir, "good", AT_REMOVEDIR);
    (void)unlinkat(dir, "link", 0);
    CHECK_INT(rmdir(dir_path), 0);
}

TEST(open_beneath_stays_beneath)
{
    auto_close int dir = scratch_make();
    REQUIRE(dir >= 0);
    CHECK(mkdirat(dir, "in", 0755) == 0);
    CHECK(symlinkat("/", dir, "root") == 0 && symlinkat("in", dir, "near") == 0);
    auto_close int in = open_beneath(dir, "in", O_PATH | O_DIRECTORY);
    CHECK(in >= 0);
    CHECK_INT(open_beneath(dir, "near", O_PATH | O_DIRECTORY), -ELOOP);
    CHECK_INT(open_beneath(dir, "root/etc", O_PATH), -ELOOP);
    auto_close int up =
        open_beneath(dir, "../../..", O_PATH | O_DIRECTORY); /* ".." stops at the root given */
    struct stat a, b;
    CHECK(up >= 0 && fstat(up, &a) == 0 && fstat(dir, &b) == 0 && a.st_ino == b.st_ino);
    (void)unlinkat(dir, "in", AT_REMOVEDIR);
    (void)unlinkat(dir, "root", 0);
    (void)unlinkat(dir, "near", 0);
    CHECK_INT(rmdir(dir_path), 0);
}
