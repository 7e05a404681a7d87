// init, import, log, gc, verify, version: the repository as the commands leave it.
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/mount/cli_fixture.h"

namespace escrow::test {
namespace {

using Repository = EscrowCommands;

TEST_F(Repository, ImportKeepsLinksAndExecutableBits) {
  shell(
      "cd in && ln -s ../a.txt dir/link && echo '#!/bin/sh' > tool && chmod 755 tool && echo '*' > .gitignore && "
      "mkdir -p .git empty && echo x > .git/config && mkfifo pipe",
      {.directory = directory_.path(), .environment = {}, .input = {}});
  const std::string said = done({"import", file("in"), "--include-ignored", "-m", "second"});
  for (const char* named : {".git", "empty", "pipe"}) EXPECT_NE(said.find(named), std::string::npos) << said;
  EXPECT_EQ(git("ls-tree main tool | cut -c1-6"), "100755");
  EXPECT_EQ(content("dir/link"), "../a.txt");
  EXPECT_EQ(git("ls-tree -r --name-only main"), ".gitignore\na.txt\ndir/b.txt\ndir/link\ndir/sub/c.txt\ntool");
  EXPECT_NE(git("log -1 --format=%B main").find("Escrow-Source: import"), std::string::npos);
  git("fsck --strict");
}

TEST_F(Repository, ImportMakesThePrefixExactlyTheDirectory) {
  shell("mkdir -p other && echo n > other/n.txt", {.directory = directory_.path(), .environment = {}, .input = {}});
  done({"import", file("other"), "--path-prefix", "dir", "-m", "replace"});
  EXPECT_EQ(git("ls-tree -r --name-only main"), "a.txt\ndir/n.txt");
}

TEST_F(Repository, ImportOntoABranchThatDoesNotExistCreatesIt) {
  done({"import", file("in"), "--branch", "fresh"});
  EXPECT_EQ(git("rev-parse fresh^{tree}"), git("rev-parse main^{tree}"));
}

TEST_F(Repository, ImportingTheSameAgainMakesNoCommit) {
  const std::string before = head();
  EXPECT_NE(done({"import", file("in")}).find("already"), std::string::npos);
  EXPECT_EQ(head(), before);
}

TEST_F(Repository, ImportTakesNamesOfAnyBytes) {
  shell(
      "printf n > \"$(printf 'in/new\\nline')\"; printf r > \"$(printf 'in/raw\\377')\"; "
      "printf e > \"$(printf 'in/esc\\033')\"",
      {.directory = directory_.path(), .environment = {}, .input = {}});
  done({"import", file("in")});
  EXPECT_EQ(git("ls-tree --name-only main | sort"), "\"esc\\033\"\n\"new\\nline\"\n\"raw\\377\"\na.txt\ndir");
}

// A planted core.fsmonitor is a command that `git status` runs.
TEST_F(Repository, APlantedGitDirectoryIsNeitherShownNorPushedNorCommittedAgain) {
  const ProcessOptions there{.directory = directory_.path(), .environment = {}, .input = {}};
  git("config receive.fsckObjects false");
  shell("git clone -q data.git work && cd work && config=$(printf '[core]\\n\\tfsmonitor = touch ran\\n' | "
        "git hash-object -w --stdin) && dot=$(printf '100644 blob %s\\tconfig\\n' $config | git mktree) && "
        "link=$(printf a.txt | git hash-object -w --stdin) && tree=$( (git ls-tree HEAD; "
        "printf '040000 tree %s\\t.git\\n120000 blob %s\\t.gitmodules\\n' $dot $link) | git mktree) && "
        "git push -q origin $(git -c user.name=x -c user.email=x@x commit-tree -p HEAD -m planted $tree):main", there);
  ASSERT_NE(git("ls-tree --name-only main").find(".git\n"), std::string::npos);
  git("config receive.fsckObjects true");
  EXPECT_NE(shell("cd work && git fetch -q origin main && git init -q --bare fresh && git -C fresh config "
                  "receive.fsckObjects true && git push fresh FETCH_HEAD:refs/heads/x 2>&1 || true", there)
                .find("contains '.git'"), std::string::npos);
  const std::string session = mount({"--no-git"});
  EXPECT_EQ(shell("ls -A", {.directory = mountpoint_, .environment = {}, .input = {}}), "a.txt\ndir");
  shell("git status || true; git -C mnt status || true; git -C mnt/dir status || true", there);
  EXPECT_FALSE(std::filesystem::exists(in_mount("ran")));
  EXPECT_FALSE(std::filesystem::exists(in_mount(".git")));
  write(in_mount("new.txt"), "new");
  done({"commit", session});
  EXPECT_EQ(git("ls-tree --name-only main"), "a.txt\ndir\nnew.txt");
}

TEST_F(Repository, WhatGitFsckRefusesIsLeftOutAndNamed) {
  const std::string session = mount();
  write(in_mount(".gitattributes"), std::string(3000, 'x'));
  write(in_mount("dir/.gitmodules"), "[submodule \"..\"]\n\tpath = p\n\turl = u\n");
  write(in_mount("good.txt"), "good");
  const std::string said = done({"commit", session});
  EXPECT_NE(said.find("refused by git fsck (2): .gitattributes, dir/.gitmodules"), std::string::npos) << said;
  EXPECT_EQ(git("ls-tree -r --name-only main"), "a.txt\ndir/b.txt\ndir/sub/c.txt\ngood.txt");
  git("fsck --strict");
  write(file("in/.gitmodules"), "[submodule \"a\"]\n\turl = -x\n");
  EXPECT_NE(done({"import", file("in")}).find("refused by git fsck (1): .gitmodules"), std::string::npos);
  git("fsck --strict");
}

TEST_F(Repository, VerifyIsContentAfterAnOpenSessionThatDeletedASmallFileWasUnmounted) {
  const std::string session = mount();
  shell("echo small > gone && echo small > kept && sync gone kept && rm gone && sync .",
        {.directory = mountpoint_, .environment = {}, .input = {}});
  done({"unmount", session});
  done({"verify"});
  mount({"--session", session});
  done({"unmount", session});
  done({"verify"});
}

TEST_F(Repository, LogShowsTheAuditRecordAndOnlyCommitsOfThePath) {
  write(file("in/dir/b.txt"), "changed");
  done({"import", file("in"), "-m", "touch b", "--committer", "agent:trainer", "--trigger", "cron", "--trigger-id",
        "7"});
  const std::string all = done({"log"});
  for (const char* part : {"first import", "touch b", "agent:trainer", "cron", "import"}) {
    EXPECT_NE(all.find(part), std::string::npos) << all;
  }
  EXPECT_EQ(done({"log", "a.txt"}).find("touch b"), std::string::npos);
  EXPECT_EQ(done({"log", "-n", "1"}).find("first import"), std::string::npos);
  EXPECT_NE(done({"log", "--json"}).find("\"Escrow-Trigger-Id\":\"7\""), std::string::npos);
  refused(1, "nowhere", {"log", "--branch", "nowhere"});
}

TEST_F(Repository, LogShowsWhatStandsInOneParagraphWithTheAuditRecord) {
  const auto body_of = [&](const std::string& message) {
    git("update-ref refs/heads/main $(printf '" + message + "' | git --git-dir='" + repository_ +
        "' -c user.name=m -c user.email=m commit-tree main^{tree} -p main)");
    const auto said = nlohmann::json::parse(done({"log", "-n", "1", "--json"}));
    EXPECT_EQ(said[0]["audit"]["Escrow-Committer"], "user:x\n two") << said;
    return said[0]["message"].get<std::string>();
  };
  const std::string audit = "Escrow-Committer: user:x\\n two\\n";
  EXPECT_EQ(body_of("one\\n\\nwhy\\n\\n" + audit), "one\n\nwhy");
  EXPECT_EQ(body_of("one\\n\\nCo-authored-by: y <y>\\n" + audit + "Signed-off-by: z <z>\\n"),
            "one\n\nCo-authored-by: y <y>\nSigned-off-by: z <z>");
}

TEST_F(Repository, GcKeepsWhatAnOpenSessionNeeds) {
  const std::string id = mount();
  write(in_mount("new"), "new");
  EXPECT_NE(done({"gc"}).find("objects"), std::string::npos);
  git("gc --prune=now --quiet");
  EXPECT_EQ(read(in_mount("dir/sub/c.txt")), "c\n");
  done({"commit", id});
  EXPECT_EQ(content("new"), "new");
  EXPECT_EQ(done({"verify", "--json"}), "{\"sound\":true,\"problems\":[]}");
}

TEST_F(Repository, VerifyNamesADamagedObject) {
  const std::string blob = git("rev-parse main:a.txt");
  git("unpack-objects -q < /dev/null || true");
  shell("cd '" + repository_ +
        "' && for p in objects/pack/*.pack; do mv \"$p\" objects/p; rm -f objects/pack/*; "
        "git -c safe.directory='*' unpack-objects -q < objects/p; done; f=objects/" +
        blob.substr(0, 2) + "/" + blob.substr(2) + "; test -f $f && chmod u+w $f && printf broken > $f");
  const ProcessResult result = escrow({"verify"});
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_NE(result.out.find(blob), std::string::npos) << result.out;
}

TEST_F(Repository, AnExistingNonBareRepositoryIsAdopted) {
  const std::string work = file("work");
  shell("git init -q -b main '" + work + "' && cd '" + work +
        "' && echo w > w.txt && git add . && git -c user.name=n -c user.email=e commit -q -m w");
  const auto in_work = [&](std::vector<std::string> arguments) {
    return run_escrow(std::move(arguments), {.directory = work, .environment = {}, .input = {}});
  };
  EXPECT_EQ(in_work({"init"}).status, 0);
  const ProcessResult own = in_work({"mount", mountpoint_});
  ASSERT_EQ(own.status, 0) << own.err;
  write(in_mount("o.txt"), "o");
  EXPECT_EQ(in_work({"commit", own.out.substr(0, 8)}).status, 0);
  EXPECT_EQ(read(work + "/o.txt"), "o") << "the checkout follows its branch";
  shell("git -C '" + work + "' branch side");
  const ProcessResult mounted = in_work({"mount", mountpoint_, "--branch", "side"});
  ASSERT_EQ(mounted.status, 0) << mounted.err;
  EXPECT_EQ(read(in_mount("w.txt")), "w\n");
  write(in_mount("s.txt"), "s");
  EXPECT_EQ(in_work({"commit", mounted.out.substr(0, 8)}).status, 0);
  EXPECT_EQ(shell("git -C '" + work + "' show side:s.txt"), "s");
}

TEST_F(Repository, InitTwiceChangesNothing) {
  const std::string before = head();
  EXPECT_NE(done({"init"}).find("ready"), std::string::npos);
  EXPECT_EQ(head(), before);
}

TEST_F(Repository, VersionIsForPeopleAndForPrograms) {
  EXPECT_TRUE(run_escrow({"version"}).out.starts_with("escrow "));
  EXPECT_TRUE(run_escrow({"version", "--json"}).out.starts_with("{\"version\":\""));
}

TEST_F(Repository, EveryCommandHasHelpWithItsOptions) {
  for (const char* command : {"init", "import", "run", "mount", "unmount", "sessions", "status", "diff", "commit",
                              "rollback", "discard", "update", "log", "gc", "verify", "version"}) {
    const ProcessResult help = run_escrow({command, "--help"});
    EXPECT_EQ(help.status, 0) << command;
    EXPECT_NE(help.out.find(command), std::string::npos) << help.out;
    EXPECT_EQ(help.err, "") << command;
  }
}

// Where the tests of mounts run, they can mount.
TEST_F(Repository, DoctorSaysWhatTheMachineAllows) {
  const std::string json = done({"doctor", "--json"});
  EXPECT_NE(json.find("\"can_mount\":true"), std::string::npos) << json;
  const std::string text = done({"doctor"});
  EXPECT_NE(text.find("yes  /dev/fuse: opens"), std::string::npos) << text;
  for (const char* name : {"mounting", "fusermount3", "user namespaces", "libfuse", "io_uring", "passthrough"}) {
    EXPECT_NE(text.find(std::string("  ") + name + ": "), std::string::npos) << text;
    EXPECT_NE(json.find(std::string("\"name\":\"") + name + "\""), std::string::npos) << json;
  }
}

}  // namespace
}  // namespace escrow::test
