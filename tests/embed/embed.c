/* A program with a tunnel inside: it does what it is told on standard input, one command in a line, and answers each in
 * one line. The scenario tests/netns/embed.sh speaks to it.
 *
 *   embed                                commands from standard input
 *   embed exec NAME PROGRAM ARGUMENT...  PROGRAM with WG_TUN_FD, a TUN device NAME as an app gets it
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "linerate.h"

/* The same numbers are in crates/ffi/src/abi/c.rs. */
_Static_assert(sizeof(lr_host) == 5 * sizeof(size_t) + 8, "lr_host");
_Static_assert(offsetof(lr_host, event) == 4 * sizeof(size_t), "lr_host.event");

#define MARK 7 /* of sockets that were protected, as Android's netd does it */

static lr_tunnel *tunnel;
static atomic_int protected, bound_before, handshakes, silent, ended, from_callback;

static int tun(const char *name) {
  struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
  int fd = open("/dev/net/tun", O_RDWR);
  strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  if (fd < 0 || ioctl(fd, TUNSETIFF, &request) < 0) {
    perror(name);
    exit(2);
  }
  return fd;
}

static int protect(void *user, int fd) {
  struct sockaddr_storage address = {0};
  socklen_t size = sizeof address;
  int mark = MARK;
  if (user != &protected || getsockname(fd, (struct sockaddr *)&address, &size) < 0) return 0;
  /* The port is at the same place in both families. */
  if (((struct sockaddr_in *)&address)->sin_port != 0) bound_before++;
  if (lr_network(tunnel, LR_NETWORK_CHANGED) == -EDEADLK) from_callback++;
  protected++;
  return setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof mark) == 0;
}

static int refuse(void *user, int fd) { return (void)user, (void)fd, 0; }

static void log_line(void *user, int level, const char *text) { (void)user, fprintf(stderr, "%d %s\n", level, text); }

static void event(void *user, int what, const char *detail) {
  (void)user;
  fprintf(stderr, "event %d %s\n", what, detail);
  if (what == LR_EVENT_HANDSHAKE) handshakes++;
  if (what == LR_EVENT_SILENT_PEER) silent++;
  if (what == LR_EVENT_ENDED) ended++;
  if (lr_stop(tunnel) == -EDEADLK) from_callback++;
}

static const lr_host host = {
    .size = sizeof host, .user = &protected, .protect = protect, .log = log_line, .event = event, .log_level = LR_LOG_DEBUG};

static char *file(const char *path) {
  static char text[65536];
  FILE *from = fopen(path, "r");
  size_t length = from ? fread(text, 1, sizeof text - 1, from) : 0;
  if (from) fclose(from);
  text[length] = 0;
  return text;
}

static void check(const char *what, int right) {
  if (right) return;
  printf("wrong: %s\n", what);
  exit(1);
}

static int closed(int fd) { return fcntl(fd, F_GETFD) < 0; }

static void *caller(void *settings) {
  char text[4096], why[100];
  for (int i = 0; i < 300; i++) {
    size_t length = sizeof text;
    switch ((i + (int)((uintptr_t)&text >> 12)) % 4) {
      case 0: lr_get(tunnel, (unsigned)i % 3, text, &length); break;
      case 1: lr_set(tunnel, settings, why, sizeof why); break;
      case 2: lr_network(tunnel, 1 + i / 4 % 2); break;
      default: if (i > 250) lr_stop(tunnel);
    }
  }
  return NULL;
}

/* Calls that no program should make: each is refused, and nothing is left of it. */
static void hostile(const char *settings) {
  char why[200], tiny[2] = "x";
  size_t length = 1;
  lr_tunnel *none = NULL, *wild[] = {NULL, (lr_tunnel *)1000000, (lr_tunnel *)-1, (lr_tunnel *)&length};
  int fd;
  for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
    check("set without a tunnel", lr_set(wild[i], settings, why, sizeof why) == -EBADF && strlen(why) > 10);
    check("get without a tunnel", lr_get(wild[i], 0, why, &length) == -EBADF);
    check("network without a tunnel", lr_network(wild[i], LR_NETWORK_LOST) == -EBADF);
    check("stop without a tunnel", lr_stop(wild[i]) == -EBADF);
    fd = tun("hostile");
    check("tun without a tunnel", lr_tun(wild[i], fd, why, sizeof why) == -EBADF && closed(fd));
  }
  for (fd = -2; fd < 3; fd++)
    check("a number that is none", lr_start("t", fd, settings, NULL, &none, why, sizeof why) == -EBADF && !none);
  check("a closed descriptor", lr_start("t", 900, settings, NULL, &none, why, sizeof why) == -EBADF && !none);
  fd = open("/dev/null", O_RDWR);
  check("another driver's", lr_start("t", fd, settings, NULL, &none, why, sizeof why) == -EINVAL && closed(fd) && !none);
  check("a reason", strstr(why, "TUN") != NULL);
  fd = open("/dev/net/tun", O_RDWR);
  check("no interface", lr_start("t", fd, settings, NULL, &none, why, sizeof why) == -EINVAL && closed(fd) && !none);
  fd = tun("hostile");
  check("no name", lr_start(NULL, fd, settings, NULL, &none, why, sizeof why) == -EINVAL && closed(fd) && !none);
  fd = tun("hostile");
  check("no settings", lr_start("t", fd, NULL, NULL, &none, NULL, 0) == -EINVAL && closed(fd) && !none);
  fd = tun("hostile");
  check("no place", lr_start("t", fd, settings, NULL, NULL, tiny, 1) == -EINVAL && closed(fd) && tiny[0] == 0);
  static const char *bad[] = {"private_key=12\n", "public_key=zz\nendpoint=nowhere\n", "x", "listen_port=65536\n", "=\n",
                              "set=1\n", "allowed_ip=10.0.0.0/8\n", "\xff\xfe=\x80\n", "fwmark=-1\n"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    fd = tun("hostile");
    check(bad[i], lr_start("t", fd, bad[i], NULL, &none, why, sizeof why) < 0 && closed(fd) && !none);
    check(bad[i], strlen(why) > 10 && lr_set(tunnel, bad[i], NULL, 0) < 0);
  }
  lr_host wrong = host;
  wrong.size = 8, fd = tun("hostile");
  check("a small lr_host", lr_start("t", fd, settings, &wrong, &none, why, sizeof why) == -EINVAL && closed(fd) && !none);
  wrong = host, wrong.protect = refuse, fd = tun("hostile");
  check("a refused socket", lr_start("t", fd, "listen_port=0\n", &wrong, &none, why, sizeof why) < 0 && closed(fd) && !none);
  check("get of nothing", lr_get(tunnel, 99, why, &length) == -EINVAL && lr_get(tunnel, 0, why, NULL) == -EINVAL);
  length = 1;
  check("get without room", lr_get(tunnel, 0, tiny, &length) == -ERANGE && length > 100 && tiny[0] == 0);
  length = 0;
  check("get for the size", lr_get(tunnel, 1, NULL, &length) == -ERANGE && length > 1);
  check("network of nothing", lr_network(tunnel, 0) == -EINVAL);
  fd = open("/dev/null", O_RDWR);
  check("another driver's, in place", lr_tun(tunnel, fd, why, sizeof why) == -EINVAL && closed(fd));
}

/* Several threads at once, of which some stop the tunnel under the others. */
static void crowd(char *settings) {
  lr_tunnel *before = tunnel;
  pthread_t threads[8];
  for (int round = 0; round < 20; round++) {
    check("start", lr_start("crowd", tun("crowd"), settings, NULL, &tunnel, NULL, 0) == 0);
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, caller, settings);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    lr_stop(tunnel);
    check("stopped twice", lr_stop(tunnel) == -EBADF);
  }
  tunnel = before;
}

static void command(char *line) {
  char why[200] = "", text[65536], *word = strtok(line, " \n"), *argument = strtok(NULL, " \n"), *more = strtok(NULL, " \n");
  size_t length = sizeof text;
  int answer = 0;
  if (!word) return;
  if (!strcmp(word, "start")) answer = lr_start(argument, tun(argument), file(more), &host, &tunnel, why, sizeof why);
  else if (!strcmp(word, "set")) answer = lr_set(tunnel, file(argument), why, sizeof why);
  else if (!strcmp(word, "network")) answer = lr_network(tunnel, atoi(argument));
  else if (!strcmp(word, "tun")) answer = lr_tun(tunnel, tun(argument), why, sizeof why);
  else if (!strcmp(word, "stop")) answer = lr_stop(tunnel);
  else if (!strcmp(word, "hostile")) hostile(file(argument));
  else if (!strcmp(word, "crowd")) crowd(file(argument));
  else if (!strcmp(word, "counts"))
    snprintf(why, sizeof why, "protected=%d bound=%d handshakes=%d silent=%d ended=%d deadlocks=%d", protected, bound_before,
             handshakes, silent, ended, from_callback > 0);
  else if (!strcmp(word, "get") && !(answer = lr_get(tunnel, (unsigned)atoi(argument), text, &length))) {
    for (char *end = text; (end = strchr(end, '\n'));) *end = ' ';
    printf("0 %s\n", text);
    return;
  }
  printf("%d %s\n", answer, why);
}

int main(int argc, char **argv) {
  char line[4096], number[12];
  if (argc > 3 && !strcmp(argv[1], "exec")) {
    snprintf(number, sizeof number, "%d", tun(argv[2]));
    setenv("WG_TUN_FD", number, 1);
    execvp(argv[3], argv + 3);
    return perror(argv[3]), 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  printf("%s\n", lr_version());
  while (fgets(line, sizeof line, stdin)) command(line);
  return 0;
}
