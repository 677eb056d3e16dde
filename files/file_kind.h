// Recognises the kind of a file by its first bytes, for the error of a reader that expected another
// kind. The readers of tables, pictures, weights and idx files call it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pando {

enum class FileUse : uint8_t { kTable, kPicture, kWeights, kIdx };
inline constexpr size_t kFileHeadBytes = 512;

// Returns for example "it is a Parquet file, expected a CSV file; ADVICE", or "" if the kind is
// unknown. `head` has the file's first bytes, up to kFileHeadBytes.
std::string NameOtherKind(std::string_view head, FileUse use);

}  // namespace pando
