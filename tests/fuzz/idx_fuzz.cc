// IDX files, plain and compressed. The first byte of an input chooses.
#include "common/check.h"
#include "data/kinds.h"
#include "tests/data/idx_files.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_file.h"

namespace pando {
namespace {

std::string ToInput(char kind, const Bytes& file) {
  return kind + std::string(file.begin(), file.end());
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const Bytes pictures = PicturesFile(4), labels = LabelsFile({0, 9, 3});
  return {ToInput('p', pictures), ToInput('p', labels), ToInput('z', Gzip(pictures)),
          ToInput('z', Gzip(labels))};
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  static InputFile input;
  static const InputFolder folder;
  static const std::string compressed = folder.Link("input.gz", input);
  constexpr uint32_t kClassCount = 10;
  if (size == 0) return 0;
  input.Write(TextIn(data + 1, size - 1));
  const std::string path = data[0] % 2 == 0 ? input.path() : compressed;
  if (const auto pictures = ReadIdxPictures(path); pictures.ok()) {
    PANDO_CHECK(pictures->pixels.size() ==
                uint64_t{pictures->count} * pictures->height * pictures->width);
  }
  if (const auto labels = ReadIdxLabels(path, kClassCount); labels.ok()) {
    for (const uint8_t label : *labels) PANDO_CHECK(label < kClassCount);
  }
  return 0;
}
