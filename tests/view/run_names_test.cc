#include "view/run_names.h"

#include <doctest/doctest.h>

namespace pando {
namespace {

using Names = std::vector<std::string>;

TEST_CASE("a run has its folder's name, and as much of its path as others make necessary") {
  CHECK(NamesForFolders({}).empty());
  CHECK(NamesForFolders({"runs/first"}) == Names{"first"});
  CHECK(NamesForFolders({"/runs/first/", "/runs/./second"}) == Names{"first", "second"});
  CHECK(NamesForFolders({"/old/first", "/new/first", "/new/second"}) ==
        Names{"old/first", "new/first", "second"});
  CHECK(NamesForFolders({"/a/x/first", "/b/x/first", "/b/y/first"}) ==
        Names{"a/x/first", "b/x/first", "y/first"});
  CHECK(NamesForFolders({"/first", "/x/first"}) == Names{"first", "x/first"});
}

TEST_CASE("a folder's name that is not UTF-8 becomes one that is, and names stay different") {
  CHECK(NamesForFolders({"/runs/caf\xe9"}) == Names{"caf\\xe9"});
  CHECK(NamesForFolders({"/runs/caf\xe9", "/runs/caf\\xe9", "/runs/café\n"}) ==
        Names{"caf\\xe9", "caf\\\\xe9", "café\\n"});
  CHECK(NamesForFolders({"/a\xff/first", "/b/first"}) == Names{"a\\xff/first", "b/first"});
}

TEST_CASE("the same folder twice gets two names") {
  CHECK(NamesForFolders({"/x/first", "/x/first"}) == Names{"x/first", "x/first#2"});
  CHECK(NamesForFolders({"/", "/"}) == Names{"/", "/#2"});
}

}  // namespace
}  // namespace pando
