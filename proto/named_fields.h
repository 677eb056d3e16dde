// NamedField is a field of a record: its name and its member. A record's function Visit(io, record)
// calls io(field, ...) with all of its fields, so that a reader or writer is written once for all
// records. files/json_fields.h reads and writes JSON; most files with records do not include it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pando {

// `member` is a reference, or one of the types below, which say how JSON has it.
template <class Member>
struct NamedField {
  std::string_view name;
  Member member;
};
template <class Member>
NamedField(std::string_view, Member&&) -> NamedField<Member>;  // keeps a reference as a reference

// Returns the name in `text`, which is "m.name" or "m.name, limits".
constexpr std::string_view MemberName(std::string_view text) {
  return text.substr(2, text.find(',') - 2);
}
// This is a macro, because the field's name is the member's name.
#define PANDO_FIELD(member) \
  NamedField { MemberName(#member), member }

// JSON has no entry if there is no value.
#define PANDO_OPTIONAL(member)              \
  NamedField {                              \
    MemberName(#member), LeftOut { member } \
  }

template <class T>
struct LeftOut {
  std::optional<T>& value;
};
template <class T>
LeftOut(std::optional<T>&) -> LeftOut<T>;
// JSON has null for an empty text.
struct NullIfEmpty {
  std::string& text;
};
// JSON has null for a number below 0, such as an unknown time.
struct NullBelowZero {
  double& number;
};
// JSON has "inf" or "-inf" for an infinite number, and null for NaN.
struct AnyNumber {
  double& number;
};

}  // namespace pando
