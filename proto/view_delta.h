// The difference between two views, which the scheduler sends instead of the whole newer one, and
// its application (P17a). Threads: any.
#pragma once

#include <optional>

#include "proto/messages.h"

namespace pando {

// Returns the difference, or none if `from` must be replaced as a whole: it has other numbers of
// shards or micro-batches.
std::optional<ViewChange> Difference(const SharedView& from, const SharedView& to);

// Returns the view that the difference makes of `base`, or none if it is not a difference to this
// view, or the result has another hash.
std::optional<SharedView> Apply(const SharedView& base, const ViewChange& change);

}  // namespace pando
