// The memory that a large blob takes on its way into the repository. In a program that weighs the whole process.
#include <algorithm>
#include <fstream>
#include <string>

#include "tests/storage/git_test_repository.h"

namespace escrow::storage {
namespace {

using session::GitMode;

std::uint64_t peak_resident_kib() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6));
  }
  return 0;
}

TEST(GitQuarantine, MemoryStaysBoundedWhateverTheSizeOfABlob) {
  constexpr std::uint64_t kLimitKib = 128u << 10;
  class Endless final : public session::ByteSource {
   public:
    std::uint64_t size() const override { return std::uint64_t{600} << 20; }
    std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override {
      const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), size() - offset));
      for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::byte>(((offset + i) * 2654435761u) >> 24);
      return count;
    }
  };
  GitTestRepository repository;
  std::ofstream("/proc/self/clear_refs") << 5;  // proc(5): resets the peak
  const auto quarantine = repository.quarantine();
  const auto blob = quarantine->put_blob(Endless());
  const auto tree = quarantine->put_tree({{"f", GitMode::regular, blob}});
  const auto commit = quarantine->put_commit(GitTestRepository::commit_of(tree));
  quarantine->publish(commit);
  std::uint64_t total = 0;
  for_each_piece(*repository.store->open_blob(blob), [&](std::span<const std::byte> bytes) { total += bytes.size(); });
  EXPECT_EQ(total, Endless().size());
  EXPECT_LT(peak_resident_kib(), kLimitKib);
}

}  // namespace
}  // namespace escrow::storage
