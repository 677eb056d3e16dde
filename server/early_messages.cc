#include "server/early_messages.h"

namespace pando {

bool EarlyMessages::IsEarly(const Envelope& envelope) const {
  if (envelope.view <= member_.view().id) return false;
  const Message& m = envelope.message;
  return HoldsAny<Root, Chunk, Question>(m);
}

std::vector<Envelope> EarlyMessages::Take() {
  std::vector<Envelope> kept = std::exchange(messages_, {});
  std::erase_if(kept, [&](const Envelope& envelope) {
    return envelope.generation != member_.view().generation || envelope.view < member_.view().id;
  });
  return kept;
}

}  // namespace pando
