// Thinned is a bounded history of any number of rows. The curves of a page use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace pando {

// Keeps the first of each `stride` rows, and the newest one. If there are too many, it doubles the
// stride. Threads: none.
template <class Row>
class Thinned {
 public:
  explicit Thinned(size_t rows_max) : rows_max_(rows_max) {}  // REQUIRES: rows_max >= 2

  void Add(Row row) {
    if (count_ % stride_ == 0) {
      if (kept_.size() == rows_max_) Halve();
      if (count_ % stride_ == 0) kept_.emplace_back(count_, row);
    }
    newest_ = std::move(row);
    ++count_;
  }

  // Returns how many rows were added, for a later call of Since.
  uint64_t count() const { return count_; }

  // Returns the kept rows after the first `count` ones, in their order.
  std::vector<Row> Since(uint64_t count) const {
    std::vector<Row> rows;
    if (count >= count_) return rows;
    for (const auto& [index, row] : kept_) {
      if (index >= count) rows.push_back(row);
    }
    if (kept_.back().first + 1 != count_) rows.push_back(*newest_);
    return rows;
  }

 private:
  void Halve() {
    size_t kept = 0;
    for (size_t i = 0; i < kept_.size(); i += 2) kept_[kept++] = std::move(kept_[i]);
    kept_.resize(kept);
    stride_ *= 2;
  }

  size_t rows_max_;
  uint64_t stride_ = 1;
  uint64_t count_ = 0;
  std::vector<std::pair<uint64_t, Row>> kept_;  // with their index among all rows
  std::optional<Row> newest_;
};

}  // namespace pando
