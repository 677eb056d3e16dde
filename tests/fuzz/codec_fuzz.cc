// Messages of peers. An input is the number of frames, the size of each frame except the last, in
// words of 8 bytes, and then the frames.
#include <algorithm>

#include "common/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_file.h"
#include "tests/proto/message_samples.h"

namespace pando {
namespace {

constexpr size_t kSeedBytesMax = 4096;

Frames ToFrames(std::string_view input) {
  if (input.empty()) return {};
  const size_t count = static_cast<uint8_t>(input[0]) % 16;
  std::string_view sizes = input.substr(1, count);
  std::string_view rest = input.substr(std::min(1 + count, input.size()));
  Frames frames;
  for (size_t i = 0; i <= sizes.size(); ++i) {
    const bool is_last = i == sizes.size();
    const size_t size = is_last ? rest.size() : static_cast<uint8_t>(sizes[i]) * kWordBytes;
    const auto owner = std::make_shared<std::string>(rest.substr(0, size));
    frames.emplace_back(std::as_bytes(std::span(*owner)), owner);
    rest.remove_prefix(owner->size());
  }
  return frames;
}

// Empty: the frames have sizes that the format of inputs does not have.
std::string ToInput(const Frames& frames) {
  if (frames.empty() || frames.size() > 16) return "";
  std::string input(1, static_cast<char>(frames.size() - 1));
  for (size_t i = 0; i + 1 < frames.size(); ++i) {
    const size_t words = frames[i].size_bytes() / kWordBytes;
    if (words > UINT8_MAX) return "";
    input += static_cast<char>(words);
  }
  for (const Blob& frame : frames) {
    const auto bytes = frame.bytes();
    input.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return input;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const Envelope& envelope : SampleEnvelopes()) {
    const std::string input = ToInput(Encode(envelope));
    if (!input.empty() && input.size() <= kSeedBytesMax) seeds.push_back(input);
  }
  return seeds;
}

}  // namespace pando

// A decoded message encodes to frames that decode to the same message.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  const Result<Envelope> decoded = Decode(ToFrames(TextIn(data, size)));
  if (!decoded.ok()) {
    PANDO_CHECK(!decoded.status().message().empty());
    return 0;
  }
  const Result<Envelope> again = Decode(Encode(*decoded));
  PANDO_CHECK(again.ok() && Render(*again) == Render(*decoded));
  return 0;
}
