// Small idx files, for the tests of readers.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/check.h"

namespace pando {

using Bytes = std::vector<uint8_t>;

inline void AppendNumber(Bytes& bytes, uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes.push_back(static_cast<uint8_t>(number >> shift));
}

inline Bytes IdxHeader(const std::vector<uint32_t>& numbers) {
  Bytes bytes;
  for (uint32_t number : numbers) AppendNumber(bytes, number);
  return bytes;
}

// Pictures of 3 x 2 whose pixels count up from 0 (modulo 251, so that no two pictures are equal).
inline Bytes PicturesFile(uint32_t count, uint32_t height = 3, uint32_t width = 2) {
  Bytes bytes = IdxHeader({0x803, count, height, width});
  for (uint32_t i = 0; i < count * height * width; ++i) bytes.push_back(uint8_t(i % 251));
  return bytes;
}

inline Bytes LabelsFile(const Bytes& labels) {
  Bytes bytes = IdxHeader({0x801, static_cast<uint32_t>(labels.size())});
  bytes.insert(bytes.end(), labels.begin(), labels.end());
  return bytes;
}

inline Bytes Gzip(const Bytes& plain) {
  constexpr int kWindowBitsGzip = 15 + 16;
  z_stream stream{};
  PANDO_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, kWindowBitsGzip, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  Bytes packed(deflateBound(&stream, plain.size()));
  stream.next_in = const_cast<uint8_t*>(plain.data());
  stream.avail_in = static_cast<unsigned>(plain.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<unsigned>(packed.size());
  PANDO_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

}  // namespace pando
