#include "net/shm/shared_links.h"

#include <algorithm>

namespace pando {

Status SharedLinks::Listen(const LinkPeer& self) {
  PANDO_ASSIGN_OR_RETURN(UniqueFd listener, SharedLink::Listen(self));
  listener_ = std::move(listener);
  return Status();
}

Status SharedLinks::Connect(const LinkPeer& self, const LinkPeer& peer) {
  if (lines_.contains({peer, true})) return Status();
  if (link_count() >= kLinksMax) return Unavailable("the limit of links is reached");
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<SharedLink> link, SharedLink::Connect(self, peer, end_));
  lines_.emplace(Line{peer, true}, std::move(link));
  return Status();
}

void SharedLinks::HangUp(const LinkPeer& peer) {
  auto line = lines_.extract(Line{peer, true});
  if (!line.empty()) Retire(std::move(line.mapped()));
}

// Retires the links for which is_over(line, link) is true.
template <class IsOver>
void SharedLinks::RetireIf(IsOver is_over) {
  for (auto it = lines_.begin(); it != lines_.end();) {
    if (!is_over(it->first, *it->second)) {
      ++it;
    } else {
      Retire(std::move(it->second));
      it = lines_.erase(it);
    }
  }
}

void SharedLinks::HangUpAccepted() {
  RetireIf([](const Line& line, const SharedLink&) { return !line.is_dialed; });
  for (auto& link : std::exchange(unnamed_, {})) Retire(std::move(link));
}

void SharedLinks::HangUpAll() {
  HangUpAccepted();
  for (auto& [line, link] : std::exchange(lines_, {})) Retire(std::move(link));
}

void SharedLinks::Retire(std::unique_ptr<SharedLink> link) {
  link->Retire();
  if (!link->is_closed()) retired_.push_back(std::move(link));
}

SharedLink* SharedLinks::Find(const Line& line) const {
  const auto it = lines_.find(line);
  return it == lines_.end() ? nullptr : it->second.get();
}

// The links take turns.
bool SharedLinks::Take(Line* line, Frames* message) {
  auto it = lines_.upper_bound(taken_);
  for (size_t tried = 0; tried < lines_.size(); ++tried, ++it) {
    if (it == lines_.end()) it = lines_.begin();
    if (!it->second->Take(message)) continue;
    *line = taken_ = it->first;
    return true;
  }
  return false;
}

bool SharedLinks::has_message() const {
  return std::ranges::any_of(lines_, [](const auto& line) { return line.second->has_message(); });
}

std::vector<LinkPeer> SharedLinks::connected() const {
  std::vector<LinkPeer> peers;
  for (const auto& [line, link] : lines_) {
    if (line.is_dialed) peers.push_back(line.peer);
  }
  return peers;
}

// ---- events of the links ------------------------------------------------------------------------

void SharedLinks::AppendFds(std::vector<pollfd>* polled) const {
  const auto append = [&](int fd) { polled->push_back({fd, POLLIN, 0}); };
  if (listener_.is_open()) append(listener_.get());
  for (const auto& [line, link] : lines_) append(link->fd());
  for (const auto& link : unnamed_) append(link->fd());
  for (const auto& link : retired_) append(link->fd());
}

bool SharedLinks::Receive(std::span<const pollfd> polled) {
  if (std::ranges::none_of(polled, [](const pollfd& p) { return p.revents != 0; })) return false;
  size_t next = 0;
  const bool is_dialed = listener_.is_open() && polled[next++].revents != 0;
  const auto receive = [&](SharedLink& link) {
    if (polled[next++].revents != 0) link.Receive();
  };
  for (auto& [line, link] : lines_) receive(*link);
  for (auto& link : unnamed_) receive(*link);
  for (auto& link : retired_) receive(*link);
  if (is_dialed) Admit();
  NameAdmitted();
  RetireIf([&](const Line& line, const SharedLink& link) {
    if (!link.is_over() || link.has_message()) return false;
    NoteRefusal(line, link);
    return true;
  });
  std::erase_if(retired_, [](const auto& link) { return link->is_closed(); });
  return true;
}

void SharedLinks::NoteRefusal(const Line& line, const SharedLink& link) {
  if (link.shares()) return;
  const std::string& complaint = link.complaint();
  refusals_.push_back({line, complaint.empty() ? "it refuses; its log may say why" : complaint});
}

void SharedLinks::Admit() {
  while (true) {
    Result<std::unique_ptr<SharedLink>> link = SharedLink::Accept(listener_.get(), end_);
    // There is no free descriptor. A waiting connection would keep this loop awake, so we stop
    // listening. A refused peer's payloads travel as bytes.
    if (!link.ok()) return StopListening();
    if (*link == nullptr) return;
    if (link_count() < kLinksMax) unnamed_.push_back(*std::move(link));
  }
}

void SharedLinks::Prove() {
  for (const auto& link : unnamed_) link->Prove();
}

// A peer that connects again has lost its earlier link.
void SharedLinks::NameAdmitted() {
  for (auto& link : std::exchange(unnamed_, {})) {
    if (link->is_usable()) {
      std::unique_ptr<SharedLink>& line = lines_[{*link->peer(), false}];
      std::swap(line, link);
      if (link != nullptr) Retire(std::move(link));
    } else if (link->is_closed() || !link->complaint().empty()) {
      if (link->peer()) NoteRefusal({*link->peer(), false}, *link);
      Retire(std::move(link));
    } else {
      unnamed_.push_back(std::move(link));
    }
  }
}

}  // namespace pando
