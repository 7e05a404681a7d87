#include "session/overlay/content_form.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "session/base/error.h"

namespace escrow::session {
namespace {

constexpr std::size_t kNumberBytes = 8;

// A sealed form as the base of another one. Nobody changes its staging file any more.
class SealedSource final : public ByteSource {
 public:
  SealedSource(const ContentForm& form, std::uint64_t size_bytes, const ObjectReader& objects,
               const StagingArea& staging)
      : form_(form), size_(size_bytes), below_(base_source(form, objects, staging)), staging_(staging) {}
  std::uint64_t size() const override { return size_; }
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override {
    return read_form(form_, below_.get(), staging_, size_, offset, out);
  }

 private:
  const ContentForm form_;
  const std::uint64_t size_;
  const std::shared_ptr<const ByteSource> below_;
  const StagingArea& staging_;
};

void append_number(std::string& out, std::uint64_t number) {
  for (std::size_t i = 0; i < kNumberBytes; ++i) out += static_cast<char>(number >> 8 * i & 0xff);
}

std::string_view take(std::string_view& in, std::uint64_t count) {
  if (count > in.size())
    throw Error(Errc::damaged_repository, "the session's journal is damaged: what a file shows of a savepoint is cut "
                                          "short; run `escrow verify`");
  const std::string_view taken = in.substr(0, count);
  in.remove_prefix(count);
  return taken;
}

std::uint64_t take_number(std::string_view& in) {
  const std::string_view bytes = take(in, kNumberBytes);
  std::uint64_t number = 0;
  for (std::size_t i = kNumberBytes; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

}  // namespace

std::size_t ContentForm::depth() const {
  std::size_t depth = 0;
  for (const ContentForm* form = sealed.get(); form != nullptr; form = form->sealed.get()) ++depth;
  return depth;
}

std::vector<StagingId> ContentForm::staging_files() const {
  std::vector<StagingId> files;
  for (const ContentForm* form = this; form != nullptr; form = form->sealed.get())
    if (form->staging) files.push_back(form->staging);
  return files;
}

bool operator==(const ContentForm& one, const ContentForm& other) {
  const bool is_same = one.base == other.base && one.base_length == other.base_length &&
                       one.staging == other.staging && one.map == other.map;
  if (!is_same || one.sealed == other.sealed) return is_same;
  return one.sealed && other.sealed && *one.sealed == *other.sealed;
}

std::size_t read_form(const ContentForm& form, const ByteSource* base, const StagingArea& staging,
                      std::uint64_t size_bytes, std::uint64_t offset, std::span<std::byte> out) {
  if (offset >= size_bytes) return 0;
  const std::size_t wanted = std::min<std::uint64_t>(out.size(), size_bytes - offset);
  std::size_t done = 0;
  while (done < wanted) {
    const std::uint64_t at = offset + done;
    const std::uint64_t block = at / BlockMap::kBlockSize;
    const bool shows_base = form.has_base() && at < form.base_length && !(form.staging && form.map.holds(block));
    std::uint64_t end = std::min<std::uint64_t>(offset + wanted, (block + 1) * BlockMap::kBlockSize);
    if (shows_base) end = std::min(end, form.base_length);
    const auto part = out.subspan(done, end - at);
    std::size_t got = 0;
    if (shows_base) {
      got = base->read(at, part);
      if (got < part.size() && !form.sealed)
        throw Error(Errc::input_output, "a blob is shorter than its recorded size");
    } else if (form.staging) {
      got = staging.read(form.staging, at, part);
    }
    std::memset(part.data() + got, 0, part.size() - got);
    done += part.size();
  }
  return wanted;
}

std::shared_ptr<const ByteSource> base_source(const ContentForm& form, const ObjectReader& objects,
                                              const StagingArea& staging) {
  if (!form.base.is_null()) return objects.open_blob(form.base);
  if (!form.sealed) return nullptr;
  return std::make_shared<SealedSource>(*form.sealed, form.base_length, objects, staging);
}

std::string encode_sealed(const ContentForm& form) {
  std::string encoded;
  for (const ContentForm* one = form.sealed.get(); one != nullptr; one = one->sealed.get()) {
    append_number(encoded, one->staging.value);
    append_number(encoded, one->base_length);
    encoded.append(reinterpret_cast<const char*>(one->base.bytes().data()), ObjectId::kSize);
    append_number(encoded, one->map.bytes().size());
    encoded += one->map.bytes();
  }
  return encoded;
}

std::shared_ptr<const ContentForm> decode_sealed(std::string_view bytes) {
  if (bytes.empty()) return nullptr;
  auto form = std::make_shared<ContentForm>();
  form->staging = StagingId{take_number(bytes)};
  form->base_length = take_number(bytes);
  form->base = ObjectId::from_raw(take(bytes, ObjectId::kSize).data());
  const std::string_view map = take(bytes, take_number(bytes));
  form->sealed = decode_sealed(bytes);
  if (form->has_base()) form->map = BlockMap(BlockMap::blocks_of(form->base_length), map);
  return form;
}

}  // namespace escrow::session
