/* SPDX-License-Identifier: Apache-2.0 */
/* file_mime.c: see file_mime.h. Tables, and the few formats whose name needs a look inside. */
#include "agent/file_mime.h"
#include "base/json.h"
#include "base/utf8.h"

#include <elf.h>
#include <endian.h>
#include <string.h>
#include <strings.h>

#define OCTETS "application/octet-stream"

/* ------------------------------------------------------------------ names */

/* One row per type, its extensions separated and enclosed by spaces. */
static const struct {
    const char *mime;
    const char *extensions;
} by_extension[] = {
    {"text/plain", " txt text ini conf log "},
    {"text/markdown", " md markdown "},
    {"text/html", " html htm "},
    {"text/css", " css "},
    {"text/javascript", " js mjs cjs jsx ts mts cts tsx "},
    {"application/json", " json map "},
    {"application/json5", " json5 "},
    {"text/yaml", " yaml yml "},
    {"application/toml", " toml "},
    {"application/xml", " xml "},
    {"text/csv", " csv "},
    {"text/tab-separated-values", " tsv "},
    {"application/x-sh", " sh "},
    {"application/x-httpd-php", " php "},
    {"text/x-c", " c h cc cpp "},
    {"text/x-java-source", " java "},
    {"text/x-lua", " lua "},
    {"application/rls-services+xml", " rs "},
    {"application/x-perl", " pl "},
    {"application/x-sql", " sql "},
    {"application/x-tex", " tex "},
    {"application/x-msdownload", " bat exe dll "},
    {"text/rtf", " rtf "},
    {"text/calendar", " ics "},
    {"text/x-vcard", " vcf "},
    {"text/vtt", " vtt "},
    {"text/mdx", " mdx "},
    {"text/less", " less "},
    {"text/stylus", " styl "},
    {"text/x-scss", " scss "},
    {"text/x-sass", " sass "},
    {"text/coffeescript", " coffee "},
    {"image/svg+xml", " svg "},
    {"image/png", " png "},
    {"image/jpeg", " jpg jpeg "},
    {"image/gif", " gif "},
    {"image/webp", " webp "},
    {"image/avif", " avif "},
    {"image/tiff", " tif tiff "},
    {"image/x-icon", " ico "},
    {"image/x-ms-bmp", " bmp "},
    {"audio/mpeg", " mp3 "},
    {"audio/x-wav", " wav "},
    {"audio/ogg", " ogg "},
    {"audio/x-flac", " flac "},
    {"audio/x-m4a", " m4a "},
    {"video/mp4", " mp4 "},
    {"video/webm", " webm "},
    {"video/quicktime", " mov "},
    {"video/x-msvideo", " avi "},
    {"video/x-matroska", " mkv "},
    {"font/ttf", " ttf "},
    {"font/otf", " otf "},
    {"font/woff", " woff "},
    {"font/woff2", " woff2 "},
    {"application/pdf", " pdf "},
    {"application/zip", " zip "},
    {"application/gzip", " gz "},
    {"application/x-tar", " tar "},
    {"application/x-bzip2", " bz2 "},
    {"application/x-xz", " xz "},
    {"application/x-7z-compressed", " 7z "},
    {"application/x-rar-compressed", " rar "},
    {"application/wasm", " wasm "},
    {"application/java-archive", " jar "},
    {"application/msword", " doc "},
    {"application/vnd.ms-excel", " xls "},
    {"application/vnd.ms-powerpoint", " ppt "},
    {"application/vnd.openxmlformats-officedocument.wordprocessingml.document", " docx "},
    {"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", " xlsx "},
    {"application/vnd.openxmlformats-officedocument.presentationml.presentation", " pptx "},
    {"application/x-x509-ca-cert", " pem crt "},
    {"application/manifest+json", " webmanifest "},
    {"application/atom+xml", " atom "},
    {"application/rss+xml", " rss "},
    {"application/geo+json", " geojson "},
    {"application/xhtml+xml", " xhtml "},
};

const char *file_mime_by_name(const char *path)
{
    char word[16]; /* " extension " */
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    if (!dot || dot == name)
        return NULL;
    size_t n = strlen(dot + 1);
    if (n == 0 || n > sizeof word - 3 || strchr(dot, ' '))
        return NULL;
    word[0] = ' ';
    memcpy(word + 1, dot + 1, n);
    memcpy(word + 1 + n, " ", 2);
    for (size_t i = 0; i < ARRAY_SIZE(by_extension); i++)
        if (strstr(by_extension[i].extensions, word))
            return by_extension[i].mime;
    return NULL;
}

/* ------------------------------------------------------------------ binary content */

struct sample {
    const unsigned char *data;
    size_t n;
    bool whole;
};

static bool has_at(const struct sample *s, size_t at, const void *bytes, size_t n)
{
    return s->n >= at && s->n - at >= n && memcmp(s->data + at, bytes, n) == 0;
}

/* The first row that fits wins. */
static const struct {
    const char *mime;
    unsigned short at;
    unsigned char n;
    char bytes[16];
} by_magic[] = {
    {"image/png", 0, 8, "\x89PNG\r\n\x1a\n"},
    {"image/jpeg", 0, 3, "\xff\xd8\xff"},
    {"image/gif", 0, 6, "GIF87a"},
    {"image/gif", 0, 6, "GIF89a"},
    {"image/tiff", 0, 4, "II*\0"},
    {"image/tiff", 0, 4, "MM\0*"},
    {"image/vnd.microsoft.icon", 0, 4, "\0\0\1\0"},
    {"application/pdf", 0, 5, "%PDF-"},
    {"application/zip", 0, 4, "PK\3\4"},
    {"application/zip", 0, 4, "PK\5\6"},
    {"application/gzip", 0, 2, "\x1f\x8b"},
    {"application/x-bzip2", 4, 6, "1AY&SY"},
    {"application/x-xz", 0, 6,
     "\xfd"
     "7zXZ\0"},
    {"application/zstd", 0, 4, "\x28\xb5\x2f\xfd"},
    {"application/x-lz4", 0, 4, "\4\"M\x18"},
    {"application/x-7z-compressed", 0, 6, "7z\xbc\xaf\x27\x1c"},
    {"application/x-rar", 0, 6, "Rar!\x1a\7"},
    {"application/x-tar", 257, 5, "ustar"},
    {"application/vnd.sqlite3", 0, 16, "SQLite format 3"},
    {"application/vnd.debian.binary-package", 0, 14, "!<arch>\ndebian"},
    {"application/x-archive", 0, 8, "!<arch>\n"},
    {"application/wasm", 0, 4, "\0asm"},
    {"application/x-java-applet", 0, 4, "\xca\xfe\xba\xbe"},
    {"application/x-mach-binary", 0, 4, "\xcf\xfa\xed\xfe"},
    {"application/x-mach-binary", 0, 4, "\xce\xfa\xed\xfe"},
    {"application/x-git", 0, 5, "PACK\0"},
    {"application/x-hdf5", 0, 8, "\x89HDF\r\n\x1a\n"},
    {"audio/ogg", 0, 5, "OggS\0"},
    {"audio/flac", 0, 4, "fLaC"},
    {"audio/mpeg", 0, 3, "ID3"},
    {"image/avif", 4, 8, "ftypavif"},
    {"video/quicktime", 4, 8, "ftypqt  "},
    {"audio/x-m4a", 4, 7, "ftypM4A"},
    {"video/mp4", 4, 4, "ftyp"},
    {"font/woff2", 0, 4, "wOF2"},
    {"font/woff", 0, 4, "wOFF"},
    {"application/vnd.ms-opentype", 0, 4, "OTTO"},
    {"text/rtf", 0, 6, "{\\rtf1"},
};

static const char *riff_mime(const struct sample *s)
{
    if (!has_at(s, 0, "RIFF", 4))
        return NULL;
    if (has_at(s, 8, "WEBP", 4))
        return "image/webp";
    if (has_at(s, 8, "WAVE", 4))
        return "audio/x-wav";
    return has_at(s, 8, "AVI ", 4) ? "video/x-msvideo" : NULL;
}

static const char *matroska_mime(const struct sample *s)
{
    if (!has_at(s, 0, "\x1a\x45\xdf\xa3", 4))
        return NULL;
    return memmem(s->data, MIN(s->n, (size_t)64), "webm", 4) ? "video/webm" : "video/x-matroska";
}

static const char *windows_mime(const struct sample *s)
{
    uint32_t at;
    if (!has_at(s, 0, "MZ", 2) || s->n < 64)
        return NULL;
    memcpy(&at, s->data + 60, sizeof at);
    return has_at(s, le32toh(at), "PE\0\0", 4) ? "application/vnd.microsoft.portable-executable" : NULL;
}

static const char *bitmap_mime(const struct sample *s)
{
    /* two letters are not enough of a sign: the reserved fields are zero, too */
    return has_at(s, 0, "BM", 2) && has_at(s, 6, "\0\0\0\0", 4) ? "image/bmp" : NULL;
}

/* A shared object that names an interpreter is a program. (The C library does, too; no other library.) */
static bool elf_is_program(const struct sample *s)
{
    Elf64_Ehdr h;
    if (s->n < sizeof h || s->data[EI_CLASS] != ELFCLASS64 || s->data[EI_DATA] != ELFDATA2LSB)
        return false;
    memcpy(&h, s->data, sizeof h);
    for (unsigned i = 0; i < h.e_phnum && i < 64; i++) {
        Elf64_Phdr p;
        size_t at = (size_t)h.e_phoff + i * sizeof p;
        if (h.e_phentsize != sizeof p || h.e_phoff > s->n || at > s->n || s->n - at < sizeof p)
            return false;
        memcpy(&p, s->data + at, sizeof p);
        if (p.p_type == PT_INTERP)
            return true;
    }
    return false;
}

static const char *elf_mime(const struct sample *s)
{
    if (!has_at(s, 0, ELFMAG, SELFMAG))
        return NULL;
    if (s->n < 18)
        return OCTETS;
    bool big = s->data[EI_DATA] == ELFDATA2MSB;
    switch (s->data[big ? 16 : 17] ? 0 : s->data[big ? 17 : 16]) {
    case ET_REL:
        return "application/x-object";
    case ET_EXEC:
        return "application/x-executable";
    case ET_DYN:
        return elf_is_program(s) ? "application/x-pie-executable" : "application/x-sharedlib";
    case ET_CORE:
        return "application/x-coredump";
    default:
        return OCTETS;
    }
}

/* A few letters are no proof when the rest is a text, too. */
static bool magic_counts(size_t row, bool text)
{
    return !text || by_magic[row].n >= 5;
}

static const char *binary_mime(const struct sample *s, bool text)
{
    static const char *(*const looks[])(const struct sample *s) = {elf_mime, riff_mime, matroska_mime,
                                                                   windows_mime, bitmap_mime};
    for (size_t i = 0; i < ARRAY_SIZE(looks); i++) {
        const char *mime = looks[i](s);
        if (mime)
            return mime;
    }
    for (size_t i = 0; i < ARRAY_SIZE(by_magic); i++)
        if (has_at(s, by_magic[i].at, by_magic[i].bytes, by_magic[i].n) && magic_counts(i, text))
            return by_magic[i].mime;
    return NULL;
}

/* ------------------------------------------------------------------ text */

static bool is_text(const struct sample *s)
{
    for (size_t i = 0; i < s->n; i++) {
        unsigned char c = s->data[i];
        /* BEL to CR and ESC are met in texts and logs, the rest of the control characters is not */
        if ((c < 0x20 && !(c >= '\a' && c <= '\r') && c != 0x1b) || c == 0x7f)
            return false;
    }
    size_t n = s->n;
    if (!s->whole) /* the sample may end inside a character */
        for (int back = 0; back < 3 && n && s->data[n - 1] >= 0x80; back++) {
            n--;
            if (s->data[n] >= 0xc0)
                break;
        }
    return utf8_valid(s->data, n);
}

/* The program of a "#!" line: the last part of its path, or what env starts. */
static const char *script_mime(const struct sample *s)
{
    static const struct {
        const char *program, *mime;
    } programs[] = {
        {"python", "text/x-script.python"},
        {"node", "application/javascript"},
        {"perl", "text/x-perl"},
        {"ruby", "text/x-ruby"},
        {"php", "text/x-php"},
        {"lua", "text/x-lua"},
        {"awk", "text/x-awk"},
        {"gawk", "text/x-gawk"},
        {"tclsh", "text/x-tcl"},
        {"sh", "text/x-shellscript"},
        {"bash", "text/x-shellscript"},
        {"dash", "text/x-shellscript"},
        {"ash", "text/x-shellscript"},
        {"zsh", "text/x-shellscript"},
        {"ksh", "text/x-shellscript"},
        {"fish", "text/x-shellscript"},
        {"csh", "text/x-shellscript"},
        {"tcsh", "text/x-shellscript"},
    };
    char line[128];
    if (!has_at(s, 0, "#!", 2))
        return NULL;
    size_t n = MIN(s->n - 2, sizeof line - 1);
    memcpy(line, s->data + 2, n);
    line[n] = '\0';
    line[strcspn(line, "\r\n")] = '\0';

    char *rest = line, *word;
    while ((word = strsep(&rest, " \t"))) {
        char *slash = strrchr(word, '/');
        char *name = slash ? slash + 1 : word;
        if (!*name || *word == '-' || strcmp(name, "env") == 0 || strchr(word, '='))
            continue;
        size_t len = strcspn(name, "0123456789."); /* python3.11 */
        for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
            if (strlen(programs[i].program) == len && memcmp(programs[i].program, name, len) == 0)
                return programs[i].mime;
        break;
    }
    return "text/plain";
}

static bool starts_with(const char *p, const char *end, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(end - p) >= n && strncasecmp(p, word, n) == 0;
}

static bool is_json(const struct sample *s)
{
    struct json_doc *doc = NULL;
    if (!s->whole)
        return false;
    auto_free char *copy = malloc(s->n);
    if (!copy)
        return false;
    memcpy(copy, s->data, s->n);
    bool yes = json_parse(copy, s->n, JSON_ALLOW_NUL, &doc, NULL) == 0;
    json_free(doc);
    return yes;
}

static const char *text_mime(const struct sample *s)
{
    const char *p = (const char *)s->data, *end = p + s->n;
    if (has_at(s, 0, "\xef\xbb\xbf", 3))
        p += 3;
    while (p < end && strchr(" \t\r\n", *p))
        p++;
    if (p == end)
        return "text/plain";
    if (*p == '<') {
        if (starts_with(p, end, "<?php"))
            return "text/x-php";
        if (starts_with(p, end, "<!doctype html") || starts_with(p, end, "<html") ||
            starts_with(p, end, "<head"))
            return "text/html";
        if (starts_with(p, end, "<svg"))
            return "image/svg+xml";
        if (starts_with(p, end, "<?xml"))
            return memmem(p, (size_t)MIN(end - p, (ptrdiff_t)1024), "<svg", 4) ? "image/svg+xml" : "text/xml";
    }
    if ((*p == '{' || *p == '[') && is_json(s))
        return "application/json";
    if (starts_with(p, end, "diff --git ") || starts_with(p, end, "diff -") ||
        (starts_with(p, end, "--- ") && memmem(p, (size_t)(end - p), "\n+++ ", 5)))
        return "text/x-diff";
    return "text/plain";
}

const char *file_mime_by_content(const void *data, size_t n, bool whole)
{
    struct sample s = {data, n, whole};
    if (n == 0)
        return "inode/x-empty";
    bool text = is_text(&s);
    const char *mime = binary_mime(&s, text);
    if (mime)
        return mime;
    if (!text)
        return OCTETS;
    mime = script_mime(&s);
    return mime ? mime : text_mime(&s);
}

/* ------------------------------------------------------------------ text or not */

bool file_mime_is_text(const char *mime)
{
    static const char *const subtypes[] = {
        "ecmascript",    "javascript",   "json",
        "json-seq",      "rtf",          "sql",
        "toml",          "typescript",   "x-empty",
        "x-httpd-php",   "x-javascript", "x-sh",
        "x-shellscript", "x-typescript", "x-yaml",
        "xml",           "xml-dtd",      "xml-external-parsed-entity",
        "yaml",
    };
    static const char application[] = "application/";
    size_t n = strlen(mime);
    if (strncmp(mime, "text/", 5) == 0 || strcmp(mime, "inode/x-empty") == 0)
        return true;
    if ((n > 5 && strcmp(mime + n - 5, "+json") == 0) || (n > 4 && strcmp(mime + n - 4, "+xml") == 0))
        return true;
    if (strncmp(mime, application, sizeof application - 1) != 0)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(subtypes); i++)
        if (strcmp(mime + sizeof application - 1, subtypes[i]) == 0)
            return true;
    return false;
}
