// Opens that wait, as those for writing do while a commit is under way, hold nobody else up.
#include "fuse/open_files.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "session/interfaces/forwarding_file_system.h"
#include "tests/fuse/host_file_system.h"
#include "tests/support/temporary_directory.h"

namespace escrow::fuse {
namespace {

using session::NodeId;
using session::OpenIntent;

// Its second open for writing waits until it is let through; all others pass.
class SlowToOpen final : public session::ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  std::unique_ptr<session::RawFile> open(NodeId node, OpenIntent intent) override {
    if (intent.write && ++opens_ == 2) {
      has_begun_.set_value();
      may_end_.get_future().wait();
    }
    return ForwardingFileSystem::open(node, intent);
  }

  void wait_until_one_waits() { has_begun_.get_future().wait(); }
  void let_through() { may_end_.set_value(); }

 private:
  std::atomic<int> opens_ = 0;
  std::promise<void> has_begun_, may_end_;
};

TEST(OpenFiles, AnOpenThatWaitsHoldsUpNoOtherCallOnItsFile) {
  const support::TemporaryDirectory directory;
  support::HostFileSystem host(directory.path());
  SlowToOpen files(host);
  OpenFiles open_files(files);
  const NodeId node = session::kRootNode;
  open_files.open(node, {.write = true});
  std::thread second([&] { open_files.open(node, {.write = true}); });
  files.wait_until_one_waits();

  EXPECT_EQ(open_files.open_for_writing(), std::vector<NodeId>{node});
  EXPECT_TRUE(open_files.may_have_dirty_pages(node));
  open_files.open(node, {.read = true});
  open_files.open(node, {.write = true});
  open_files.release(node, true);
  open_files.release(node, true);
  EXPECT_FALSE(open_files.may_have_dirty_pages(node)) << "the one that waits has written nothing";
  open_files.release(node, false);
  open_files.release(node, true);
  EXPECT_FALSE(open_files.may_have_dirty_pages(node)) << "a release without its open is none";

  files.let_through();
  second.join();
  EXPECT_TRUE(open_files.may_have_dirty_pages(node));
  open_files.release_all();
  EXPECT_TRUE(open_files.open_for_writing().empty());
}

}  // namespace
}  // namespace escrow::fuse
