#include "tests/ptx/operation_rows.h"

namespace pando::ptx {
namespace {

// A subnormal number counts as 0 of the same sign.
float Flush(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits);
}
// A GPU makes one NaN alone in fp32.
float Canonical(float x) { return x != x ? std::bit_cast<float>(0x7fffffff) : x; }
float FlushResult(float x) { return Canonical(Flush(x)); }

// Larger comparisons of PTX: those with "u" hold for NaN too.
template <class T, class G>
void AddComparisons(Operations& table, const std::string& type, G) {
  AddRow<Truth, T, T>(table, "setp.eq" + type, [](T a, T b) { return G{}(a) == G{}(b); });
  AddRow<Truth, T, T>(table, "setp.ne" + type,
                      [](T a, T b) { return G{}(a) < G{}(b) || G{}(a) > G{}(b); });
  AddRow<Truth, T, T>(table, "setp.lt" + type, [](T a, T b) { return G{}(a) < G{}(b); });
  AddRow<Truth, T, T>(table, "setp.le" + type, [](T a, T b) { return G{}(a) <= G{}(b); });
  AddRow<Truth, T, T>(table, "setp.gt" + type, [](T a, T b) { return G{}(a) > G{}(b); });
  AddRow<Truth, T, T>(table, "setp.ge" + type, [](T a, T b) { return G{}(a) >= G{}(b); });
  AddRow<Truth, T, T>(table, "setp.neu" + type, [](T a, T b) { return !(G{}(a) == G{}(b)); });
  AddRow<Truth, T, T>(table, "setp.leu" + type, [](T a, T b) { return !(G{}(a) > G{}(b)); });
  AddRow<Truth, T, T>(table, "setp.geu" + type, [](T a, T b) { return !(G{}(a) < G{}(b)); });
  AddRow<Truth, T, T>(table, "setp.num" + type, [](T a, T b) { return a == a && b == b; });
}

// a * b + c, rounded once, toward minus infinity. The sum of the product, which is exact in fp64,
// and c is off by at most half a unit of fp64, whose sign the rest says.
float FuseDown(float a, float b, float c) {
  const double product = static_cast<double>(a) * b, sum = product + c;
  const double part = sum - product, rest = (product - (sum - part)) + (c - part);
  const auto rounded = static_cast<float>(sum);
  const bool is_above = rounded > sum || (rounded == sum && rest < 0);
  return is_above ? std::nextafter(rounded, -std::numeric_limits<float>::infinity()) : rounded;
}

void AddSingleRows(Operations& table) {
  using F = float;
  AddRow<F, F, F>(table, "add.ftz.f32", [](F a, F b) { return FlushResult(Flush(a) + Flush(b)); });
  AddRow<F, F, F>(table, "sub.ftz.f32", [](F a, F b) { return FlushResult(Flush(a) - Flush(b)); });
  AddRow<F, F, F>(table, "mul.ftz.f32", [](F a, F b) { return FlushResult(Flush(a) * Flush(b)); });
  AddRow<F, F, F, F>(table, "fma.rn.ftz.f32", [](F a, F b, F c) {
    return FlushResult(__builtin_fmaf(Flush(a), Flush(b), Flush(c)));
  });
  AddRow<F, F, F, F>(table, "fma.rm.ftz.f32", [](F a, F b, F c) {
    return FlushResult(FuseDown(Flush(a), Flush(b), Flush(c)));
  });
  AddRow<F, F, F>(table, "div.rn.ftz.f32",
                  [](F a, F b) { return FlushResult(Flush(a) / Flush(b)); });
  AddRow<F, F>(table, "rcp.rn.ftz.f32", [](F a) { return FlushResult(1.0f / Flush(a)); });
  AddRow<F, F>(table, "neg.ftz.f32", [](F a) { return Canonical(-Flush(a)); });
  AddRow<F, F, F>(table, "min.ftz.f32",
                  [](F a, F b) { return Canonical(std::fmin(Flush(a), Flush(b))); });
  // A GPU's is off by up to 2 units in the last place.
  AddRow<F, F>(table, "ex2.approx.ftz.f32", [](F a) { return FlushResult(std::exp2(Flush(a))); });
  AddComparisons<F>(table, ".ftz.f32", [](F a) { return Flush(a); });
}

void AddDoubleRows(Operations& table) {
  using F = double;
  AddRow<F, F, F>(table, "add.f64", [](F a, F b) { return a + b; });
  AddRow<F, F, F>(table, "sub.f64", [](F a, F b) { return a - b; });
  AddRow<F, F, F>(table, "mul.f64", [](F a, F b) { return a * b; });
  AddRow<F, F, F>(table, "div.rn.f64", [](F a, F b) { return a / b; });
  AddRow<F, F, F, F>(table, "fma.rn.f64", [](F a, F b, F c) { return __builtin_fma(a, b, c); });
  AddRow<F, F>(table, "rcp.rn.f64", [](F a) { return 1.0 / a; });
  AddRow<F, F>(table, "sqrt.rn.f64", [](F a) { return __builtin_sqrt(a); });
  AddRow<F, F>(table, "neg.f64", [](F a) { return -a; });
  AddComparisons<F>(table, ".f64", [](F a) { return a; });
}

uint16_t ToHalf(float x) {
  if (x != x) return 0x7fff;
  return std::bit_cast<uint16_t>(static_cast<_Float16>(x));
}
uint16_t ToBfloat16(float x) {
  if (x != x) return 0x7fff;
  const auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
int32_t TruncateToInt(float x) {
  if (x != x) return 0;
  if (x >= 2147483648.0f) return std::numeric_limits<int32_t>::max();
  if (x < -2147483648.0f) return std::numeric_limits<int32_t>::min();
  return static_cast<int32_t>(x);
}

void AddFloatConversions(Operations& table) {
  using U = uint16_t;
  AddRow<double, float>(table, "cvt.ftz.f64.f32", [](float a) { return double{Flush(a)}; });
  AddRow<float, double>(table, "cvt.rn.ftz.f32.f64",
                        [](double a) { return FlushResult(static_cast<float>(a)); });
  AddRow<float, float>(table, "cvt.ftz.sat.f32.f32", [](float a) {
    const float x = Flush(a);
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
  });
  AddRow<float, float>(table, "cvt.rni.f32.f32", [](float a) { return std::nearbyint(a); });
  AddRow<int32_t, float>(table, "cvt.rzi.ftz.s32.f32", [](float a) { return TruncateToInt(a); });
  AddRow<float, U>(table, "cvt.f32.f16", [](U a) { return float{std::bit_cast<_Float16>(a)}; });
  AddRow<float, U>(table, "cvt.f32.bf16",
                   [](U a) { return std::bit_cast<float>(uint32_t{a} << 16); });
  AddRow<U, float>(table, "cvt.rn.f16.f32", [](float a) { return ToHalf(a); });
  AddRow<U, float>(table, "cvt.rn.bf16.f32", [](float a) { return ToBfloat16(a); });
}

}  // namespace

void AddFloatRows(Operations& table) {
  AddSingleRows(table);
  AddDoubleRows(table);
  AddFloatConversions(table);
}

}  // namespace pando::ptx
