#include "daemon/csi/csi_services.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "api/problem.h"
#include "daemon/csi/csi.grpc.pb.h"
#include "session/base/error.h"

namespace escrow::daemon {

using grpc::Status;
using grpc::StatusCode;
using session::Errc;
using session::Error;
using session::LogLevel;

namespace {

constexpr std::chrono::seconds kGrace{5};

StatusCode status_of(Errc code) {
  switch (code) {
    case Errc::bad_request:
    case Errc::invalid_argument:
    case Errc::name_too_long:
    case Errc::no_repository:
    case Errc::no_branch:
      return StatusCode::INVALID_ARGUMENT;
    case Errc::exists:
      return StatusCode::ALREADY_EXISTS;
    case Errc::not_permitted:
    case Errc::access_denied:
      return StatusCode::PERMISSION_DENIED;
    case Errc::wrong_state:
      return StatusCode::FAILED_PRECONDITION;
    case Errc::busy:
      return StatusCode::ABORTED;
    case Errc::no_space:
    case Errc::quota_exceeded:
      return StatusCode::RESOURCE_EXHAUSTED;
    case Errc::not_found:
    case Errc::not_a_directory:
    case Errc::is_a_directory:
    case Errc::not_empty:
    case Errc::too_many_links:
    case Errc::read_only:
    case Errc::file_too_large:
    case Errc::no_attribute:
    case Errc::result_too_large:
    case Errc::no_such_offset:
    case Errc::not_supported:
    case Errc::input_output:
    case Errc::unsupported_repository:
    case Errc::damaged_repository:
    case Errc::newer_state:
    case Errc::no_session:
    case Errc::ambiguous_session:
    case Errc::attached_elsewhere:
    case Errc::branch_moved:
    case Errc::conflict:
    case Errc::data_lost:
    case Errc::unavailable:
      return StatusCode::UNAVAILABLE;
  }
  return StatusCode::UNAVAILABLE;
}

// A refusal of escrowd that asking again does not change.
StatusCode status_of(const api::Problem& problem) {
  if (problem.kind().retryable) return StatusCode::UNAVAILABLE;
  switch (problem.kind().status) {
    case 400:
    case 404:
    case 413:
    case 422:
      return StatusCode::INVALID_ARGUMENT;
    case 401:
    case 403:
      return StatusCode::PERMISSION_DENIED;
    default:
      return status_of(problem.code());
  }
}

template <typename Do>
Status answered(session::Log& log, const char* what, const Do& act) {
  try {
    act();
    return Status::OK;
  } catch (const api::Problem& problem) {
    log.write(LogLevel::warning, std::string(what) + ": " + problem.what());
    return {status_of(problem), problem.what()};
  } catch (const Error& error) {
    log.write(LogLevel::warning, std::string(what) + ": " + error.what());
    return {status_of(error.code()), error.what()};
  } catch (const std::exception& error) {
    log.write(LogLevel::error, std::string(what) + ": internal error: " + error.what());
    return {StatusCode::INTERNAL, error.what()};
  }
}

class Identity final : public csi::v1::Identity::Service {
 public:
  Identity(std::string driver, const PodVolumes& volumes) : driver_(std::move(driver)), volumes_(volumes) {}

  Status GetPluginInfo(grpc::ServerContext*, const csi::v1::GetPluginInfoRequest*,
                       csi::v1::GetPluginInfoResponse* answer) override {
    answer->set_name(driver_);
    answer->set_vendor_version(ESCROW_VERSION);
    return Status::OK;
  }
  // None: there is no controller, and a session is where its repository is.
  Status GetPluginCapabilities(grpc::ServerContext*, const csi::v1::GetPluginCapabilitiesRequest*,
                               csi::v1::GetPluginCapabilitiesResponse*) override {
    return Status::OK;
  }
  Status Probe(grpc::ServerContext*, const csi::v1::ProbeRequest*, csi::v1::ProbeResponse* answer) override {
    answer->mutable_ready()->set_value(volumes_.is_ready());
    return Status::OK;
  }

 private:
  const std::string driver_;
  const PodVolumes& volumes_;
};

class Node final : public csi::v1::Node::Service {
 public:
  Node(std::string node, PodVolumes& volumes, session::Log& log)
      : node_(std::move(node)), volumes_(volumes), log_(log) {}

  Status NodePublishVolume(grpc::ServerContext*, const csi::v1::NodePublishVolumeRequest* asked,
                           csi::v1::NodePublishVolumeResponse*) override {
    return answered(log_, "NodePublishVolume", [&] {
      if (!asked->has_volume_capability() || asked->volume_capability().access_type_case() == 0)
        throw Error(Errc::bad_request, "the request has no volume_capability");
      if (!asked->volume_capability().has_mount())
        throw Error(Errc::bad_request, "a session is a file system; there is none as a block device");
      if (!asked->volume_capability().mount().mount_flags().empty())
        throw Error(Errc::bad_request, "a session takes no mount options; its attributes say how it is");
      if (!asked->secrets().empty())
        throw Error(Errc::bad_request, "a session takes no secret (nodePublishSecretRef)");
      volumes_.publish({.volume = asked->volume_id(),
                        .target = asked->target_path(),
                        .is_read_only = asked->readonly(),
                        .attributes = {asked->volume_context().begin(), asked->volume_context().end()}});
    });
  }
  Status NodeUnpublishVolume(grpc::ServerContext*, const csi::v1::NodeUnpublishVolumeRequest* asked,
                             csi::v1::NodeUnpublishVolumeResponse*) override {
    return answered(log_, "NodeUnpublishVolume",
                    [&] { volumes_.unpublish(asked->volume_id(), asked->target_path()); });
  }
  Status NodeGetCapabilities(grpc::ServerContext*, const csi::v1::NodeGetCapabilitiesRequest*,
                             csi::v1::NodeGetCapabilitiesResponse*) override {
    return Status::OK;
  }
  Status NodeGetInfo(grpc::ServerContext*, const csi::v1::NodeGetInfoRequest*,
                     csi::v1::NodeGetInfoResponse* answer) override {
    answer->set_node_id(node_);
    return Status::OK;
  }

 private:
  const std::string node_;
  PodVolumes& volumes_;
  session::Log& log_;
};

}  // namespace

struct CsiServer::Impl {
  Impl(std::string driver, std::string name, PodVolumes& volumes, session::Log& log)
      : identity(std::move(driver), volumes), node(std::move(name), volumes, log) {}
  Identity identity;
  Node node;
  std::unique_ptr<grpc::Server> server;
};

CsiServer::CsiServer(const std::string& socket, std::string driver, std::string node, PodVolumes& volumes,
                     session::Log& log)
    : impl_(std::make_unique<Impl>(std::move(driver), std::move(node), volumes, log)) {
  grpc::ServerBuilder builder;
  int is_bound = 0;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials(), &is_bound);
  builder.RegisterService(&impl_->identity);
  builder.RegisterService(&impl_->node);
  impl_->server = builder.BuildAndStart();
  if (!impl_->server || is_bound == 0) throw Error(Errc::unavailable, "cannot listen on " + socket);
}

CsiServer::~CsiServer() {
  impl_->server->Shutdown(std::chrono::system_clock::now() + kGrace);
  impl_->server->Wait();
}

}  // namespace escrow::daemon
