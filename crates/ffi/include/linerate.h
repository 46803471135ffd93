/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * liblinerate: a WireGuard tunnel inside of a program that was given a TUN descriptor. docs/embedding.md explains it.
 *
 * Every function may be called by any thread, also by several at once, but not by a callback (EDEADLK). What is passed
 * in is only read during the call. Nothing is returned that the caller has to free. Where an int is returned, 0 is
 * success and -errno a refusal that has changed nothing. A handle that was stopped, or is none, is refused with -EBADF.
 */
#ifndef LINERATE_H
#define LINERATE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lr_tunnel lr_tunnel;

/* The levels of `log`. */
enum { LR_LOG_ERROR = 1, LR_LOG_WARN = 2, LR_LOG_INFO = 3, LR_LOG_DEBUG = 4 };

/* What `event` tells; `detail` is the peer's public key in hexadecimal, or why the tunnel has ended. */
enum {
  LR_EVENT_HANDSHAKE = 1,   /* a handshake with this peer is complete */
  LR_EVENT_SILENT_PEER = 2, /* this peer does not answer; once until its next handshake */
  LR_EVENT_ENDED = 3        /* the tunnel has ended by itself; lr_stop has still to be called */
};

/* What lr_get returns: lines of `key=value`. */
enum {
  LR_GET_CONFIGURATION = 0, /* as `get` of the UAPI, with keys */
  LR_GET_STATISTICS = 1,    /* traffic, last handshake and endpoint of every peer, without secrets */
  LR_GET_COUNTERS = 2       /* as `linerate show --stats` */
};

/* What lr_network is told. */
enum {
  LR_NETWORK_CHANGED = 1, /* there is another network, or one again */
  LR_NETWORK_LOST = 2     /* there is none: no timer runs until LR_NETWORK_CHANGED */
};

/* The program around a tunnel. Callbacks come from threads of the library, and from lr_start and lr_set; a callback
 * that waits delays the tunnel. Each may be NULL. Zero what you do not set. */
typedef struct {
  size_t size; /* sizeof(lr_host): the struct may grow */
  void *user;  /* the first argument of each callback */
  /* Keeps a socket out of the tunnel. Called with every socket, each time, before it is bound; nonzero is success. */
  int (*protect)(void *user, int fd);
  void (*log)(void *user, int level, const char *text);
  void (*event)(void *user, int what, const char *detail);
  unsigned log_level; /* the most that `log` gets: LR_LOG_...; 0 is LR_LOG_INFO */
  unsigned mtu;       /* that of the interface; 0 is 1420 */
} lr_host;

/* Starts a tunnel. From the call on `tun_fd` belongs to the library, whatever it answers: a TUN device without headers,
 * of one queue. `settings` are the lines of a UAPI `set`. `host` may be NULL. If it is refused, `why` gets the reason,
 * cut to `why_size` bytes with the zero. */
int lr_start(const char *name, int tun_fd, const char *settings, const lr_host *host, lr_tunnel **tunnel, char *why,
             size_t why_size);

/* Changes the configuration, entirely or not at all. */
int lr_set(lr_tunnel *tunnel, const char *settings, char *why, size_t why_size);

/* Writes what was asked for, and a zero, into `buffer` of `*length` bytes; `*length` becomes what that takes. -ERANGE if
 * it does not fit: nothing was written. */
int lr_get(lr_tunnel *tunnel, unsigned what, char *buffer, size_t *length);

/* The program has learnt this of its network. */
int lr_network(lr_tunnel *tunnel, int what);

/* Goes over to another interface; sessions stay. `tun_fd` as for lr_start. */
int lr_tun(lr_tunnel *tunnel, int tun_fd, char *why, size_t why_size);

/* Ends a tunnel. When it returns 0, no thread, no descriptor and no callback of the tunnel is left. */
int lr_stop(lr_tunnel *tunnel);

/* The version of the library: static. */
const char *lr_version(void);

#ifdef __cplusplus
}
#endif
#endif
