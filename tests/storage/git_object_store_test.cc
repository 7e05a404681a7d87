#include <filesystem>
#include <fstream>
#include <atomic>
#include <functional>
#include <thread>

#include "tests/session/eventually.h"
#include "tests/storage/git_test_repository.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::GitMode;
using session::ObjectId;

ObjectId id_of(const std::string& hex) { return ObjectId::from_hex(hex).value(); }

std::string loose_path_of(const GitTestRepository& repository, const std::string& hex) {
  return repository.path + "/objects/" + hex.substr(0, 2) + "/" + hex.substr(2);
}

ObjectId write_blob(const GitTestRepository& repository, const std::string& content) {
  const std::string file = repository.scratch("blob");
  std::ofstream(file, std::ios::binary) << content;
  // Loose, whatever the size: git would stream a large blob straight into a pack.
  return id_of(run("git -C " + repository.path + " -c core.bigFileThreshold=1g hash-object -w " + file));
}

TEST(GitObjectStore, ReadsWhatGitWroteLooseAndPacked) {
  GitTestRepository repository;
  const ObjectId blob = write_blob(repository, "one");
  const std::string tree_text = "100755 blob " + blob.hex() + "\\tx\\n120000 blob " + blob.hex() + "\\ty\\n";
  const ObjectId tree = id_of(run("printf '" + tree_text + "' | git -C " + repository.path + " mktree"));
  const ObjectId commit = id_of(repository.git("commit-tree -m 'Über' " + tree.hex()));
  repository.git("update-ref refs/heads/main " + commit.hex());
  for (int round = 0; round < 2; ++round) {
    const session::Commit read = repository.store->read_commit(commit);
    EXPECT_EQ(read.tree, tree);
    EXPECT_EQ(read.message, "Über\n");
    EXPECT_EQ(read.author.name, "t");
    const session::Tree expected{{"x", GitMode::executable, blob}, {"y", GitMode::symlink, blob}};
    EXPECT_EQ(repository.store->read_tree(tree), expected);
    EXPECT_EQ(repository.store->blob_size(blob), 3u);
    EXPECT_EQ(content_of(*repository.store->open_blob(blob)), "one");
    repository.git("gc -q");
  }
}

TEST(GitObjectStore, AMissingObjectAndAWrongTypeAreErrorsOfThatObject) {
  GitTestRepository repository;
  const ObjectId blob = write_blob(repository, "x");
  const ObjectId missing = id_of(std::string(40, '7'));
  EXPECT_EQ(error_of([&] { repository.store->open_blob(missing); }).code(), Errc::input_output);
  EXPECT_EQ(error_of([&] { repository.store->read_tree(blob); }).code(), Errc::input_output);
  EXPECT_FALSE(repository.store->contains(missing));
  EXPECT_TRUE(repository.store->contains(blob));
}

// libgit2 goes on without packs, and says nothing, where it cannot look at their directory.
TEST(GitObjectStore, AHandleThatWasOpenedWithoutPacksIsTakenForNoAnswer) {
  GitTestRepository repository;
  const ObjectId blob = write_blob(repository, "one");
  repository.git("update-ref refs/tags/one " + blob.hex());
  repository.git("repack -q -a -d");
  ASSERT_FALSE(fs::exists(loose_path_of(repository, blob.hex())));
  const std::string packs = repository.path + "/objects/pack";
  const std::function<bool()> questions[] = {[&] { return repository.store->contains(blob); },
                                             [&] { return repository.store->blob_size(blob) == 3; },
                                             [&] { return repository.store->read_object(blob).content == "one"; }};
  for (const auto& question : questions) {
    fs::rename(packs, packs + ".away");
    {
      GitRepositoryPool::Borrowed blind = repository.pool->borrow();
      blind.odb();
    }
    fs::rename(packs + ".away", packs);
    EXPECT_TRUE(question());
    repository.pool = std::make_unique<GitRepositoryPool>(repository.path);
    repository.store = std::make_unique<GitObjectStore>(*repository.pool, repository.scratch("cache"));
  }
}

TEST(GitObjectStore, ADamagedObjectIsAnErrorForItselfAlone) {
  GitTestRepository repository;
  const ObjectId good = write_blob(repository, "good"), bad = write_blob(repository, "bad");
  const ObjectId other = write_blob(repository, "other");
  const std::string path = loose_path_of(repository, bad.hex());
  fs::permissions(path, fs::perms::owner_write, fs::perm_options::add);
  fs::copy_file(loose_path_of(repository, other.hex()), path, fs::copy_options::overwrite_existing);
  const auto error = error_of([&] { repository.store->open_blob(bad); });
  EXPECT_EQ(error.code(), Errc::input_output);
  EXPECT_NE(std::string(error.what()).find(bad.hex()), std::string::npos) << error.what();
  std::ofstream(path, std::ios::trunc) << "garbage";
  EXPECT_EQ(error_of([&] { repository.store->open_blob(bad); }).code(), Errc::input_output);
  EXPECT_EQ(content_of(*repository.store->open_blob(good)), "good");
}

TEST(GitObjectStore, LargeBlobsAreStreamedIntoTheCacheOnce) {
  GitTestRepository repository;
  const std::string large = noise(20 << 20, 1);
  const ObjectId blob = write_blob(repository, large);
  repository.git("update-ref refs/tags/large " + blob.hex());
  for (int round = 0; round < 2; ++round) {
    const auto source = repository.store->open_blob(blob);
    EXPECT_EQ(source->size(), large.size());
    std::string piece(1000, '\0');
    EXPECT_EQ(source->read(7'000'000, std::as_writable_bytes(std::span(piece))), piece.size());
    EXPECT_EQ(piece, large.substr(7'000'000, 1000));
    EXPECT_EQ(source->read(large.size() - 10, std::as_writable_bytes(std::span(piece))), 10u);
    EXPECT_EQ(source->read(large.size(), std::as_writable_bytes(std::span(piece))), 0u);
    EXPECT_EQ(content_of(*source), large);
    fs::remove_all(repository.path + "/escrow/cache");
    repository.git("repack -adq");
    repository.git("prune-packed");
  }
}

TEST(GitObjectStore, ALargeBlobThatIsDamagedNeverEntersTheCache) {
  GitTestRepository repository;
  const ObjectId blob = write_blob(repository, noise(9 << 20, 2)), other = write_blob(repository, noise(9 << 20, 3));
  const std::string path = loose_path_of(repository, blob.hex());
  fs::remove(path);
  fs::copy_file(loose_path_of(repository, other.hex()), path);
  EXPECT_EQ(error_of([&] { repository.store->open_blob(blob); }).code(), Errc::input_output);
  EXPECT_EQ(run("find " + repository.path + "/escrow/cache -type f"), "");
}

TEST(GitObjectStore, TheCacheForgetsTheLeastRecentlyOpenedAndReadersKeepTheirBytes) {
  support::TemporaryDirectory directory;
  BlobCache cache(directory.path() + "/cache", 250);
  const auto open = [&](const std::string& content) {
    return cache.open(hash_object(ObjectType::blob, content), content.size(), pulling(content));
  };
  const std::string a(100, 'a'), b(100, 'b'), c(100, 'c');
  const auto first = open(a);
  ASSERT_TRUE(support::next_file_time());
  open(b);
  ASSERT_TRUE(support::next_file_time());
  open(c);
  const std::string files = run("ls " + directory.path() + "/cache");
  EXPECT_EQ(files.find(hash_object(ObjectType::blob, a).hex()), std::string::npos);
  EXPECT_NE(files.find(hash_object(ObjectType::blob, b).hex()), std::string::npos);
  EXPECT_EQ(content_of(*first), a);
}

TEST(GitObjectStore, ThreadsThatWantTheSameBlobStreamItOnce) {
  support::TemporaryDirectory directory;
  BlobCache cache(directory.path() + "/cache");
  const std::string content = noise(1 << 20, 4);
  std::atomic<int> streamed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto source = cache.open(hash_object(ObjectType::blob, content), content.size(), [&] {
        ++streamed;
        return pulling(content)();
      });
      EXPECT_EQ(content_of(*source), content);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(streamed, 1);
}

TEST(GitObjectStore, ObjectsOfAnAlternateAreSeen) {
  GitTestRepository lender;
  const ObjectId large = write_blob(lender, noise(9 << 20, 5)), small = write_blob(lender, "small");
  GitTestRepository borrower;
  std::ofstream(borrower.path + "/objects/info/alternates") << lender.path << "/objects\n";
  EXPECT_EQ(content_of(*borrower.store->open_blob(small)), "small");
  EXPECT_EQ(borrower.store->open_blob(large)->size(), std::uint64_t{9} << 20);
}

TEST(GitObjectStore, ReadersFindTheirObjectsWhileGitRepacks) {
  GitTestRepository repository;
  std::vector<ObjectId> blobs;
  for (int i = 0; i < 200; ++i) blobs.push_back(write_blob(repository, "blob " + std::to_string(i)));
  std::string listing;
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    listing += "100644 blob " + blobs[i].hex() + "\\tf" + std::to_string(i) + "\\n";
  }
  const std::string tree = run("printf '" + listing + "' | git -C " + repository.path + " mktree");
  repository.git("update-ref refs/heads/main $(git -C " + repository.path + " commit-tree -m x " + tree + ")");
  std::atomic<bool> done = false;
  std::thread packer([&] {
    for (int i = 0; i < 5; ++i) {
      repository.git("gc -q --prune=now");
    }
    done = true;
  });
  while (!done) {
    for (const ObjectId& blob : blobs) EXPECT_GT(repository.store->blob_size(blob), 0u);
  }
  packer.join();
}

}  // namespace
}  // namespace escrow::storage
