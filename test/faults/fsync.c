/* Preloaded into a Redis. Logs how many bytes of each append-only file have reached the disk, as lines "<bytes> <path>" in
   FSYNC_LOG. After a kill, written data is still in the system's memory; after a power failure, only these bytes are left. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int note(const char *name, int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  /* The size before: what is written meanwhile may or may not be included. */
  struct stat before;
  fstat(fd, &before);
  int result = real(fd);
  if (result != 0) return result;
  char link[64], path[1024], line[1100];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return result;
  path[length] = 0;
  if (strstr(path, ".incr.aof") == NULL) return result;
  int log = open(getenv("FSYNC_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  int bytes = snprintf(line, sizeof line, "%lld %s\n", (long long)before.st_size, path);
  if (log < 0 || write(log, line, bytes) != bytes) abort();
  close(log);
  return result;
}

int fsync(int fd) { return note("fsync", fd); }
int fdatasync(int fd) { return note("fdatasync", fd); }
