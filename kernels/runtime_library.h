// RuntimeLibrary: a shared library that is loaded when it is needed, not when a process starts.
// NVIDIA's are hundreds of megabytes that servers and CPU workers do not need, and a machine
// without them runs the same program. Used by kernels/cuda, kernels/nvml and `pando doctor`.
// Threads: any. Owns: nothing; loaded libraries stay loaded.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>

#include "common/status.h"

namespace pando {

class RuntimeLibrary {
 public:
  struct Function {
    template <class F>
    operator F*() const {  // NOLINT(google-explicit-constructor): converted where it is assigned
      return reinterpret_cast<F*>(address);
    }
    void* address;
  };
  static constexpr char kRemedy[] =
      "Install it where the GPU's driver is, or name its folder in LD_LIBRARY_PATH";

  // The first of these names that the loader finds.  kNotFound: none; the error says why, and names
  // the remedy.
  static Result<RuntimeLibrary> Load(std::initializer_list<const char*> names,
                                     const char* remedy = kRemedy);

  // The library's function of this name, as the type of function that it is assigned to.
  Function Find(const char* name);
  // kNotFound: it is another version, which lacks a function that was searched.
  const Status& status() const { return status_; }

 private:
  RuntimeLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}

  std::string name_;
  void* handle_;
  Status status_;
};

// The functions of a library. `Functions` derives from RuntimeLibrary and finds them:
//   decltype(cudnnCreate)* Create = Find("cudnnCreate");
// kNotFound: the library is missing, or has another version.
template <class Functions>
Result<Functions> LoadFunctions(std::initializer_list<const char*> names) {
  PANDO_ASSIGN_OR_RETURN(RuntimeLibrary library, RuntimeLibrary::Load(names));
  Functions functions{std::move(library)};
  if (!functions.status().ok()) return functions.status();
  return functions;
}

// A library's version as text, of major · 10000 + minor · 100 + patch.
std::string Dotted(size_t version);

}  // namespace pando
