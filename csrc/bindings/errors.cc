// SPDX-License-Identifier: Apache-2.0
#include "bindings/errors.h"

#include "support/status.h"

namespace hloenv {

namespace py = pybind11;

StatusException::StatusException(absl::Status status)
    : kind_("HloEnvError"), message_(status.message()) {
  if (auto kind = status.GetPayload(kErrorKindUrl)) {
    kind_ = std::string(*kind);
  } else {
    // XLA's own statuses keep their code, which says what kind of failure it
    // was.
    message_ = status.ToString();
  }
}

void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) throw StatusException(status);
}

void BindErrors(py::module_&) {
  py::register_local_exception_translator([](std::exception_ptr exception) {
    if (!exception) return;
    try {
      std::rethrow_exception(exception);
    } catch (const StatusException& error) {
      py::object cls =
          py::module_::import("hloenv.errors").attr(error.kind().c_str());
      py::set_error(cls, error.what());
    }
  });
}

}  // namespace hloenv
