// Objects read straight from packs: what git wrote, byte for byte, and an error for each kind of damage.
#include "storage/objects/packed_objects.h"

#include <atomic>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "tests/storage/crafted_pack.h"
#include "tests/storage/git_test_repository.h"
#include "tests/support/seed.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::ObjectId;

using Contents = std::map<ObjectId, std::pair<std::string, std::string>>;  // type and content

// Files of which many are alike, in `directories`, in `commits` commits: git makes deltas of them.
void fill(const GitTestRepository& repository, int files, int commits, int directories, std::uint32_t seed) {
  std::mt19937 random(seed);
  const std::string stream = repository.scratch("stream");
  std::ofstream out(stream, std::ios::binary);
  std::vector<std::string> lines;
  for (int i = 0; i < 400; ++i) lines.push_back(noise(9 + random() % 40, static_cast<std::uint32_t>(random())) + "\n");
  for (int commit = 0; commit < commits; ++commit) {
    out << "commit refs/heads/main\ncommitter t <t@x> " << 1700000000 + commit << " +0000\ndata 1\nc\n";
    for (int file = 0; file < files / commits; ++file) {
      std::string content;
      const std::size_t first = random() % 300, count = random() % 100;
      for (std::size_t line = first; line < first + count; ++line) content += lines[line];
      if (random() % 4 == 0) content += noise(random() % 3000, static_cast<std::uint32_t>(random()));
      const int number = commit % 3 == 0 ? file : file + commit * files;
      out << "M 100644 inline d" << number % directories << "/f" << number << "\ndata " << content.size() << "\n"
          << content << "\n";
    }
  }
  out << "done\n";
  out.close();
  run("git -C " + repository.path + " -c fastimport.unpackLimit=0 fast-import --quiet --done < " + stream);
}

Contents what_git_says(const GitTestRepository& repository) {
  const std::string file = repository.scratch("batch");
  run("git -C " + repository.path + " cat-file --batch-all-objects --batch > " + file);
  std::ifstream in(file, std::ios::binary);
  Contents contents;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string hex, type;
    std::size_t size = 0;
    words >> hex >> type >> size;
    std::string content(size, '\0');
    in.read(content.data(), static_cast<std::streamsize>(size));
    in.get();
    contents[*ObjectId::from_hex(hex)] = {type, std::move(content)};
  }
  return contents;
}

void expect_same(const PackedObjects& packed, const Contents& expected) {
  for (const auto& [id, object] : expected) {
    const auto header = packed.header(id);
    ASSERT_TRUE(header) << id.hex();
    ASSERT_EQ(name_of(header->first), object.first) << id.hex();
    ASSERT_EQ(header->second, object.second.size()) << id.hex();
    const auto read = packed.read(id);
    ASSERT_TRUE(read) << id.hex();
    ASSERT_EQ(read->type, header->first);
    ASSERT_TRUE(read->content == object.second) << id.hex();
    ASSERT_TRUE(packed.contains(id));
  }
}

std::string only_pack(const GitTestRepository& repository) {
  std::vector<std::string> stems;
  for (const auto& entry : fs::directory_iterator(repository.path + "/objects/pack")) {
    if (entry.path().extension() == ".idx") stems.push_back(entry.path().parent_path() / entry.path().stem());
  }
  EXPECT_EQ(stems.size(), 1u);
  return stems.at(0);
}

TEST(PackedObjects, AreWhatGitSaysHoweverThePackWasMade) {
  GitTestRepository repository;
  const auto files = static_cast<int>(support::gate_or_campaign(900, 3000));
  fill(repository, files, 30, 20, 1);
  const Contents expected = what_git_says(repository);
  ASSERT_GT(expected.size(), static_cast<std::size_t>(files));
  for (const char* command : {"repack -q -a -d -f --depth=50 --window=20",
                              "-c repack.useDeltaBaseOffset=false repack -q -a -d -f",
                              "-c pack.compression=0 repack -q -a -d -F",
                              "repack -q -a -d -f --depth=4095 --window=50",
                              "repack -q -a -d -f --window=0"}) {
    repository.git(command);
    const ObjectDirectory directory(repository.path + "/objects");
    expect_same(PackedObjects(directory), expected);
  }
  // Offsets of eight bytes.
  repository.git("repack -q -a -d -f");
  const std::string stem = only_pack(repository);
  run("rm -f " + stem + ".idx " + stem + ".rev && git index-pack --index-version=2,0x100 " + stem + ".pack");
  const ObjectDirectory directory(repository.path + "/objects");
  expect_same(PackedObjects(directory), expected);
}

TEST(PackedObjects, AreFoundInAnIndexThatIsTooLargeForMemory) {
  GitTestRepository repository;
  const std::string stream = repository.scratch("stream");
  {
    std::ofstream out(stream);
    for (int i = 0; i < 20'000; ++i) {
      const std::string content = "blob " + std::to_string(i);
      out << "blob\ndata " << content.size() << "\n" << content << "\n";
    }
    out << "done\n";
  }
  run("git -C " + repository.path + " -c fastimport.unpackLimit=0 fast-import --quiet --done < " + stream);
  const ObjectDirectory directory(repository.path + "/objects");
  const PackedObjects packed(directory);
  for (int i = 0; i < 20'000; ++i) {
    const std::string content = "blob " + std::to_string(i);
    const auto read = packed.read(hash_object(ObjectType::blob, content));
    ASSERT_TRUE(read) << i;
    ASSERT_EQ(read->content, content);
    ASSERT_FALSE(packed.contains(hash_object(ObjectType::tree, content)));
  }
}

// Ids that others have chosen, as far as that can be: the bytes that say where an id stands say nothing.
TEST(PackedObjects, AreFoundAmongIdsThatAreNotSpread) {
  support::TemporaryDirectory directory;
  const std::uint32_t count = 30'000;
  std::string index = "\377tOc" + big_endian_text(2, 4);
  for (int first = 0; first < 256; ++first) index += big_endian_text(first >= 0xab ? count : 0, 4);
  const auto id_of = [](std::uint64_t number) {
    return std::string("\xab\xff\xff\xff\xff", 5) + std::string(7, '\0') + big_endian_text(number, 8);
  };
  for (std::uint32_t i = 0; i < count; ++i) index += id_of(std::uint64_t{i} * i * 2);
  index += std::string(count * 4, 'c');
  for (std::uint32_t i = 0; i < count; ++i) index += big_endian_text(i + 1, 4);
  std::ofstream(directory.path() + "/x.idx", std::ios::binary) << index << std::string(40, 't');
  const PackIndex read(directory.path() + "/x.idx");
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto at = read.find(ObjectId::from_raw(id_of(std::uint64_t{i} * i * 2).data()));
    ASSERT_EQ(at, i);
    ASSERT_EQ(read.offset_at(*at), i + 1);
    ASSERT_FALSE(read.find(ObjectId::from_raw(id_of(std::uint64_t{i} * i * 2 + 1).data())));
  }
}

TEST(PackedObjects, LooseObjectsAndPacksOfAnotherKindAreLeftToLibgit2) {
  GitTestRepository repository;
  fill(repository, 50, 1, 3, 2);
  const Contents expected = what_git_says(repository);
  const std::string stem = only_pack(repository);
  run("rm -f " + stem + ".idx " + stem + ".rev && git index-pack --index-version=1 " + stem + ".pack");
  const ObjectDirectory directory(repository.path + "/objects");
  const PackedObjects packed(directory);
  for (const auto& [id, object] : expected) {
    EXPECT_FALSE(packed.header(id));
    EXPECT_FALSE(packed.read(id));
    EXPECT_EQ(repository.store->read_object(id).content, object.second);
    EXPECT_EQ(repository.store->header(id).second, object.second.size());
  }
}

TEST(PackedObjects, OneThatIsLargerThanAskedForIsLeftToOthers) {
  GitTestRepository repository;
  CraftedPack pack;
  const std::string content(5000, 'x');
  const ObjectId whole = pack.add(content);
  const ObjectId delta = pack.add_delta(content + content, whole, delta_size(5000) + delta_size(10000) +
                                                                      "\xb0\x88\x13\xb0\x88\x13");
  pack.write(repository.path + "/objects/pack/pack-x");
  const ObjectDirectory directory(repository.path + "/objects");
  const PackedObjects packed(directory);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(packed.read(whole, 5000)->content, content);
    EXPECT_EQ(packed.read(delta, 10000)->content, content + content);
    EXPECT_FALSE(packed.read(whole, 4999));
    EXPECT_FALSE(packed.read(delta, 9999));
    EXPECT_EQ(packed.header(delta)->second, 10000u);
  }
}

TEST(PackedObjects, EachKindOfDamageIsAnErrorOfThatObject) {
  const std::string text = "what the file holds";
  const std::string base_text = "the base of a delta";
  const std::string copy_base = delta_size(base_text.size()) + delta_size(base_text.size()) + "\x90\x13";
  const auto entry = [](ObjectType type, std::uint64_t size, const std::string& content) {
    return encode_entry_header(type, size) + deflated(content);
  };
  using Craft = std::function<ObjectId(CraftedPack&)>;
  const std::pair<const char*, Craft> kinds[] = {
      {"another object's content", [&](CraftedPack& pack) {
         return pack.add_as(text, entry(ObjectType::blob, 5, "other")); }},
      {"the content as another type", [&](CraftedPack& pack) {
         return pack.add_as(text, entry(ObjectType::commit, text.size(), text)); }},
      {"a type that does not exist", [&](CraftedPack& pack) {
         return pack.add_as(text, entry(static_cast<ObjectType>(5), text.size(), text)); }},
      {"fewer bytes than it says", [&](CraftedPack& pack) {
         return pack.add_as(text, entry(ObjectType::blob, text.size() + 1, text)); }},
      {"more bytes than it says", [&](CraftedPack& pack) {
         return pack.add_as(text, entry(ObjectType::blob, text.size() - 1, text)); }},
      {"2^59 bytes", [&](CraftedPack& pack) {
         return pack.add_as(text, entry(ObjectType::blob, std::uint64_t{1} << 59, text)); }},
      {"2^60 bytes", [&](CraftedPack& pack) {
         return pack.add_as(text, entry(ObjectType::blob, std::uint64_t{1} << 60, text)); }},
      {"a delta of 2^59 bytes", [&](CraftedPack& pack) {
         const ObjectId base = pack.add(base_text);
         return pack.add_as(text, encode_entry_header(ObjectType::reference_delta, std::uint64_t{1} << 59) +
                                      std::string(reinterpret_cast<const char*>(base.bytes().data()), 20) +
                                      deflated(copy_base)); }},
      {"a delta that makes 2^60 bytes", [&](CraftedPack& pack) {
         return pack.add_delta(text, pack.add(base_text), delta_size(base_text.size()) +
                                                              delta_size(std::uint64_t{1} << 60) + "\x90\x13"); }},
      {"a delta that says it makes 2^24 bytes", [&](CraftedPack& pack) {
         return pack.add_delta(text, pack.add(base_text), delta_size(base_text.size()) +
                                                              delta_size(std::uint64_t{1} << 23) + "\x90\x13"); }},
      {"a delta whose size does not end", [&](CraftedPack& pack) {
         return pack.add_delta(text, pack.add(base_text), std::string(30, '\xff')); }},
      {"a delta for another base", [&](CraftedPack& pack) {
         return pack.add_delta(text, pack.add(base_text + "!"), copy_base); }},
      {"a delta that copies from outside", [&](CraftedPack& pack) {
         return pack.add_delta(text, pack.add(base_text), delta_size(base_text.size()) + delta_size(32) +
                                                              "\x91\x10\x10\x90\x10"); }},
      {"a delta with an instruction that does not exist", [&](CraftedPack& pack) {
         return pack.add_delta(text, pack.add(base_text), delta_size(base_text.size()) + delta_size(0) +
                                                              std::string(1, '\0')); }},
      {"a delta that ends within an instruction", [&](CraftedPack& pack) {
         return pack.add_delta(text, pack.add(base_text), delta_size(base_text.size()) + delta_size(19) + "\x13xy"); }},
      {"a delta that makes another object", [&](CraftedPack& pack) {
         return pack.add_delta(text, pack.add(base_text), copy_base); }},
      {"a delta without a base", [&](CraftedPack& pack) {
         return pack.add_delta(text, hash_object(ObjectType::blob, base_text), copy_base); }},
      {"a delta of itself", [&](CraftedPack& pack) {
         return pack.add_delta(text, hash_object(ObjectType::blob, text), copy_base); }},
      {"two deltas of one another", [&](CraftedPack& pack) {
         pack.add_delta(base_text, hash_object(ObjectType::blob, text), copy_base);
         return pack.add_delta(text, hash_object(ObjectType::blob, base_text), copy_base); }},
      {"a base before the pack begins", [&](CraftedPack& pack) {
         return pack.add_as(text, encode_entry_header(ObjectType::offset_delta, copy_base.size()) + "\xff\xff\x7f" +
                                      deflated(copy_base)); }},
      {"a base at no distance", [&](CraftedPack& pack) {
         return pack.add_as(text, encode_entry_header(ObjectType::offset_delta, copy_base.size()) +
                                      std::string(1, '\0') + deflated(copy_base)); }},
      {"a base inside another entry", [&](CraftedPack& pack) {
         pack.add(base_text);
         return pack.add_as(text, encode_entry_header(ObjectType::offset_delta, copy_base.size()) + "\x05" +
                                      deflated(copy_base)); }},
      {"a stream that is not deflated", [&](CraftedPack& pack) {
         return pack.add_as(text, encode_entry_header(ObjectType::blob, text.size()) + std::string(40, 'x')); }},
      {"a stream that is cut off", [&](CraftedPack& pack) {
         return pack.add_as(text, encode_entry_header(ObjectType::blob, text.size()) + deflated(text).substr(0, 9)); }},
      {"a stream with a wrong checksum", [&](CraftedPack& pack) {
         std::string stream = deflated(text);
         stream.back() ^= 1;
         return pack.add_as(text, encode_entry_header(ObjectType::blob, text.size()) + stream); }},
      {"an offset behind the pack", [&](CraftedPack& pack) {
         const ObjectId id = pack.add(text);
         pack.entries.back().offset = 100'000;
         return id; }},
      {"an offset of 2^62", [&](CraftedPack& pack) {
         const ObjectId id = pack.add(text);
         pack.entries.back().offset = std::uint64_t{1} << 62;
         return id; }},
      {"an offset of 2^64 - 1", [&](CraftedPack& pack) {
         const ObjectId id = pack.add(text);
         pack.entries.back().offset = UINT64_MAX;
         return id; }},
      {"an offset in the pack's header", [&](CraftedPack& pack) {
         const ObjectId id = pack.add(text);
         pack.entries.back().offset = 4;
         return id; }},
      {"a wrong trailer", [&](CraftedPack& pack) {
         pack.trailer = std::string(20, 'w');
         return pack.add(text); }},
  };
  for (const auto& [kind, craft] : kinds) {
    SCOPED_TRACE(kind);
    GitTestRepository repository;
    CraftedPack pack;
    const ObjectId id = craft(pack);
    pack.write(repository.path + "/objects/pack/pack-x");
    CraftedPack sound;
    const ObjectId neighbour = sound.add("sound");
    sound.write(repository.path + "/objects/pack/pack-y");
    for (int round = 0; round < 2; ++round) {
      for (const auto& read : {std::function<void()>([&] { repository.store->read_object(id); }),
                               std::function<void()>([&] { repository.store->open_blob(id); })}) {
        const Error error = error_of(read);
        EXPECT_EQ(error.code(), Errc::input_output);
        EXPECT_NE(std::string(error.what()).find(id.hex()), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("pack-x"), std::string::npos) << error.what();
      }
      try {
        repository.store->blob_size(id);  // it is not inflated: not every kind shows
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::input_output) << error.what();
      }
      EXPECT_EQ(repository.store->read_object(neighbour).content, "sound");
    }
    // A sound copy elsewhere is found, though it comes later.
    if (pack.entries.back().id != id) continue;
    CraftedPack copy;
    copy.add(text);
    copy.write(repository.path + "/objects/pack/pack-z");
    EXPECT_EQ(repository.store->read_object(id).content, text);
  }
}

// What is in a file beside the objects' bytes is damaged, too: every byte of a pack and of its index, one at a time.
TEST(PackedObjects, AByteThatIsFlippedGivesTheRightBytesOrAnError) {
  GitTestRepository made;
  fill(made, 6, 2, 1, 3);
  made.git("repack -q -a -d -f");
  const Contents expected = what_git_says(made);
  const std::string stem = only_pack(made);
  support::TemporaryDirectory scratch;
  const std::string objects = scratch.path() + "/objects", copy = objects + "/pack/pack-x";
  fs::create_directories(objects + "/pack");
  int errors = 0, absent = 0;
  const std::uint64_t parts = support::gate_or_campaign(5, 1), first = support::seed_of_this_run() % parts;
  for (const std::string extension : {".pack", ".idx"}) {
    for (const char* part : {".pack", ".idx"}) {
      fs::copy_file(stem + part, copy + part, fs::copy_options::overwrite_existing);
      fs::permissions(copy + part, fs::perms::owner_write, fs::perm_options::add);
    }
    const std::uint64_t size = fs::file_size(copy + extension);
    std::fstream file(copy + extension, std::ios::in | std::ios::out | std::ios::binary);
    for (std::uint64_t at = first; at < size; at += parts) {
      file.seekg(static_cast<std::streamoff>(at));
      const auto was = static_cast<char>(file.get());
      const auto put = [&](char byte) {
        file.seekp(static_cast<std::streamoff>(at));
        file.put(byte);
        file.flush();
      };
      const int mask = at % 3 == 0 ? 0xff : 1 << at % 8;
      put(static_cast<char>(was ^ mask));
      const ObjectDirectory directory(objects);
      const PackedObjects packed(directory);
      for (const auto& [id, object] : expected) {
        try {
          packed.header(id);
          const auto read = packed.read(id);
          absent += read ? 0 : 1;
          ASSERT_TRUE(!read || read->content == object.second) << extension << " " << at << " " << mask;
        } catch (const Error& error) {
          ASSERT_EQ(error.code(), Errc::input_output);
          ++errors;
        }
      }
      put(was);
    }
    const ObjectDirectory directory(objects);
    expect_same(PackedObjects(directory), expected);
  }
  EXPECT_GT(errors, static_cast<int>(500 / parts));
  EXPECT_GT(absent, static_cast<int>(500 / parts));
}

// A mapping would end the process here.
TEST(PackedObjects, APackThatIsCutOffWhileItIsOpenIsAnError) {
  for (const char* extension : {".pack", ".idx"}) {
    GitTestRepository repository;
    fill(repository, 12'000, 1, 20, 4);
    const Contents expected = what_git_says(repository);
    const std::string stem = only_pack(repository);
    ASSERT_GT(fs::file_size(stem + ".idx"), 300'000u);  // it is not kept in memory
    const ObjectDirectory directory(repository.path + "/objects");
    const PackedObjects packed(directory);
    ASSERT_TRUE(packed.read(expected.begin()->first));
    fs::permissions(stem + extension, fs::perms::owner_write, fs::perm_options::add);
    for (const std::uint64_t size : {fs::file_size(stem + extension) / 2, std::uint64_t{5000}, std::uint64_t{0}}) {
      fs::resize_file(stem + extension, size);
      int errors = 0;
      for (const auto& [id, object] : expected) {
        if (id.bytes()[1] % 8 != 0) continue;  // enough of them
        try {
          const auto read = packed.read(id);
          ASSERT_TRUE(read && read->content == object.second);
        } catch (const Error& error) {
          ASSERT_EQ(error.code(), Errc::input_output);
          ++errors;
        }
      }
      EXPECT_GT(errors, 100) << extension << " of " << size << " bytes";
    }
  }
}

// Descriptors and maps of packs, or of those alone that were removed.
std::size_t packs_held(bool removed) {
  const auto counts = [removed](const std::string& line) {
    return line.find("/objects/pack/") != std::string::npos && (!removed || line.ends_with("(deleted)"));
  };
  std::size_t held = 0;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    const std::string target = fs::read_symlink(entry.path(), gone).string();
    held += counts(target) ? 1 : 0;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    held += counts(line) ? 1 : 0;
  }
  return held;
}

TEST(PackedObjects, StayReadableWhileGitRepacksAndCollects) {
  GitTestRepository repository;
  fill(repository, 2000, 10, 20, 5);
  const Contents expected = what_git_says(repository);
  std::vector<ObjectId> ids;
  for (const auto& [id, object] : expected) ids.push_back(id);
  {
    const auto handle = repository.pool->borrow();  // of libgit2's own, which looks at every pack
    git_odb_foreach(handle.odb(), [](const git_oid*, void*) { return 0; }, nullptr);
  }
  std::atomic<bool> is_over = false;
  std::atomic<std::uint64_t> reads = 0;
  std::vector<std::thread> readers;
  for (std::uint32_t seed = 0; seed < 3; ++seed) {
    readers.emplace_back([&, seed] {
      std::mt19937 random(seed);
      while (!is_over || reads < 5000) {
        const ObjectId& id = ids[random() % ids.size()];
        const auto& [type, content] = expected.at(id);
        const auto header = repository.store->header(id);
        const RawObject object = repository.store->read_object(id);
        if (name_of(header.first) != type || header.second != content.size() || object.content != content) {
          ADD_FAILURE() << id.hex();
          return;
        }
        ++reads;
      }
    });
  }
  for (int round = 0; round < 6; ++round) {
    repository.git(round % 2 == 0 ? "repack -q -a -d -f --depth=10 --window=5" : "gc -q --prune=now");
    run("cd " + repository.path + " && git update-ref refs/heads/side $(git commit-tree -p main -m " +
        std::to_string(round) + " main^{tree})");
    repository.git("repack -q -d");
  }
  is_over = true;
  for (auto& reader : readers) reader.join();
  // One read later nothing of what git has removed is held, whoever opened it.
  repository.git("repack -q -a -d -f");
  repository.store->read_object(ids.front());
  EXPECT_EQ(packs_held(true), 0u);
}

TEST(PackedObjects, OfManyPacksTakeFewDescriptors) {
  GitTestRepository repository;
  const ObjectDirectory directory(repository.path + "/objects");
  const PackedObjects packed(directory);
  std::vector<ObjectId> ids;
  for (int i = 0; i < 300; ++i) {
    CraftedPack pack;
    ids.push_back(pack.add("number " + std::to_string(i)));
    for (int more = 0; more < i % 7; ++more) pack.add("more " + std::to_string(i * 7 + more));
    pack.write(repository.path + "/objects/pack/pack-" + std::to_string(i));
  }
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(packed.read(ids[i])->content, "number " + std::to_string(i));
      ASSERT_LE(i % 10 == 0 ? packs_held(false) : 0, ObjectDirectory::kMostOpenPacks);
    }
  }
  EXPECT_GT(packs_held(false), 0u);
}

TEST(PackedObjects, ThatGitAddsAreFoundAtOnce) {
  GitTestRepository repository;
  const ObjectDirectory directory(repository.path + "/objects");
  const PackedObjects packed(directory);
  for (int i = 0; i < 200; ++i) {
    CraftedPack pack;
    const ObjectId id = pack.add("number " + std::to_string(i));
    EXPECT_FALSE(packed.contains(id));
    const std::string stem = repository.path + "/objects/pack/pack-" + std::to_string(i);
    pack.write(stem);
    ASSERT_TRUE(packed.contains(id)) << i;
    if (i % 3 != 0) continue;
    fs::remove(stem + ".idx");
    fs::remove(stem + ".pack");
    ASSERT_FALSE(packed.contains(id)) << i;
  }
}

}  // namespace
}  // namespace escrow::storage
