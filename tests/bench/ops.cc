// The tight loops of the benchmark: each does one kind of operation many times and prints the seconds it took, without
// the start of the process.
//
//   bench_ops open-read-close FILE COUNT
//   bench_ops create DIRECTORY COUNT BYTES [PIECE] in sub-directories of 1000; written by pieces of so many bytes
//   bench_ops write-sequential FILE BYTES          1 MiB each, then fsync
//   bench_ops read-sequential FILE                 1 MiB each
//   bench_ops write-random FILE COUNT              4 KiB each, inside the existing file, then fsync
//   bench_ops read-random FILE COUNT               4 KiB each
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kBlockBytes = 1 << 20;
constexpr std::size_t kPageBytes = 4096;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

class File {
 public:
  File(const std::string& path, int flags) : path_(path), descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) fail("open " + path);
  }
  ~File() { ::close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::size_t read_some(std::vector<char>& buffer) {
    const ssize_t count = ::read(descriptor_, buffer.data(), buffer.size());
    if (count < 0) fail("read " + path_);
    return static_cast<std::size_t>(count);
  }
  void write_all(const std::vector<char>& buffer) {
    if (::write(descriptor_, buffer.data(), buffer.size()) != static_cast<ssize_t>(buffer.size())) {
      fail("write " + path_);
    }
  }
  void read_at(std::vector<char>& buffer, std::uint64_t offset) {
    if (::pread(descriptor_, buffer.data(), buffer.size(), static_cast<off_t>(offset)) !=
        static_cast<ssize_t>(buffer.size())) {
      fail("pread " + path_);
    }
  }
  void write_at(const std::vector<char>& buffer, std::uint64_t offset) {
    if (::pwrite(descriptor_, buffer.data(), buffer.size(), static_cast<off_t>(offset)) !=
        static_cast<ssize_t>(buffer.size())) {
      fail("pwrite " + path_);
    }
  }
  void sync() {
    if (::fsync(descriptor_) != 0) fail("fsync " + path_);
  }
  std::uint64_t size() {
    struct stat status;
    if (::fstat(descriptor_, &status) != 0) fail("fstat " + path_);
    return static_cast<std::uint64_t>(status.st_size);
  }

 private:
  std::string path_;
  int descriptor_;
};

std::vector<char> random_bytes(std::size_t count) {
  std::mt19937_64 generator(count);
  std::vector<char> bytes(count);
  for (char& byte : bytes) byte = static_cast<char>(generator());
  return bytes;
}

void open_read_close(const std::string& path, std::uint64_t count) {
  std::vector<char> buffer(kPageBytes);
  for (std::uint64_t i = 0; i < count; ++i) File(path, O_RDONLY).read_some(buffer);
}

void create(const std::string& directory, std::uint64_t count, std::uint64_t bytes, std::uint64_t piece) {
  const std::vector<char> content = random_bytes(piece);
  std::string folder;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i % 1000 == 0) {
      folder = directory + "/" + std::to_string(i / 1000);
      if (::mkdir(folder.c_str(), 0755) != 0) fail("mkdir " + folder);
    }
    File file(folder + "/" + std::to_string(i), O_WRONLY | O_CREAT | O_EXCL);
    for (std::uint64_t written = 0; written < bytes; written += piece) file.write_all(content);
  }
}

void write_sequential(const std::string& path, std::uint64_t bytes) {
  const std::vector<char> block = random_bytes(kBlockBytes);
  File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  for (std::uint64_t done = 0; done < bytes; done += kBlockBytes) file.write_all(block);
  file.sync();
}

void read_sequential(const std::string& path) {
  std::vector<char> block(kBlockBytes);
  File file(path, O_RDONLY);
  while (file.read_some(block) != 0) {
  }
}

template <typename Operation>
void at_random_pages(File& file, std::uint64_t count, Operation operation) {
  const std::uint64_t pages = file.size() / kPageBytes;
  if (pages == 0) throw std::runtime_error("the file is smaller than a page");
  std::mt19937_64 generator(1);
  for (std::uint64_t i = 0; i < count; ++i) operation(generator() % pages * kPageBytes);
}

void write_random(const std::string& path, std::uint64_t count) {
  const std::vector<char> page = random_bytes(kPageBytes);
  File file(path, O_RDWR);
  at_random_pages(file, count, [&](std::uint64_t offset) { file.write_at(page, offset); });
  file.sync();
}

void read_random(const std::string& path, std::uint64_t count) {
  std::vector<char> page(kPageBytes);
  File file(path, O_RDONLY);
  at_random_pages(file, count, [&](std::uint64_t offset) { file.read_at(page, offset); });
}

void run(const std::vector<std::string>& words) {
  const auto number = [&](std::size_t index) { return std::stoull(words.at(index)); };
  const std::string& operation = words.at(0);
  if (operation == "open-read-close") return open_read_close(words.at(1), number(2));
  if (operation == "create") return create(words.at(1), number(2), number(3), number(words.size() > 4 ? 4 : 3));
  if (operation == "write-sequential") return write_sequential(words.at(1), number(2));
  if (operation == "read-sequential") return read_sequential(words.at(1));
  if (operation == "write-random") return write_random(words.at(1), number(2));
  if (operation == "read-random") return read_random(words.at(1), number(2));
  throw std::runtime_error("no operation " + operation);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto start = std::chrono::steady_clock::now();
    run({argv + 1, argv + argc});
    std::printf("%.6f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_ops: %s\n", error.what());
    return 1;
  }
}
