// What an archive becomes, without a repository; and what the command line sends, read back.
#include "daemon/import/archive_import.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "api/problem.h"
#include "daemon/import/file_source.h"
#include "daemon/import/tar_stream.h"
#include "session/base/repo_path.h"
#include "tests/support/fake_object_store.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;
using session::GitMode;

// So many bytes, all of them the same.
class Monotony final : public session::ByteSource {
 public:
  explicit Monotony(std::uint64_t size) : size_(size) {}
  std::uint64_t size() const override { return size_; }
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), size_ - std::min(offset, size_)));
    std::memset(out.data(), 'x', count);
    return count;
  }

 private:
  const std::uint64_t size_;
};

struct Imported {
  std::map<std::string, std::pair<GitMode, std::string>> leaves;  // by path, with content
  std::vector<session::Omission> omitted;
};

void collect(const session::Quarantine& objects, const session::ObjectId& tree, const std::string& path,
             Imported& imported) {
  for (const session::TreeEntry& entry : objects.read_tree(tree)) {
    const std::string below = session::join_path(path, entry.name);
    if (entry.mode == GitMode::tree) {
      collect(objects, entry.id, below, imported);
      continue;
    }
    const auto source = objects.open_blob(entry.id);
    std::string content(static_cast<std::size_t>(source->size()), '\0');
    source->read(0, std::as_writable_bytes(std::span(content)));
    imported.leaves[below] = {entry.mode, content};
  }
}

Imported import(const std::string& archive, std::uint64_t most_bytes = 1 << 30) {
  support::FakeObjectStore store;
  support::FakeQuarantine quarantine(store);
  session::BuiltTree built = import_archive(quarantine, StringSource(archive), most_bytes);
  Imported imported{.leaves = {}, .omitted = std::move(built.omitted)};
  if (built.tree) collect(quarantine, *built.tree, "", imported);
  return imported;
}

template <typename Write>
std::string archived(const Write& write) {
  std::string archive;
  TarStream stream([&](std::string_view bytes) { archive += bytes; });
  write(stream);
  stream.finish();
  return archive;
}

TEST(ArchiveImport, WhatTheCommandLineSendsIsReadBackAsItWas) {
  std::map<std::string, std::pair<GitMode, std::string>> sent;
  for (const std::size_t length : {1u, 99u, 100u, 101u, 255u}) {
    const std::string name(length, 'n'), path = length % 2 == 0 ? name : "d\xff\n/" + name;
    sent[path] = {GitMode::regular, "content of " + name};
    sent["x/" + path] = {GitMode::executable, std::string(length * 10, 'c')};
    sent["links/" + path] = {GitMode::symlink, std::string(length * 16, 't')};
  }
  for (const std::size_t size : {0u, 511u, 512u, 513u, 262'144u, 262'145u})
    sent["size-" + std::to_string(size)] = {GitMode::regular, std::string(size, 's')};
  std::string deep = "deep";
  while (deep.size() < 4000) deep += "/" + std::string(200, 'd');
  sent[deep + "/file"] = {GitMode::regular, "deep"};
  const std::string archive = archived([&](TarStream& stream) {
    for (const auto& [path, leaf] : sent) stream.leaf(path, leaf.first, StringSource(leaf.second));
  });
  EXPECT_EQ(archive.size() % 512, 0u);
  const Imported imported = import(archive);
  EXPECT_EQ(imported.leaves, sent);
  EXPECT_TRUE(imported.omitted.empty());
}

TEST(ArchiveImport, NothingIsReadBackAsNothing) {
  EXPECT_TRUE(import(archived([](TarStream&) {})).leaves.empty());
}

TEST(ArchiveImport, AFileOverEightGibibytesIsSentWithItsSize) {
  constexpr std::uint64_t kSize = std::uint64_t{9} << 30;
  std::string begin;
  TarStream stream([&](std::string_view bytes) {
    begin += bytes;
    if (begin.size() > 4096) throw Error(Errc::busy, "enough was seen");
  });
  EXPECT_THROW(stream.leaf("large", GitMode::regular, Monotony(kSize)), Error);
  try {
    import(begin, kSize - 1);
    FAIL() << "it is smaller than it was";
  } catch (const api::Problem& problem) {
    EXPECT_EQ(problem.problem(), api::ProblemCode::body_too_large);
  }
  EXPECT_NE(begin.find(" size=" + std::to_string(kSize) + "\n"), std::string::npos);
}

TEST(ArchiveImport, EveryCutIsNoticed) {
  const std::string archive = archived([](TarStream& stream) {
    stream.leaf("zeros", GitMode::regular, StringSource(std::string(1024, '\0')));
    stream.leaf(std::string(150, 'n') + "/" + std::string(150, 'm'), GitMode::executable, StringSource("content"));
    stream.leaf("link", GitMode::symlink, StringSource("zeros"));
  });
  for (std::size_t length = 0; length < archive.size(); length += 64) {
    try {
      import(archive.substr(0, length));
      ADD_FAILURE() << "what was cut off after " << length << " of " << archive.size() << " bytes was taken for whole";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::bad_request) << error.what();
    }
  }
  EXPECT_EQ(import(archive).leaves.size(), 3u);
}

}  // namespace
}  // namespace escrow::daemon
