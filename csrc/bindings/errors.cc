// SPDX-License-Identifier: Apache-2.0
#include "bindings/errors.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bindings/gil.h"
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

namespace {

void SetError(const char* kind, const char* message) {
  const py::object cls = SleepIfEnded([&]() -> py::object {
    return py::module_::import("hloenv.errors").attr(kind);
  });
  py::set_error(cls, message);
}

}  // namespace

void BindErrors(py::module_&) {
  py::register_local_exception_translator([](std::exception_ptr exception) {
    if (!exception) return;
    try {
      std::rethrow_exception(exception);
    } catch (const StatusException& error) {
      SetError(error.kind().c_str(), error.what());
    } catch (const absl::BadStatusOrAccess& error) {
      // Where XLA assumes a valid module, it reads the value of a StatusOr
      // without a check.
      SetError("InvalidModuleError",
               absl::StrCat("this module violates an assumption of XLA (",
                            error.what(), "); call module.verify()")
                   .c_str());
    }
  });
}

}  // namespace hloenv
