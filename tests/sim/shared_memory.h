// SharedMemory: payloads that lie in their sender's memory when they are read, not in the message
// (P42). The product's pools and readers, in one process: slots are really written again, so a
// message that comes late, or a slot that is written too early, has other bytes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "net/shm/shared_reader.h"
#include "proto/messages.h"

namespace pando::sim {

class SharedMemory {
 public:
  using Address = std::pair<Incarnation, uint16_t>;

  // From now on memory is shared.
  void Start() { is_on_ = true; }
  bool is_on() const { return is_on_; }
  // The source of this party's payloads; the heap if nothing is shared.
  BufferSource Source(const PeerId& self);
  void Forget(Incarnation incarnation);

  // One payload that a message names, and where it belongs among the message's payloads.
  struct Named {
    size_t index;
    SharedReference reference;
    uint64_t hash;  // of what was sent
  };
  // Takes those payloads out of the message that its receiver can read where they lie.
  std::vector<Named> Take(const PeerId& receiver, Envelope* envelope);
  // Puts them back.  False: one was overtaken, and the message is lost.
  bool Restore(const std::vector<Named>& named, const PeerId& receiver, Envelope* envelope);

  // Whether a reader has had other bytes than were sent to it.
  bool is_torn() const { return news_->is_torn; }
  uint64_t read_count() const { return news_->read_count; }
  uint64_t overtaken_count() const { return news_->overtaken_count; }

 private:
  struct News {  // shared with what is read: events outlive this
    bool is_torn = false;
    uint64_t read_count = 0;
    uint64_t overtaken_count = 0;
  };
  struct Reading;
  struct Link {  // of one sender's pool and one reader of it
    uint32_t reader_index;
    std::unique_ptr<SharedReader> reader;
    uint32_t mapped_count = 0;
  };
  Link* FindLink(const Address& sender, const Address& receiver);
  void MapSegments(SharedPool& pool, Link& link);

  bool is_on_ = false;
  std::map<Address, std::shared_ptr<SharedPool>> pools_;
  std::map<std::pair<Address, Address>, Link> links_;
  std::shared_ptr<News> news_ = std::make_shared<News>();
};

}  // namespace pando::sim
