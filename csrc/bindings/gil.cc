// SPDX-License-Identifier: Apache-2.0
#include "bindings/gil.h"

#include <unistd.h>

#include "bindings/errors.h"

namespace hloenv {
namespace {

// Of this thread's innermost GilRelease.
thread_local PyThreadState* released = nullptr;

void Take(PyThreadState* state) {
  SleepIfEnded([state] { PyEval_RestoreThread(state); });
}

}  // namespace

void SleepForGood() {
  while (true) pause();
}

GilRelease::GilRelease(ForkCheck check) : outer_(released) {
  if (check == ForkCheck::kRequired) ThrowIfError(CheckNotForkedInXla());
  released = PyEval_SaveThread();
  native_.emplace();
}

GilRelease::~GilRelease() {
  native_.reset();
  Take(released);
  released = outer_;
}

GilAcquire::GilAcquire() { Take(released); }

GilAcquire::~GilAcquire() { released = PyEval_SaveThread(); }

void BindExit() {
  // Called at the end of Python's finalization, from when on no thread enters
  // another GilRelease. Python has room for 32 of these.
  if (Py_AtExit(SkipDestructorsAtExit) != 0) SkipDestructorsAtExit();
}

}  // namespace hloenv
