// SPDX-License-Identifier: Apache-2.0
// Statuses to the exceptions of hloenv.errors.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hloenv {

// Carries a status through pybind11; may be thrown with or without the GIL.
class StatusException : public std::exception {
 public:
  explicit StatusException(absl::Status status);
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& kind() const { return kind_; }

 private:
  std::string kind_;
  std::string message_;
};

void ThrowIfError(const absl::Status& status);

template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  ThrowIfError(value.status());
  return *std::move(value);
}

// Registers the translator; call once from the module's init.
void BindErrors(pybind11::module_& m);

}  // namespace hloenv
