/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.c: stages, scopes of variables, configuration, and which changes change which keys. */
#include "builder/plan.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct plan plan;
static struct error e;
static struct words args;
static char base_identity[32] = "one";

/* "base" has a PATH and a command; names with "server" are aliases; "missing" is missing. */
static int find_image(const char *reference, struct base_image *ret, void *user, struct error *reterr)
{
    (void)user;
    if (strcmp(reference, "missing") == 0)
        return error_set(reterr, ENOENT, "there is no image '%s'", reference);
    *ret = (struct base_image){.name = strdup(reference), .identity = strdup(base_identity)};
    ret->server = strstr(reference, "server") != NULL;
    (void)words_add(&ret->config.env, "PATH=/bin", 9);
    (void)words_add(&ret->config.cmd, "bash", 4);
    return 0;
}

static int make(const char *text, const char *target, struct context *context)
{
    struct dockerfile d = {0};
    plan_done(&plan);
    e = (struct error){0};
    int r = dockerfile_parse(text, strlen(text), &d, &e);
    struct plan_input in = {.dockerfile = &d,
                            .context = context,
                            .args = &args,
                            .target = target,
                            .architecture = "amd64",
                            .find_image = find_image};
    if (r == 0)
        r = plan_make(&in, &plan, &e);
    dockerfile_done(&d);
    return r;
}

static const struct stage *last(void)
{
    return &plan.stages[plan.target];
}

static const char *env(const struct words *w, const char *name)
{
    return pairs_get(w, name, strlen(name));
}

TEST(arguments_and_variables)
{
    REQUIRE(pairs_set(&args, "tag", 3, "2") == 0);
    REQUIRE(make("ARG tag=1\nARG image=app:$tag\nFROM $image AS one\nARG tag\nARG other=x$tag\nENV E=$other "
                 "F='$other' G=${none:-$E}\n"
                 "ARG E=hidden\nRUN true\nFROM one\nRUN true\nFROM base\nENV T=$tag\nARG TARGETARCH\nENV "
                 "A=$TARGETARCH\nRUN true",
                 NULL, NULL) == 0);
    REQUIRE(plan.count == 3);
    CHECK_STREQ(last()->base.name, "base");
    CHECK_STREQ(env(&last()->config.env, "T"), "");
    CHECK_STREQ(env(&last()->config.env, "A"), "amd64");
    REQUIRE(make("ARG tag=1\nARG image=app:$tag\nFROM $image AS one\nARG tag\nARG other=x$tag\nENV E=$other "
                 "F='$other' G=${none:-$E}\n"
                 "ARG E=hidden\nENV E2=$E\nRUN true\nFROM one\nENV H=$other\nRUN true",
                 NULL, NULL) == 0);
    CHECK_STREQ(plan.stages[0].base.name, "app:2");
    CHECK_STREQ(env(&plan.stages[0].config.env, "E"), "x2");
    CHECK_STREQ(env(&plan.stages[0].config.env, "F"), "$other");
    CHECK_STREQ(env(&plan.stages[0].config.env, "G"), "");    /* values of one ENV do not see each other */
    CHECK_STREQ(env(&plan.stages[0].config.env, "E2"), "x2"); /* ENV wins over ARG */
    REQUIRE(plan.stages[0].count == 1);
    CHECK_STREQ(env(&plan.stages[0].steps[0].env, "tag"), "2");
    CHECK_STREQ(env(&plan.stages[0].steps[0].env, "E"), "x2");
    CHECK_STREQ(env(&last()->config.env, "H"), "x2"); /* a stage that goes on from another sees its ARGs */
    words_done(&args);
}

TEST(stages_and_targets)
{
    const char *text = "FROM base AS a\nRUN one\nFROM missing AS b\nFROM base\nCOPY --from=a /x /y\nCOPY "
                       "--from=0 /x /z\nCOPY --from=other /f /";
    REQUIRE(make(text, NULL, NULL) == 0); /* nobody needs b */
    REQUIRE(last()->count == 3);
    CHECK_INT(last()->steps[0].from_stage, 0);
    CHECK_INT(last()->steps[1].from_stage, 0);
    CHECK_STREQ(last()->steps[2].from_image->name, "other");
    CHECK_INT(make(text, "b", NULL), -ENOENT);
    CHECK(strstr(e.msg, "line 3"));
    REQUIRE(make(text, "A", NULL) == 0);
    CHECK_INT(plan.target, 0);
    CHECK_INT(make(text, "nobody", NULL), -ENOENT);
    CHECK_INT(make("FROM base AS a\nFROM a AS b\nRUN x\nFROM b", NULL, NULL), 0);
    CHECK_INT(last()->parent, 1);
    CHECK_STREQ(last()->files_key, plan.stages[1].files_key);
}

TEST(configuration)
{
    REQUIRE(make("FROM base\nWORKDIR /a\nWORKDIR b/../c\nUSER 1000:100\nEXPOSE 80 8000-8002/udp $none\nLABEL "
                 "a=b \"c d\"=\"e f\"\n"
                 "ENTRYPOINT [\"/run\", \"x\"]\nSHELL [\"/bin/bash\", \"-c\"]\nRUN echo hi\nRUN [\"ls\", "
                 "\"-l\"]\nHEALTHCHECK NONE\nVOLUME /data\n",
                 NULL, NULL) == 0);
    const struct image_config *c = &last()->config;
    CHECK_STREQ(c->workdir, "/a/c");
    CHECK_STREQ(c->user, "1000:100");
    REQUIRE(c->ports.count == 4);
    CHECK_STREQ(c->ports.items[0], "80/tcp");
    CHECK_STREQ(c->ports.items[3], "8002/udp");
    CHECK_STREQ(env(&c->labels, "a"), "b");
    CHECK_STREQ(env(&c->labels, "c d"), "e f");
    CHECK_INT(c->cmd.count, 0); /* the base's CMD belongs to the base's ENTRYPOINT */
    CHECK_INT(c->entrypoint.count, 2);
    REQUIRE(last()->count == 4);
    CHECK_STREQ(last()->steps[2].argv.items[0], "/bin/bash");
    CHECK_STREQ(last()->steps[2].argv.items[2], "echo hi");
    CHECK_STREQ(last()->steps[3].argv.items[1], "-l");
    CHECK_STREQ(last()->steps[3].workdir, "/a/c");
    CHECK_INT(plan.notes.count, 2);
    REQUIRE(make("FROM base\nCMD run it\nENTRYPOINT [\"/x\"]", NULL, NULL) == 0);
    REQUIRE(last()->config.cmd.count == 3);
    CHECK_STREQ(last()->config.cmd.items[0], "/bin/sh");
    CHECK_STREQ(last()->config.cmd.items[2], "run it");
}

TEST(the_server_stands_in)
{
    REQUIRE(make("FROM base\nCOPY --from=my/server:1 /container-server/sandbox /opt/srv\nENTRYPOINT "
                 "[\"/opt/srv\", \"x\"]",
                 NULL, NULL) == 0);
    REQUIRE(last()->count == 1 && last()->steps[0].file_count == 1);
    CHECK_INT(last()->steps[0].sources.count, 0);
    CHECK_INT(last()->steps[0].mode, 0755);
    CHECK_STREQ(last()->config.entrypoint.items[0], "/container-server/sandbox");
    CHECK_STREQ(last()->config.entrypoint.items[1], "x");
    REQUIRE(make("FROM server AS s\nFROM base\nCOPY --from=s /container-server/sandbox /usr/bin/", NULL,
                 NULL) == 0);
    CHECK_INT(last()->steps[0].file_count, 1);
    REQUIRE(make("FROM base\nCOPY --from=plain /container-server/sandbox /sandbox", NULL, NULL) == 0);
    CHECK_INT(last()->steps[0].file_count, 0);
}

TEST(texts_in_the_dockerfile)
{
    REQUIRE(make("FROM base\nENV N=you\nCOPY <<EOF <<'RAW' /d/\nhi $N\nEOF\nhi $N\nRAW\nRUN "
                 "<<EOF\na\nb\nEOF\nRUN <<X\n#!/bin/python3\nX\n"
                 "RUN cat <<A | wc\nin\nA\n",
                 NULL, NULL) == 0);
    REQUIRE(last()->count == 4);
    REQUIRE(last()->steps[0].file_count == 2);
    CHECK_STREQ(last()->steps[0].files[0].text, "hi you\n");
    CHECK_STREQ(last()->steps[0].files[1].text, "hi $N\n");
    CHECK_STREQ(last()->steps[1].argv.items[2], "a\nb\n");
    CHECK_STREQ(last()->steps[2].script, "#!/bin/python3\n");
    CHECK_STREQ(last()->steps[3].argv.items[2], "cat <<A | wc\nin\nA");
}

TEST(mounts)
{
    REQUIRE(make("FROM base AS a\nRUN x\nFROM missing AS b\nFROM base\nWORKDIR /w\nRUN "
                 "--mount=type=cache,target=/c --mount=from=a,src=/x,dst=y make",
                 NULL, NULL) == 0);
    REQUIRE(last()->count == 2 && last()->steps[1].mount_count == 2);
    const struct step_mount *m = last()->steps[1].mounts;
    CHECK_STREQ(m[0].target, "/c");
    CHECK(!m[0].copy);
    CHECK_STREQ(m[1].target, "/w/y");
    REQUIRE(m[1].copy);
    CHECK_INT(m[1].copy->from_stage, 0);
    CHECK_STREQ(m[1].copy->sources.items[0], "/x");
}

static const struct {
    const char *text, *says;
} refused[] = {
    {"", "no FROM"},
    {"RUN x", "before the first FROM"},
    {"FROM", "line 1"},
    {"FROM a b", "FROM IMAGE AS NAME"},
    {"FROM $nothing", "empty"},
    {"FROM missing", "line 1: there is no image"},
    {"FROM base\nCOPY a", "source and a destination"},
    {"FROM base\nCOPY a b /c", "ends with /"},
    {"FROM base\nCOPY --from=missing a b", "no stage is called"},
    {"FROM base\nCOPY --weird a b", "no flag"},
    {"FROM base\nADD --from=x a b", "no flag"},
    {"FROM base\nADD https://x/y /z", "not supported"},
    {"FROM base\nCOPY a /b", "no build context"},
    {"FROM base\nCOPY --chmod=u+x a b", "not a mode"},
    {"FROM base\nCOPY --chown='a b' a b", "USER:GROUP"},
    {"FROM base\nRUN --mount=type=secret,id=x y", "not supported"},
    {"FROM base\nRUN --mount=type=cache y", "needs target"},
    {"FROM base\nRUN --mount=type=cache,target=/ y", "mounted at /"},
    {"FROM base\nRUN --mount=target=/x y", "no build context"},
    {"FROM base\nRUN --fast y", "no flag"},
    {"FROM base\nRUN []", "runs nothing"},
    {"FROM base\nEXPOSE 0", "not a port"},
    {"FROM base\nEXPOSE 80/sctp", "not a port"},
    {"FROM base\nEXPOSE 70000", "not a port"},
    {"FROM base\nENV A", "no value"},
    {"FROM base\nENV A=1 B", "NAME=VALUE"},
    {"FROM base\nENV A=${B", "line 2"},
    {"FROM base\nSHELL bash", "JSON form"},
    {"FROM base\nUSER a b", "USER:GROUP"},
};

TEST(refusals)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        int r = make(refused[i].text, NULL, NULL);
        if (r >= 0 || !strstr(e.msg, refused[i].says)) {
            printf("    '%s': %d %s\n", refused[i].text, r, e.msg);
            CHECK(!"as in the table");
        }
    }
}

TEST(arguments_nobody_takes)
{
    REQUIRE(pairs_set(&args, "unused", 6, "x") == 0 && pairs_set(&args, "HTTP_PROXY", 10, "p") == 0);
    REQUIRE(make("FROM base\nRUN x", NULL, NULL) == 0);
    REQUIRE(plan.notes.count == 1);
    CHECK(strstr(plan.notes.items[0], "unused"));
    CHECK_STREQ(env(&last()->steps[0].env, "HTTP_PROXY"), "p");
    words_done(&args);
}

/* ------------------------------------------------------------------ keys */

static char key_of(const char *text, char out[DIGEST_HEX + 1])
{
    out[0] = '\0';
    if (make(text, NULL, NULL) == 0)
        memcpy(out, last()->files_key, DIGEST_HEX + 1);
    return out[0];
}

TEST(what_changes_keys)
{
    char a[DIGEST_HEX + 1], b[DIGEST_HEX + 1];
    static const struct {
        const char *one, *two;
        bool same;
    } rows[] = {
        {"FROM base\nRUN x", "# more\nFROM base\n\nRUN \\\n x", true},
        {"FROM base\nRUN x", "FROM base\nRUN y", false},
        {"FROM base\nRUN x", "FROM base\nEXPOSE 1\nLABEL a=b\nRUN x\nCMD z\nENTRYPOINT z", true},
        {"FROM base\nRUN x", "FROM base\nENV A=1\nRUN x", false},
        {"FROM base\nRUN x", "FROM base\nARG A=1\nRUN x", false},
        {"FROM base\nRUN x", "FROM base\nRUN x\nENV A=1", true},
        {"FROM base\nRUN x", "FROM base\nUSER 5\nRUN x", false},
        {"FROM base\nRUN x", "FROM base\nWORKDIR /w\nRUN x", false},
        {"FROM base\nRUN x", "FROM other\nRUN x", false},
        {"FROM base\nRUN x", "FROM base\nSHELL [\"/bin/bash\",\"-c\"]\nRUN x", false},
        {"FROM base\nRUN ab", "FROM base\nRUN [\"/bin/sh\", \"-c\", \"ab\"]", true},
        {"FROM base\nRUN [\"a\", \"bc\"]", "FROM base\nRUN [\"ab\", \"c\"]", false},
        {"FROM base AS q\nRUN x\nFROM base\nCOPY --from=q /a /b",
         "FROM base AS q\nRUN y\nFROM base\nCOPY --from=q /a /b", false},
        {"FROM base\nCOPY <<A /b\nx\nA", "FROM base\nCOPY <<A /b\ny\nA", false},
        {"FROM base\nCOPY <<A /b\nx\nA", "FROM base\nCOPY --chmod=700 <<A /b\nx\nA", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        REQUIRE(key_of(rows[i].one, a) && key_of(rows[i].two, b));
        if ((strcmp(a, b) == 0) != rows[i].same) {
            printf("    '%s' and '%s'\n", rows[i].one, rows[i].two);
            CHECK(!"as in the table");
        }
    }
    REQUIRE(key_of("FROM base\nRUN x", a));
    (void)snprintf(base_identity, sizeof base_identity, "two");
    REQUIRE(key_of("FROM base\nRUN x", b));
    (void)snprintf(base_identity, sizeof base_identity, "one");
    CHECK(strcmp(a, b) != 0);
}

/* ------------------------------------------------------------------ the context */

static char dir[] = "/tmp/silica-plan-XXXXXX";

static void put(const char *name, const char *text, mode_t mode)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, mode);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, mode) == 0);
    close_fd(&fd);
}

static const char *context_key(const char *text, char out[DIGEST_HEX + 1])
{
    struct context *c = NULL;
    out[0] = '\0';
    if (context_open(dir, NULL, &c, &e) == 0 && make(text, NULL, c) == 0)
        memcpy(out, last()->files_key, DIGEST_HEX + 1);
    plan_done(&plan); /* points into the context */
    context_free(c);
    return out;
}

TEST(files_of_the_context)
{
    char a[DIGEST_HEX + 1], b[DIGEST_HEX + 1], path[200];
    const char *copy = "FROM base\nCOPY . /app/";
    REQUIRE(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/sub", dir);
    REQUIRE(mkdir(path, 0755) == 0);
    put("a.txt", "one", 0644);
    put("sub/b.txt", "two", 0644);
    put("sub.txt", "three", 0644); /* sorts between a directory's name and its contents */
    (void)snprintf(path, sizeof path, "%s/link", dir);
    REQUIRE(symlink("sub/b.txt", path) == 0);
    CHECK(*context_key(copy, a));
    CHECK_STREQ(context_key(copy, b), a);
    put("sub/b.txt", "TWO", 0644);
    CHECK(strcmp(context_key(copy, b), a) != 0);
    put("sub/b.txt", "two", 0644);
    CHECK_STREQ(context_key(copy, b), a);
    put("a.txt", "one", 0755);
    CHECK(strcmp(context_key(copy, b), a) != 0);
    put("a.txt", "one", 0644);
    put("ignored", "x", 0644);
    put(".dockerignore", "ignored\n.dockerignore\n", 0644);
    CHECK_STREQ(context_key(copy, b), a);

    struct context *c = NULL;
    REQUIRE(context_open(dir, NULL, &c, &e) == 0);
    REQUIRE(make("FROM base\nCOPY sub /d\nCOPY *.txt /d/\nCOPY link /name\nCOPY sub/ a.txt /d/", NULL, c) ==
            0);
    const struct step *s = last()->steps;
    CHECK_INT(s[0].set.count, 1);
    CHECK_STREQ(s[0].set.items[0].name, "b.txt");
    CHECK(!s[0].set.single_file);
    CHECK_INT(s[1].set.count, 2);
    CHECK(s[2].set.single_file);
    CHECK_STREQ(s[2].set.items[0].name, "link"); /* a link that was named is followed */
    CHECK_STREQ(s[2].set.items[0].entry->path, "sub/b.txt");
    CHECK_INT(s[3].set.count, 2);
    CHECK_INT(make("FROM base\nCOPY nothing /d", NULL, c), -ENOENT);
    CHECK(strstr(e.msg, "line 2") && strstr(e.msg, "'nothing'"));
    CHECK_INT(make("FROM base\nCOPY ignored /d", NULL, c), -ENOENT);
    CHECK(strstr(e.msg, ".dockerignore"));
    CHECK_INT(make("FROM base\nCOPY x*y /d", NULL, c), -ENOENT);
    CHECK_INT(make("FROM base\nCOPY ../../etc/passwd /d", NULL, c), -ENOENT); /* nothing outside is reached */
    plan_done(&plan);
    context_free(c);

    static const char *const names[] = {"a.txt", "sub/b.txt", "sub.txt", "link", "ignored", ".dockerignore"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    (void)snprintf(path, sizeof path, "%s/sub", dir);
    CHECK(rmdir(path) == 0 && rmdir(dir) == 0);
}

TEST(last_clean_up)
{
    plan_done(&plan);
}
