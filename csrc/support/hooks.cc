// SPDX-License-Identifier: Apache-2.0
#include "support/hooks.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "absl/strings/match.h"
#include "support/fork.h"
#include "support/status.h"

namespace hloenv {
namespace {

constexpr const char* kLibraries[] = {"libtensorflow_cc.so.2",
                                      "libtensorflow_framework.so.2"};

#if defined(__x86_64__)
constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT;
constexpr uint32_t kGlobDat = R_X86_64_GLOB_DAT;
constexpr uint32_t kAddress = R_X86_64_64;
#elif defined(__aarch64__)
constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT;
constexpr uint32_t kGlobDat = R_AARCH64_GLOB_DAT;
constexpr uint32_t kAddress = R_AARCH64_ABS64;
#else
#error "hloenv knows the relocations of x86-64 and arm64 only"
#endif

struct Slot {
  void** address;
  void* original;
  void* replacement;
};

std::mutex& Mutex() { return MutexOf(ProcessLock::kHooks); }

std::vector<Slot>& Slots() {
  static auto* slots = new std::vector<Slot>;
  return *slots;
}

// What the process may do with its memory, as the kernel has it now.
class Protections {
 public:
  Protections() {
    std::FILE* file = std::fopen("/proc/self/maps", "re");
    if (file == nullptr) return;
    char line[4096];
    Range range;
    char read, write, execute;
    while (std::fgets(line, sizeof(line), file) != nullptr) {
      if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %c%c%c", &range.begin,
                      &range.end, &read, &write, &execute) != 5) {
        continue;
      }
      range.protection = (read == 'r' ? PROT_READ : 0) |
                         (write == 'w' ? PROT_WRITE : 0) |
                         (execute == 'x' ? PROT_EXEC : 0);
      ranges_.push_back(range);
    }
    std::fclose(file);
  }

  // Of the GOT where /proc is not there: as the loader leaves it at best.
  int At(uintptr_t address) const {
    for (const Range& range : ranges_) {
      if (range.begin <= address && address < range.end) {
        return range.protection;
      }
    }
    return PROT_READ;
  }

 private:
  struct Range {
    uintptr_t begin, end;
    int protection;
  };
  std::vector<Range> ranges_;
};

// The GOT may lie in a page that the loader made read-only (RELRO), whose
// protection is put back afterwards, or in one that holds other data, which
// stays writable.
absl::Status WriteSlot(void** slot, void* value,
                       const Protections& protections) {
  const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(slot);
  void* page = reinterpret_cast<void*>(address & ~(page_size - 1));
  const int protection = protections.At(address);
  const bool is_writable = (protection & PROT_WRITE) != 0;
  if (!is_writable && mprotect(page, page_size, protection | PROT_WRITE) != 0) {
    return Error(kHookError, absl::StrCat("cannot make a GOT page writable: ",
                                          std::strerror(errno)));
  }
  // One aligned pointer store: another thread sees the old or the new function.
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
  if (!is_writable) mprotect(page, page_size, protection);
  return absl::OkStatus();
}

// How often all hooks have been removed.
std::atomic<int64_t>& Removals() {
  static auto* removals = new std::atomic<int64_t>(0);
  return *removals;
}

struct Search {
  const std::vector<Hook>* hooks;
  std::vector<Slot> found;
  std::vector<bool> has_slot;
};

bool IsTensorflow(const char* name) {
  for (const char* library : kLibraries) {
    if (absl::EndsWith(name, library)) return true;
  }
  return false;
}

int CollectSlots(dl_phdr_info* info, size_t, void* data) {
  if (!IsTensorflow(info->dlpi_name)) return 0;
  auto* search = static_cast<Search*>(data);
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const ElfW(Rela) * tables[2] = {nullptr, nullptr};
  size_t sizes[2] = {0, 0};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(
        info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      const auto address = entry->d_un.d_ptr;
      switch (entry->d_tag) {
        case DT_SYMTAB:
          symbols = reinterpret_cast<const ElfW(Sym)*>(address);
          break;
        case DT_STRTAB:
          strings = reinterpret_cast<const char*>(address);
          break;
        case DT_JMPREL:
          tables[0] = reinterpret_cast<const ElfW(Rela)*>(address);
          break;
        case DT_PLTRELSZ:
          sizes[0] = entry->d_un.d_val / sizeof(ElfW(Rela));
          break;
        case DT_RELA:
          tables[1] = reinterpret_cast<const ElfW(Rela)*>(address);
          break;
        case DT_RELASZ:
          sizes[1] = entry->d_un.d_val / sizeof(ElfW(Rela));
          break;
        default:
          break;
      }
    }
  }
  if (symbols == nullptr || strings == nullptr) return 0;
  // The library has nearly a million relocations: comparing addresses instead
  // of names keeps the search to some milliseconds. Names decide where the
  // symbol is defined in another library.
  absl::flat_hash_map<absl::string_view, size_t> by_name;
  absl::flat_hash_map<uintptr_t, size_t> by_address;
  bool has_virtual = false;
  for (size_t i = 0; i < search->hooks->size(); ++i) {
    const Hook& hook = (*search->hooks)[i];
    has_virtual = has_virtual || hook.is_virtual;
    by_name[hook.symbol] = i;
    by_address[reinterpret_cast<uintptr_t>(*hook.original)] = i;
  }
  for (int table = 0; table < 2; ++table) {
    if (tables[table] == nullptr) continue;
    for (size_t i = 0; i < sizes[table]; ++i) {
      const ElfW(Rela) & relocation = tables[table][i];
      const uint32_t type = ELF64_R_TYPE(relocation.r_info);
      const bool is_address = has_virtual && type == kAddress;
      if (type != kJumpSlot && type != kGlobDat && !is_address) continue;
      const ElfW(Sym) & symbol = symbols[ELF64_R_SYM(relocation.r_info)];
      size_t index;
      if (symbol.st_value != 0) {
        auto it = by_address.find(info->dlpi_addr + symbol.st_value);
        if (it == by_address.end()) continue;
        index = it->second;
      } else {
        auto it = by_name.find(strings + symbol.st_name);
        if (it == by_name.end()) continue;
        index = it->second;
      }
      const Hook& hook = (*search->hooks)[index];
      if (type == kAddress && !hook.is_virtual) continue;
      auto** address =
          reinterpret_cast<void**>(info->dlpi_addr + relocation.r_offset);
      search->found.push_back({address, *hook.original, hook.replacement});
      search->has_slot[index] = true;
    }
  }
  return 0;
}

}  // namespace

absl::Status HookGroup::Install() {
  if (installed_at_.load(std::memory_order_acquire) == Removals().load()) {
    return absl::OkStatus();
  }
  std::lock_guard<std::mutex> lock(Mutex());
  if (installed_at_.load() == Removals().load()) return absl::OkStatus();
  void* handles[2];
  for (int i = 0; i < 2; ++i) {
    handles[i] = dlopen(kLibraries[i], RTLD_NOLOAD | RTLD_NOW);
    if (handles[i] == nullptr) {
      return Error(kHookError,
                   absl::StrCat(kLibraries[i], " is not loaded: ", dlerror()));
    }
  }
  for (const Hook& hook : hooks_) {
    *hook.original = dlsym(handles[0], hook.symbol);
    if (*hook.original == nullptr) {
      *hook.original = dlsym(handles[1], hook.symbol);
    }
    if (*hook.original == nullptr) {
      return Error(kHookError,
                   absl::StrCat("this TensorFlow does not export ", hook.symbol,
                                "; hloenv was built against TensorFlow ",
                                HLOENV_TENSORFLOW_VERSION));
    }
  }
  Search search{&hooks_, {}, std::vector<bool>(hooks_.size(), false)};
  dl_iterate_phdr(CollectSlots, &search);
  for (size_t i = 0; i < hooks_.size(); ++i) {
    if (!search.has_slot[i]) {
      return Error(kHookError,
                   absl::StrCat("no GOT slot for ", hooks_[i].symbol,
                                ": this build of TensorFlow binds its own "
                                "calls, so hloenv cannot observe its passes"));
    }
  }
  const Protections protections;
  for (size_t i = 0; i < search.found.size(); ++i) {
    absl::Status status = WriteSlot(search.found[i].address,
                                    search.found[i].replacement, protections);
    if (!status.ok()) {
      for (size_t j = 0; j < i; ++j) {
        WriteSlot(search.found[j].address, search.found[j].original,
                  protections)
            .IgnoreError();
      }
      return status;
    }
  }
  Slots().insert(Slots().end(), search.found.begin(), search.found.end());
  installed_at_.store(Removals().load(), std::memory_order_release);
  return absl::OkStatus();
}

void RemoveHooks() {
  std::lock_guard<std::mutex> lock(Mutex());
  const Protections protections;
  for (const Slot& slot : Slots()) {
    if (*slot.address != slot.replacement) continue;
    WriteSlot(slot.address, slot.original, protections).IgnoreError();
  }
  Slots().clear();
  ++Removals();
}

int NumPatchedSlots() {
  std::lock_guard<std::mutex> lock(Mutex());
  return static_cast<int>(Slots().size());
}

}  // namespace hloenv
