#include "proto/view_seal.h"

#include "proto/codec_fields.h"

namespace pando {
namespace {

// Appending visits fields and appends them: numbers as 8 bytes, the lowest first; texts and lists
// after their sizes. So two different views never have the same form.
class Appending {
 public:
  explicit Appending(std::string& text) : text_(text) {}

  void operator()(const auto&... fields) { (Append(fields.member), ...); }

  template <class T>
  void Append(T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      AppendNumber(static_cast<uint64_t>(value));
    } else if constexpr (requires { value.value(); }) {
      AppendNumber(value.value());
    } else if constexpr (std::is_same_v<T, std::string>) {
      AppendNumber(value.size());
      text_ += value;
    } else {
      Visit(Appending(text_), value);
    }
  }
  template <class T>
  void Append(std::vector<T>& list) {
    AppendNumber(list.size());
    for (T& item : list) Append(item);
  }

 private:
  void AppendNumber(uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) text_ += static_cast<char>(value >> (8 * byte) & 0xff);
  }
  std::string& text_;
};

}  // namespace

template <class T>
std::string CanonicalText(const T& value) {
  std::string text;
  Appending(text).Append(const_cast<T&>(value));  // Visit is shared with the reader
  return text;
}
template std::string CanonicalText(const View&);
template std::string CanonicalText(const ViewChange&);

std::string SealedText(JobId job, const View& view) {
  std::string text;
  Appending(text).Append(job);
  return text + CanonicalText(view);
}

}  // namespace pando
