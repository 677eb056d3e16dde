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

template <class From>
void AddConversionsFrom(Operations& table, const std::string& from) {
  AddConversion<uint16_t, From>(table, "u16", from);
  AddConversion<int16_t, From>(table, "s16", from);
  AddConversion<uint32_t, From>(table, "u32", from);
  AddConversion<int32_t, From>(table, "s32", from);
  AddConversion<uint64_t, From>(table, "u64", from);
  AddConversion<int64_t, From>(table, "s64", from);
  AddConversion<float, From>(table, "rn.f32", from);
  AddConversion<double, From>(table, "rn.f64", from);
}

template <class F>
void AddPredicateRow(Operations& table, const std::string& name, F) {
  AddRow<Truth, Truth, Truth>(table, name + ".pred", F{});
}

}  // namespace

void AddMoveRows(Operations& table) {
  for (const char* type : {"b16", "u16", "s16"}) AddMoves<uint16_t>(table, type);
  for (const char* type : {"b32", "u32", "s32", "f32"}) AddMoves<uint32_t>(table, type);
  for (const char* type : {"b64", "u64", "s64", "f64"}) AddMoves<uint64_t>(table, type);
  AddConversionsFrom<uint16_t>(table, "u16");
  AddConversionsFrom<int16_t>(table, "s16");
  AddConversionsFrom<uint32_t>(table, "u32");
  AddConversionsFrom<int32_t>(table, "s32");
  AddConversionsFrom<uint64_t>(table, "u64");
  AddConversionsFrom<int64_t>(table, "s64");
  AddRow<Truth, Truth>(table, "mov.pred", [](bool a) { return a; });
  AddRow<Truth, Truth>(table, "not.pred", [](bool a) { return !a; });
  AddPredicateRow(table, "and", [](bool a, bool b) { return a && b; });
  AddPredicateRow(table, "or", [](bool a, bool b) { return a || b; });
  AddPredicateRow(table, "xor", [](bool a, bool b) { return a != b; });
  // Generic addresses: global memory's are the same, the others' lie in windows.
  AddRow<uint64_t, uint64_t>(table, "cvta.to.global.u64", [](uint64_t a) { return a; });
  AddRow<uint64_t, uint64_t>(table, "cvta.global.u64", [](uint64_t a) { return a; });
  AddRow<uint64_t, uint64_t>(table, "cvta.shared.u64",
                             [](uint64_t a) { return a + kSharedWindow; });
  AddRow<uint64_t, uint64_t>(table, "cvta.local.u64", [](uint64_t a) { return a + kLocalWindow; });
}

}  // namespace pando::ptx
