// A JSON object read strictly, member by member: what is of the wrong type is refused, and so is every member that
// nobody asked for, by name. For requests and for the configuration.
//
// Not thread-safe. Throws Problem with the code malformed_json, unknown_field or invalid_value and the member "field".
// An absent member and null are the same. A name twice in one object, or nesting beyond 8, is malformed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace escrow::api {

class RequestFields {
 public:
  // Nothing but white space is the empty object. `what` begins the messages: "the request".
  RequestFields(std::string_view text, const std::string& what);
  ~RequestFields();
  RequestFields(RequestFields&&) noexcept;

  // Bytes: NAME, or NAME_base64 for what is not UTF-8; beside it NAME may say what is left of it, as answers do.
  std::optional<std::string> text(const std::string& name);
  std::optional<std::uint64_t> number(const std::string& name, std::uint64_t least, std::uint64_t most);
  std::optional<bool> flag(const std::string& name);
  // The same of an array: of NAME, or NAME_base64.
  std::optional<std::vector<std::string>> texts(const std::string& name);
  std::map<std::string, std::string> text_map(const std::string& name);
  // An object whose values are base64, decoded.
  std::map<std::string, std::string> bytes_map(const std::string& name);
  std::map<std::string, std::vector<std::string>> texts_map(const std::string& name);
  std::optional<RequestFields> object(const std::string& name);
  // The names of all members there are.
  std::vector<std::string> names() const;
  // An object, or an array of objects, each as JSON for another reader; absent: none.
  std::vector<std::string> documents(const std::string& name);

  // Throws unless it is there.
  std::string required_text(const std::string& name);
  void refuse_others() const;
  // For documents where null is a value that got lost: refuses the first one, however deep it is.
  void refuse_nulls() const;
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const;

 private:
  struct Impl;
  explicit RequestFields(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace escrow::api
