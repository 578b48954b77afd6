/* SPDX-License-Identifier: Apache-2.0 */
/* docker_system.c: requests that are about the engine itself: who it is, its networks, its volumes. */
#include "gateway/docker_internal.h"
#include "gateway/reply.h"

#include <string.h>

/* Callers listen for their containers on the gateway's address: that is the host's loopback interface, where
 * sidecars dial them. */
static const char bridge[] =
    "{\"Name\":\"bridge\",\"Id\":\"bridge\",\"Driver\":\"bridge\",\"Scope\":\"local\",\"EnableIPv6\":false,"
    "\"IPAM\":{\"Driver\":\"default\",\"Config\":[{\"Subnet\":\"127.0.0.0/8\",\"Gateway\":\"127.0.0.1\"}]},"
    "\"Containers\":{},\"Options\":{},\"Labels\":{}}";

static void ping(struct docker_request *r)
{
    http_respond(r->req, 200, "text/plain; charset=utf-8", "OK", 2);
}

static void version(struct docker_request *r)
{
    struct buf out = BUF_INIT(4096);
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_string(&w, "Version", SILICA_VERSION);
    json_member_string(&w, "ApiVersion", "1.47");
    json_member_string(&w, "MinAPIVersion", "1.24");
    json_member_string(&w, "Os", "linux");
    json_member_string(&w, "Arch", "amd64");
    json_put_key(&w, "Platform");
    json_object_begin(&w);
    json_member_string(&w, "Name", "Silica");
    json_object_end(&w);
    json_object_end(&w);
    docker_reply_json(r->req, 200, &w);
}

static void info(struct docker_request *r)
{
    struct buf out = BUF_INIT(4096);
    struct json_writer w;
    int64_t running = 0, stopped = 0;
    for (const struct container *c = r->docker->containers; c; c = c->next)
        *(c->status == CONTAINER_RUNNING || c->status == CONTAINER_RESTARTING ? &running : &stopped) += 1;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_string(&w, "ID", "silica");
    json_member_int(&w, "Containers", running + stopped);
    json_member_int(&w, "ContainersRunning", running);
    json_member_int(&w, "ContainersPaused", 0);
    json_member_int(&w, "ContainersStopped", stopped);
    json_member_string(&w, "Driver", "silica");
    json_member_string(&w, "OSType", "linux");
    json_member_string(&w, "Architecture", "x86_64");
    json_member_string(&w, "ServerVersion", SILICA_VERSION);
    json_member_string(&w, "OperatingSystem", "Silica");
    json_put_key(&w, "SecurityOptions");
    json_array_begin(&w);
    json_array_end(&w);
    json_object_end(&w);
    docker_reply_json(r->req, 200, &w);
}

static void networks(struct docker_request *r)
{
    struct buf out = BUF_INIT(4096);
    (void)buf_printf(&out, "[%s]", bridge);
    http_respond(r->req, 200, "application/json", buf_data(&out), buf_len(&out));
    buf_done(&out);
}

static void network_bridge(struct docker_request *r)
{
    http_respond(r->req, 200, "application/json", bridge, sizeof bridge - 1);
}

static void volumes(struct docker_request *r)
{
    static const char none[] = "{\"Volumes\":[],\"Warnings\":[]}";
    http_respond(r->req, 200, "application/json", none, sizeof none - 1);
}

bool docker_system_request(struct docker_request *r)
{
    static const struct {
        const char *method, *path;
        void (*handle)(struct docker_request *r);
    } routes[] = {
        {"GET", "/_ping", ping},        {"HEAD", "/_ping", ping},
        {"GET", "/version", version},   {"GET", "/info", info},
        {"GET", "/networks", networks}, {"GET", "/networks/bridge", network_bridge},
        {"GET", "/volumes", volumes},
    };
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++)
        if (strcmp(r->method, routes[i].method) == 0 && strcmp(r->path, routes[i].path) == 0) {
            routes[i].handle(r);
            return true;
        }
    return false;
}
