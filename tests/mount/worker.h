// A process that goes on with `work` until it is killed or the work ends.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace escrow::test {

class Worker {
 public:
  // `work` says once that it has begun; what it returns is its exit status.
  explicit Worker(const std::function<int(const std::function<void()>& has_begun)>& work) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    child_ = ::fork();
    if (child_ == 0) ::_exit(work([&] { [[maybe_unused]] const ssize_t told = ::write(ends[1], "x", 1); }));
    ::close(ends[1]);
    char told = 0;
    has_begun_ = ::read(ends[0], &told, 1) == 1;
    ::close(ends[0]);
  }
  ~Worker() {
    if (child_ <= 0 || has_ended_) return;
    ::kill(child_, SIGKILL);
    wait();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  bool has_begun() const { return has_begun_; }
  bool goes_on() {
    if (!has_ended_) has_ended_ = ::waitpid(child_, &status_, WNOHANG) == child_;
    return !has_ended_;
  }
  // Its exit status; 128 + n when signal n ended it.
  int wait() {
    if (!has_ended_) has_ended_ = ::waitpid(child_, &status_, 0) == child_;
    return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
  }

 private:
  pid_t child_ = -1;
  int status_ = 0;
  bool has_begun_ = false, has_ended_ = false;
};

}  // namespace escrow::test
