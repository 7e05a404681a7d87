// Reads memory after it was freed: AddressSanitizer must end this program.
#include <cstdio>
#include <memory>

int main() {
  auto owner = std::make_unique<int>(1);
  volatile int* freed = owner.get();
  owner.reset();
  std::printf("%d\n", *freed);
  return 0;
}
