// FindFault checks that a request's line and headers have only one meaning. BoundedServer uses it.
#pragma once

#include <string>
#include <string_view>

namespace pando {

// Returns the fault of a request's head, which ends with its blank line; empty if there is none.
// httplib skips lines that it does not understand, unpacks %41 in values, and takes the first of
// several lengths. A proxy may read such a head differently, and would take a part of one client's
// request for another client's request.
std::string FindFault(std::string_view head);

}  // namespace pando
