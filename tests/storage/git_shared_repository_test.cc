// core.sharedRepository: what Escrow writes has the modes that git gives it, whatever the umask.
#include <sys/stat.h>

#include <git2.h>

#include "storage/git/git_repository_pool.h"
#include "storage/git/shared_permissions.h"
#include "tests/storage/git_test_repository.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::SessionId;

class SharedRepository : public testing::Test {
 protected:
  SharedRepository() : before_(::umask(077)) {}
  ~SharedRepository() override { ::umask(before_); }

  GitTestRepository repository_;

 private:
  const mode_t before_;
};

std::string modes(const GitTestRepository& repository, const std::string& paths) {
  return run("cd " + repository.path + " && stat -c %a " + paths + " | sort -u");
}

// Every kind of file that git shares, made by Escrow and by git itself.
TEST_F(SharedRepository, FilesHaveTheModesThatGitGivesThem) {
  for (const char* value : {"group", "all", "0640", "0666", "true", "umask", "0"}) {
    SCOPED_TRACE(value);
    const GitTestRepository repository;
    repository.git(std::string("config core.sharedRepository ") + value);
    const SessionId id = SessionId::generate();
    const auto held = repository.quarantine("q");
    const auto commit = GitTestRepository::put_file(*held, "f", value);
    {
      const auto published = held->publish(commit);
      ASSERT_TRUE(repository.references->compare_and_swap("of/us", std::nullopt, commit, "test"));
    }
    repository.references->pin_base(id, commit);
    repository.references->keep_result(id, commit);
    repository.git("branch of-git/branch " + commit.hex());
    run("cd " + repository.path + " && git rev-list --objects " + commit.hex() + " | git pack-objects -q "
        "objects/pack/pack");
    for (const std::string& path :
         {std::string("refs/heads/of/us"), std::string("logs/refs/heads/of/us"),
          "refs/escrow/base/" + id.text() + "/" + commit.hex(), "refs/sessions/" + id.text()})
      EXPECT_EQ(modes(repository, path), modes(repository, "refs/heads/of-git/branch")) << path;
    for (const char* path : {"refs/heads/of", "logs/refs/heads/of"})
      EXPECT_EQ(modes(repository, path), modes(repository, "refs/heads/of-git")) << path;
    EXPECT_EQ(modes(repository, "objects/pack/*.pack objects/pack/*.idx").find('\n'), std::string::npos)
        << "ours and git's differ: " << modes(repository, "objects/pack/*.pack objects/pack/*.idx");
  }
}

// As it may be for every repository of a user.
TEST_F(SharedRepository, ANewRepositoryHasTheModesOfOneThatGitMade) {
  support::TemporaryDirectory home;
  start_libgit2();
  git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, GIT_CONFIG_LEVEL_GLOBAL, home.path().c_str());
  std::ofstream(home.path() + "/.gitconfig") << "[core]\n\tsharedRepository = group\n";
  run("GIT_CONFIG_GLOBAL=" + home.path() + "/.gitconfig git init -q --bare " + home.path() + "/by-git");
  Repository::init(home.path() + "/by-us", "main");
  git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, GIT_CONFIG_LEVEL_GLOBAL, nullptr);
  const auto modes = [&](const std::string& name) {
    return run("cd " + home.path() + "/" + name + " && stat -c '%n %a' . refs refs/heads refs/tags objects "
               "objects/info objects/pack info HEAD config");
  };
  EXPECT_EQ(modes("by-us"), modes("by-git"));
}

TEST_F(SharedRepository, AValueThatTakesTheOwnersRightsAwayIsRefused) {
  repository_.git("config core.sharedRepository 0070");
  const auto error = error_of([&] { SharedPermissions::of(repository_.path); });
  EXPECT_EQ(error.code(), Errc::unsupported_repository);
  EXPECT_NE(std::string(error.what()).find("0070"), std::string::npos) << error.what();
  // git itself starts no more.
  run("sed -i s/0070/0660/ " + repository_.path + "/config");
  EXPECT_TRUE(SharedPermissions::of(repository_.path).is_shared()) << "a change is seen at once";
}

TEST_F(SharedRepository, ModesAreThoseOfGit) {
  repository_.git("config core.sharedRepository group");
  const auto group = SharedPermissions::of(repository_.path);
  EXPECT_EQ(group.mode(S_IFREG | 0600), static_cast<mode_t>(S_IFREG | 0660));
  EXPECT_EQ(group.mode(S_IFREG | 0400), static_cast<mode_t>(S_IFREG | 0440));
  EXPECT_EQ(group.mode(S_IFREG | 0700), static_cast<mode_t>(S_IFREG | 0770));
  EXPECT_EQ(group.mode(S_IFDIR | 0700), static_cast<mode_t>(S_IFDIR | S_ISGID | 0770));
  repository_.git("config core.sharedRepository 0640");
  EXPECT_EQ(SharedPermissions::of(repository_.path).mode(S_IFREG | 0644), static_cast<mode_t>(S_IFREG | 0640));
  EXPECT_EQ(SharedPermissions().mode(S_IFREG | 0600), static_cast<mode_t>(S_IFREG | 0600));
}

}  // namespace
}  // namespace escrow::storage
