#include "capture/checksum.h"

#include <fmt/format.h>
// Inlined, so that the vector width is our compiler's choice and the capture library needs no libxxhash beside it.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep {
namespace {

std::string hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

struct Checksum::State {
  alignas(64) XXH3_state_t xxh;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->xxh);
  XXH3_128bits_reset(&state_->xxh);
}

Checksum::~Checksum() = default;

void Checksum::add(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

std::string Checksum::text() const {
  return hex(XXH3_128bits_digest(&state_->xxh));
}

std::string checksum_text(std::span<const std::byte> bytes) {
  return hex(XXH3_128bits(bytes.data(), bytes.size()));
}

}  // namespace lockstep
