// A field of a record: its name and its member. A record's function Visit(io, record) calls
// io(field, ...) with all of its fields, so that each reader and writer is written once. JSON is
// read and written in files/json_fields.h, which most files with records do not include.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pando {

// A reference to the member, or a value below that says how JSON has it.
template <class Member>
struct NamedField {
  std::string_view name;
  Member member;
};
template <class Member>
NamedField(std::string_view, Member&&) -> NamedField<Member>;  // of a reference stays one

// `text`: "m.name" or "m.name, limits".
constexpr std::string_view MemberName(std::string_view text) {
  return text.substr(2, text.find(',') - 2);
}
// A macro because the field's name is the member's.
#define PANDO_FIELD(member) \
  NamedField { MemberName(#member), member }

// An entry that is left out while there is no value.
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
// A text that is null where it is empty.
struct NullIfEmpty {
  std::string& text;
};
// A number that is null below 0: a time that is unknown.
struct NullBelowZero {
  double& number;
};
// A number that is null if it is not one, and a text ("inf", "-inf") if it is infinite. Other
// numbers that are not finite are null.
struct AnyNumber {
  double& number;
};

}  // namespace pando
