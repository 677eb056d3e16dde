// Compiled with the product's flags: two roundings to float of adjacent doubles, which g++ 12 drops
// when it packs straight-line code into vectors (docs/determinism.md, "Roundings").
#include <cstdio>
#include <cstdlib>

namespace {

struct Moments {
  double mean = 0;
  double deviation = 1;
};

__attribute__((noipa)) void RoundToFloats(Moments* moments) {
  moments->mean = static_cast<float>(moments->mean);
  moments->deviation = static_cast<float>(moments->deviation);
}

}  // namespace

// The argument keeps the compiler from computing it.
int main(int count, char** arguments) {
  if (count != 2) return 2;
  Moments moments{std::strtod(arguments[1], nullptr), 2};
  RoundToFloats(&moments);
  constexpr double kRounded = 1609459171328;  // 12,279,199 · 2^17
  std::printf("%s as a float is %.17g, expected %.17g\n", arguments[1], moments.mean, kRounded);
  return moments.mean == kRounded ? 0 : 1;
}
