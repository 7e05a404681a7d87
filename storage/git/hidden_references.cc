#include "storage/git/hidden_references.h"

#include <sys/stat.h>

#include <chrono>
#include <optional>
#include <string_view>

#include "storage/disk/durable_file.h"
#include "storage/git/reference_lock.h"

namespace escrow::storage {
namespace {

constexpr char kConfiguration[] = "config";
constexpr std::chrono::milliseconds kPatienceToForget{1000};

// A section of its own: git-config(1) reads a section that comes again as one more part of it.
std::string lines_for(const std::string& name) { return "[uploadpack]\n\thideRefs = " + name + "\n"; }

std::string content_of(const std::string& path) { return read_if_there(path).value_or(std::string()); }

// The position of the lines; npos: they are not there, or somebody else has changed them.
std::size_t find_in(std::string_view content, const std::string& lines) {
  const std::size_t at = content.find(lines);
  return at == 0 || at == content.npos || content[at - 1] == '\n' ? at : content.npos;
}

void put(ReferenceLock& lock, const std::string& path, const std::string& content) {
  struct stat status {};
  lock.prepare(content, ::stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0666);
  lock.land();
}

}  // namespace

void hide_reference(const std::string& git_directory, const std::string& name) {
  const std::string path = git_directory + "/" + kConfiguration;
  ReferenceLock lock(git_directory, kConfiguration);
  std::string content = content_of(path);
  if (find_in(content, lines_for(name)) == content.npos) {
    if (!content.empty() && content.back() != '\n') content += '\n';
    put(lock, path, content + lines_for(name));
  }
  sync_directory(git_directory);
}

void forget_hidden_reference(const std::string& git_directory, const std::string& name) {
  const std::string path = git_directory + "/" + kConfiguration, lines = lines_for(name);
  if (find_in(content_of(path), lines) == std::string::npos) return;
  ReferenceLock lock(git_directory, kConfiguration, std::nullopt, kPatienceToForget);
  std::string content = content_of(path);
  const std::size_t at = find_in(content, lines);
  if (at != content.npos) put(lock, path, content.erase(at, lines.size()));
}

}  // namespace escrow::storage
