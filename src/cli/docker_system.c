/* SPDX-License-Identifier: Apache-2.0 */
/* docker_system.c: silica docker info, version, login and context. */
#include "cli/docker.h"

#include <string.h>

/* An answer of the engine, as a whole or through a template. */
static int show(struct docker *d, const char *path, int argc, char **argv, const char *usual)
{
    struct docker_words w;
    struct docker_answer a;
    int r = docker_read_words(&w, argv[0], argc, argv);
    buf_done(&w.filters);
    if (r != 0)
        return r;
    r = docker_must(d, "GET", path, &a);
    if (r != 0)
        return r;
    r = docker_print(w.format ? w.format : usual, json_root(a.doc));
    docker_answer_done(&a);
    return r;
}

int docker_info(struct docker *d, int argc, char **argv)
{
    return show(d, "/info", argc, argv,
                "Server Version: {{.ServerVersion}}\nContainers: {{.Containers}}\nOperating System: "
                "{{.OperatingSystem}}");
}

int docker_version(struct docker *d, int argc, char **argv)
{
    return show(d, "/version", argc, argv, "Version: {{.Version}}\nAPI version: {{.ApiVersion}}");
}

/* There is no registry behind this engine; what the password is for is asked for elsewhere. */
int docker_login(struct docker *d, int argc, char **argv)
{
    (void)d;
    char line[4096];
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--password-stdin") == 0)
            while (fgets(line, sizeof line, stdin))
                ;
    memset(line, 0, sizeof line);
    printf("Login Succeeded\n");
    (void)fprintf(stderr,
                  "silica docker: nothing was sent: images come from 'silica image import' and builds\n");
    return 0;
}

int docker_context(struct docker *d, int argc, char **argv)
{
    if (argc < 2 ||
        (strcmp(argv[1], "ls") != 0 && strcmp(argv[1], "list") != 0 && strcmp(argv[1], "show") != 0))
        return docker_error("write: context ls [--format json]");
    if (strcmp(argv[1], "show") == 0) {
        printf("silica\n");
        return 0;
    }
    struct docker_words w;
    int r = docker_read_words(&w, "context ls", argc - 1, argv + 1);
    buf_done(&w.filters);
    if (r != 0)
        return r;
    struct buf text = BUF_INIT(4096);
    struct json_writer j;
    json_writer_init(&j, &text);
    json_object_begin(&j);
    json_member_bool(&j, "Current", true);
    json_member_string(&j, "Description", "Silica");
    json_member_string(&j, "DockerEndpoint", docker_host(d));
    json_member_string(&j, "Error", "");
    json_member_string(&j, "Name", "silica");
    json_object_end(&j);
    auto_json struct json_doc *doc = NULL;
    if (j.err < 0 || json_parse(buf_data(&text), buf_len(&text), 0, &doc, NULL) < 0)
        r = docker_error("out of memory");
    else
        r = docker_print(w.format ? w.format : "{{.Name}} *\t{{.DockerEndpoint}}", json_root(doc));
    json_free(take_ptr(doc));
    buf_done(&text);
    return r;
}
