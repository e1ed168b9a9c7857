// SPDX-License-Identifier: Apache-2.0
// C++ arrays as numpy arrays.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <vector>

#include "graph/column.h"

namespace hloenv {

// A read-only view of `size` values in row order. `owner`, the Python object
// that holds them, lives as long as the view and all arrays made from it.
template <typename T>
pybind11::array_t<T> ViewOf(const T* values,
                            const std::vector<pybind11::ssize_t>& shape,
                            pybind11::handle owner) {
  pybind11::array_t<T> array(shape, values, owner);
  array.attr("setflags")(pybind11::arg("write") = false);
  return array;
}

template <typename T>
pybind11::array_t<T> ViewOf(const Column<T>& column, pybind11::handle owner) {
  std::vector<pybind11::ssize_t> shape = {column.rows()};
  if (column.is_matrix()) shape.push_back(column.width());
  return ViewOf(column.data(), shape, owner);
}

template <typename T>
pybind11::array_t<T> ViewOf(const std::vector<T>& values,
                            pybind11::handle owner) {
  return ViewOf(values.data(), {static_cast<pybind11::ssize_t>(values.size())},
                owner);
}

// An array that takes `column` over.
template <typename T>
pybind11::array_t<T> ToNumpy(Column<T> column) {
  auto* owned = new Column<T>(std::move(column));
  pybind11::capsule owner(
      owned, [](void* pointer) { delete static_cast<Column<T>*>(pointer); });
  return ViewOf(*owned, owner);
}

}  // namespace hloenv
