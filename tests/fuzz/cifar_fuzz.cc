// CIFAR's files. All files of a data set are the same input.
#include <memory>
#include <numeric>

#include "common/check.h"
#include "data/kinds.h"
#include "plan/job.h"
#include "tests/fuzz/data_check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_file.h"

namespace pando {
namespace {

constexpr size_t kPictureBytes = 3072;

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const std::string ten = std::string(1, '\x09') + std::string(kPictureBytes, 'p');
  const std::string hundred = std::string("\x13\x63") + std::string(kPictureBytes, 'p');
  std::string names;
  for (int i = 0; i < 10; ++i) names += "name\n";
  return {ten, ten + ten, hundred, names};
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  static InputFile input;
  static const InputFolder folder;
  static const bool is_linked = [] {
    for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                             "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin",
                             "batches.meta.txt", "train.bin", "test.bin", "fine_label_names.txt"})
      folder.Link(name, input);
    return true;
  }();
  PANDO_CHECK(is_linked);
  input.Write(TextIn(data, size));
  Job job;
  job.data_path = folder.path();
  CheckDataSet(OpenCifar10(job, nullptr));
  CheckDataSet(OpenCifar100(job, nullptr));
  return 0;
}
