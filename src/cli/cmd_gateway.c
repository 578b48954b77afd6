/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_gateway.c: the program image the keeper executes for its gateway; not for people. */
#include "cli/cli.h"
#include "gateway/gateway_boot.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

int cmd_gateway(int argc, char **argv)
{
    struct gateway_boot boot;
    (void)argv;
    if (argc != 1 || pread(GATEWAY_FD_FIRST, &boot, sizeof boot, 0) != (ssize_t)sizeof boot ||
        boot.version != GATEWAY_BOOT_VERSION || boot.listen_count > GATEWAY_LISTEN_MAX ||
        !memchr(boot.image, '\0', sizeof boot.image) || !memchr(boot.allow, '\0', sizeof boot.allow) ||
        !memchr(boot.preview_domain, '\0', sizeof boot.preview_domain))
        return cli_error("gateway", "this verb is started by `silica serve`, not by people");
    log_init("gateway", (enum log_level)boot.log_level, (enum log_format)boot.log_format);
    (void)close(GATEWAY_FD_FIRST);
    struct gateway_config config = {.keeper_fd = GATEWAY_FD_KEEPER,
                                    .state_dir_fd = GATEWAY_FD_STATE,
                                    .listen_count = boot.listen_count,
                                    .uid = boot.uid,
                                    .auth_off = boot.auth_off != 0,
                                    .default_image = boot.image,
                                    .default_limits = boot.limits,
                                    .sleep_after_ms = boot.sleep_after_ms,
                                    .has_network = boot.has_network != 0,
                                    .listed = boot.listed != 0,
                                    .allow = boot.allow,
                                    .freeze_after_ms = boot.freeze_after_ms,
                                    .agent_silence_ms = boot.agent_silence_ms,
                                    .preview_domain = boot.preview_domain,
                                    .preview_timeout_ms = boot.preview_timeout_ms,
                                    .preview_bandwidth = boot.preview_bandwidth};
    memcpy(config.admin_hash, boot.admin_hash, sizeof config.admin_hash);
    int end = GATEWAY_FD_LISTEN + (int)boot.listen_count;
    config.tls_listeners = boot.tls_listeners;
    config.tls_fd = boot.tls_listeners ? end++ : -1;
    config.docker_fd = boot.docker ? end++ : -1;
    config.shared_fd = boot.shared ? end++ : -1;
    for (int fd = GATEWAY_FD_KEEPER; fd < end; fd++)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
            return cli_error("gateway", "descriptor %d is missing", fd);
    for (size_t i = 0; i < boot.listen_count; i++)
        config.listen_fds[i] = GATEWAY_FD_LISTEN + (int)i;
    return gateway_main(&config);
}
