/* SPDX-License-Identifier: Apache-2.0 */
/* bpf_interpret.h: runs a seccomp program in user space, as the kernel would. */
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The program's answer in *ret and the number of instructions executed in *ret_steps. False when the kernel
 * would refuse the program: an unknown instruction, a load or a jump out of bounds, an end without an answer.
 */
bool bpf_interpret(const struct sock_filter *filter, size_t len, const struct seccomp_data *data,
                   uint32_t *ret, size_t *ret_steps);
