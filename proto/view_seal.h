// ViewSeal: how the protocol cores sign views and check their signatures (P44). They hold no
// cryptography: net/view_guard implements it, and the simulator. Threads: those of the core.
#pragma once

#include <string>

#include "proto/messages.h"

namespace pando {

class ViewSeal {
 public:
  virtual ~ViewSeal() = default;
  // By which others check signatures.
  virtual const std::string& public_key() const = 0;
  // The signature of a text, for ViewUpdate.  REQUIRES: this is the scheduler's.
  virtual std::string Sign(const std::string& text) = 0;
  virtual bool IsGenuine(const std::string& text, const std::string& signature) = 0;
  // A view of this peer is dropped, as it is not genuine.
  virtual void OnForged(const PeerId& from) = 0;
};

// The signed text: the job and the whole view, in one form on all machines.
std::string SealedText(JobId job, const View& view);

}  // namespace pando
