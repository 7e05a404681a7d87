// A bind mount shows what was to be shown, or there is none.
#include "daemon/csi/bind_mount.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>

#include "session/base/error.h"
#include "tests/support/temporary_directory.h"

namespace {

std::function<void()> before_bind;  // called once, at the next mount(2) of this program that binds

}  // namespace

// Comes before the C library's (ld.so(8)).
extern "C" int mount(const char* source, const char* target, const char* type, unsigned long flags,
                     const void* data) noexcept {
  if ((flags & MS_BIND) != 0)
    if (const auto act = std::exchange(before_bind, nullptr)) act();
  return static_cast<int>(::syscall(SYS_mount, source, target, type, flags, data));
}

namespace escrow::daemon {
namespace {

class BindMount : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(0, ::mkdir(source_.c_str(), 0755));
    ASSERT_EQ(0, ::mount("escrow:1", source_.c_str(), "tmpfs", 0, "size=64k"));
  }
  ~BindMount() override {
    for (const std::string& path : {target_, source_})
      while (::umount2(path.c_str(), MNT_DETACH) == 0) {
      }
  }

  support::TemporaryDirectory directory_;
  const std::string source_ = directory_.path() + "/a source", target_ = directory_.path() + "/target";
};

TEST_F(BindMount, ShowsTheSessionOnceHoweverOftenItIsAskedFor) {
  bind_mount(source_, target_, true);
  bind_mount(source_, target_, true);
  ASSERT_TRUE(mount_at(target_));
  EXPECT_EQ(mount_at(source_), mount_at(target_));
  EXPECT_EQ("escrow:1", mount_at(target_)->source);
  EXPECT_NE(0, ::mkdir((target_ + "/new").c_str(), 0755)) << "it is read-only";
  remove_bind_mount(target_);
  EXPECT_FALSE(mount_at(target_));
  EXPECT_NE(0, ::access(target_.c_str(), F_OK));
}

TEST_F(BindMount, OfASessionThatGoesMeanwhileThereIsNone) {
  before_bind = [&] { ::umount2(source_.c_str(), MNT_DETACH); };
  try {
    bind_mount(source_, target_, false);
    ADD_FAILURE() << "the directory below the session's mount is shown";
  } catch (const session::Error& error) {
    EXPECT_EQ(session::Errc::unavailable, error.code()) << error.what();
  }
  EXPECT_FALSE(mount_at(target_));
}

}  // namespace
}  // namespace escrow::daemon
