/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup_devices.c: which device nodes a sandbox may open, enforced on the group above all sandboxes.
 *
 * Sandboxes cannot make nodes and see only those we mount for them; this is the second wall. On v2 the rule
 * is a BPF program which the kernel asks at every open and mknod; on v1 it is a list in the devices
 * controller. */
#include "keeper/cgroup_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

enum { ANY = -1 };

/* Character devices, to read and write; nobody may make one. */
static const struct {
    int major, minor;
} allowed[] = {
    {1, 3},     /* null */
    {1, 5},     /* zero */
    {1, 7},     /* full */
    {1, 8},     /* random */
    {1, 9},     /* urandom */
    {5, 0},     /* tty */
    {5, 2},     /* ptmx */
    {136, ANY}, /* pts */
};

static struct bpf_insn insn(uint8_t code, uint8_t dst, uint8_t src, int16_t off, int32_t imm)
{
    return (struct bpf_insn){
        .code = code, .dst_reg = dst & 0xf, .src_reg = src & 0xf, .off = off, .imm = imm};
}

#define LOAD32(dst, src, off)    insn(BPF_LDX | BPF_MEM | BPF_W, dst, src, off, 0)
#define MOV(dst, src)            insn(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0)
#define MOV_IMM(dst, imm)        insn(BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, imm)
#define AND_IMM(dst, imm)        insn(BPF_ALU64 | BPF_AND | BPF_K, dst, 0, 0, imm)
#define RSHIFT_IMM(dst, imm)     insn(BPF_ALU64 | BPF_RSH | BPF_K, dst, 0, 0, imm)
#define SKIP_IF(op, dst, imm, n) insn(BPF_JMP | (op) | BPF_K, dst, 0, n, imm)
#define EXIT()                   insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

_Static_assert(9 + 4 * ARRAY_SIZE(allowed) + 2 <= CGROUP_DEVICES_INSNS_MAX, "the program fits");

/* The answer is r0: 1 allows, 0 refuses with EPERM. */
size_t cgroup_devices_program(struct bpf_insn out[CGROUP_DEVICES_INSNS_MAX])
{
    enum {
        RESULT = BPF_REG_0,
        CTX = BPF_REG_1,
        TYPE = BPF_REG_2,
        ACCESS = BPF_REG_3,
        MAJOR = BPF_REG_4,
        MINOR = BPF_REG_5
    };
    size_t n = 0;

    out[n++] = LOAD32(TYPE, CTX, offsetof(struct bpf_cgroup_dev_ctx, access_type));
    out[n++] = MOV(ACCESS, TYPE);
    out[n++] = AND_IMM(TYPE, 0xffff);
    out[n++] = RSHIFT_IMM(ACCESS, 16);
    out[n++] = LOAD32(MAJOR, CTX, offsetof(struct bpf_cgroup_dev_ctx, major));
    out[n++] = LOAD32(MINOR, CTX, offsetof(struct bpf_cgroup_dev_ctx, minor));

    /* to the refusal at the end: the rest of this check and all rules lie between */
    size_t type_check = n++, access_check = n++;
    for (size_t i = 0; i < ARRAY_SIZE(allowed); i++) {
        bool any = allowed[i].minor == ANY;
        out[n++] = SKIP_IF(BPF_JNE, MAJOR, allowed[i].major, any ? 2 : 3);
        if (!any)
            out[n++] = SKIP_IF(BPF_JNE, MINOR, allowed[i].minor, 2);
        out[n++] = MOV_IMM(RESULT, 1);
        out[n++] = EXIT();
    }
    out[type_check] = SKIP_IF(BPF_JNE, TYPE, BPF_DEVCG_DEV_CHAR, (int16_t)(n - type_check - 1));
    out[access_check] = SKIP_IF(BPF_JSET, ACCESS, BPF_DEVCG_ACC_MKNOD, (int16_t)(n - access_check - 1));
    out[n++] = MOV_IMM(RESULT, 0);
    out[n++] = EXIT();
    return n;
}

static int bpf(enum bpf_cmd cmd, union bpf_attr *attr)
{
    long r = syscall(SYS_bpf, cmd, attr, sizeof *attr);
    return r < 0 ? -errno : (int)r;
}

static const char program_name[] = "silica_devices";
_Static_assert(sizeof program_name <= BPF_OBJ_NAME_LEN, "the kernel cuts longer names");

static int program_load(void)
{
    struct bpf_insn insns[CGROUP_DEVICES_INSNS_MAX];
    union bpf_attr a = {
        .prog_type = BPF_PROG_TYPE_CGROUP_DEVICE,
        .insns = (uintptr_t)insns,
        .insn_cnt = (uint32_t)cgroup_devices_program(insns),
        .license = (uintptr_t) "Apache-2.0",
    };
    memcpy(a.prog_name, program_name, sizeof program_name);
    return bpf(BPF_PROG_LOAD, &a);
}

static int program_info(int fd, struct bpf_prog_info *ret)
{
    *ret = (struct bpf_prog_info){0};
    union bpf_attr a = {.info = {.bpf_fd = (uint32_t)fd, .info_len = sizeof *ret, .info = (uintptr_t)ret}};
    return bpf(BPF_OBJ_GET_INFO_BY_FD, &a);
}

static int program_by_id(uint32_t id)
{
    union bpf_attr a = {.prog_id = id};
    return bpf(BPF_PROG_GET_FD_BY_ID, &a);
}

static int program_link(enum bpf_cmd cmd, int group_fd, int fd)
{
    union bpf_attr a = {
        .target_fd = (uint32_t)group_fd,
        .attach_bpf_fd = (uint32_t)fd,
        .attach_type = BPF_CGROUP_DEVICE,
        .attach_flags = cmd == BPF_PROG_ATTACH ? BPF_F_ALLOW_MULTI : 0,
    };
    return bpf(cmd, &a);
}

/* A program stays with its group when its keeper ends. Equal ones (the tag is a hash of the instructions) are
 * kept, so that restarts neither pile them up nor leave a moment without; ours of another version are taken
 * off once the new one is on. */
int cgroup_devices_attach_v2(int group_fd)
{
    uint32_t ids[64] = {0}; /* more the kernel does not attach */
    struct bpf_prog_info mine, other;

    auto_close int fd = program_load();
    if (fd < 0)
        return fd;
    int r = program_info(fd, &mine);
    if (r < 0)
        return r;
    union bpf_attr q = {.query = {.target_fd = (uint32_t)group_fd,
                                  .attach_type = BPF_CGROUP_DEVICE,
                                  .prog_ids = (uintptr_t)ids,
                                  .prog_cnt = ARRAY_SIZE(ids)}};
    r = bpf(BPF_PROG_QUERY, &q);
    if (r < 0)
        return r;

    size_t count = MIN((size_t)q.query.prog_cnt, ARRAY_SIZE(ids));
    bool present = false;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < count; i++) {
            auto_close int old = program_by_id(ids[i]);
            if (old < 0 || program_info(old, &other) < 0 || strcmp(other.name, program_name) != 0)
                continue; /* somebody else's: it can only refuse more */
            bool same = memcmp(other.tag, mine.tag, sizeof mine.tag) == 0;
            present |= same;
            if (pass == 1 && !same)
                (void)program_link(BPF_PROG_DETACH, group_fd, old); /* left on, it can only refuse more */
        }
        if (!present && (r = program_link(BPF_PROG_ATTACH, group_fd, fd)) < 0)
            return r;
        present = true;
    }
    return 0;
}

int cgroup_devices_set_v1(int group_fd)
{
    char rules[ARRAY_SIZE(allowed)][24], want[sizeof rules + 1], have[sizeof want];
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(allowed); i++) {
        if (allowed[i].minor == ANY)
            (void)snprintf(rules[i], sizeof rules[i], "c %d:* rw", allowed[i].major);
        else
            (void)snprintf(rules[i], sizeof rules[i], "c %d:%d rw", allowed[i].major, allowed[i].minor);
        n += (size_t)snprintf(want + n, sizeof want - n, "%s\n", rules[i]);
    }
    int r = cgroup_file_read(group_fd, "devices.list", have, sizeof have);
    if (r < 0)
        return r;
    if (strcmp(have, want) == 0)
        return 0; /* written again it would refuse everything for a moment */

    r = cgroup_file_write(group_fd, "devices.deny", "a");
    for (size_t i = 0; i < ARRAY_SIZE(allowed) && r == 0; i++)
        r = cgroup_file_write(group_fd, "devices.allow", rules[i]);
    return r;
}
