// SPDX-License-Identifier: Apache-2.0
// The GIL, for threads that Python may end.
//
// Once Python finalizes, it ends each daemon thread that asks for the GIL, by
// pthread_exit (up to Python 3.13). Its unwinding runs through the C++ frames
// below, of which noexcept ones end the process. Such a thread sleeps here
// instead until the process ends, as it does in Python 3.14.
#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>

#include <optional>

#include "support/native_scope.h"

namespace hloenv {

// Never returns.
[[noreturn]] void SleepForGood();

// What `function` returns, which may run Python or take the GIL.
template <typename Function>
auto SleepIfEnded(Function function) {
  try {
    return function();
  } catch (abi::__forced_unwind&) {
    SleepForGood();
  }
}

enum class ForkCheck { kRequired, kNone };

// While this object exists, the thread does not hold the GIL, and may be inside
// XLA. Replaces pybind11::gil_scoped_release.
class GilRelease {
 public:
  // Throws a ForkError where XLA would deadlock, if required.
  explicit GilRelease(ForkCheck check = ForkCheck::kRequired);
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* const outer_;
  std::optional<NativeScope> native_;
};

// While this object exists, a thread that is in a GilRelease holds the GIL.
class GilAcquire {
 public:
  GilAcquire();
  ~GilAcquire();
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;
};

// For functions that touch no Python object.
using WithoutGil = pybind11::call_guard<GilRelease>;

// For functions that free what a process got from the one that forked it.
struct GilReleaseToFree : GilRelease {
  GilReleaseToFree() : GilRelease(ForkCheck::kNone) {}
};

// Makes the process end cleanly while threads are in a GilRelease; call once
// from the module's init.
void BindExit();

}  // namespace hloenv
