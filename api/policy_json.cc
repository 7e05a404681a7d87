#include "api/policy_json.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "session/base/error.h"

namespace escrow::api {

using session::Errc;
using session::Error;

namespace {

constexpr std::size_t kMaxPolicyDepth = 8;
constexpr std::size_t kMaxPatterns = 20'000;

// A value, and where it begins. nlohmann's own documents do not know that.
struct Value {
  enum class Type { object, array, string, other } type = Type::other;
  std::string string;
  std::vector<Value> items;                                  // of an array
  struct Member;
  std::vector<Member> members;  // of an object
  std::size_t at = 0;
};
struct Value::Member {
  Value name;
  std::unique_ptr<Value> value;
};

// Where in a text of JSON something is wrong.
class Source {
 public:
  Source(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  [[noreturn]] void refuse(std::size_t at, const std::string& why) const {
    at = std::min(at, text_.size());
    const std::string_view before = text_.substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t column = at - (before.rfind('\n') + 1) + 1;
    throw Error(Errc::bad_request, "the policy " + file_ + ":" + std::to_string(line) + ":" + std::to_string(column) +
                                       ": " + why);
  }
  // The next byte after `at` that belongs to a value or name.
  std::size_t token_after(std::size_t at) const {
    return std::min(text_.find_first_not_of(" \t\r\n,:", at), text_.size());
  }

 private:
  std::string_view text_;
  const std::string& file_;
};

// Reads the text and counts how far nlohmann's parser has come.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  CountingIterator(const char* at, std::size_t* count) : at_(at), count_(count) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*count_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  std::size_t* count_;
};

// Builds a Value from what nlohmann's parser reports.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const Source& source, const std::size_t& consumed) : source_(source), consumed_(consumed) {}

  bool null() override { return add({}); }
  bool boolean(bool) override { return add({}); }
  bool number_integer(number_integer_t) override { return add({}); }
  bool number_unsigned(number_unsigned_t) override { return add({}); }
  bool number_float(number_float_t, const string_t&) override { return add({}); }
  bool binary(binary_t&) override { return add({}); }
  bool string(string_t& text) override {
    Value value;
    value.type = Value::Type::string;
    value.string = std::move(text);
    return add(std::move(value));
  }
  bool start_object(std::size_t) override { return start(Value::Type::object); }
  bool start_array(std::size_t) override { return start(Value::Type::array); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    Value& object = *open_.back();
    for (const auto& [known, value] : object.members)
      if (known.string == name) source_.refuse(next_token(), "\"" + name + "\" is there twice");
    Value text;
    text.type = Value::Type::string;
    text.string = std::move(name);
    text.at = next_token();
    object.members.push_back({std::move(text), nullptr});
    ended_ = consumed_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: what": the position we say ourselves.
    const std::string text = error.what();
    const std::size_t colon = text.find(": ");
    source_.refuse(position == 0 ? 0 : position - 1,
                   "this is not JSON: " + (colon == std::string::npos ? text : text.substr(colon + 2)));
  }

  Value take() { return std::move(*root_); }

 private:
  std::size_t next_token() const { return source_.token_after(ended_); }

  Value& place(Value value) {
    value.at = next_token();
    ended_ = consumed_;
    if (open_.empty()) {
      root_ = std::make_unique<Value>(std::move(value));
      return *root_;
    }
    Value& parent = *open_.back();
    if (parent.type == Value::Type::array) return parent.items.emplace_back(std::move(value));
    parent.members.back().value = std::make_unique<Value>(std::move(value));
    return *parent.members.back().value;
  }
  bool add(Value value) {
    place(std::move(value));
    return true;
  }
  // A parent's items do not move while one of them is open.
  bool start(Value::Type type) {
    if (open_.size() >= kMaxPolicyDepth) source_.refuse(next_token(), "this is nested too deeply for a policy");
    Value value;
    value.type = type;
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool end() {
    open_.pop_back();
    ended_ = consumed_;
    return true;
  }

  const Source& source_;
  const std::size_t& consumed_;
  std::size_t ended_ = 0;  // behind the last token
  std::unique_ptr<Value> root_;
  std::vector<Value*> open_;
};

const Value& member(const Source& source, const Value& object, const std::string& name, const char* of) {
  for (const auto& [known, value] : object.members)
    if (known.string == name) return *value;
  source.refuse(object.at, std::string(of) + " has no \"" + name + "\"");
}

void require(const Source& source, const Value& value, Value::Type type, const std::string& what) {
  if (value.type != type) source.refuse(value.at, what);
}

void allow_members(const Source& source, const Value& object, std::initializer_list<std::string_view> names,
                   const char* of, const std::string& which) {
  for (const auto& [name, value] : object.members)
    if (std::find(names.begin(), names.end(), name.string) == names.end())
      source.refuse(name.at, std::string(of) + " has no \"" + name.string + "\"; it has " + which);
}

// True: allow.
bool effect_of(const Source& source, const Value& value, const std::string& what) {
  if (value.type == Value::Type::string && value.string == "allow") return true;
  if (value.type == Value::Type::string && value.string == "deny") return false;
  source.refuse(value.at, what + " is \"allow\" or \"deny\"");
}

session::Actions actions_of(const Source& source, const Value& value) {
  const std::string which = "read, list, write, create, delete, rename and metadata";
  require(source, value, Value::Type::array, "\"actions\" is an array of some of " + which);
  session::Actions actions;
  for (const Value& item : value.items) {
    const auto action = item.type == Value::Type::string ? session::action_from_name(item.string) : std::nullopt;
    if (!action) {
      source.refuse(item.at, (item.type == Value::Type::string ? "\"" + item.string + "\"" : std::string("this")) +
                                 " is no action; there are " + which);
    }
    actions.add(*action);
  }
  if (actions.empty()) source.refuse(value.at, "a rule without actions says nothing; there are " + which);
  return actions;
}

std::vector<std::string> paths_of(const Source& source, const Value& value, std::size_t& patterns) {
  require(source, value, Value::Type::array, "\"paths\" is an array of patterns");
  if (value.items.empty()) source.refuse(value.at, "a rule without paths says nothing; \"/\" is everything");
  std::vector<std::string> paths;
  for (const Value& item : value.items) {
    require(source, item, Value::Type::string, "a path is a string, a pattern as in .gitignore");
    if (++patterns > kMaxPatterns)
      source.refuse(item.at, "a policy has at most " + std::to_string(kMaxPatterns) + " paths");
    try {
      session::check_policy_pattern(item.string);
    } catch (const Error& error) {
      source.refuse(item.at, error.what());
    }
    paths.push_back(item.string);
  }
  return paths;
}

Value read(std::string_view text, const Source& source) {
  // nlohmann's parser takes it for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) source.refuse(nul, "a NUL byte");
  std::size_t consumed = 0;
  Builder builder(source, consumed);
  nlohmann::json::sax_parse(CountingIterator(text.data(), &consumed),
                            CountingIterator(text.data() + text.size(), &consumed), &builder);
  return builder.take();
}

}  // namespace

session::PolicyDocument parse_policy(std::string_view text, const std::string& file) {
  const Source source(text, file);
  if (text.size() > kMaxPolicy_bytes) source.refuse(0, "a policy of more than 1 MiB");
  const Value root = read(text, source);
  require(source, root, Value::Type::object, "a policy is an object with \"default\" and \"rules\"");
  allow_members(source, root, {"default", "rules"}, "a policy", "\"default\" and \"rules\"");
  session::PolicyDocument document;
  document.allows_by_default = effect_of(source, member(source, root, "default", "the policy"), "\"default\"");
  const Value& rules = member(source, root, "rules", "the policy");
  require(source, rules, Value::Type::array, "\"rules\" is an array of rules");
  std::size_t patterns = 0;
  for (const Value& item : rules.items) {
    require(source, item, Value::Type::object, "a rule is an object with \"effect\", \"actions\" and \"paths\"");
    allow_members(source, item, {"effect", "actions", "paths"}, "a rule", "\"effect\", \"actions\" and \"paths\"");
    session::PolicyRule rule;
    rule.allows = effect_of(source, member(source, item, "effect", "the rule"), "\"effect\"");
    rule.actions = actions_of(source, member(source, item, "actions", "the rule"));
    rule.paths = paths_of(source, member(source, item, "paths", "the rule"), patterns);
    document.rules.push_back(std::move(rule));
  }
  return document;
}

}  // namespace escrow::api
