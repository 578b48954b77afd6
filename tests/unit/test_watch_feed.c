/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch_feed.h"
#include "test.h"

static const char *json(const struct watch_feed *f, size_t i, struct buf *out)
{
    buf_clear(out);
    CHECK_INT(watch_feed_json(f, i, out), 0);
    return buf_cstr(out);
}

TEST(feed_collapses_equal_events)
{
    struct watch_feed f = {0};
    struct buf out = BUF_INIT(1 << 16);
    watch_feed_add(&f, WATCH_CREATE, "/a", false, 1000);
    watch_feed_add(&f, WATCH_MODIFY, "/a", false, 2000);
    watch_feed_add(&f, WATCH_CREATE, "/a", true, 3000);
    watch_feed_add(&f, WATCH_CREATE, "/b", false, 4000);
    watch_feed_add(&f, WATCH_CREATE, "/a", false, 5000);
    CHECK_INT(f.count, 4);
    CHECK_STREQ(json(&f, 0, &out),
                "{\"type\":\"event\",\"eventType\":\"create\",\"path\":\"/a\",\"isDirectory\":false,"
                "\"timestamp\":\"1970-01-01T00:00:05.000Z\"}");
    CHECK_STREQ(json(&f, 2, &out),
                "{\"type\":\"event\",\"eventType\":\"create\",\"path\":\"/a\",\"isDirectory\":true,"
                "\"timestamp\":\"1970-01-01T00:00:03.000Z\"}");
    watch_feed_clear(&f);
    CHECK_INT(f.count, 0);
    watch_feed_add(&f, WATCH_DELETE, "/\xff", false, 0);
    CHECK(strstr(json(&f, 0, &out), "\"path\":\"/\xef\xbf\xbd\""));
    watch_feed_clear(&f);
    buf_done(&out);
}

TEST(feed_is_bounded_and_counts_the_rest)
{
    struct watch_feed f = {0};
    struct buf out = BUF_INIT(1 << 16);
    char path[32];
    for (int i = 0; i < WATCH_FEED_EVENTS_MAX + 7; i++) {
        (void)snprintf(path, sizeof path, "/f%d", i);
        watch_feed_add(&f, WATCH_CREATE, path, false, 0);
    }
    watch_feed_add(&f, WATCH_CREATE, "/f3", false, 0); /* known: nothing is lost */
    CHECK_INT(f.count, WATCH_FEED_EVENTS_MAX);
    CHECK_INT(f.dropped, 7);
    CHECK(!strstr(json(&f, 0, &out), "dropped"));
    CHECK(strstr(json(&f, f.count - 1, &out), "\"dropped\":7"));
    watch_feed_clear(&f);

    static char large[4000];
    memset(large, 'x', sizeof large - 1);
    for (int i = 0; i < 500; i++) {
        large[0] = '/';
        large[1] = (char)('0' + i / 100);
        large[2] = (char)('0' + i / 10 % 10);
        large[3] = (char)('0' + i % 10);
        watch_feed_add(&f, WATCH_CREATE, large, false, 0);
    }
    CHECK(f.bytes <= WATCH_FEED_BYTES_MAX);
    CHECK_INT(f.count + f.dropped, 500);
    watch_feed_clear(&f);
    buf_done(&out);
}
