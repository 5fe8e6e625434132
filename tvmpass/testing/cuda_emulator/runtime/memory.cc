// Every load and store of the emitted code, checked before it happens.
//
// The emitted code is compiled with -fsanitize=thread, which puts a call before
// each access to memory that other threads could see; the calls end here instead
// of in a sanitizer's library.  Checked are bounds, alignment, initialisation of
// shared memory, copies in flight, and conflicts between threads that no barrier
// separates.
#include "machine.h"

#include <algorithm>
#include <cstdlib>
#include <sys/mman.h>

namespace emu {
namespace {

constexpr size_t kArenaBytes = 512 << 10;
constexpr size_t kRedzone = 64;
constexpr int kMaxSlots = 256;

enum State : uint8_t { kUnallocated, kPoisoned, kInitialised, kInFlight };

// Writers and readers beside the thread ids 0..1023.
constexpr uint16_t kSeveral = 0xffff;      // in several warps
constexpr uint16_t kSameValue = 0xfffe;    // several threads stored one value
constexpr uint16_t kAtomic = 0xfffd;
constexpr uint16_t kOneWarp = 0x8000;      // several of warp (reader & 31)

// What is known of one granule of memory in the barrier interval of its last use.
struct Write {
  uint32_t interval;
  uint16_t thread, phase;
};
struct Read {
  uint32_t interval;
  uint16_t thread, phase;
};

alignas(1024) char arena[kArenaBytes];
State state[kArenaBytes];
Write shared_writes[kArenaBytes];
Read shared_reads[kArenaBytes];

struct Slot {
  char* data;
  size_t bytes;
};
Slot slots[kMaxSlots];
size_t arena_used;
char* dynamic_memory;

Write* global_writes[64];
size_t global_cells[64];
int last_array;

// A store over what other threads read or wrote: a conflict only if it changes the value.
struct Suspect {
  char* address;
  size_t bytes;
  char old[64];
  const void* pc;
  bool global;
  int array;
  char text[320];
};
Suspect suspect;
bool suspected;

void thread_name(char* text, size_t size, int id) {
  if (id == kSeveral) {
    snprintf(text, size, "several threads");
  } else if (id == kAtomic) {
    snprintf(text, size, "an atomic operation");
  } else if (id & kOneWarp) {
    snprintf(text, size, "several threads of warp %d", id & 31);
  } else {
    const dim3 t = machine.threads[id].index;
    snprintf(text, size, "thread (%u, %u, %u)", t.x, t.y, t.z);
  }
}

// A warp collective that thread took part in lies between the other's access and now.
bool ordered_in_warp(const Thread& thread, int other, uint16_t phase) {
  return other < kMaxThreads && other / kWarp == thread.warp && thread.phase > phase;
}

const char* where_shared(const char* address, char* text, size_t size) {
  for (int i = 0; i < kMaxSlots; ++i) {
    if (slots[i].data && address >= slots[i].data && address < slots[i].data + slots[i].bytes) {
      snprintf(text, size, "shared memory (array %d, byte %td)", i, address - slots[i].data);
      return text;
    }
  }
  if (dynamic_memory && address >= dynamic_memory)
    snprintf(text, size, "dynamic shared memory (byte %td of %zu)", address - dynamic_memory,
             static_cast<size_t>(machine.launch.dynamic_bytes));
  else
    snprintf(text, size, "shared memory (byte %td)", address - arena);
  return text;
}

size_t required_alignment(size_t bytes) { return std::min<size_t>(bytes & (~bytes + 1), 16); }

const char* name(Kind kind) {
  switch (kind) {
    case Kind::kLoad: return "load";
    case Kind::kStore: return "store";
    default: return "atomic operation";
  }
}

void check_alignment(const char* address, size_t bytes, Kind kind, const void* pc) {
  const size_t needed = required_alignment(bytes);
  if (reinterpret_cast<uintptr_t>(address) % needed)
    fail(kMisaligned, 0, pc, "a %s of %zu bytes at an address that is no multiple of %zu", name(kind), bytes,
         needed);
}

// Two atomic operations do not conflict, whoever does them.
bool both_atomic(Kind kind, const Write& write) { return kind == Kind::kAtomic && write.thread == kAtomic; }

[[noreturn]] void conflict(const char* what, const char* where, int other, const void* pc, bool global) {
  char name[64];
  thread_name(name, sizeof name, other);
  fail(global ? kGlobalRace : kRace, 0, pc, "%s in %s: %s did, and no barrier lies between", what, where, name);
}

// A load, or the load that an atomic operation begins with.
void read_shared(const char* address, size_t bytes, Kind kind, const void* pc) {
  Thread& thread = *machine.current;
  const size_t granule = machine.launch.granule;
  const size_t begin = (address - arena) / granule, end = (address - arena + bytes - 1) / granule;
  for (size_t i = begin; i <= end; ++i) {
    char where[96];
    if (state[i] == kUnallocated)
      fail(kOutOfBounds, 0, pc, "a load of %zu bytes outside of %s", bytes,
           where_shared(address, where, sizeof where));
    if (!machine.launch.check) continue;
    if (state[i] == kInFlight)
      fail(kAsyncInFlight, 0, pc, "a load from %s before the wait for the asynchronous copy into it",
           where_shared(address, where, sizeof where));
    if (state[i] == kPoisoned)
      fail(kUninitialised, 0, pc, "a load of %zu bytes from %s, which nothing was stored to", bytes,
           where_shared(address, where, sizeof where));
    const Write& write = shared_writes[i];
    if (write.interval == machine.interval && write.thread != thread.id && write.thread != kSameValue &&
        !both_atomic(kind, write) && !ordered_in_warp(thread, write.thread, write.phase))
      conflict("a load of what another thread stored", where_shared(address, where, sizeof where),
               write.thread, pc, false);
    if (kind == Kind::kAtomic) {
      shared_writes[i] = {machine.interval, kAtomic, 0};
      continue;
    }
    Read& read = shared_reads[i];
    const auto id = static_cast<uint16_t>(thread.id);
    if (read.interval != machine.interval) {
      read = {machine.interval, id, thread.phase};
    } else if (read.thread == id) {
      read.phase = thread.phase;
    } else if (read.thread != kSeveral) {
      const int warp = read.thread & kOneWarp ? read.thread & 31 : read.thread / kWarp;
      if (warp == thread.warp)
        read = {machine.interval, static_cast<uint16_t>(kOneWarp | warp), std::max(read.phase, thread.phase)};
      else
        read.thread = kSeveral;
    }
  }
}

bool unordered_read(const Thread& thread, const Read& read) {
  if (read.interval != machine.interval || read.thread == thread.id) return false;
  if (read.thread == kSeveral) return true;
  const int warp = read.thread & kOneWarp ? read.thread & 31 : read.thread / kWarp;
  return !(warp == thread.warp && thread.phase > read.phase);
}

void suspect_store(char* address, size_t bytes, const char* what, const char* where, int other, const void* pc,
                   bool global) {
  if (suspected) return;
  if (bytes > sizeof suspect.old) conflict(what, where, other, pc, global);
  suspected = true;
  suspect.address = address;
  suspect.bytes = bytes;
  memcpy(suspect.old, address, bytes);
  suspect.pc = pc;
  suspect.global = global;
  char name[64];
  thread_name(name, sizeof name, other);
  snprintf(suspect.text, sizeof suspect.text, "%s in %s: %s did, and no barrier lies between", what, where, name);
}

void write_shared(char* address, size_t bytes, const void* pc, bool in_flight = false) {
  Thread& thread = *machine.current;
  const size_t granule = machine.launch.granule;
  const size_t begin = (address - arena) / granule, end = (address - arena + bytes - 1) / granule;
  for (size_t i = begin; i <= end; ++i) {
    char where[96];
    if (state[i] == kUnallocated)
      fail(kOutOfBounds, 0, pc, "a store of %zu bytes outside of %s", bytes,
           where_shared(address, where, sizeof where));
    if (!machine.launch.check) continue;
    if (state[i] == kInFlight)
      fail(kAsyncInFlight, 0, pc, "a store to %s before the wait for the asynchronous copy into it",
           where_shared(address, where, sizeof where));
    Write& write = shared_writes[i];
    const Read& read = shared_reads[i];
    const bool after_write = write.interval == machine.interval && write.thread != thread.id &&
                             !ordered_in_warp(thread, write.thread, write.phase);
    if (after_write || unordered_read(thread, read)) {
      const char* what = after_write ? "a store over what another thread stored"
                                     : "a store over what another thread loads";
      const int other = after_write ? write.thread : read.thread;
      if (in_flight) conflict(what, where_shared(address, where, sizeof where), other, pc, false);
      suspect_store(address, bytes, what, where_shared(address, where, sizeof where), other, pc, false);
      if (after_write) write.thread = kSameValue;
    } else {
      write = {machine.interval, static_cast<uint16_t>(thread.id), thread.phase};
    }
    state[i] = in_flight ? kInFlight : kInitialised;
  }
}

// The array that an address lies in; -1 for none.
int find_array(const char* address) {
  const Array* arrays = machine.launch.arrays;
  const auto inside = [&](int i) { return address >= arrays[i].data && address < arrays[i].data + arrays[i].bytes; };
  if (last_array < machine.launch.array_count && inside(last_array)) return last_array;
  for (int i = 0; i < machine.launch.array_count; ++i)
    if (inside(i)) return last_array = i;
  return -1;
}

void access_global(char* address, size_t bytes, Kind kind, const void* pc) {
  const int index = find_array(address);
  if (index < 0) {
    // Say how far off it is: the nearest array is almost always the one that was meant.
    const Array* nearest = nullptr;
    ptrdiff_t best = 0;
    for (int i = 0; i < machine.launch.array_count; ++i) {
      const Array& a = machine.launch.arrays[i];
      const ptrdiff_t distance = address < a.data ? a.data - address : address - (a.data + a.bytes);
      if (!nearest || distance < best) nearest = &a, best = distance;
    }
    if (!nearest) fail(kOutOfBounds, 0, pc, "a %s of %zu bytes, and there is no array", name(kind), bytes);
    fail(kOutOfBounds, 0, pc, "a %s of %zu bytes outside of every array: byte %td of %s, which has %zu",
         name(kind), bytes, address - nearest->data, nearest->name,
         static_cast<size_t>(nearest->bytes));
  }
  Array& array = machine.launch.arrays[index];
  const size_t offset = address - array.data;
  if (offset + bytes > array.bytes)
    fail(kOutOfBounds, 0, pc, "a %s of %zu bytes at byte %zu of %s, which has %zu", name(kind), bytes,
         offset, array.name, static_cast<size_t>(array.bytes));
  Thread& thread = *machine.current;
  const size_t begin = offset / array.granule, end = (offset + bytes - 1) / array.granule;
  for (size_t i = begin; i <= end; ++i) {
    if (kind != Kind::kLoad && array.written) array.written[i] = 1;
    if (!machine.launch.check) continue;
    Write& write = global_writes[index][i];
    // Nothing orders the blocks of a launch; in one block a barrier does.
    const bool conflicts =
        write.interval != 0 && !both_atomic(kind, write) &&
                               (write.interval < machine.block_start ||
                                (write.interval == machine.interval && write.thread != thread.id &&
                                 !ordered_in_warp(thread, write.thread, write.phase)));
    char where[128];
    if (conflicts) {
      const bool same_block = write.interval >= machine.block_start;
      snprintf(where, sizeof where, "global memory (element %zu of %s)%s", i, array.name,
               same_block ? "" : ", of another block");
    }
    if (kind != Kind::kStore) {
      if (conflicts && write.thread != kSameValue)
        conflict("a load of what another thread stored", where, write.thread, pc, true);
      if (kind == Kind::kAtomic) write = {machine.interval, kAtomic, 0};
    } else if (conflicts) {
      suspect_store(address, bytes, "a store over what another thread stored", where, write.thread, pc, true);
      write = {machine.interval, kSameValue, 0};
    } else {
      write = {machine.interval, static_cast<uint16_t>(thread.id), thread.phase};
    }
  }
}

bool in_shared(const char* address) { return address >= arena && address < arena + kArenaBytes; }

bool on_stack(const char* address) {
  const char* stack = machine.current->stack;
  return address >= stack && address < stack + kStackBytes;
}

char* allocate_shared(size_t bytes, size_t alignment) {
  arena_used = (arena_used + kRedzone + alignment - 1) / alignment * alignment;
  if (arena_used + bytes + kRedzone > kArenaBytes)
    fail(kUnmodelled, 0, nullptr, "more than %zu bytes of shared memory", kArenaBytes);
  char* memory = arena + arena_used;
  const size_t granule = machine.launch.granule;
  memset(state + arena_used / granule, kPoisoned, (bytes + granule - 1) / granule);
  memset(memory, kPoison, bytes);
  arena_used += bytes;
  return memory;
}

}  // namespace

void memory_begin(const Launch& launch) {
  last_array = 0;
  suspected = false;
  for (int i = 0; launch.check && i < launch.array_count; ++i) {
    global_cells[i] = launch.arrays[i].bytes / launch.arrays[i].granule + 1;
    void* memory = mmap(nullptr, global_cells[i] * sizeof(Write), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    global_writes[i] = static_cast<Write*>(memory);
  }
}

void memory_end() {
  const Launch& launch = machine.launch;
  for (int i = 0; launch.check && i < launch.array_count; ++i)
    munmap(global_writes[i], global_cells[i] * sizeof(Write));
}

void memory_begin_block() {
  memset(state, kUnallocated, (arena_used + kRedzone) / machine.launch.granule + 1);
  memset(slots, 0, sizeof slots);
  arena_used = 0;
  dynamic_memory = machine.launch.dynamic_bytes ? allocate_shared(machine.launch.dynamic_bytes, 1024) : nullptr;
}

void flush_store() {
  if (!suspected) return;
  suspected = false;
  if (memcmp(suspect.old, suspect.address, suspect.bytes))
    fail(suspect.global ? kGlobalRace : kRace, 0, suspect.pc, "%s", suspect.text);
}

void access(const void* where, size_t bytes, Kind kind, const void* pc) {
  if (bytes == 0) return;
  char* address = static_cast<char*>(const_cast<void*>(where));
  flush_store();
  if (on_stack(address)) return;
  ++machine.accesses;
  if ((machine.accesses & 0xfffff) == 0 && now() > machine.deadline)
    fail(kTimeout, 0, pc, "no end within %.0f s", machine.launch.seconds);
  if (machine.launch.preempt && random_number() % machine.launch.preempt == 0) wait_for_scheduler(Wait::kNone);
  check_alignment(address, bytes, kind, pc);
  if (!in_shared(address)) return access_global(address, bytes, kind, pc);
  if (bytes < static_cast<size_t>(machine.launch.granule) && machine.launch.check)
    fail(kNeedsBytes, 0, pc, "an access of %zu bytes", bytes);
  if (kind == Kind::kStore)
    write_shared(address, bytes, pc);
  else
    read_shared(address, bytes, kind, pc);
}

unsigned shared_address(const void* pointer) {
  const char* address = static_cast<const char*>(pointer);
  // One past the end is fine; what is far off is caught when it is used.
  return static_cast<unsigned>(address - arena);
}

char* shared_pointer(unsigned address) { return arena + address; }

void begin_async(const AsyncCopy& copy, const void* pc) {
  flush_store();
  char* destination = shared_pointer(copy.destination);
  if (!in_shared(destination)) fail(kOutOfBounds, 0, pc, "cp.async to an address outside of shared memory");
  if (copy.destination % copy.bytes || reinterpret_cast<uintptr_t>(copy.source) % copy.bytes)
    fail(kMisaligned, 0, pc, "cp.async of %u bytes at an address that is no multiple of it", copy.bytes);
  if (copy.from_source) access(copy.source, copy.from_source, Kind::kLoad, pc);
  write_shared(destination, copy.bytes, pc, true);
}

void finish_async(const AsyncCopy& copy) {
  char* destination = shared_pointer(copy.destination);
  memcpy(destination, copy.source, copy.from_source);
  memset(destination + copy.from_source, 0, copy.bytes - copy.from_source);
  const Thread& thread = *machine.current;
  const size_t granule = machine.launch.granule;
  for (size_t i = copy.destination / granule; i <= (copy.destination + copy.bytes - 1) / granule; ++i) {
    state[i] = kInitialised;
    shared_writes[i] = {machine.interval, static_cast<uint16_t>(thread.id), thread.phase};
  }
}

void* static_shared(int slot, size_t bytes, size_t alignment) {
  if (slot >= kMaxSlots) fail(kUnmodelled, 0, nullptr, "more than %d shared arrays", kMaxSlots);
  if (!slots[slot].data) slots[slot] = {allocate_shared(bytes, alignment), bytes};
  return slots[slot].data;
}

void* dynamic_shared() { return dynamic_memory; }

}  // namespace emu
