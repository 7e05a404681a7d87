#include "session/trees/read_set.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "session/trees/git_file_rules.h"

namespace escrow::session {
namespace {

constexpr std::size_t kDirectory_bytes = sizeof(ReadSet::Directory) + 64, kName_bytes = 64;
constexpr std::uint64_t kMostEntries = std::uint64_t{1} << 28;  // of a directory: beyond what a tree can have

// An event is a letter, the directory, and what the letter wants.
constexpr char kDirectory = 'd', kRootTree = 'o', kLookedAt = 'a', kRead = 'r', kListed = 'l', kMissed = 'n',
               kTaken = 'w', kAllIn = 'e', kAllBelow = 't', kAllLookedAt = 'A', kAllRead = 'R';

void put_number(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  bool at_end() const { return at_ == bytes_.size(); }
  bool failed() const { return failed_; }

  char letter() {
    const std::string_view one = take(1);
    return one.empty() ? '\0' : one[0];
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 63; shift += 7) {
      const std::string_view one = take(1);
      if (one.empty()) return 0;
      const auto byte = static_cast<unsigned char>(one[0]);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    failed_ = true;
    return 0;
  }
  std::string_view text() { return take(number()); }
  ObjectId id() {
    const std::string_view raw = take(ObjectId::kSize);
    return failed_ ? ObjectId() : ObjectId::from_raw(raw.data());
  }

 private:
  std::string_view take(std::uint64_t count) {
    if (failed_ || count > bytes_.size() - at_) {
      failed_ = true;
      return {};
    }
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }

  const std::string_view bytes_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace

class ReadSet::Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}
  Writer& begin(char letter, Id directory) {
    out_ += letter;
    put_number(out_, directory);
    return *this;
  }
  Writer& number(std::uint64_t value) {
    put_number(out_, value);
    return *this;
  }
  Writer& text(std::string_view value) {
    put_number(out_, value.size());
    out_ += value;
    return *this;
  }
  Writer& id(const ObjectId& value) {
    out_.append(reinterpret_cast<const char*>(value.bytes().data()), ObjectId::kSize);
    return *this;
  }

 private:
  std::string& out_;
};

bool ReadSet::Bits::has(std::uint64_t index) const {
  return index / 64 < words_.size() && (words_[index / 64] >> index % 64 & 1) != 0;
}

bool ReadSet::Bits::add(std::uint64_t index) {
  if (has(index)) return false;
  if (index / 64 >= words_.size()) words_.resize(index / 64 + 1);
  words_[index / 64] |= std::uint64_t{1} << index % 64;
  return true;
}

std::uint64_t ReadSet::Bits::count() const {
  std::uint64_t count = 0;
  for (const std::uint64_t word : words_) count += static_cast<std::uint64_t>(std::popcount(word));
  return count;
}

std::string ReadSet::Bits::bytes() const {
  std::string bytes;
  for (const std::uint64_t word : words_)
    for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(word >> shift);
  bytes.resize(bytes.find_last_not_of('\0') + 1);
  return bytes;
}

ReadSet::Bits ReadSet::Bits::from(std::string_view bytes) {
  Bits bits;
  bits.words_.resize((bytes.size() + 7) / 8);
  for (std::size_t at = 0; at < bytes.size(); ++at)
    bits.words_[at / 8] |= std::uint64_t{static_cast<unsigned char>(bytes[at])} << at % 8 * 8;
  return bits;
}

ReadSet::ReadSet(std::size_t most_bytes) : most_bytes_(most_bytes) { directories_.emplace_back(); }

bool ReadSet::is_covered(Id directory) const {
  for (;; directory = directories_[directory].parent) {
    if (directories_[directory].all_below) return true;
    if (directory == kRoot) return false;
  }
}

ReadSet::Id ReadSet::add_directory(Id parent, std::string_view name, const ObjectId& tree) {
  if (takes_nothing(parent)) return kCovered;
  if (const auto known = directories_[parent].children.find(name); known != directories_[parent].children.end()) {
    if (directories_[known->second].tree != tree) take_all_below(known->second);
    return is_covered(known->second) ? kCovered : known->second;
  }
  if (const auto taken = directories_[parent].names.find(name); taken != directories_[parent].names.end())
    if (taken->second) return kCovered;
  if (held_bytes_ >= most_bytes_) {
    take_all_below(parent);
    return kCovered;
  }
  const bool was_short = is_short();
  const Id made = static_cast<Id>(directories_.size());
  directories_.emplace_back();
  directories_[made].parent = parent;
  directories_[made].name = name;
  directories_[made].tree = tree;
  directories_[parent].children.emplace(name, made);
  held_bytes_ += kDirectory_bytes + kName_bytes + 2 * name.size();
  Writer(events_).begin(kDirectory, parent).text(name).id(tree);
  if (was_short) take_all_in(made);
  return made;
}

bool ReadSet::set_root(const ObjectId& tree) {
  if (directories_[kRoot].tree == tree) return false;
  if (!directories_[kRoot].tree.is_null()) return take_all_below(kRoot);
  directories_[kRoot].tree = tree;
  Writer(events_).begin(kRootTree, kRoot).id(tree);
  return true;
}

bool ReadSet::mark(Bits& bits, Id directory, std::uint64_t index, char event) {
  const std::size_t before = bits.size_bytes();
  if (!bits.add(index)) return false;
  held_bytes_ += bits.size_bytes() - before;
  Writer(events_).begin(event, directory).number(index);
  return true;
}

bool ReadSet::look_at(Id directory, std::uint64_t index) {
  if (takes_nothing(directory) || directories_[directory].all_in) return false;
  return mark(directories_[directory].looked_at, directory, index, kLookedAt);
}

bool ReadSet::read(Id directory, std::uint64_t index) {
  if (takes_nothing(directory) || directories_[directory].all_in) return false;
  return mark(directories_[directory].read, directory, index, kRead);
}

bool ReadSet::list(Id directory) {
  if (takes_nothing(directory) || directories_[directory].is_listed || directories_[directory].all_in) return false;
  directories_[directory].is_listed = true;
  Writer(events_).begin(kListed, directory);
  return true;
}

bool ReadSet::take_name(Id directory, std::string_view name, bool with_all_below) {
  Directory& where = directories_[directory];
  const auto [known, is_new] = where.names.try_emplace(std::string(name), with_all_below);
  if (!is_new && known->second == with_all_below) return false;
  known->second = known->second || with_all_below;
  if (is_new) held_bytes_ += kName_bytes + name.size();
  Writer(events_).begin(with_all_below ? kTaken : kMissed, directory).text(name);
  return true;
}

bool ReadSet::miss(Id directory, std::string_view name) {
  if (takes_nothing(directory) || directories_[directory].all_in || directories_[directory].is_listed) return false;
  if (const auto known = directories_[directory].names.find(name); known != directories_[directory].names.end())
    return false;
  // Whatever name comes into the directory counts then.
  if (is_short()) return list(directory);
  return take_name(directory, name, false);
}

bool ReadSet::take_all_in(Id directory) {
  Directory& where = directories_[directory];
  if (where.all_in) return false;
  where.all_in = true;
  Writer(events_).begin(kAllIn, directory);
  return true;
}

bool ReadSet::take_all_below(Id directory) {
  if (takes_nothing(directory)) return false;
  directories_[directory].all_below = true;
  Writer(events_).begin(kAllBelow, directory);
  return true;
}

bool ReadSet::take_path(std::string_view path) {
  Id directory = kRoot;
  for (;;) {
    if (takes_nothing(directory)) return false;
    const std::size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    const auto child = directories_[directory].children.find(name);
    if (slash == std::string_view::npos && child != directories_[directory].children.end())
      take_all_below(child->second);
    if (slash == std::string_view::npos || child == directories_[directory].children.end()) {
      if (is_short() && !directories_[directory].names.contains(name)) return take_all_below(directory);
      return take_name(directory, name, true);
    }
    directory = child->second;
    path.remove_prefix(slash + 1);
  }
}

ReadSet::Summary ReadSet::summary() const {
  Summary sum;
  for (Id id = 0; id < directories_.size(); ++id) {
    const Directory& one = directories_[id];
    if (one.all_below && (id == kRoot || !is_covered(one.parent))) ++sum.trees;
    if (is_covered(id)) continue;
    sum.looked_at += one.looked_at.count();
    sum.read += one.read.count();
    sum.listed += one.is_listed ? 1 : 0;
    sum.directories += one.all_in ? 1 : 0;
    for (const auto& [name, with_all_below] : one.names) ++(with_all_below ? sum.trees : sum.absent);
  }
  return sum;
}

std::string ReadSet::take_events() {
  std::string taken;
  taken.swap(events_);
  return taken;
}

bool ReadSet::apply(std::string_view events) {
  const std::size_t most = std::exchange(most_bytes_, ~std::size_t{0});  // what was told apart stays so
  Reader in(events);
  bool is_known = true;
  while (is_known && !in.at_end() && !in.failed()) {
    const char letter = in.letter();
    const std::uint64_t number = in.number();
    if (in.failed() || number >= directories_.size()) break;
    const Id directory = static_cast<Id>(number);
    if (letter == kDirectory) {
      const std::string_view name = in.text();
      const ObjectId tree = in.id();
      const std::size_t before = directories_.size();
      if (!in.failed()) add_directory(directory, name, tree);
      is_known = directories_.size() == before + 1;
    } else if (letter == kRootTree) {
      const ObjectId tree = in.id();
      if (!in.failed()) set_root(tree);
    } else if (letter == kLookedAt || letter == kRead) {
      const std::uint64_t index = in.number();
      is_known = index < kMostEntries;
      if (in.failed() || !is_known) break;
      letter == kRead ? read(directory, index) : look_at(directory, index);
    } else if (letter == kAllLookedAt || letter == kAllRead) {
      Bits bits = Bits::from(in.text());
      held_bytes_ += bits.size_bytes();
      (letter == kAllRead ? directories_[directory].read : directories_[directory].looked_at) = std::move(bits);
    } else if (letter == kMissed || letter == kTaken) {
      const std::string_view name = in.text();
      if (!in.failed()) take_name(directory, name, letter == kTaken);
    } else if (letter == kListed) {
      list(directory);
    } else if (letter == kAllIn) {
      take_all_in(directory);
    } else if (letter == kAllBelow) {
      take_all_below(directory);
    } else {
      is_known = false;
    }
  }
  most_bytes_ = most;
  events_.clear();
  return is_known && in.at_end() && !in.failed();
}

void ReadSet::encode(Id from, Id parent, Id& next, Writer& out) const {
  const Directory& one = directories_[from];
  const Id here = next++;
  if (from != kRoot) {
    out.begin(kDirectory, parent).text(one.name).id(one.tree);
  } else if (!one.tree.is_null()) {
    out.begin(kRootTree, kRoot).id(one.tree);
  }
  if (one.all_below) {
    out.begin(kAllBelow, here);
    return;
  }
  if (one.all_in) out.begin(kAllIn, here);
  if (one.is_listed && !one.all_in) out.begin(kListed, here);
  if (!one.looked_at.empty() && !one.all_in) out.begin(kAllLookedAt, here).text(one.looked_at.bytes());
  if (!one.read.empty() && !one.all_in) out.begin(kAllRead, here).text(one.read.bytes());
  for (const auto& [name, with_all_below] : one.names)
    if (with_all_below || (!one.is_listed && !one.all_in))
      out.begin(with_all_below ? kTaken : kMissed, here).text(name);
  for (const auto& [name, child] : one.children) {
    const auto taken = one.names.find(name);
    if (taken == one.names.end() || !taken->second) encode(child, here, next, out);
  }
}

std::string ReadSet::encoded() const {
  std::string events;
  Writer out(events);
  Id next = 0;
  encode(kRoot, kRoot, next, out);
  return events;
}

std::optional<ReadSet> ReadSet::decoded(std::string_view events) {
  ReadSet set;
  return set.apply(events) ? std::optional(std::move(set)) : std::nullopt;
}

std::string ReadSet::path_of(Id directory) const {
  std::string path;
  for (; directory != kRoot; directory = directories_[directory].parent)
    path = path.empty() ? directories_[directory].name : directories_[directory].name + "/" + path;
  return path;
}

void ReadSet::describe(const ObjectReader& objects, const std::string& prefix,
                       const std::function<void(std::string_view, const std::string&)>& visit) const {
  std::vector<std::tuple<std::string, std::string_view>> lines;
  for (Id id = 0; id < directories_.size(); ++id) {
    const Directory& one = directories_[id];
    if (id != kRoot && is_covered(one.parent)) continue;
    const std::string path = join_path(prefix, path_of(id));
    const auto add = [&](std::string_view what, const std::string& where) { lines.emplace_back(where, what); };
    if (one.all_below) {
      add("all below", path + "/");
      continue;
    }
    if (one.all_in) add("all in", path + "/");
    if (one.is_listed && !one.all_in) add("listed", path + "/");
    for (const auto& [name, with_all_below] : one.names)
      add(with_all_below ? "all below" : "absent", join_path(path, name));
    if (one.looked_at.empty() && one.read.empty()) continue;
    const Tree tree = read_shown_tree(objects, one.tree);
    for (std::size_t index = 0; index < tree.size(); ++index) {
      if (one.read.has(index)) {
        add("read", join_path(path, tree[index].name));
      } else if (one.looked_at.has(index)) {
        add("looked at", join_path(path, tree[index].name));
      }
    }
  }
  std::sort(lines.begin(), lines.end());
  for (const auto& [path, what] : lines) visit(what, path);
}

}  // namespace escrow::session
