#include "daemon/process/command_spec.h"

#include <cstdint>

#include "daemon/process/byte_codec.h"

namespace escrow::daemon {

std::string encode(const CommandSpec& spec) {
  ByteWriter out;
  out.texts(spec.arguments);
  out.texts(spec.environment);
  out.text(spec.working_directory);
  out.number(spec.identity.has_value());
  if (spec.identity) {
    out.number(spec.identity->uid);
    out.number(spec.identity->gid);
    out.list(spec.identity->groups, [&](gid_t value) { out.number(value); });
  }
  out.number(spec.wrapped);
  out.number(spec.without_network);
  out.number(spec.hardened);
  out.texts(spec.data);
  out.number(spec.umask);
  out.number(spec.timeout ? spec.timeout->count() : -1);
  out.number(spec.grace.count());
  out.number(static_cast<int>(spec.containment));
  out.optional(spec.limits.memory_bytes);
  out.number(static_cast<std::int64_t>(spec.limits.processes));
  out.optional(spec.limits.millicpus);
  out.number(spec.limits.needs_processes);
  out.text(spec.output.directory);
  out.number(static_cast<std::int64_t>(spec.output.most_bytes));
  out.text(spec.mountpoint);
  out.optional(spec.device);
  out.text(spec.seen_at);
  out.number(spec.remove_mountpoint);
  out.text(spec.container.runtime);
  out.text(spec.container.session);
  out.text(spec.container.file);
  return out.take();
}

CommandSpec decode_command_spec(std::string_view bytes) {
  ByteReader in(bytes);
  CommandSpec spec;
  spec.arguments = in.texts();
  spec.environment = in.texts();
  spec.working_directory = in.text();
  if (in.flag()) {
    CommandSpec::Identity identity;
    identity.uid = static_cast<uid_t>(in.number());
    identity.gid = static_cast<gid_t>(in.number());
    identity.groups = in.list<gid_t>([&] { return static_cast<gid_t>(in.number()); });
    spec.identity = identity;
  }
  spec.wrapped = in.flag();
  spec.without_network = in.flag();
  spec.hardened = in.flag();
  spec.data = in.texts();
  spec.umask = static_cast<mode_t>(in.number());
  const std::int64_t timeout_ms = in.number();
  if (timeout_ms >= 0) spec.timeout = std::chrono::milliseconds(timeout_ms);
  spec.grace = std::chrono::milliseconds(in.number());
  spec.containment = static_cast<Containment::Method>(in.number());
  spec.limits.memory_bytes = in.optional<std::uint64_t>();
  spec.limits.processes = static_cast<std::uint64_t>(in.number());
  spec.limits.millicpus = in.optional<std::uint64_t>();
  spec.limits.needs_processes = in.flag();
  spec.output.directory = in.text();
  spec.output.most_bytes = static_cast<std::uint64_t>(in.number());
  spec.mountpoint = in.text();
  spec.device = in.optional<dev_t>();
  spec.seen_at = in.text();
  spec.remove_mountpoint = in.flag();
  spec.container.runtime = in.text();
  spec.container.session = in.text();
  spec.container.file = in.text();
  return spec;
}

std::string encode(const CommandEnd& end) {
  ByteWriter out;
  out.number(static_cast<int>(end.cause));
  out.number(end.status);
  out.number(end.signal_number);
  out.optional(end.command_status);
  out.text(end.message);
  out.list(end.survivors, [&](pid_t value) { out.number(value); });
  out.number(end.grace_left.count());
  out.number(end.ran_out_of_processes);
  out.number(end.keep_result);
  return out.take();
}

CommandEnd decode_command_end(std::string_view bytes) {
  ByteReader in(bytes);
  CommandEnd end;
  end.cause = static_cast<EndCause>(in.number());
  end.status = static_cast<int>(in.number());
  end.signal_number = static_cast<int>(in.number());
  end.command_status = in.optional<int>();
  end.message = in.text();
  end.survivors = in.list<pid_t>([&] { return static_cast<pid_t>(in.number()); });
  end.grace_left = std::chrono::milliseconds(in.number());
  end.ran_out_of_processes = in.flag();
  end.keep_result = in.flag();
  return end;
}

std::string encode(const std::vector<std::string>& texts) {
  ByteWriter out;
  out.texts(texts);
  return out.take();
}

std::vector<std::string> decode_texts(std::string_view bytes) { return ByteReader(bytes).texts(); }

}  // namespace escrow::daemon
