#include "session/transaction/commit_message.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "session/base/error.h"

namespace escrow::session {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\v' || c == '\f' || c == '\r'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// trailer.c, find_patch_start(): a line of "---" and a space ends the message. wt-status.c, wt_status_locate_end():
// so does the scissors line after any comment character.
bool ends_the_message_for_git(std::string_view line) {
  constexpr std::string_view kScissors = " ------------------------ >8 ------------------------";
  if (line.starts_with("---") && (line.size() == 3 || is_blank(line[3]))) return true;
  return line.size() > 1 && line.substr(1) == kScissors;
}

std::string body_of(std::string_view message) {
  std::string body;
  message = trimmed(message);
  while (!message.empty()) {
    const std::size_t end = message.find('\n');
    std::string_view line = message.substr(0, end);
    message.remove_prefix(end == std::string_view::npos ? message.size() : end + 1);
    while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
    if (ends_the_message_for_git(line)) body += ' ';
    body.append(line);
    body += '\n';
  }
  return body;
}

constexpr std::size_t kLongestSubject_bytes = 72;

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// How many bytes the character at text[at] has; 0: it is none of UTF-8, or a control character of ISO 6429.
std::size_t character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(at);
  if (first < 0x80) return is_control(text[at]) ? 0 : 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  const unsigned second = byte(at + 1);
  const bool is_odd = (first == 0xc2 && second < 0xa0) || (first == 0xe0 && second < 0xa0) ||
                      (first == 0xed && second >= 0xa0) || (first == 0xf0 && second < 0x90) ||
                      (first == 0xf4 && second >= 0x90);
  return is_odd ? 0 : size;
}

// "run: make -j4", in one line that every terminal can show.
std::string subject_of(const std::vector<std::string>& command) {
  std::string subject = "run:";
  for (const std::string& word : command) {
    const bool is_plain = !word.empty() && word.find_first_of(" \t\n\r'\"") == std::string::npos;
    std::string shown;
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t size = character_at(word, at);
      shown += size == 0 ? std::string(1, is_control(word[at]) ? ' ' : '?') : word.substr(at, size);
      at += std::max<std::size_t>(size, 1);
    }
    subject += is_plain ? ' ' + shown : " '" + shown + '\'';
    if (subject.size() > kLongestSubject_bytes) break;
  }
  if (subject.size() <= kLongestSubject_bytes) return subject;
  std::size_t end = kLongestSubject_bytes - 3;
  while (end > 0 && (static_cast<unsigned char>(subject[end]) & 0xc0) == 0x80) --end;  // not within a character
  return subject.substr(0, end) + "...";
}

std::string default_text(const SessionRecord& record, const ChangeCounts& counts) {
  const std::vector<std::string>& command = record.options.command;
  const std::string subject = command.empty() ? std::string() : subject_of(command) + "\n\n";
  return subject + std::to_string(counts.added) + " added, " + std::to_string(counts.modified) + " modified, " +
         std::to_string(counts.deleted) + " deleted in session " + record.id.text() + "\n";
}

std::string percent_encoded(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || c == '.' || c == '_' || c == '-' || c == '+') {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kHex[byte >> 4];
      encoded += kHex[byte & 15];
    }
  }
  return encoded;
}

// ident.c, crud(): git drops these from the ends of a name, and refuses a name that is nothing else.
bool is_crud(char c) {
  return static_cast<unsigned char>(c) <= 32 || std::string_view(".,:;<>\"\\'").find(c) != std::string_view::npos;
}

std::string person_name(std::string_view name) {
  while (!name.empty() && is_crud(name.front())) name.remove_prefix(1);
  while (!name.empty() && is_crud(name.back())) name.remove_suffix(1);
  std::string person;
  for (const char c : name)
    if (c != '<' && c != '>' && !is_control(c)) person += c;
  return person;
}

}  // namespace

void check_commit_message(std::string_view message) {
  for (std::size_t i = 0; i < message.size(); ++i) {
    const auto byte = static_cast<unsigned char>(message[i]);
    if (byte == '\n' || byte == '\t' || (byte >= 0x20 && byte != 0x7f)) continue;
    if (byte == '\r' && i + 1 < message.size() && message[i + 1] == '\n') continue;
    throw Error(Errc::bad_request, "the commit message holds the control character " + std::to_string(byte) +
                                       " at byte " + std::to_string(i) + "; remove it");
  }
}

std::string compose_commit_message(const SessionRecord& record, const ChangeCounts& counts) {
  check_commit_message(record.message);
  std::string text = body_of(record.message);
  if (text.empty()) text = default_text(record, counts);
  text += '\n';
  const auto add = [&text](std::string_view key, std::string_view value) {
    value = trimmed(value);
    if (!value.empty()) text.append(key).append(": ").append(value) += '\n';
  };
  const Audit& audit = record.options.audit;
  add("Escrow-Session", record.id.text());
  add("Escrow-Committer", audit.committer);
  add("Escrow-Issuer", audit.issuer);
  add("Escrow-Image", audit.image);
  add("Escrow-Source", audit.source);
  add("Escrow-Trigger", audit.trigger);
  add("Escrow-Trigger-Id", audit.trigger_id);
  if (record.exit_code) add("Escrow-Exit-Code", std::to_string(*record.exit_code));
  if (record.base) add("Escrow-Base", record.base->hex());
  add("Escrow-Reads", record.reads);
  add("Escrow-Reviewer", record.reviewer);
  add("Escrow-Review-Comment", record.review_comment);
  return text;
}

Signature signature_of(std::string_view principal, Timestamp now) {
  const std::size_t colon = principal.find(':');
  const std::string_view kind = colon == std::string_view::npos ? "user" : principal.substr(0, colon);
  const std::string_view name = colon == std::string_view::npos ? principal : principal.substr(colon + 1);
  Signature signature;
  signature.name = person_name(name);
  if (signature.name.empty()) signature.name = std::string(kind);
  signature.email = percent_encoded(name.empty() ? "nobody" : name) + "@" + percent_encoded(kind) + ".escrow.invalid";
  signature.time_s = now.seconds;
  return signature;
}

Signature signature_of(const Audit& audit, Timestamp now) {
  Signature signature = signature_of(audit.committer, now);
  std::string name = person_name(audit.author_name), email = person_name(audit.author_email);
  if (name.empty() || email.empty()) return signature;
  signature.name = std::move(name);
  signature.email = std::move(email);
  return signature;
}

}  // namespace escrow::session
