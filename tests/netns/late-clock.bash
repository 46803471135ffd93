# A wall clock that is late for some programs, sourced after lib.sh: the machine's clock stays as it is, and so do the clocks
# that waits are measured by.
#
#   late SECONDS [CLOCK]                by how much, -2.5 say for one that is fast; CLOCK where there are several
#   "${by_late_clock[@]}" PROGRAM ...   runs a program that asks the wall clock of this library
#   by_clock CLOCK                      its environment for another clock: two words NAME=VALUE
need cc readelf
grep -q INTERP <<<"$(readelf -l "$TUNNEL_DAEMON")" || skip "a static daemon asks no library for the time"
cat >"$WORK/late.c" <<'C'
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
enum { SECOND = 1000000000 };
static const char *text = "0";
/* Before the program gives up the right to open files. */
__attribute__((constructor)) static void begin(void) {
  int file = open(getenv("LATE"), O_RDONLY | O_CLOEXEC);
  void *page = mmap(NULL, 32, PROT_READ, MAP_SHARED, file, 0);
  if (page != MAP_FAILED) text = page;
}
int clock_gettime(clockid_t clock, struct timespec *time) {
  int result = syscall(SYS_clock_gettime, clock, time);
  if (clock == CLOCK_REALTIME && result == 0) {
    long long late = atoll(text), now = (long long)time->tv_sec * SECOND + time->tv_nsec - late;
    time->tv_sec = now / SECOND, time->tv_nsec = now % SECOND;
  }
  return result;
}
C
cc -shared -fPIC -o "$WORK/late.so" "$WORK/late.c" || skip "cc cannot make a library"
# Written over what is there: a file that is empty for a moment would be a clock that is right for a moment.
late() { printf '%-31s\n' "$(awk "BEGIN { printf \"%.0f\", $1 * 1e9 }")" 1<>"$WORK/late${2:+.$2}"; } # SECONDS [CLOCK]
by_clock() { echo "LATE=$WORK/late.$1 LD_PRELOAD=$WORK/late.so"; }                              # CLOCK
by_late_clock=(env LATE="$WORK/late" LD_PRELOAD="$WORK/late.so")
