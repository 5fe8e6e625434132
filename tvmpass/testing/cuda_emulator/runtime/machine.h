// The state of the emulated device, shared by the parts of the runtime.
//
// One block runs at a time.  Each of its threads is a fibre with a stack of its
// own; a fibre runs until it has to wait (barrier, warp collective) or ends.
#pragma once
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace emu {

constexpr int kWarp = 32;
constexpr int kMaxThreads = 1024;
constexpr size_t kStackBytes = 256 << 10;
constexpr unsigned char kPoison = 0xff;  // NaN in every float format

// What a launch can end with; Python names them (launch.py).
enum Fault : int {
  kOk = 0,
  kDivergedBarrier = 1,
  kDivergedWarp = 2,
  kOutOfBounds = 3,
  kMisaligned = 4,
  kUninitialised = 5,
  kRace = 6,
  kAsyncInFlight = 7,
  kTimeout = 8,
  kUnmodelled = 9,
  kNeedsBytes = 10,  // an access smaller than the shadow's granule: run again with granule 1
  kGlobalRace = 11,
};

struct Report {
  int32_t fault;
  int32_t line;         // of the emitted source; 0 where only `pc` is known
  int32_t last_line;    // of the thread's last warp operation
  uint64_t pc;          // offset in the library of the instruction at fault
  int32_t thread[3];
  int32_t block[3];
  int64_t accesses;     // instrumented memory accesses of the launch
  int64_t barriers;
  char text[400];
};

struct Array {
  char* data;
  uint64_t bytes;
  uint64_t granule;     // bytes of an element
  unsigned char* written;  // one byte per element, set where the kernel stored
  const char* name;
};

struct Launch {
  int32_t grid[3];
  int32_t block[3];
  uint64_t dynamic_bytes;
  const int64_t* blocks;  // linear ids, in the order in which they run
  int64_t block_count;
  int32_t policy;       // 0 forward, 1 reversed, 2 random
  int32_t check;        // 0 runs without the checks of races and initialisation
  int32_t preempt;      // on average one switch of threads per so many accesses; 0: none
  int32_t granule;      // bytes of shared memory per shadow cell: 1, 2 or 4
  uint64_t seed;
  double seconds;       // limit
  Array* arrays;
  int64_t array_count;
};

struct dim3 {
  unsigned x, y, z;
};

enum class Wait : uint8_t { kNone, kBarrier, kWarp, kActive, kDone };

struct AsyncCopy {
  unsigned destination;  // shared address
  const char* source;
  unsigned bytes, from_source;
};

// What a lane brings to a warp collective, and takes from it.
struct Collective {
  int kind;
  unsigned mask;
  int line;
  uint64_t value;      // shuffle: the value; vote: the predicate
  int lane, width;     // shuffle: source lane, offset or xor mask
  void* operands[4];   // wmma: fragments d, a, b, c
  const void* shape;   // wmma: what the fragments are
  uint64_t result;
};

struct Thread {
  void* stack_pointer;
  char* stack;
  dim3 index;
  int id, warp, lane;
  Wait wait;
  int line;            // of the barrier it waits at
  uint16_t phase;      // warp collectives it took part in since the last barrier
  Collective collective;
  std::vector<AsyncCopy> issued;               // not committed yet
  std::vector<std::vector<AsyncCopy>> groups;  // committed, oldest first
};

struct Machine {
  Launch launch;
  Report* report;
  void (*entry)(void**);
  void** arguments;
  Thread threads[kMaxThreads];
  int thread_count, warp_count;
  Thread* current;
  void* scheduler;                 // stack pointer of the scheduler
  uint16_t warp_phase[kMaxThreads / kWarp];
  uint32_t interval;               // barrier interval, unique in the process
  uint32_t block_start;            // first interval of the running block
  uint64_t random;
  int64_t accesses, barriers;
  double deadline;
};

extern Machine machine;

// Scheduling (scheduler.cc)
void wait_for_scheduler(Wait why);
[[noreturn]] void fail(Fault fault, int line, const void* pc, const char* format, ...);
uint64_t random_number();
double now();

// Memory (memory.cc)
void memory_begin(const Launch& launch);
void memory_begin_block();
void memory_end();
void flush_store();
enum class Kind : uint8_t { kLoad, kStore, kAtomic };
void access(const void* address, size_t bytes, Kind kind, const void* pc);
void* static_shared(int slot, size_t bytes, size_t alignment);
void* dynamic_shared();
unsigned shared_address(const void* pointer);
char* shared_pointer(unsigned address);
void begin_async(const AsyncCopy& copy, const void* pc);
void finish_async(const AsyncCopy& copy);

// Warp collectives (warp.cc, wmma.cc)
bool run_collectives(int warp);
void check_exit(const Thread& thread);  // a thread that ends must not be waited for
void run_mma(Thread* const* lanes);
enum CollectiveKind : int {
  kSyncWarp, kShuffle, kShuffleUp, kShuffleDown, kShuffleXor, kBallot, kAny, kAll, kTensorCore, kMma
};

}  // namespace emu
