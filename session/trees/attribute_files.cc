#include "session/trees/attribute_files.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "session/base/error.h"

namespace escrow::session {
namespace {

using Setting = AttributeFile::Setting;
using Settings = AttributeFile::Settings;

constexpr std::string_view kBlank = " \t\r\n";
constexpr std::string_view kMacro = "[attr]";
constexpr std::size_t kLongestLine_bytes = 2048;  // ATTR_MAX_LINE_LENGTH

std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlank));
  line.remove_prefix(word.size());
  return word;
}

// attr_name_valid() and attr_name_reserved().
bool is_attribute_name(std::string_view name) {
  const auto is_allowed = [](char c) {
    return c == '-' || c == '.' || c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
  };
  return !name.empty() && name.front() != '-' && std::all_of(name.begin(), name.end(), is_allowed) &&
         !name.starts_with("builtin_");
}

// What git writes as "..." with escapes as in C (quote.c). nullopt: it is not closed, or has another escape.
std::optional<std::string> take_quoted(std::string_view& line) {
  std::string text;
  for (std::size_t at = 1; at < line.size(); ++at) {
    if (line[at] == '"') {
      line.remove_prefix(at + 1);
      return text;
    }
    if (line[at] != '\\') {
      text += line[at];
      continue;
    }
    if (++at == line.size()) break;
    constexpr std::string_view kLetters = "abfnrtv\\\"", kMeanings = "\a\b\f\n\r\t\v\\\"";
    if (const std::size_t found = kLetters.find(line[at]); found != kLetters.npos) {
      text += kMeanings[found];
    } else if (line[at] >= '0' && line[at] <= '3' && at + 2 < line.size()) {
      const std::string_view digits = line.substr(at, 3);
      if (digits.find_first_not_of("01234567") != digits.npos) break;
      text += static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 + (digits[2] - '0'));
      at += 2;
    } else {
      break;
    }
  }
  return std::nullopt;
}

// As a line of IgnorePatterns, which reads the same patterns but trims and skips by rules of its own. nullopt: git
// reads no such pattern here.
std::optional<std::string> as_ignore_line(std::string pattern) {
  if (pattern.empty() || pattern.front() == '!' || pattern.find_first_of(std::string_view("\n\0", 2)) != pattern.npos)
    return std::nullopt;
  if (pattern.ends_with(' ')) pattern.insert(pattern.size() - 1, "\\");
  if (pattern.front() == '#') pattern.insert(0, "\\");
  return pattern;
}

std::optional<Setting> parse_setting(std::string_view word) {
  Setting setting{.name = {}, .state = Setting::State::set};
  const std::size_t equals = word.find('=');
  std::string_view name = word.substr(0, equals);
  if (name.starts_with('-') || name.starts_with('!')) {
    setting.state = name.front() == '-' ? Setting::State::unset : Setting::State::unspecified;
    name.remove_prefix(1);
  } else if (equals != word.npos) {
    setting.state = Setting::State::value;
    setting.value = word.substr(equals + 1);
  }
  if (!is_attribute_name(name)) return std::nullopt;
  setting.name = name;
  return setting;
}

}  // namespace

std::string read_attributes_file(const ByteSource& content, const std::string& path) {
  if (content.size() > kLargestAttributesFile_bytes)
    throw Error(Errc::bad_request, "cannot tell which files are for Git LFS: " + quote_path(path) + " has " +
                                       std::to_string(content.size()) +
                                       " bytes, more than the 1 MiB that is read; make it smaller");
  return read_all(content);
}

std::string read_attributes_file(const ObjectReader& objects, const TreeEntry& entry, const std::string& path) {
  const bool is_regular = entry.mode == GitMode::regular || entry.mode == GitMode::executable ||
                          entry.mode == GitMode::group_writable;
  return is_regular ? read_attributes_file(*objects.open_blob(entry.id), path) : std::string();
}

// ---- one file ----

AttributeFile::AttributeFile(std::string_view content) {
  if (content.starts_with("\xef\xbb\xbf")) content.remove_prefix(3);
  while (!content.empty()) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    add(content.substr(0, end));
    content.remove_prefix(std::min(end + 1, content.size()));
  }
}

void AttributeFile::add(std::string_view line) {
  if (line.size() >= kLongestLine_bytes) return;
  line = line.substr(0, line.find('\0'));
  line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
  if (line.empty() || line.front() == '#') return;
  std::string_view rest = line;
  std::optional<std::string> quoted;
  if (line.front() == '"') quoted = take_quoted(rest);
  const std::string pattern = quoted ? *quoted : std::string(take_word(rest));
  const bool is_macro = pattern.starts_with(kMacro) && pattern.size() > kMacro.size();
  const std::string macro = is_macro ? pattern.substr(kMacro.size()) : "";
  if (is_macro && !is_attribute_name(macro)) return;
  Settings settings;
  for (std::string_view word = take_word(rest); !word.empty(); word = take_word(rest)) {
    std::optional<Setting> setting = parse_setting(word);
    if (!setting) return;
    settings.push_back(std::move(*setting));
  }
  if (is_macro) {
    macros_[macro] = std::move(settings);
  } else if (const std::optional<std::string> ignore_line = as_ignore_line(pattern)) {
    lines_.push_back({IgnorePatterns(*ignore_line), std::move(settings)});
  }
}

bool AttributeFile::visit_matches(std::string_view path, const std::function<bool(const Settings&)>& visit) const {
  for (auto line = lines_.rbegin(); line != lines_.rend(); ++line) {
    const bool matches = line->pattern.verdict(path, false) == IgnorePatterns::Verdict::ignored;
    if (matches && !visit(line->settings)) return false;
  }
  return true;
}

// ---- a directory ----

// Of one path: what is decided so far (fill_one() and macroexpand_one()).
class AttributeLevel::Search {
 public:
  Search(const AttributeFile& root, const AttributeFile& info, std::span<const std::string_view> wanted)
      : root_(root), info_(info), wanted_(wanted), missing_(wanted.size()) {}

  // False once all that is wanted is known.
  bool apply(const Settings& settings) {
    for (auto one = settings.rbegin(); one != settings.rend(); ++one) {
      if (!decided_.emplace(one->name, *one).second) continue;
      if (std::find(wanted_.begin(), wanted_.end(), one->name) != wanted_.end() && --missing_ == 0) return false;
      if (one->state != Setting::State::set) continue;
      if (const Settings* macro = macro_of(one->name); macro != nullptr && !apply(*macro)) return false;
    }
    return true;
  }

  std::map<std::string, Setting, std::less<>> take() {
    std::erase_if(decided_, [&](const auto& one) {
      return one.second.state == Setting::State::unspecified ||
             std::find(wanted_.begin(), wanted_.end(), one.first) == wanted_.end();
    });
    return std::move(decided_);
  }

 private:
  const Settings* macro_of(const std::string& name) const {
    static const Settings kBinary = {{.name = "diff", .state = Setting::State::unset},
                                     {.name = "merge", .state = Setting::State::unset},
                                     {.name = "text", .state = Setting::State::unset}};
    for (const AttributeFile* file : {&info_, &root_})
      if (const auto found = file->macros().find(name); found != file->macros().end()) return &found->second;
    return name == "binary" ? &kBinary : nullptr;
  }

  const AttributeFile& root_;
  const AttributeFile& info_;
  const std::span<const std::string_view> wanted_;
  std::size_t missing_;  // of those wanted
  std::map<std::string, Setting, std::less<>> decided_;
};

AttributeLevel::AttributeLevel(std::string_view info_attributes, ReadFile read)
    : info_(info_attributes), read_(std::move(read)) {}

AttributeLevel::AttributeLevel(AttributeLevel& above, std::string_view name, ReadFile read)
    : above_(&above), path_(above.path_ + std::string(name) + '/'), read_(std::move(read)) {}

const AttributeFile& AttributeLevel::file() {
  if (read_) {
    file_ = AttributeFile(read_());
    read_ = nullptr;
  }
  return file_;
}

std::map<std::string, Setting, std::less<>> AttributeLevel::settings_of(std::string_view name,
                                                                        std::span<const std::string_view> wanted) {
  AttributeLevel* root = this;
  bool has_any = !file().empty();
  while (root->above_ != nullptr) {
    root = root->above_;
    has_any = !root->file().empty() || has_any;
  }
  if (!has_any && root->info_.empty()) return {};
  const std::string path = path_ + std::string(name);
  Search search(root->file(), root->info_, wanted);
  const auto apply = [&](const Settings& settings) { return search.apply(settings); };
  if (!root->info_.visit_matches(path, apply)) return search.take();
  for (AttributeLevel* level = this; level != nullptr; level = level->above_)
    if (!level->file().visit_matches(std::string_view(path).substr(level->path_.size()), apply)) break;
  return search.take();
}

bool AttributeLevel::is_for_lfs(std::string_view name) {
  static constexpr std::array<std::string_view, 1> kWanted = {"filter"};
  const auto said = settings_of(name, kWanted);
  const auto filter = said.find("filter");
  return filter != said.end() && filter->second.state == Setting::State::value && filter->second.value == "lfs";
}

// ---- above a prefix ----

AttributesAbove::AttributesAbove(const ObjectReader& objects, const TreeRoot& base, const RepoPath& prefix,
                                 const std::string& info_attributes)
    : info_attributes_(info_attributes) {
  TreeRoot below = base;
  std::string path;
  for (const std::string_view component : prefix.components()) {
    const Tree tree = read_tree_or_empty(objects, below);
    above_.push_back(level([&objects, file = entry_named(tree, kAttributesFileName),
                            at = join_path(path, kAttributesFileName)] {
      return file ? read_attributes_file(objects, *file, at) : std::string();
    }));
    path = join_path(path, component);
    name_ = component;
    below = tree_of(entry_named(tree, component));
  }
}

std::unique_ptr<AttributeLevel> AttributesAbove::level(AttributeLevel::ReadFile read) {
  if (above_.empty()) return std::make_unique<AttributeLevel>(info_attributes_, std::move(read));
  return std::make_unique<AttributeLevel>(*above_.back(), name_, std::move(read));
}

}  // namespace escrow::session
