#include "tests/mount/policy_player.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/mount/scene.h"

namespace escrow::support {
namespace {

constexpr session::Actions kNotToBeGained = {session::Action::read, session::Action::list, session::Action::write,
                                             session::Action::remove, session::Action::metadata};
constexpr std::size_t kMaxHeld = 8;
constexpr mode_t kFileModes[] = {0666, 0777, 0676, 06777};

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::string read_whole(int file) {
  std::string bytes(8192, '\0');
  const ssize_t size = pread(file, bytes.data(), bytes.size(), 0);
  if (size < 0) return std::string("error ") + errno_name(errno);
  bytes.resize(static_cast<std::size_t>(size));
  return bytes;
}

std::vector<std::string> names_below(const std::string& directory) {
  std::vector<std::string> names;
  DIR* const stream = opendir(directory.c_str());
  if (stream == nullptr) return names;
  while (const dirent* entry = readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(stream);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

PolicyPlayer::PolicyPlayer(std::string mount, std::string twin, const SlowPolicy& policy, std::uint64_t seed)
    : mount_(std::move(mount)), twin_(std::move(twin)), policy_(policy), random_(seed) {}

PolicyPlayer::~PolicyPlayer() {
  for (const Held& held : held_) {
    close(held.on_mount);
    close(held.on_twin);
  }
}

// ---- the twin ----

PolicyPlayer::Kind PolicyPlayer::kind(const std::string& path) const {
  struct stat values {};
  if (lstat((twin_ + "/" + path).c_str(), &values) != 0) return Kind::absent;
  if (S_ISREG(values.st_mode)) return Kind::file;
  if (S_ISDIR(values.st_mode)) return Kind::directory;
  return S_ISLNK(values.st_mode) ? Kind::symlink : Kind::other;
}

ino_t PolicyPlayer::inode(const std::string& path) const {
  struct stat values {};
  return lstat((twin_ + "/" + path).c_str(), &values) == 0 ? values.st_ino : 0;
}

std::vector<std::string> PolicyPlayer::all() const {
  std::vector<std::string> paths{""};
  for (std::size_t at = 0; at < paths.size(); ++at)
    if (kind(paths[at]) == Kind::directory)
      for (const std::string& name : names_below(twin_ + "/" + paths[at]))
        paths.push_back(paths[at].empty() ? name : paths[at] + "/" + name);
  paths.erase(paths.begin());
  return paths;
}

std::vector<std::string> PolicyPlayer::names_of(ino_t wanted) const {
  std::vector<std::string> names = all();
  std::erase_if(names, [&](const std::string& path) { return inode(path) != wanted; });
  return names;
}

std::vector<std::string> PolicyPlayer::some(Kind wanted) const {
  std::vector<std::string> paths = all();
  std::erase_if(paths, [&](const std::string& path) { return kind(path) != wanted; });
  return paths;
}

std::string PolicyPlayer::any_path() {
  std::string path = kPolicyNames[random_() % kPolicyNames.size()];
  while (random_() % 2 == 0) path += "/" + kPolicyNames[random_() % kPolicyNames.size()];
  return path;
}

std::optional<std::string> PolicyPlayer::existing(Kind wanted) {
  const std::vector<std::string> paths = some(wanted);
  return paths.empty() ? std::nullopt : std::optional(paths[random_() % paths.size()]);
}

// A path that is not there in a directory that is.
std::optional<std::string> PolicyPlayer::fresh() {
  for (int i = 0; i < 20; ++i) {
    const std::string path = any_path();
    if (std::count(path.begin(), path.end(), '/') < 4 && kind(path) == Kind::absent &&
        kind(parent_of(path)) == Kind::directory)
      return path;
  }
  return std::nullopt;
}

bool PolicyPlayer::is_empty(const std::string& directory) const { return names_below(twin_ + "/" + directory).empty(); }

// ---- the policy ----

bool PolicyPlayer::may(const std::string& path, Action action) const {
  return policy_.allows(path, kind(path) == Kind::directory, action);
}

PolicyPlayer::Actions PolicyPlayer::allowed_on(const std::string& path) const {
  if (kind(path) == Kind::directory) return policy_.allowed(path, true);
  Actions allowed = Actions::all();
  for (const std::string& name : names_of(inode(path))) allowed = allowed & policy_.allowed(name, false);
  return allowed;
}

PolicyPlayer::Actions PolicyPlayer::allowed_on(const Held& held) const {
  if (held.removed_with) return *held.removed_with;
  Actions allowed = Actions::all();
  for (const std::string& name : names_of(held.inode)) allowed = allowed & policy_.allowed(name, false);
  return allowed;
}

// A name on the way at which nothing is allowed, nor below as far as the slow evaluator looks.
bool PolicyPlayer::may_be_hidden(const std::string& path) const {
  for (std::size_t end = path.find('/');; end = path.find('/', end + 1)) {
    const std::string above = path.substr(0, end);
    if (policy_.allowed(above, false).empty() && policy_.allowed(above, true).empty() &&
        !policy_.allows_something_below(above))
      return true;
    if (end == std::string::npos) return false;
  }
}

// The path with everything below it.
bool PolicyPlayer::may_move(const std::string& from, const std::string& to) const {
  for (std::string path : all()) {
    if (path != from && !path.starts_with(from + "/")) continue;
    const bool is_directory = kind(path) == Kind::directory;
    const std::string there = to + path.substr(from.size());
    for (const Action action : {Action::rename, Action::remove})
      if (!policy_.allows(path, is_directory, action)) return false;
    for (const Action action : {Action::rename, Action::create})
      if (!policy_.allows(there, is_directory, action)) return false;
    const Actions before = policy_.allowed(path, is_directory), after = policy_.allowed(there, is_directory);
    if (!((after & kNotToBeGained) - before).empty()) return false;
  }
  return true;
}

// Before the path goes.
void PolicyPlayer::note_removal(const std::string& path) {
  const ino_t gone = inode(path);
  if (names_of(gone).size() != 1) return;
  for (Held& held : held_)
    if (held.inode == gone && !held.removed_with) held.removed_with = policy_.allowed(path, false);
}

// ---- judging the answers ----

void PolicyPlayer::fail(const std::string& what) {
  if (!failure_.empty()) return;
  failure_ = what + "\nafter:\n";
  for (const std::string& line : history_) failure_ += "  " + line + "\n";
}

void PolicyPlayer::compare(const std::string& what, const std::string& on_mount, const std::string& on_twin) {
  if (on_mount != on_twin) fail(what + ": the mount has \"" + on_mount + "\", the twin \"" + on_twin + "\"");
}

bool PolicyPlayer::check(const std::string& what, const std::vector<std::string>& paths, bool is_allowed,
                         const Call& call) {
  std::string line = what;
  for (const std::string& path : paths) line += " " + path;
  const bool hidden = std::any_of(paths.begin(), paths.end(), [&](const auto& path) { return may_be_hidden(path); });
  errno = 0;
  const long on_mount = call(mount_);
  const int mount_error = on_mount < 0 ? errno : 0;
  history_.push_back(line + ": " + (mount_error ? errno_name(mount_error) : "done"));
  // In doubt a name is not hidden: then it answers as any other.
  if (hidden && mount_error == EACCES) return counts_["hidden"]++, false;
  if (!is_allowed) {
    counts_[what + " denied"]++;
    if (mount_error != EACCES) fail(line + " is denied, but it answers " + errno_name(mount_error));
    if (on_mount >= 0 && what.starts_with("open")) close(static_cast<int>(on_mount));
    return false;
  }
  const long on_twin = call(twin_);
  const int twin_error = on_twin < 0 ? errno : 0;
  counts_[what + " allowed"]++;
  if (mount_error != twin_error)
    fail(line + " answers " + errno_name(mount_error) + ", the twin " + errno_name(twin_error));
  return mount_error == 0 && twin_error == 0;
}

// ---- calls by path ----

void PolicyPlayer::hold(const std::string& what, const std::string& path, int flags, int on_mount, int on_twin) {
  Held held{on_mount, on_twin, inode(path), (flags & O_ACCMODE) != O_WRONLY, (flags & O_ACCMODE) != O_RDONLY, {}};
  if (held.writes) {
    const std::string word = "w" + std::to_string(random_() % 1000);
    for (const int file : {on_mount, on_twin})
      if (::write(file, word.data(), word.size()) != static_cast<ssize_t>(word.size())) fail("writing after " + what);
  }
  if (held.reads) compare("reading after " + what + " " + path, read_whole(on_mount), read_whole(on_twin));
  held_.push_back(held);
  if (held_.size() <= kMaxHeld) return;
  close(held_.front().on_mount);
  close(held_.front().on_twin);
  held_.erase(held_.begin());
}

void PolicyPlayer::open_existing() {
  const auto path = existing(Kind::file);
  if (!path) return;
  static const struct {
    const char* name;
    int flags;
  } kWays[] = {{"open to read", O_RDONLY},
               {"open to write", O_WRONLY},
               {"open to read and write", O_RDWR},
               {"open to append", O_WRONLY | O_APPEND},
               {"open to truncate", O_WRONLY | O_TRUNC},
               {"open to read and truncate", O_RDWR | O_TRUNC},
               {"open or create", O_RDWR | O_CREAT},
               {"open or create to write", O_WRONLY | O_CREAT | O_TRUNC}};
  const auto& way = kWays[random_() % std::size(kWays)];
  const Actions allowed = allowed_on(*path);
  const bool reads = (way.flags & O_ACCMODE) != O_WRONLY, writes = (way.flags & O_ACCMODE) != O_RDONLY;
  std::vector<int> opened;
  const bool is_allowed = (!reads || allowed.has(Action::read)) && (!writes || allowed.has(Action::write));
  const bool done = check(way.name, {*path}, is_allowed, [&](const std::string& root) -> long {
    const int file = ::open((root + "/" + *path).c_str(), way.flags | O_CLOEXEC, 0666);
    if (file >= 0) opened.push_back(file);
    return file;
  });
  if (done && opened.size() == 2) hold(way.name, *path, way.flags, opened[0], opened[1]);
}

void PolicyPlayer::create() {
  const auto path = fresh();
  if (!path) return;
  const int flags = (random_() % 2 ? O_RDWR | O_EXCL : O_WRONLY | O_TRUNC) | O_CREAT;
  const char* const what = flags & O_EXCL ? "open to create" : "open to create or truncate";
  std::vector<int> opened;
  const bool is_allowed = policy_.allows(*path, false, Action::create);
  const bool done = check(what, {*path}, is_allowed, [&](const std::string& root) -> long {
    const int file = ::open((root + "/" + *path).c_str(), flags | O_CLOEXEC, 0666);
    if (file >= 0) opened.push_back(file);
    return file;
  });
  if (done && opened.size() == 2) hold(what, *path, flags, opened[0], opened[1]);
}

void PolicyPlayer::make_name() {
  const auto path = fresh();
  if (!path) return;
  const auto at = [&](const std::string& root) { return root + "/" + *path; };
  switch (random_() % 4) {
    case 0:
      check("mkdir", {*path}, policy_.allows(*path, true, Action::create),
            [&](const auto& root) { return ::mkdir(at(root).c_str(), 0777); });
      break;
    case 1:
      check("symlink", {*path}, policy_.allows(*path, false, Action::create),
            [&](const auto& root) { return ::symlink("nowhere", at(root).c_str()); });
      break;
    case 2:
      check("mknod of a fifo", {*path}, policy_.allows(*path, false, Action::create),
            [&](const auto& root) { return ::mknod(at(root).c_str(), S_IFIFO | 0666, 0); });
      break;
    default:
      check("mknod of a file", {*path}, policy_.allows(*path, false, Action::create),
            [&](const auto& root) { return ::mknod(at(root).c_str(), S_IFREG | 0666, 0); });
  }
}

void PolicyPlayer::remove_name() {
  if (random_() % 3 == 0) {
    const auto path = existing(Kind::directory);
    if (!path) return;
    check("rmdir", {*path}, may(*path, Action::remove),
          [&](const auto& root) { return ::rmdir((root + "/" + *path).c_str()); });
    return;
  }
  const auto path = existing(random_() % 4 ? Kind::file : random_() % 2 ? Kind::symlink : Kind::other);
  if (!path) return;
  const bool is_allowed = may(*path, Action::remove);
  if (is_allowed && !may_be_hidden(*path)) note_removal(*path);
  check("unlink", {*path}, is_allowed, [&](const auto& root) { return ::unlink((root + "/" + *path).c_str()); });
}

void PolicyPlayer::rename() {
  const auto from = existing(random_() % 2 ? Kind::directory : Kind::file);
  if (!from) return;
  const bool over = random_() % 3 == 0;
  std::optional<std::string> to = over ? existing(kind(*from)) : fresh();
  if (over && random_() % 4 == 0) to = existing(Kind::symlink);
  if (!to || to->starts_with(*from) || from->starts_with(*to) || inode(*from) == inode(*to)) return;
  const bool is_directory = kind(*from) == Kind::directory, onto_directory = kind(*to) == Kind::directory;
  const bool exchanges = over && random_() % 2;
  const unsigned flags = exchanges ? RENAME_EXCHANGE : over ? 0 : random_() % 2 ? RENAME_NOREPLACE : 0;
  if (over && !exchanges && (is_directory != onto_directory || (onto_directory && !is_empty(*to)))) return;
  bool is_allowed = may_move(*from, *to);
  if (exchanges) is_allowed = is_allowed && may_move(*to, *from);
  if (over && !exchanges) is_allowed = is_allowed && may(*to, Action::remove);
  if (is_allowed && over && !exchanges && !may_be_hidden(*from) && !may_be_hidden(*to)) note_removal(*to);
  const std::string what = std::string("rename ") + (is_directory ? "of a directory" : "of a file") +
                           (exchanges ? " in exchange" : over ? " over another" : "");
  check(what, {*from, *to}, is_allowed, [&](const std::string& root) -> long {
    return ::renameat2(AT_FDCWD, (root + "/" + *from).c_str(), AT_FDCWD, (root + "/" + *to).c_str(), flags);
  });
}

void PolicyPlayer::link() {
  const auto from = existing(Kind::file), to = fresh();
  if (!from || !to) return;
  const Actions gained = (policy_.allowed(*to, false) & kNotToBeGained) - allowed_on(*from);
  check("link", {*from, *to}, policy_.allows(*to, false, Action::create) && gained.empty(), [&](const auto& root) {
    return ::link((root + "/" + *from).c_str(), (root + "/" + *to).c_str());
  });
}

void PolicyPlayer::change_attributes() {
  const auto path = existing(random_() % 4 ? Kind::file : Kind::directory);
  if (!path) return;
  const bool is_directory = kind(*path) == Kind::directory;
  const Actions allowed = allowed_on(*path);
  const auto at = [&](const std::string& root) { return root + "/" + *path; };
  const bool metadata = allowed.has(Action::metadata);
  const off_t size = static_cast<off_t>(random_() % 6000);
  const mode_t mode = is_directory ? 0777 : kFileModes[random_() % std::size(kFileModes)];
  switch (random_() % 5) {
    case 0: {
      struct stat before {};
      // What only clears set-id bits is a writer's right.
      if (lstat(at(twin_).c_str(), &before) != 0 || ((before.st_mode & 06000) != 0 && !metadata)) return;
      check("chmod", {*path}, metadata, [&](const auto& root) { return ::chmod(at(root).c_str(), mode); });
      break;
    }
    case 1:
      check("utimens", {*path}, metadata,
            [&](const auto& root) { return ::utimensat(AT_FDCWD, at(root).c_str(), nullptr, 0); });
      break;
    case 2:
      check("chown", {*path}, metadata,
            [&](const auto& root) { return ::chown(at(root).c_str(), getuid(), getgid()); });
      break;
    default:
      if (is_directory) return;
      check("truncate", {*path}, allowed.has(Action::write),
            [&](const auto& root) { return ::truncate(at(root).c_str(), size); });
  }
}

void PolicyPlayer::xattrs() {
  const auto path = existing(Kind::file);
  if (!path) return;
  const Actions allowed = allowed_on(*path);
  const bool reads = allowed.has(Action::read), changes = allowed.has(Action::metadata);
  const auto at = [&](const std::string& root) { return root + "/" + *path; };
  char value[64];
  switch (random_() % 4) {
    case 0:
      check("setxattr", {*path}, changes,
            [&](const auto& root) { return ::setxattr(at(root).c_str(), "user.x", "v", 1, 0); });
      break;
    case 1:
      check("getxattr", {*path}, reads,
            [&](const auto& root) { return ::getxattr(at(root).c_str(), "user.x", value, sizeof value); });
      break;
    case 2:
      check("listxattr", {*path}, reads,
            [&](const auto& root) { return ::listxattr(at(root).c_str(), value, sizeof value); });
      break;
    default:
      check("removexattr", {*path}, changes,
            [&](const auto& root) { return ::removexattr(at(root).c_str(), "user.x"); });
  }
}

// At paths that are there and that are not.
void PolicyPlayer::look() {
  const auto link = existing(Kind::symlink);
  if (link && random_() % 2) {
    std::vector<std::string> targets;
    check("readlink", {*link}, allowed_on(*link).has(Action::read), [&](const std::string& root) -> long {
      char target[64] = {};
      const ssize_t size = ::readlink((root + "/" + *link).c_str(), target, sizeof target - 1);
      targets.emplace_back(target);
      return size;
    });
    if (targets.size() == 2) compare("the target of " + *link, targets[0], targets[1]);
    return;
  }
  const std::string path = any_path();
  // A link on the way would have to be read.
  for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1))
    if (kind(path.substr(0, slash)) == Kind::symlink) return;
  std::vector<mode_t> types;
  check("stat", {path}, true, [&](const std::string& root) {
    struct stat values {};
    const int result = ::lstat((root + "/" + path).c_str(), &values);
    if (result == 0) types.push_back(values.st_mode & S_IFMT);
    return result;
  });
  if (types.size() == 2 && types[0] != types[1]) fail("another type at " + path);
}

void PolicyPlayer::list() {
  const auto directory = random_() % 3 ? existing(Kind::directory) : std::optional<std::string>("");
  if (!directory) return;
  const bool is_allowed = policy_.allows(*directory, true, Action::list);
  const std::vector<std::string> paths = directory->empty() ? std::vector<std::string>() : std::vector{*directory};
  const bool done = check("opendir", paths, is_allowed, [&](const std::string& root) -> long {
    DIR* const stream = opendir((root + "/" + *directory).c_str());
    if (stream != nullptr) closedir(stream);
    return stream == nullptr ? -1 : 0;
  });
  if (!done) return;
  std::string shown, expected;
  for (const std::string& name : names_below(mount_ + "/" + *directory)) shown += name + " ";
  for (const std::string& name : names_below(twin_ + "/" + *directory))
    if (may(directory->empty() ? name : *directory + "/" + name, Action::list)) expected += name + " ";
  compare("the listing of " + *directory, shown, expected);
}

// ---- calls by descriptor: they keep what the file was opened for ----

void PolicyPlayer::use_held() {
  if (held_.empty()) return;
  const Held& held = held_[random_() % held_.size()];
  const auto file_in = [&](const std::string& root) { return root == mount_ ? held.on_mount : held.on_twin; };
  const Actions allowed = allowed_on(held);
  const off_t offset = static_cast<off_t>(random_() % 4096);
  switch (random_() % 7) {
    case 0:
      if (held.writes)
        check("write to a descriptor", {}, true,
              [&](const auto& root) { return ::pwrite(file_in(root), "later", 5, offset); });
      break;
    case 1:
      if (held.writes)
        check("ftruncate", {}, true, [&](const auto& root) { return ::ftruncate(file_in(root), offset); });
      break;
    case 2:
      if (held.writes)
        check("fallocate", {}, true, [&](const auto& root) { return ::fallocate(file_in(root), 0, offset, 100); });
      break;
    case 3:
      if (held.writes && held.reads)
        check("mmap to write", {}, true, [&](const std::string& root) -> long {
          if (::ftruncate(file_in(root), 4096) != 0) return -1;
          void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file_in(root), 0);
          if (memory == MAP_FAILED) return -1;
          std::memcpy(static_cast<char*>(memory) + offset % 4000, "mapped", 6);
          ::msync(memory, 4096, MS_SYNC);
          return ::munmap(memory, 4096);
        });
      break;
    case 4:
      check("futimens", {}, allowed.has(Action::metadata),
            [&](const auto& root) { return ::futimens(file_in(root), nullptr); });
      break;
    default:
      if (held.reads) compare("a descriptor", read_whole(held.on_mount), read_whole(held.on_twin));
  }
}

// A new open of what a descriptor holds, by no name: judged at the file's names, or as its last one was.
void PolicyPlayer::reopen_held() {
  if (held_.empty()) return;
  const Held& held = held_[random_() % held_.size()];
  const bool writes = random_() % 2;
  const Actions allowed = allowed_on(held);
  check(held.removed_with ? "open of a removed file" : "open of a descriptor", {},
        allowed.has(writes ? Action::write : Action::read), [&](const std::string& root) -> long {
          const int number = root == mount_ ? held.on_mount : held.on_twin;
          const int file = ::open(("/proc/self/fd/" + std::to_string(number)).c_str(), writes ? O_WRONLY : O_RDONLY);
          if (file < 0) return -1;
          ::close(file);
          return 0;
        });
}

void PolicyPlayer::copy_between_held() {
  if (held_.size() < 2) return;
  const Held& from = held_[random_() % held_.size()];
  const Held& to = held_[random_() % held_.size()];
  if (!from.reads || !to.writes || from.inode == to.inode) return;
  // copy_file_range(2) refuses descriptors that append.
  if ((fcntl(to.on_twin, F_GETFL) & O_APPEND) != 0) return;
  check("copy_file_range", {}, true, [&](const std::string& root) -> long {
    off_t source = 0, target = 0;
    const bool mounted = root == mount_;
    return ::copy_file_range(mounted ? from.on_mount : from.on_twin, &source, mounted ? to.on_mount : to.on_twin,
                             &target, 64, 0);
  });
}

void PolicyPlayer::play(int calls) {
  using Play = void (PolicyPlayer::*)();
  static constexpr Play kPlays[] = {
      &PolicyPlayer::open_existing,     &PolicyPlayer::open_existing,     &PolicyPlayer::open_existing,
      &PolicyPlayer::create,            &PolicyPlayer::create,            &PolicyPlayer::make_name,
      &PolicyPlayer::make_name,         &PolicyPlayer::remove_name,       &PolicyPlayer::rename,
      &PolicyPlayer::rename,            &PolicyPlayer::rename,            &PolicyPlayer::link,
      &PolicyPlayer::change_attributes, &PolicyPlayer::change_attributes, &PolicyPlayer::xattrs,
      &PolicyPlayer::look,              &PolicyPlayer::list,              &PolicyPlayer::use_held,
      &PolicyPlayer::use_held,          &PolicyPlayer::reopen_held,       &PolicyPlayer::copy_between_held};
  for (int i = 0; i < calls && failure_.empty(); ++i) (this->*kPlays[random_() % std::size(kPlays)])();
}

}  // namespace escrow::support
