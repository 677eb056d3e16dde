// Decodes a kernel's PTX. An instruction that the interpreter does not know stops the process:
// nothing is skipped.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/ptx/kernel.h"
#include "tests/ptx/module.h"
#include "tests/ptx/operation.h"

namespace pando::ptx {

class KernelParser {
 public:
  explicit KernelParser(const Module& module) : module_(module) {}
  Kernel Parse(const std::string& name);

 private:
  void ParseHead(std::string_view head);
  void ParseParameter(std::string_view declaration);
  void ParseBody(std::string_view body);
  void ParseLine(std::string_view line);
  std::string SourcePlace(std::string_view numbers) const;
  void ParseStatement(std::string_view statement);
  void ParseRegisters(std::string_view declaration);
  void ParseVariable(std::string_view declaration, bool is_shared);
  void ParseInstruction(std::string_view text);
  void ParseOperands(Instruction& instruction, const Operation& operation,
                     const std::vector<std::string_view>& operands);
  bool ParseMemory(Instruction& instruction, std::string_view mnemonic,
                   const std::vector<std::string_view>& operands);
  bool ParseVectorMove(Instruction& instruction, std::string_view mnemonic,
                       const std::vector<std::string_view>& operands);
  void ParseAddress(Instruction& instruction, std::string_view text);
  Operand ParseOperand(std::string_view text, uint8_t bytes);
  Operand AddRegister(uint8_t bytes);
  Operand FindConstant(uint64_t bits, uint8_t bytes);
  Operand FindSpecial(std::string_view name);
  void ResolveBranches();
  [[noreturn]] void Fail(std::string_view what) const;

  const Module& module_;
  Kernel kernel_;
  std::unordered_map<std::string, Operand> registers_;
  std::unordered_map<std::string, uint64_t> symbols_;  // addresses of parameters and variables
  std::unordered_map<std::string, uint32_t> labels_;
  std::vector<std::pair<size_t, std::string>> branches_;  // instructions, and where they go
  std::map<std::pair<uint64_t, uint8_t>, Operand> constants_;
  std::map<std::string, std::string> callers_;  // of inlined places
  std::map<std::string, uint32_t> line_numbers_;
  uint32_t line_ = 0;
};

}  // namespace pando::ptx
