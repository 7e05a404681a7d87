// The bytes of git objects: their hashes, and trees and commits to and from their canonical form.
//
// Pure functions over values; thread-safe. Decoding throws Error{input_output} naming the object when its bytes are not
// what git writes. Sources: gitformat-pack(5), git-hash-object(1), the formats as documented in git's
// Documentation/technical.
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "session/interfaces/object_store.h"

namespace escrow::storage {

// As in a pack entry's header; equal to git_object_t for the first four.
enum class ObjectType : std::uint8_t {
  commit = 1, tree = 2, blob = 3, tag = 4, offset_delta = 6, reference_delta = 7 };
const char* name_of(ObjectType type);

struct RawObject {
  ObjectType type;
  std::string content;
};

class Sha1 {
 public:
  Sha1();
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }
  // The object may not be used afterwards.
  session::ObjectId finish();

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const noexcept { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

// A hash that has already seen the header "<type> <size>\0".
Sha1 object_hash(ObjectType type, std::uint64_t size_bytes);
session::ObjectId hash_object(ObjectType type, std::string_view content);

std::string encode_tree(const session::Tree& tree);
std::string encode_commit(const session::Commit& commit);
session::Tree decode_tree(std::string_view content, const session::ObjectId& id);
session::Commit decode_commit(std::string_view content, const session::ObjectId& id);
// The object a tag names.
session::ObjectId decode_tag_target(std::string_view content, const session::ObjectId& id);

// The header of a pack entry: type and inflated size, seven bits a byte after the first four.
std::string encode_entry_header(ObjectType type, std::uint64_t size_bytes);

}  // namespace escrow::storage
