// A result set for people: Markdown, plots as SVG, a page of HTML. Text in, text out; no file.
#pragma once

#include <string>
#include <vector>

#include "bench/harness/result.h"

namespace pando::bench {

// "3.21", "0.045", "120,431": as many digits as are worth reading.
std::string NumberText(double value);
// For text and for attributes in quotes, of HTML and SVG.
std::string EscapeXml(const std::string& text);

// Tables, then every point with its statistics; plots by the names of their files.
std::string ToMarkdown(const ResultSet& set);

// A whole SVG document, of no other file.
std::string ToSvg(const Plot& plot);

// One self-contained page: style and plots are in it, and nothing is fetched.
std::string ToHtml(const std::vector<ResultSet>& sets);

}  // namespace pando::bench
