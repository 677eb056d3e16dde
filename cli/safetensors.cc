#include "cli/safetensors.h"

#include <bit>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "cli/atomic_file.h"
#include "common/hash.h"

namespace pando {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

bool IsExported(const TensorSpec& spec) { return spec.kind != TensorKind::kMetric; }

// The tensor's bytes within the flat vector, without padding.
std::span<const std::byte> TensorBytes(const TensorLayout& layout, size_t i,
                                       std::span<const float> flat) {
  return std::as_bytes(flat.subspan(layout.offset(i), layout.specs()[i].size()));
}

// Layout of the file:
//   u64      size of the header in bytes, a multiple of 8
//   header   JSON: {"NAME": {"dtype", "shape", "data_offsets": [first, last)}}, padded with spaces
//   bytes    the tensors, without gaps; offsets count from here
std::string Header(const TensorLayout& layout) {
  nlohmann::ordered_json json;
  json["__metadata__"] = {{"format", "pt"}};
  uint64_t first = 0;
  for (const TensorSpec& spec : layout.specs()) {
    if (!IsExported(spec)) continue;
    const uint64_t last = first + spec.size() * sizeof(float);
    json[spec.name] = {{"dtype", "F32"}, {"shape", spec.shape}, {"data_offsets", {first, last}}};
    first = last;
  }
  std::string header = json.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

}  // namespace

std::string WeightsHash(const TensorLayout& layout, std::span<const float> flat) {
  PANDO_CHECK(flat.size() == layout.float_count());
  Hash128 hash;
  for (size_t i = 0; i < layout.tensor_count(); ++i) {
    if (IsExported(layout.specs()[i])) hash.Update(TensorBytes(layout, i, flat));
  }
  return hash.Hex();
}

Status WriteSafetensors(const std::string& path, const TensorLayout& layout,
                        std::span<const float> flat) {
  PANDO_CHECK(flat.size() == layout.float_count());
  Result<AtomicFile> file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  const std::string header = Header(layout);
  const uint64_t header_bytes = header.size();
  if (Status s = file->Write(std::as_bytes(std::span(&header_bytes, 1))); !s.ok()) return s;
  if (Status s = file->Write(std::as_bytes(std::span(header))); !s.ok()) return s;
  for (size_t i = 0; i < layout.tensor_count(); ++i) {
    if (!IsExported(layout.specs()[i])) continue;
    if (Status s = file->Write(TensorBytes(layout, i, flat)); !s.ok()) return s;
  }
  return file->Commit();
}

}  // namespace pando
