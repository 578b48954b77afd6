/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_image_worker.c: the program image the keeper executes to read and write images; not for people. */
#include "cli/cli.h"
#include "image/imager.h"

#include <fcntl.h>

int cmd_image_worker(int argc, char **argv)
{
    (void)argv;
    if (argc != 1 || fcntl(IMAGER_FD_TREE - 1, F_GETFD) < 0)
        return cli_error("image-worker", "this verb is started by `silica serve`, not by people");
    _exit(imager_main()); /* what runs at exit would ask the filter for calls it does not have */
}
