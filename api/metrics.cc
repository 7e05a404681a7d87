#include "api/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <sstream>

#include "session/base/synchronized.h"

namespace escrow::api {

namespace {

// Seconds.
const prometheus::Histogram::BucketBoundaries kBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                          0.25,  0.5,    1,     2.5,  5,     10};

// To a total that was counted elsewhere. It may have been read before one that is shown already.
void raise(prometheus::Counter& counter, double total) {
  if (total > counter.Value()) counter.Increment(total - counter.Value());
}

// The same for a histogram of which `shown` was shown before.
void raise(prometheus::Histogram& histogram, Metrics::Operation& shown, const Metrics::Operation& total) {
  if (total.seconds < shown.seconds) return;
  std::vector<double> more = total.within;
  for (std::size_t at = 0; at < shown.within.size(); ++at) more[at] = std::max(0.0, more[at] - shown.within[at]);
  histogram.ObserveMultiple(more, total.seconds - shown.seconds);
  shown = total;
}

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;  // self-locking, as its families
  prometheus::Family<prometheus::Counter>& requests =
      prometheus::BuildCounter()
          .Name("escrow_http_requests_total")
          .Help("Requests answered, long polls excepted")
          .Register(registry);
  prometheus::Family<prometheus::Histogram>& request_seconds = prometheus::BuildHistogram()
                                                                   .Name("escrow_http_request_seconds")
                                                                   .Help("From a request to its answer")
                                                                   .Register(registry);
  prometheus::Family<prometheus::Counter>& commits =
      prometheus::BuildCounter()
          .Name("escrow_commits_total")
          .Help("Commits asked for over the API, by what became of them")
          .Register(registry);
  prometheus::Histogram& commit_seconds = prometheus::BuildHistogram()
                                              .Name("escrow_commit_seconds")
                                              .Help("From a request to commit to the durable outcome")
                                              .Register(registry)
                                              .Add({}, kBuckets);
  prometheus::Family<prometheus::Counter>& gcs = prometheus::BuildCounter()
                                                     .Name("escrow_gc_runs_total")
                                                     .Help("Times that a repository was cleaned up on schedule")
                                                     .Register(registry);
  prometheus::Family<prometheus::Gauge>& gc_seconds = prometheus::BuildGauge()
                                                          .Name("escrow_gc_last_run_seconds")
                                                          .Help("What the last one took")
                                                          .Register(registry);
  prometheus::Family<prometheus::Gauge>& gc_times =
      prometheus::BuildGauge()
          .Name("escrow_gc_last_success_timestamp_seconds")
          .Help("When a repository was last cleaned up on schedule, since the epoch")
          .Register(registry);
  prometheus::Family<prometheus::Gauge>& sessions = prometheus::BuildGauge()
                                                        .Name("escrow_sessions")
                                                        .Help("Sessions of the registered repositories, by state")
                                                        .Register(registry);
  prometheus::Gauge& mounts = prometheus::BuildGauge()
                                  .Name("escrow_mounts")
                                  .Help("Sessions that this service has mounted")
                                  .Register(registry)
                                  .Add({});
  prometheus::Gauge& denied_calls = prometheus::BuildGauge()
                                        .Name("escrow_denied_calls")
                                        .Help("System calls that policies denied, in the sessions that are remembered")
                                        .Register(registry)
                                        .Add({});
  prometheus::Gauge& staged_bytes = prometheus::BuildGauge()
                                        .Name("escrow_staged_bytes")
                                        .Help("Bytes that the mounted sessions have staged")
                                        .Register(registry)
                                        .Add({});
  prometheus::Family<prometheus::Counter>& operations =
      prometheus::BuildCounter()
          .Name("escrow_fuse_operations_total")
          .Help("Requests of the kernel to the mounts of this service, by kind")
          .Register(registry);
  prometheus::Family<prometheus::Histogram>& operation_seconds =
      prometheus::BuildHistogram()
          .Name("escrow_fuse_operation_seconds")
          .Help("What they took, from their arrival to the reply")
          .Register(registry);
  session::Synchronized<std::map<std::string, Operation>> shown;  // self-locking
  prometheus::Family<prometheus::Counter>& cache =
      prometheus::BuildCounter()
          .Name("escrow_blob_cache_total")
          .Help("Contents of the repositories that were opened, by whether a cache had them")
          .Register(registry);
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {
  for (const char* outcome : {"committed", "awaiting_approval", "conflict", "failed"})
    impl_->commits.Add({{"outcome", outcome}});
}
Metrics::~Metrics() = default;

void Metrics::add_request(const std::string& method, const std::string& route, unsigned status, double seconds) {
  const bool is_known = !route.empty();
  impl_->requests
      .Add({{"method", is_known ? method : "other"}, {"route", is_known ? route : "none"},
            {"status", std::to_string(status)}})
      .Increment();
  if (is_known) impl_->request_seconds.Add({{"method", method}, {"route", route}}, kBuckets).Observe(seconds);
}

void Metrics::add_commit(const std::string& outcome, double seconds) {
  impl_->commits.Add({{"outcome", outcome}}).Increment();
  impl_->commit_seconds.Observe(seconds);
}

void Metrics::add_gc(const std::string& repository, bool is_done, double seconds) {
  impl_->gcs.Add({{"repository", repository}, {"outcome", is_done ? "done" : "failed"}}).Increment();
  impl_->gc_seconds.Add({{"repository", repository}}).Set(seconds);
}

void Metrics::set_gc_time(const std::string& repository, std::int64_t time_s) {
  impl_->gc_times.Add({{"repository", repository}}).Set(static_cast<double>(time_s));
}

HttpResponse Metrics::answer(const Now& now) {
  for (const auto& [state, count] : now.sessions_by_state) {
    impl_->sessions.Add({{"state", state}}).Set(static_cast<double>(count));
  }
  impl_->mounts.Set(static_cast<double>(now.mounts));
  impl_->denied_calls.Set(static_cast<double>(now.denied_calls));
  impl_->staged_bytes.Set(static_cast<double>(now.staged_bytes));
  {
    auto shown = impl_->shown.lock();
    for (const auto& [kind, operation] : now.operations) {
      raise(impl_->operations.Add({{"operation", kind}}), static_cast<double>(operation.count));
      raise(impl_->operation_seconds.Add({{"operation", kind}}, now.time_bounds), (*shown)[kind], operation);
    }
  }
  raise(impl_->cache.Add({{"result", "hit"}}), static_cast<double>(now.cache_hits));
  raise(impl_->cache.Add({{"result", "miss"}}), static_cast<double>(now.cache_misses));
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, impl_->registry.Collect());
  return {.status = 200, .content_type = "text/plain; version=0.0.4", .body = text.str(), .headers = {}};
}

}  // namespace escrow::api
