// What a hostile native program tries, by system calls of its own (no C library in between): for guard_test.cc.
//
//   guard_probe change DIRECTORY    every call that would change something below it: "NAME ERRNO" a line
//   guard_probe map FILE            writes through mappings of a file: "NAME ERRNO" a line
//   guard_probe race SECRET SECONDS moves links and directories about in the working directory while others walk
//                                   through them: "escaped N" and "read N" a line
//   guard_probe look PATH...        "PATH ERRNO" for each that is opened
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

void tell(const char* name, long result) {
  std::printf("%s %s\n", name, result < 0 ? strerrorname_np(errno) : "ok");
}

long open_call(const std::string& path, long flags, long mode = 0644) {
  const long descriptor = ::syscall(SYS_openat, AT_FDCWD, path.c_str(), flags, mode);
  if (descriptor >= 0) ::close(static_cast<int>(descriptor));
  return descriptor;
}

int change(const std::string& top) {
  const std::string file = top + "/a.txt", fresh = top + "/fresh", directory = top + "/dir";
  const auto cwd = AT_FDCWD;
  const timespec times[2] = {{1, 0}, {1, 0}};
  tell("open-write", open_call(file, O_WRONLY));
  tell("open-both", open_call(file, O_RDWR));
  tell("open-append", open_call(file, O_WRONLY | O_APPEND));
  tell("open-truncate", open_call(file, O_RDONLY | O_TRUNC));
  tell("open-create", open_call(fresh, O_RDONLY | O_CREAT));
  tell("open-exclusive", open_call(fresh, O_WRONLY | O_CREAT | O_EXCL));
  open_how how{};
  how.flags = O_WRONLY;
  tell("openat2-write", ::syscall(SYS_openat2, cwd, file.c_str(), &how, sizeof how));
  tell("mkdir", ::syscall(SYS_mkdirat, cwd, fresh.c_str(), 0755));
  tell("mknod", ::syscall(SYS_mknodat, cwd, fresh.c_str(), S_IFIFO | 0644, 0));
  tell("rmdir", ::syscall(SYS_unlinkat, cwd, directory.c_str(), AT_REMOVEDIR));
  tell("unlink", ::syscall(SYS_unlinkat, cwd, file.c_str(), 0));
  tell("rename", ::syscall(SYS_renameat2, cwd, file.c_str(), cwd, fresh.c_str(), 0));
  tell("exchange", ::syscall(SYS_renameat2, cwd, file.c_str(), cwd, directory.c_str(), RENAME_EXCHANGE));
  tell("link", ::syscall(SYS_linkat, cwd, file.c_str(), cwd, fresh.c_str(), 0));
  tell("symlink", ::syscall(SYS_symlinkat, "a.txt", cwd, fresh.c_str()));
  tell("chmod", ::syscall(SYS_fchmodat, cwd, file.c_str(), 0600));
  tell("chown", ::syscall(SYS_fchownat, cwd, file.c_str(), ::getuid(), ::getgid(), 0));
  tell("truncate", ::syscall(SYS_truncate, file.c_str(), 0));
  tell("utimes", ::syscall(SYS_utimensat, cwd, file.c_str(), times, 0));
  tell("setxattr", ::syscall(SYS_setxattr, file.c_str(), "user.x", "1", 1, 0));
  tell("removexattr", ::syscall(SYS_removexattr, file.c_str(), "user.x"));
  const int reader = ::open(file.c_str(), O_RDONLY);
  tell("fchmod", ::syscall(SYS_fchmod, reader, 0600));
  tell("fchown", ::syscall(SYS_fchown, reader, ::getuid(), ::getgid()));
  tell("futimes", ::syscall(SYS_utimensat, reader, nullptr, times, 0));
  tell("fsetxattr", ::syscall(SYS_fsetxattr, reader, "user.x", "1", 1, 0));
  // Through the descriptor's name in /proc, which is the file itself.
  tell("reopen", open_call("/proc/self/fd/" + std::to_string(reader), O_WRONLY));
  // What a descriptor for reading does not allow has its own errors, but changes nothing either.
  tell("write", ::syscall(SYS_write, reader, "x", 1));
  tell("ftruncate", ::syscall(SYS_ftruncate, reader, 0));
  tell("fallocate", ::syscall(SYS_fallocate, reader, 0, 0, 4096));
  tell("copy_file_range", ::syscall(SYS_copy_file_range, reader, nullptr, reader, nullptr, 1, 0));
  return 0;
}

int map(const std::string& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY);
  void* const shared = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, descriptor, 0);
  tell("map-shared-for-writing",
       ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) == MAP_FAILED ? -1 : 0);
  tell("make-writable", ::mprotect(shared, 4096, PROT_READ | PROT_WRITE));
  const int memory = ::open("/proc/self/mem", O_RDWR);
  // The kernel breaks a private copy off, or refuses: the file stays as it is.
  tell("write-by-proc-mem", ::pwrite(memory, "x", 1, static_cast<off_t>(reinterpret_cast<std::uintptr_t>(shared))));
  char* const own = static_cast<char*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0));
  own[0] = 'x';
  tell("sync-private", ::msync(own, 4096, MS_SYNC));
  return 0;
}

std::string content(const char* path) {
  const int descriptor = ::open(path, O_RDONLY);
  if (descriptor < 0) return {};
  char bytes[64];
  const ssize_t size = ::read(descriptor, bytes, sizeof bytes);
  ::close(descriptor);
  return {bytes, size > 0 ? static_cast<std::size_t>(size) : 0};
}

// In the working directory: inside/name is a file, and SECRET is "../NAME" of a file beside the directory. For so many
// seconds, and until something was read; for 0, until something of the other file was. Not longer than a minute more.
int race(const std::string& secret, int seconds) {
  ::mkdir("a", 0755);
  ::mkdir("a/b", 0755);
  std::atomic<bool> stop = false;
  std::atomic<long> escaped = 0, read = 0;
  const auto repeat = [&stop](auto action) { return std::thread([&stop, action] { while (!stop) action(); }); };
  std::vector<std::thread> threads;
  threads.push_back(repeat([&] {  // a link up and down
    ::unlink("a/l");
    if (::symlink(secret.c_str(), "a/l") == 0) ::rename("a/l", "l");
    ::rename("l", "a/l");
  }));
  threads.push_back(repeat([&] {  // one that leads out, where it would not
    ::unlink("m");
    if (::symlink(secret.c_str(), "m") == 0) ::rename("m", "a/b/m");
    ::unlink("a/b/m");
  }));
  threads.push_back(repeat([&] {  // a directory with a link in it, and a file in its place
    ::symlink(("../" + secret).c_str(), "a/b/deep");
    ::rename("a/b", "b");
    ::rename("b", "a/b");
    ::syscall(SYS_renameat2, AT_FDCWD, "a/l", AT_FDCWD, "a/b", RENAME_EXCHANGE);
    ::syscall(SYS_renameat2, AT_FDCWD, "a/l", AT_FDCWD, "a/b", RENAME_EXCHANGE);
  }));
  for (const char* path : {"l", "a/l", "m", "a/b/m", "a/b/deep", "b/deep"}) {
    threads.push_back(repeat([&escaped, &read, path] {
      const std::string found = content(path);
      if (found.find("outside") != std::string::npos) ++escaped;
      if (!found.empty()) ++read;
    }));
  }
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  const std::atomic<long>& awaited = seconds == 0 ? escaped : read;
  for (int tries = 0; awaited == 0 && tries < 6000; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("escaped %ld\nread %ld\n", escaped.load(), read.load());
  return 0;
}

int look(int count, char** paths) {
  for (int i = 0; i < count; ++i) tell(paths[i], open_call(paths[i], O_RDONLY));
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string what = count > 2 ? arguments[1] : "";
  if (what == "change") return change(arguments[2]);
  if (what == "map") return map(arguments[2]);
  if (what == "race" && count > 3) return race(arguments[2], std::atoi(arguments[3]));
  if (what == "look") return look(count - 2, arguments + 2);
  return 2;
}
