// Extended attributes on a mount with user.* switched on, against ext4.
#include <sys/xattr.h>

#include <algorithm>
#include <vector>

#include "tests/mount/differential.h"

namespace escrow::support {
namespace {

class PosixXattrs : public Differential {
 protected:
  static void SetUpTestSuite() {
    if (fuse_missing() == nullptr) use(mount_tree({.base = {}, .xattrs = true}));
  }
};

void note_names(Scene& s, const char* file) {
  char names[4096];
  const ssize_t size = listxattr(file, names, sizeof names);
  if (size < 0) {
    s.check("listxattr", -1);
    return;
  }
  std::vector<std::string> found;
  for (ssize_t at = 0; at < size; at += static_cast<ssize_t>(found.back().size()) + 1) found.emplace_back(names + at);
  std::sort(found.begin(), found.end());
  std::string line = "names:";
  for (const std::string& name : found) line += " " + name;
  s.note(line);
}

TEST_F(PosixXattrs, UserAttributesAreSetReadListedAndRemoved) {
  compare([](Scene& s) {
    s.write("f", "x");
    s.make_directory("d");
    for (const char* name : {"f", "d"}) {
      char value[64] = {};
      s.check("get of none", getxattr(name, "user.a", value, sizeof value));
      s.check("replace of none", setxattr(name, "user.a", "1", 1, XATTR_REPLACE));
      s.check("set", setxattr(name, "user.a", "value", 5, 0));
      s.check("create again", setxattr(name, "user.a", "1", 1, XATTR_CREATE));
      s.check("replace", setxattr(name, "user.a", "other!", 6, XATTR_REPLACE));
      s.value("get", getxattr(name, "user.a", value, sizeof value));
      s.note(value);
      s.value("size", getxattr(name, "user.a", nullptr, 0));
      s.check("too small", getxattr(name, "user.a", value, 2));
      s.check("empty value", setxattr(name, "user.empty", "", 0, 0));
      s.value("get", getxattr(name, "user.empty", value, sizeof value));
      note_names(s, name);
      s.check("list too small", listxattr(name, value, 3));
      s.check("remove", removexattr(name, "user.a"));
      s.check("remove again", removexattr(name, "user.a"));
      note_names(s, name);
      s.check("both flags", setxattr(name, "user.b", "1", 1, XATTR_CREATE | XATTR_REPLACE));
      s.check("no name", setxattr(name, "user.", "1", 1, 0));
      s.check("long name", setxattr(name, ("user." + std::string(251, 'n')).c_str(), "1", 1, 0));
    }
  });
}

TEST_F(PosixXattrs, TheyFollowTheFileAndItsPermissions) {
  compare_as_root([](Scene& s) {
    s.write("f", "x", 0644);
    s.check("set", setxattr("f", "user.a", "1", 1, 0));
    s.times("setxattr", "f", [&] { s.check("set", setxattr("f", "user.b", "2", 1, 0)); });
    s.times("removexattr", "f", [&] { s.check("remove", removexattr("f", "user.b")); });
    s.check("rename", rename("f", "g"));
    s.check("link", link("g", "h"));
    note_names(s, "h");
    s.as(kNobody, [&] {
      char value[8];
      s.value("another reads", getxattr("g", "user.a", value, sizeof value));
      s.check("another writes", setxattr("g", "user.a", "2", 1, 0));
      s.check("another removes", removexattr("g", "user.a"));
    });
    s.make_symlink("g", "l");
    s.check("of a symlink", lsetxattr("l", "user.a", "1", 1, 0));
    s.check("of a fifo", (mkfifo("p", 0644), setxattr("p", "user.a", "1", 1, 0)));
  });
}

TEST_F(PosixXattrs, OtherNameSpacesAreNotSupported) {
  EXPECT_EQ("trusted -> EOPNOTSUPP\nsecurity -> EOPNOTSUPP\nacl -> EOPNOTSUPP\n", on_mount([](Scene& s) {
              s.write("f", "x");
              s.check("trusted", setxattr("f", "trusted.a", "1", 1, 0));
              s.check("security", setxattr("f", "security.a", "1", 1, 0));
              s.check("acl", getxattr("f", "system.posix_acl_access", nullptr, 0));
            }));
}

}  // namespace
}  // namespace escrow::support
