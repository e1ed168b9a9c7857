// SPDX-License-Identifier: Apache-2.0
// Statuses that carry the name of a Python exception class.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hloenv {

// The classes of python/hloenv/errors.py, by name. A status that carries none
// becomes HloEnvError.
inline constexpr absl::string_view kParseError = "ParseError";
inline constexpr absl::string_view kInvalidModuleError = "InvalidModuleError";
inline constexpr absl::string_view kUnknownPassError = "UnknownPassError";
inline constexpr absl::string_view kPassOptionError = "PassOptionError";
inline constexpr absl::string_view kPassError = "PassError";
inline constexpr absl::string_view kDecisionError = "DecisionError";
inline constexpr absl::string_view kStaleAlternativesError =
    "StaleAlternativesError";
inline constexpr absl::string_view kPositionError = "PositionError";
inline constexpr absl::string_view kCompileError = "CompileError";
inline constexpr absl::string_view kExecuteError = "ExecuteError";
inline constexpr absl::string_view kArgumentError = "ArgumentError";
inline constexpr absl::string_view kHookError = "HookError";
inline constexpr absl::string_view kForkError = "ForkError";
inline constexpr absl::string_view kFlagError = "FlagError";
inline constexpr absl::string_view kTargetError = "TargetError";
inline constexpr absl::string_view kInterceptError = "InterceptError";

inline constexpr char kErrorKindUrl[] = "hloenv.error_kind";

// A status that becomes the Python exception `kind`.
inline absl::Status Error(absl::string_view kind, absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kErrorKindUrl, absl::Cord(kind));
  return status;
}

// `status` with `context` put before its message, as the exception `kind`. An
// OK status stays OK.
inline absl::Status Annotate(const absl::Status& status, absl::string_view kind,
                             absl::string_view context) {
  if (status.ok()) return status;
  absl::Status result(status.code(), std::string(context) + ": " +
                                         std::string(status.message()));
  result.SetPayload(kErrorKindUrl, absl::Cord(kind));
  return result;
}

}  // namespace hloenv

#define HLOENV_CONCAT_INNER_(a, b) a##b
#define HLOENV_CONCAT_(a, b) HLOENV_CONCAT_INNER_(a, b)

#define HLOENV_RETURN_IF_ERROR(expression)           \
  do {                                               \
    absl::Status hloenv_status_ = (expression);      \
    if (!hloenv_status_.ok()) return hloenv_status_; \
  } while (false)

#define HLOENV_ASSIGN_OR_RETURN(lhs, expression)                            \
  HLOENV_ASSIGN_OR_RETURN_IMPL_(HLOENV_CONCAT_(hloenv_statusor_, __LINE__), \
                                lhs, expression)

#define HLOENV_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expression) \
  auto statusor = (expression);                                  \
  if (!statusor.ok()) return std::move(statusor).status();       \
  lhs = std::move(statusor).value()
