// A helper process holds nothing that would keep the connection of a mount after its host, and runs where its requests
// are answered.
#include "fuse/helper_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>

#include "fuse/mount_visits.h"

namespace escrow::fuse {
namespace {

// A ring of io_uring, mapped as its users map it.
class MappedRing {
 public:
  MappedRing() {
    io_uring_params parameters{};
    ring_ = static_cast<int>(::syscall(SYS_io_uring_setup, 4, &parameters));
    if (ring_ < 0) return;
    size_ = parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned);
    memory_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, ring_, IORING_OFF_SQ_RING);
  }
  ~MappedRing() {
    if (memory_ != MAP_FAILED) ::munmap(memory_, size_);
    ::close(ring_);
  }
  MappedRing(const MappedRing&) = delete;
  MappedRing& operator=(const MappedRing&) = delete;
  bool is_mapped() const { return memory_ != MAP_FAILED; }

 private:
  int ring_ = -1;
  std::size_t size_ = 0;
  void* memory_ = MAP_FAILED;
};

// Its table of mappings, in messages.
void report_mappings(const HelperProcess::Report& report) {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  char bytes[4096];
  for (ssize_t size = 0; (size = ::read(maps, bytes, sizeof bytes)) > 1;)
    report.add(bytes, static_cast<std::size_t>(size));
  ::close(maps);
}

TEST(HelperProcess, HasNoMappingOfARing) {
  const MappedRing first, second;
  ASSERT_TRUE(first.is_mapped() && second.is_mapped()) << std::strerror(errno);
  HelperProcess helper(report_mappings);
  const auto reports = helper.finish(HelperProcess::kForEver);
  ASSERT_TRUE(reports);
  std::string mappings;
  for (const std::string& part : *reports) mappings += part;
  EXPECT_NE(mappings.find("[stack]"), std::string::npos) << mappings;
  EXPECT_EQ(mappings.find("[io_uring]"), std::string::npos) << mappings;
}

std::set<int> processors_of(pid_t pid) {
  cpu_set_t allowed;
  std::set<int> processors;
  if (::sched_getaffinity(pid, sizeof allowed, &allowed) != 0) return processors;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor)
    if (CPU_ISSET(static_cast<unsigned>(processor), &allowed)) processors.insert(processor);
  return processors;
}

TEST(HelperProcess, IsKeptOffTheProcessorsWhoseRingNobodyServes) {
  const HelperProcess kept_off([](const HelperProcess::Report&) {}), anywhere([](const HelperProcess::Report&) {});
  const std::set<int> all = processors_of(kept_off.pid());
  ASSERT_FALSE(all.empty());
  WaitingRings rings;
  for (const int processor : all) rings.add(processor);
  rings.keep_off(anywhere.pid());
  EXPECT_EQ(processors_of(anywhere.pid()), all) << "there is none that is served";
  rings.add(*all.begin());
  for (const int processor : all) rings.remove(processor);
  rings.keep_off(kept_off.pid());
  std::set<int> others = all;
  if (all.size() > 1) others.erase(*all.begin());
  EXPECT_EQ(processors_of(kept_off.pid()), others);
}

}  // namespace
}  // namespace escrow::fuse
