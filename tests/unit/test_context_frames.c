/* SPDX-License-Identifier: Apache-2.0 */
/* test_context_frames.c: finding an interpreter's messages among other bytes. */
#include "agent/context_frames.h"
#include "test.h"

#include <stdlib.h>

#define NONCE "0123456789abcdef0123456789abcdef"
#define OTHER "0123456789abcdef0123456789abcdee"

static struct frame_parser parser;
static char seen[1024]; /* "r7{...};" of every message */

static void begin(void)
{
    frame_parser_init(&parser, NONCE);
    seen[0] = '\0';
}

static void feed(const char *data, size_t n)
{
    for (size_t used = 0; used < n;) {
        struct frame f;
        bool complete;
        size_t step = frame_parse(&parser, data + used, n - used, &f, &complete);
        CHECK(step > 0 && step <= n - used);
        used += step;
        if (complete) {
            size_t len = strlen(seen);
            (void)snprintf(seen + len, sizeof seen - len, "%c%llu%.40s;", f.kind, (unsigned long long)f.run,
                           f.json);
            CHECK_INT(strlen(f.json), f.len);
        }
    }
}

static void feed_text(const char *text)
{
    feed(text, strlen(text));
}

static void end(const char *expected)
{
    CHECK_STREQ(seen, expected);
    frame_parser_done(&parser);
}

TEST(one_message)
{
    begin();
    feed_text("\n" NONCE "=r7 {\"text\":\"2\"}\n");
    end("r7{\"text\":\"2\"};");
}

TEST(several_messages_in_one_piece_of_input)
{
    begin();
    feed_text("\n" NONCE "=b1 {}\n\n" NONCE "=r1 {}\n\n" NONCE "=d1 {}\n");
    end("b1{};r1{};d1{};");
}

TEST(a_message_in_several_pieces)
{
    begin();
    feed_text("\n" NONCE "<r12 {\"a\"\n\n" NONCE "+:[1,\n\n" NONCE ">2]}\n");
    end("r12{\"a\":[1,2]};");
}

TEST(byte_by_byte)
{
    static const char text[] = "\n" NONCE "<r1 {\n\n" NONCE ">}\n\n" NONCE "=d1 {}\n";
    begin();
    for (size_t i = 0; i < sizeof text - 1; i++)
        feed(text + i, 1);
    end("r1{};d1{};");
}

TEST(garbage_is_skipped)
{
    begin();
    feed_text("noise\n\n" NONCE "=b1 {}\nmore noise without an end");
    feed_text("\n" NONCE "=r1 {}\n" OTHER "=r1 {\"forged\":1}\n" NONCE "?r1 {}\n");
    feed_text("\n" NONCE "=d1 {}\n");
    end("b1{};r1{};d1{};");
}

TEST(garbage_between_the_pieces)
{
    begin();
    feed_text("\n" NONCE "<r1 {\"a\"\n");
    feed_text("\ngarbage\n" OTHER "=d1 {}\n");
    feed_text("\n" NONCE ">:1}\n");
    end("r1{\"a\":1};");
}

TEST(a_message_that_is_begun_anew_forgets_the_old_beginning)
{
    begin();
    feed_text("\n" NONCE "<r1 {\"old\"\n\n" NONCE "=r1 {}\n\n" NONCE ">x\n\n" NONCE "<r1 {\n\n" NONCE
              "<d1 {\n\n" NONCE ">}\n");
    end("r1{};d1{};");
}

TEST(an_end_without_a_beginning)
{
    begin();
    feed_text("\n" NONCE ">d1 {}\n\n" NONCE "+d1 {}\n");
    end("");
}

TEST(messages_without_sense)
{
    begin();
    feed_text("\n" NONCE "=\n\n" NONCE "=r\n\n" NONCE "=r1\n\n" NONCE "=R1 {}\n\n" NONCE "=r {}\n\n" NONCE
              "=r-1 {}\n");
    feed_text("\n" NONCE "=r99999999999999999 {}\n\n" NONCE "=1 {}\n" NONCE "\n");
    end("");
}

TEST(a_line_that_is_too_long)
{
    size_t n = FRAME_LINE_MAX * 3;
    char *text = malloc(n);
    begin();
    if (!text)
        return;
    memset(text, 'x', n);
    memcpy(text, NONCE "=r1 ", FRAME_NONCE + 4);
    feed(text, n);
    feed_text("\n" NONCE "=d1 {}\n");
    free(text);
    end("d1{};");
}

TEST(a_message_that_is_too_long)
{
    enum { PIECE = 32 * 1024 };
    static char piece[PIECE + FRAME_NONCE + 3];
    begin();
    memset(piece, 'x', sizeof piece);
    memcpy(piece, "\n" NONCE "<r1 ", FRAME_NONCE + 5);
    piece[sizeof piece - 1] = '\n';
    for (size_t i = 0; i < FRAME_MESSAGE_MAX / PIECE + 2; i++) {
        feed(piece, sizeof piece);
        piece[FRAME_NONCE + 1] = '+';
    }
    CHECK(buf_len(&parser.message) <= FRAME_MESSAGE_MAX);
    feed_text("\n" NONCE ">}\n\n" NONCE "=d1 {}\n");
    end("d1{};");
}

TEST(bytes_of_any_kind)
{
    static const char text[] = "\0\xff\xfe\n" NONCE "=r1 {\0}\n\n" NONCE "=d1 {}\n";
    begin();
    struct frame f;
    bool complete;
    size_t used = frame_parse(&parser, text, sizeof text - 1, &f, &complete);
    CHECK(complete && f.kind == 'r');
    CHECK_INT(f.len, 3); /* whether that is JSON is for others to say */
    feed(text + used, sizeof text - 1 - used);
    end("d1{};");
}
