#include "fuse/mount.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "fuse/io_uring.h"
#include "fuse/io_uring_support.h"
#include "fuse/mount_point.h"
#include "fuse/mount_visits.h"
#include "fuse/operation_table.h"
#include "fuse/passthrough.h"
#include "fuse/place.h"
#include "fuse/reply.h"
#include "session/base/error.h"
#include "session/base/synchronized.h"

namespace escrow::fuse {
namespace {

using session::Errc;
using session::Error;
using session::LogLevel;
using session::NodeId;

// One request: the largest write and its headers. The kernel refuses to read into less.
constexpr std::size_t kRequest_bytes = (std::size_t{1} << 20) + 65536;
constexpr unsigned kReadahead_kib = 1024;
constexpr unsigned kMostWaiting = 512;  // requests that wait at once and have a thread in their place

struct DestroySession {
  void operator()(fuse_session* session) const noexcept { fuse_session_destroy(session); }
};
using FuseSession = std::unique_ptr<fuse_session, DestroySession>;

struct FreeArguments {
  fuse_args* arguments;
  ~FreeArguments() { fuse_opt_free_args(arguments); }
};

FuseSession new_session(Service& service, const MountOptions& options, bool with_io_uring) {
  fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
  const FreeArguments free_arguments{&arguments};
  const std::string list = fuse_options(options) + (with_io_uring ? "," + io_uring_options() : std::string());
  if (fuse_opt_add_arg(&arguments, "escrow") != 0 || fuse_opt_add_arg(&arguments, "-o") != 0 ||
      fuse_opt_add_arg(&arguments, list.c_str()) != 0) {
    throw std::bad_alloc();
  }
  const fuse_lowlevel_ops operations = operation_table();
  FuseSession session(fuse_session_new(&arguments, &operations, sizeof operations, &service));
  if (!session) {
    throw Error(Errc::bad_request, "cannot mount at " + options.mountpoint + ": libfuse does not accept the " +
                                       "options \"" + list + "\"; see mount.fuse3(8)");
  }
  return session;
}

// The signals of the process are for its own threads: none is delivered to a thread made while this lives.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// read(2), the only place where stop_threads() may end the calling thread.
ssize_t receive(int device, std::byte* buffer) {
  int before = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
  const ssize_t size = ::read(device, buffer, kRequest_bytes);
  const int error = errno;
  pthread_setcancelstate(before, nullptr);
  errno = error;
  return size;
}

// Whether answering takes a moment, or has to be waited for. Beside io_uring no other requests come from the device.
bool is_answered(const std::byte* request) {
  fuse_in_header header;
  std::memcpy(&header, request, sizeof header);
  return header.opcode != FUSE_FORGET && header.opcode != FUSE_BATCH_FORGET && header.opcode != FUSE_INTERRUPT;
}

}  // namespace

const char* name_of(Opens opens) { return opens == Opens::none ? "none" : "daemon"; }
const char* name_of(Data data) {
  return data == Data::cached ? "cached" : data == Data::writeback ? "writeback" : "passthrough";
}

struct Mount::Impl {
  Impl(session::FileSystem& file_system, const MountOptions& options_in, session::Log& log_in,
       std::function<void()> on_unmounted_in)
      : options(options_in),
        log(log_in),
        on_unmounted(std::move(on_unmounted_in)),
        with_io_uring(options_in.io_uring && io_uring_obstacle() == IoUringObstacle::none),
        service(file_system, log_in, options_in) {}

  void start();
  void start_threads();
  unsigned most_threads() const { return std::max(options.threads, 1u) + std::min(waiting.load(), kMostWaiting); }
  // While there may be one more, and nobody stops them.
  void add_thread();
  void add_thread_or_complain() noexcept;
  bool is_spare() const { return running > most_threads() && reading > 0; }
  void serve(std::byte* buffer);
  // The bytes of a request, read into `buffer`; nullopt when there will be no other.
  std::optional<std::size_t> next_request(std::byte* buffer);
  void answer_request(std::byte* buffer, std::size_t bytes);
  void thread_ended();
  // The kernel has let go: nothing will come from the device any more.
  bool is_severed(int timeout_ms = 0) const;
  // Whether the path still leads to this mount and not to another on top of it.
  bool is_reachable() const;
  void raise_readahead() const;
  void stop_threads();

  const MountOptions options;                // constant
  session::Log& log;                         // constant
  const std::function<void()> on_unmounted;  // constant
  const bool with_io_uring;                  // constant
  std::string mountpoint;                    // constant once started
  dev_t device_number = 0;                   // constant once started
  Service service;                           // self-locking
  std::optional<MountVisits> visits;         // constant once started; self-locking
  FuseSession session;                       // constant once started; libfuse's calls are thread-safe
  struct Threads {
    std::vector<std::thread> serving;
    std::vector<std::thread::id> retired;  // of those, no longer needed: to be joined
    bool stopping = false;
  };
  session::Synchronized<Threads> threads;    // self-locking
  std::atomic<unsigned> running = 0;
  std::atomic<unsigned> reading = 0;         // of those, waiting for a request
  std::atomic<unsigned> waiting = 0;         // of those, in the middle of one: begin_to_wait()
  std::atomic<bool> let_go = false;
  std::atomic<bool> unmounted = false;       // by try_unmount()
  std::atomic<bool> has_complained = false;  // of a thread that could not be had
  std::uint64_t own_requests = 0;            // constant once started
};

void Mount::Impl::start() {
  if (options.io.data == Data::passthrough && options.io.opens == Opens::none) {
    throw Error(Errc::bad_request, "cannot mount at " + options.mountpoint +
                                       ": passthrough is decided when a file is opened, so it needs opens that reach "
                                       "the daemon; use --opens daemon or leave it out");
  }
  mountpoint = checked_mountpoint(options.mountpoint, options.is_fresh_mountpoint);
  session = new_session(service, options, with_io_uring);
  if (options.io.data == Data::passthrough) service.open_files.pass_through(session.get());
  attach(session.get(), mountpoint, options);
  try {
    device_number = device_of_new_mount(options);
    start_threads();
    // The request to begin has been answered, so the kernel knows what was asked for.
    if (options.io.data == Data::passthrough) require_passthrough(session.get(), mountpoint);
  } catch (...) {
    if (device_number == 0)
      detach_new_mount(options);
    else if (is_reachable())
      unmount(mountpoint, UnmountMode::detach);
    stop_threads();
    throw;
  }
  visits.emplace(mountpoint, device_number, options.paths_of, service.helpers, service.waiting_rings);
  raise_readahead();
}

void Mount::Impl::start_threads() {
  {
    // The first request is INIT: answering it starts the threads of io_uring.
    const SignalsBlocked signals_blocked;
    const std::unique_ptr<std::byte[]> buffer(new std::byte[kRequest_bytes]);
    const auto bytes = next_request(buffer.get());
    // One mount after the other: libfuse asks for the node of each CPU, which libnuma keeps without a lock of its own.
    static session::Synchronized<std::monostate> making_rings;
    const auto alone = making_rings.lock();
    if (bytes) answer_request(buffer.get(), *bytes);
  }
  add_thread();
}

void Mount::Impl::add_thread() {
  auto now = threads.lock();
  if (now->stopping || running >= most_threads()) return;
  std::erase_if(now->serving, [&](std::thread& thread) {
    const bool is_retired = std::erase(now->retired, thread.get_id()) > 0;
    if (is_retired) thread.join();
    return is_retired;
  });
  const SignalsBlocked signals_blocked;
  ++running;
  try {
    // Here, where it can fail without an end of the process.
    now->serving.emplace_back(
        [this, buffer = std::unique_ptr<std::byte[]>(new std::byte[kRequest_bytes])] { serve(buffer.get()); });
  } catch (...) {
    --running;
    throw;
  }
}

void Mount::Impl::add_thread_or_complain() noexcept {
  try {
    add_thread();
  } catch (const std::exception& failure) {
    // Those there are serve on; memory or threads may be there again for the next request.
    if (!has_complained.exchange(true))
      log.write(LogLevel::warning, "the mount at " + mountpoint + " got no further thread: " + failure.what());
  }
}

void Mount::Impl::serve(std::byte* buffer) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  while (const auto bytes = next_request(buffer)) {
    if (reading == 0 && running < most_threads() && is_answered(buffer)) add_thread_or_complain();
    answer_request(buffer, *bytes);
    if (!is_spare()) continue;
    threads.lock()->retired.push_back(std::this_thread::get_id());
    break;
  }
  thread_ended();
}

std::optional<std::size_t> Mount::Impl::next_request(std::byte* buffer) {
  for (;;) {
    ++reading;
    const ssize_t size = receive(fuse_session_fd(session.get()), buffer);
    --reading;
    if (size >= 0) return static_cast<std::size_t>(size);
    // ENOENT: the request was interrupted before it was read.
    if (errno == EINTR || errno == EAGAIN || errno == ENOENT) continue;
    // ECONNABORTED: it was unmounted, or its connection ended, elsewhere.
    if (errno != ENODEV && errno != ECONNABORTED) {
      log.write(LogLevel::error,
                "the mount at " + mountpoint + " ends: reading /dev/fuse failed: " + std::strerror(errno));
    }
    return std::nullopt;
  }
}

void Mount::Impl::answer_request(std::byte* buffer, std::size_t bytes) {
  fuse_buf request{};
  request.size = bytes;
  request.mem = buffer;
  fuse_session_process_buf(session.get(), &request);
}

void Mount::Impl::thread_ended() {
  if (running.fetch_sub(1) != 1 || let_go.exchange(true)) return;
  service.open_files.release_all();
  service.inodes.forget_all();
  if (on_unmounted) on_unmounted();
}

bool Mount::Impl::is_severed(int timeout_ms) const {
  pollfd device{fuse_session_fd(session.get()), 0, 0};
  return ::poll(&device, 1, timeout_ms) == 1 && (device.revents & POLLERR) != 0;
}

bool Mount::Impl::is_reachable() const {
  const auto device = device_of(mountpoint);
  return device && *device == device_number;
}

// The kernel's default of 128 KiB is a bound that INIT can only lower; root may raise it here.
void Mount::Impl::raise_readahead() const {
  std::ofstream setting("/sys/class/bdi/" + std::to_string(major(device_number)) + ":" +
                        std::to_string(minor(device_number)) + "/read_ahead_kb");
  setting << kReadahead_kib << std::flush;
}

void Mount::Impl::stop_threads() {
  service.is_ending = true;
  std::vector<std::thread> last;
  {
    auto now = threads.lock();
    now->stopping = true;
    last.swap(now->serving);
  }
  if (!is_severed()) {
    // Something still holds the mount: it will see ENOTCONN. Closing the device does not wake a blocked read.
    for (std::thread& thread : last) pthread_cancel(thread.native_handle());
  }
  for (std::thread& thread : last) thread.join();
  stop_io_uring(session.get());
  service.open_files.release_all();
  service.inodes.forget_all();
}

Mount::Mount(session::FileSystem& file_system, const MountOptions& options, session::Log& log,
             std::function<void()> on_unmounted)
    : impl_(std::make_unique<Impl>(file_system, options, log, std::move(on_unmounted))) {
  impl_->start();
  impl_->own_requests = impl_->service.counts.all();
  invalidate({{session::kRootNode, ""}});
}

Mount::~Mount() {
  detach();
  impl_->stop_threads();
}

bool Mount::try_unmount() {
  if (impl_->is_severed() || impl_->unmounted) return true;
  if (!impl_->is_reachable() || !unmount(impl_->mountpoint, UnmountMode::if_unused)) return false;
  impl_->unmounted = true;
  return true;
}

void Mount::detach() {
  if (!impl_->is_severed() && impl_->is_reachable()) unmount(impl_->mountpoint, UnmountMode::detach);
}

bool Mount::wait_for_end(std::chrono::milliseconds patience) const {
  return impl_->is_severed(static_cast<int>(patience.count()));
}

bool Mount::is_mounted() const { return !impl_->is_severed(); }

bool Mount::is_unmounted() const { return impl_->unmounted; }

dev_t Mount::device() const { return impl_->device_number; }

IoMode Mount::io() const { return impl_->options.io; }

bool Mount::uses_io_uring() const { return impl_->service.over_io_uring; }

std::shared_ptr<void> Mount::begin_to_wait() {
  struct Leave {
    explicit Leave(Impl& to) : impl(to), processor(to.service.over_io_uring ? WaitingRings::of_this_thread() : -1) {
      ++impl.waiting;
      if (processor >= 0) impl.service.waiting_rings.add(processor);
    }
    ~Leave() {
      --impl.waiting;
      if (processor >= 0) impl.service.waiting_rings.remove(processor);
    }
    Leave(const Leave&) = delete;
    Leave& operator=(const Leave&) = delete;

    Impl& impl;
    const int processor;  // of the ring that waits; -1: over /dev/fuse
  };
  auto leave = std::make_shared<Leave>(*impl_);
  if (impl_->reading == 0) impl_->add_thread_or_complain();
  return leave;
}

Flushed Mount::flush(const std::vector<NodeId>& files, std::chrono::milliseconds patience) {
  if (impl_->is_severed()) return Flushed::all;
  const bool knows_opens = impl_->options.io.opens == Opens::daemon;
  return impl_->visits->flush(knows_opens ? impl_->service.open_files.open_for_writing() : files, patience);
}

void Mount::invalidate(const std::vector<NameInDirectory>& names) {
  if (impl_->is_severed()) return;
  std::set<NodeId> directories;
  std::vector<NameInDirectory> held;
  for (const NameInDirectory& name : names) {
    if (!impl_->service.inodes.holds(name.directory)) continue;
    if (!name.name.empty()) held.push_back(name);
    if (!directories.insert(name.directory).second) continue;
    // Drops its attributes and what was listed of it: no page of a directory waits for anybody.
    fuse_lowlevel_notify_inval_inode(impl_->session.get(), name.directory.value, 0, 0);
  }
  if (!held.empty()) impl_->visits->look_up_again(held);
}

void Mount::invalidate_file(NodeId file) {
  if (impl_->is_severed() || !impl_->service.inodes.holds(file)) return;
  fuse_lowlevel_notify_inval_inode(impl_->session.get(), file.value, -1, 0);  // its attributes
  impl_->visits->drop_pages(file, [&] { impl_->service.odd_sizes.lock()->insert(file); });
}

bool Mount::was_used() const { return impl_->service.counts.all() != impl_->own_requests; }

std::uint64_t Mount::writes() const { return impl_->service.counts.of(Operation::write); }

std::vector<OperationCount> Mount::counts() const {
  std::vector<OperationCount> result;
  for (std::size_t i = 0; i < kOperations; ++i) {
    const auto operation = static_cast<Operation>(i);
    const OperationCounts& counts = impl_->service.counts;
    const std::uint64_t count = counts.of(operation);
    if (count > 0) result.push_back({name_of(operation), count, counts.times_of(operation)});
  }
  return result;
}

}  // namespace escrow::fuse
