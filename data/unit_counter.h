// Which words of a column are numbers with text around them, the same in most rows: "1.5 kg",
// "USD 20". Names with few numbers ("36 months", "5th") are none. Called by csv_file.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace pando {

class UnitCounter {
 public:
  struct Found {
    uint64_t count = 0;
    uint64_t first_line = 0;
    std::string first;
  };
  void Add(const std::string& word, uint64_t line);
  // Those with the two most frequent texts (kg and g). None: they have too few different numbers,
  // and may be categories.
  Found Find() const;

 private:
  struct Column : Found {
    std::set<std::string> numbers;  // some of them
    bool has_fractions = false;
  };
  std::map<std::string, Column> by_text_;  // around the number
};

}  // namespace pando
