// Overflows a signed integer: UndefinedBehaviorSanitizer must end this program.
#include <cstdio>
#include <limits>

int main() {
  volatile int largest = std::numeric_limits<int>::max();
  std::printf("%d\n", largest + 1);
  return 0;
}
