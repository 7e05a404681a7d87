// A real git repository in a directory of the test's own, driven by the git program and by our classes side by side.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include <sys/wait.h>

#include "session/base/error.h"
#include "session/interfaces/object_store.h"
#include "storage/disk/byte_sources.h"
#include "storage/git/git_references.h"
#include "storage/git/git_repository_pool.h"
#include "storage/objects/git_object_store.h"
#include "storage/objects/quarantine.h"
#include "storage/repository/repository.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {

inline session::NullLog silent;

struct Shell {
  int status;
  std::string output;  // both streams
};

inline Shell shell(const std::string& command) {
  const std::string whole = "export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@x GIT_COMMITTER_NAME=t "
                            "GIT_COMMITTER_EMAIL=t@x GIT_CONFIG_GLOBAL=/dev/null; (" + command + ") 2>&1";
  FILE* pipe = ::popen(whole.c_str(), "r");
  Shell result{};
  char buffer[4096];
  for (std::size_t count; (count = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    result.output.append(buffer, count);
  }
  const int status = ::pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  while (!result.output.empty() && result.output.back() == '\n') result.output.pop_back();
  return result;
}

// The command's output; the test fails when it does.
inline std::string run(const std::string& command) {
  Shell result = shell(command);
  EXPECT_EQ(result.status, 0) << command << "\n" << result.output;
  return result.output;
}

// The real git, as Repository::gc() is given it.
inline GitProgram git_program(const std::string& repository) {
  return [repository](const std::vector<std::string>& arguments) {
    support::TemporaryDirectory directory;
    std::string command = "git --git-dir=" + repository;
    for (const std::string& argument : arguments) command += " '" + argument + "'";
    const Shell said = shell(command + " 2>" + directory.path() + "/err");
    std::ostringstream errors;
    errors << std::ifstream(directory.path() + "/err").rdbuf();
    return GitOutput{said.status, said.output, errors.str()};
  };
}

template <typename Call>
session::Error error_of(Call call) {
  try {
    call();
  } catch (const session::Error& error) {
    return error;
  }
  ADD_FAILURE() << "no Error was thrown";
  return session::Error(session::Errc::unavailable, "none");
}

// Bytes that do not compress, the same for the same seed.
inline std::string noise(std::size_t size_bytes, std::uint32_t seed) {
  std::string bytes(size_bytes, '\0');
  std::uint64_t state = seed * 2654435761u + 1;
  for (std::size_t at = 0; at < size_bytes; at += sizeof state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(&bytes[at], &state, std::min(sizeof state, size_bytes - at));
  }
  return bytes;
}

inline std::string content_of(const session::ByteSource& source) {
  std::string content;
  for_each_piece(source, [&](std::span<const std::byte> bytes) {
    content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return content;
}

// A producer of `content`, which must outlive it, for a BlobCache.
inline BlobCache::Begin pulling(const std::string& content) {
  return [&content]() -> BlobCache::Pull {
    return [&content, at = std::size_t{0}](std::span<std::byte> out) mutable {
      const std::size_t count = std::min(out.size(), content.size() - at);
      std::memcpy(out.data(), content.data() + at, count);
      at += count;
      return count;
    };
  };
}

class GitTestRepository {
 public:
  // A bare repository that Escrow has initialised.
  GitTestRepository() : path(directory_.path() + "/r.git") {
    Repository::init(path, "main");
    pool = std::make_unique<GitRepositoryPool>(path);
    store = std::make_unique<GitObjectStore>(*pool, path + "/escrow/cache");
    references = std::make_unique<GitReferences>(*pool);
  }

  std::string git(const std::string& arguments) const { return run("git -C " + path + " " + arguments); }
  std::unique_ptr<GitQuarantine> quarantine(const std::string& name = "q") const {
    return std::make_unique<GitQuarantine>(*pool, *store, quarantine_path(name), path + "/escrow/gc.lock");
  }
  // Beside the repository, so that a test can look for bytes in the repository alone.
  std::string quarantine_path(const std::string& name = "q") const { return directory_.path() + "/" + name; }
  std::string scratch(const std::string& name) const { return directory_.path() + "/" + name; }

  static session::Commit commit_of(const session::ObjectId& tree, std::vector<session::ObjectId> parents = {}) {
    const session::Signature who{"Ann", "ann@example.com", 1700000000, 120};
    return {tree, std::move(parents), who, who, "a commit\n"};
  }

  // Puts one file in a tree in a commit.
  static session::ObjectId put_file(session::Quarantine& quarantine, const std::string& name,
                                    const std::string& content, std::vector<session::ObjectId> parents = {}) {
    const auto blob = quarantine.put_blob(MemoryBytes(content));
    const auto tree = quarantine.put_tree({{name, session::GitMode::regular, blob}});
    return quarantine.put_commit(commit_of(tree, std::move(parents)));
  }

 private:
  support::TemporaryDirectory directory_;

 public:
  const std::string path;
  std::unique_ptr<GitRepositoryPool> pool;
  std::unique_ptr<GitObjectStore> store;
  std::unique_ptr<GitReferences> references;
};

}  // namespace escrow::storage
