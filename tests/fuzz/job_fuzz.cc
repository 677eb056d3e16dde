// Job files.
#include "common/check.h"
#include "job/job_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_file.h"

namespace pando {

std::vector<std::string> FuzzSeeds() { return {WriteJobText(Job())}; }

}  // namespace pando

// A job's text reads back as the same job.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  const Result<Job> job = ParseJobText(TextIn(data, size), "job.toml");
  if (!job.ok()) {
    PANDO_CHECK(!job.status().message().empty());
    return 0;
  }
  const std::string text = WriteJobText(*job);
  const Result<Job> again = ParseJobText(text, "job.toml");
  PANDO_CHECK(again.ok() && WriteJobText(*again) == text);
  return 0;
}
