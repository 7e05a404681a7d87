#include "storage/caches/caches.h"

#include <fcntl.h>
#include <linux/limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "storage/caches/cache_tree.h"
#include "storage/caches/cache_view.h"
#include "storage/disk/disk_era.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/disk/lock_file.h"
#include "storage/disk/make_directories.h"
#include "storage/disk/remove_tree.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;

constexpr char kLock[] = "/.lock", kCurrent[] = "/current", kUsed[] = "/used", kTotals[] = "/totals", kTree[] = "/tree",
               kAbout[] = "/about", kInSession[] = "/caches", kAside[] = "/.removed";
constexpr char kIsSeen[] = "\nseen", kSeesOthers[] = "\nsees others", kHands[] = "\nhands";
constexpr std::size_t kLongestName_bytes = 80;

bool is_plain(char one) {
  return (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9') || one == '-' ||
         one == '_';
}

std::string encoded(std::string_view name) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string text;
  for (const char one : name) {
    const auto byte = static_cast<unsigned char>(one);
    if (is_plain(one) || (one == '.' && !text.empty()))
      text += one;
    else
      text += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

std::string decoded(std::string_view text) {
  std::string name;
  for (std::size_t at = 0; at < text.size(); ++at) {
    unsigned value = 0;
    if (text[at] == '%' && at + 2 < text.size()) {
      std::from_chars(text.data() + at + 1, text.data() + at + 3, value, 16);
      name += static_cast<char>(value);
      at += 2;
    } else {
      name += text[at];
    }
  }
  return name;
}

bool is_cache(const std::string& entry) { return !entry.starts_with('.'); }

// Of what a session has dropped: ".N.KEY".
std::string key_of_dropped(const std::string& entry) { return entry.substr(entry.find('.', 1) + 1); }

std::string say_bytes(std::uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

// Of several hands two are noted: neither is the only one.
using Hands = std::set<std::string>;
constexpr std::size_t kMostHands = 2;

struct About {
  std::string generation;  // its name; empty: none
  std::uint64_t era = 0;
  Caches::Place place{};
  std::optional<Hands> hands{};  // nullopt: unknown
  bool operator==(const About&) const = default;
};

// A line of names, each behind a space.
std::optional<Hands> read_hands(std::string_view about) {
  const std::size_t begin = about.find(kHands);
  if (begin == std::string_view::npos) return std::nullopt;
  std::string_view line = about.substr(begin + sizeof kHands - 1);
  const std::size_t end = line.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  line = line.substr(0, end);
  Hands hands;
  while (!line.empty()) {
    line.remove_prefix(1);
    const std::string_view name = line.substr(0, line.find(' '));
    hands.insert(decoded(name));
    line.remove_prefix(name.size());
  }
  return hands;
}

std::string line_of(const std::optional<Hands>& hands) {
  if (!hands) return {};
  std::string line = kHands;
  for (const std::string& hand : *hands) line += ' ' + encoded(hand);
  return line;
}

std::optional<About> read_about(const std::string& copy) {
  const std::optional<std::string> text = read_if_there(copy + kAbout);
  if (!text) return std::nullopt;
  const std::size_t end = text->find('\n');
  if (end == std::string::npos) return std::nullopt;
  About about{.generation = text->substr(0, end)};
  std::from_chars(text->data() + end + 1, text->data() + text->size(), about.era);
  about.place = {.is_seen = text->find(kIsSeen, end) != std::string::npos,
                 .sees_others = text->find(kSeesOthers, end) != std::string::npos};
  about.hands = read_hands(std::string_view(*text).substr(end));
  return about;
}

void write_about(const std::string& copy, const About& about) {
  put_file(copy + kAbout, copy + "/about.new",
           about.generation + '\n' + std::to_string(about.era) + (about.place.is_seen ? kIsSeen : "") +
               (about.place.sees_others ? kSeesOthers : "") + line_of(about.hands) + '\n',
           0600);
}

std::optional<Hands> hands_of(const std::string& generation) {
  const std::optional<About> about = read_about(generation);
  return about ? about->hands : std::nullopt;
}

std::string only_one(const std::optional<Hands>& hands) {
  return hands && hands->size() == 1 ? *hands->begin() : std::string();
}

CacheTotals read_totals(const std::string& generation) {
  CacheTotals totals;
  const std::string line = first_line_of(generation + kTotals);
  const char* const end = line.data() + line.size();
  const auto [next, error] = std::from_chars(line.data(), end, totals.bytes);
  if (error == std::errc() && next != end) std::from_chars(next + 1, end, totals.entries);
  return totals;
}

void make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) throw system_error(errno, "create " + path);
}

void touch(const std::string& path) {
  const UniqueFd file = open_or_throw(AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT, 0600, "open " + path);
  if (::futimens(file.get(), nullptr) != 0) throw system_error(errno, "set the time of " + path);
}

void give_to(const std::string& tree, const Caches::Owner& owner) {
  if (::geteuid() == 0 && ::lchown(tree.c_str(), owner.uid, owner.gid) != 0)
    throw system_error(errno, "give a cache to the session's user");
  if (::chmod(tree.c_str(), 0777 & ~owner.umask) != 0) throw system_error(errno, "set the mode of a cache");
}

}  // namespace

// Which generations sessions are over: by cache, and how many sessions each.
struct Caches::Used {
  std::map<std::string, std::map<std::string, std::uint64_t>> generations;

  bool has(const std::string& cache) const { return generations.contains(cache); }
  bool has(const std::string& cache, const std::string& generation) const {
    const auto found = generations.find(cache);
    return found != generations.end() && found->second.contains(generation);
  }
};

Caches::Caches(std::string state_directory)
    : caches_(state_directory + "/caches"),
      sessions_(state_directory + "/sessions"),
      orphans_(std::move(state_directory) + "/orphans") {}

void Caches::check_name(std::string_view name, std::string_view what) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::bad_request,
                std::string(what) + " names the cache '" + session::quote_path(std::string(name)) + "', which " + why);
  };
  if (name.empty()) refuse("is empty");
  if (name.size() > kLongestName_bytes)
    refuse("is longer than " + std::to_string(kLongestName_bytes) + " bytes; give a shorter one with PATH=NAME");
  for (const char one : name)
    if (static_cast<unsigned char>(one) < 0x20 || one == 0x7f) refuse("has a control character");
}

std::string Caches::current(const std::string& encoded_name) const {
  std::array<char, NAME_MAX + 1> text;
  const ssize_t size = ::readlink((path_of(encoded_name) + kCurrent).c_str(), text.data(), text.size());
  if (size < 0 && (errno == ENOENT || errno == ENOTDIR)) return {};
  if (size < 0) throw system_error(errno, "read which generation of a cache is current");
  const std::string name(text.data(), static_cast<std::size_t>(size));
  return is_directory(path_of(encoded_name) + '/' + name + kTree) ? name : "";
}

// A session that no process holds has no mount. One that goes back to a savepoint has dropped its copy for a moment.
void Caches::refuse_beside_others(const std::string& session_directory, const std::string& name, Place place) const {
  const auto meets = [&](const std::string& copies) {
    for (const std::string& key : names_in(copies)) {
      if ((is_cache(key) ? key : key_of_dropped(key)) != encoded(name)) continue;
      const std::optional<About> about = read_about(copies + '/' + key);
      if (about && ((place.sees_others && about->place.is_seen) || (place.is_seen && about->place.sees_others)))
        return true;
    }
    return false;
  };
  for (const std::string& session : names_in(sessions_)) {
    const std::string directory = sessions_ + '/' + session;
    if (session_directory.ends_with('/' + session) || !meets(directory + kInSession)) continue;
    if (!is_locked(directory + "/lock")) continue;
    throw Error(Errc::wrong_state,
                "the cache '" + session::quote_path(name) + "' is in use by session " + session +
                    ", and the paths in it may lead a build in one session to the files of the other; wait until that "
                    "session is unmounted, or take another cache with PATH=NAME (mounts with the option in_container, "
                    "in which containers alone work, share caches)");
  }
}

void Caches::leave_all_but(const std::string& session_directory, const std::vector<std::string>& names) const {
  const std::string copies = session_directory + kInSession;
  const std::vector<std::string> keys = names_in(copies);
  if (keys.empty()) return;
  const UniqueFd turn = lock_file(caches_ + kLock, LockKind::exclusive);
  for (const std::string& key : keys) {
    const std::string name = decoded(is_cache(key) ? key : key_of_dropped(key)), copy = copies + '/' + key;
    std::optional<About> about = read_about(copy);
    if (!about || about->place == Place{} || std::find(names.begin(), names.end(), name) != names.end()) continue;
    about->place = {};
    write_about(copy, *about);
  }
}

std::shared_ptr<session::EntryFileSystem> Caches::open(const std::string& session_directory, const std::string& name,
                                                       const Owner& owner, Place place,
                                                       const std::optional<std::string>& hand) const {
  const std::string key = encoded(name), cache = path_of(key), copy = session_directory + kInSession + '/' + key;
  make_directory(caches_);
  make_directory(session_directory + kInSession);
  const UniqueFd turn = lock_file(caches_ + kLock, LockKind::exclusive);
  if (place != Place{}) refuse_beside_others(session_directory, name, place);
  std::optional<About> about = read_about(copy);
  const std::uint64_t era = disk_era(session_directory);
  if (!about || about->era != era) {
    remove_tree(copy);
    make_directory(copy);
    about = About{current(key), era};
    CacheTree::prepare(copy, about->generation.empty() ? "" : cache + '/' + about->generation);
    if (about->generation.empty()) give_to(copy + kTree, owner);
  }
  const std::string generation = about->generation.empty() ? "" : cache + '/' + about->generation;
  About next = *about;
  next.place = place;
  // A hand that opened the cache and changed nothing is not noted.
  if (!CacheTree::was_changed(copy)) next.hands = generation.empty() ? Hands() : hands_of(generation);
  if (hand && hand->empty()) next.hands.reset();
  if (hand && next.hands && next.hands->size() < kMostHands) next.hands->insert(*hand);
  if (next != about || !is_there(copy + kAbout)) write_about(copy, next);
  if (!generation.empty()) touch(cache + kUsed);
  auto view = std::make_shared<CacheView>(copy, generation, only_one(next.hands));
  const auto views = views_.lock();
  std::erase_if(*views, [](const View& one) { return one.files.expired(); });
  views->push_back({copy, view});
  return view;
}

void Caches::seal_views_of(const std::string& copy) const {
  std::vector<std::shared_ptr<CacheView>> found;
  {
    const auto views = views_.lock();
    for (const View& view : *views)
      if (auto files = view.files.lock(); files && view.copy == copy) found.push_back(std::move(files));
  }
  for (const auto& files : found) files->seal();
}

bool Caches::has(const std::string& session_directory, const std::string& name) {
  return read_about(session_directory + kInSession + '/' + encoded(name)).has_value();
}

// ---- dropping ----

// Nothing is synced: after a power cut nothing that was not published counts, under whatever name.
std::vector<std::string> Caches::drop_changes(const std::string& session_directory) const {
  const std::string copies = session_directory + kInSession;
  std::vector<std::string> dropped;
  const UniqueFd turn = lock_file(caches_ + kLock, LockKind::exclusive);
  for (const std::string& key : names_in(copies)) {
    const std::string copy = copies + '/' + key;
    if (!is_cache(key) || !CacheTree::was_changed(copy)) continue;
    std::string aside = copies + "/.0." + key;
    for (int number = 1; is_there(aside); ++number) aside = copies + "/." + std::to_string(number) + '.' + key;
    if (::rename(copy.c_str(), aside.c_str()) != 0) throw system_error(errno, "drop the changes of a cache");
    dropped.push_back(decoded(key));
  }
  std::sort(dropped.begin(), dropped.end());
  return dropped;
}

void Caches::remove_dropped(const std::string& session_directory) const {
  const std::string copies = session_directory + kInSession;
  std::vector<std::string> dropped = names_in(copies);
  std::erase_if(dropped, is_cache);
  if (dropped.empty()) return;
  {
    const UniqueFd turn = lock_file(caches_ + kLock, LockKind::exclusive);
    make_directory(caches_ + kAside);
    for (std::size_t at = 0; at < dropped.size(); ++at) {
      const std::string copy = copies + '/' + dropped[at];
      if (!is_directory(copy) || CacheView::is_held(copy)) continue;
      const std::string aside =
          caches_ + kAside + session_directory.substr(session_directory.rfind('/')) + '.' + std::to_string(at);
      remove_tree(aside);
      if (::rename(copy.c_str(), aside.c_str()) != 0) throw system_error(errno, "set a cache aside");
    }
  }
  remove_inside(caches_ + kAside, {});
}

// ---- publishing ----

void Caches::publish(const std::string& session_directory, std::uint64_t most_bytes, const Observer& observer) const {
  std::optional<Error> first;
  for (const std::string& key : names_in(session_directory + kInSession)) {
    if (!is_cache(key)) continue;  // dropped
    try {
      publish_one(session_directory, key, most_bytes, observer);
    } catch (const Error& error) {
      if (first) continue;
      first = Error(error.code(), "the cache '" + session::quote_path(decoded(key)) +
                                      "' was not published, and is as it was: " + error.what());
    }
  }
  if (first) throw *first;
}

void Caches::publish_one(const std::string& session, const std::string& key, std::uint64_t most_bytes,
                         const Observer& observer) const {
  const auto tell = [&](CacheStep step) {
    if (observer) observer(step);
  };
  const std::string copy = session + kInSession + '/' + key, cache = path_of(key);
  std::optional<About> about = read_about(copy);
  if (!about) return;
  seal_views_of(copy);
  CacheTree tree(copy, about->generation.empty() ? "" : cache + '/' + about->generation);
  if (!tree.is_changed()) return;
  if (about->era != disk_era(session))
    throw Error(Errc::unavailable,
                "the machine was restarted or its disk was mounted again since the session wrote to it");
  const CacheTotals totals = tree.complete();
  if (totals.bytes > most_bytes) {
    throw Error(Errc::no_space, "it has " + say_bytes(totals.bytes) + ", and all caches together may have " +
                                    say_bytes(most_bytes) + "; give them more with git config escrow.cacheLimit");
  }
  put_file(copy + kTotals, copy + "/totals.new",
           std::to_string(totals.bytes) + ' ' + std::to_string(totals.entries) + '\n', 0600);
  if (!totals.has_git) {
    about->hands.emplace();
    write_about(copy, *about);
  }
  tell(CacheStep::completed);
  sync_file_system(caches_);
  tell(CacheStep::synced);
  {
    const UniqueFd turn = lock_file(caches_ + kLock, LockKind::exclusive);
    const std::string generation = session.substr(session.rfind('/') + 1), next = cache + "/current.new";
    make_directory(cache);
    remove_tree(cache + '/' + generation);  // only this session publishes under its name
    if (::rename(copy.c_str(), (cache + '/' + generation).c_str()) != 0) throw system_error(errno, "move it");
    sync_directory(cache);
    tell(CacheStep::moved);
    if ((::unlink(next.c_str()) != 0 && errno != ENOENT) || ::symlink(generation.c_str(), next.c_str()) != 0 ||
        ::rename(next.c_str(), (cache + kCurrent).c_str()) != 0)
      throw system_error(errno, "make it current");
    sync_directory(cache);
    sync_directory(caches_);
    tell(CacheStep::published);
    touch(cache + kUsed);
    const Used now = used();
    set_aside(now, key);
    evict(now, most_bytes, key);
  }
  remove_inside(caches_ + kAside, {});
  tell(CacheStep::retired);
}

// ---- removing ----

Caches::Used Caches::used() const {
  Used used;
  for (const std::string& directory : {sessions_, orphans_}) {
    for (const std::string& session : names_in(directory)) {
      const std::string copies = directory + '/' + session + kInSession;
      for (const std::string& key : names_in(copies))
        if (const auto about = read_about(copies + '/' + key))
          used.generations[is_cache(key) ? key : key_of_dropped(key)][about->generation] += is_cache(key) ? 1 : 0;
    }
  }
  return used;
}

// Generations that nobody needs: to be removed by whoever comes next, when the lock is gone.
void Caches::set_aside(const Used& used, const std::string& key) const {
  const std::string cache = path_of(key), now = current(key);
  make_directory(caches_ + kAside);
  bool is_empty = now.empty();
  for (const std::string& name : names_in(cache)) {
    if (name == now || !is_directory(cache + '/' + name) || '/' + name == kCurrent) continue;
    if (used.has(key, name)) {
      is_empty = false;
      continue;
    }
    const std::string aside = caches_ + kAside + '/' + key + '.' + name;
    remove_tree(aside);
    if (::rename((cache + '/' + name).c_str(), aside.c_str()) != 0) throw system_error(errno, "set a cache aside");
  }
  if (is_empty) remove_tree(cache);
}

void Caches::evict(const Used& used, std::uint64_t most_bytes, const std::string& but_for) const {
  struct Candidate {
    timespec used;
    std::string key;
    std::uint64_t bytes;
  };
  std::vector<Candidate> candidates;
  std::uint64_t bytes = 0;
  for (const std::string& key : names_in(caches_)) {
    const std::string now = is_cache(key) ? current(key) : "";
    if (now.empty()) continue;
    const CacheTotals totals = read_totals(path_of(key) + '/' + now);
    bytes += totals.bytes;
    const std::optional<struct stat> last = status_of(path_of(key) + kUsed);
    if (key != but_for && !used.has(key)) candidates.push_back({last ? last->st_mtim : timespec{}, key, totals.bytes});
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& one, const Candidate& other) {
    return std::pair(one.used.tv_sec, one.used.tv_nsec) < std::pair(other.used.tv_sec, other.used.tv_nsec);
  });
  for (const Candidate& one : candidates) {
    if (bytes <= most_bytes) return;
    if (::unlink((path_of(one.key) + kCurrent).c_str()) != 0) throw system_error(errno, "drop a cache");
    set_aside(used, one.key);
    bytes -= one.bytes;
  }
}

bool Caches::drop(const std::string& name) const {
  const std::string key = encoded(name);
  if (!is_directory(path_of(key))) return false;
  {
    const UniqueFd turn = lock_file(caches_ + kLock, LockKind::exclusive);
    if (::unlink((path_of(key) + kCurrent).c_str()) != 0) {
      if (errno == ENOENT) return false;
      throw system_error(errno, "drop the cache '" + session::quote_path(name) + "'");
    }
    sync_directory(path_of(key));
    set_aside(used(), key);
  }
  remove_inside(caches_ + kAside, {});
  return true;
}

void Caches::collect(std::uint64_t most_bytes) const {
  if (!is_directory(caches_)) return;
  {
    const UniqueFd turn = lock_file(caches_ + kLock, LockKind::exclusive);
    const Used now = used();
    for (const std::string& key : names_in(caches_))
      if (is_cache(key)) set_aside(now, key);
    evict(now, most_bytes, "");
  }
  remove_inside(caches_ + kAside, {});
}

// ---- looking ----

std::vector<CacheStatus> Caches::list() const {
  std::vector<CacheStatus> caches;
  if (!is_directory(caches_)) return caches;
  const UniqueFd turn = lock_file(caches_ + kLock, LockKind::shared);
  const Used now = used();
  for (const std::string& key : names_in(caches_)) {
    const std::string generation = is_cache(key) ? current(key) : "";
    if (generation.empty()) continue;
    const CacheTotals totals = read_totals(path_of(key) + '/' + generation);
    CacheStatus status{decoded(key), totals.bytes, totals.entries, 0, {}};
    if (now.has(key))
      for (const auto& [one, sessions] : now.generations.at(key)) status.sessions += sessions;
    if (const std::optional<struct stat> last = status_of(path_of(key) + kUsed))
      status.used = {last->st_mtim.tv_sec, static_cast<std::uint32_t>(last->st_mtim.tv_nsec)};
    caches.push_back(std::move(status));
  }
  std::sort(caches.begin(), caches.end(), [](const auto& one, const auto& other) { return one.name < other.name; });
  return caches;
}

std::vector<Caches::Fault> Caches::check() const {
  std::vector<Fault> faults;
  if (!is_directory(caches_)) return faults;
  const UniqueFd turn = lock_file(caches_ + kLock, LockKind::shared);
  for (const std::string& key : names_in(caches_)) {
    if (!is_cache(key)) continue;
    const std::string cache = path_of(key), now = current(key);
    if (now.empty() && status_of(cache + kCurrent))
      faults.push_back({decoded(key), "what it last held is missing; drop it with escrow cache drop"});
    if (!now.empty() && (!is_there(cache + '/' + now + "/several") || read_totals(cache + '/' + now).entries == 0))
      faults.push_back({decoded(key), "the record of what it holds is damaged; drop it with escrow cache drop"});
  }
  for (const auto& [key, generations] : used().generations)
    for (const auto& [generation, sessions] : generations)
      if (!generation.empty() && !is_directory(path_of(key) + '/' + generation + kTree))
        faults.push_back({decoded(key), "a session is over a state of it that is missing; roll the session back"});
  return faults;
}

}  // namespace escrow::storage
