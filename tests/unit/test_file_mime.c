/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/file_mime.h"
#include "base/util.h"
#include "test.h"

static void check_name(const char *path, const char *expected)
{
    const char *mime = file_mime_by_name(path);
    if (!expected && mime)
        test_fail(__FILE__, __LINE__, path);
    if (expected)
        CHECK_STREQ(mime, expected);
}

TEST(mime_by_name)
{
    check_name("a.txt", "text/plain");
    check_name("/x.d/a.b.tsx", "text/javascript");
    check_name("a.svg", "image/svg+xml");
    check_name("a.json5", "application/json5");
    check_name("a.webmanifest", "application/manifest+json");
    check_name("a.pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation");
    check_name("a.TXT", NULL);
    check_name("a", NULL);
    check_name("a.", NULL);
    check_name(".txt", NULL);
    check_name("/dir.txt/a", NULL);
    check_name("dir/.txt", NULL);
    check_name("a.tx", NULL);
    check_name("a.txt ", NULL);
    check_name("a.c h", NULL); /* no two words of the table */
    check_name("a.averyveryverylongextension", NULL);
    check_name("", NULL);
}

#define CONTENT(text, expected) CHECK_STREQ(file_mime_by_content((text), sizeof(text) - 1, true), (expected))

TEST(mime_by_signature)
{
    CONTENT("", "inode/x-empty");
    CONTENT("\x89PNG\r\n\x1a\n", "image/png");
    CONTENT("\xff\xd8\xff\xe0", "image/jpeg");
    CONTENT("GIF89a\1\0\1\0", "image/gif");
    CONTENT("RIFF\x24\0\0\0WEBPVP8 ", "image/webp");
    CONTENT("RIFF\x24\0\0\0WAVEfmt ", "audio/x-wav");
    CONTENT("%PDF-1.7\n", "application/pdf");
    CONTENT("PK\3\4....", "application/zip");
    CONTENT("\x1f\x8b\x08", "application/gzip");
    CONTENT("BZh91AY&SY", "application/x-bzip2");
    CONTENT("\xfd"
            "7zXZ\0",
            "application/x-xz");
    CONTENT("\x28\xb5\x2f\xfd\0", "application/zstd");
    CONTENT("SQLite format 3\0", "application/vnd.sqlite3");
    CONTENT("!<arch>\ndebian-binary", "application/vnd.debian.binary-package");
    CONTENT("!<arch>\nfoo.o/", "application/x-archive");
    CONTENT("\0asm\1\0\0\0", "application/wasm");
    CONTENT("\0\0\0\x18"
            "ftypisom",
            "video/mp4");
    CONTENT("\x1a\x45\xdf\xa3...B\x82\x84webm", "video/webm");
    CONTENT("\x1a\x45\xdf\xa3...matroska", "video/x-matroska");
    CONTENT("BM\x3a\0\0\0\0\0\0\0\x36", "image/bmp");
}

TEST(mime_words_that_look_like_signatures_are_text)
{
    CONTENT("BM is a river", "text/plain");
    CONTENT("GIF89 is a format\n", "text/plain");
    CONTENT("ID3 tags\n", "text/plain");
    CONTENT("OTTO and ANNA\n", "text/plain");
    CONTENT("MZ\n", "text/plain");
}

static void check_elf(unsigned char type, const char *expected)
{
    char head[64] = "\x7f"
                    "ELF\2\1\1";
    head[16] = (char)type;
    CHECK_STREQ(file_mime_by_content(head, sizeof head, true), expected);
}

TEST(mime_elf)
{
    check_elf(1, "application/x-object");
    check_elf(2, "application/x-executable");
    check_elf(3, "application/x-sharedlib");
    check_elf(4, "application/x-coredump");
    check_elf(9, "application/octet-stream");
    CONTENT("\x7f"
            "ELF",
            "application/octet-stream");
    char program[64 + 56] = "\x7f"
                            "ELF\2\1\1";
    program[16] = 3;                   /* shared object */
    program[32] = 64;                  /* program headers */
    program[54] = 56, program[56] = 1; /* their size and number */
    program[64] = 3;                   /* an interpreter */
    CHECK_STREQ(file_mime_by_content(program, sizeof program, true), "application/x-pie-executable");
    program[39] = 0x7f; /* headers far outside of the file */
    CHECK_STREQ(file_mime_by_content(program, sizeof program, true), "application/x-sharedlib");
}

TEST(mime_scripts)
{
    CONTENT("#!/usr/bin/python3.11\n", "text/x-script.python");
    CONTENT("#! /usr/bin/env -S FOO=1 python3 -u\n", "text/x-script.python");
    CONTENT("#!/usr/bin/env node\n", "application/javascript");
    CONTENT("#!/bin/bash -e\r\n", "text/x-shellscript");
    CONTENT("#!/usr/bin/perl", "text/x-perl");
    CONTENT("#!/opt/own\n", "text/plain");
    CONTENT("#!", "text/plain");
}

TEST(mime_texts)
{
    CONTENT("hello\n", "text/plain");
    CONTENT("\xef\xbb\xbfhello", "text/plain");
    CONTENT("\t\x1b[1mbold\x1b[0m\b\a\f", "text/plain");
    CONTENT("{\"a\":1}\n", "application/json");
    CONTENT("[1,", "text/plain");
    CONTENT("  <!DOCTYPE HTML><html>", "text/html");
    CONTENT("<?xml version='1.0'?><a/>", "text/xml");
    CONTENT("<?xml version='1.0'?><svg/>", "image/svg+xml");
    CONTENT("<?php echo 1;", "text/x-php");
    CONTENT("diff --git a/x b/x\n", "text/x-diff");
    CONTENT("--- a/x\n+++ b/x\n", "text/x-diff");
    CONTENT("--- \n", "text/plain");
    CONTENT(" \n", "text/plain");
}

TEST(mime_not_text)
{
    CONTENT("a\0b", "application/octet-stream");
    CONTENT("a\1b", "application/octet-stream");
    CONTENT("a\x7f", "application/octet-stream");
    CONTENT("caf\xe9", "application/octet-stream");
    CONTENT("\xff\xfeh\0i\0", "application/octet-stream");
    CONTENT("\xe2\x82", "application/octet-stream");
}

TEST(mime_sample_may_end_inside_a_character)
{
    CHECK_STREQ(file_mime_by_content("abc\xe2\x82", 5, false), "text/plain");
    CHECK_STREQ(file_mime_by_content("abc\xf0\x9f\x98", 6, false), "text/plain");
    CHECK_STREQ(file_mime_by_content("abc\xe2\x82\xac", 6, false), "text/plain");
    CHECK_STREQ(file_mime_by_content("ab\xff"
                                     "c",
                                     4, false),
                "application/octet-stream");
    CHECK_STREQ(file_mime_by_content("{\"a\":1}", 7, false), "text/plain"); /* who knows how it goes on */
}

TEST(mime_text_types)
{
    static const char *const text[] = {"text/plain",          "text/x-c",
                                       "image/svg+xml",       "application/geo+json",
                                       "application/json",    "application/toml",
                                       "application/x-empty", "inode/x-empty",
                                       "application/x-sh",    "application/xml-external-parsed-entity"};
    static const char *const binary[] = {"application/octet-stream", "application/json5", "application/x-sql",
                                         "application/x-perl",       "image/png",         "inode/directory",
                                         "application/xmlx",         "font/ttf",          "application/"};
    for (size_t i = 0; i < ARRAY_SIZE(text); i++)
        if (!file_mime_is_text(text[i]))
            test_fail(__FILE__, __LINE__, text[i]);
    for (size_t i = 0; i < ARRAY_SIZE(binary); i++)
        if (file_mime_is_text(binary[i]))
            test_fail(__FILE__, __LINE__, binary[i]);
}
