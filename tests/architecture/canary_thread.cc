// Two threads write one variable without a lock: ThreadSanitizer must make this program fail.
#include <cstdio>
#include <thread>

int main() {
  int shared = 0;
  auto add = [&shared] {
    for (int i = 0; i < 100000; ++i) shared += i;
  };
  std::thread one(add), two(add);
  one.join();
  two.join();
  std::printf("%d\n", shared);
  return 0;
}
