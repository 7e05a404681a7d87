// What a host must never become: killed, and kept from ending by a thread of its own that waits for its own mount.
//
// stuck_host MOUNTPOINT SESSION_DIRECTORY SESSION_ID: holds the session's lock, listens on its control socket, mounts,
// and says "stuck" when a thread of it waits for an answer that nobody gives.
#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  ::_exit(1);
}

void hold(const std::string& directory) {
  const int lock = ::open((directory + "/lock").c_str(), O_RDWR | O_CLOEXEC);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  require(lock >= 0 && ::fcntl(lock, F_OFD_SETLK, &whole) == 0, "lock");
  require(::chdir(directory.c_str()) == 0, "chdir");
  ::unlink("control.sock");
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, "control.sock");
  require(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
              ::listen(listener, 8) == 0,
          "listen");
}

}  // namespace

int main(int, char** arguments) {
  const std::string mountpoint = arguments[1], source = std::string("escrow:") + arguments[3];
  hold(arguments[2]);
  const int device = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  const std::string options = "fd=" + std::to_string(device) + ",rootmode=40000,user_id=0,group_id=0";
  require(::mount(source.c_str(), mountpoint.c_str(), "fuse.escrow", MS_NOSUID | MS_NODEV, options.c_str()) == 0,
          "mount");
  std::vector<char> request(std::size_t{1} << 20);
  require(::read(device, request.data(), request.size()) > 0, "read");
  struct {
    fuse_out_header header{};
    fuse_init_out init{};
  } answer;
  answer.header.len = sizeof answer;
  answer.header.unique = reinterpret_cast<const fuse_in_header*>(request.data())->unique;
  answer.init.major = FUSE_KERNEL_VERSION;
  answer.init.minor = FUSE_KERNEL_MINOR_VERSION;
  answer.init.max_write = 4096;
  require(::write(device, &answer, sizeof answer) == sizeof answer, "answer");
  std::thread([&] {
    struct stat about {};
    ::stat(mountpoint.c_str(), &about);
  }).detach();
  require(::read(device, request.data(), request.size()) > 0, "read");
  std::puts("stuck");
  std::fflush(stdout);
  for (;;) ::pause();
}
