// These functions visit the fields of messages for the decoder, the encoder and JSON. `io` is their
// view of one generated struct, or of a JSON object. io(PANDO_WIRE(Name, member, limits), ...)
// reads each field into its member with all checks, or writes it. Most visitors are generated from
// pando.capnp, in the order of its lines, which decides where their bytes lie.
#pragma once

#include <algorithm>
#include <functional>
#include <string_view>
#include <tuple>

#include "proto/message_limits.h"
#include "proto/messages.h"
#include "proto/named_fields.h"

namespace pando {

// WireField is a generated field's accessors, the member for its value, and the member's limits.
template <class Get, class Set, class Init, class Adopt, class T, class... Limits>
struct WireField {
  std::string_view name;  // the member's
  Get get;
  Set set;
  Init init;
  Adopt adopt;
  T& member;
  std::tuple<Limits...> limits;
};
template <class Get, class Set, class Init, class Adopt, class T, class... Limits>
auto MakeWireField(const char* text, Get get, Set set, Init init, Adopt adopt, T& member,
                   Limits... limits) {
  return WireField<Get, Set, Init, Adopt, T, Limits...>{
      MemberName(text), get, set, init, adopt, member, {limits...}};
}
// A macro because the field's name is part of the names of its accessors.
#define PANDO_WIRE(Name, ...)                                        \
  MakeWireField(                                                     \
      #__VA_ARGS__, [](auto& r) { return r.get##Name(); },           \
      [](auto& w, const auto& value) { w.set##Name(value); },        \
      [](auto& w, auto... count) { return w.init##Name(count...); }, \
      [](auto& w, auto orphan) { w.adopt##Name(std::move(orphan)); }, __VA_ARGS__)

// `what` names the value in errors.
struct Limit {
  const char* what;
  uint64_t max;  // for a number, the bytes of a text, or the items of a list
};
template <class E>
struct LastOf {
  const char* what;
  E last;
};
template <class E>
LastOf(const char*, E) -> LastOf<E>;  // clang 14 does not deduce it

// SampleShape is a group of DataFacts.
void Visit(auto io, SampleShape& m) {
  io(PANDO_WIRE(Height, m.height), PANDO_WIRE(Width, m.width), PANDO_WIRE(Channels, m.channels));
}

// Visits a shared value as a value. The codec does not: it packs them.
template <class T>
void Visit(auto io, Shared<T>& m) {
  T value = *m;
  Visit(io, value);
  m = std::move(value);
}

// Visits messages without fields.
template <class Empty>
requires std::is_empty_v<Empty>
void Visit(auto, Empty&) {}

// ---- rules that concern several fields; the decoder checks them when it has read all of them ----

void CheckRules(auto&, const auto&) {}

void CheckRules(auto& io, const DataFacts& m) {
  io.Check(m.train_samples > 0 && m.class_count > 0 && m.shape.height > 0 && m.shape.width > 0 &&
               m.shape.channels > 0,
           "a data set without samples, classes or values");
}

void CheckRules(auto& io, const Chunk& m) {
  io.Check(std::ranges::adjacent_find(m.versions, std::greater_equal<>()) == m.versions.end(),
           "versions of an image that do not ascend");
  io.CheckAtMost("end of a chunk", m.offset + m.payload.size_bytes() / sizeof(float),
                 m.image_floats);
}

void CheckRules(auto& io, const SnapshotStoredItem& m) {
  // Receivers open the file only in the snapshot folder.
  io.Check(m.file.find('/') == std::string::npos, "a file name with a folder in it");
}

void CheckRules(auto& io, const Evaluate& m) {
  io.Check(m.first_sample <= m.last_sample, "an evaluation slice that ends before it begins");
}

}  // namespace pando

#include "proto/message_fields.h"
