// What the emitted code calls to reach memory: by name from the shim's headers, and
// through the compiler, which puts a call before each access (-fsanitize=thread)
// and for each index outside of a declared array (-fsanitize=bounds).
#include "machine.h"

using namespace emu;

extern "C" {

void* emu_static_shared(int slot, size_t bytes, size_t alignment) {
  return static_shared(slot, bytes, alignment);
}
void* emu_dynamic_shared() { return dynamic_shared(); }
unsigned emu_to_shared(const void* pointer) { return shared_address(pointer); }
void* emu_from_shared(unsigned address) { return shared_pointer(address); }
void emu_line(int line) { machine.current->collective.line = line; }
void emu_atomic(void* address, size_t bytes) {
  access(address, bytes, Kind::kAtomic, __builtin_return_address(0));
}
void emu_unmodelled(const char* what, int line) { fail(kUnmodelled, line, nullptr, "%s is not modelled", what); }
void emu_misaligned(const char* what, int line) { fail(kMisaligned, line, nullptr, "%s", what); }

// What -fsanitize=thread calls.  The name says how many bytes.
#define HOOKS(n)                                                                                       \
  void __tsan_read##n(void* a) { access(a, n, Kind::kLoad, __builtin_return_address(0)); }                   \
  void __tsan_write##n(void* a) { access(a, n, Kind::kStore, __builtin_return_address(0)); }                   \
  void __tsan_unaligned_read##n(void* a) { access(a, n, Kind::kLoad, __builtin_return_address(0)); }         \
  void __tsan_unaligned_write##n(void* a) { access(a, n, Kind::kStore, __builtin_return_address(0)); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void* a, size_t n) { access(a, n, Kind::kLoad, __builtin_return_address(0)); }
void __tsan_write_range(void* a, size_t n) { access(a, n, Kind::kStore, __builtin_return_address(0)); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}

// What -fsanitize=bounds calls for an index outside of a declared array.
struct SourceLocation {
  const char* file;
  uint32_t line, column;
};
void __ubsan_handle_out_of_bounds_abort(SourceLocation* at, uintptr_t index) {
  fail(kOutOfBounds, static_cast<int>(at->line), nullptr, "index %td outside of the array (column %u)",
       static_cast<ptrdiff_t>(index), at->column);
}
}
