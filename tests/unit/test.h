/* SPDX-License-Identifier: Apache-2.0 */
/* test.h: tests register themselves; test_main.c runs them and prints the count. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct test {
    const char *name;
    void (*run)(void);
    struct test *next;
};

void test_register(struct test *t);
void test_fail(const char *file, int line, const char *what);
void test_skip(const char *reason); /* the running test does not count; return after calling it */
extern bool test_failed;

#define TEST(name)                                                     \
    static void test_##name(void);                                     \
    static struct test test_entry_##name = {#name, test_##name, NULL}; \
    __attribute__((constructor)) static void test_ctor_##name(void)    \
    {                                                                  \
        test_register(&test_entry_##name);                             \
    }                                                                  \
    static void test_##name(void)

#define CHECK(cond)                               \
    do {                                          \
        if (!(cond))                              \
            test_fail(__FILE__, __LINE__, #cond); \
    } while (0)

#define CHECK_INT(actual, expected)                                                      \
    do {                                                                                 \
        long long a_ = (long long)(actual), e_ = (long long)(expected);                  \
        if (a_ != e_) {                                                                  \
            char m_[200];                                                                \
            (void)snprintf(m_, sizeof m_, "%s is %lld, expected %lld", #actual, a_, e_); \
            test_fail(__FILE__, __LINE__, m_);                                           \
        }                                                                                \
    } while (0)

#define CHECK_STREQ(actual, expected)                                                       \
    do {                                                                                    \
        const char *a_ = (actual), *e_ = (expected);                                        \
        if (!a_ || strcmp(a_, e_) != 0) {                                                   \
            char m_[600];                                                                   \
            (void)snprintf(m_, sizeof m_, "%s is \"%.200s\", expected \"%.200s\"", #actual, \
                           a_ ? a_ : "(null)", e_);                                         \
            test_fail(__FILE__, __LINE__, m_);                                              \
        }                                                                                   \
    } while (0)

/* For failures after which the test cannot go on. */
#define REQUIRE(cond)                             \
    do {                                          \
        if (!(cond)) {                            \
            test_fail(__FILE__, __LINE__, #cond); \
            return;                               \
        }                                         \
    } while (0)
