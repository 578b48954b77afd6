/* SPDX-License-Identifier: Apache-2.0 */
/* docker.h: a container engine on a unix socket: as much of the Docker Engine API as local Workers
 * development and a stock command line ask for; docs/docker.md says what.
 *
 * A container is a sandbox with a main program (src/agent/main_command.c). It never freezes or sleeps on its
 * own, and starts only when the engine is told to. */
#pragma once

#include "gateway/lifecycle.h"

struct docker;
struct gateway;

/* Loads the containers; the store must not have been started yet. */
int docker_new(struct gateway *g, struct docker **ret, struct error *reterr);
/* What runs is known: takes up what ran before, then listens on fd (taken over; -1: nowhere). */
void docker_begin(struct docker *d, int fd);
void docker_stop_listening(struct docker *d);
void docker_sandbox_event(struct docker *d, const struct sandbox *sb, enum sandbox_event event);
void docker_free(struct docker *d); /* NULL is fine; before the lifecycle */
