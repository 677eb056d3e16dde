// The files of the page of `pando view`, which the program contains (view/embed_page.py).
#pragma once

#include <span>
#include <string_view>

namespace pando {

struct PageFile {
  std::string_view path;  // "/page.js"
  std::string_view type;  // "text/javascript; charset=utf-8"
  std::string_view text;
};

std::span<const PageFile> PageFiles();

}  // namespace pando
