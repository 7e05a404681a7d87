#include "daemon/console/text_output.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <map>

#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

constexpr std::size_t kNamesShown = 10;

std::string past(session::Did did) {
  switch (did) {
    case session::Did::nothing:
      return "left it alone";
    case session::Did::added:
      return "added it";
    case session::Did::modified:
      return "modified it";
    case session::Did::deleted:
      return "deleted it";
    case session::Did::type_changed:
      return "changed its type";
  }
  return "changed it";
}

std::string explain(session::OmissionKind kind) {
  switch (kind) {
    case session::OmissionKind::excluded:
      return "excluded by --exclude";
    case session::OmissionKind::ignored:
      return "ignored as git ignores it";
    case session::OmissionKind::git_name:
      return "names git reserves";
    case session::OmissionKind::git_refused:
      return "refused by git fsck";
    case session::OmissionKind::socket:
      return "sockets";
    case session::OmissionKind::fifo:
      return "fifos";
    case session::OmissionKind::device:
      return "devices";
    case session::OmissionKind::empty_directory:
      return "empty directories";
    case session::OmissionKind::xattrs:
      return "extended attributes of";
    case session::OmissionKind::mode:
      return "mode bits beyond the executable bit of";
    case session::OmissionKind::unconverted_text:
      return "conversion of line ends, which .gitattributes asks for (text, eol) and Escrow does not make, of";
    case session::OmissionKind::unconverted_encoding:
      return "conversion to UTF-8, which .gitattributes asks for (working-tree-encoding) and Escrow does not make, of";
    case session::OmissionKind::unconverted_ident:
      return "contraction of $Id$, which .gitattributes asks for (ident) and Escrow does not make, of";
    case session::OmissionKind::unfiltered:
      return "the filter that .gitattributes asks for (filter) and Escrow does not run, of";
    case session::OmissionKind::inside_submodule:
      return "inside a submodule";
  }
  return "others";
}

}  // namespace

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void print_line(std::string_view text) {
  print(text);
  print("\n");
}

void tell(std::string_view line) {
  std::fflush(stdout);
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

std::string human_size(std::uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  constexpr std::array<const char*, 6> units = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 48> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%.1f %s", value, units[unit]);
  return buffer.data();
}

std::string human_age(const session::Timestamp& then, const session::Timestamp& now) {
  const std::int64_t seconds = std::max<std::int64_t>(0, now.seconds - then.seconds);
  struct Unit {
    std::int64_t seconds;
    const char* name;
  };
  constexpr std::array<Unit, 4> units = {{{86400, "day"}, {3600, "hour"}, {60, "minute"}, {1, "second"}}};
  for (const Unit& unit : units) {
    if (seconds >= unit.seconds) return plural(static_cast<std::uint64_t>(seconds / unit.seconds), unit.name) + " ago";
  }
  return "now";
}

std::string human_time(std::int64_t time_s, int offset_minutes) {
  const std::time_t shifted = time_s + std::int64_t{offset_minutes} * 60;
  std::tm parts{};
  gmtime_r(&shifted, &parts);
  std::array<char, 64> buffer;
  std::strftime(buffer.data(), buffer.size(), "%Y-%m-%d %H:%M:%S", &parts);
  std::array<char, 32> zone;
  const int minutes = offset_minutes < 0 ? -offset_minutes : offset_minutes;
  std::snprintf(zone.data(), zone.size(), " %c%02d%02d", offset_minutes < 0 ? '-' : '+', minutes / 60, minutes % 60);
  return std::string(buffer.data()) + zone.data();
}

std::string plural(std::uint64_t count, const std::string& singular) {
  if (count == 1) return "1 " + singular;
  const bool y = singular.ends_with('y');
  return std::to_string(count) + " " + (y ? singular.substr(0, singular.size() - 1) + "ies" : singular + "s");
}

std::string human_counts(const session::ChangeCounts& counts) {
  std::string text;
  const auto add = [&](std::uint64_t count, const char* what) {
    if (count != 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  };
  add(counts.added, "added");
  add(counts.modified, "modified");
  add(counts.deleted, "deleted");
  return text.empty() ? "no changes" : text;
}

std::string short_id(const session::ObjectId& id) { return id.hex().substr(0, 12); }

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      text += row[column];
      if (column + 1 < row.size()) text.append(widths[column] - row[column].size() + 2, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

namespace {

std::string side_of(const session::Conflict& conflict) {
  switch (conflict.met) {
    case session::Met::changed: return past(conflict.ours);
    case session::Met::read: return "read it";
    case session::Met::listed: return "listed its directory";
    case session::Met::absent: return "did not find it";
    case session::Met::read_below: return "read too much near it to be told apart";
  }
  return past(conflict.ours);
}

}  // namespace

std::string conflict_lines(const std::vector<session::Conflict>& conflicts) {
  std::string text;
  for (const session::Conflict& conflict : conflicts) {
    text += "  " + session::quote_path(conflict.path) + ": the session " + side_of(conflict) + ", the branch " +
            past(conflict.theirs) + "\n";
  }
  return text;
}

std::string awaiting_words(const session::SessionId& session, const session::ObjectId& result,
                           const std::optional<session::Timestamp>& expires) {
  const std::string& id = session.text();
  return "awaits approval of its result " + result.hex() +
         (expires ? ", until " + human_time(expires->seconds, 0) : "") + ": `escrow diff " + id +
         "` shows it, `escrow approve " + id + " --result " + result.hex() + "` commits it, `escrow reject " + id +
         "` rolls it back";
}

std::string omission_lines(const std::vector<session::Omission>& omissions, bool is_verbose) {
  std::map<session::OmissionKind, std::vector<std::string>> by_kind;
  for (const session::Omission& omission : omissions) by_kind[omission.kind].push_back(omission.path);
  std::string text;
  for (const auto& [kind, paths] : by_kind) {
    text += "  " + explain(kind) + " (" + std::to_string(paths.size()) + ")";
    const bool is_only_counted = kind == session::OmissionKind::ignored && !is_verbose;
    const std::size_t shown = is_only_counted ? 0 : is_verbose ? paths.size() : std::min(kNamesShown, paths.size());
    for (std::size_t at = 0; at < shown; ++at) {
      text += (at == 0 ? ": " : ", ") + session::quote_path(paths[at]);
    }
    if (is_only_counted) {
      text += ": --verbose names them, --include-ignored commits them";
    } else if (paths.size() > shown) {
      text += ", and " + std::to_string(paths.size() - shown) + " more";
    }
    text += "\n";
  }
  return text;
}

}  // namespace escrow::daemon
