// The CPU's versions of the operations of kernels/ops.h, which documents them. kernels/ops.cc calls
// them through ChosenOperations(), after it has checked the shapes.
#pragma once

#include "kernels/ops.h"

namespace pando::cpu {

// An operation's type on the CPU: the type in ops.h without the device, with floats as elements.
template <class T>
struct OnCpuArgument {
  using Type = T;
};
template <>
struct OnCpuArgument<void*> {
  using Type = float*;
};
template <>
struct OnCpuArgument<const void*> {
  using Type = const float*;
};
template <template <class> class ArgsOf>
struct OnCpuArgument<const ArgsOf<void>&> {
  using Type = const ArgsOf<float>&;
};
template <class Operation>
struct OnCpuType;
template <class Result, class... Parameters>
struct OnCpuType<Result(Device, Parameters...)> {
  using Type = Result(typename OnCpuArgument<Parameters>::Type...);
};

#define PANDO_DECLARE(Name, ...) OnCpuType<decltype(pando::Name)>::Type Name;
PANDO_OPERATIONS_WITH_ARGS(PANDO_DECLARE)
PANDO_OTHER_OPERATIONS(PANDO_DECLARE)
#undef PANDO_DECLARE
#define PANDO_DECLARE(Operation) \
  OnCpuType<decltype(pando::Operation##ScratchBytes)>::Type Operation##ScratchBytes;
PANDO_OPERATIONS_WITH_SCRATCH(PANDO_DECLARE)
#undef PANDO_DECLARE
#define PANDO_DECLARE(Name, ...) using Name##Args = Name##ArgsOf<float>;
PANDO_OPERATIONS_WITH_ARGS(PANDO_DECLARE)
#undef PANDO_DECLARE
void ImportBatch(const DeviceBatch& batch, uint32_t channels, float* x, int32_t* labels);

// Returns the instruction set for which these operations are compiled: "x86-64-v4".
const char* InstructionSet();

// The table of the operations that are compiled for one CPU level (common/cpu/cpu_level.h).
struct Operations {
  decltype(cpu::InstructionSet)* InstructionSet = cpu::InstructionSet;
#define PANDO_DECLARE(Name, ...) decltype(cpu::Name)* Name = cpu::Name;
  PANDO_OPERATIONS_WITH_ARGS(PANDO_DECLARE)
  PANDO_OTHER_OPERATIONS(PANDO_DECLARE)
#undef PANDO_DECLARE
#define PANDO_DECLARE(Operation) \
  decltype(cpu::Operation##ScratchBytes)* Operation##ScratchBytes = cpu::Operation##ScratchBytes;
  PANDO_OPERATIONS_WITH_SCRATCH(PANDO_DECLARE)
#undef PANDO_DECLARE
  decltype(cpu::ImportBatch)* ImportBatch = cpu::ImportBatch;
};
const Operations& ChosenOperations();

}  // namespace pando::cpu
