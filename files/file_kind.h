// What a file is by its first bytes, for the error of a reader that expected another kind. Called
// by the readers of tables, pictures, weights and idx files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pando {

enum class FileUse : uint8_t { kTable, kPicture, kWeights, kIdx };
inline constexpr size_t kFileHeadBytes = 512;

// "it is a Parquet file, expected a CSV file; what to do next"; empty: it is no kind known here.
// `head`: the file's first bytes, up to kFileHeadBytes.
std::string NameOtherKind(std::string_view head, FileUse use);

}  // namespace pando
