// The numbers that make_network_goldens.py took from PyTorch, the formula of its parameters and
// pictures, and digests of tensors.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "common/batch.h"
#include "common/float_buffer.h"
#include "plan/tensor_layout.h"
#include "tests/golden/golden_path.h"

namespace pando {

// Integers in [0, 2^24): noise() of make_goldens.py.
inline uint32_t Noise(uint32_t i, uint32_t seed) {
  uint32_t h = i * 0x9E3779B9u + seed;
  h ^= h >> 16;
  h *= 0x85EBCA6Bu;
  h ^= h >> 13;
  h *= 0xC2B2AE35u;
  h ^= h >> 16;
  return h >> 8;
}

// The part of a tensor that is kept. If the tensor has an error of some norm, then the sum with
// signs has about the same error, as the signs are noise.
struct Digest {
  static constexpr size_t kProbeCount = 8;
  double norm = 0;
  double sum = 0;
  double signed_sum = 0;
  std::array<double, kProbeCount> probes{};
};

struct GoldenDigest {
  std::string tensor;
  size_t size = 0;
  Digest digest;
};

// The same for each network and each training.
struct NetworkGolden {
  struct Moves {  // of a bias: all by `center`, and each by its own digit's
    std::string tensor;
    double center = 0;
    std::string digits;
  };
  std::string model;
  SampleShape shape;
  uint32_t sample_count = 0;
  uint32_t picture_seed = 0;
  double label_smoothing = 0;
  std::vector<Moves> moves;
  std::vector<GoldenDigest> tensors;
};

template <class Element>
Digest DigestFor(size_t size, Element element) {
  constexpr uint32_t kSignSeed = 5;
  Digest digest;
  double squares = 0;
  for (size_t i = 0; i < size; ++i) {
    const double x = element(i);
    squares += x * x;
    digest.sum += x;
    digest.signed_sum += Noise(static_cast<uint32_t>(i), kSignSeed) >> 23 ? -x : x;
  }
  digest.norm = std::sqrt(squares);
  for (size_t k = 0; k < Digest::kProbeCount; ++k) {
    digest.probes[k] = element(size * (2 * k + 1) / (2 * Digest::kProbeCount));
  }
  return digest;
}

// How far the digest is from the expected one, of a tensor of usually this norm. An error of e
// times the norm, spread evenly, makes about e of each difference: sums in which errors agree and
// single elements are counted by what they could be of such a tensor.
inline double DigestError(const Digest& got, const GoldenDigest& expected, double norm) {
  const double root = std::sqrt(static_cast<double>(expected.size));
  const Digest& golden = expected.digest;
  double error = std::abs(got.norm - golden.norm) + std::abs(got.signed_sum - golden.signed_sum) +
                 std::abs(got.sum - golden.sum) / root;
  for (size_t k = 0; k < Digest::kProbeCount; ++k) {
    error += std::abs(got.probes[k] - golden.probes[k]) * root / Digest::kProbeCount;
  }
  return error / norm;  // not a number where one of them is not
}

inline nlohmann::json ReadNetworkGoldens(const std::string& file_name) {
  const std::string path = GoldenPath(file_name);
  std::ifstream file(path);
  REQUIRE_MESSAGE(file.good(), "cannot read " << path);
  return nlohmann::json::parse(file);
}

inline NetworkGolden ReadNetworkGolden(const nlohmann::json& j) {
  const auto shape = j.at("shape").get<std::vector<uint32_t>>();
  NetworkGolden golden{.model = j.at("name"),
                       .shape = {shape.at(0), shape.at(1), shape.at(2)},
                       .sample_count = j.at("samples"),
                       .picture_seed = j.at("picture_seed"),
                       .label_smoothing = j.at("label_smoothing"),
                       .moves = {},
                       .tensors = {}};
  for (const nlohmann::json& row : j.at("moves")) {
    golden.moves.push_back({.tensor = row.at(0), .center = row.at(1), .digits = row.at(2)});
  }
  for (const nlohmann::json& row : j.at("tensors")) {
    GoldenDigest& tensor = golden.tensors.emplace_back(
        GoldenDigest{.tensor = row.at(0),
                     .size = row.at(1),
                     .digest = {.norm = row.at(2), .sum = row.at(3), .signed_sum = row.at(4)}});
    for (size_t k = 0; k < Digest::kProbeCount; ++k) tensor.digest.probes[k] = row.at(5 + k);
  }
  return golden;
}

// fill_tensors() and keep_clear() of make_network_goldens.py, bit for bit.
inline FloatBuffer GoldenParameters(const NetworkGolden& golden, const TensorLayout& layout) {
  constexpr uint32_t kTensorSeed = 1000;
  FloatBuffer parameters(layout.float_count());
  for (uint32_t t = 0; t + 1 < layout.tensor_count(); ++t) {
    const TensorSpec& spec = layout.specs()[t];
    const auto fan_in = static_cast<double>(spec.size()) / static_cast<double>(spec.shape[0]);
    const double bound = spec.shape.size() > 1 ? std::sqrt(6 / fan_in) : 0.125;
    const double center = spec.init == InitKind::kOne ? 1 : 0;
    for (uint32_t i = 0; i < spec.size(); ++i) {
      const double spread = Noise(i, kTensorSeed + t) / 8388608.0 - 1;
      parameters.data()[layout.offset(t) + i] = static_cast<float>(center + spread * bound);
    }
  }
  for (const NetworkGolden::Moves& moves : golden.moves) {
    const size_t t = layout.Find(moves.tensor);
    REQUIRE(t < layout.tensor_count());
    REQUIRE(moves.digits.size() == layout.specs()[t].size());
    for (size_t i = 0; i < moves.digits.size(); ++i) {
      const int digit = std::stoi(moves.digits.substr(i, 1), nullptr, 16);
      parameters.data()[layout.offset(t) + i] +=
          static_cast<float>(moves.center + (digit - 8) / 64.0);
    }
  }
  return parameters;
}

// samples() of make_network_goldens.py, those with these indices.
inline Batch GoldenBatch(const NetworkGolden& golden, std::span<const uint64_t> indices) {
  static const Normalisation kOne{{0.5f}, {0.25f}};
  static const Normalisation kThree{{0.5f, 0.4375f, 0.375f}, {0.25f, 0.3125f, 0.375f}};
  const SampleShape& shape = golden.shape;
  Batch batch{.shape = shape, .normalisation = shape.channels == 1 ? &kOne : &kThree};
  for (uint64_t index : indices) {
    for (size_t i = 0; i < shape.size(); ++i) {
      const auto pixel = static_cast<uint32_t>(index * shape.size() + i);
      batch.bytes.push_back(static_cast<uint8_t>(Noise(pixel, golden.picture_seed) >> 16));
    }
    batch.labels.push_back(static_cast<int32_t>(index * 7 % 10));
  }
  return batch;
}

}  // namespace pando
