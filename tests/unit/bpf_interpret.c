/* SPDX-License-Identifier: Apache-2.0 */
/* bpf_interpret.c: the part of classic BPF which seccomp programs use. */
#include "bpf_interpret.h"

#include <string.h>

static bool load_word(const struct seccomp_data *data, uint32_t offset, uint32_t *ret)
{
    if (offset % sizeof *ret != 0 || offset > sizeof *data - sizeof *ret)
        return false;
    memcpy(ret, (const char *)data + offset, sizeof *ret);
    return true;
}

bool bpf_interpret(const struct sock_filter *filter, size_t len, const struct seccomp_data *data,
                   uint32_t *ret, size_t *ret_steps)
{
    uint32_t a = 0;
    size_t steps = 0;

    /* Jumps only lead forward, so that no program runs for longer than its length. */
    for (size_t pc = 0; pc < len; pc++) {
        const struct sock_filter *f = &filter[pc];
        bool taken;

        steps++;
        switch (f->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            if (!load_word(data, f->k, &a))
                return false;
            continue;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= f->k;
            continue;
        case BPF_RET | BPF_K:
            *ret = f->k;
            *ret_steps = steps;
            return true;
        case BPF_JMP | BPF_JA:
            if (f->k >= len)
                return false;
            pc += f->k;
            continue;
        case BPF_JMP | BPF_JEQ | BPF_K:
            taken = a == f->k;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            taken = a >= f->k;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            taken = a > f->k;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            taken = (a & f->k) != 0;
            break;
        default:
            return false;
        }
        pc += taken ? f->jt : f->jf;
    }
    return false;
}
