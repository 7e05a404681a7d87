// Texts merged as git merges them.
#include "storage/git/merge_text.h"

#include <random>

#include "session/trees/reconcile.h"
#include "tests/storage/git_test_repository.h"

namespace escrow::storage {
namespace {

using session::GitMode;
using session::MergeFiles;
using session::ObjectId;

using Lines = std::vector<std::string>;

std::string joined(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// A few lines changed, removed or added.
Lines edited(Lines lines, std::mt19937& random) {
  for (unsigned n = random() % 3; n > 0; --n) {
    const auto at = lines.begin() + static_cast<std::ptrdiff_t>(random() % (lines.size() + 1));
    const unsigned what = random() % 3;
    if (what == 0 || at == lines.end()) {
      lines.insert(at, "new " + std::to_string(random() % 4));
    } else if (what == 1) {
      *at = "changed " + std::to_string(random() % 4);
    } else {
      lines.erase(at);
    }
  }
  return lines;
}

class MergeText : public testing::Test {
  GitTestRepository started_;  // libgit2
};

TEST_F(MergeText, RandomEditsAreMergedAsGitMergeFileMergesThem) {
  std::mt19937 random(20261123);
  support::TemporaryDirectory directory;
  int merged = 0, refused = 0;
  for (int round = 0; round < 200; ++round) {
    Lines base;
    for (unsigned n = random() % 12; n > 0; --n) base.push_back("line " + std::to_string(random() % 6));
    const std::array<std::string, 3> texts = {joined(base), joined(edited(base, random)), joined(edited(base, random))};
    for (std::size_t side = 0; side < texts.size(); ++side)
      std::ofstream(directory.path() + "/" + std::to_string(side), std::ios::binary) << texts[side];
    const Shell git = shell("cd " + directory.path() + " && git merge-file -p 1 0 2 > out");
    const std::optional<std::string> ours = merge_text(texts[0], texts[1], texts[2]);
    ASSERT_EQ(ours.has_value(), git.status == 0) << texts[0] << "--\n" << texts[1] << "--\n" << texts[2];
    (ours ? merged : refused) += 1;
    if (!ours) continue;
    std::ostringstream out;
    out << std::ifstream(directory.path() + "/out", std::ios::binary).rdbuf();
    ASSERT_EQ(*ours, out.str()) << texts[0] << "--\n" << texts[1] << "--\n" << texts[2];
  }
  EXPECT_GT(merged, 40);
  EXPECT_GT(refused, 20);
}

TEST_F(MergeText, WhatIsNoTextIsNotMerged) {
  const std::string text = "1\n2\n3\n4\n5\n", first = "one\n2\n3\n4\n5\n", last = "1\n2\n3\n4\nfive\n";
  EXPECT_EQ(merge_text(text, first, last), "one\n2\n3\n4\nfive\n");
  const std::string nul("\0", 1);
  EXPECT_EQ(merge_text(nul + text, nul + first, nul + last), std::nullopt);
  EXPECT_EQ(merge_text(text, first, last + nul), std::nullopt);
}

TEST_F(MergeText, ALineAtTheEndWithoutANewlineStaysSo) {
  EXPECT_EQ(merge_text("1\n2\n3\n4", "one\n2\n3\n4", "1\n2\n3\n4"), "one\n2\n3\n4");
  EXPECT_EQ(merge_text("", "", "new\n"), "new\n");
}

class MergeByLine : public testing::Test {
 protected:
  using Entry = session::TreeEntry;
  ObjectId blob(const std::string& text) { return quarantine_->put_blob(MemoryBytes(text)); }
  // `f` merged in a tree that has only it; nullopt: a conflict.
  std::optional<Entry> merged(const Entry& base, const Entry& ours, const Entry& theirs) {
    const auto tree = [&](const Entry& entry) { return quarantine_->put_tree({entry}); };
    const auto result =
        session::reconcile(*quarantine_, tree(base), tree(ours), tree(theirs), MergeFiles::by_line);
    if (std::holds_alternative<session::Conflicts>(result)) return std::nullopt;
    return quarantine_->read_tree(std::get<0>(result).value()).front();
  }

  GitTestRepository repository_;
  const std::unique_ptr<GitQuarantine> quarantine_ = repository_.quarantine();
  const ObjectId base_ = blob("1\n2\n3\n4\n5\n");
  const ObjectId first_ = blob("one\n2\n3\n4\n5\n"), other_first_ = blob("eins\n2\n3\n4\n5\n");
  const ObjectId last_ = blob("1\n2\n3\n4\nfive\n"), both_ = blob("one\n2\n3\n4\nfive\n");
};

TEST_F(MergeByLine, FilesThatBothSidesChangedElsewhereAreMerged) {
  const auto file = [](const ObjectId& id) { return Entry{"f", GitMode::regular, id}; };
  EXPECT_EQ(merged(file(base_), file(first_), file(last_)), file(both_));
  EXPECT_EQ(merged(file(base_), file(first_), file(other_first_)), std::nullopt);
}

TEST_F(MergeByLine, AModeAndAContentAreTwoChanges) {
  const auto file = [](GitMode mode, const ObjectId& id) { return Entry{"f", mode, id}; };
  const Entry run_both = file(GitMode::executable, both_);
  EXPECT_EQ(merged(file(GitMode::regular, base_), file(GitMode::executable, first_), file(GitMode::regular, last_)),
            run_both);
  EXPECT_EQ(merged(file(GitMode::regular, base_), file(GitMode::regular, first_), file(GitMode::executable, last_)),
            run_both);
  EXPECT_EQ(merged(file(GitMode::regular, base_), file(GitMode::executable, base_), file(GitMode::regular, last_)),
            file(GitMode::executable, last_));
}

TEST_F(MergeByLine, LinksAndWhatOneSideRemovedOrBothAddedConflict) {
  const auto link = [](const ObjectId& id) { return Entry{"f", GitMode::symlink, id}; };
  EXPECT_EQ(merged(link(base_), link(first_), link(last_)), std::nullopt);
  const Entry other{"other", GitMode::regular, base_};
  const auto file = [](const ObjectId& id) { return Entry{"f", GitMode::regular, id}; };
  EXPECT_EQ(merged(other, file(first_), file(last_)), std::nullopt) << "both added it";
  EXPECT_EQ(merged(file(base_), file(first_), other), std::nullopt) << "they deleted it";
}

TEST_F(MergeByLine, LargeTextsAreLeftToConflict) {
  std::string large;
  while (large.size() <= session::Quarantine::kLargestMergedText_bytes) large += std::string(1023, 'x') + "\n";
  const auto file = [&](const std::string& text) { return Entry{"f", GitMode::regular, blob(text)}; };
  EXPECT_EQ(merged(file("1\n" + large + "2\n"), file("one\n" + large + "2\n"), file("1\n" + large + "two\n")),
            std::nullopt);
}

}  // namespace
}  // namespace escrow::storage
