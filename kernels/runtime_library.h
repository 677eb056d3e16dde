// RuntimeLibrary: a shared library that is loaded when it is needed, not when a process starts.
// NVIDIA's are hundreds of megabytes that servers and CPU workers do not need, and a machine
// without them runs the same program. kernels/cuda, kernels/nvml and `pando doctor` use it.
// Threads: any. Owns: nothing; loaded libraries stay loaded.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>

#include "common/result.h"

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

  // Loads the first of these names that the loader finds. kNotFound: it finds none; the error says
  // why, and names the remedy.
  static Result<RuntimeLibrary> Load(std::initializer_list<const char*> names,
                                     const char* remedy = kRemedy);

  // Returns the library's function of this name. It converts to the type to which it is assigned.
  Function Find(const char* name);
  // kNotFound: the library lacks a function that Find searched, so it is another version.
  const Status& status() const { return status_; }

 private:
  RuntimeLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}

  std::string name_;
  void* handle_;
  Status status_;
};

// Loads a library and its functions. `Functions` derives from RuntimeLibrary and finds them:
//   decltype(cudnnCreate)* Create = Find("cudnnCreate");
// kNotFound: the library is missing, or has another version.
template <class Functions>
Result<Functions> LoadFunctions(std::initializer_list<const char*> names) {
  PANDO_ASSIGN_OR_RETURN(RuntimeLibrary library, RuntimeLibrary::Load(names));
  Functions functions{std::move(library)};
  if (!functions.status().ok()) return functions.status();
  return functions;
}

// Returns the text of a library's version, given as major · 10000 + minor · 100 + patch.
std::string Dotted(size_t version);

}  // namespace pando
