// SPDX-License-Identifier: Apache-2.0
// Runs executables as custom calls of another copy of XLA, such as jaxlib's.
#pragma once

#include <memory>
#include <string>

#include "runtime/executable.h"

namespace hloenv {

// An XLA_FFI_Handler for the CPU. Its string attribute `key` selects an
// executable of PublishExecutable; its arguments and results are the flat
// leaves of that module, in memory of the caller, which it neither copies nor
// keeps. It returns an FFI error where they do not fit, and takes no GIL.
void* FfiCallHandler();

// From now on, `key` stands for `executable`: the programs that call it may
// live as long as the process. Another executable of the same key is ignored.
void PublishExecutable(const std::string& key,
                       std::shared_ptr<Executable> executable);
// Frees the executable of `key`, which nothing may call any more.
void RetractExecutable(const std::string& key);

}  // namespace hloenv
