// UnitCounter finds the words of a column that are numbers with equal text around them in most
// rows: "1.5 kg", "USD 20". Names with few numbers ("36 months", "5th") do not count. csv_file.cc
// calls it.
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
  // Returns the words with the two most frequent texts (kg and g); none if their numbers are so few
  // that they may be categories.
  Found Find() const;

 private:
  struct Column : Found {
    std::set<std::string> numbers;  // some of them
    bool has_fractions = false;
  };
  std::map<std::string, Column> by_text_;  // by the text around the number
};

}  // namespace pando
