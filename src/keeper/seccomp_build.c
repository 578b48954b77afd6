/* SPDX-License-Identifier: Apache-2.0 */
/* seccomp_build.c: from the tables to a BPF program, and the program into the kernel.
 *
 * The program is
 *
 *     wrong architecture?           answer
 *     a binary tree over numbers    neighbours of the same fate are one leaf: an answer, or a jump to a rule
 * list the rule lists                each rule loads an argument, compares, answers
 *
 * so that a call costs about a dozen instructions. The tree is made here and not with libseccomp because that
 * makes a leaf for every number (three times the size, which every start of a sandbox pays again), cannot
 * combine several "not equal" tests of one argument, and compares all 64 bits of arguments of which the
 * kernel uses 32. */
#include "keeper/seccomp_internal.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "an argument's low half comes first");

#define SPANS_MAX 256
#define RULES_MAX 16 /* rules in one list, and rule lists in one policy */

/* Numbers from first up to the next span's first. */
struct span {
    uint32_t first;
    struct seccomp_decision decision;
};

/* A jump in the tree which waits for its rule list. */
struct pending {
    const struct seccomp_rule *rules;
    size_t at;
};

struct assembler {
    struct sock_filter code[BPF_MAXINSNS];
    size_t len;
    struct span spans[SPANS_MAX];
    size_t span_count;
    struct pending pending[RULES_MAX];
    size_t pending_count;
    bool too_big; /* set once, looked at once at the end */
};

static size_t emit(struct assembler *a, uint16_t code, uint32_t k)
{
    if (a->len == ARRAY_SIZE(a->code)) {
        a->too_big = true;
        return 0;
    }
    a->code[a->len] = (struct sock_filter){.code = code, .k = k};
    return a->len++;
}

/* Conditional jumps reach 255 instructions; the tables are far from that, and the test would see it. */
static void set_jump(struct assembler *a, size_t at, size_t if_true, size_t if_false)
{
    size_t t = if_true - at - 1, f = if_false - at - 1;
    if (t > UINT8_MAX || f > UINT8_MAX) {
        a->too_big = true;
        return;
    }
    a->code[at].jt = (uint8_t)t;
    a->code[at].jf = (uint8_t)f;
}

static void add_span(struct assembler *a, uint32_t first, struct seccomp_decision d)
{
    if (a->span_count > 0) {
        const struct seccomp_decision *last = &a->spans[a->span_count - 1].decision;
        if (last->rules == d.rules && last->action == d.action)
            return;
    }
    if (a->span_count == SPANS_MAX) {
        a->too_big = true;
        return;
    }
    a->spans[a->span_count++] = (struct span){first, d};
}

static void emit_leaf(struct assembler *a, struct seccomp_decision d)
{
    if (!d.rules) {
        emit(a, BPF_RET | BPF_K, d.action);
        return;
    }
    if (a->pending_count == RULES_MAX) {
        a->too_big = true;
        return;
    }
    size_t at = emit(a, BPF_JMP | BPF_JA, 0);
    a->pending[a->pending_count++] = (struct pending){d.rules, at};
}

/* Recursion as deep as the logarithm of the number of spans. */
static void emit_tree(struct assembler *a, size_t begin, size_t end)
{
    if (end - begin == 1) {
        emit_leaf(a, a->spans[begin].decision);
        return;
    }
    size_t middle = begin + (end - begin) / 2;
    size_t at = emit(a, BPF_JMP | BPF_JGE | BPF_K, a->spans[middle].first);
    emit_tree(a, begin, middle);
    set_jump(a, at, a->len, at + 1);
    emit_tree(a, middle, end);
}

static void emit_rule(struct assembler *a, const struct seccomp_rule *rule)
{
    size_t jumps[SECCOMP_RULE_TESTS];
    size_t n = 0;

    while (n < SECCOMP_RULE_TESTS && rule->tests[n].mask != 0) {
        const struct seccomp_test *t = &rule->tests[n];
        emit(a, BPF_LD | BPF_W | BPF_ABS,
             (uint32_t)(offsetof(struct seccomp_data, args) + t->arg * sizeof(uint64_t)));
        if (t->mask != UINT32_MAX)
            emit(a, BPF_ALU | BPF_AND | BPF_K, t->mask);
        jumps[n++] = emit(a, BPF_JMP | BPF_JEQ | BPF_K, t->value);
    }
    emit(a, BPF_RET | BPF_K, rule->action);

    for (size_t i = 0; i < n; i++) {
        size_t holds = jumps[i] + 1, fails = a->len;
        if (rule->tests[i].differs)
            set_jump(a, jumps[i], fails, holds);
        else
            set_jump(a, jumps[i], holds, fails);
    }
}

/* Every rule list once, however many calls share it. */
static void emit_rule_lists(struct assembler *a)
{
    for (size_t i = 0; i < a->pending_count; i++) {
        const struct seccomp_rule *rules = a->pending[i].rules;
        if (!rules)
            continue;

        for (size_t j = i; j < a->pending_count; j++) {
            if (a->pending[j].rules != rules)
                continue;
            size_t at = a->pending[j].at;
            a->code[at].k = (uint32_t)(a->len - at - 1);
            a->pending[j].rules = NULL;
        }
        for (size_t r = 0; r < RULES_MAX; r++) {
            emit_rule(a, &rules[r]);
            if (rules[r].tests[0].mask == 0)
                break;
        }
    }
}

int seccomp_build(enum seccomp_profile profile, struct seccomp_program *ret, struct error *reterr)
{
    const struct seccomp_policy *p = seccomp_policy_get(profile);
    auto_free struct assembler *a = calloc(1, sizeof *a);
    if (!a)
        return error_set(reterr, ENOMEM, "no memory for a system call filter");

    for (uint32_t nr = 0; nr <= SECCOMP_NR_END; nr++)
        add_span(a, nr, seccomp_policy_decide(p, nr));
    add_span(a, SECCOMP_NR_X32, seccomp_policy_decide(p, SECCOMP_NR_X32));

    emit(a, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    size_t at = emit(a, BPF_JMP | BPF_JEQ | BPF_K, SECCOMP_ARCH);
    emit(a, BPF_RET | BPF_K, p->wrong_arch);
    set_jump(a, at, a->len, at + 1);
    emit(a, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    emit_tree(a, 0, a->span_count);
    emit_rule_lists(a);
    if (a->too_big)
        return error_set(reterr, E2BIG, "the system call filter %d is too large", (int)profile);

    struct sock_filter *filter = calloc(a->len, sizeof *filter);
    if (!filter)
        return error_set(reterr, ENOMEM, "no memory for a system call filter");
    memcpy(filter, a->code, a->len * sizeof *filter);
    *ret = (struct seccomp_program){filter, (unsigned short)a->len};
    return 0;
}

void seccomp_program_done(struct seccomp_program *p)
{
    free(p->filter);
    *p = (struct seccomp_program){0};
}

int seccomp_load(const struct seccomp_program *p)
{
    struct sock_fprog prog = {.len = p->len, .filter = p->filter};
    long r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog);

    /* A positive answer names a thread which runs under another filter and could not be brought under this
     * one. */
    return r == 0 ? 0 : r > 0 ? -EBUSY : -errno;
}
