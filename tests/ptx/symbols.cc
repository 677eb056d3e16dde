#include "tests/ptx/symbols.h"

#include <elf.h>
#include <link.h>

#include <cstring>

#include "common/check.h"
#include "tests/ptx/module.h"

namespace pando::ptx {
namespace {

// By how much the program lies above the addresses in its file.
uint64_t LoadAddress() {
  uint64_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        *static_cast<uint64_t*>(to) = info->dlpi_addr;
        return 1;  // the first one is the program
      },
      &address);
  return address;
}

}  // namespace

Symbols::Symbols() {
  const std::string file = ReadText("/proc/self/exe");
  const auto read = [&file]<class T>(T& to, uint64_t offset) {
    PANDO_CHECK(offset + sizeof(T) <= file.size());
    std::memcpy(&to, file.data() + offset, sizeof(T));
  };
  Elf64_Ehdr header;
  read(header, 0);
  const uint64_t base = LoadAddress();
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section, strings;
    read(section, header.e_shoff + i * header.e_shentsize);
    if (section.sh_type != SHT_SYMTAB) continue;
    read(strings, header.e_shoff + section.sh_link * header.e_shentsize);
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      read(symbol, section.sh_offset + at);
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF)
        names_[base + symbol.st_value] = file.data() + strings.sh_offset + symbol.st_name;
    }
  }
}

const std::string& Symbols::Find(const void* function) const {
  const auto found = names_.find(reinterpret_cast<uint64_t>(function));
  PANDO_CHECK(found != names_.end());
  return found->second;
}

}  // namespace pando::ptx
