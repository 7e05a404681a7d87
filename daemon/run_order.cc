#include "daemon/run_order.h"

#include "daemon/byte_codec.h"

namespace escrow::daemon {

namespace {

void write(ByteWriter& out, const session::SessionOptions& options) {
  out.text(options.branch);
  out.text(options.prefix.text());
  const session::Audit& audit = options.audit;
  for (const std::string* value : {&audit.committer, &audit.issuer, &audit.source, &audit.image, &audit.trigger,
                                   &audit.trigger_id}) {
    out.text(*value);
  }
  for (const std::uint32_t value : {options.uid, options.gid, options.umask}) out.number(value);
  out.number(options.read_only);
  out.number(options.keep_on_failure);
  out.texts(options.excludes);
  out.texts(options.policies);
  out.number(options.contained_symlinks);
  out.number(options.require_approval);
  out.number(options.approval_expires_s);
  out.number(static_cast<std::int64_t>(options.limits.staged_bytes));
  out.number(static_cast<std::int64_t>(options.limits.files));
  out.texts(options.command);
}

session::SessionOptions read_session_options(ByteReader& in) {
  session::SessionOptions options;
  options.branch = in.text();
  options.prefix = session::RepoPath::parse(in.text(), "the prefix");
  session::Audit& audit = options.audit;
  for (std::string* value : {&audit.committer, &audit.issuer, &audit.source, &audit.image, &audit.trigger,
                             &audit.trigger_id}) {
    *value = in.text();
  }
  for (std::uint32_t* value : {&options.uid, &options.gid, &options.umask}) {
    *value = static_cast<std::uint32_t>(in.number());
  }
  options.read_only = in.flag();
  options.keep_on_failure = in.flag();
  options.excludes = in.texts();
  options.policies = in.texts();
  options.contained_symlinks = in.flag();
  options.require_approval = in.flag();
  options.approval_expires_s = in.number();
  options.limits.staged_bytes = static_cast<std::uint64_t>(in.number());
  options.limits.files = static_cast<std::uint64_t>(in.number());
  options.command = in.texts();
  return options;
}

}  // namespace

std::string encode(const RunOrder& order) {
  ByteWriter out;
  out.text(order.id.text());
  out.text(order.repository);
  out.number(order.verbose);
  write(out, order.session);
  out.number(order.create_branch);
  out.text(order.directory);
  out.text(order.mountpoint);
  out.text(order.host_mountpoint);
  out.texts(order.environment);
  out.text(order.message);
  out.text(order.who);
  out.text(order.mount_options);
  out.optional(order.timeout_ms);
  out.number(order.grace_ms);
  out.optional(order.memory_bytes);
  out.number(static_cast<std::int64_t>(order.output_bytes));
  out.number(order.confined);
  out.number(order.network);
  return out.take();
}

RunOrder decode_run_order(std::string_view bytes) {
  ByteReader in(bytes);
  const auto id = session::SessionId::parse(in.text());
  assert(id);
  RunOrder order{.id = *id};
  order.repository = in.text();
  order.verbose = in.flag();
  order.session = read_session_options(in);
  order.create_branch = in.flag();
  order.directory = in.text();
  order.mountpoint = in.text();
  order.host_mountpoint = in.text();
  order.environment = in.texts();
  order.message = in.text();
  order.who = in.text();
  order.mount_options = in.text();
  order.timeout_ms = in.optional<std::int64_t>();
  order.grace_ms = in.number();
  order.memory_bytes = in.optional<std::uint64_t>();
  order.output_bytes = static_cast<std::uint64_t>(in.number());
  order.confined = in.flag();
  order.network = in.flag();
  return order;
}

std::string encode_refusal(const session::Error& error) {
  ByteWriter out;
  out.number(static_cast<int>(error.code()));
  out.text(error.what());
  return out.take();
}

session::Error decode_refusal(std::string_view bytes) {
  ByteReader in(bytes);
  const auto code = static_cast<session::Errc>(in.number());
  return {code, in.text()};
}

}  // namespace escrow::daemon
