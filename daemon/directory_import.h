// Turns a directory of the host into a git tree: what `escrow import` commits.
//
// Content streams into the session's quarantine. Symbolic links stay links, the owner's executable bit decides the
// mode; what git cannot hold is left out and named. .gitignore is not applied. Not thread-safe. Throws Error naming
// the file that cannot be read; the quarantine then holds loose ends, and nothing else has changed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/file_descriptor.h"
#include "session/object_store.h"
#include "session/overlay.h"

namespace escrow::daemon {

struct DirectorySize {
  std::uint64_t files = 0, bytes = 0;
};

struct ImportedTree {
  std::optional<session::ObjectId> tree;  // nullopt: nothing in it
  DirectorySize size;
  std::vector<session::Omission> omitted;
};

class DirectoryImport {
 public:
  // Told after every piece of content what was read so far.
  using Progress = std::function<void(const DirectorySize& done)>;

  // `skipped_directory` (the repository itself) is left out should it be inside.
  DirectoryImport(session::Quarantine& quarantine, const std::string& skipped_directory, Progress progress);

  // Once.
  ImportedTree run(const std::string& directory);

 private:
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;
  };
  std::optional<session::ObjectId> import_directory(FileDescriptor directory, const std::string& path, int depth);
  std::optional<session::TreeEntry> import_entry(int directory, const std::string& name, const std::string& path,
                                                 int depth);
  session::ObjectId import_file(int directory, const std::string& name, const std::string& path, std::uint64_t size);
  session::ObjectId import_link(int directory, const std::string& name, const std::string& path);
  void omit(const std::string& path, session::OmissionKind kind);

  session::Quarantine& quarantine_;
  Identity skipped_;
  Progress progress_;
  std::function<void(std::uint64_t)> on_read_;
  ImportedTree result_;
};

// How much a progress bar will have to show. What cannot be read is not counted.
DirectorySize measure_directory(const std::string& directory);

}  // namespace escrow::daemon
