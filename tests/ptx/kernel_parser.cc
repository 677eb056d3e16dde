#include "tests/ptx/kernel_parser.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdio>
#include <cstdlib>

namespace pando::ptx {
namespace {

constexpr size_t kSharedGapBytes = 256;  // finds accesses beyond an array

std::string_view Trim(std::string_view text) {
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// Takes the text before the first space.
std::string_view TakeWord(std::string_view& text) {
  text = Trim(text);
  const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
  const std::string_view word = text.substr(0, end);
  text = Trim(text.substr(end));
  return word;
}

// Splits at commas outside of brackets.
std::vector<std::string_view> SplitOperands(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && (text[i] == '{' || text[i] == '[')) ++depth;
    if (i < text.size() && (text[i] == '}' || text[i] == ']')) --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    if (const std::string_view part = Trim(text.substr(begin, i - begin)); !part.empty())
      parts.push_back(part);
    begin = i + 1;
  }
  return parts;
}

std::vector<std::string_view> VectorParts(std::string_view text) {
  if (text.front() != '{') return {text};
  return SplitOperands(text.substr(1, text.size() - 2));
}

// b64, f32, pred, ...: bytes of a lane.
uint8_t TypeBytes(std::string_view type) {
  if (type == "pred") return 0;
  return static_cast<uint8_t>(std::atoi(std::string(type.substr(1)).c_str()) / 8);
}

std::vector<std::string_view> SplitMnemonic(std::string_view mnemonic) {
  std::vector<std::string_view> parts;
  while (!mnemonic.empty()) {
    const size_t end = std::min(mnemonic.find('.'), mnemonic.size());
    parts.push_back(mnemonic.substr(0, end));
    mnemonic.remove_prefix(std::min(end + 1, mnemonic.size()));
  }
  return parts;
}

size_t AlignUp(size_t value, size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// NAME[BYTES], with an alignment and a type in front of it.
struct Declaration {
  std::string name;
  size_t alignment = 1;
  size_t size_bytes = 0;
};
Declaration ParseDeclaration(std::string_view text) {
  Declaration result;
  size_t element_bytes = 1;
  for (std::string_view word = TakeWord(text); !word.empty(); word = TakeWord(text)) {
    if (word == ".align") {
      result.alignment = std::stoul(std::string(TakeWord(text)));
    } else if (word == ".param" || word == ".shared" || word == ".local") {
    } else if (word.front() == '.') {
      element_bytes = TypeBytes(word.substr(1));
    } else {
      result.name = word;
    }
  }
  size_t count = 1;
  if (const size_t at = result.name.find('['); at != std::string::npos) {
    count = std::stoul(result.name.substr(at + 1));
    result.name.resize(at);
  }
  result.size_bytes = count * element_bytes;
  result.alignment = std::max(result.alignment, element_bytes);
  return result;
}

}  // namespace

Kernel KernelParser::Parse(const std::string& name) {
  const Module::Entry& entry = module_.entries().at(name);
  kernel_ = {};
  kernel_.name = name;
  kernel_.lines = {"an unknown place"};
  kernel_.hardware_registers = entry.hardware_registers;
  const size_t body = entry.text.find("\n{");
  ParseHead(entry.text.substr(0, body));
  ParseBody(entry.text.substr(body + 2, entry.text.size() - body - 3));
  ResolveBranches();
  return std::move(kernel_);
}

// NAME(.param ..., .param ...) and then limits.
void KernelParser::ParseHead(std::string_view head) {
  const size_t begin = head.find('(') + 1, end = head.find(')');
  for (const std::string_view parameter : SplitOperands(head.substr(begin, end - begin)))
    ParseParameter(parameter);
  static constexpr std::string_view kMost = ".maxntid";
  if (const size_t at = head.find(kMost); at != std::string_view::npos) {
    kernel_.threads_max = 1;
    const std::string_view limits = head.substr(at + kMost.size());
    for (const std::string_view part : SplitOperands(limits.substr(0, limits.find('\n'))))
      kernel_.threads_max *= static_cast<uint32_t>(std::stoul(std::string(part)));
  }
}

void KernelParser::ParseParameter(std::string_view declaration) {
  const Declaration parameter = ParseDeclaration(declaration);
  const size_t offset = AlignUp(kernel_.parameter_bytes, parameter.alignment);
  kernel_.parameters.push_back({offset, parameter.size_bytes});
  kernel_.parameter_bytes = offset + parameter.size_bytes;
  symbols_[parameter.name] = offset;
}

void KernelParser::ParseBody(std::string_view body) {
  while (!(body = Trim(body)).empty()) {
    const size_t line_end = std::min(body.find('\n'), body.size());
    if (body.starts_with("//")) {
      body.remove_prefix(line_end);
    } else if (body.starts_with(".loc\t")) {
      ParseLine(body.substr(0, line_end));
      body.remove_prefix(line_end);
    } else if (body.front() == '{' || body.front() == '}') {
      body.remove_prefix(1);
    } else if (const size_t colon = body.find(':'); colon < body.find_first_of(" \t\n;")) {
      labels_[std::string(body.substr(0, colon))] = static_cast<uint32_t>(kernel_.code.size());
      body.remove_prefix(colon + 1);
    } else {
      const size_t end = body.find(';');
      if (end == std::string_view::npos) Fail(body);
      ParseStatement(Trim(body.substr(0, end)));
      body.remove_prefix(end + 1);
    }
  }
}

// .loc FILE LINE COLUMN[, function_name LABEL, inlined_at FILE LINE COLUMN]. The place of the call
// had its line before, which says where that was inlined.
void KernelParser::ParseLine(std::string_view line) {
  static constexpr std::string_view kInlined = "inlined_at ";
  const std::string place(Trim(line.substr(4, line.find(',') - 4)));
  const size_t at = line.find(kInlined);
  callers_[place] = at == std::string_view::npos ? "" : Trim(line.substr(at + kInlined.size()));
  std::string text = SourcePlace(place);
  std::string caller = callers_[place];
  for (int depth = 0; !caller.empty() && depth < 8; ++depth) {
    text += ", inlined at " + SourcePlace(caller);
    caller = callers_[caller];
  }
  const auto [found, is_new] =
      line_numbers_.emplace(text, static_cast<uint32_t>(kernel_.lines.size()));
  if (is_new) kernel_.lines.push_back(text);
  line_ = found->second;
}

// FILE LINE COLUMN.
std::string KernelParser::SourcePlace(std::string_view numbers) const {
  const auto file = static_cast<uint32_t>(std::stoul(std::string(TakeWord(numbers))));
  const auto found = module_.files().find(file);
  const std::string name = found == module_.files().end() ? "an unknown file" : found->second;
  return name + ":" + std::string(TakeWord(numbers));
}

void KernelParser::ParseStatement(std::string_view statement) {
  if (statement.starts_with(".reg")) return ParseRegisters(statement);
  if (statement.starts_with(".shared")) return ParseVariable(statement, /*is_shared=*/true);
  if (statement.starts_with(".local")) return ParseVariable(statement, /*is_shared=*/false);
  if (statement.starts_with(".pragma")) return;
  if (statement.empty() || statement.front() == '.') Fail(statement);
  ParseInstruction(statement);
}

// .reg .f32 %f<15>: %f0 to %f14.
void KernelParser::ParseRegisters(std::string_view declaration) {
  TakeWord(declaration);
  const uint8_t bytes = TypeBytes(TakeWord(declaration).substr(1));
  for (const std::string_view each : SplitOperands(declaration)) {
    const size_t at = each.find('<');
    if (at == std::string_view::npos) {
      registers_[std::string(each)] = AddRegister(bytes);
      continue;
    }
    const std::string name(each.substr(0, at));
    const size_t count = std::stoul(std::string(each.substr(at + 1)));
    for (size_t i = 0; i < count; ++i) registers_[name + std::to_string(i)] = AddRegister(bytes);
  }
}

void KernelParser::ParseVariable(std::string_view declaration, bool is_shared) {
  const Declaration variable = ParseDeclaration(declaration);
  size_t& used_bytes = is_shared ? kernel_.shared_bytes : kernel_.local_bytes;
  const size_t offset = AlignUp(used_bytes, std::max<size_t>(variable.alignment, 16));
  symbols_[variable.name] = offset;
  used_bytes = offset + variable.size_bytes;
  if (!is_shared) return;
  kernel_.shared_variables.push_back({offset, variable.size_bytes});
  kernel_.shared_variable_bytes += variable.size_bytes;
  used_bytes += kSharedGapBytes;
}

void KernelParser::ParseInstruction(std::string_view text) {
  Instruction instruction;
  instruction.line = line_;
  std::string_view rest = text;
  std::string_view mnemonic = TakeWord(rest);
  if (mnemonic.front() == '@') {
    instruction.has_guard = true;
    instruction.guard_is_negated = mnemonic[1] == '!';
    instruction.guard = ParseOperand(mnemonic.substr(instruction.guard_is_negated ? 2 : 1), 0);
    mnemonic = TakeWord(rest);
  }
  std::vector<std::string_view> operands = SplitOperands(rest);
  if (!ParseMemory(instruction, mnemonic, operands) &&
      !ParseVectorMove(instruction, mnemonic, operands)) {
    const auto found = AllOperations().find(std::string(mnemonic));
    if (found == AllOperations().end()) Fail(text);
    instruction.run = found->second.run;
    instruction.control = found->second.control;
    if (instruction.control == Control::kBranch) {
      branches_.emplace_back(kernel_.code.size(), operands.at(0));
    } else {
      ParseOperands(instruction, found->second, operands);
    }
  }
  kernel_.code.push_back(instruction);
}

void KernelParser::ParseOperands(Instruction& instruction, const Operation& operation,
                                 const std::vector<std::string_view>& operands) {
  std::vector<std::string_view> parts;
  for (const std::string_view each : operands) {  // a result and a predicate: a|p
    const size_t bar = each.find('|');
    parts.push_back(each.substr(0, bar));
    if (bar != std::string_view::npos) parts.push_back(each.substr(bar + 1));
  }
  const size_t to_count = operation.to_bytes.size();
  if (parts.size() != to_count + operation.from_bytes.size()) Fail("the number of operands");
  for (size_t i = 0; i < to_count; ++i)
    instruction.to[instruction.to_count++] = ParseOperand(parts[i], operation.to_bytes[i]);
  for (size_t i = to_count; i < parts.size(); ++i)
    instruction.from[instruction.from_count++] =
        ParseOperand(parts[i], operation.from_bytes[i - to_count]);
}

// ld.SPACE.vN.TYPE a, [b+c] and st.SPACE.vN.TYPE [b+c], a.
bool KernelParser::ParseMemory(Instruction& instruction, std::string_view mnemonic,
                               const std::vector<std::string_view>& operands) {
  std::vector<std::string_view> parts = SplitMnemonic(mnemonic);
  if (parts[0] != "ld" && parts[0] != "st") return false;
  static const std::map<std::string_view, Space> kSpaces = {{"global", Space::kGlobal},
                                                            {"shared", Space::kShared},
                                                            {"local", Space::kLocal},
                                                            {"param", Space::kParameter}};
  MemoryOperation operation{.is_store = parts[0] == "st", .space = Space::kGeneric};
  size_t next = 1;
  if (const auto found = kSpaces.find(parts[next]); found != kSpaces.end()) {
    operation.space = found->second;
    ++next;
  }
  if (parts[next] == "nc") ++next;
  if (parts[next].front() == 'v')
    operation.vector_size = static_cast<uint32_t>(parts[next++][1] - '0');
  if (next + 1 != parts.size() || operands.size() != 2) Fail(mnemonic);
  operation.element_bytes = TypeBytes(parts[next]);
  operation.is_signed = parts[next].front() == 's';
  ParseAddress(instruction, operands[operation.is_store ? 0 : 1]);
  for (const std::string_view part : VectorParts(operands[operation.is_store ? 1 : 0])) {
    const auto found = registers_.find(std::string(part));
    const auto bytes = static_cast<uint8_t>(found != registers_.end() ? found->second.bytes
                                                                      : operation.element_bytes);
    operation.register_bytes = bytes;
    (operation.is_store ? instruction.from[instruction.from_count++]
                        : instruction.to[instruction.to_count++]) = ParseOperand(part, bytes);
  }
  if (operation.space != Space::kParameter && operation.space != Space::kLocal)
    kernel_.access_shift = std::min(
        kernel_.access_shift, static_cast<uint32_t>(std::countr_zero(operation.element_bytes)));
  instruction.run = FindMemoryHandler(operation);
  if (instruction.run == nullptr) Fail(mnemonic);
  return true;
}

bool KernelParser::ParseVectorMove(Instruction& instruction, std::string_view mnemonic,
                                   const std::vector<std::string_view>& operands) {
  if (!mnemonic.starts_with("mov.b") || operands.size() != 2) return false;
  if ((operands[0].front() == '{') == (operands[1].front() == '{')) return false;
  const uint8_t whole_bytes = TypeBytes(mnemonic.substr(4));
  const auto to = VectorParts(operands[0]), from = VectorParts(operands[1]);
  for (const std::string_view part : to)
    instruction.to[instruction.to_count++] =
        ParseOperand(part, static_cast<uint8_t>(whole_bytes / to.size()));
  for (const std::string_view part : from)
    instruction.from[instruction.from_count++] =
        ParseOperand(part, static_cast<uint8_t>(whole_bytes / from.size()));
  instruction.run = &MoveParts;
  return true;
}

// [%rd1+8], [NAME+8] or [NAME].
void KernelParser::ParseAddress(Instruction& instruction, std::string_view text) {
  if (text.front() != '[') Fail(text);
  text = text.substr(1, text.size() - 2);
  const size_t plus = text.find('+');
  const std::string base(Trim(text.substr(0, plus)));
  if (plus != std::string_view::npos)
    instruction.address_offset = std::stoll(std::string(text.substr(plus + 1)));
  if (const auto found = registers_.find(base); found != registers_.end()) {
    instruction.from[instruction.from_count++] = found->second;
  } else {
    instruction.from[instruction.from_count++] = ParseOperand(base, 8);
  }
}

Operand KernelParser::ParseOperand(std::string_view text, uint8_t bytes) {
  const std::string name(text);
  if (const auto found = registers_.find(name); found != registers_.end()) {
    if (found->second.bytes != bytes) Fail("an operand's size: " + name);
    return found->second;
  }
  if (const auto found = symbols_.find(name); found != symbols_.end())
    return FindConstant(found->second, bytes);
  if (text.front() == '%') return FindSpecial(text);
  const bool is_number = std::isxdigit(static_cast<unsigned char>(text.back())) != 0;
  if (!is_number || bytes == 0) Fail("an operand: " + name);
  if (text.starts_with("0f") || text.starts_with("0d"))
    return FindConstant(std::stoull(name.substr(2), nullptr, 16), bytes);
  return FindConstant(
      text.front() == '-' ? static_cast<uint64_t>(std::stoll(name)) : std::stoull(name, nullptr, 0),
      bytes);
}

Operand KernelParser::AddRegister(uint8_t bytes) {
  const size_t size_bytes = bytes == 0 ? sizeof(uint32_t) : size_t{bytes} * kWarpLanes;
  const size_t offset = AlignUp(kernel_.register_bytes, std::min<size_t>(size_bytes, 64));
  kernel_.register_bytes = offset + size_bytes;
  return {kernel_.register_number++, static_cast<uint32_t>(offset), bytes};
}

Operand KernelParser::FindConstant(uint64_t bits, uint8_t bytes) {
  const auto [found, is_new] = constants_.emplace(std::pair{bits, bytes}, Operand{});
  if (is_new) {
    found->second = AddRegister(bytes);
    kernel_.constants.push_back({found->second, bits});
  }
  return found->second;
}

Operand KernelParser::FindSpecial(std::string_view name) {
  static const std::map<std::string_view, Special> kNames = {
      {"%tid.x", Special::kThreadX},    {"%tid.y", Special::kThreadY},
      {"%tid.z", Special::kThreadZ},    {"%ntid.x", Special::kThreadsX},
      {"%ntid.y", Special::kThreadsY},  {"%ntid.z", Special::kThreadsZ},
      {"%ctaid.x", Special::kBlockX},   {"%ctaid.y", Special::kBlockY},
      {"%ctaid.z", Special::kBlockZ},   {"%nctaid.x", Special::kBlocksX},
      {"%nctaid.y", Special::kBlocksY}, {"%nctaid.z", Special::kBlocksZ},
      {"%laneid", Special::kLane}};
  const auto special = kNames.find(name);
  if (special == kNames.end()) Fail(name);
  const auto [found, is_new] = kernel_.specials.emplace(special->second, Operand{});
  if (is_new) found->second = AddRegister(sizeof(uint32_t));
  return found->second;
}

void KernelParser::ResolveBranches() {
  for (const auto& [place, label] : branches_) {
    const auto found = labels_.find(label);
    if (found == labels_.end()) Fail(label);
    kernel_.code[place].target = found->second;
  }
}

void KernelParser::Fail(std::string_view what) const {
  std::fprintf(stderr, "PTX: the interpreter does not know: %s, in %s\n", std::string(what).c_str(),
               kernel_.name.c_str());
  std::abort();
}

}  // namespace pando::ptx
