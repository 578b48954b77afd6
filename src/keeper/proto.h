/* SPDX-License-Identifier: Apache-2.0 */
/* proto.h: the messages between gateway and keeper: fixed structs over one SOCK_SEQPACKET socketpair.
 *
 * Every message is exactly one struct, with at most one descriptor attached. The receiver checks version,
 * size, enum ranges and string termination as if an enemy had sent it (keeper_request_check). Every request
 * gets exactly one reply with its seq, in any order; events have seq 0. */
#pragma once

#include "base/id.h"
#include "base/limits.h"
#include "keeper/proto_volume.h"
#include "keeper/proto_image.h"
#include "keeper/proto_network.h"

enum { KEEPER_PROTO_VERSION = 1 };

enum keeper_type {
    KEEPER_START =
        1,          /* create or wake: image, limits; attached: env memfd ("K=V\0K=V\0", sealed) or none.
                     * Reply: attached a connected agent socket. Already running: same, generation unchanged */
    KEEPER_CONNECT, /* reply: attached one more connected agent socket */
    KEEPER_STOP,    /* end all processes, keep the files (sleep) */
    KEEPER_DESTROY, /* end everything, remove the files; fine when unknown */
    KEEPER_STATS,   /* reply: state and usage */
    KEEPER_FREEZE,  /* stop scheduling, keep memory */
    KEEPER_THAW,
    KEEPER_LIST,   /* one reply of type KEEPER_ITEM per known sandbox (same seq), then the KEEPER_REPLY */
    KEEPER_KILL,   /* as STOP, without asking the agent first: it does not answer */
    KEEPER_SOCKET, /* reply: attached a socket that the gateway may use and cannot make, see below */
    KEEPER_VOLUME_CREATE, /* volumes[0].name, volume_bytes; EEXIST. Durable when answered */
    KEEPER_VOLUME_REMOVE, /* volumes[0].name; EBUSY while a sandbox that runs has it, ENODEV when unknown */
    KEEPER_VOLUME_LIST,   /* one KEEPER_ITEM per volume, or for volumes[0].name only, then the KEEPER_REPLY */
    KEEPER_IMAGE_LIST,    /* reply: attached a memfd full of struct keeper_image_record */
    KEEPER_IMAGE_IMPORT,  /* a KEEPER_IMAGE_STREAM that takes the archive, PROGRESS, ITEMs, then the
                             KEEPER_REPLY */
    KEEPER_IMAGE_EXPORT,  /* image; a KEEPER_IMAGE_STREAM that gives the archive, then the KEEPER_REPLY */
    KEEPER_IMAGE_SAVE,    /* id: a sandbox, or image: what it was made from; attached: the configuration's
                           * changes,    JSON in a memfd, or none. ITEM, then the KEEPER_REPLY */
    KEEPER_IMAGE_TAG,     /* image, reference; durable when answered */
    KEEPER_IMAGE_UNTAG,   /* reference */
    KEEPER_IMAGE_REMOVE,  /* image, with all its references */
    KEEPER_IMAGE_PRUNE,   /* images without a name that no sandbox uses, each told by a KEEPER_IMAGE_GONE */
    KEEPER_NETWORK, /* a running sandbox: network and policy from now on; the addresses of ALLOW are forgotten
                     * unless the policy keeps them */
    KEEPER_ALLOW,   /* an ALLOWLIST sandbox: the policy's rules (single public addresses) hold for its seconds
                     */
    KEEPER_CUT,     /* ends the connections of a running sandbox that it could not make any more */
    KEEPER_TYPE_COUNT,

    KEEPER_REPLY = 100,
    KEEPER_ITEM,
    KEEPER_EVENT_EXIT,    /* a running sandbox ended by itself: id, generation, exit_code */
    KEEPER_EVENT_DURABLE, /* the record of a sandbox whose START was answered with durable == 0 is on disk now
                           * (error: it is not, and the sandbox is being removed). Until then no caller may
                           * hear of it */
    KEEPER_IMAGE_ITEM,    /* an image was made */
    KEEPER_IMAGE_STREAM,  /* attached: one end of a stream */
    KEEPER_IMAGE_PROGRESS,
    KEEPER_IMAGE_GONE,
};

enum keeper_state {
    KEEPER_STATE_ABSENT,
    KEEPER_STATE_STOPPED, /* files only */
    KEEPER_STATE_RUNNING,
    KEEPER_STATE_FROZEN,
    KEEPER_STATE_COUNT,
};

enum keeper_network {
    KEEPER_NETWORK_DEFAULT,   /* what the daemon gives */
    KEEPER_NETWORK_NONE,      /* the loopback interface only */
    KEEPER_NETWORK_PUBLIC,    /* public addresses; refused with ENONET where there is no network */
    KEEPER_NETWORK_SIDECAR,   /* loopback only, where every TCP connection ends up at KEEPER_PORT_CATCHER */
    KEEPER_NETWORK_ALLOWLIST, /* the policy's rules, and what is added by ALLOW; ENONET likewise */
    KEEPER_NETWORK_COUNT,
};

/* Sockets of KEEPER_SOCKET: non-blocking, IPv4. Those inside belong to the network namespace of a running
 * sandbox and keep it alive: whoever has them closes them when it ends. */
enum keeper_socket {
    KEEPER_SOCKET_NONE,        /* all other requests */
    KEEPER_SOCKET_LISTEN,      /* inside: TCP, listening on address:port */
    KEEPER_SOCKET_UDP,         /* inside: UDP, bound to address:port; with IP_PKTINFO */
    KEEPER_SOCKET_DIAL,        /* host: TCP, being connected to 127.0.0.1:port; for a SIDECAR sandbox */
    KEEPER_SOCKET_PUBLISH,     /* host: TCP, listening on 127.0.0.1:port, which may be 0; any id */
    KEEPER_SOCKET_RESOLVE_UDP, /* host: UDP, connected to the host's resolver number port, from 0 on; ENOENT
                                * when there are not that many */
    KEEPER_SOCKET_RESOLVE_TCP, /* host: TCP, being connected to it */
    KEEPER_SOCKET_FLOWS, /* host: netlink, tells of connections of sandboxes as they begin and end; any id */
    KEEPER_SOCKET_REFUSED, /* host: netlink, tells of packets of sandboxes that were refused; any id */
    KEEPER_SOCKET_ANSWERS, /* host: netlink, tells of what name servers answered sandboxes; any id */
    KEEPER_SOCKET_COUNT,
};
enum keeper_socket_address {
    KEEPER_ADDRESS_ANY,
    KEEPER_ADDRESS_LOOPBACK,
    KEEPER_ADDRESS_COUNT,
};
enum { KEEPER_HOST_PORT_MIN = 1024 }; /* of DIAL and PUBLISH: those below belong to the host's own services */
enum { KEEPER_PORT_CATCHER = 39002, KEEPER_PORT_RESOLVER = 39053, KEEPER_RESOLVERS_MAX = 3 };

struct keeper_request {
    uint32_t version;
    uint32_t type;
    uint64_t seq;
    char id[SANDBOX_ID_MAX + 1];
    char image[IMAGE_NAME_MAX + 1];
    struct limits limits; /* START of an unknown id only */
    uint32_t network;     /* every START: a sandbox that sleeps has no link */
    uint32_t reserved;    /* 0 */
    struct {
        uint32_t kind;    /* enum keeper_socket */
        uint32_t address; /* enum keeper_socket_address; LISTEN and UDP only */
        uint32_t port;
        uint32_t reserved;                                  /* 0 */
    } socket;                                               /* SOCKET only */
    struct keeper_policy policy;                            /* START, NETWORK, ALLOW */
    uint64_t volume_bytes;                                  /* VOLUME_CREATE only */
    char hostname[MACHINE_NAME_MAX + 1];                    /* every START; "": the usual one */
    struct keeper_volume_mount volumes[KEEPER_VOLUMES_MAX]; /* every START: mounted when its life begins */
    struct keeper_image_ask ask;                            /* IMAGE_* only */
};

struct keeper_usage {
    uint64_t memory_bytes, memory_peak_bytes;
    uint64_t oom_kills;
    uint64_t cpu_us;
    uint64_t disk_bytes;
    uint64_t network_rx_bytes, network_tx_bytes; /* of its link, as the sandbox sees it */
    uint32_t tasks;
    uint32_t reserved;
};

struct keeper_reply {
    uint32_t version;
    uint32_t type;
    uint64_t seq;
    int32_t error; /* 0 or a positive errno: EAGAIN/ENOSPC/ENOMEM = the host is full, ENOENT = unknown id or
                    * image, ENODEV = unknown volume, ENOTBLK = a volume cannot be mounted at its path,
                    * EOPNOTSUPP = the kernel lacks a layer, ETIMEDOUT, EIO = anything else */
    uint32_t state;
    uint64_t generation; /* differs for every start of an id; 0 when not running */
    uint32_t durable;    /* START: the sandbox's record is on disk; else KEEPER_EVENT_DURABLE follows */
    uint32_t exit_code;  /* EXIT: the first process's status, or 128 + signal; ITEM: that of its last EXIT */
    uint32_t address;    /* of its link, network order; 0: it has none */
    uint32_t reserved;
    struct ip address6; /* likewise; none unless the daemon gives IPv6 */
    char id[SANDBOX_ID_MAX + 1];
    char message[256]; /* a sentence without host paths when error != 0 */
    struct keeper_usage usage;
    struct keeper_volume_tell volume; /* ITEM of VOLUME_LIST, reply to VOLUME_CREATE; otherwise empty */
    struct keeper_image_tell tell;    /* replies to IMAGE_* */
};

/* 0 or -EBADMSG: everything about the request that does not depend on the keeper's state. */
int keeper_request_check(const void *data, size_t n);
int keeper_reply_check(const void *data, size_t n);

static inline bool keeper_type_is_image(uint32_t type)
{
    return type >= KEEPER_IMAGE_LIST && type <= KEEPER_IMAGE_PRUNE;
}
