// Data that can only be reached through its lock.
//
// A function that needs the lock held takes the guard (or a reference obtained through it) as a parameter: the lock
// is then proved by the type system and not by a comment. The lock order is in INVARIANTS.md.
#pragma once

#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace escrow::session {

template <typename T, typename Mutex = std::mutex>
class Synchronized {
  template <typename Value, typename Lock>
  class Guard {
   public:
    Guard(Mutex& mutex, Value& value) : lock_(mutex), value_(&value) {}
    Value* operator->() const noexcept { return value_; }
    Value& operator*() const noexcept { return *value_; }
    // For condition variables, and for letting go early.
    Lock& lock() noexcept { return lock_; }

   private:
    Lock lock_;
    Value* value_;
  };

 public:
  using Write = Guard<T, std::unique_lock<Mutex>>;
  using Read = Guard<const T, std::shared_lock<Mutex>>;

  template <typename... Args>
  explicit Synchronized(Args&&... args) : value_(std::forward<Args>(args)...) {}

  Write lock() { return Write(mutex_, value_); }
  // Only with a shared mutex.
  Read lock_shared() const { return Read(mutex_, value_); }

 private:
  mutable Mutex mutex_;
  T value_;
};

template <typename T>
using SharedSynchronized = Synchronized<T, std::shared_mutex>;

}  // namespace escrow::session
