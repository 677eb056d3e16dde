#include "run/safetensors_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "common/hash128.h"
#include "files/file_kind.h"
#include "files/folder_files.h"
#include "files/json_depth.h"
#include "run/safetensors_shards.h"

namespace pando {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

// Layout of the file:
//   u64      size of the header in bytes; written as a multiple of 8
//   header   JSON: {"NAME": {"dtype", "shape", "data_offsets": [first, last)}}, padded with spaces
//   bytes    the tensors, without gaps; offsets count from here
constexpr uint64_t kPrefixBytes = sizeof(uint64_t);
constexpr uint64_t kFloatCountMax = uint64_t{1} << 60;  // so that its count of bytes fits 64 bits
constexpr const char* kMetadataName = "__metadata__";

std::string Header(const SafetensorsMetadata& metadata, std::span<const NamedTensor> tensors) {
  nlohmann::ordered_json json;
  json[kMetadataName] = metadata;
  uint64_t first = 0;
  for (const NamedTensor& tensor : tensors) {
    const uint64_t last = first + tensor.values.size_bytes();
    json[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {first, last}}};
    first = last;
  }
  std::string header = json.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

}  // namespace

Status WriteSafetensors(RunFiles& files, const std::string& name,
                        const SafetensorsMetadata& metadata, std::span<const NamedTensor> tensors) {
  const std::string header = Header(metadata, tensors);
  const uint64_t header_bytes = header.size();
  Pieces pieces{std::as_bytes(std::span(&header_bytes, 1)), std::as_bytes(std::span(header))};
  for (const NamedTensor& tensor : tensors) pieces.push_back(std::as_bytes(tensor.values));
  return files.Store(name, pieces);
}

Status WriteSafetensors(const std::string& path, const SafetensorsMetadata& metadata,
                        std::span<const NamedTensor> tensors, FileAccess access) {
  const std::filesystem::path parts(path);
  const std::filesystem::path folder = parts.parent_path();
  FolderFiles files(folder.empty() ? "." : folder.string(), "", access);
  return WriteSafetensors(files, parts.filename().string(), metadata, tensors);
}

// ---- reading -----------------------------------------------------------------------------------

namespace {

// The part of the file after the header.
struct DataExtent {
  uint64_t first_byte = 0;
  uint64_t bytes = 0;
};

Status Bad(const std::string& path, const std::string& text) {
  return Corrupt(fmt::format("{}: {}", path, text));
}

// Converts IEEE 754's binary16, exactly.
float FloatFromHalf(uint16_t half) {
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  const int exponent = half >> 10 & 0x1f;
  const int mantissa = half & 0x3ff;
  if (exponent == 0x1f) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 0x400), exponent - 25);
}

// The header's readers say what was expected; their callers add the place.

// Returns a null value if the object has no such member.
const Json& Member(const Json& json, const char* name) {
  static const Json kNone;
  const auto at = json.find(name);
  return at == json.end() ? kNone : *at;
}

Status ReadShape(const Json& shape, SafetensorsFile::Tensor* tensor) {
  if (!shape.is_array()) return Corrupt("expected a list as shape");
  tensor->float_count = 1;
  for (const Json& dimension : shape) {
    if (!dimension.is_number_unsigned()) return Corrupt("expected whole numbers in shape");
    const auto size = dimension.get<uint64_t>();
    if (size != 0 && tensor->float_count > kFloatCountMax / size)
      return Corrupt("shape has more elements than any file");
    tensor->shape.push_back(size);
    tensor->float_count *= size;
  }
  return Status();
}

// The types that the format has long had, with the bytes of an element. Newer types have other
// names, and some share bytes between elements.
struct ElementType {
  std::string_view name;
  uint64_t bytes;
};
constexpr auto kElementTypes = std::to_array<ElementType>({{"F32", 4},
                                                           {"F16", 2},
                                                           {"BF16", 2},
                                                           {"F64", 8},
                                                           {"I64", 8},
                                                           {"I32", 4},
                                                           {"I16", 2},
                                                           {"I8", 1},
                                                           {"U64", 8},
                                                           {"U32", 4},
                                                           {"U16", 2},
                                                           {"F8_E4M3", 1},
                                                           {"F8_E5M2", 1},
                                                           {"U8", 1},
                                                           {"BOOL", 1}});

Status ReadOffsets(const Json& offsets, const DataExtent& data, SafetensorsFile::Tensor* tensor) {
  const auto is_number = [](const Json& offset) { return offset.is_number_unsigned(); };
  if (!offsets.is_array() || offsets.size() != 2 || !std::ranges::all_of(offsets, is_number))
    return Corrupt("expected two whole numbers as data_offsets");
  const auto first = offsets[0].get<uint64_t>();
  const auto last = offsets[1].get<uint64_t>();
  if (first > last || last > data.bytes) {
    return Corrupt(fmt::format("data_offsets [{}, {}] are not within the {} bytes after the header",
                               first, last, data.bytes));
  }
  const auto type = std::ranges::find(kElementTypes, tensor->dtype, &ElementType::name);
  tensor->byte_count = last - first;
  if (type != kElementTypes.end() && tensor->byte_count != tensor->float_count * type->bytes) {
    return Corrupt(fmt::format("data_offsets hold {} bytes, expected {} for this shape",
                               tensor->byte_count, tensor->float_count * type->bytes));
  }
  tensor->first_byte = data.first_byte + first;
  return Status();
}

Status ReadTensor(const Json& json, const DataExtent& data, SafetensorsFile::Types types,
                  SafetensorsFile::Tensor* tensor) {
  if (!json.is_object()) return Corrupt("expected an object");
  const Json& dtype = Member(json, "dtype");
  if (types == SafetensorsFile::Types::kFp32 && dtype != "F32")
    return Corrupt("dtype is not \"F32\", the only one that Pando supports");
  if (!dtype.is_string()) return Corrupt(fmt::format("dtype is {}, expected a text", dtype.dump()));
  tensor->dtype = dtype.get<std::string>();
  PANDO_RETURN_IF_ERROR(ReadShape(Member(json, "shape"), tensor));
  return ReadOffsets(Member(json, "data_offsets"), data, tensor);
}

// Checks that every byte after the header belongs to exactly one tensor.
Status CheckCoverage(const std::map<std::string, SafetensorsFile::Tensor>& tensors,
                     const DataExtent& data) {
  std::vector<std::tuple<uint64_t, uint64_t, std::string>> extents;
  for (const auto& [name, tensor] : tensors) {
    const uint64_t first = tensor.first_byte - data.first_byte;
    extents.emplace_back(first, first + tensor.byte_count, name);
  }
  std::ranges::sort(extents);
  uint64_t end = 0;
  for (const auto& [first, last, name] : extents) {
    if (first != end) {
      return Corrupt(
          fmt::format("tensor '{}' begins at byte {} after the header, expected {}: "
                      "tensors overlap or leave a gap",
                      name, first, end));
    }
    end = last;
  }
  if (end == data.bytes) return Status();
  return Corrupt(fmt::format("{} bytes after the header, expected {}", data.bytes, end));
}

Status ReadMetadata(const Json& json, SafetensorsMetadata* metadata) {
  const auto is_text = [](const Json& value) { return value.is_string(); };
  if (!json.is_object() || !std::ranges::all_of(json, is_text)) {
    return Corrupt("expected an object of texts");
  }
  json.get_to(*metadata);
  return Status();
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path, Types types) {
  namespace fs = std::filesystem;
  std::error_code ignored;  // opening it reports the fault
  const std::string file = FindWeightsFile(path);
  const fs::file_status found = fs::status(file, ignored);
  if (fs::is_directory(found))
    return Bad(file, "a folder, expected a file; `pando export` writes one of a run's weights");
  if (fs::exists(found) && !fs::is_regular_file(found)) return Bad(file, "not a file");
  if (file.ends_with(kShardIndexEnding)) return OpenShards(file, types);
  return Read(file, OpenFile(file), types);
}

Result<SafetensorsFile> SafetensorsFile::OpenShards(const std::string& index, Types types) {
  PANDO_ASSIGN_OR_RETURN(const ShardNames shards, ReadShardIndex(index));
  SafetensorsFile whole(index);
  for (const auto& [name, tensors] : shards) {
    const std::string path = (std::filesystem::path(index).parent_path() / name).string();
    Result<SafetensorsFile> shard = Read(path, OpenFile(path), types);
    if (shard.status().code() == StatusCode::kNotFound) {
      return NotFound(fmt::format("{}; {} names it: download all {} shards",
                                  shard.status().message(), index, shards.size()));
    }
    if (!shard.ok()) return shard.status();
    PANDO_RETURN_IF_ERROR(whole.AddShard(*std::move(shard), tensors));
  }
  return whole;
}

Status SafetensorsFile::AddShard(SafetensorsFile shard, const std::vector<std::string>& tensors) {
  for (const std::string& name : tensors) {
    if (!shard.tensors_.contains(name))
      return Bad(path_, fmt::format("'{}' is said to be in {}, which lacks it", name, shard.path_));
  }
  for (auto& [name, tensor] : shard.tensors_) {
    tensor.shard = shards_.size();
    if (!tensors_.emplace(name, std::move(tensor)).second)
      return Bad(path_, fmt::format("'{}' is in two of its files, {} is one", name, shard.path_));
  }
  metadata_.insert(shard.metadata_.begin(), shard.metadata_.end());
  shards_.push_back(std::move(shard.shards_[0]));
  return Status();
}

Result<SafetensorsFile> SafetensorsFile::Open(RunFiles& files, const std::string& name,
                                              Types types) {
  return Read(files.location() + "/" + name, files.Open(name), types);
}

Result<SafetensorsFile> SafetensorsFile::Read(std::string path,
                                              Result<std::unique_ptr<ReadableFile>> file,
                                              Types types) {
  if (!file.ok()) return file.status();
  SafetensorsFile opened(std::move(path));
  opened.shards_.push_back(*std::move(file));
  PANDO_RETURN_IF_ERROR(opened.ReadHeader(types));
  return opened;
}

Status SafetensorsFile::ReadHeader(Types types) {
  const ReadableFile& file = *shards_[0];
  const uint64_t file_bytes = file.size();
  uint64_t header_bytes = 0;
  if (file_bytes < kPrefixBytes)
    return Bad(path_, fmt::format("{} bytes, too short for a safetensors file", file_bytes));
  PANDO_RETURN_IF_ERROR(file.Read(0, std::as_writable_bytes(std::span(&header_bytes, 1))));
  const uint64_t bytes_max = std::min(kHeaderBytesMax, file_bytes - kPrefixBytes);
  constexpr uint32_t kZip = 0x04034b50;  // "PK": written by torch.save
  const bool is_pickle = header_bytes > bytes_max && (header_bytes & 0xff) == 0x80;  // of old ones
  if (static_cast<uint32_t>(header_bytes) == kZip || is_pickle) {
    return Bad(path_,
               "a file of torch.save, expected safetensors; in Python: "
               "safetensors.torch.save_file(model.state_dict(), \"weights.safetensors\")");
  }
  std::string head(std::min<uint64_t>(kFileHeadBytes, file_bytes), '\0');
  PANDO_RETURN_IF_ERROR(file.Read(0, std::as_writable_bytes(std::span(head))));
  const std::string other = NameOtherKind(head, FileUse::kWeights);  // the file may still be valid
  if (header_bytes > bytes_max && !other.empty()) return Bad(path_, other);
  if (header_bytes > bytes_max) {
    return Bad(path_,
               fmt::format("byte 0: the header is said to have {} bytes, expected at most {}; "
                           "the file is cut or no safetensors file",
                           header_bytes, bytes_max));
  }
  std::string text(header_bytes, '\0');
  PANDO_RETURN_IF_ERROR(file.Read(kPrefixBytes, std::as_writable_bytes(std::span(text))));
  if (IsDeepJson(text)) return Bad(path_, "byte 8: the header's JSON is nested too deeply");
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& problem) {
    if (!other.empty()) return Bad(path_, other);
    return Bad(path_, fmt::format("byte 8: the header is not JSON: {}", problem.what()));
  }
  if (!json.is_object()) return Bad(path_, "byte 8: the header is not a JSON object");
  const DataExtent data{kPrefixBytes + header_bytes, file_bytes - kPrefixBytes - header_bytes};
  for (const auto& [name, value] : json.items()) {
    Status s = name == kMetadataName ? ReadMetadata(value, &metadata_)
                                     : ReadTensor(value, data, types, &tensors_[name]);
    if (!s.ok()) return Bad(path_, fmt::format("header, '{}': {}", name, s.message()));
  }
  Status covered = CheckCoverage(tensors_, data);
  return covered.ok() ? covered : Bad(path_, covered.message());
}

Status SafetensorsFile::Read(const Tensor& tensor, std::span<float> out) const {
  PANDO_CHECK(out.size() == tensor.float_count);
  const bool is_half = tensor.dtype == "F16", is_bfloat = tensor.dtype == "BF16";
  if (tensor.dtype != "F32" && !is_half && !is_bfloat) {
    return InvalidArgument(
        fmt::format("{}: a tensor is of type {}, expected F32, F16 or BF16", path_, tensor.dtype));
  }
  std::vector<uint16_t> halves(tensor.dtype == "F32" ? 0 : out.size());
  const auto bytes =
      halves.empty() ? std::as_writable_bytes(out) : std::as_writable_bytes(std::span(halves));
  PANDO_RETURN_IF_ERROR(shards_[tensor.shard]->Read(tensor.first_byte, bytes));
  for (size_t i = 0; i < halves.size(); ++i)
    out[i] = is_half ? FloatFromHalf(halves[i]) : std::bit_cast<float>(uint32_t{halves[i]} << 16);
  return Status();
}

// ---- a model's weights --------------------------------------------------------------------------

namespace {

constexpr const char* kHashKey = "weights_hash";

bool IsExported(const TensorSpec& spec) { return spec.kind != TensorKind::kMetric; }

// Returns the tensor's values in the flat vector, without padding.
template <class Float>
std::span<Float> ValuesIn(const TensorLayout& layout, size_t i, std::span<Float> flat) {
  return flat.subspan(layout.offset(i), layout.specs()[i].size());
}

std::string ShapeText(const std::vector<uint64_t>& shape) { return Json(shape).dump(); }

}  // namespace

bool IsBatchCount(std::string_view name) { return name.ends_with("num_batches_tracked"); }

std::string WeightsHash(const TensorLayout& layout, std::span<const float> flat) {
  PANDO_CHECK(flat.size() == layout.float_count());
  Hash128 hash;
  for (size_t i = 0; i < layout.tensor_count(); ++i) {
    if (IsExported(layout.specs()[i])) hash.Update(std::as_bytes(ValuesIn(layout, i, flat)));
  }
  return hash.Hex();
}

Status WriteWeights(const std::string& path, const TensorLayout& layout,
                    std::span<const float> flat, const SafetensorsMetadata& metadata,
                    FileAccess access) {
  PANDO_CHECK(flat.size() == layout.float_count());
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < layout.tensor_count(); ++i) {
    const TensorSpec& spec = layout.specs()[i];
    if (IsExported(spec)) tensors.push_back({spec.name, spec.shape, ValuesIn(layout, i, flat)});
  }
  SafetensorsMetadata all{{"format", "pt"}, {kHashKey, WeightsHash(layout, flat)}};
  all.insert(metadata.begin(), metadata.end());
  return WriteSafetensors(path, all, tensors, access);
}

Status CheckWeightsHash(const SafetensorsFile& file, const std::string& hash) {
  const auto named = file.metadata().find(kHashKey);
  if (named == file.metadata().end() || named->second == hash) return Status();
  return Corrupt(fmt::format(
      "{}: its values have the hash {}, and its metadata say {}: it was damaged or changed after "
      "it was written. Take another copy or a snapshot (--step); if the change is yours, write the "
      "file without {} in its metadata",
      file.path(), hash, named->second, kHashKey));
}

Result<FloatBuffer> ReadWeights(const std::string& path, const TensorLayout& layout) {
  PANDO_ASSIGN_OR_RETURN(const SafetensorsFile file,
                         SafetensorsFile::Open(path, SafetensorsFile::Types::kAll));
  return ReadWeights(file, layout);
}

Result<FloatBuffer> ReadWeights(const SafetensorsFile& file, const TensorLayout& layout) {
  const std::string& path = file.path();
  FloatBuffer flat(layout.float_count());
  for (size_t i = 0; i < layout.tensor_count(); ++i) {
    const TensorSpec& spec = layout.specs()[i];
    if (!IsExported(spec)) continue;
    const auto tensor = file.tensors().find(spec.name);
    if (tensor == file.tensors().end()) {
      return InvalidArgument(
          fmt::format("{} has no tensor '{}', which the model has", path, spec.name));
    }
    if (tensor->second.shape != spec.shape) {
      return InvalidArgument(fmt::format("{}: tensor '{}' has shape {}, and the model wants {}",
                                         path, spec.name, ShapeText(tensor->second.shape),
                                         ShapeText(spec.shape)));
    }
    PANDO_RETURN_IF_ERROR(file.Read(tensor->second, ValuesIn(layout, i, flat.span())));
  }
  for (const auto& [name, tensor] : file.tensors()) {
    if (layout.Find(name) != layout.tensor_count() || IsBatchCount(name)) continue;
    return InvalidArgument(fmt::format("{}: the model has no tensor '{}'", path, name));
  }
  PANDO_RETURN_IF_ERROR(CheckWeightsHash(file, WeightsHash(layout, std::as_const(flat).span())));
  return flat;
}

}  // namespace pando
