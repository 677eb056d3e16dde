// ViewSeal signs views for the protocol cores and checks signatures (P44). net/view_guard and the
// simulator implement it, because cores have no cryptography. Threads: the core's.
#pragma once

#include <string>

#include "proto/messages.h"

namespace pando {

class ViewSeal {
 public:
  virtual ~ViewSeal() = default;
  // The key with which others check signatures.
  virtual const std::string& public_key() const = 0;
  // Signs a text, for ViewUpdate. REQUIRES: this is the scheduler's seal.
  virtual std::string Sign(const std::string& text) = 0;
  virtual bool IsGenuine(const std::string& text, const std::string& signature) = 0;
  // Notes that a view from this peer is dropped because it is not genuine.
  virtual void OnForged(const PeerId& from) = 0;
};

// Returns the whole value in the same form on all machines. T: View or ViewChange.
template <class T>
std::string CanonicalText(const T& value);

// Returns the text to sign: the job and the whole view.
std::string SealedText(JobId job, const View& view);

}  // namespace pando
