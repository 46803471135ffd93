# A wall clock that is late for one program, sourced after lib.sh: the machine's clock stays as it is.
#
#   late SECONDS                        by how much
#   "${by_late_clock[@]}" PROGRAM ...   runs a program that asks the wall clock of this library
need cc readelf
grep -q INTERP <<<"$(readelf -l "$TUNNEL_DAEMON")" || skip "a static daemon asks no library for the time"
cat >"$WORK/late.c" <<'C'
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static int file = -1;
/* Before the daemon gives up the right to open files. */
__attribute__((constructor)) static void begin(void) { file = open(getenv("LATE"), O_RDONLY | O_CLOEXEC); }
int clock_gettime(clockid_t clock, struct timespec *time) {
  int result = syscall(SYS_clock_gettime, clock, time);
  char seconds[32] = "";
  if (clock == CLOCK_REALTIME && pread(file, seconds, sizeof seconds - 1, 0) > 0) time->tv_sec -= atol(seconds);
  return result;
}
C
cc -shared -fPIC -o "$WORK/late.so" "$WORK/late.c" || skip "cc cannot make a library"
late() { echo "$1" >"$WORK/late"; } # SECONDS
by_late_clock=(env LATE="$WORK/late" LD_PRELOAD="$WORK/late.so")
