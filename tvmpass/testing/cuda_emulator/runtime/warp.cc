// Warp collectives: a lane waits until all lanes that its mask names have come.
#include "machine.h"

namespace emu {
namespace {

uint64_t shuffled(Thread* const* lanes, const Thread& thread) {
  const Collective& mine = thread.collective;
  const int width = mine.width, lane = thread.lane, base = lane & ~(width - 1);
  int source = lane;
  switch (mine.kind) {
    case kShuffle: source = base + (mine.lane & (width - 1)); break;
    case kShuffleUp: source = lane - mine.lane < base ? lane : lane - mine.lane; break;
    case kShuffleDown: source = lane + mine.lane >= base + width ? lane : lane + mine.lane; break;
    case kShuffleXor: source = (lane ^ mine.lane) >= base + width ? lane : lane ^ mine.lane; break;
  }
  // What a lane that takes no part would give is undefined: poison, which shows if it is used.
  return lanes[source] ? lanes[source]->collective.value : ~uint64_t{0};
}

void run(Thread* const* lanes, unsigned mask) {
  const Collective* first = nullptr;
  for (int i = 0; i < kWarp && !first; ++i)
    if (lanes[i]) first = &lanes[i]->collective;
  unsigned votes = 0;
  for (int i = 0; i < kWarp; ++i)
    if (lanes[i] && lanes[i]->collective.value) votes |= 1u << i;
  if ((first->kind == kMma || first->kind == kTensorCore) && mask != ~0u)
    fail(kDivergedWarp, first->line, nullptr, "a tensor-core operation without all 32 threads of a warp");
  if (first->kind == kMma) run_mma(lanes);
  for (int i = 0; i < kWarp; ++i) {
    if (!lanes[i]) continue;
    Collective& mine = lanes[i]->collective;
    switch (mine.kind) {
      case kShuffle: case kShuffleUp: case kShuffleDown: case kShuffleXor:
        mine.result = shuffled(lanes, *lanes[i]);
        break;
      case kBallot: mine.result = votes; break;
      case kAny: mine.result = votes != 0; break;
      case kAll: mine.result = votes == mask; break;
      default: break;
    }
  }
}

uint64_t meet(Collective collective) {
  flush_store();
  Thread& thread = *machine.current;
  if (!(collective.mask >> thread.lane & 1))
    fail(kDivergedWarp, collective.line, nullptr, "mask 0x%08x does not name lane %d, which uses it", collective.mask,
         thread.lane);
  thread.collective = collective;
  wait_for_scheduler(Wait::kWarp);
  return thread.collective.result;
}

}  // namespace

void check_exit(const Thread& thread) {
  const int first = thread.warp * kWarp;
  for (int i = first; i < first + kWarp && i < machine.thread_count; ++i) {
    const Thread& other = machine.threads[i];
    if (other.wait == Wait::kWarp && other.collective.mask >> thread.lane & 1)
      fail(kDivergedWarp, other.collective.line, nullptr,
           "the thread ends while lane %d waits for it in a warp operation with mask 0x%08x", other.lane,
           other.collective.mask);
  }
}

bool run_collectives(int warp) {
  const int first = warp * kWarp;
  const int last = first + kWarp < machine.thread_count ? first + kWarp : machine.thread_count;
  bool ran = false;
  for (int i = first; i < last; ++i) {
    if (machine.threads[i].wait != Wait::kWarp) continue;
    const Collective asked = machine.threads[i].collective;
    Thread* lanes[kWarp] = {};
    unsigned present = 0, needed = 0;
    for (int j = first; j < last; ++j) {
      Thread& other = machine.threads[j];
      const unsigned bit = 1u << other.lane;
      if (!(asked.mask & bit) || other.wait == Wait::kDone) continue;
      needed |= bit;  // lanes that ended, or do not exist, are not waited for
      const Collective& theirs = other.collective;
      if (other.wait != Wait::kWarp || theirs.mask != asked.mask || theirs.kind != asked.kind || theirs.line != asked.line)
        continue;
      present |= bit;
      lanes[other.lane] = &other;
    }
    if (present != needed) continue;
    machine.current = &machine.threads[i];
    run(lanes, present);
    const uint16_t phase = machine.warp_phase[warp] == 0xffff ? 0xffff : ++machine.warp_phase[warp];
    for (Thread* lane : lanes) {
      if (!lane) continue;
      lane->phase = phase;
      lane->wait = Wait::kNone;
    }
    ran = true;
  }
  return ran;
}

}  // namespace emu

using namespace emu;

extern "C" {

void emu_syncwarp(unsigned mask, int line) { meet({kSyncWarp, mask, line, 0, 0, 0, {}, nullptr, 0}); }

uint64_t emu_shuffle(int variant, unsigned mask, uint64_t value, int lane, int width, int line) {
  if (width < 1 || width > kWarp || (width & (width - 1)))
    fail(kUnmodelled, line, nullptr, "a shuffle with width %d, which is no power of two up to 32", width);
  return meet({kShuffle + variant, mask, line, value, lane, width, {}, nullptr, 0});
}

unsigned emu_vote(int variant, unsigned mask, int predicate, int line) {
  return static_cast<unsigned>(meet({kBallot + variant, mask, line, predicate != 0, 0, 0, {}, nullptr, 0}));
}

void emu_tensor_core(int line) { meet({kTensorCore, ~0u, line, 0, 0, 0, {}, nullptr, 0}); }

void emu_mma(void* d, const void* a, const void* b, const void* c, const void* shape, int line) {
  meet({kMma, ~0u, line, 0, 0, 0, {d, const_cast<void*>(a), const_cast<void*>(b), const_cast<void*>(c)}, shape, 0});
}

// Asynchronous copies: issued, committed as a group, and done when a wait reaches the group.

void emu_cp_async(unsigned destination, const void* source, unsigned bytes, unsigned from_source) {
  const AsyncCopy copy{destination, static_cast<const char*>(source), bytes, from_source < bytes ? from_source : bytes};
  begin_async(copy, __builtin_return_address(0));
  // Without the checks a copy may land at any time: at once, or as late as its wait.
  if (machine.launch.preempt && random_number() % 2) return finish_async(copy);
  machine.current->issued.push_back(copy);
}

void emu_cp_async_commit() {
  Thread& thread = *machine.current;
  thread.groups.push_back(std::move(thread.issued));
  thread.issued.clear();
}

void emu_cp_async_wait(unsigned pending) {
  flush_store();
  Thread& thread = *machine.current;
  while (thread.groups.size() > pending) {
    for (const AsyncCopy& copy : thread.groups.front()) finish_async(copy);
    thread.groups.erase(thread.groups.begin());
  }
}
}
