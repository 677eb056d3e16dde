#include "tests/ptx/operation_rows.h"

namespace pando::ptx {
namespace {

template <class T>
void AddArithmetic(Operations& table, const std::string& type) {
  using Wide = std::make_unsigned_t<T>;
  AddRow<T, T, T>(table, "add." + type, [](T a, T b) { return Wide(Wide(a) + Wide(b)); });
  AddRow<T, T, T>(table, "sub." + type, [](T a, T b) { return Wide(Wide(a) - Wide(b)); });
  AddRow<T, T, T>(table, "mul.lo." + type,
                  [](T a, T b) { return static_cast<T>(uint64_t(a) * uint64_t(b)); });
  AddRow<T, T, T, T>(table, "mad.lo." + type, [](T a, T b, T c) {
    return static_cast<T>(uint64_t(a) * uint64_t(b) + uint64_t(c));
  });
  AddRow<T, T, T>(table, "min." + type, [](T a, T b) { return a < b ? a : b; });
  AddRow<T, T, T>(table, "max." + type, [](T a, T b) { return a < b ? b : a; });
  AddRow<T, T, uint32_t>(table, "shr." + type, [](T a, uint32_t by) {
    constexpr uint32_t kBits = sizeof(T) * 8;
    if constexpr (std::is_signed_v<T>) {
      return T(a >> (by < kBits ? by : kBits - 1));
    } else {
      return by < kBits ? T(a >> by) : T(0);
    }
  });
  AddRow<Truth, T, T>(table, "setp.eq." + type, [](T a, T b) { return a == b; });
  AddRow<Truth, T, T>(table, "setp.ne." + type, [](T a, T b) { return a != b; });
  AddRow<Truth, T, T>(table, "setp.lt." + type, [](T a, T b) { return a < b; });
  AddRow<Truth, T, T>(table, "setp.le." + type, [](T a, T b) { return a <= b; });
  AddRow<Truth, T, T>(table, "setp.gt." + type, [](T a, T b) { return a > b; });
  AddRow<Truth, T, T>(table, "setp.ge." + type, [](T a, T b) { return a >= b; });
}

// Only active lanes may divide. A divisor of 0 gives no fixed result.
template <class T, bool kRemainder>
void Divide(Warp& warp, const Instruction& instruction) {
  const T* a = warp.Lanes<T>(instruction.from[0]);
  const T* b = warp.Lanes<T>(instruction.from[1]);
  T values[kWarpLanes] = {};
  ForEachLane(warp.active(), [&](uint32_t i) {
    if (b[i] == 0) return warp.Report("a division by zero", i);
    values[i] = kRemainder ? a[i] % b[i] : a[i] / b[i];
  });
  warp.Store(instruction.to[0], values);
}

template <class T>
void AddDivisions(Operations& table, const std::string& type) {
  constexpr uint8_t kBytes = sizeof(T);
  table["div." + type] = {&Divide<T, false>, Control::kNone, {kBytes}, {kBytes, kBytes}};
  table["rem." + type] = {&Divide<T, true>, Control::kNone, {kBytes}, {kBytes, kBytes}};
}

template <class T>
void AddBitOperations(Operations& table, const std::string& type) {
  AddRow<T, T, T>(table, "and." + type, [](T a, T b) { return a & b; });
  AddRow<T, T, T>(table, "or." + type, [](T a, T b) { return a | b; });
  AddRow<T, T, T>(table, "xor." + type, [](T a, T b) { return a ^ b; });
  AddRow<T, T>(table, "not." + type, [](T a) { return T(~a); });
  AddRow<Truth, T, T>(table, "setp.eq." + type, [](T a, T b) { return a == b; });
  AddRow<T, T, uint32_t>(table, "shl." + type,
                         [](T a, uint32_t by) { return by < sizeof(T) * 8 ? T(a << by) : T(0); });
}

// bfi: the low `length` bits of a replace those of b from `begin` on.
template <class T>
T InsertBits(T a, T b, uint32_t begin, uint32_t length) {
  constexpr uint32_t kBits = sizeof(T) * 8;
  begin &= 0xff;
  length &= 0xff;
  if (begin >= kBits) return b;
  const T mask = T((length >= kBits ? ~T(0) : (T(1) << length) - 1) << begin);
  return (b & ~mask) | (T(a << begin) & mask);
}

// prmt: each byte of the result is one of the eight of a and b, or its sign.
uint32_t PermuteBytes(uint32_t a, uint32_t b, uint32_t selectors) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t selector = selectors >> 4 * i & 0xf;
    uint32_t byte = static_cast<uint32_t>(bytes >> 8 * (selector & 7) & 0xff);
    if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << 8 * i;
  }
  return result;
}

}  // namespace

void AddIntegerRows(Operations& table) {
  AddArithmetic<uint16_t>(table, "u16");
  AddArithmetic<int16_t>(table, "s16");
  AddArithmetic<uint32_t>(table, "u32");
  AddArithmetic<int32_t>(table, "s32");
  AddArithmetic<uint64_t>(table, "u64");
  AddArithmetic<int64_t>(table, "s64");
  AddDivisions<uint32_t>(table, "u32");
  AddDivisions<uint64_t>(table, "u64");
  AddBitOperations<uint16_t>(table, "b16");
  AddBitOperations<uint32_t>(table, "b32");
  AddBitOperations<uint64_t>(table, "b64");
  AddRow<int64_t, int64_t>(table, "neg.s64", [](int64_t a) { return uint64_t{0} - uint64_t(a); });
  AddRow<uint32_t, uint16_t, uint16_t>(table, "mul.wide.u16",
                                       [](uint16_t a, uint16_t b) { return uint32_t{a} * b; });
  AddRow<uint64_t, uint32_t, uint32_t>(table, "mul.wide.u32",
                                       [](uint32_t a, uint32_t b) { return uint64_t{a} * b; });
  AddRow<int64_t, int32_t, int32_t>(table, "mul.wide.s32",
                                    [](int32_t a, int32_t b) { return int64_t{a} * b; });
  AddRow<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>(
      table, "bfi.b32", [](auto... x) { return InsertBits<uint32_t>(x...); });
  AddRow<uint64_t, uint64_t, uint64_t, uint32_t, uint32_t>(
      table, "bfi.b64", [](auto... x) { return InsertBits<uint64_t>(x...); });
  AddRow<uint32_t, uint32_t, uint32_t, uint32_t>(table, "prmt.b32",
                                                 [](auto... x) { return PermuteBytes(x...); });
}

}  // namespace pando::ptx
