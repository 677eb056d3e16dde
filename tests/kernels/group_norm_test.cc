#include "tests/kernels/support.h"

namespace pando {
namespace {

constexpr double kGroupNormForwardTol = 2e-6;   // a few roundings of fp32
constexpr double kGroupNormBackwardTol = 1e-5;  // and sums over pixels and samples

struct GroupNormCase {
  GroupNormSpec spec;
  uint32_t sample_count;
};

std::vector<GroupNormCase> GroupNormCases() {
  return {
      {{{1, 1, 2}, 1}, 1},     // the fewest with a variance
      {{{3, 5, 6}, 6}, 3},     // one channel per group: instance norm
      {{{3, 5, 7}, 1}, 3},     // one group: layer norm
      {{{4, 4, 16}, 4}, 2},    // a group is part of a vector
      {{{9, 8, 33}, 3}, 2},    // groups end within vectors; a block of pixels and a part
      {{{1, 1, 80}, 10}, 5},   // columns of a table
      {{{2, 3, 66}, 33}, 41},  // more groups than threads of a warp
  };
}

// The definition, in double precision.
struct GroupNormReference {
  explicit GroupNormReference(const GroupNormCase& c)
      : spec(c.spec),
        sample_count(c.sample_count),
        channels(spec.shape.channels),
        x(RandomDoubles(c.sample_count * spec.shape.size(), 1)),
        weight(RandomDoubles(channels, 2)),
        bias(RandomDoubles(channels, 3)),
        dy(RandomDoubles(x.size(), 5)) {}

  size_t row_count() const { return size_t{sample_count} * spec.groups; }
  double group_size() const { return static_cast<double>(spec.shape.size()) / spec.groups; }
  // The sample and group of an element.
  size_t RowFor(size_t i) const {
    return i / spec.shape.size() * spec.groups + i % channels / (channels / spec.groups);
  }
  Doubles Means() const {
    Doubles means(row_count());
    for (size_t i = 0; i < x.size(); ++i) means[RowFor(i)] += x[i] / group_size();
    return means;
  }
  Doubles InverseStds() const {
    const Doubles means = Means();
    Doubles stds(row_count());
    for (size_t i = 0; i < x.size(); ++i) {
      stds[RowFor(i)] += std::pow(x[i] - means[RowFor(i)], 2) / group_size();
    }
    for (double& v : stds) v = 1 / std::sqrt(v + static_cast<double>(spec.eps));
    return stds;
  }
  Doubles Forward() const {
    const Doubles means = Means(), inverse_stds = InverseStds();
    Doubles y;
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t row = RowFor(i);
      y.push_back((x[i] - means[row]) * inverse_stds[row] * weight[i % channels] +
                  bias[i % channels]);
    }
    return y;
  }

  GroupNormSpec spec;
  uint32_t sample_count;
  size_t channels;
  Doubles x, weight, bias, dy;
};

struct ComputedGroupNorm {
  explicit ComputedGroupNorm(const GroupNormReference& r, int scratch_fill = 0xff)
      : x(ToFloats(r.x)),
        weight(ToFloats(r.weight)),
        bias(ToFloats(r.bias)),
        dy(ToFloats(r.dy)),
        y(Poisoned(r.x.size())),
        mean(Poisoned(r.row_count())),
        inverse_std(Poisoned(r.row_count())),
        dx(Poisoned(r.x.size())),
        dweight(Poisoned(r.channels)),
        dbias(Poisoned(r.channels)),
        scratch(GroupNormScratchBytes(TestDevice(), r.spec, r.sample_count)) {
    std::memset(scratch.data(), scratch_fill, scratch.size());
    GroupNormForward(TestDevice(), r.spec, Forward(r), scratch.bytes());
    std::memset(scratch.data(), scratch_fill, scratch.size());
    GroupNormBackward(TestDevice(), r.spec, Backward(r), scratch.bytes());
  }
  GroupNormForwardArgs Forward(const GroupNormReference& r) {
    return {.sample_count = r.sample_count,
            .x = x.data(),
            .weight = weight.data(),
            .bias = bias.data(),
            .y = y.data(),
            .mean = mean.data(),
            .inverse_std = inverse_std.data()};
  }
  GroupNormBackwardArgs Backward(const GroupNormReference& r) {
    return {.sample_count = r.sample_count,
            .x = x.data(),
            .weight = weight.data(),
            .mean = mean.data(),
            .inverse_std = inverse_std.data(),
            .dy = dy.data(),
            .dx = dx.data(),
            .dweight = dweight.data(),
            .dbias = dbias.data()};
  }
  Floats x, weight, bias, dy, y, mean, inverse_std, dx, dweight, dbias;
  Array<std::byte> scratch;
};

TEST_CASE("group norm and its statistics follow the definition") {
  for (const GroupNormCase& c : GroupNormCases()) {
    CAPTURE(c.spec.shape.channels);
    const GroupNormReference r(c);
    const ComputedGroupNorm computed(r);
    CHECK(RelativeError(computed.y.data(), r.Forward()) < kGroupNormForwardTol);
    CHECK(RelativeError(computed.mean.data(), r.Means()) < kGroupNormForwardTol);
    CHECK(RelativeError(computed.inverse_std.data(), r.InverseStds()) < kGroupNormForwardTol);
  }
}

TEST_CASE("group norm's gradients equal finite differences") {
  for (const GroupNormCase& c : GroupNormCases()) {
    CAPTURE(c.spec.shape.channels);
    GroupNormReference r(c);
    const ComputedGroupNorm computed(r);
    auto loss = [&] { return DotProduct(r.Forward(), r.dy); };
    // The gradient of two values is nearly 0: differences cannot check it.
    if (r.group_size() > 2) {
      CHECK(FiniteDifferenceError(r.x, loss, computed.dx.data()) < kGroupNormBackwardTol);
    }
    CHECK(FiniteDifferenceError(r.weight, loss, computed.dweight.data()) < kGroupNormBackwardTol);
    CHECK(FiniteDifferenceError(r.bias, loss, computed.dbias.data()) < kGroupNormBackwardTol);
  }
}

TEST_CASE("group norm of a sample does not depend on the samples beside it") {
  const GroupNormReference all(GroupNormCases()[4]);
  GroupNormReference first({all.spec, 1});
  first.x.assign(all.x.begin(), all.x.begin() + static_cast<ptrdiff_t>(first.x.size()));
  const ComputedGroupNorm a(all), b(first);
  CHECK(SameBits(a.y.data(), b.y.data(), first.x.size()));
}

TEST_CASE("group norm does not depend on what was in its buffers and in its scratch") {
  for (const GroupNormCase& c : GroupNormCases()) {
    const GroupNormReference r(c);
    const ComputedGroupNorm a(r, 0xff), b(r, 0x3f);
    CHECK(SameBits(a.y.data(), b.y.data(), r.x.size()));
    CHECK(SameBits(a.dx.data(), b.dx.data(), r.x.size()));
    CHECK(SameBits(a.dweight.data(), b.dweight.data(), r.channels));
    CHECK(IsAllWritten(a.y, r.x.size()));
    CHECK(IsAllWritten(a.dx, r.x.size()));
  }
}

TEST_CASE("group norm may write its result over its input, and its gradients over those it gets") {
  for (const GroupNormCase& c : GroupNormCases()) {
    const GroupNormReference r(c);
    ComputedGroupNorm apart(r), over(r);
    GroupNormBackwardArgs backward = over.Backward(r);
    backward.dx = over.dy.data();
    GroupNormBackward(TestDevice(), r.spec, backward, over.scratch.bytes());
    CHECK(SameBits(over.dy.data(), apart.dx.data(), r.x.size()));
    GroupNormForwardArgs forward = over.Forward(r);
    forward.y = over.x.data();
    GroupNormForward(TestDevice(), r.spec, forward, over.scratch.bytes());
    CHECK(SameBits(over.x.data(), apart.y.data(), r.x.size()));
  }
}

TEST_CASE("group norm keeps its digits where the mean is large") {
  GroupNormReference r(GroupNormCases()[4]);
  for (double& v : r.x) v = static_cast<double>(static_cast<float>(v + 1000));
  const ComputedGroupNorm computed(r);
  CHECK(RelativeError(computed.mean.data(), r.Means()) < 1e-7);
  CHECK(RelativeError(computed.inverse_std.data(), r.InverseStds()) < kGroupNormForwardTol);
}

}  // namespace
}  // namespace pando
