// Vec: the widest vector of floats that the target has. It uses GCC's vector extensions, so that
// one source serves every instruction set; -ffp-contract=fast makes a * b + c one instruction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace pando::cpu {

#if defined(__AVX512F__)
inline constexpr int kVecBytes = 64;
inline constexpr int kRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kVecBytes = 32;
inline constexpr int kRegisters = 16;
#else
inline constexpr int kVecBytes = 16;
inline constexpr int kRegisters = 16;
#endif
inline constexpr int kLanes = kVecBytes / static_cast<int>(sizeof(float));

using Vec = float __attribute__((vector_size(kVecBytes)));
using IntVec = int32_t __attribute__((vector_size(kVecBytes)));

inline Vec Load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline IntVec Load(const int32_t* p) {
  IntVec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
// Keeps a loaded value that is used several times in a register. GCC would fold the load into each
// use, and loads limit these loops (MNIST CNN: 16 loads for 12 multiply-adds instead of 7).
inline Vec InRegister(Vec v) {
#if defined(__x86_64__)
  asm("" : "+v"(v));
#endif
  return v;
}
inline void Store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }
inline void Store(int32_t* p, IntVec v) { std::memcpy(p, &v, sizeof v); }
inline Vec Broadcast(float x) { return x - Vec{}; }  // x − 0 is x, −0 included; x + 0 is not

// Stores lane i of a and b as pair i: a0 b0 a1 b1 ...  `to` has room for kLanes pairs of 8 bytes.
inline void StorePairs(void* to, IntVec a, IntVec b) {
  IntVec lower, upper;
  for (int i = 0; i < kLanes; ++i) {
    lower[i] = i % 2 * kLanes + i / 2;
    upper[i] = lower[i] + kLanes / 2;
  }
  const IntVec first = __builtin_shuffle(a, b, lower), last = __builtin_shuffle(a, b, upper);
  std::memcpy(to, &first, sizeof first);
  std::memcpy(static_cast<char*>(to) + sizeof first, &last, sizeof last);
}

// Stores the first `count` lanes, or all lanes if `count` is larger.
template <class V, class T>
inline void StorePart(T* p, V v, size_t count) {
  if (count >= kLanes) return Store(p, v);
  T lanes[kLanes];
  Store(lanes, v);
  size_t done = 0;
  for (size_t step = kLanes / 2; step > 0; step /= 2) {  // halves, quarters...: no loop over lanes
    if ((count & step) == 0) continue;
    std::memcpy(p + done, lanes + done, step * sizeof(T));
    done += step;
  }
}

inline constexpr size_t RoundUpToLanes(size_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Loads the first `count` lanes, or all lanes if `count` is larger. The other lanes are 0.
inline Vec LoadPart(const float* p, size_t count) {
  if (count >= kLanes) return Load(p);
  float lanes[kLanes] = {};
  for (size_t i = 0; i < count; ++i) lanes[i] = p[i];
  return Load(lanes);
}

// Splits n into the fewest pieces of at most `max`, as equal as possible (10 by 3 is 3 + 3 + 2 +
// 2), so that no piece is too small to fill the pipelines. Calls f(first, size).
template <class F>
inline void ForEvenPieces(size_t n, size_t max, F&& f) {
  size_t pieces = (n + max - 1) / max;
  for (size_t first = 0; first < n; --pieces) {
    const size_t size = (n - first + pieces - 1) / pieces;
    f(first, size);
    first += size;
  }
}

// Returns the array of f<0>() to f<kCount − 1>(): a function for each number of registers.
template <size_t kCount, class F>
constexpr auto MakeTable(F f) {
  return [f]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::array{f.template operator()<kIndex>()...};
  }
  (std::make_index_sequence<kCount>());
}

}  // namespace pando::cpu
