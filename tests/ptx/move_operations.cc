#include "tests/ptx/operation_rows.h"

namespace pando::ptx {
namespace {

template <class T>
void AddMoves(Operations& table, const std::string& type) {
  AddRow<T, T>(table, "mov." + type, [](T a) { return a; });
  AddRow<T, T, T, Truth>(table, "selp." + type, [](T a, T b, bool c) { return c ? a : b; });
}

template <class To, class From>
void AddConversion(Operations& table, const std::string& to, const std::string& from) {
  AddRow<To, From>(table, "cvt." + to + "." + from, [](From a) { return static_cast<To>(a); });
}

}  // namespace

void AddMoveRows(Operations& table) {
  for (const char* type : {"b16", "u16", "s16"}) AddMoves<uint16_t>(table, type);
  for (const char* type : {"b32", "u32", "s32", "f32"}) AddMoves<uint32_t>(table, type);
  for (const char* type : {"b64", "u64", "s64", "f64"}) AddMoves<uint64_t>(table, type);
  AddConversion<uint16_t, uint32_t>(table, "u16", "u32");
  AddConversion<uint16_t, uint64_t>(table, "u16", "u64");
  AddConversion<uint32_t, uint16_t>(table, "u32", "u16");
  AddConversion<uint32_t, uint64_t>(table, "u32", "u64");
  AddConversion<uint64_t, uint16_t>(table, "u64", "u16");
  AddConversion<uint64_t, uint32_t>(table, "u64", "u32");
  AddConversion<int64_t, int32_t>(table, "s64", "s32");
  AddConversion<float, int16_t>(table, "rn.f32", "s16");
  AddConversion<float, int32_t>(table, "rn.f32", "s32");
  AddConversion<float, uint32_t>(table, "rn.f32", "u32");
  AddConversion<double, uint32_t>(table, "rn.f64", "u32");
  AddRow<Truth, Truth>(table, "not.pred", [](bool a) { return !a; });
  AddRow<Truth, Truth, Truth>(table, "and.pred", [](bool a, bool b) { return a && b; });
  AddRow<Truth, Truth, Truth>(table, "or.pred", [](bool a, bool b) { return a || b; });
  // Generic addresses: global memory's are the same, shared memory's lie in a window.
  AddRow<uint64_t, uint64_t>(table, "cvta.to.global.u64", [](uint64_t a) { return a; });
  AddRow<uint64_t, uint64_t>(table, "cvta.shared.u64",
                             [](uint64_t a) { return a + kSharedWindow; });
}

}  // namespace pando::ptx
