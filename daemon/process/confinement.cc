#include "daemon/process/confinement.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "daemon/process/hardening.h"
#include "daemon/process/network_namespace.h"
#include "daemon/process/user_namespace.h"
#include "session/base/error.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;

constexpr const char* kPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
// Of bwrap's 9,000 arguments, those that it reads included; the others are for what Escrow asks of it.
constexpr std::size_t kMostWords = 8'000;
constexpr std::uint64_t kOwnProcesses = 2;  // bwrap's own, outside and inside
constexpr std::size_t kLongestWord = 128 * 1024;  // of a program's arguments and variables, with its NUL; execve(2)
// What root could read, or write, of the machine through /proc without any capability.
constexpr std::array kHiddenFiles = {"kcore",     "keys",        "kmsg",        "kallsyms",   "kpageflags",
                                     "kpagecount", "kpagecgroup", "slabinfo",    "vmallocinfo", "iomem",
                                     "ioports",   "timer_list",  "timer_stats", "sched_debug", "latency_stats",
                                     "sysrq-trigger"};
constexpr std::array kHiddenDirectories = {"acpi", "asound", "scsi", "driver", "tty"};
constexpr std::array kReadOnlyDirectories = {"sys", "fs", "bus", "irq"};

// bwrap's options, one call for each.
class Options {
 public:
  explicit Options(std::vector<std::string>& arguments) : arguments_(arguments) {}
  template <typename... Values>
  void add(const Values&... values) {
    (arguments_.emplace_back(values), ...);
  }

 private:
  std::vector<std::string>& arguments_;
};

// A link stays a link: /lib64/ld-linux-x86-64.so.2 is found as on the machine.
void add_system(Options& options) {
  options.add("--ro-bind", "/usr", "/usr");
  for (const char* name : {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}) {
    std::error_code ignored;
    if (std::filesystem::is_symlink(name, ignored)) {
      options.add("--symlink", std::filesystem::read_symlink(name, ignored).string(), name);
    } else if (std::filesystem::is_directory(name, ignored)) {
      options.add("--ro-bind", name, name);
    }
  }
}

void add_proc(Options& options) {
  options.add("--proc", "/proc");
  const auto exists = [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; };
  for (const char* name : kReadOnlyDirectories) {
    const std::string path = std::string("/proc/") + name;
    if (exists(path)) options.add("--ro-bind", path, path);
  }
  for (const char* name : kHiddenDirectories) {
    const std::string path = std::string("/proc/") + name;
    if (exists(path)) options.add("--tmpfs", path, "--remount-ro", path);
  }
  for (const char* name : kHiddenFiles) {
    const std::string path = std::string("/proc/") + name;
    if (exists(path)) options.add("--ro-bind", "/dev/null", path);
  }
}

// Which programs in /usr awk, cc and vi are. Only links that lead there, and none of the manual.
void add_alternatives(Options& options) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/etc/alternatives", ignored)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (!target.starts_with("/usr/") || target.ends_with(".gz")) continue;
    options.add("--symlink", target, entry.path().string());
  }
}

std::string contents_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The number of the descriptor at which bwrap finds `contents`.
std::string hand_over(CommandSpec& spec, std::string contents) {
  spec.data.push_back(std::move(contents));
  return std::to_string(kFirstDataDescriptor + static_cast<int>(spec.data.size()) - 1);
}

// Files of /etc that are made up, or copies.
void add_file(Options& options, CommandSpec& spec, const std::string& path, std::string contents) {
  options.add("--perms", "0644", "--ro-bind-data", hand_over(spec, std::move(contents)), path);
}

// bwrap runs outside, as the user of the command and in the session's mount: with the command's environment LD_PRELOAD
// would be a way out. So it has none, and sets the command's variables when the sandbox stands. It reads them from a
// descriptor, because its arguments are for everybody to see.
void move_environment_inside(Options& options, CommandSpec& spec) {
  std::string words;
  for (const std::string& entry : spec.environment) {
    const std::size_t equals = entry.find('=');
    for (const std::string& word : {std::string("--setenv"), entry.substr(0, equals), entry.substr(equals + 1)}) {
      words += word + '\0';
    }
  }
  options.add("--args", hand_over(spec, std::move(words)));
  spec.environment.clear();
}

void add_configuration(Options& options, CommandSpec& spec, const CommandSpec::Identity& user, bool network) {
  const std::string uid = std::to_string(user.uid), gid = std::to_string(user.gid);
  const std::string name = user.uid == 0 ? "root" : "sandbox", group = user.gid == 0 ? "root" : "sandbox";
  options.add("--perms", "0755", "--dir", "/etc", "--perms", "0755", "--dir", "/etc/alternatives");
  add_file(options, spec, "/etc/passwd", name + ":x:" + uid + ":" + gid + "::/tmp:/bin/sh\n");
  add_file(options, spec, "/etc/group", group + ":x:" + gid + ":\n");
  add_alternatives(options);
  if (!network) return;
  for (const char* path : {"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"}) {
    if (std::string contents = contents_of(path); !contents.empty()) add_file(options, spec, path, std::move(contents));
  }
  options.add("--ro-bind-try", "/etc/ssl/certs", "/etc/ssl/certs");
}

// The shell says 127 for a command that is not there and 126 for one that cannot be run, as the run itself does; env
// gives the command back the signals that bwrap ignores, so that it has its time of grace.
void add_command(Options& options, const std::vector<std::string>& command) {
  options.add("--", "/usr/bin/env", "--default-signal=INT,TERM", "/bin/sh", "-c", "exec \"$@\"", "sh");
  for (const std::string& argument : command) options.add(argument);
}

}  // namespace

std::string find_bubblewrap() {
  const char* path = std::getenv("PATH");
  std::istringstream directories(std::string("/usr/bin:/usr/local/bin:/bin:") + (path ? path : ""));
  for (std::string directory; std::getline(directories, directory, ':');) {
    const std::string program = directory + "/bwrap";
    if (directory.starts_with('/') && ::access(program.c_str(), X_OK) == 0) return program;
  }
  return {};
}

const char* const kConfinementHelp =
    "With --confine the command finds the session's mount at /sandbox (or --mountpoint), and of the machine only:\n"
    "/usr, /bin, /sbin and /lib* read-only; a /tmp, /dev (null, zero, full, random, urandom, tty, pts, shm) and /proc\n"
    "of its own, where /proc/sys cannot be written and what tells of the kernel is hidden; in /etc a passwd and group\n"
    "with its own line and the links of /etc/alternatives into /usr, with --network host also copies of resolv.conf,\n"
    "hosts, nsswitch.conf and the certificates of /etc/ssl/certs. It has no capability, no other process, no\n"
    "descriptor but the first three, no key, no network (but with --network host), and of the environment only LANG,\n"
    "LC_*, TZ, TERM and COLORTERM, a PATH, HOME=/tmp, and what --env sets. With --git it finds the objects of the\n"
    "repository, read-only, at /run/escrow/objects.\n";

void check_can_confine() {
  if (find_bubblewrap().empty()) {
    throw Error(Errc::unavailable, "--confine needs the program bwrap, which is not installed; install the package "
                                   "bubblewrap");
  }
  if (may_make_user_namespace()) return;
  const std::string command = user_namespace_command();
  throw Error(Errc::unavailable, "--confine needs user namespaces, which the kernel does not give" +
                                     (command.empty() ? command : "; allow them: " + command));
}

void check_can_cut_network() {
  const int error = try_to_leave_network();
  if (error == 0) return;
  const std::string command = user_namespace_command();
  throw Error(Errc::unavailable, std::string("--network none needs a network namespace, which the kernel does not "
                                             "give: ") + std::strerror(error) +
                                     (command.empty() ? command : "; allow them: " + command));
}

void check_sandbox_mountpoint(const std::string& path) {
  const std::filesystem::path plain = std::filesystem::path(path).lexically_normal();
  if (!path.starts_with('/') || plain.string() != path || path == "/" || path.ends_with('/')) {
    throw Error(Errc::bad_request, "--mountpoint " + path + " cannot be used with --confine: there it is the path " +
                                       "the command sees, absolute and without '.', '..' or a slash at its end");
  }
  const std::string top = "/" + plain.relative_path().begin()->string();
  for (const char* taken : {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/dev", "/etc"}) {
    if (top == taken) {
      throw Error(Errc::bad_request, "--mountpoint " + path + " cannot be used with --confine: " + taken +
                                         " is where programs find the system; use /sandbox");
    }
  }
}

void check_sandbox_command(const std::vector<std::string>& command, const std::vector<std::string>& given) {
  if (const std::size_t words = command.size() + 3 * given.size(); words > kMostWords) {
    throw Error(Errc::bad_request, "a confined command may have " + std::to_string(kMostWords) + " words, with three "
                                   "for each variable that it is given; this one has " + std::to_string(words));
  }
  for (const std::vector<std::string>* words : {&command, &given}) {
    for (const std::string& word : *words) {
      if (word.size() < kLongestWord) continue;
      throw Error(Errc::bad_request, "no program can be started with an argument or a variable of 128 KiB, as \"" +
                                         word.substr(0, 20) + "...\" is");
    }
  }
}

std::vector<std::string> confined_environment() {
  std::vector<std::string> environment = {std::string("PATH=") + kPath, "HOME=/tmp"};
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view variable(*entry);
    const std::string_view name = variable.substr(0, variable.find('='));
    if (name == "LANG" || name.starts_with("LC_") || name == "TZ" || name == "TERM" || name == "COLORTERM")
      environment.emplace_back(variable);
  }
  return environment;
}

Containment::Limits limits_when_confined(Containment::Limits limits) {
  if (limits.processes != 0) limits.processes += kOwnProcesses;
  return limits;
}

void confine(CommandSpec& spec, const Confinement& confinement) {
  const CommandSpec::Identity user = spec.identity.value_or(CommandSpec::Identity{::geteuid(), ::getegid(), {}});
  // Only root may change its groups; an ordinary user's lead nowhere, because nothing of theirs is to be seen.
  if (::geteuid() == 0) spec.identity = CommandSpec::Identity{user.uid, user.gid, {user.gid}};
  std::vector<std::string> arguments;
  Options options(arguments);
  options.add(find_bubblewrap(), "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
              "--unshare-cgroup-try", "--hostname", "sandbox", "--uid", std::to_string(user.uid), "--gid",
              std::to_string(user.gid), "--cap-drop", "ALL", "--die-with-parent");
  move_environment_inside(options, spec);
  if (!confinement.network) options.add("--unshare-net");
  add_system(options);
  add_proc(options);
  options.add("--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp");
  add_configuration(options, spec, user, confinement.network);
  if (!confinement.objects.empty()) options.add("--ro-bind", confinement.objects, kObjectsInside);
  options.add("--bind", spec.working_directory, confinement.mountpoint, "--remount-ro", "/", "--chdir",
              confinement.mountpoint);
  add_command(options, spec.arguments);
  spec.arguments = std::move(arguments);
  spec.wrapped = spec.hardened = true;
  spec.limits = limits_when_confined(spec.limits);
}

}  // namespace escrow::daemon
