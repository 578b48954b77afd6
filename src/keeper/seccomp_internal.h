/* SPDX-License-Identifier: Apache-2.0 */
/* seccomp_internal.h: the shape of a policy, shared by its tables, its compiler and its test. */
#pragma once

#include "keeper/seccomp.h"

#include <linux/audit.h>
#include <linux/seccomp.h>

#if defined(__x86_64__)
#define SECCOMP_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define SECCOMP_ARCH AUDIT_ARCH_AARCH64
#else
#error "the system call tables are for x86_64 and aarch64"
#endif

/* One above the newest call the tables were checked against (file_setattr, Linux 6.17). */
#define SECCOMP_NR_END 470u
/* Numbers from here on carry the x32 bit: another ABI behind the same architecture value. */
#define SECCOMP_NR_X32 0x40000000u

/* All answers are SECCOMP_RET_* values with their data. */
#define SECCOMP_FAIL(errnum) (SECCOMP_RET_ERRNO | (errnum))

struct seccomp_call {
    const char *name;
    uint16_t nr;
};

/* Holds when (low 32 bits of the argument & mask) == value, or differs from value. Only the low half: every
 * argument tested here is an int or a 32-bit flag word in the kernel, and a filter that also looked at the
 * half the kernel drops could be passed by setting a bit there (CVE-2019-10063). A mask of 0 marks an unused
 * test. */
struct seccomp_test {
    uint8_t arg;
    bool differs;
    uint32_t mask;
    uint32_t value;
};

#define SECCOMP_RULE_TESTS 2

/* The first rule of a list whose tests all hold decides; the last rule of a list has none. */
struct seccomp_rule {
    struct seccomp_test tests[SECCOMP_RULE_TESTS];
    uint32_t action;
};

struct seccomp_condition {
    const char *name;
    uint16_t nr;
    const struct seccomp_rule *rules;
};

/* Calls of the same fate, and those whose arguments decide. */
struct seccomp_group {
    const struct seccomp_call *calls;
    size_t n;
    uint32_t action;
};

struct seccomp_policy {
    struct seccomp_group groups[4];
    const struct seccomp_condition *conditions;
    size_t condition_count;
    uint32_t otherwise;  /* a number below SECCOMP_NR_END which no table names */
    uint32_t newer;      /* a number from SECCOMP_NR_END on */
    uint32_t wrong_arch; /* a call of another architecture, or of x32 */
};

struct seccomp_decision {
    const struct seccomp_rule *rules; /* NULL: action decides */
    uint32_t action;
};

const struct seccomp_policy *seccomp_policy_get(enum seccomp_profile profile);

/* The decision for a number of the native architecture. */
struct seccomp_decision seccomp_policy_decide(const struct seccomp_policy *p, uint32_t nr);
