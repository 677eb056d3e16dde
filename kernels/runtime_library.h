// RuntimeLibrary: a shared library that is loaded when it is needed, not when a process starts.
// NVIDIA's are hundreds of megabytes that servers and CPU workers do not need, and a machine
// without them runs the same program. Used by kernels/cuda, kernels/nvml and `pando doctor`.
// Threads: any. Owns: nothing; loaded libraries stay loaded.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>

#include "common/status.h"

namespace pando {

class RuntimeLibrary {
 public:
  // The first of these names that the loader finds.  kNotFound: none; the error says why.
  static Result<RuntimeLibrary> Load(std::initializer_list<const char*> names);

  // Sets *function to the library's function of this name.  kNotFound: it is another version.
  template <class F>
  Status Find(const char* name, F** function) const {
    void* found = nullptr;
    Status status = FindAddress(name, &found);
    *function = reinterpret_cast<F*>(found);
    return status;
  }

 private:
  RuntimeLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}
  Status FindAddress(const char* function, void** address) const;

  std::string name_;
  void* handle_;
};

// A library's version as text, of major · 10000 + minor · 100 + patch.
std::string Dotted(size_t version);

}  // namespace pando
