#include "tensor/rehearsal.h"

#include "tensor/storage.h"

namespace lockstep {
namespace {

thread_local bool on_this_thread = false;

}  // namespace

Rehearsal::Rehearsal() : limit_(memory_limit()) {
  on_this_thread = true;
  set_memory_limit(0);
  reset_peak_memory();
}

Rehearsal::~Rehearsal() {
  on_this_thread = false;
  set_memory_limit(limit_);
  release_cached_memory();
  reset_peak_memory();
}

uint64_t Rehearsal::peak_bytes() const {
  return memory_use().peak_bytes;
}

bool rehearsing() {
  return on_this_thread;
}

}  // namespace lockstep
