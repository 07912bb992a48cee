#include "capture/checksum.h"

#include <fmt/format.h>

#include <new>

#include "base/fast_xxhash.h"

namespace lockstep {
namespace {

std::string hex(XXH128_hash_t hash) {
  return checksum_text(Checksum128{hash.high64, hash.low64});
}

}  // namespace

struct Checksum::State {
  XXH3_state_t* xxh = XXH3_createState();  // 64-byte aligned
  ~State() { XXH3_freeState(xxh); }
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  if (!state_->xxh) throw std::bad_alloc();
  XXH3_128bits_reset(state_->xxh);
}

Checksum::~Checksum() = default;

void Checksum::add(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::string Checksum::text() const {
  return hex(XXH3_128bits_digest(state_->xxh));
}

std::string checksum_text(const Checksum128& checksum) {
  return fmt::format("{:016x}{:016x}", checksum.high, checksum.low);
}

std::string checksum_text(std::span<const std::byte> bytes) {
  return hex(XXH3_128bits(bytes.data(), bytes.size()));
}

}  // namespace lockstep
