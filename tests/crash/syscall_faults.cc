// Runs a program and lets one of its system calls fail, end short, or be the last thing that its process does.
//
//   syscall_faults --control FD --below DIR... -- PROGRAM ARGUMENT...
//
// All system calls of all its threads and children that are about a file below DIR (or make a descriptor or a process)
// are counted together. A filter of seccomp stops each one, and this process answers for the kernel: seccomp(2), "user
// space notification". Nothing in the program is changed, so that SQLite, libgit2 and the C++ library are in it, too.
//
// Lines on the control socket, before the program starts and at any time afterwards:
//   arm KIND FIRST TIMES CALLS    from the FIRST call on that KIND applies to, TIMES of them; the answer is "armed".
//                                 KIND is the name of an error, SHORT (half of a write is done), KILL (SIGKILL before
//                                 a call that changes something), or CHANGE (a call that changes something, nothing is
//                                 done). CALLS are names with commas between, or *. FIRST 0: only listed.
//   start                         the program begins
//   disarm                        the answer is "report JSON": what was counted since, and which calls were struck
// When the program has ended: "exited STATUS", 128 + the signal for one that was killed, then the report.
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/crash/syscall_calls.h"

namespace escrow::test {
namespace {

namespace fs = std::filesystem;

#ifdef __x86_64__
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#else
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif
constexpr std::size_t kMostListed = 20'000;

[[noreturn]] void fail(const std::string& doing) { throw std::runtime_error(doing + ": " + std::strerror(errno)); }

int error_number(std::string_view name) {
  if (name == "ENOSPC") return ENOSPC;
  if (name == "EDQUOT") return EDQUOT;
  if (name == "EIO") return EIO;
  if (name == "EMFILE") return EMFILE;
  if (name == "ENOMEM") return ENOMEM;
  throw std::runtime_error("no such error: " + std::string(name));
}

// What is to happen, and what has happened since it was said.
struct Plan {
  std::string kind;
  std::uint64_t first = 0, times = 0;
  std::string calls = "*";
  std::uint64_t counted = 0;
  std::vector<std::string> listed, struck;

  bool names(std::string_view call) const {
    return calls == "*" || ("," + calls + ",").find("," + std::string(call) + ",") != std::string::npos;
  }
};

// What another process has in its memory, and behind its descriptors.
class Tracee {
 public:
  explicit Tracee(pid_t thread) : thread_(thread) {}

  std::string at(const std::string& what) const {
    char target[4096];
    const ssize_t length = ::readlink(("/proc/" + std::to_string(thread_) + "/" + what).c_str(), target, sizeof target);
    return length < 0 ? std::string() : std::string(target, static_cast<std::size_t>(length));
  }
  std::string descriptor(std::uint64_t number) const {
    return at("fd/" + std::to_string(static_cast<std::int32_t>(number)));
  }

  // Up to `length` bytes; fewer where the memory ends.
  std::string memory(std::uint64_t address, std::size_t length) const {
    std::string bytes(length, '\0');
    iovec here{bytes.data(), length}, there{reinterpret_cast<void*>(address), length};
    const ssize_t count = ::process_vm_readv(thread_, &here, 1, &there, 1, 0);
    bytes.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    return bytes;
  }

  std::string text(std::uint64_t address) const {
    std::string whole;
    while (address != 0 && whole.size() < 8192) {
      const std::size_t to_page_end = 4096 - address % 4096;
      const std::string piece = memory(address, to_page_end);
      const std::size_t end = piece.find('\0');
      whole += piece.substr(0, end);
      if (end != std::string::npos || piece.size() < to_page_end) break;
      address += to_page_end;
    }
    return whole;
  }

  std::string path(std::uint64_t directory, std::uint64_t address) const {
    const std::string name = text(address);
    if (name.starts_with('/')) return fs::path(name).lexically_normal();
    const std::string below = static_cast<std::int32_t>(directory) == AT_FDCWD ? at("cwd") : descriptor(directory);
    return name.empty() ? below : (fs::path(below) / name).lexically_normal().string();
  }

  pid_t process() const {
    std::FILE* status = std::fopen(("/proc/" + std::to_string(thread_) + "/status").c_str(), "re");
    char line[256];
    pid_t found = thread_;
    while (status != nullptr && std::fgets(line, sizeof line, status) != nullptr) std::sscanf(line, "Tgid: %d", &found);
    if (status != nullptr) std::fclose(status);
    return found;
  }

 private:
  const pid_t thread_;
};

std::vector<std::string> files_of(const Call& call, const Tracee& tracee, const __u64* arguments) {
  constexpr auto kHere = static_cast<std::uint64_t>(AT_FDCWD);
  switch (call.names) {
    case Names::descriptor: return {tracee.descriptor(arguments[0])};
    case Names::path: return {tracee.path(kHere, arguments[0])};
    case Names::path_at: return {tracee.path(arguments[0], arguments[1])};
    case Names::path_at_second: return {tracee.path(arguments[1], arguments[2])};
    case Names::two_paths: return {tracee.path(kHere, arguments[0]), tracee.path(kHere, arguments[1])};
    case Names::two_paths_at:
      return {tracee.path(arguments[0], arguments[1]), tracee.path(arguments[2], arguments[3])};
    case Names::output: return {tracee.descriptor(arguments[2])};
    case Names::mapping: return {tracee.descriptor(arguments[4])};
    case Names::nothing: return {};
  }
  return {};
}

// The argument with the flags of an open; nullopt: it is none.
std::optional<std::uint64_t> open_flags(const Call& call, const __u64* arguments) {
  if (call.name == "openat") return arguments[2];
  if (call.name == "open") return arguments[1];
  if (call.name == "creat") return O_CREAT | O_TRUNC;
  return std::nullopt;
}

bool applies(const std::string& kind, const Call& call, const Tracee& tracee, const __u64* arguments) {
  const auto flags = open_flags(call, arguments);
  if (kind == "KILL" || kind == "CHANGE") {
    return call.changes && (!flags || (*flags & (O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY))) != 0);
  }
  if (call.name == "fcntl") {
    const auto command = static_cast<int>(arguments[1]);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) return kind == "EMFILE";
    const bool locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
    if (!locks) return false;
    const std::string lock = tracee.memory(arguments[2], sizeof(short));
    if (lock.size() == sizeof(short) && *reinterpret_cast<const short*>(lock.data()) == F_UNLCK) return false;
  }
  if (flags && (*flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) == 0 && (kind == "ENOSPC" || kind == "EDQUOT"))
    return false;
  if (kind == "SHORT" && arguments[2] < 2) return false;
  return call.errors.find(" " + kind + " ") != std::string_view::npos;
}

class Supervisor {
 public:
  Supervisor(int control, std::vector<std::string> below) : control_(control), below_(std::move(below)) {}

  int run(char** command) {
    while (!started_ && read_control()) {
    }
    if (!started_) return 1;
    begin(command);
    const int child_ends = static_cast<int>(::syscall(SYS_pidfd_open, child_, 0));
    if (child_ends < 0) fail("watch the program");
    for (bool others = true; others || !status_;) {
      pollfd ready[3] = {{listener_, POLLIN, 0}, {control_, POLLIN, 0}, {status_ ? -1 : child_ends, POLLIN, 0}};
      if (::poll(ready, 3, -1) < 0 && errno != EINTR) fail("wait for system calls");
      if ((ready[0].revents & POLLIN) != 0) answer();
      if ((ready[0].revents & POLLHUP) != 0) {
        others = false;
        listener_ = -1;
      }
      if (ready[1].revents != 0 && !read_control()) ::kill(child_, SIGKILL), control_ = -1;
      if ((ready[2].revents & POLLIN) != 0) reap();
    }
    return *status_;
  }

 private:
  void say(const std::string& line) const { (void)!::write(control_, (line + "\n").data(), line.size() + 1); }

  // False: nobody is there any more.
  bool read_control() {
    char buffer[512];
    const ssize_t count = ::read(control_, buffer, sizeof buffer);
    if (count <= 0) return false;
    said_.append(buffer, static_cast<std::size_t>(count));
    for (std::size_t end; (end = said_.find('\n')) != std::string::npos; said_.erase(0, end + 1)) {
      std::istringstream line(said_.substr(0, end));
      std::string verb;
      line >> verb;
      if (verb == "arm") {
        Plan plan;
        if (!(line >> plan.kind >> plan.first >> plan.times >> plan.calls)) throw std::runtime_error("not understood");
        plan_ = std::move(plan);
        say("armed");
      } else if (verb == "disarm") {
        say("report " + report());
        plan_.reset();
      } else if (verb == "start") {
        started_ = true;
      } else {
        throw std::runtime_error("not understood: " + verb);
      }
    }
    return true;
  }

  static std::string list(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) {
      all += all.empty() ? "\"" : ",\"";
      for (const char c : text) {
        if (c == '"' || c == '\\') all += '\\';
        all += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
      }
      all += '"';
    }
    return "[" + all + "]";
  }

  std::string report() const {
    const Plan plan = plan_.value_or(Plan{});
    return "{\"counted\":" + std::to_string(plan.counted) + ",\"struck\":" + list(plan.struck) +
           ",\"listed\":" + list(plan.listed) + "}";
  }

  void begin(char** command) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) fail("make a pair of sockets");
    child_ = ::fork();
    if (child_ < 0) fail("start a process");
    if (child_ == 0) become(pair[1], command);
    ::close(pair[1]);
    listener_ = received(pair[0]);
    ::close(pair[0]);
#ifdef SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
    ::ioctl(listener_, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);  // only faster
#endif
  }

  [[noreturn]] void become(int channel, char** command) const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::geteuid() != 0) ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const auto load = [](std::size_t offset) {
      return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
    };
    std::vector<sock_filter> filter{load(offsetof(seccomp_data, arch)),
                                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
                                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW), load(offsetof(seccomp_data, nr))};
    for (const Call* call = begin_calls(); call != end_calls(); ++call) {
      filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call->number), 0, 1));
      filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
    }
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    const auto listener =
        ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                  SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &program);
    send_descriptor(channel, static_cast<int>(listener));
    if (listener < 0) {
      std::perror("syscall_faults: seccomp(2)");
      ::_exit(125);
    }
    ::syscall(SYS_close, static_cast<int>(listener));
    ::syscall(SYS_close, control_);
    ::execvp(command[0], command);
    std::perror(command[0]);
    ::_exit(127);
  }

  static void send_descriptor(int channel, int descriptor) {
    char byte = descriptor < 0 ? 'n' : 'y';
    iovec data{&byte, 1};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
      message.msg_control = space;
      message.msg_controllen = sizeof space;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    }
    ::sendmsg(channel, &message, 0);
  }

  static int received(int channel) {
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    if (::recvmsg(channel, &message, MSG_CMSG_CLOEXEC) != 1) fail("receive the filter");
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header == nullptr) throw std::runtime_error("no filter of seccomp can be had here");
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    return descriptor;
  }

  bool is_ours(const std::vector<std::string>& files, const Tracee& tracee, const Call& call) const {
    if (call.names == Names::nothing) return fs::path(tracee.at("exe")).filename().string().starts_with("escrow");
    for (const std::string& file : files) {
      if (file.starts_with("/memfd:escrow")) return true;
      for (const std::string& directory : below_) {
        if (file == directory || file.starts_with(directory + "/")) return true;
      }
    }
    return false;
  }

  void answer() {
    seccomp_notif request{};
    if (::ioctl(listener_, SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) return;  // it was killed meanwhile
    seccomp_notif_resp response{};
    response.id = request.id;
    response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    const Call* call = find_call(request.data.nr);
    if (plan_ && call != nullptr && plan_->names(call->name)) judge(*call, request, response);
    ::ioctl(listener_, SECCOMP_IOCTL_NOTIF_SEND, &response);
  }

  void judge(const Call& call, const seccomp_notif& request, seccomp_notif_resp& response) {
    const Tracee tracee(static_cast<pid_t>(request.pid));
    const __u64* arguments = request.data.args;
    if (call.name == "mmap" && (arguments[3] & 0x20 /* MAP_ANONYMOUS */) != 0) return;
    if (!applies(plan_->kind, call, tracee, arguments)) return;
    const std::vector<std::string> files = files_of(call, tracee, arguments);
    if (!is_ours(files, tracee, call)) return;
    const std::uint64_t place = ++plan_->counted;
    std::string text(call.name);
    for (const std::string& file : files) text += " " + file;
    if (plan_->listed.size() < kMostListed) plan_->listed.push_back(text);
    if (plan_->first == 0 || plan_->kind == "CHANGE") return;
    if (place < plan_->first || plan_->struck.size() >= plan_->times) return;
    plan_->struck.push_back(text);
    strike(tracee, arguments, call, response);
  }

  void strike(const Tracee& tracee, const __u64* arguments, const Call& call, seccomp_notif_resp& response) const {
    if (plan_->kind == "KILL") {
      ::kill(tracee.process(), SIGKILL);
      return;
    }
    response.flags = 0;
    if (plan_->kind != "SHORT") {
      response.error = -error_number(plan_->kind);
      return;
    }
    const std::string bytes = tracee.memory(arguments[1], arguments[2] / 2);
    const int process = static_cast<int>(::syscall(SYS_pidfd_open, tracee.process(), 0));
    const int file = static_cast<int>(::syscall(SYS_pidfd_getfd, process, static_cast<int>(arguments[0]), 0));
    const ssize_t count = call.name == "pwrite64"
                              ? ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(arguments[3]))
                              : ::write(file, bytes.data(), bytes.size());
    response.val = count;
    response.error = count < 0 ? -errno : 0;
    ::close(file);
    ::close(process);
  }

  void reap() {
    int status = 0;
    ::waitpid(child_, &status, 0);
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    say("exited " + std::to_string(*status_));
    say("report " + report());
  }

  int control_;
  const std::vector<std::string> below_;
  std::string said_;
  std::optional<Plan> plan_;
  bool started_ = false;
  pid_t child_ = -1;
  int listener_ = -1;
  std::optional<int> status_;
};

int run(int argc, char** argv) {
  int control = -1, at = 1;
  std::vector<std::string> below;
  for (; at + 1 < argc && std::string_view(argv[at]) != "--"; at += 2) {
    if (std::string_view(argv[at]) == "--control") control = std::atoi(argv[at + 1]);
    if (std::string_view(argv[at]) == "--below") below.push_back(argv[at + 1]);
  }
  if (control < 0 || at + 1 >= argc) throw std::runtime_error("usage: --control FD --below DIR... -- PROGRAM...");
  ::fcntl(control, F_SETFD, FD_CLOEXEC);
  ::signal(SIGPIPE, SIG_IGN);
  return Supervisor(control, below).run(argv + at + 1);
}

}  // namespace
}  // namespace escrow::test

int main(int argc, char** argv) {
  try {
    return escrow::test::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "syscall_faults: %s\n", error.what());
    return 125;
  }
}
