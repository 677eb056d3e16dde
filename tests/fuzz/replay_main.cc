// The program of a fuzz target in the ordinary build: replays the target's seeds and corpus, then
// inputs that it makes of them by random mutations. A round's number determines its input.
//
//   fuzz_TARGET CORPUS [--rounds=N] [--first=ROUND]    the first N rounds, or those from ROUND
//   fuzz_TARGET CORPUS --first=ROUND --write=FILE      writes that round's input
//
// The rounds run in a child process, so that the parent can name the one that failed.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "common/text.h"
#include "tests/fuzz/fuzz_target.h"

namespace pando {
namespace {

constexpr size_t kInputBytesMax = 64 << 10;
constexpr uint64_t kMutationsMax = 8;

// ---- inputs -------------------------------------------------------------------------------------

// The seeds, and the files of the folder by name. A folder that does not exist has none.
std::vector<std::string> ReadCorpus(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<std::string> inputs = FuzzSeeds();
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    PANDO_CHECK(file);
  }
  PANDO_CHECK(!inputs.empty());
  return inputs;
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& corpus, uint64_t round)
      : corpus_(corpus), random_(round) {}

  std::string Make() {
    input_ = AnyInput();
    for (uint64_t left = 1 + Below(kMutationsMax); left > 0; --left) Mutate();
    if (input_.size() > kInputBytesMax) input_.resize(kInputBytesMax);
    return std::move(input_);
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  const std::string& AnyInput() { return corpus_[Below(corpus_.size())]; }
  size_t Place() { return Below(input_.size() + 1); }
  size_t Length() { return 1 + Below(Below(4) == 0 ? 256 : 8); }
  char AnyByte() { return static_cast<char>(random_()); }

  void Mutate() {
    switch (Below(8)) {
      case 0:
        if (!input_.empty()) input_[Below(input_.size())] ^= static_cast<char>(1 << Below(8));
        return;
      case 1:
        if (!input_.empty()) input_[Below(input_.size())] = AnyByte();
        return;
      case 2:
        return WriteNumber();
      case 3:
        input_.insert(Place(), std::string(Length(), AnyByte()));
        return;
      case 4:
        input_.erase(Place(), Length());
        return;
      case 5: {  // a part of another input
        const std::string& from = AnyInput();
        input_.insert(Place(), from.substr(Below(from.size() + 1), Length()));
        return;
      }
      case 6: {  // a part of this one again
        const std::string part = input_.substr(Place(), Length());
        input_.insert(Place(), part);
        return;
      }
      default:
        if (Below(4) == 0) input_.resize(Place());
    }
  }

  // An edge value of 1 to 8 bytes, in either byte order.
  void WriteNumber() {
    constexpr uint64_t kEdges[] = {0,          1,          0x7f,       0x80,       0xff,
                                   0x7fff,     0xffff,     0x10000,    0x7fffffff, 0x80000000,
                                   0xffffffff, 1ull << 32, 1ull << 62, INT64_MAX,  UINT64_MAX};
    const size_t size = size_t{1} << Below(4);
    if (input_.size() < size) return;
    const uint64_t edge = kEdges[Below(std::size(kEdges))];
    char bytes[sizeof(edge)];
    std::memcpy(bytes, &edge, sizeof(edge));
    if (Below(2) == 0) std::reverse(bytes, bytes + size);
    std::memcpy(&input_[Below(input_.size() - size + 1)], bytes, size);
  }

  const std::vector<std::string>& corpus_;
  std::mt19937_64 random_;
  std::string input_;
};

// The first rounds replay the corpus as it is.
std::string InputFor(const std::vector<std::string>& corpus, uint64_t round) {
  return round < corpus.size() ? corpus[round] : Mutator(corpus, round).Make();
}

// ---- the rounds ---------------------------------------------------------------------------------

struct Options {
  std::string corpus;
  uint64_t round_count = 0;
  uint64_t first_round = 0;
  std::string write_to;
};

// Beyond `size` sanitizers find reads.
void RunOne(const std::string& input) {
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

void RunAll(const std::vector<std::string>& corpus, const Options& options, uint64_t* round) {
  for (uint64_t i = 0; i < options.round_count; ++i) {
    *round = options.first_round + i;
    RunOne(InputFor(corpus, *round));
  }
}

int Replay(const std::vector<std::string>& corpus, const Options& options,
           const char* program_name) {
  auto* round = static_cast<uint64_t*>(
      mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  PANDO_CHECK(round != MAP_FAILED);
  const pid_t child = fork();
  PANDO_CHECK(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    RunAll(corpus, options, round);
    std::exit(0);
  }
  int status = 0;
  PANDO_CHECK(waitpid(child, &status, 0) == child);
  if (status == 0) {
    std::cout << corpus.size() << " inputs, " << options.round_count << " rounds\n";
    return 0;
  }
  std::cerr << "round " << *round << " failed (" << (WIFSIGNALED(status) ? "signal " : "exit ")
            << (WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)) << "); repeat it:\n"
            << "  " << program_name << " " << options.corpus << " --first=" << *round
            << " --rounds=1    # --write=FILE instead of --rounds writes the input\n";
  return 1;
}

bool Parse(int count, char** words, Options* options) {
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    const std::string_view value = word.substr(std::min(word.find('=') + 1, word.size()));
    uint64_t* number = word.starts_with("--rounds=")  ? &options->round_count
                       : word.starts_with("--first=") ? &options->first_round
                                                      : nullptr;
    if (number != nullptr) {
      const auto parsed = ParseNumber<uint64_t>(value);
      if (!parsed) return false;
      *number = *parsed;
    } else if (word.starts_with("--write=")) {
      options->write_to = value;
    } else if (options->corpus.empty()) {
      options->corpus = word;
    } else {
      return false;
    }
  }
  return !options->corpus.empty();
}

int Main(int count, char** words) {
  Options options;
  if (!Parse(count, words, &options)) {
    std::cerr << "usage: " << words[0] << " CORPUS [--rounds=N] [--first=ROUND] [--write=FILE]\n";
    return 2;
  }
  const std::vector<std::string> corpus = ReadCorpus(options.corpus);
  if (options.write_to.empty()) {
    options.round_count = std::max<uint64_t>(options.round_count, 1);
    return Replay(corpus, options, words[0]);
  }
  std::ofstream(options.write_to, std::ios::binary) << InputFor(corpus, options.first_round);
  return 0;
}

}  // namespace
}  // namespace pando

int main(int count, char** words) { return pando::Main(count, words); }
