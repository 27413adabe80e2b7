/* Preloaded into a Redis. Its clock is this machine's clock plus the seconds at the beginning of the file CLOCK_FILE (an
   int64), which is read at each call. CLOCK_MONOTONIC is not changed. (libfaketime recurses without end with the jemalloc of
   Debian's redis-server.) */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;

__attribute__((constructor)) static void open_clock(void) {
  int fd = open(getenv("CLOCK_FILE"), O_RDONLY | O_CLOEXEC);
  void *map = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
  if (fd < 0 || map == MAP_FAILED) abort();
  shift = map;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  int result = syscall(SYS_clock_gettime, clock, at);
  if (shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += *shift;
  return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  int result = syscall(SYS_gettimeofday, at, zone);
  if (shift && at) at->tv_sec += *shift;
  return result;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
