#include "daemon/host/session_request.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "api/problem.h"
#include "daemon/host/config.h"
#include "daemon/host/policy_files.h"
#include "session/base/duration.h"
#include "session/base/error.h"
#include "session/base/path_pattern.h"
#include "session/base/path_prefix.h"

namespace escrow::daemon {

using api::RequestFields;
using session::Errc;
using session::Error;

namespace {

using Field = SessionRequestField;
using Part = RequestPart;
using Request = SessionRequest;
using Texts = std::vector<std::string>;

constexpr std::size_t kMaxMessage_bytes = 65536, kMaxTexts = 256;
constexpr std::uint64_t kMaxId = 0xfffffffe;  // (uid_t) -1 is nobody's
constexpr std::uint64_t kMaxLimit = std::uint64_t{1} << 60;
constexpr std::uint64_t kMaxApproval_s = 10ull * 366 * 24 * 60 * 60;

void check_prefix(const std::string& text, std::string_view what) { session::parse_path_prefix(text, what); }
void check_principal(const std::string& text, std::string_view what) {
  if (!text.empty()) session::check_principal(text, what);
}
void check_audit_value(const std::string& text, std::string_view what) { session::check_audit_value(text, what); }
void check_umask(const std::string& text, std::string_view what) { parse_umask(text, what); }
void check_exclude(const std::string& text, std::string_view) { session::PathPatterns checked({text}); }

std::string in_quotes(std::string_view text) { return "'" + std::string(text) + "'"; }

std::string listed(const std::vector<std::string_view>& words) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    list += i == 0 ? "" : i + 1 == words.size() ? " and " : ", ";
    list += words[i];
  }
  return list;
}

// Throws Error{bad_request}; `what` is the option or field.
void check_text(const Field& field, const std::string& text, const std::string& what) {
  if (text.size() > field.most)
    throw Error(Errc::bad_request, what + " is longer than " + std::to_string(field.most) + " bytes");
  if (text.find('\0') != std::string::npos) throw Error(Errc::bad_request, what + " has a NUL byte");
  if (!field.choices.empty() && std::find(field.choices.begin(), field.choices.end(), text) == field.choices.end())
    throw Error(Errc::bad_request, what + " is " + in_quotes(text) + "; it is one of " + listed(field.choices));
  if (field.check != nullptr) field.check(text, what);
}

std::uint64_t parse_number(std::string_view text, std::uint64_t most, const std::string& what) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value > most)
    throw Error(Errc::bad_request, what + " needs a whole number of at most " + std::to_string(most) + ", not " +
                                       in_quotes(text));
  return value;
}

bool parse_flag(std::string_view text, const std::string& what) {
  if (text.empty() || text == "true") return true;
  if (text == "false") return false;
  throw Error(Errc::bad_request, what + " is " + in_quotes(text) + "; it is true or false");
}

struct SetFromText {
  Request& request;
  const Field& field;
  const std::string text;
  const std::string& what;

  void operator()(std::string Request::*member) const {
    if (text.empty()) throw Error(Errc::bad_request, what + " needs a value");
    check_text(field, text, what);
    request.*member = text;
  }
  void operator()(bool Request::*member) const { request.*member = parse_flag(text, what); }
  void operator()(std::optional<std::uint32_t> Request::*member) const {
    request.*member = static_cast<std::uint32_t>(parse_number(text, field.most, what));
  }
  void operator()(std::uint64_t Request::*member) const { request.*member = parse_number(text, field.most, what); }
  void operator()(std::chrono::seconds Request::*member) const {
    request.*member = std::chrono::ceil<std::chrono::seconds>(session::parse_duration(text, what));
  }
  void operator()(Texts Request::*member) const {
    check_text(field, text, what);
    (request.*member).push_back(text);
  }
  void operator()(PolicyDocuments Request::*member) const {
    for (std::string& document : read_policies({text})) (request.*member).documents.push_back(std::move(document));
  }
  void operator()(MountEntries Request::*member) const {
    std::vector<MountEntrySpec>& specs = (request.*member).specs;
    if (text.empty()) throw Error(Errc::bad_request, what + " needs a value");
    if (field.name == "mount_table") {
      for (MountEntrySpec& spec : read_mount_table(text, what)) specs.push_back(std::move(spec));
    } else {
      specs.push_back(field.name == "inject"  ? parse_injection(text, what)
                      : field.name == "cache" ? parse_cache(text, what)
                                              : parse_mount_entry(text, what));
    }
    check_mount_entries(specs, what);
  }
};

struct ReadFromJson {
  RequestFields& fields;
  const std::string name;
  Request& request;
  const Field& field;

  void operator()(std::string Request::*member) const {
    if (const std::optional<std::string> text = fields.text(name)) request.*member = checked(*text);
  }
  void operator()(bool Request::*member) const { request.*member = fields.flag(name).value_or(request.*member); }
  void operator()(std::optional<std::uint32_t> Request::*member) const {
    if (const auto value = fields.number(name, 0, field.most)) request.*member = static_cast<std::uint32_t>(*value);
  }
  void operator()(std::uint64_t Request::*member) const {
    request.*member = fields.number(name, 1, field.most).value_or(request.*member);
  }
  void operator()(std::chrono::seconds Request::*member) const {
    if (const auto value = fields.number(name, 1, field.most)) request.*member = std::chrono::seconds(*value);
  }
  void operator()(Texts Request::*member) const {
    const std::optional<Texts> texts = fields.texts(name);
    if (!texts) return;
    if (texts->size() > kMaxTexts) fields.refuse(name, "has more than " + std::to_string(kMaxTexts) + " members");
    for (const std::string& text : *texts) checked(text);
    request.*member = *texts;
  }
  void operator()(PolicyDocuments Request::*member) const {
    Texts documents = fields.documents(name);
    try {
      compile_policies(documents, {documents.size() == 1 ? name : name + " 1"});
    } catch (const Error& error) {
      fields.refuse(name, std::string("is refused: ") + error.what());
    }
    if (!documents.empty()) (request.*member).documents = std::move(documents);
  }
  void operator()(MountEntries Request::*member) const {
    const Texts documents = fields.documents(name);
    if (documents.empty()) return;
    std::vector<MountEntrySpec> specs;
    try {
      for (std::size_t at = 0; at < documents.size(); ++at)
        specs.push_back(mount_entry_of_document(documents[at], "entry " + std::to_string(at + 1)));
      check_mount_entries(specs, name);
    } catch (const Error& error) {
      fields.refuse(name, std::string("is refused: ") + error.what());
    }
    (request.*member).specs = std::move(specs);
  }

 private:
  std::string checked(const std::string& text) const {
    try {
      check_text(field, text, "it");
    } catch (const Error& error) {
      fields.refuse(name, std::string("is refused: ") + error.what());
    }
    return text;
  }
};

struct WriteToJson {
  api::JsonObject& object;
  const std::string name;
  const Request& request;

  // Whether there was something to write.
  bool operator()(std::string Request::*member) const {
    static const Request kUsual;
    if (request.*member == kUsual.*member) return false;
    object.text(name, request.*member);
    return true;
  }
  bool operator()(bool Request::*member) const {
    if (request.*member) object.flag(name, true);
    return request.*member;
  }
  bool operator()(std::optional<std::uint32_t> Request::*member) const {
    if (request.*member) object.number(name, *(request.*member));
    return (request.*member).has_value();
  }
  bool operator()(std::uint64_t Request::*member) const {
    if (request.*member != 0) object.number(name, request.*member);
    return request.*member != 0;
  }
  bool operator()(std::chrono::seconds Request::*member) const {
    const auto count = static_cast<std::uint64_t>((request.*member).count());
    if (count != 0) object.number(name, count);
    return count != 0;
  }
  bool operator()(Texts Request::*member) const {
    if (!(request.*member).empty()) object.texts(name, request.*member);
    return !(request.*member).empty();
  }
  bool operator()(PolicyDocuments Request::*member) const {
    const Texts& documents = (request.*member).documents;
    if (!documents.empty()) object.documents(name, documents);
    return !documents.empty();
  }
  bool operator()(MountEntries Request::*member) const {
    Texts documents;
    for (const MountEntrySpec& spec : (request.*member).specs) documents.push_back(document_of(spec));
    if (!documents.empty()) object.documents(name, documents);
    return !documents.empty();
  }
};

// One text for each value; none that is empty.
struct WriteToQuery {
  const Request& request;
  Texts operator()(std::string Request::*member) const {
    return (request.*member).empty() ? Texts() : Texts{request.*member};
  }
  Texts operator()(bool Request::*member) const { return request.*member ? Texts{"true"} : Texts(); }
  Texts operator()(std::chrono::seconds Request::*member) const {
    const auto count = (request.*member).count();
    return count == 0 ? Texts() : Texts{std::to_string(count)};
  }
  Texts operator()(Texts Request::*member) const { return request.*member; }
  template <typename Other>
  Texts operator()(Other Request::*) const {
    return {};  // no such field says what is committed
  }
};

std::string name_in_query(const Field& field) {
  return std::string(field.document.find('.') == std::string_view::npos ? field.document : field.name);
}

// "trigger.id" is {trigger, id}, "branch" is {"", branch}.
std::pair<std::string, std::string> place_of(const Field& field) {
  const std::size_t dot = field.document.find('.');
  if (dot == std::string_view::npos) return {"", std::string(field.document)};
  return {std::string(field.document.substr(0, dot)), std::string(field.document.substr(dot + 1))};
}

bool is_of(const Field& field, std::initializer_list<Part> parts) {
  return !field.document.empty() && std::find(parts.begin(), parts.end(), field.part) != parts.end();
}

}  // namespace

const std::vector<SessionRequestField>& session_request_fields() {
  static const std::vector<SessionRequestField> kFields = {
      {.part = Part::commit, .name = "branch", .document = "branch", .member = &Request::branch, .value = "B",
       .help = "The branch to read and commit to (default: the repository's HEAD)"},
      {.part = Part::commit, .name = "path_prefix", .document = "path_prefix", .member = &Request::path_prefix,
       .value = "P", .help = "The directory of the repository that is the root", .check = check_prefix},
      {.part = Part::commit, .name = "committer", .document = "committer", .member = &Request::committer,
       .value = "N", .help = "Who the commit is by: user:NAME, agent:NAME or role:NAME (default: this user)",
       .check = check_principal},
      {.part = Part::asker, .name = "issuer", .document = "issuer", .member = &Request::issuer, .value = "N",
       .help = "Who asked for the session (default: this user)", .check = check_principal},
      {.part = Part::commit, .name = "image", .document = "image", .member = &Request::image, .value = "I",
       .help = "Recorded with the commit: the image the command ran in", .check = check_audit_value},
      {.part = Part::commit, .name = "trigger", .document = "trigger.name", .member = &Request::trigger,
       .value = "NAME", .help = "Recorded with the commit: what started this", .check = check_audit_value},
      {.part = Part::commit, .name = "trigger_id", .document = "trigger.id", .member = &Request::trigger_id,
       .value = "ID", .help = "Recorded with the commit: which one of them", .check = check_audit_value},
      {.part = Part::commit, .name = "message", .document = "message", .member = &Request::message,
       .most = kMaxMessage_bytes},
      {.part = Part::commit, .name = "require_approval", .document = "require_approval",
       .member = &Request::require_approval,
       .help = "Commit nothing: seal the result for `escrow approve` (a rule of the branch can ask for it too)"},
      {.part = Part::commit, .name = "approval_expires", .document = "approval_expires_s",
       .member = &Request::approval_expires, .value = "TIME",
       .help = "Roll a result back that nobody approved in this time: 12h, 7d (default: never)",
       .most = kMaxApproval_s},
      {.part = Part::commit, .name = "exclude", .document = "exclude", .member = &Request::excludes, .value = "GLOB",
       .help = "Leave what matches out of the commit (as a line of .gitignore; may be repeated)",
       .check = check_exclude},
      {.part = Part::commit, .name = "include_ignored", .document = "include_ignored",
       .member = &Request::include_ignored,
       .help = "Commit what git ignores, too (.gitignore and info/exclude; a rule escrow.ignore=none does it for all)"},
      {.part = Part::view, .name = "uid", .document = "uid", .member = &Request::uid, .value = "UINT",
       .help = "Owner of what the repository holds (default: this user)", .most = kMaxId},
      {.part = Part::view, .name = "gid", .document = "gid", .member = &Request::gid, .value = "UINT",
       .help = "Group of what the repository holds (default: this group)", .most = kMaxId},
      {.part = Part::view, .name = "umask", .document = "umask", .member = &Request::umask, .value = "OCTAL",
       .help = "Applied to the modes of what the repository holds", .check = check_umask},
      {.part = Part::view, .name = "read_only", .document = "read_only", .member = &Request::read_only,
       .help = "Every change fails with EROFS"},
      {.part = Part::view, .name = "isolation", .document = "isolation", .member = &Request::isolation,
       .help = "serializable: what was read, listed or not found must not have changed by the commit, either",
       .choices = {"snapshot", "serializable"}},
      {.part = Part::view, .name = "symlinks", .document = "symlinks", .member = &Request::symlinks,
       .help = "contained: a link that leads out of the mount cannot be read (EACCES); any (default, not with "
               "--confine, nor in a container)",
       .choices = {"any", "contained"}},
      {.part = Part::view, .name = "git", .document = "git", .member = &Request::git,
       .choices = {"off", "squash", "keep"}},
      {.part = Part::view, .name = "lfs", .document = "lfs", .member = &Request::lfs,
       .help = "on: the files of Git LFS (default); off: the pointers to them", .choices = {"on", "off"}},
      {.part = Part::view, .name = "policy", .document = "policy", .member = &Request::policies, .value = "FILE",
       .help = "Refuse what the policy in FILE does not allow (may be repeated: each can only narrow)"},
      {.part = Part::view, .name = "mount", .document = "mounts", .member = &Request::mounts, .value = "ENTRY",
       .help = "Show something beside the repository (may be repeated):\n"
               "path=P,source=host:DIR[,mode=read-write|overlay] or path=P,source=scratch"},
      {.part = Part::view, .name = "inject", .document = "", .member = &Request::mounts, .value = "PATH=FROM",
       .help = "Show a copy of a directory or file as it is now (may be repeated); with ,mode=overlay it can\n"
               "be written to, for this session"},
      {.part = Part::view, .name = "cache", .document = "", .member = &Request::mounts, .value = "PATH[=NAME]",
       .help = "Show at PATH what the last committed session left there, and keep what this one makes of it\n"
               "when it is committed (may be repeated): object files, node_modules, compiler caches"},
      {.part = Part::view, .name = "mount_table", .document = "", .member = &Request::mounts, .value = "FILE",
       .help = "Show what FILE lists, an array of entries in JSON as the API has them (may be repeated)"},
      {.part = Part::asker, .name = "mount_rights", .document = "mount_rights", .member = &Request::mount_rights},
      {.part = Part::view, .name = "keep_on_failure", .document = "keep_on_failure",
       .member = &Request::keep_on_failure},
      {.part = Part::view, .name = "limit_staged_bytes", .document = "limits.staged_bytes",
       .member = &Request::limit_staged_bytes, .value = "N",
       .help = "Refuse with EDQUOT what would stage more bytes than this", .most = kMaxLimit},
      {.part = Part::view, .name = "limit_files", .document = "limits.files", .member = &Request::limit_files,
       .value = "N", .help = "Refuse with EDQUOT to make more files and directories than this", .most = kMaxLimit},
      {.part = Part::mount, .name = "opens", .document = "io.opens", .member = &Request::opens,
       .help = "Whether each open(2) sends a message: none is faster", .choices = {"auto", "none", "daemon"}},
      {.part = Part::mount, .name = "io", .document = "io.data", .member = &Request::io,
       .help = "How bytes travel: by the page cache, written through or back, or past it to the staging files (root)",
       .choices = {"auto", "cached", "writeback", "passthrough"}},
      {.part = Part::mount, .name = "io_uring", .document = "io.io_uring", .member = &Request::io_uring,
       .help = "auto: FUSE over io_uring where `escrow doctor` says it can be had; off: never",
       .choices = {"auto", "off"}, .variable = "ESCROW_IO_URING"},
      {.part = Part::mount, .name = "xattr", .document = "xattr", .member = &Request::xattr,
       .help = "off, or user: extended attributes user.*, at a message per write(2)", .choices = {"off", "user"}},
  };
  return kFields;
}

std::string option_name(const SessionRequestField& field) {
  std::string name = "--" + std::string(field.name);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

void set_request_field(SessionRequest& request, const SessionRequestField& field, std::string_view text,
                       const std::string& what) {
  std::visit(SetFromText{request, field, std::string(text), what}, field.member);
}

bool set_request_field(SessionRequest& request, std::string_view name, std::string_view text, std::string_view what) {
  for (const Field& field : session_request_fields()) {
    if (field.name != name) continue;
    set_request_field(request, field, text, std::string(what) + " " + std::string(name));
    return true;
  }
  return false;
}

void read_session_request(RequestFields& fields, SessionRequest& request, std::initializer_list<RequestPart> parts) {
  std::map<std::string, std::optional<RequestFields>> groups;
  for (const Field& field : session_request_fields()) {
    if (!is_of(field, parts)) continue;
    const auto [group, name] = place_of(field);
    RequestFields* holder = &fields;
    if (!group.empty()) {
      auto found = groups.find(group);
      if (found == groups.end()) found = groups.emplace(group, fields.object(group)).first;
      if (!found->second) continue;
      holder = &*found->second;
    }
    std::visit(ReadFromJson{*holder, name, request, field}, field.member);
  }
  for (const auto& [name, group] : groups) {
    if (group) group->refuse_others();
  }
}

void write_session_request(api::JsonObject& object, const SessionRequest& request,
                           std::initializer_list<RequestPart> parts) {
  std::map<std::string, api::JsonObject> groups;
  for (const Field& field : session_request_fields()) {
    if (!is_of(field, parts)) continue;
    const auto [group, name] = place_of(field);
    if (group.empty()) {
      std::visit(WriteToJson{object, name, request}, field.member);
      continue;
    }
    api::JsonObject written;
    api::JsonObject& holder = groups.contains(group) ? groups[group] : written;
    if (std::visit(WriteToJson{holder, name, request}, field.member) && &holder == &written)
      groups[group] = std::move(written);
  }
  for (auto& [name, group] : groups) object.object(name, std::move(group));
}

std::vector<std::pair<std::string, std::string>> query_of(const SessionRequest& request) {
  std::vector<std::pair<std::string, std::string>> query;
  for (const Field& field : session_request_fields()) {
    if (field.part != Part::commit) continue;
    for (std::string& text : std::visit(WriteToQuery{request}, field.member))
      query.emplace_back(name_in_query(field), std::move(text));
  }
  return query;
}

void read_session_request(api::Query& query, SessionRequest& request) {
  for (const Field& field : session_request_fields()) {
    if (field.part != Part::commit) continue;
    const std::string name = name_in_query(field);
    Texts texts;
    if (std::holds_alternative<Texts Request::*>(field.member)) {
      texts = query.take_all(name);
    } else if (std::optional<std::string> text = query.take(name); text && !text->empty()) {
      texts.push_back(*std::move(text));
    }
    try {
      if (texts.size() > kMaxTexts)
        throw Error(Errc::bad_request, '"' + name + "\" is there more than " + std::to_string(kMaxTexts) + " times");
      for (const std::string& text : texts) set_request_field(request, field, text, '"' + name + '"');
    } catch (const Error& error) {
      throw api::Problem(api::ProblemCode::invalid_value, error.what(), {{"field", name}});
    }
  }
}

std::string mount_options_of(const SessionRequest& request) {
  static const SessionRequest kUsual;
  std::string options;
  for (const Field& field : session_request_fields()) {
    const auto* member = std::get_if<std::string Request::*>(&field.member);
    if (field.part != Part::mount || member == nullptr || request.**member == kUsual.**member) continue;
    options += (options.empty() ? "" : ",") + std::string(field.name) + "=" + request.**member;
  }
  return options;
}

std::uint32_t parse_umask(const std::string& text, std::string_view what) {
  const bool is_octal = !text.empty() && text.size() <= 4 && text.find_first_not_of("01234567") == std::string::npos;
  const unsigned long value = is_octal ? std::stoul(text, nullptr, 8) : 01000;
  if (value > 0777)
    throw Error(Errc::bad_request, std::string(what) + " '" + text + "' is not an octal number between 0 and 0777");
  return static_cast<std::uint32_t>(value);
}

session::SessionOptions session_options(const SessionRequest& request, const session::ReferenceStore& references,
                                        const std::string& source) {
  session::SessionOptions options;
  options.branch = request.branch.empty() ? references.default_branch() : request.branch;
  references.check_target(options.branch);
  options.prefix = session::parse_path_prefix(request.path_prefix, "--path-prefix");
  options.audit = {.committer = request.committer.empty() ? current_principal() : request.committer,
                   .issuer = request.issuer.empty() ? current_principal() : request.issuer,
                   .source = source,
                   .image = request.image,
                   .trigger = request.trigger,
                   .trigger_id = request.trigger_id};
  options.uid = request.uid.value_or(::getuid());
  options.gid = request.gid.value_or(::getgid());
  options.umask = parse_umask(request.umask, "--umask");
  options.read_only = request.read_only;
  options.keep_on_failure = request.keep_on_failure;
  options.excludes = request.excludes;
  options.include_ignored = request.include_ignored;
  options.policies = request.policies.documents;
  options.shows_lfs_pointers = request.lfs == "off";
  options.contained_symlinks = request.symlinks == "contained";
  options.require_approval = request.require_approval;
  options.approval_expires_s = request.approval_expires.count();
  options.isolation = *session::isolation_from_name(request.isolation);
  options.limits = {.staged_bytes = request.limit_staged_bytes, .files = request.limit_files};
  return options;
}

std::vector<std::string> parse_python_path(const std::vector<std::string>& paths, std::string_view what) {
  std::vector<std::string> parsed;
  for (const std::string& path : paths) {
    if (path.find(':') != std::string::npos)
      throw Error(Errc::bad_request, std::string(what) + " has '" + session::quote_path(path) +
                                         "' with a colon, which separates directories; give each by itself");
    parsed.push_back(session::RepoPath::parse(path, what).text());
  }
  return parsed;
}

}  // namespace escrow::daemon
