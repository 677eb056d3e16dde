#include "common/sha256.h"

#include <algorithm>
#include <bit>

namespace pando {
namespace {

constexpr std::array<uint32_t, 64> kRoundConstants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t BigEndian(const uint8_t* b) {
  return uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
}

}  // namespace

void Sha256::Update(std::span<const std::byte> bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const size_t filled = byte_count_ % kBlockBytes;
    const size_t size = std::min(kBlockBytes - filled, bytes.size() - at);
    const auto* from = reinterpret_cast<const uint8_t*>(bytes.data()) + at;
    std::copy_n(from, size, pending_.begin() + static_cast<std::ptrdiff_t>(filled));
    byte_count_ += size;
    at += size;
    if (byte_count_ % kBlockBytes == 0) AddBlock(pending_.data());
  }
}

void Sha256::AddBlock(const uint8_t* block) {
  std::array<uint32_t, 64> w{};
  for (size_t t = 0; t < 16; ++t) w[t] = BigEndian(block + 4 * t);
  for (size_t t = 16; t < w.size(); ++t) {
    const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
    const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t t = 0; t < w.size(); ++t) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRoundConstants[t] + w[t];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<uint32_t, 8> sums{a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < sums.size(); ++i) state_[i] += sums[i];
}

std::string Sha256::Hex() {
  const uint64_t bit_count = byte_count_ * 8;
  std::array<std::byte, kBlockBytes + 8> padding{std::byte{0x80}};
  const size_t to_length = (2 * kBlockBytes - 8 - byte_count_ % kBlockBytes) % kBlockBytes;
  const size_t zeros_end = to_length == 0 ? kBlockBytes : to_length;
  for (size_t i = 0; i < 8; ++i)
    padding[zeros_end + i] = static_cast<std::byte>(bit_count >> (56 - 8 * i));
  Update(std::span(padding).first(zeros_end + 8));
  std::string text;
  for (uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
  }
  return text;
}

}  // namespace pando
