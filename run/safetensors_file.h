// Tensors as files: safetensors, fp32 (https://huggingface.co/docs/safetensors). Weights are
// written with PyTorch's names, shapes and layouts, without the metric tensor and the padding
// between tensors. Snapshots are written by shard (run/snapshot_store). The reader trusts no byte:
// each error names the file, the place and what was expected there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/atomic_file.h"
#include "common/float_buffer.h"
#include "common/result.h"
#include "files/run_files.h"
#include "plan/tensor_layout.h"

namespace pando {

// ---- writing ------------------------------------------------------------------------------------

struct NamedTensor {
  std::string name;
  std::vector<uint64_t> shape;
  std::span<const float> values;  // as many values as the shape says
};
using SafetensorsMetadata = std::map<std::string, std::string>;

// Writes the file atomically, with tensors in this order. REQUIRES: names are unique.
Status WriteSafetensors(RunFiles& files, const std::string& name,
                        const SafetensorsMetadata& metadata, std::span<const NamedTensor> tensors);
Status WriteSafetensors(const std::string& path, const SafetensorsMetadata& metadata,
                        std::span<const NamedTensor> tensors,
                        FileAccess access = FileAccess::kAsFolder);

// ---- reading ------------------------------------------------------------------------------------

class SafetensorsFile {
 public:
  static constexpr uint64_t kHeaderBytesMax = 16 << 20;  // the header of 4,096 shards has 0.6 MB
  struct Tensor {
    std::vector<uint64_t> shape;
    uint64_t float_count = 0;
    uint64_t first_byte = 0;  // within the file
    uint64_t byte_count = 0;
    std::string dtype;
    size_t shard = 0;  // the index of the file that has it
  };
  enum class Types : uint8_t { kFp32, kAll };

  // Reads and checks the header: only these types, sizes as shapes say, and tensors one after
  // another without gap or overlap up to the end of the file. kAll also allows types that Pando
  // does not know, with the sizes that the file says.
  // `path` may name shards (FindWeightsFile), whose tensors are read like those of one file.
  static Result<SafetensorsFile> Open(const std::string& path, Types types = Types::kFp32);
  // Opens a file of `files`, which outlives the result.
  static Result<SafetensorsFile> Open(RunFiles& files, const std::string& name,
                                      Types types = Types::kFp32);

  const std::string& path() const { return path_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  // Reads a tensor of this file as floats. Types other than F32, F16 and BF16 are kInvalidArgument.
  // REQUIRES: out.size() == tensor.float_count.
  Status Read(const Tensor& tensor, std::span<float> out) const;

 private:
  explicit SafetensorsFile(std::string path) : path_(std::move(path)) {}
  // `path` names the file in errors.
  static Result<SafetensorsFile> Read(std::string path, Result<std::unique_ptr<ReadableFile>> file,
                                      Types types);
  // Opens the files that an index names.
  static Result<SafetensorsFile> OpenShards(const std::string& index, Types types);
  Status AddShard(SafetensorsFile shard, const std::vector<std::string>& tensors);
  Status ReadHeader(Types types);

  std::string path_;
  std::vector<std::unique_ptr<ReadableFile>> shards_;
  SafetensorsMetadata metadata_;
  std::map<std::string, Tensor> tensors_;
};

// ---- a model's weights --------------------------------------------------------------------------

// Returns whether this is a batch count of PyTorch's batch norms, which changes no result.
bool IsBatchCount(std::string_view name);

// Returns xxh3-128, canonical hex, over the fp32 bytes of all tensors in model order.
// REQUIRES: flat.size() == layout.float_count().
std::string WeightsHash(const TensorLayout& layout, std::span<const float> flat);

// Writes weights with `metadata`, their hash and what PyTorch's readers expect. REQUIRES: as above.
Status WriteWeights(const std::string& path, const TensorLayout& layout,
                    std::span<const float> flat, const SafetensorsMetadata& metadata = {},
                    FileAccess access = FileAccess::kAsFolder);

// Checks the hash of the file's weights. kCorrupt: the file names another one.
Status CheckWeightsHash(const SafetensorsFile& file, const std::string& hash);

// Returns the flat vector of a file that has exactly the layout's tensors, apart from PyTorch's
// counts of batches; metrics and padding are zero. F16 and BF16 become floats. kCorrupt: the values
// do not have the hash that the file names.
Result<FloatBuffer> ReadWeights(const std::string& path, const TensorLayout& layout);
Result<FloatBuffer> ReadWeights(const SafetensorsFile& file, const TensorLayout& layout);

}  // namespace pando
