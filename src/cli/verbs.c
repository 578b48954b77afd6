/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.c: the table of verbs: what main.c runs and what the help prints. */
#include "cli/cli.h"

const struct verb verbs[] = {
    {"serve", cmd_serve, "run the server that makes and keeps sandboxes", "serve [options]",
     "Settings come from the environment or from flags; flags win. The admin token is written to the file\n"
     "admin.token in the data directory on first start. Ctrl-C puts all sandboxes to sleep\n"
     "and ends it; SIGTERM ends only the server, and the next start finds the sandboxes running.",
     serve_options, false,
     "sudo silica serve\n"
     "sudo silica serve --listen 127.0.0.1:9000 --data /srv/silica"},
    {"doctor", cmd_doctor, "check what this machine offers for sandboxes, layer by layer", "doctor [options]",
     "Each line is one layer of isolation or one limit: ok, or missing together with why and what to do.",
     doctor_options, false,
     "sudo silica doctor\n"
     "sudo silica doctor --json"},
    {"exec", cmd_exec, "run a command in a sandbox, with live output", "exec [options] ID [--] COMMAND...",
     "The sandbox is made on first use. The command runs in the shell of a session which lives on: a cd, a\n"
     "variable or a function of one exec is seen by the next. The exit code is that of the command.\n"
     "\n"
     "One argument is shell text, as with ssh; several are words that are quoted for you, as with docker.\n"
     "Input is not forwarded: commands read from /dev/null. Ctrl-C ends silica (exit code 130) and not the\n"
     "command, and the session's next command waits for it; --timeout sets an end.\n"
     "Exit codes of silica itself: 124 time is up, 125 something else failed. 'exit 7' ends the session's "
     "shell\n"
     "and exits with 7; the next command gets a fresh shell.",
     exec_options, true,
     "silica exec demo -- 'cd /workspace && echo hi > a && ls -la'\n"
     "silica exec demo -- ls -la /workspace\n"
     "silica exec demo -e GREETING=hello --timeout 10s -- 'echo $GREETING'"},
    {"shell", cmd_shell, "open an interactive terminal in a sandbox", "shell [options] ID",
     "The sandbox is made on first use. The terminal starts in the directory and with the exported variables "
     "of the\n"
     "session, lives on when silica ends, and is shared by everybody who opens it; 'exit' ends it for all. "
     "The exit\n"
     "code is that of its shell.",
     shell_options, true,
     "silica shell demo\n"
     "silica shell demo --session build"},
    {"ls", cmd_ls, "list sandboxes", "ls [options]",
     "On a terminal as a table that fits it, otherwise separated by tabs and complete.", ls_options, true,
     "silica ls --label team=blue\n"
     "silica ls --json | jq -r '.sandboxes[].id'"},
    {"create", cmd_create, "make a sandbox, or change the settings of one", "create [options] [ID]",
     "Without ID a free name is chosen. The id is printed. 'silica exec' makes sandboxes, too; this is for "
     "those\n"
     "that need an image, limits, variables or labels of their own.",
     create_options, true,
     "silica create demo --size basic --label team=blue\n"
     "silica create build --memory 4G --cpus 2 -e CI=1 --sleep-after 30m"},
    {"show", cmd_show, "show everything about a sandbox", "show [options] ID", NULL, show_options, true,
     "silica show demo\n"
     "silica show demo --json | jq .limits"},
    {"rm", cmd_rm, "remove sandboxes with all their processes and files", "rm [options] ID...",
     "There is no way back. Prints the id of each sandbox that is gone.", rm_options, true,
     "silica rm demo build\n"
     "silica rm --all --yes"},
    {"expose", cmd_expose, "give a service inside a sandbox an address for browsers",
     "expose [options] ID PORT",
     "Prints the address, which stays the same while the sandbox sleeps, wakes and while the server "
     "restarts.\n"
     "The service may listen on 127.0.0.1, 0.0.0.0 or ::1. Whoever knows the address can use it.",
     expose_options, true,
     "silica expose demo 8000\n"
     "silica expose demo 5173 --name vite --address-token demo"},
    {"unexpose", cmd_unexpose, "take the address of a service away", "unexpose [options] ID PORT", NULL,
     unexpose_options, true, "silica unexpose demo 8000"},
    {"ports", cmd_ports, "list the exposed ports of a sandbox", "ports [options] ID", NULL, ports_options,
     true,
     "silica ports demo\n"
     "silica ports demo --listening"},
    {"net", cmd_net, "what a sandbox may reach in the network, and what it did reach",
     "net [options] show ID | mode ID MODE [ENTRY...] | allow ID ENTRY... | deny ID ENTRY... | log ID",
     "MODE is none, public (the internet, but no private networks) or allowlist (only what its list says). "
     "An ENTRY is a\n"
     "name, *.name for all names below it, * for all names, an address or a network, each with :PORT or "
     "without. Changes\n"
     "hold at once, also for connections that exist. The log has connections, their bytes, and what was "
     "refused.",
     net_options, true,
     "silica net mode demo allowlist pypi.org '*.pythonhosted.org:443'\n"
     "silica net allow demo 198.51.100.7:5432\n"
     "silica net log -f demo"},
    {"sleep", cmd_sleep, "put sandboxes to sleep: processes end, files stay", "sleep [options] ID...",
     "The next command, request or preview wakes them. Sandboxes fall asleep by themselves when nobody uses "
     "them, see\n"
     "--sleep-after of 'silica create'. Prints the id of each that sleeps.",
     life_options, true, "silica sleep demo build"},
    {"wake", cmd_wake, "wake sandboxes that sleep", "wake [options] ID...",
     "Sandboxes wake by themselves when they are used; this is to have one warm before. Prints the id of "
     "each that runs.",
     life_options, true, "silica wake demo"},
    {"events", cmd_events, "follow what happens to sandboxes", "events [options]",
     "One line per event: time, event, sandbox, reason. The events are created, started, frozen, thawed, "
     "asleep, woken,\n"
     "exited, failed and destroyed. Ends with Ctrl-C.",
     events_options, true,
     "silica events\n"
     "silica events --sandbox demo --json"},
    {"top", cmd_top, "show what sandboxes use, again and again", "top [options]",
     "The busiest first. On a terminal the table is renewed until Ctrl-C; elsewhere, or with --once, it is "
     "printed once.",
     top_options, true,
     "silica top\n"
     "silica top --once --json"},
    {"logs", cmd_logs, "print the output of a background process", "logs [options] ID PROCESS",
     "What the process has written so far to standard output goes to standard output, and likewise for "
     "errors. With\n"
     "--follow it goes on until the process ends, and its exit code is ours.",
     logs_options, true,
     "silica logs demo server\n"
     "silica logs -f demo server"},
    {"token", cmd_token, "make, list and revoke tokens", "token [options] create SCOPE | ls | rm TOKENID...",
     "SCOPE is admin (everything), create-only (makes sandboxes and uses those it made), one-sandbox "
     "(everything with\n"
     "--sandbox ID) or read-only (looks at everything, or at --sandbox ID, and changes nothing). The secret "
     "is printed once,\n"
     "by create, and kept nowhere.",
     token_options, true,
     "silica token create read-only --name dashboard --expires 24h\n"
     "silica token create one-sandbox --sandbox demo\n"
     "silica token ls"},
    {"volume", cmd_volume, "make, list and remove volumes: disks that outlive sandboxes",
     "volume [options] create NAME | ls | inspect NAME... | rm NAME...",
     "A sandbox gets a volume with --volume of 'silica create'. Several may have the same one at the same "
     "time. One that "
     "belongs\n"
     "to a sandbox, whether it runs or sleeps, is not removed. There is no way back from rm.",
     volume_options, true,
     "silica volume create models --size 20G\n"
     "silica create demo --volume models:/models:ro\n"
     "silica volume ls"},
    {"docker", cmd_docker, "the commands of a container engine's tool that programs start",
     "docker [--host ADDRESS] COMMAND ...",
     "For programs that want a container engine's command line tool, such as wrangler (WRANGLER_DOCKER_BIN). "
     "They want one\n"
     "path: make a link called docker or silica-docker to silica. Known are info, version, build, pull, tag, "
     "images, image,\n"
     "inspect, rmi, ps, rm, login and context. --format takes the usual templates.",
     docker_options, true,
     "silica docker build -t app:1 .\n"
     "silica docker ps -a --format '{{.ID}} {{.Names}}'\n"
     "ln -s $(which silica) ~/bin/silica-docker"},
    {"wrangler", cmd_wrangler, "start the project's wrangler with sandboxes of this machine",
     "wrangler [options] COMMAND...",
     "Looks for wrangler in node_modules of this directory and those above, checks that everything it needs "
     "is there,\n"
     "and starts it with this engine instead of Docker. Options of silica come before wrangler's command.",
     wrangler_options, true,
     "silica wrangler dev\n"
     "silica wrangler dev --port 8788"},
    {"health", cmd_health, "ask whether the server is well", "health [options]",
     "Needs no token. Exit code 0 when the server answers well, 125 otherwise.", health_options, true,
     "silica health\n"
     "silica health --url http://127.0.0.1:8787 --json"},
    {"api", cmd_api, "send any request to the server's API", "api [options] METHOD PATH",
     "The body of the answer goes to standard output as it arrives. Exit code 125 when the status is 400 or "
     "above.",
     api_options, true,
     "silica api GET /v1/sandbox\n"
     "silica api POST /v1/sandbox/demo/api/execute -d '{\"command\":\"uname -a\"}'"},
    {"image", cmd_image, "images of sandboxes: list, import, export, save, build, remove",
     "image ls|import|export|save|tag|inspect|rm|prune|build [options] ...",
     "import FILE          from an OCI layout (tar or directory) or a docker archive; - is standard input\n"
     "export NAME [FILE]   as an archive that docker, podman and skopeo read\n"
     "save ID NAME         what a sandbox has changed, on top of its image\n"
     "tag IMAGE NAME       one more name\n"
     "inspect NAME...      all about it, as JSON\n"
     "rm NAME...           refused while a sandbox stands on it\n"
     "prune                images without a name, and layers that no image has\n"
     "build DIR            from a Dockerfile; see 'silica image build --help'",
     image_options, true,
     "silica image import app.tar --name app:1.0\n"
     "silica create demo --image app:1.0\n"
     "silica image save demo app:patched\n"
     "silica image export app:patched out.tar"},
    {"help", cmd_help, "explain silica or one of its commands", "help [COMMAND]", NULL, help_options, false,
     "silica help\n"
     "silica help exec"},
    {"gateway", cmd_gateway, NULL, NULL, NULL, NULL, false, NULL},
    {"image-worker", cmd_image_worker, NULL, NULL, NULL, NULL, false, NULL},
    {NULL, NULL, NULL, NULL, NULL, NULL, false, NULL},
};
