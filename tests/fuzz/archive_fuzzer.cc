// Any bytes as an archive that a client imports: they become a tree that git can hold, or are refused as the caller's
// own fault.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "api/problem.h"
#include "daemon/import/archive_import.h"
#include "daemon/import/file_source.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace {

using escrow::session::ByteSource;
using escrow::session::ObjectId;
using escrow::session::Tree;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 24;

void expect(bool condition) {
  if (!condition) std::abort();
}

// Reads every content, keeps none.
class NoQuarantine final : public escrow::session::Quarantine {
 public:
  ObjectId put_blob(const ByteSource& source) override {
    std::string piece(65536, '\0');
    std::uint64_t at = 0;
    while (const std::size_t count = source.read(at, std::as_writable_bytes(std::span(piece)))) at += count;
    expect(at == source.size());
    return {};
  }
  ObjectId put_tree(const Tree& tree) override {
    expect(!tree.empty());
    for (std::size_t at = 0; at < tree.size(); ++at) {
      const std::string& name = tree[at].name;
      expect(!name.empty() && name.size() <= 255 && name != "." && name != ".." && name.find('/') == std::string::npos);
      expect(!escrow::session::git_refuses_name(name));
      expect(at == 0 || escrow::session::tree_order_less(tree[at - 1], tree[at]));
    }
    return {};
  }
  ObjectId put_commit(const escrow::session::Commit&) override { std::abort(); }
  std::unique_ptr<Published> publish(const ObjectId&) override { std::abort(); }
  void read_through(std::vector<const Quarantine*>) override { std::abort(); }
  bool holds(const ObjectId&) const override { std::abort(); }
  std::uint64_t held_bytes() const override { std::abort(); }
  void discard() override { std::abort(); }
  Tree read_tree(const ObjectId&) const override { std::abort(); }
  escrow::session::Commit read_commit(const ObjectId&) const override { std::abort(); }
  std::uint64_t blob_size(const ObjectId&) const override { std::abort(); }
  std::shared_ptr<const ByteSource> open_blob(const ObjectId&) const override { std::abort(); }
  bool contains(const ObjectId&) const override { std::abort(); }
};

// Puts the right checksum into every header: else nearly all that the fuzzer changes would be refused for that.
std::string with_checksums(std::string archive) {
  for (std::size_t at = 0; at + 512 <= archive.size(); at += 512) {
    if (archive.compare(at + 257, 5, "ustar") != 0) continue;
    archive.replace(at + 148, 8, "        ");
    unsigned sum = 0;
    for (std::size_t byte = at; byte < at + 512; ++byte) sum += static_cast<unsigned char>(archive[byte]);
    char digits[8];
    std::snprintf(digits, sizeof digits, "%06o", sum);
    archive.replace(at + 148, 7, digits, 7);
  }
  return archive;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  NoQuarantine quarantine;
  const escrow::daemon::StringSource archive(with_checksums({reinterpret_cast<const char*>(data), size}));
  try {
    const auto built = escrow::daemon::import_archive(quarantine, archive, kMostBytes);
    for (const auto& omission : built.omitted) expect(!omission.path.empty());
  } catch (const escrow::api::Problem& problem) {
    expect(problem.problem() == escrow::api::ProblemCode::body_too_large);
  } catch (const escrow::session::Error& error) {
    expect(error.code() == escrow::session::Errc::bad_request);
  }
  return 0;
}
