#include "storage/git/object_format.h"

#include <charconv>
#include <cstdio>
#include <new>

#include "session/base/error.h"

namespace escrow::storage {
namespace {

using session::Commit;
using session::Errc;
using session::Error;
using session::GitMode;
using session::ObjectId;
using session::Signature;
using session::Tree;
using session::TreeEntry;

[[noreturn]] void throw_malformed(const char* type, const ObjectId& id, const char* what) {
  throw Error(Errc::input_output, std::string("the ") + type + " " + id.hex() + " is damaged: " + what);
}

// git drops these from a name or an address (ident.c, strbuf_addstr_without_crud).
std::string without_crud(std::string_view text) {
  std::string kept;
  for (char c : text) {
    if (c != '<' && c != '>' && static_cast<unsigned char>(c) >= ' ') kept += c;
  }
  return kept;
}

std::string encode_signature(const Signature& signature) {
  const int minutes = signature.offset_minutes < 0 ? -signature.offset_minutes : signature.offset_minutes;
  char zone[16];
  std::snprintf(zone, sizeof zone, "%c%02d%02d", signature.offset_minutes < 0 ? '-' : '+', minutes / 60 % 100,
                minutes % 60);
  return without_crud(signature.name) + " <" + without_crud(signature.email) + "> " +
         std::to_string(signature.time_s) + " " + zone;
}

// As lenient as git about what follows the address: a malformed time is 0.
Signature decode_signature(std::string_view line) {
  Signature signature;
  const std::size_t open = line.find('<');
  const std::size_t close = line.rfind('>');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
    signature.name = line;
    return signature;
  }
  signature.name = line.substr(0, open > 0 && line[open - 1] == ' ' ? open - 1 : open);
  signature.email = line.substr(open + 1, close - open - 1);
  std::string_view rest = line.substr(close + 1);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const auto end = std::from_chars(rest.data(), rest.data() + rest.size(), signature.time_s).ptr;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  if (rest.size() >= 6 && (rest[1] == '+' || rest[1] == '-')) {
    int zone = 0;
    std::from_chars(rest.data() + 2, rest.data() + 6, zone);
    signature.offset_minutes = (zone / 100 * 60 + zone % 100) * (rest[1] == '-' ? -1 : 1);
  }
  return signature;
}

// Takes the line up to the next newline off `rest`.
std::string_view take_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

bool take_prefix(std::string_view& line, std::string_view prefix) {
  if (!line.starts_with(prefix)) return false;
  line.remove_prefix(prefix.size());
  return true;
}

ObjectId parse_id(std::string_view hex, const char* type, const ObjectId& id) {
  const auto parsed = ObjectId::from_hex(hex);
  if (!parsed) throw_malformed(type, id, "it names an object that is not a SHA-1");
  return *parsed;
}

GitMode parse_mode(std::string_view text, const ObjectId& id) {
  std::uint32_t mode = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) throw_malformed("tree", id, "bad mode");
  switch (mode & 0170000) {
    case 0040000: return GitMode::tree;
    case 0120000: return GitMode::symlink;
    case 0160000: return GitMode::gitlink;
    case 0100000: break;
    default: throw_malformed("tree", id, "bad mode");
  }
  // git knows three regular modes; whatever else old tools wrote counts by its executable bit (canon_mode).
  if (mode == 0100664) return GitMode::group_writable;
  return (mode & 0100) != 0 ? GitMode::executable : GitMode::regular;
}

}  // namespace

const char* name_of(ObjectType type) {
  switch (type) {
    case ObjectType::commit: return "commit";
    case ObjectType::tree: return "tree";
    case ObjectType::blob: return "blob";
    case ObjectType::tag: return "tag";
    case ObjectType::offset_delta: return "offset delta";
    case ObjectType::reference_delta: return "reference delta";
  }
  return "unknown object";
}

Sha1::Sha1() : context_(EVP_MD_CTX_new()) {
  // Fetched once: EVP_sha1() would look the algorithm up for every object.
  static EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA1", nullptr);
  if (!context_ || EVP_DigestInit_ex2(context_.get(), algorithm, nullptr) != 1) throw std::bad_alloc();
}

void Sha1::update(std::span<const std::byte> bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }

ObjectId Sha1::finish() {
  ObjectId::Bytes digest{};
  EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr);
  return ObjectId(digest);
}

Sha1 object_hash(ObjectType type, std::uint64_t size_bytes) {
  Sha1 hash;
  std::string header = std::string(name_of(type)) + " " + std::to_string(size_bytes);
  header.push_back('\0');
  hash.update(header);
  return hash;
}

ObjectId hash_object(ObjectType type, std::string_view content) {
  Sha1 hash = object_hash(type, content.size());
  hash.update(content);
  return hash.finish();
}

std::string encode_tree(const Tree& tree) {
  std::string content;
  for (const TreeEntry& entry : tree) {
    char mode[16];
    std::snprintf(mode, sizeof mode, "%o ", static_cast<unsigned>(entry.mode));
    content += mode;
    content += entry.name;
    content.push_back('\0');
    content.append(reinterpret_cast<const char*>(entry.id.bytes().data()), ObjectId::kSize);
  }
  return content;
}

std::string encode_commit(const Commit& commit) {
  std::string content = "tree " + commit.tree.hex() + "\n";
  for (const ObjectId& parent : commit.parents) content += "parent " + parent.hex() + "\n";
  content += "author " + encode_signature(commit.author) + "\n";
  content += "committer " + encode_signature(commit.committer) + "\n\n";
  return content + commit.message;
}

Tree decode_tree(std::string_view content, const ObjectId& id) {
  Tree tree;
  while (!content.empty()) {
    const std::size_t space = content.find(' ');
    if (space == std::string_view::npos) throw_malformed("tree", id, "an entry has no mode");
    const std::size_t end = content.find('\0', space);
    if (end == std::string_view::npos || content.size() - end - 1 < ObjectId::kSize) {
      throw_malformed("tree", id, "its last entry is cut short");
    }
    tree.push_back({std::string(content.substr(space + 1, end - space - 1)), parse_mode(content.substr(0, space), id),
                    ObjectId::from_raw(content.data() + end + 1)});
    content.remove_prefix(end + 1 + ObjectId::kSize);
  }
  return tree;
}

Commit decode_commit(std::string_view content, const ObjectId& id) {
  Commit commit;
  bool has_tree = false;
  while (!content.empty()) {
    std::string_view line = take_line(content);
    if (line.empty()) break;
    if (take_prefix(line, "tree ")) {
      commit.tree = parse_id(line, "commit", id);
      has_tree = true;
    } else if (take_prefix(line, "parent ")) {
      commit.parents.push_back(parse_id(line, "commit", id));
    } else if (take_prefix(line, "author ")) {
      commit.author = decode_signature(line);
    } else if (take_prefix(line, "committer ")) {
      commit.committer = decode_signature(line);
    }
  }
  if (!has_tree) throw_malformed("commit", id, "it names no tree");
  commit.message = content;
  return commit;
}

ObjectId decode_tag_target(std::string_view content, const ObjectId& id) {
  std::string_view line = take_line(content);
  if (!take_prefix(line, "object ")) throw_malformed("tag", id, "it names no object");
  return parse_id(line, "tag", id);
}

std::string encode_entry_header(ObjectType type, std::uint64_t size_bytes) {
  std::string header;
  auto byte = static_cast<std::uint8_t>((static_cast<std::uint8_t>(type) << 4) | (size_bytes & 0x0f));
  for (size_bytes >>= 4; size_bytes != 0; size_bytes >>= 7) {
    header.push_back(static_cast<char>(byte | 0x80));
    byte = static_cast<std::uint8_t>(size_bytes & 0x7f);
  }
  header.push_back(static_cast<char>(byte));
  return header;
}

}  // namespace escrow::storage
