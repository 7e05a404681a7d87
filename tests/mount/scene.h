// A scenario of system calls and the transcript of what they answered, so that a mount can be compared with ext4.
//
// A scenario runs in a child process with its own user, its working directory an empty directory; it names files
// relative to that. What may differ between file systems (inode numbers, exact times, directory sizes and link
// counts) never reaches the transcript. Not thread-safe.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>
#include <vector>

namespace escrow::support {

inline constexpr unsigned kNobody = 65534;

class Scene {
 public:
  // The result of a system call: its errno's name when it is negative, "ok" otherwise. Returns `result`.
  long check(const std::string& what, long result);
  // The same, with the value on success.
  long value(const std::string& what, long result);
  void note(const std::string& line);

  // Creates or truncates. Neither is in the transcript unless it fails.
  void write(const std::string& name, const std::string& content, unsigned mode = 0644);
  void make_directory(const std::string& name, unsigned mode = 0755);
  void make_symlink(const std::string& target, const std::string& name);

  // Type, mode, links (not of directories), owner, size (not of directories), target of a link.
  void stat(const std::string& name);
  void content(const std::string& name);
  void list(const std::string& directory);
  // Which times of `name` an action changes, and in whose direction: "mtime+ ctime+".
  void times(const std::string& what, const std::string& name, const std::function<void()>& action);
  // Runs `action` as another user with no other groups; only root can.
  void as(unsigned uid, const std::function<void()>& action);

  const std::string& transcript() const { return transcript_; }
  void append(const std::string& text) { transcript_ += text; }

 private:
  std::string transcript_;
};

using Scenario = std::function<void(Scene&)>;

// What `scenario` saw in `directory`, as `uid` with umask 022. A scenario that dies says so in the transcript.
std::string perform(const Scenario& scenario, const std::string& directory, unsigned uid);

// Opens `name` and closes it again: 0, or -1 with errno.
long try_open(const std::string& name, int flags, unsigned mode = 0644);

const char* errno_name(int error);

}  // namespace escrow::support
