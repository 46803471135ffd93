/* What tests/embed/java/Embed.java cannot do by itself. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <jni.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Goes to a namespace with this thread; returns the way back. */
static int enter(JNIEnv *env, jstring namespace) {
  const char *path = (*env)->GetStringUTFChars(env, namespace, NULL);
  int back = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC), there = open(path, O_RDONLY | O_CLOEXEC);
  setns(there, CLONE_NEWNET);
  close(there);
  (*env)->ReleaseStringUTFChars(env, namespace, path);
  return back;
}

static void leave(int back) { setns(back, CLONE_NEWNET), close(back); }

static struct sockaddr_in at(JNIEnv *env, jstring address, jint port) {
  const char *text = (*env)->GetStringUTFChars(env, address, NULL);
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = inet_addr(text)};
  (*env)->ReleaseStringUTFChars(env, address, text);
  return in;
}

JNIEXPORT jint JNICALL Java_Descriptors_tun(JNIEnv *env, jclass class, jstring namespace, jstring name) {
  struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
  const char *text = (*env)->GetStringUTFChars(env, name, NULL);
  int back = enter(env, namespace), fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
  (void)class;
  strncpy(request.ifr_name, text, IFNAMSIZ - 1);
  if (ioctl(fd, TUNSETIFF, &request) < 0) close(fd), fd = -1;
  leave(back);
  (*env)->ReleaseStringUTFChars(env, name, text);
  return fd;
}

JNIEXPORT jint JNICALL Java_Descriptors_duplicate(JNIEnv *env, jclass class, jint fd) {
  return (void)env, (void)class, dup(fd);
}

JNIEXPORT jint JNICALL Java_Descriptors_udp(JNIEnv *env, jclass class, jstring namespace, jstring address, jint port) {
  int back = enter(env, namespace), fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in in = at(env, address, port);
  struct timeval most = {.tv_sec = 10};
  (void)class;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  if (bind(fd, (struct sockaddr *)&in, sizeof in) < 0) close(fd), fd = -1;
  leave(back);
  return fd;
}

JNIEXPORT jboolean JNICALL Java_Descriptors_exchange(JNIEnv *env, jclass class, jint from, jint to, jstring address,
                                                     jint port) {
  static unsigned number;
  unsigned sent = ++number, received;
  struct sockaddr_in in = at(env, address, port);
  (void)class;
  return sendto(from, &sent, sizeof sent, 0, (struct sockaddr *)&in, sizeof in) == sizeof sent &&
         recv(to, &received, sizeof received, 0) == sizeof received && received == sent;
}
