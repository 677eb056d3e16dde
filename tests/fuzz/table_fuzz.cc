// Tables with classes in the column "class". An input's first byte chooses what a missing value
// becomes and the kind of data set; the file follows.
#include <memory>

#include "common/check.h"
#include "data/kinds.h"
#include "plan/job.h"
#include "tests/fuzz/data_check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_file.h"

namespace pando {

std::vector<std::string> FuzzSeeds() { return {}; }

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  static InputFile input;
  if (size == 0) return 0;
  input.Write(TextIn(data + 1, size - 1));
  Job job;
  job.data_path = input.path();
  job.label = "class";
  job.missing = static_cast<MissingValues>(data[0] % kEnumNames<MissingValues>.size());
  CheckDataSet(OpenCsv(job, nullptr));
  if (IsSdss(job.data_path)) CheckDataSet(OpenSdss(job, nullptr));
  return 0;
}
