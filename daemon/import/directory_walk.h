// Walks a directory of the host as `escrow import` sees it. What git can hold is shown to a visitor, who keeps it; what
// it cannot is left out and named.
//
// Symbolic links stay links, the owner's executable bit decides the mode, a hard link is a file like any other. The
// filter decides what else is left out: it is not opened, nor is anything below it. Each entry is opened by its name
// in its directory, never by a path. One descriptor is open for each level of nesting. Not thread-safe. Throws Error
// naming the file that cannot be read, Error{busy} for one that changes meanwhile, and what the visitor and the opener
// throw.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "daemon/console/progress_bar.h"
#include "daemon/import/import_filter.h"
#include "daemon/import/omitted_names.h"
#include "daemon/process/file_descriptor.h"
#include "session/interfaces/object_store.h"
#include "session/overlay/overlay.h"

namespace escrow::daemon {

// Of what lies below a directory.
class DirectoryVisitor {
 public:
  virtual ~DirectoryVisitor() = default;
  // A file, or a symbolic link: its content is where it points to.
  virtual void leaf(const std::string& path, session::GitMode mode, const session::ByteSource& content) = 0;
  // A file that is for Git LFS (FilteredDirectory::is_for_lfs()).
  virtual void lfs_file(const std::string& path, session::GitMode mode, const session::ByteSource& content) {
    leaf(path, mode, content);
  }
  // Around what is in a directory below the one that is walked; there may be nothing in it.
  virtual void enter(const std::string& path) = 0;
  virtual void leave(const std::string& path) = 0;
};

struct DirectorySize {
  std::uint64_t files = 0, bytes = 0;
};

struct WalkedDirectory {
  DirectorySize size;  // of what the visitor saw
  std::vector<session::Omission> omitted;
};

// Opens what a directory has by that name; no descriptor: errno says why. The flags are those of openat(2), with
// O_CLOEXEC.
using OpenInside = std::function<FileDescriptor(int directory, const std::string& name, int flags)>;
// As this process may, into mounts, too.
FileDescriptor open_inside(int directory, const std::string& name, int flags);

class DirectoryWalk {
 public:
  // Told after every piece of content what was read so far.
  using Progress = std::function<void(const DirectorySize& done)>;

  // More is refused with Error{bad_request}.
  struct Limits {
    std::uint64_t entries = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t omitted_bytes = OmittedNames::kUnlimited;  // omitted_names.h
    std::size_t path_bytes = std::numeric_limits<std::size_t>::max();
  };

  // `skipped_directory` (the repository itself; may be empty) is left out should it be inside.
  DirectoryWalk(DirectoryVisitor& visitor, const std::string& skipped_directory, Progress progress,
                OpenInside open, Limits limits, ImportFilter filter = {});

  // Once, either.
  WalkedDirectory run(const std::string& directory);
  WalkedDirectory run(FileDescriptor directory);

 private:
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;
  };
  void walk(const FileDescriptor& directory, const std::string& path, int depth, FilteredDirectory& filtered);
  void look_at(int directory, const std::string& name, const std::string& path, int depth,
               FilteredDirectory& filtered);
  void look_into(int directory, const std::string& name, const std::string& path, int depth,
                 FilteredDirectory& above);
  std::string read_rules_file(const FileDescriptor& directory, const std::string& path, std::string_view name);
  void read_file(int directory, const std::string& name, const std::string& path, FilteredDirectory& filtered);
  void read_link(const FileDescriptor& link, const std::string& path);
  void omit(const std::string& path, session::OmissionKind kind);

  DirectoryVisitor& visitor_;
  Identity skipped_;
  Progress progress_;
  const OpenInside open_;
  Limits limits_;  // what is left of them
  ImportFilter filter_;
  OmittedNames omitted_;
  std::function<void(std::uint64_t)> on_read_;
  WalkedDirectory result_;
};

// Throws Error{bad_request} unless it is one.
void check_directory(const std::string& directory);

// The same for the command line: with as many descriptors as there may be, and a progress bar on a terminal, for which
// the directory is measured first, when this is made.
class ShownWalk {
 public:
  explicit ShownWalk(std::string directory);
  // As of DirectoryWalk; once.
  WalkedDirectory run(DirectoryVisitor& visitor, const std::string& skipped_directory, ImportFilter filter = {});

 private:
  const std::string directory_;
  ProgressBar bar_;
  const DirectorySize total_;
};

}  // namespace escrow::daemon
