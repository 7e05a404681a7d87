#include "daemon/command_spec.h"

#include <cassert>
#include <cstdint>
#include <cstring>

namespace escrow::daemon {
namespace {

class Writer {
 public:
  void number(std::int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(const std::string& value) {
    number(static_cast<std::int64_t>(value.size()));
    bytes_ += value;
  }
  template <typename List, typename Each>
  void list(const List& values, Each each) {
    number(static_cast<std::int64_t>(values.size()));
    for (const auto& value : values) each(value);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Both ends are one program: a message that does not parse is our bug.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  std::int64_t number() {
    assert(rest_.size() >= sizeof(std::int64_t));
    std::int64_t value;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  std::string text() {
    const auto length = static_cast<std::size_t>(number());
    std::string value(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return value;
  }
  template <typename Value, typename Each>
  std::vector<Value> list(Each each) {
    std::vector<Value> values(static_cast<std::size_t>(number()));
    for (Value& value : values) value = each();
    return values;
  }

 private:
  std::string_view rest_;
};

}  // namespace

std::string encode(const CommandSpec& spec) {
  Writer out;
  out.list(spec.arguments, [&](const std::string& value) { out.text(value); });
  out.list(spec.environment, [&](const std::string& value) { out.text(value); });
  out.text(spec.working_directory);
  out.number(spec.identity.has_value());
  if (spec.identity) {
    out.number(spec.identity->uid);
    out.number(spec.identity->gid);
    out.list(spec.identity->groups, [&](gid_t value) { out.number(value); });
  }
  out.number(spec.wrapped);
  out.number(spec.hardened);
  out.list(spec.data, [&](const std::string& value) { out.text(value); });
  out.number(spec.umask);
  out.number(spec.timeout ? spec.timeout->count() : -1);
  out.number(spec.grace.count());
  out.number(static_cast<int>(spec.containment));
  out.text(spec.mountpoint);
  out.number(spec.remove_mountpoint);
  return out.take();
}

CommandSpec decode_command_spec(std::string_view bytes) {
  Reader in(bytes);
  CommandSpec spec;
  spec.arguments = in.list<std::string>([&] { return in.text(); });
  spec.environment = in.list<std::string>([&] { return in.text(); });
  spec.working_directory = in.text();
  if (in.number() != 0) {
    CommandSpec::Identity identity;
    identity.uid = static_cast<uid_t>(in.number());
    identity.gid = static_cast<gid_t>(in.number());
    identity.groups = in.list<gid_t>([&] { return static_cast<gid_t>(in.number()); });
    spec.identity = identity;
  }
  spec.wrapped = in.number() != 0;
  spec.hardened = in.number() != 0;
  spec.data = in.list<std::string>([&] { return in.text(); });
  spec.umask = static_cast<mode_t>(in.number());
  const std::int64_t timeout_ms = in.number();
  if (timeout_ms >= 0) spec.timeout = std::chrono::milliseconds(timeout_ms);
  spec.grace = std::chrono::milliseconds(in.number());
  spec.containment = static_cast<Containment::Method>(in.number());
  spec.mountpoint = in.text();
  spec.remove_mountpoint = in.number() != 0;
  return spec;
}

std::string encode(const CommandEnd& end) {
  Writer out;
  out.number(static_cast<int>(end.cause));
  out.number(end.status);
  out.number(end.signal_number);
  out.number(end.command_status.value_or(-1));
  out.text(end.message);
  out.list(end.survivors, [&](pid_t value) { out.number(value); });
  return out.take();
}

CommandEnd decode_command_end(std::string_view bytes) {
  Reader in(bytes);
  CommandEnd end;
  end.cause = static_cast<EndCause>(in.number());
  end.status = static_cast<int>(in.number());
  end.signal_number = static_cast<int>(in.number());
  if (const std::int64_t status = in.number(); status >= 0) end.command_status = static_cast<int>(status);
  end.message = in.text();
  end.survivors = in.list<pid_t>([&] { return static_cast<pid_t>(in.number()); });
  return end;
}

}  // namespace escrow::daemon
