// The function that each *_fuzz.cc of this folder defines: a reader of the product, for inputs of
// any bytes. libFuzzer runs it (libfuzzer_main.cc, tools/fuzz.sh), and so does replay_main.cc in
// the ordinary build. A reader must return a Status for bytes that it does not accept. Crashes,
// exceptions, hangs, reports of sanitizers and a failed PANDO_CHECK are findings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// The name is libFuzzer's. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace pando {

// Accepted inputs, which the product's writers make. The files of corpus/TARGET join them: inputs
// of text formats, and those that once failed.
std::vector<std::string> FuzzSeeds();

}  // namespace pando
