#include "models/zoo.h"

#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <variant>
#include <vector>

#include "common/text.h"
#include "models/toml_depth.h"

namespace pando {
namespace {

constexpr size_t kLayersMax = 2000;
constexpr size_t kNameBytesMax = 200;
constexpr const char* kClasses = "classes";

std::string NodeText(const toml::node& node) {
  std::ostringstream text;
  node.visit([&](const auto& typed) { text << typed; });
  return Printable(text.str());
}

// TableReader takes a table's keys one by one, and keeps the first error.
class TableReader {
 public:
  TableReader(const toml::table& table, const std::string& file_name, std::string what)
      : table_(table), file_name_(file_name), what_(std::move(what)) {}

  void set_what(std::string what) { what_ = std::move(what); }
  bool Has(const char* key) const { return table_.contains(key); }

  std::string Text(const char* key) {
    std::string text;
    if (const toml::node* node = Require(key); node != nullptr) {
      Set(key, *node, node->value_exact<std::string>(), "a text", &text);
    }
    return text;
  }

  void Count(const char* key, uint32_t min, uint32_t max, uint32_t* out) {
    if (const toml::node* node = Take(key); node != nullptr) {
      Set(key, *node, WholeNumber(*node, min, max),
          fmt::format("a whole number, at least {} and at most {}", min, max), out);
    }
  }

  // Reads a number of channels or features, or "classes".
  void Units(const char* key, uint32_t class_count, uint32_t* out) {
    const toml::node* node = Require(key);
    if (node == nullptr) return;
    const bool is_classes = node->value_exact<std::string>() == kClasses;
    Set(key, *node, is_classes ? class_count : WholeNumber(*node, 1, kUnitsMax),
        fmt::format("\"{}\" or a whole number, at least 1 and at most {}", kClasses, kUnitsMax),
        out);
  }

  void Real(const char* key, float* out) {
    const toml::node* node = Take(key);
    if (node == nullptr) return;
    auto value = node->is_boolean() ? std::nullopt : node->value<double>();
    if (value && !(std::abs(*value) <= std::numeric_limits<float>::max())) value.reset();
    Set(key, *node, value, "a finite number", out);
  }

  void Flag(const char* key, bool* out) {
    if (const toml::node* node = Take(key); node != nullptr) {
      Set(key, *node, node->value_exact<bool>(), "true or false", out);
    }
  }

  void Names(const char* key, std::vector<std::string>* out) {
    const toml::node* node = Take(key);
    if (node == nullptr) return;
    if (const toml::array* array = node->as_array(); array != nullptr && !array->empty()) {
      for (const toml::node& element : *array) {
        auto name = element.value_exact<std::string>();
        if (!name) return Expected(key, *node, "a list of layers' names");
        out->push_back(*name);
      }
      return;
    }
    Expected(key, *node, "a list of layers' names");
  }

  // Returns the index of the text among `choices`.
  size_t Choice(const char* key, const std::vector<std::string>& choices, const std::string& text) {
    const auto at = std::ranges::find(choices, text);
    if (at != choices.end()) return static_cast<size_t>(at - choices.begin());
    std::string hint = DidYouMean(text, choices);
    if (hint.empty()) hint = "it is one of " + Joined(choices);
    Fail(table_, fmt::format("unknown {} '{}'; {}", key, Printable(text), hint));
    return 0;
  }

  const toml::node* Require(const char* key) {
    const toml::node* node = Take(key);
    if (node == nullptr) Fail(table_, fmt::format("{} is missing", key));
    return node;
  }
  const toml::node* Take(const char* key) {
    known_.insert(key);
    return table_.get(key);
  }

  void Fail(const toml::node& at, const std::string& message) {
    if (!status_.ok()) return;
    status_ = InvalidArgument(
        fmt::format("{}:{}: {}{}", file_name_, at.source().begin.line, what_, message));
  }

  // Returns the first error. A key that was not taken is an error.
  Status Finish() {
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (known_.contains(name)) continue;
      const std::vector<std::string> known(known_.begin(), known_.end());
      std::string hint = DidYouMean(name, known);
      if (hint.empty()) hint = "it takes " + Joined(known);
      Fail(node, fmt::format("unknown key '{}'; {}", Printable(name), hint));
    }
    return status_;
  }

 private:
  static std::optional<int64_t> WholeNumber(const toml::node& node, uint32_t min, uint32_t max) {
    const auto value = node.value_exact<int64_t>();
    return value && *value >= min && *value <= max ? value : std::nullopt;
  }
  template <class From, class To>
  void Set(const char* key, const toml::node& node, const std::optional<From>& value,
           const std::string& wanted, To* out) {
    if (!value) return Expected(key, node, wanted);
    *out = static_cast<To>(*value);
  }
  void Expected(const char* key, const toml::node& node, const std::string& wanted) {
    Fail(node, fmt::format("{} must be {}, got {}", key, wanted, NodeText(node)));
  }

  const toml::table& table_;
  const std::string& file_name_;
  std::string what_;  // "layer 'conv1': "
  std::set<std::string> known_;
  Status status_;
};

void ReadInit(TableReader& reader, const char* key, WeightInit* out) {
  if (reader.Take(key) == nullptr) return;
  const std::vector<std::string> names{"uniform", "kaiming_normal", "normal"};  // of WeightInit
  *out = static_cast<WeightInit>(reader.Choice(key, names, reader.Text(key)));
}

void ReadKey(TableReader& reader, const LayerKey& key, uint32_t class_count, LayerSpec* spec) {
  using Rule = LayerKey::Rule;
  if (key.rule == Rule::kOfNormalInit && spec->init != WeightInit::kNormal) return;
  if (key.rule == Rule::kRequired) reader.Require(key.name);
  if (const auto* count = std::get_if<uint32_t LayerSpec::*>(&key.field)) {
    uint32_t* out = &(spec->**count);
    if (key.rule == Rule::kUnits) return reader.Units(key.name, class_count, out);
    if (key.rule == Rule::kWindowIfAbsent) *out = spec->window;
    reader.Count(key.name, key.min, key.max, out);
  } else if (const auto* real = std::get_if<float LayerSpec::*>(&key.field)) {
    reader.Real(key.name, &(spec->**real));
  } else if (const auto* flag = std::get_if<bool LayerSpec::*>(&key.field)) {
    reader.Flag(key.name, &(spec->**flag));
  } else {
    ReadInit(reader, key.name, &(spec->*std::get<WeightInit LayerSpec::*>(key.field)));
  }
}

bool IsName(const std::string& name) {
  const char* const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= kNameBytesMax &&
         name.find_first_not_of(allowed) == std::string::npos;
}

Result<LayerSpec> ReadLayer(const toml::table& table, const std::string& file_name, size_t number,
                            uint32_t class_count) {
  TableReader reader(table, file_name, fmt::format("layer {}: ", number));
  LayerSpec spec;
  spec.name = reader.Text("name");
  if (IsName(spec.name)) {
    reader.set_what(fmt::format("layer '{}': ", spec.name));
  } else {
    reader.Fail(table, "name must be 1 to 200 letters, digits, dots, '_' or '-'");
  }
  const std::string type = reader.Text("type");
  std::vector<std::string> types;
  for (const LayerRules* rules : kLayerRules) types.emplace_back(rules->name);
  spec.kind = static_cast<LayerKind>(reader.Choice("type", types, type));
  reader.Names("inputs", &spec.inputs);
  const LayerRules& rules = RulesFor(spec.kind);
  spec.probability = rules.file_probability;
  for (const LayerKey& key : rules.keys) ReadKey(reader, key, class_count, &spec);
  PANDO_RETURN_IF_ERROR(reader.Finish());
  return spec;
}

Result<Architecture> ReadNetwork(const toml::table& root, const std::string& file_name,
                                 uint32_t class_count) {
  TableReader reader(root, file_name, "");
  Architecture architecture;
  reader.Count("channels", 1, kUnitsMax, &architecture.channels);
  const toml::node* node = reader.Take("layer");
  PANDO_RETURN_IF_ERROR(reader.Finish());
  const toml::array* layers = node == nullptr ? nullptr : node->as_array();
  if (layers == nullptr || layers->empty() || layers->size() > kLayersMax) {
    return InvalidArgument(fmt::format(
        "{}: a network is 1 to {} tables [[layer]], in the order in which they are computed",
        file_name, kLayersMax));
  }
  for (const toml::node& element : *layers) {
    if (!element.is_table()) {
      return InvalidArgument(fmt::format("{}:{}: a layer is a table, [[layer]]", file_name,
                                         element.source().begin.line));
    }
    PANDO_ASSIGN_OR_RETURN(LayerSpec spec, ReadLayer(*element.as_table(), file_name,
                                                     architecture.layers.size() + 1, class_count));
    architecture.layers.push_back(std::move(spec));
  }
  return architecture;
}

}  // namespace

Result<Architecture> ParseNetworkFile(std::string_view text, const std::string& file_name,
                                      uint32_t class_count) {
  PANDO_RETURN_IF_ERROR(CheckTomlDepth(text, file_name));
  try {
    return ReadNetwork(toml::parse(text, file_name), file_name, class_count);
  } catch (const toml::parse_error& error) {
    return InvalidArgument(fmt::format("{}:{}: not valid TOML: {}", file_name,
                                       error.source().begin.line, error.description()));
  }
}

}  // namespace pando
