#include "proto/shared.h"

#include <mutex>
#include <utility>

#include "common/hash.h"
#include "proto/messages.h"
#include "proto/view_seal.h"

namespace pando {

template <class T>
struct Shared<T>::Content {
  Content(T value_in, Blob encoding_in)
      : value(std::move(value_in)), encoding(std::move(encoding_in)) {}
  const T value;
  std::mutex mutex;  // of the members below
  Blob encoding;
  uint64_t hash = 0;  // 0: it is not made yet
};

template <class T>
Shared<T>::Shared() : Shared(T()) {}
template <class T>
Shared<T>::Shared(T value) : Shared(std::move(value), Blob()) {}
template <class T>
Shared<T>::Shared(T value, Blob encoding)
    : content_(std::make_shared<Content>(std::move(value), std::move(encoding))) {}

template <class T>
const T& Shared<T>::operator*() const {
  return content_->value;
}

template <class T>
uint64_t Shared<T>::hash() const {
  const std::lock_guard lock(content_->mutex);
  if (content_->hash == 0) content_->hash = Hash64(CanonicalText(content_->value)) | 1;
  return content_->hash;
}

template <class T>
const Blob& Shared<T>::Encoding(const std::function<Blob(const T&)>& encode) const {
  const std::lock_guard lock(content_->mutex);
  if (content_->encoding.bytes().empty()) content_->encoding = encode(content_->value);
  return content_->encoding;
}

template class Shared<View>;
template class Shared<ViewChange>;

}  // namespace pando
