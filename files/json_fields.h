// Writes records as JSON and reads them back: an object with an entry for each field that the
// record's function Visit names (proto/named_fields.h). Incarnations and jobs are 16 hex digits,
// enums are names, and a number that is not finite is null. It serves stored and shown records.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/hash.h"
#include "common/ids.h"
#include "common/status.h"
#include "common/text.h"
#include "files/json_depth.h"
#include "proto/named_fields.h"

namespace pando {

using OrderedJson = nlohmann::ordered_json;  // keeps the order of the fields

template <class T>
concept HasFields = requires(T& value) {
  Visit([](const auto&...) {}, value);
};
template <class T>
concept IsId = requires {
  typename T::rep;
};
template <class T>
concept IsHexId = std::same_as<T, Incarnation> || std::same_as<T, JobId>;
template <class T>
concept IsOptional = requires(T& value) {
  value.has_value();
};
template <class T>
concept IsList =
    std::ranges::range<T> && !std::same_as<T, std::string> && !std::same_as<T, OrderedJson>;

// ---- writing ------------------------------------------------------------------------------------

// Writes text directly, because the journal writes many records of which few have changed.
class JsonWriter {
 public:
  template <class T>
  void Write(const T& value) {
    if constexpr (HasFields<T>) {
      text_ += '{';
      Visit(FieldsOf{*this}, const_cast<T&>(value));  // Visit serves the reader too
      text_ += '}';
    } else if constexpr (IsHexId<T>) {
      Write(HexText(value.value()));
    } else if constexpr (IsId<T>) {
      Write(value.value());
    } else if constexpr (std::is_enum_v<T>) {
      Write(std::string(EnumName(value)));
    } else if constexpr (std::same_as<T, NullBelowZero>) {
      value.number < 0 ? Write(nullptr) : Write(value.number);
    } else if constexpr (std::same_as<T, NullIfEmpty>) {
      value.text.empty() ? Write(nullptr) : Write(value.text);
    } else if constexpr (std::same_as<T, AnyNumber>) {
      if (!std::isinf(value.number)) return Write(value.number);
      Write(std::string(value.number < 0 ? "-inf" : "inf"));
    } else if constexpr (IsOptional<T>) {
      value ? Write(*value) : Write(nullptr);
    } else if constexpr (std::integral<T> && !std::same_as<T, bool>) {
      text_ += fmt::format_int(value).c_str();
    } else if constexpr (IsList<T>) {
      text_ += '[';
      for (const auto& item : value) {
        if (text_.back() != '[') text_ += ',';
        Write(item);
      }
      text_ += ']';
    } else {  // replaces bytes that are not UTF-8
      text_ += OrderedJson(value).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    }
  }

  std::string TakeText() { return std::move(text_); }

 private:
  struct FieldsOf {
    JsonWriter& writer;
    void operator()(const auto&... fields) const { (writer.WriteField(fields), ...); }
  };
  void WriteField(const auto& field) { WriteField(field.name, field.member); }
  template <class T>
  void WriteField(std::string_view name, const T& member) {
    if (text_.back() != '{') text_ += ',';
    text_ += fmt::format("\"{}\":", name);
    Write(member);
  }
  template <class T>
  void WriteField(std::string_view name, const LeftOut<T>& member) {
    if (member.value) WriteField(name, *member.value);
  }

  std::string text_;
};

template <class T>
std::string JsonText(const T& value) {
  JsonWriter writer;
  writer.Write(value);
  return writer.TakeText();
}

template <class T>
OrderedJson ToJson(const T& value) {
  return OrderedJson::parse(JsonText(value));
}

// ---- reading ------------------------------------------------------------------------------------

// If a field has no entry, the reader reports an error, or the field keeps its value. The latter is
// for files that another release may have written.
enum class Missing : uint8_t { kError, kKept };

// Reads a value. status() is the first field that does not fit: "peer.node: expected ...".
class JsonReader {
 public:
  using Json = nlohmann::json;

  explicit JsonReader(Missing missing) : missing_(missing) {}

  template <class T>
  void Read(const Json& json, T& value) {
    using Value = std::remove_const_t<T>;
    if (!status_.ok()) return;
    if constexpr (HasFields<T>) {
      if (Expect(json.is_object(), json, "an object")) Visit(FieldsOf{*this, json}, value);
    } else if constexpr (IsHexId<Value>) {
      const auto number = json.is_string() ? ParseHex(json.get<std::string>()) : std::nullopt;
      if (Expect(number.has_value(), json, "hex digits")) value = T(*number);
    } else if constexpr (IsId<Value>) {
      typename T::rep number{};
      Read(json, number);
      value = T(number);
    } else if constexpr (std::is_enum_v<Value>) {
      const auto known = json.is_string() ? ParseEnum<T>(json.get<std::string>()) : std::nullopt;
      const std::vector<std::string> names(kEnumNames<T>.begin(), kEnumNames<T>.end());
      if (Expect(known.has_value(), json, "one of " + Joined(names))) value = *known;
    } else if constexpr (std::same_as<Value, NullBelowZero>) {
      value.number = -1;
      if (!json.is_null()) Read(json, value.number);
    } else if constexpr (std::same_as<Value, NullIfEmpty>) {
      value.text.clear();
      if (!json.is_null()) Read(json, value.text);
    } else if constexpr (std::same_as<Value, AnyNumber>) {
      const bool is_infinite = json == "inf" || json == "-inf";
      if (!is_infinite) return Read(json, value.number);
      value.number = json == "inf" ? HUGE_VAL : -HUGE_VAL;
    } else if constexpr (IsOptional<Value>) {
      value.reset();
      if (!json.is_null()) Read(json, value.emplace());
    } else if constexpr (std::same_as<Value, bool>) {
      if (Expect(json.is_boolean(), json, "true or false")) json.get_to(value);
    } else if constexpr (std::integral<Value>) {
      ReadInteger(json, value);
    } else if constexpr (std::floating_point<Value>) {
      value = std::numeric_limits<T>::quiet_NaN();
      if (!json.is_null() && Expect(json.is_number(), json, "a number")) json.get_to(value);
    } else if constexpr (std::same_as<Value, std::string>) {
      if (Expect(json.is_string(), json, "a text")) json.get_to(value);
    } else {
      ReadList(json, value);
    }
  }

  const Status& status() const { return status_; }

 private:
  struct FieldsOf {
    JsonReader& reader;
    const Json& json;
    void operator()(const auto&... fields) const {
      (reader.ReadField(json, fields.name, fields.member), ...);
    }
  };

  template <class T>
  void ReadAt(const std::string& place, const Json& json, T& value) {
    const size_t before = path_.size();
    path_ += place;
    Read(json, value);
    path_.resize(before);
  }

  template <class T>
  void ReadField(const Json& json, std::string_view name, T& member) {
    const std::string place = (path_.empty() ? "" : ".") + std::string(name);
    const auto found = json.find(name);
    if (found != json.end()) return ReadAt(place, *found, member);
    if (missing_ == Missing::kError) Fail(path_ + place, "is missing");
  }
  template <class T>
  void ReadField(const Json& json, std::string_view name, const LeftOut<T>& member) {
    member.value.reset();
    if (json.contains(name)) ReadField(json, name, member.value.emplace());
  }

  template <class T>
  void ReadList(const Json& json, std::vector<T>& items) {
    items.clear();
    if (!Expect(json.is_array(), json, "a list")) return;
    for (size_t i = 0; i < json.size(); ++i)
      ReadAt(fmt::format("[{}]", i), json[i], items.emplace_back());
  }
  template <class T, size_t kCount>
  void ReadList(const Json& json, std::array<T, kCount>& items) {
    if (!Expect(json.is_array() && json.size() == kCount, json,
                fmt::format("a list of {}", kCount)))
      return;
    for (size_t i = 0; i < kCount; ++i) ReadAt(fmt::format("[{}]", i), json[i], items[i]);
  }

  template <class T>
  void ReadInteger(const Json& json, T& number) {
    if (!Expect(json.is_number_integer(), json, "a whole number")) return;
    const bool fits = json.is_number_unsigned() ? std::in_range<T>(json.get<uint64_t>())
                                                : std::in_range<T>(json.get<int64_t>());
    if (!fits) return Fail(path_, json.dump() + " is out of range");
    json.get_to(number);
  }

  bool Expect(bool is_right, const Json& json, const std::string& expected) {
    if (!is_right) Fail(path_, fmt::format("expected {}, found {}", expected, Found(json)));
    return is_right;
  }
  static std::string Found(const Json& json) {
    return Printable(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  void Fail(const std::string& path, const std::string& text) {
    if (status_.ok()) status_ = Corrupt(path.empty() ? text : path + ": " + text);
  }

  const Missing missing_;
  std::string path_;  // the place of the value in the text
  Status status_;
};

// Reads the value that the JSON is.
template <class T>
Status FromJson(const nlohmann::json& json, T* value, Missing missing = Missing::kError) {
  JsonReader reader(missing);
  reader.Read(json, *value);
  return reader.status();
}
// Reads the value that the text holds.
template <class T>
Status ReadJson(std::string_view text, T* value, Missing missing = Missing::kError) {
  if (IsDeepJson(text)) return Corrupt("its JSON is nested too deeply");
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Corrupt("expected JSON, found " + Printable(text));
  return FromJson(json, value, missing);
}

}  // namespace pando
