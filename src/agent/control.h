/* SPDX-License-Identifier: Apache-2.0 */
/* control.h: the keeper's line to an agent: fixed messages over a SOCK_SEQPACKET path socket.
 *
 * The agent inherits the listening end; the keeper connects to it, at creation and again after its own
 * restart. The newest connection replaces the older one. Nothing inside the sandbox can reach the socket: its
 * path is not in the sandbox's root, and the agent is not dumpable.
 *
 * From the keeper to the agent:
 *
 * BOOT, attached: a memfd with "K=V\0K=V\0..." to add to the environment, and settings among them (those that
 * begin with '=', see settings.h), or nothing. From now on the agent accepts HTTP connections. Once per life.
 *
 * BOOT_PRISTINE: the same, and the sandbox's disk has nothing in place of the image's programs and libraries:
 * whatever was started before it had that disk is what would be started now.
 *
 * PLACED: the spawner that asked is in its control group now.
 *
 * From the agent to the keeper (the kernel attaches the sender's credentials: that pid is the one to place):
 *
 * PLACE, sent by a fresh spawner: put me into the workload's control group, then answer PLACED.
 *
 * BOOTED: the answer to BOOT.
 *
 * EXIT, with a code in its low byte: the agent is about to end with this status; for a keeper that adopted it
 * and cannot wait for it.
 *
 * The keeper trusts nothing it receives: PLACE is acted on only if the sender's pid lives in this sandbox's
 * pid namespace. What no agent says (other lengths, other types, too much in a second) ends the line and the
 * sandbox with it. */
#pragma once

#include <stdint.h>

enum { CONTROL_VERSION = 1 };

enum control_type {
    CONTROL_BOOT = 1,
    CONTROL_PLACED,
    CONTROL_PLACE,
    CONTROL_BOOTED,
    CONTROL_BOOT_PRISTINE,
    CONTROL_EXIT = 0x100, /* to 0x1ff */
};

struct control_message {
    uint32_t version;
    uint32_t type;
};

/* Descriptors the keeper gives to the agent's exec, and the directory for its FIFOs. */
enum { AGENT_HTTP_FD = 3, AGENT_CONTROL_FD = 4 };
#define AGENT_FIFO_DIR "/dev/.s"
