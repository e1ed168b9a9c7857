// SPDX-License-Identifier: Apache-2.0
// A fixed-size array of a graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

namespace hloenv {

// `rows` values, or `rows` times `width` values in row order. Elements are left
// unset when the array is made, because each is written once afterwards and
// clearing them first would cost as much as writing them.
template <typename T>
class Column {
 public:
  Column() = default;
  explicit Column(int64_t rows) : Column(rows, 1, /*is_matrix=*/false) {}
  Column(int64_t rows, int64_t width) : Column(rows, width, true) {}

  int64_t rows() const { return rows_; }
  int64_t width() const { return width_; }
  bool is_matrix() const { return is_matrix_; }
  int64_t size() const { return rows_ * width_; }

  T* data() { return values_.get(); }
  const T* data() const { return values_.get(); }
  T& operator[](int64_t i) { return values_[i]; }
  const T& operator[](int64_t i) const { return values_[i]; }
  T* row(int64_t i) { return values_.get() + i * width_; }
  const T* row(int64_t i) const { return values_.get() + i * width_; }

  void Fill(T value) { std::fill_n(values_.get(), size(), value); }

 private:
  Column(int64_t rows, int64_t width, bool is_matrix)
      : rows_(rows),
        width_(width),
        is_matrix_(is_matrix),
        values_(new T[rows * width]) {}

  int64_t rows_ = 0;
  int64_t width_ = 1;
  bool is_matrix_ = false;
  std::unique_ptr<T[]> values_;
};

}  // namespace hloenv
