// Transactions of several threads over one SQLite connection that share one COMMIT, and so one fsync.
//
// The first thread to come carries out all that wait meanwhile, each behind its own savepoint: one that fails undoes
// nothing of the others. What run() was given is on disk when it returns. Thread-safe; takes the connection's lock.
// Throws what the work threw; when the shared transaction itself fails, every thread gets that Error.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "session/base/synchronized.h"
#include "storage/database/sqlite.h"

namespace escrow::storage {

// `Connection` has a member `database`.
template <typename Connection>
class GroupCommit {
 public:
  using Work = std::function<void(Connection&)>;

  void run(session::Synchronized<std::unique_ptr<Connection>>& connection, const Work& work) {
    Job own{.work = work, .failure = nullptr};
    std::vector<Job*> batch;
    {
      auto queue = queue_.lock();
      queue->waiting.push_back(&own);
      changed_.wait(queue.lock(), [&] { return own.is_done || !queue->is_led; });
      if (!own.is_done) {
        queue->is_led = true;
        batch.swap(queue->waiting);
      }
    }
    if (!batch.empty()) {
      carry_out(connection, batch);
      auto queue = queue_.lock();
      queue->is_led = false;
      for (Job* job : batch) job->is_done = true;
      // Under the lock: a thread that is done may take the queue with it.
      changed_.notify_all();
    }
    if (own.failure) std::rethrow_exception(own.failure);
  }

 private:
  struct Job {
    const Work& work;
    std::exception_ptr failure;
    bool is_done = false;
  };
  struct Queue {
    std::vector<Job*> waiting;
    bool is_led = false;  // some thread carries a batch out
  };

  static void carry_out(session::Synchronized<std::unique_ptr<Connection>>& connection,
                        const std::vector<Job*>& batch) noexcept {
    auto guard = connection.lock();
    try {
      Transaction transaction((*guard)->database);
      for (Job* job : batch) {
        if (batch.size() == 1) {
          job->work(**guard);
        } else {
          attempt(**guard, *job);
        }
      }
      transaction.commit();
    } catch (...) {
      for (Job* job : batch) {
        if (!job->failure) job->failure = std::current_exception();
      }
    }
  }

  static void attempt(Connection& connection, Job& job) {
    connection.database.execute("SAVEPOINT job");
    try {
      job.work(connection);
    } catch (...) {
      job.failure = std::current_exception();
      // After some errors (a full disk among them) SQLite has undone everything by itself.
      if (!connection.database.in_transaction()) throw;
      connection.database.execute("ROLLBACK TO job");
    }
    connection.database.execute("RELEASE job");
  }

  session::Synchronized<Queue> queue_;  // self-locking
  std::condition_variable changed_;     // with `queue_`
};

}  // namespace escrow::storage
