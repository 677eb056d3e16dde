// RequestHead: whether a request's line and headers have one meaning. Used by BoundedServer.
#pragma once

#include <string>
#include <string_view>

namespace pando {

// The error of a head, which ends with its blank line; empty if there is none. httplib skips
// lines that it does not understand, unpacks %41 in values, and takes the first of several lengths.
// A proxy may read such a head differently, and then takes a part of one client's request for the
// request of another.
std::string FindFault(std::string_view head);

}  // namespace pando
