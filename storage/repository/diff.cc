#include "storage/repository/diff.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "storage/git/git_directory.h"
#include "storage/git/git_error.h"
#include "storage/objects/quarantine_backend.h"

namespace escrow::storage {
namespace {

using session::ObjectId;
using session::quote_path;
using Out = std::function<void(std::string_view)>;

constexpr std::size_t kGraphColumns = 40;

GitTree lookup_tree(git_repository* repository, const std::optional<ObjectId>& id) {
  if (!id) return nullptr;
  const git_oid oid = to_git(*id);
  git_tree* raw = nullptr;
  check_git(git_tree_lookup(&raw, repository, &oid), "reading the tree " + id->hex(), session::Errc::input_output);
  return GitTree(raw);
}

// Finding similar contents reads blobs whole: only where all are small. Equal contents are found by id.
void find_renames(git_repository* repository, git_diff* diff) {
  git_odb* raw = nullptr;
  check_git(git_repository_odb(&raw, repository), "opening the objects");
  const GitOdb odb(raw);
  bool all_small = true;
  for (std::size_t i = 0; i < git_diff_num_deltas(diff) && all_small; ++i) {
    const git_diff_delta* delta = git_diff_get_delta(diff, i);
    if (delta->status != GIT_DELTA_ADDED && delta->status != GIT_DELTA_DELETED) continue;
    const git_diff_file& file = delta->status == GIT_DELTA_ADDED ? delta->new_file : delta->old_file;
    std::size_t size = 0;
    git_object_t type = GIT_OBJECT_INVALID;
    if (file.mode == GIT_FILEMODE_COMMIT) continue;
    all_small = git_odb_read_header(&size, &type, raw, &file.id) == 0 && size <= kLargeBlobBytes / 8;
  }
  git_diff_find_options options = GIT_DIFF_FIND_OPTIONS_INIT;
  options.flags = GIT_DIFF_FIND_RENAMES;
  if (!all_small) options.flags |= GIT_DIFF_FIND_EXACT_MATCH_ONLY;
  check_git(git_diff_find_similar(diff, &options), "looking for renamed files");
}

// Deletions first, then by path.
std::vector<std::size_t> ordered_deltas(git_diff* diff) {
  std::vector<std::size_t> order(git_diff_num_deltas(diff));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_partition(order.begin(), order.end(), [&](std::size_t i) {
    return git_diff_get_delta(diff, i)->status == GIT_DELTA_DELETED;
  });
  return order;
}

const char* path_of(const git_diff_delta& delta) {
  return delta.status == GIT_DELTA_DELETED ? delta.old_file.path : delta.new_file.path;
}

bool is_renamed(const git_diff_delta& delta) { return delta.status == GIT_DELTA_RENAMED; }

void write_name_status(git_diff* diff, const Out& out) {
  for (const std::size_t i : ordered_deltas(diff)) {
    const git_diff_delta& delta = *git_diff_get_delta(diff, i);
    std::string line(1, git_diff_status_char(delta.status));
    if (is_renamed(delta)) {
      char similarity[8];
      std::snprintf(similarity, sizeof similarity, "%03u", static_cast<unsigned>(delta.similarity) % 1000);
      line += similarity;
      line += "\t" + quote_path(delta.old_file.path);
    }
    out(line + "\t" + quote_path(path_of(delta)) + "\n");
  }
}

GitPatch patch_of(git_diff* diff, std::size_t index) {
  git_patch* raw = nullptr;
  check_git(git_patch_from_diff(&raw, diff, index), "comparing two files", session::Errc::input_output);
  return GitPatch(raw);
}

struct StatLine {
  std::string path;
  std::size_t added = 0, deleted = 0;
  bool binary = false;
};

std::string graph(const StatLine& line, std::size_t widest) {
  if (line.binary) return "Bin";
  const std::size_t total = line.added + line.deleted;
  std::string text = std::to_string(total) + (total > 0 ? " " : "");
  const auto scaled = [&](std::size_t count) {
    if (widest <= kGraphColumns || count == 0) return count;
    return std::max<std::size_t>(1, count * kGraphColumns / widest);
  };
  return text + std::string(scaled(line.added), '+') + std::string(scaled(line.deleted), '-');
}

void write_stat(git_diff* diff, const Out& out) {
  std::vector<StatLine> lines;
  std::size_t width = 0, widest = 0, added = 0, deleted = 0;
  for (const std::size_t i : ordered_deltas(diff)) {
    const GitPatch patch = patch_of(diff, i);
    const git_diff_delta& delta = *git_diff_get_delta(diff, i);
    StatLine line{quote_path(path_of(delta))};
    if (is_renamed(delta)) line.path = quote_path(delta.old_file.path) + " => " + line.path;
    line.binary = patch && (git_patch_get_delta(patch.get())->flags & GIT_DIFF_FLAG_BINARY) != 0;
    if (patch && !line.binary) {
      check_git(git_patch_line_stats(nullptr, &line.added, &line.deleted, patch.get()), "counting lines");
    }
    width = std::max(width, line.path.size());
    widest = std::max(widest, line.added + line.deleted);
    added += line.added;
    deleted += line.deleted;
    lines.push_back(std::move(line));
  }
  for (const StatLine& line : lines) {
    out(" " + line.path + std::string(width - line.path.size(), ' ') + " | " + graph(line, widest) + "\n");
  }
  if (lines.empty()) return;
  const auto counted = [](std::size_t count, const std::string& one, const std::string& many) {
    return std::to_string(count) + " " + (count == 1 ? one : many);
  };
  std::string summary = " " + counted(lines.size(), "file changed", "files changed");
  if (added > 0) summary += ", " + counted(added, "insertion(+)", "insertions(+)");
  if (deleted > 0) summary += ", " + counted(deleted, "deletion(-)", "deletions(-)");
  out(summary + "\n");
}

struct Writer {
  const Out& out;
  std::exception_ptr failure;  // of `out`
};

int print_line(const git_diff_delta*, const git_diff_hunk*, const git_diff_line* line, void* payload) {
  const bool body = line->origin == GIT_DIFF_LINE_CONTEXT || line->origin == GIT_DIFF_LINE_ADDITION ||
                    line->origin == GIT_DIFF_LINE_DELETION;
  // A callback of C: what `out` throws must not pass through libgit2.
  Writer& writer = *static_cast<Writer*>(payload);
  const Out& out = writer.out;
  try {
    if (body) out(std::string_view(&line->origin, 1));
    out(std::string_view(line->content, line->content_len));
    return 0;
  } catch (...) {
    writer.failure = std::current_exception();
    return GIT_EUSER;
  }
}

void write_patch(git_diff* diff, const Out& out) {
  for (const std::size_t i : ordered_deltas(diff)) {
    const GitPatch patch = patch_of(diff, i);
    if (!patch) continue;
    Writer writer{out, nullptr};
    const int code = git_patch_print(patch.get(), print_line, &writer);
    if (writer.failure) std::rethrow_exception(writer.failure);
    check_git(code, "writing a patch");
  }
}

}  // namespace

void write_tree_diff(const std::string& git_directory, const std::optional<ObjectId>& before,
                     const std::optional<ObjectId>& after, DiffFormat format, const GitQuarantine* quarantine,
                     const std::vector<std::string>& paths, const Out& out) {
  // A handle of its own: the backend must not outlive the call.
  const GitRepository repository = open_git_repository(git_directory);
  git_odb* raw_odb = nullptr;
  check_git(git_repository_odb(&raw_odb, repository.get()), "opening the objects of " + git_directory);
  const GitOdb odb(raw_odb);
  if (quarantine != nullptr) add_quarantine_backend(raw_odb, *quarantine);
  const GitTree old_tree = lookup_tree(repository.get(), before);
  const GitTree new_tree = lookup_tree(repository.get(), after);
  git_diff_options options = GIT_DIFF_OPTIONS_INIT;
  options.flags = GIT_DIFF_INCLUDE_TYPECHANGE;
  options.max_size = static_cast<git_off_t>(kLargeBlobBytes);
  std::vector<char*> only;  // libgit2 copies them
  for (const std::string& path : paths) only.push_back(const_cast<char*>(path.c_str()));
  options.pathspec = {only.data(), only.size()};
  options.flags |= GIT_DIFF_DISABLE_PATHSPEC_MATCH;
  git_diff* raw = nullptr;
  check_git(git_diff_tree_to_tree(&raw, repository.get(), old_tree.get(), new_tree.get(), &options),
            "comparing two trees", session::Errc::input_output);
  const GitDiff diff(raw);
  find_renames(repository.get(), raw);
  switch (format) {
    case DiffFormat::name_status: return write_name_status(raw, out);
    case DiffFormat::stat: return write_stat(raw, out);
    case DiffFormat::patch: return write_patch(raw, out);
  }
}

}  // namespace escrow::storage
