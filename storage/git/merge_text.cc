#include "storage/git/merge_text.h"

#include <git2.h>

#include "storage/git/git_error.h"

namespace escrow::storage {
namespace {

constexpr std::size_t kLookedAt_bytes = 8000;  // FIRST_FEW_BYTES in xdiff-interface.c of git

bool is_binary(std::string_view text) { return text.substr(0, kLookedAt_bytes).find('\0') != std::string_view::npos; }

git_merge_file_input input_of(std::string_view text) {
  git_merge_file_input input = GIT_MERGE_FILE_INPUT_INIT;
  input.ptr = text.data();
  input.size = text.size();
  return input;
}

class Result {
 public:
  Result() = default;
  ~Result() { git_merge_file_result_free(&raw); }
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;

  git_merge_file_result raw{};
};

}  // namespace

std::optional<std::string> merge_text(std::string_view base, std::string_view ours, std::string_view theirs) {
  if (is_binary(base) || is_binary(ours) || is_binary(theirs)) return std::nullopt;
  const git_merge_file_input of_base = input_of(base), of_ours = input_of(ours), of_theirs = input_of(theirs);
  Result result;
  check_git(git_merge_file(&result.raw, &of_base, &of_ours, &of_theirs, nullptr), "merging a text",
            session::Errc::unavailable);
  if (result.raw.automergeable == 0) return std::nullopt;
  return std::string(result.raw.ptr, result.raw.len);
}

}  // namespace escrow::storage
