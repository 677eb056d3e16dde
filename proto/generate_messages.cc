// This program is a plugin of `capnp compile`. It turns the declarations of pando.capnp into code
// and writes into the current folder
//   message_structs.h  the plain structs and enums with the schema's comments, and the table of
//                      messages (PANDO_MESSAGES)
//   message_fields.h   Visit for each struct: its fields with their limits (codec_fields.h)
// The top of pando.capnp explains the annotations that the plugin reads. The plugin stops at the
// first error, which names the declaration.
#include <capnp/dynamic.h>
#include <capnp/schema-loader.h>
#include <capnp/schema.capnp.h>
#include <capnp/serialize.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace schema = capnp::schema;

// Writes "wantedRank" as "wanted_rank", "wanted rank" or "WANTED_RANK".
std::string Separated(std::string_view name, char separator, int (*convert)(int) = std::tolower) {
  std::string text;
  for (const char c : name) {
    if (std::isupper(c) != 0) text += separator;
    text += static_cast<char>(convert(c));
  }
  return text;
}
std::string Capitalized(std::string_view name) {
  std::string text(name);
  text[0] = static_cast<char>(std::toupper(text[0]));
  return text;
}
std::string Constant(std::string_view name) { return "k" + Capitalized(name); }

std::string ToString(capnp::Text::Reader text) { return {text.cStr(), text.size()}; }

std::string CommentFor(capnp::Text::Reader doc, std::string_view indent) {
  std::istringstream lines(ToString(doc));
  std::string text;
  for (std::string line; std::getline(lines, line);)
    text += fmt::format("{}//{}{}\n", indent, line.empty() ? "" : " ", line);
  return text;
}

class Generator {
 public:
  explicit Generator(schema::CodeGeneratorRequest::Reader request) {
    for (const schema::Node::Reader node : request.getNodes()) {
      nodes_.emplace(node.getId(), node);
      loader_.load(node);
    }
    for (const schema::Node::SourceInfo::Reader info : request.getSourceInfo())
      infos_.emplace(info.getId(), info);
    for (const auto& nested : nodes_.at(request.getRequestedFiles()[0].getId()).getNestedNodes())
      AddDeclaration(ToString(nested.getName()), nodes_.at(nested.getId()));
  }

  std::string Structs() const {
    return "// Generated from pando.capnp.\n#pragma once\n\n#include \"proto/message_types.h\"\n\n"
           "namespace pando {\n\n" +
           structs_ +
           "// X(message, its constant in Envelope::Which, then a MessageRow's members)\n" +
           "#define PANDO_MESSAGES(X)" + table_ + "\n\n}  // namespace pando\n";
  }
  std::string Fields() const {
    return "// Generated from pando.capnp.\n#pragma once\n\nnamespace pando {\n\n" + fields_ +
           "}  // namespace pando\n";
  }

 private:
  using Annotations = capnp::List<schema::Annotation>::Reader;
  using FieldList = std::vector<schema::Field::Reader>;

  // ---- the schema

  std::string NameFor(uint64_t id) const {
    const schema::Node::Reader node = nodes_.at(id);
    return node.getDisplayName().cStr() + node.getDisplayNamePrefixLength();
  }
  std::optional<schema::Value::Reader> Find(Annotations annotations, std::string_view name) const {
    for (const schema::Annotation::Reader annotation : annotations)
      if (NameFor(annotation.getId()) == name) return annotation.getValue();
    return std::nullopt;
  }
  // Returns the value of an annotation that is a struct.
  capnp::DynamicStruct::Reader StructIn(schema::Value::Reader value, std::string_view type) const {
    for (const auto& [id, node] : nodes_)
      if (node.isStruct() && NameFor(id) == type)
        return value.getStruct().getAs<capnp::DynamicStruct>(loader_.get(id).asStruct());
    throw std::runtime_error(fmt::format("no struct {}", type));
  }
  static FieldList InCodeOrder(schema::Node::Struct::Reader node) {
    FieldList fields;
    for (const schema::Field::Reader field : node.getFields()) fields.push_back(field);
    std::ranges::sort(fields, {}, [](const auto& field) { return field.getCodeOrder(); });
    return fields;
  }
  std::string CommentFor(uint64_t id) const {
    const auto info = infos_.find(id);
    return info == infos_.end() ? "" : ::CommentFor(info->second.getDocComment(), "");
  }

  // ---- types

  std::string TypeFor(schema::Type::Reader type,
                      const std::optional<schema::Value::Reader>& own) const {
    if (type.isList())
      return fmt::format("std::vector<{}>", TypeFor(type.getList().getElementType(), own));
    if (own) return ToString(own->getText());
    switch (type.which()) {
      case schema::Type::BOOL:
        return "bool";
      case schema::Type::UINT16:
        return "uint16_t";
      case schema::Type::UINT32:
        return "uint32_t";
      case schema::Type::UINT64:
        return "uint64_t";
      case schema::Type::FLOAT32:
        return "float";
      case schema::Type::FLOAT64:
        return "double";
      case schema::Type::TEXT:
        return "std::string";
      case schema::Type::DATA:
        return "Blob";
      case schema::Type::ENUM:
        return NameFor(type.getEnum().getTypeId());
      case schema::Type::STRUCT:
        return NameFor(type.getStruct().getTypeId());
      default:
        throw std::runtime_error("a type that messages do not have so far");
    }
  }
  std::string TypeFor(schema::Field::Reader field) const {
    const auto own = Find(field.getAnnotations(), "type");
    if (field.isGroup()) return ToString(own.value().getText());
    return TypeFor(field.getSlot().getType(), own);
  }
  // Returns " = 0", or "" if the type has an initial value.
  std::string InitialFor(schema::Field::Reader field) const {
    if (const auto initial = Find(field.getAnnotations(), "initial"))
      return fmt::format(" = {}", ToString(initial->getText()));
    if (field.isGroup() || Find(field.getAnnotations(), "type")) return "";
    const schema::Type::Reader type = field.getSlot().getType();
    if (type.isBool()) return " = false";
    if (type.isEnum()) {
      const schema::Node::Reader node = nodes_.at(type.getEnum().getTypeId());
      return fmt::format(" = {}::{}", NameFor(node.getId()),
                         Constant(ToString(node.getEnum().getEnumerants()[0].getName())));
    }
    const bool is_number =
        type.which() >= schema::Type::INT8 && type.which() <= schema::Type::FLOAT64;
    if (!is_number) return "";
    const schema::Value::Reader value = field.getSlot().getDefaultValue();
    return fmt::format(" = {}", value.isUint32() ? value.getUint32() : 0);
  }

  // ---- declarations

  void AddDeclaration(std::string_view name, schema::Node::Reader node) {
    const bool is_told = node.isStruct() || node.isEnum();
    if (!is_told || IsForPlugin(name)) return;
    if (name == "Envelope") return AddTable(node.getStruct());
    const bool is_ours = !Find(node.getAnnotations(), "byHand");
    if (node.isEnum() && is_ours) AddEnum(name, node);
    if (node.isStruct() && is_ours) AddStruct(name, node);
    if (node.isStruct()) AddVisit(name, node.getStruct());
  }
  // Returns whether the type serves the annotations alone.
  static bool IsForPlugin(std::string_view name) {
    static constexpr std::string_view kNames[] = {"Limit",      "MessageFacts", "Core", "Sender",
                                                  "Generation", "About",        "Size", "Channel"};
    return std::ranges::find(kNames, name) != std::end(kNames);
  }

  void AddEnum(std::string_view name, schema::Node::Reader node) {
    structs_ += CommentFor(node.getId()) + fmt::format("enum class {} : uint8_t {{\n", name);
    std::string texts;
    uint16_t i = 0;
    const auto info = infos_.at(node.getId()).getMembers();
    for (const schema::Enumerant::Reader value : node.getEnum().getEnumerants()) {
      structs_ += ::CommentFor(info[i++].getDocComment(), "  ");
      structs_ += fmt::format("  {},\n", Constant(ToString(value.getName())));
      texts += fmt::format("{}\"{}\"", texts.empty() ? "" : ", ",
                           Separated(ToString(value.getName()), ' '));
    }
    structs_ += fmt::format(
        "}};\ntemplate <>\ninline constexpr auto kEnumNames<{}> = std::to_array({{{}}});\n\n", name,
        texts);
  }

  void AddStruct(std::string_view name, schema::Node::Reader node) {
    structs_ += CommentFor(node.getId());
    const FieldList fields = InCodeOrder(node.getStruct());
    if (fields.size() == 1 && ToString(fields[0].getName()) == "items") {
      const schema::Type::Reader list = fields[0].getSlot().getType();
      structs_ += fmt::format("using {} = ListOf<{}>;\n\n", name,
                              TypeFor(list.getList().getElementType(), std::nullopt));
      return;
    }
    structs_ += fmt::format("struct {} {{\n", name);
    for (const schema::Field::Reader field : fields) {
      structs_ += FieldComment(node, field);
      structs_ += fmt::format("  {} {}{};\n", TypeFor(field),
                              Separated(ToString(field.getName()), '_'), InitialFor(field));
    }
    if (Find(node.getAnnotations(), "compared"))
      structs_ += fmt::format("  auto operator<=>(const {}&) const = default;\n", name);
    structs_ += "};\n\n";
  }
  std::string FieldComment(schema::Node::Reader node, schema::Field::Reader field) const {
    // Comments have the order of the fields' numbers.
    uint32_t i = 0;
    while (node.getStruct().getFields()[i].getCodeOrder() != field.getCodeOrder()) ++i;
    return ::CommentFor(infos_.at(node.getId()).getMembers()[i].getDocComment(), "  ");
  }

  // ---- visitors

  void AddVisit(std::string_view name, schema::Node::Struct::Reader node) {
    if (node.getFields().size() == 0) return;
    fields_ += fmt::format("void Visit(auto io, {}& m) {{\n", name);
    for (const schema::Field::Reader field : InCodeOrder(node)) fields_ += VisitFor(field);
    fields_ += "}\n\n";
  }
  std::string VisitFor(schema::Field::Reader field) const {
    const std::string member = Separated(ToString(field.getName()), '_');
    const bool is_payload = !Find(field.getAnnotations(), "type");
    if (!field.isGroup() && field.getSlot().getType().isData() && is_payload) {
      const bool is_bytes = Find(field.getAnnotations(), "bytes").has_value();
      return fmt::format("  io.{}(m.{});\n", is_bytes ? "BytesPayload" : "Payload", member);
    }
    return fmt::format("  io(PANDO_WIRE({}, m.{}{}));\n", Capitalized(ToString(field.getName())),
                       member, LimitsFor(field));
  }
  std::string LimitsFor(schema::Field::Reader field) const {
    std::string text;
    for (const char* name : {"limit", "each"}) {
      const auto value = Find(field.getAnnotations(), name);
      if (!value) continue;
      const capnp::DynamicStruct::Reader limit = StructIn(*value, "Limit");
      text += fmt::format(", Limit{{\"{}\", {}}}", ToString(limit.get("what").as<capnp::Text>()),
                          ToString(limit.get("max").as<capnp::Text>()));
    }
    if (TypeFor(field).find("TreeNode") != std::string::npos) {
      const auto min = Find(field.getAnnotations(), "min");
      text += fmt::format(", /*min=*/{}u", min ? min->getUint32() : 0);
    }
    if (field.isSlot() && field.getSlot().getType().isEnum()) {
      const schema::Node::Reader node = nodes_.at(field.getSlot().getType().getEnum().getTypeId());
      const auto values = node.getEnum().getEnumerants();
      const std::string name = NameFor(node.getId());
      text += fmt::format(", LastOf{{\"{}\", {}::{}}}", Separated(name, ' ').substr(1), name,
                          Constant(ToString(values[values.size() - 1].getName())));
    }
    return text;
  }

  // ---- the table

  void AddTable(schema::Node::Struct::Reader envelope) {
    for (const schema::Field::Reader field : InCodeOrder(envelope)) {
      const bool is_message = field.getDiscriminantValue() != schema::Field::NO_DISCRIMINANT;
      if (is_message && field.getSlot().getType().isStruct())  // otherwise it is retired
        table_ +=
            RowFor(ToString(field.getName()), field.getSlot().getType().getStruct().getTypeId());
    }
  }
  std::string RowFor(std::string_view field, uint64_t id) const {
    const auto message = Find(nodes_.at(id).getAnnotations(), "message");
    if (!message) throw std::runtime_error(NameFor(id) + " has no $message");
    const capnp::DynamicStruct::Reader facts = StructIn(*message, "MessageFacts");
    std::string row =
        fmt::format(" \\\n  X({}, {}", NameFor(id), Separated(field, '_', std::toupper));
    std::string handlers;
    for (const auto& handler : facts.get("handlers").as<capnp::DynamicList>())
      handlers += (handlers.empty() ? "" : " | ") + EnumeratorFor(handler);
    row += ", " + (handlers.empty() ? "kNone" : handlers);
    for (const char* fact : {"sender", "generation", "about", "size", "channel"})
      row += ", " + EnumeratorFor(facts.get(fact));
    return row + ")";
  }
  static std::string EnumeratorFor(capnp::DynamicValue::Reader value) {
    KJ_IF_MAYBE (enumerant, value.as<capnp::DynamicEnum>().getEnumerant()) {
      return Constant(ToString(enumerant->getProto().getName()));
    }
    throw std::runtime_error("an enumerator that the schema does not have");
  }

  capnp::SchemaLoader loader_;
  std::map<uint64_t, schema::Node::Reader> nodes_;
  std::map<uint64_t, schema::Node::SourceInfo::Reader> infos_;
  std::string structs_, fields_, table_;
};

}  // namespace

int main() {
  try {
    capnp::ReaderOptions options;
    options.traversalLimitInWords = uint64_t{1} << 30;
    capnp::StreamFdMessageReader message(STDIN_FILENO, options);
    const Generator generator(message.getRoot<schema::CodeGeneratorRequest>());
    std::ofstream structs("message_structs.h");
    structs << generator.Structs();
    std::ofstream fields("message_fields.h");
    fields << generator.Fields();
    if (structs.flush() && fields.flush()) return 0;
    std::fputs("pando.capnp: message_structs.h and message_fields.h could not be written\n",
               stderr);
  } catch (const kj::Exception& e) {
    std::fprintf(stderr, "pando.capnp: %s\n", e.getDescription().cStr());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "pando.capnp: %s\n", e.what());
  }
  return 1;
}
