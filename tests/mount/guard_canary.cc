// A shared library that leaves a mark wherever it is loaded: for guard_environment_test.cc. It can be loaded by the
// loader (LD_PRELOAD, LD_AUDIT, LD_LIBRARY_PATH) and by iconv (GCONV_PATH).
//
// Its constructor makes the file whose path is the content of bin/mark, below the working directory, and the file
// /tmp/canary-inside where there is a /sandbox: what a confined command may do.
#include <fcntl.h>
#include <unistd.h>

namespace {

void touch(const char* path) {
  const int file = ::open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file >= 0) ::close(file);
}

__attribute__((constructor)) void leave_a_mark() {
  if (::access("/sandbox", F_OK) == 0) touch("/tmp/canary-inside");
  const int file = ::open("bin/mark", O_RDONLY | O_CLOEXEC);
  char path[512] = {};
  if (file < 0 || ::read(file, path, sizeof path - 1) <= 0) return;
  for (char& each : path) {
    if (each == '\n') each = 0;
  }
  ::close(file);
  touch(path);
}

}  // namespace

extern "C" {
unsigned la_version(unsigned version) { return version; }
int gconv_init(void*) { return 0; }
int gconv(void*, void*, const void**, const void*, void**, unsigned long*, int, int) { return 0; }
void gconv_end(void*) {}
}
