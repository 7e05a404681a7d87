// What escrowd counts, in the text format of Prometheus. Thread-safe. The labels are from closed lists: no client can
// make the memory grow. Long polls are not among the requests, their time is the session's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/http_message.h"

namespace escrow::api {

class Metrics {
 public:
  Metrics();
  ~Metrics();

  // `route` as it was added to the router; "" where there was none.
  void add_request(const std::string& method, const std::string& route, unsigned status, double seconds);
  // `outcome` is a session's state afterwards, or "conflict", or "failed".
  void add_commit(const std::string& outcome, double seconds);
  // Of a repository, on the service's own schedule.
  void add_gc(const std::string& repository, bool is_done, double seconds);
  // When it was last done, in seconds since the epoch.
  void set_gc_time(const std::string& repository, std::int64_t time_s);
  // What is read when it is asked for: totals since the service began, and what is at this moment.
  struct Operation {
    std::uint64_t count = 0;
    std::vector<double> within;  // how many took up to each of Now::time_bounds, and at the end how many took longer
    double seconds = 0;          // all together
  };
  struct Now {
    std::map<std::string, std::uint64_t> sessions_by_state;
    std::uint64_t mounts = 0, staged_bytes = 0;
    std::uint64_t denied_calls = 0;  // in the sessions that are not forgotten
    std::vector<double> time_bounds;              // in seconds, ascending; the same with every call
    std::map<std::string, Operation> operations;  // of FUSE, by kind
    std::uint64_t cache_hits = 0, cache_misses = 0;
  };
  // Everything counted so far.
  HttpResponse answer(const Now& now);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace escrow::api
