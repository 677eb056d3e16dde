// StoredJournal is a journal that outlives the scheduler: of two lives of the scheduler, only one
// can commit (P26). The scheduler process uses it, and need not know where the journal is.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <optional>
#include <string>

#include "common/result.h"
#include "scheduler/journal.h"

namespace pando {

class StoredJournal : public Journal {
 public:
  // Reads the state; none if nothing was ever committed. Takes the lead: the previous leader cannot
  // commit any more, so nothing is added after the read.
  virtual Result<std::optional<SchedulerState>> ReadState() = 0;
  // Another scheduler leads. Otherwise a commit that failed may be retried.
  virtual bool is_fenced() const = 0;
  // Names the thing that is slow if a commit is: "the disk of RUN/scheduler.db".
  virtual std::string place() const = 0;
};

// ---- errors that all journals have; `place` names the journal
// ------------------------------------

// The fence of a life that had `term`, while another one leads with the term `led`.
inline Status FencedBy(const std::string& place, uint64_t led, uint64_t term) {
  return Unavailable(fmt::format(
      "{}: another scheduler leads this run (term {}, and this one had {}); this one leaves", place,
      led, term));
}

inline Status OtherSchema(const std::string& place, const std::string& records,
                          const std::string& schema, int ours) {
  return InvalidArgument(
      fmt::format("{} has the {} of another release of Pando (schema {}, and this one has {}); "
                  "continue with that release",
                  place, records, schema, ours));
}

// Adds advice to the error if the journal itself is damaged.
inline Status WithAdvice(const std::string& place, const Status& status) {
  if (status.code() != StatusCode::kCorrupt) return status;
  return Corrupt(
      fmt::format("{} is damaged: {}; the run cannot continue from it. `pando export` still reads "
                  "the snapshots; pando train --force starts it from the beginning",
                  place, status.message()));
}

}  // namespace pando
