// Fibres, their order, barriers and the launch itself.
#include "machine.h"

#include <cstdarg>
#include <ctime>
#include <dlfcn.h>
#include <sys/mman.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

extern "C" {
// The emitted code sees these as constants: they do not change during a thread's life.
emu::dim3 threadIdx, blockIdx, blockDim, gridDim;
}

namespace emu {

Machine machine;

namespace {

char* stacks;

[[noreturn]] void thread_main() {
  machine.entry(machine.arguments);
  flush_store();
  check_exit(*machine.current);
  wait_for_scheduler(Wait::kDone);
  __builtin_unreachable();
}

#if defined(__x86_64__)
// Saves the callee-saved registers on the stack, and goes on on another stack.
extern "C" void emu_switch(void** save, void* load);
asm(R"(
.text
.type emu_switch, @function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

void prepare(Thread& thread) {
  void** top = reinterpret_cast<void**>(thread.stack + kStackBytes - 64);
  *--top = nullptr;  // where thread_main would return to
  *--top = reinterpret_cast<void*>(&thread_main);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  thread.stack_pointer = top;
}

void resume(Thread& thread) { emu_switch(&machine.scheduler, thread.stack_pointer); }
void suspend(Thread& thread) { emu_switch(&thread.stack_pointer, machine.scheduler); }
#else
ucontext_t contexts[kMaxThreads], scheduler_context;

void prepare(Thread& thread) {
  ucontext_t& context = contexts[thread.id];
  getcontext(&context);
  context.uc_stack.ss_sp = thread.stack;
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, reinterpret_cast<void (*)()>(&thread_main), 0);
}

void resume(Thread& thread) { swapcontext(&scheduler_context, &contexts[thread.id]); }
void suspend(Thread& thread) { swapcontext(&contexts[thread.id], &scheduler_context); }
#endif

bool failed() { return machine.report->fault != kOk; }

bool runnable(const Thread& thread) { return thread.wait == Wait::kNone; }

// Write 0..n-1 into `order` as the policy of the launch wants it.
void arrange(int* order, int n) {
  for (int i = 0; i < n; ++i) order[i] = machine.launch.policy == 1 ? n - 1 - i : i;
  if (machine.launch.policy < 2) return;
  for (int i = n - 1; i > 0; --i) {
    const int j = static_cast<int>(random_number() % (i + 1));
    const int kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
}

// Those of a warp that ask for the active mask, while nobody in it can run, are active.
bool answer_activemask(int first, int last) {
  bool answered = false;
  for (int i = first; i < last; ++i) {
    if (machine.threads[i].wait != Wait::kActive) continue;
    const int line = machine.threads[i].line;
    unsigned mask = 0;
    for (int j = first; j < last; ++j) {
      const Thread& other = machine.threads[j];
      if (other.wait == Wait::kActive && other.line == line) mask |= 1u << other.lane;
    }
    for (int j = first; j < last; ++j) {
      Thread& other = machine.threads[j];
      if (other.wait != Wait::kActive || other.line != line) continue;
      other.collective.result = mask;
      other.wait = Wait::kNone;
    }
    answered = true;
  }
  return answered;
}

// Run a warp until each of its threads waits for the block, or ended.
bool run_warp(int warp) {
  const int first = warp * kWarp;
  const int last = first + kWarp < machine.thread_count ? first + kWarp : machine.thread_count;
  int order[kWarp];
  bool ran = false;
  for (;;) {
    bool progress = false;
    arrange(order, last - first);
    for (int i = 0; i < last - first; ++i) {
      Thread& thread = machine.threads[first + order[i]];
      if (!runnable(thread)) continue;
      machine.current = &thread;
      threadIdx = thread.index;
      resume(thread);
      if (failed()) return true;
      progress = true;
      if (machine.launch.preempt && random_number() % 4 == 0) break;  // a new order
    }
    bool any = false;
    for (int i = first; i < last; ++i) any |= runnable(machine.threads[i]);
    if (!any) progress |= run_collectives(warp) || answer_activemask(first, last);
    if (failed() || !progress) return ran;
    ran = true;
    if (machine.launch.preempt && random_number() % 4 == 0) return true;  // another warp
  }
}

void describe_waiting(char* text, size_t size) {
  int counts[5] = {};
  const Thread* examples[5] = {};
  for (int i = 0; i < machine.thread_count; ++i) {
    const int wait = static_cast<int>(machine.threads[i].wait);
    ++counts[wait];
    if (!examples[wait]) examples[wait] = &machine.threads[i];
  }
  size_t used = 0;
  const char* names[] = {"running", "at __syncthreads", "in a warp operation", "at __activemask", "ended"};
  for (int w = 0; w < 5; ++w) {
    if (!counts[w] || used >= size) continue;
    const Thread& e = *examples[w];
    const int line = e.wait == Wait::kWarp ? e.collective.line : e.line;
    used += snprintf(text + used, size - used, "%s%d of %d threads %s", used ? ", " : "", counts[w],
                     machine.thread_count, names[w]);
    if (w == 4 || used >= size) continue;
    used += snprintf(text + used, size - used, " (line %d, thread (%u, %u, %u) first)", line, e.index.x,
                     e.index.y, e.index.z);
  }
}

void blame(const Thread& thread) { machine.current = const_cast<Thread*>(&thread); }

// All threads wait: release the barrier, or say why that is wrong.  False when all ended.
bool release_barrier() {
  int done = 0, waiting = 0;
  const Thread* first = nullptr;
  const Thread* stuck = nullptr;
  for (int i = 0; i < machine.thread_count; ++i) {
    const Thread& thread = machine.threads[i];
    if (thread.wait == Wait::kDone) ++done;
    if (thread.wait == Wait::kBarrier) {
      ++waiting;
      if (!first) first = &thread;
      if (thread.line != first->line) {
        blame(thread);
        fail(kDivergedBarrier, thread.line, nullptr,
             "threads of a block wait at two different barriers, lines %d and %d", first->line, thread.line);
      }
    }
    if (thread.wait == Wait::kWarp && !stuck) stuck = &thread;
  }
  if (done == machine.thread_count) return false;
  char text[300];
  describe_waiting(text, sizeof text);
  if (stuck) {
    blame(*stuck);
    fail(kDivergedWarp, stuck->collective.line, nullptr,
         "a warp operation with mask 0x%08x is not reached by all lanes it names: %s", stuck->collective.mask,
         text);
  }
  if (waiting != machine.thread_count) {
    blame(*first);
    fail(kDivergedBarrier, first->line, nullptr, "a barrier is not reached by all threads of the block: %s",
         text);
  }
  for (int i = 0; i < machine.thread_count; ++i) {
    machine.threads[i].wait = Wait::kNone;
    machine.threads[i].phase = 0;
  }
  memset(machine.warp_phase, 0, sizeof machine.warp_phase);
  ++machine.interval;
  ++machine.barriers;
  return true;
}

void run_block(int64_t linear) {
  const Launch& launch = machine.launch;
  const unsigned gx = launch.grid[0], gy = launch.grid[1];
  blockIdx = {static_cast<unsigned>(linear % gx), static_cast<unsigned>(linear / gx % gy),
              static_cast<unsigned>(linear / gx / gy)};
  machine.block_start = ++machine.interval;
  memset(machine.warp_phase, 0, sizeof machine.warp_phase);
  memory_begin_block();
  for (int i = 0; i < machine.thread_count; ++i) {
    Thread& thread = machine.threads[i];
    thread.wait = Wait::kNone;
    thread.phase = 0;
    thread.collective.line = 0;
    thread.issued.clear();
    thread.groups.clear();
    prepare(thread);
  }
  int order[kMaxThreads / kWarp];
  for (;;) {
    bool ran = false;
    arrange(order, machine.warp_count);
    for (int i = 0; i < machine.warp_count && !failed(); ++i) ran |= run_warp(order[i]);
    if (failed()) return;
    if (ran) continue;
    if (now() > machine.deadline) {
      snprintf(machine.report->text, sizeof machine.report->text, "no end within %.0f s", launch.seconds);
      machine.report->fault = kTimeout;
      return;
    }
    if (!release_barrier()) return;
    if (failed()) return;
  }
}

}  // namespace

uint64_t random_number() {  // xorshift64*
  uint64_t& x = machine.random;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  return (x * 0x2545f4914f6cdd1dull) >> 16;
}

double now() {  // of this thread alone: a busy machine must not end a run
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void wait_for_scheduler(Wait why) {
  Thread& thread = *machine.current;
  thread.wait = why;
  suspend(thread);
}

namespace {
bool on_fibre() {
  const char* here = static_cast<const char*>(__builtin_frame_address(0));
  return stacks && here >= stacks && here < stacks + kMaxThreads * kStackBytes;
}
jmp_buf scheduler_escape;
}  // namespace

void fail(Fault fault, int line, const void* pc, const char* format, ...) {
  Report& report = *machine.report;
  if (report.fault == kOk) {
    report.fault = fault;
    report.line = line;
    report.last_line = machine.current ? machine.current->collective.line : 0;
    Dl_info info;
    if (pc && dladdr(pc, &info))
      report.pc = static_cast<uint64_t>(static_cast<const char*>(pc) - static_cast<const char*>(info.dli_fbase));
    const dim3 t = machine.current ? machine.current->index : dim3{};
    report.thread[0] = t.x, report.thread[1] = t.y, report.thread[2] = t.z;
    report.block[0] = blockIdx.x, report.block[1] = blockIdx.y, report.block[2] = blockIdx.z;
    va_list list;
    va_start(list, format);
    vsnprintf(report.text, sizeof report.text, format, list);
    va_end(list);
  }
  if (on_fibre()) {
    wait_for_scheduler(Wait::kDone);  // never resumed
    __builtin_unreachable();
  }
  longjmp(scheduler_escape, 1);
}

}  // namespace emu

using namespace emu;

extern "C" __attribute__((visibility("default"))) int emu_launch(void (*entry)(void**), void** arguments,
                                                                   const Launch* launch, Report* report) {
  machine.launch = *launch;
  machine.report = report;
  memset(report, 0, sizeof *report);
  machine.entry = entry;
  machine.arguments = arguments;
  const int32_t* b = launch->block;
  machine.thread_count = b[0] * b[1] * b[2];
  machine.warp_count = (machine.thread_count + kWarp - 1) / kWarp;
  machine.accesses = machine.barriers = 0;
  machine.random = launch->seed * 0x9e3779b97f4a7c15ull + 0x1234567;
  machine.deadline = now() + launch->seconds;
  machine.current = nullptr;
  blockDim = {static_cast<unsigned>(b[0]), static_cast<unsigned>(b[1]), static_cast<unsigned>(b[2])};
  gridDim = {static_cast<unsigned>(launch->grid[0]), static_cast<unsigned>(launch->grid[1]),
             static_cast<unsigned>(launch->grid[2])};
  if (!stacks) {
    void* memory = mmap(nullptr, kMaxThreads * kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return report->fault = kUnmodelled;
    stacks = static_cast<char*>(memory);
  }
  for (int i = 0; i < machine.thread_count; ++i) {
    Thread& thread = machine.threads[i];
    thread.id = i;
    thread.warp = i / kWarp;
    thread.lane = i % kWarp;
    thread.stack = stacks + i * kStackBytes;
    thread.index = {static_cast<unsigned>(i % b[0]), static_cast<unsigned>(i / b[0] % b[1]),
                    static_cast<unsigned>(i / b[0] / b[1])};
  }
  memory_begin(*launch);
  if (setjmp(scheduler_escape) == 0) {
    for (int64_t i = 0; i < launch->block_count && !failed(); ++i) run_block(launch->blocks[i]);
  }
  memory_end();
  report->accesses = machine.accesses;
  report->barriers = machine.barriers;
  return report->fault;
}

extern "C" void emu_syncthreads(int line) {
  flush_store();
  machine.current->line = line;
  wait_for_scheduler(Wait::kBarrier);
}

extern "C" unsigned emu_activemask(int line) {
  flush_store();
  Thread& thread = *machine.current;
  thread.line = line;
  wait_for_scheduler(Wait::kActive);
  return static_cast<unsigned>(thread.collective.result);
}
