#include "tests/ptx/findings.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "common/check.h"

namespace pando::ptx {
namespace {

std::string Demangle(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  if (status != 0) return name;
  std::string demangled = text;
  std::free(text);
  return demangled;
}

void FailIfFound() {
  if (TheFindings().count() == 0) return;
  std::fprintf(stderr, "PTX: %llu findings\n",
               static_cast<unsigned long long>(TheFindings().count()));
  std::fflush(nullptr);
  _exit(kFoundExit);
}

}  // namespace

Findings::Findings() {
  void* memory =
      mmap(nullptr, sizeof(*count_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  PANDO_CHECK(memory != MAP_FAILED);
  count_ = new (memory) std::atomic<uint64_t>(0);
}

void Findings::Add(const std::string& kind, const std::string& kernel, const std::string& line,
                   const std::string& detail) {
  ++*count_;
  if (!printed_.emplace(kind, kernel, line).second) return;
  std::fprintf(stderr, "PTX finding: %s\n  at %s\n  in %s\n  %s\n", kind.c_str(), line.c_str(),
               kernel.empty() ? "the host's code" : Demangle(kernel).c_str(), detail.c_str());
}

Findings& TheFindings() {
  static Findings* findings = [] {
    std::atexit(FailIfFound);
    return new Findings;  // outlives every user's destructor
  }();
  return *findings;
}

}  // namespace pando::ptx
