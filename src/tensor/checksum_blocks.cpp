#include "tensor/checksum_blocks.h"

#include <array>
#include <bit>
#include <cstring>

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kPrime32[3] = {0x9E3779B1u, 0x85EBCA77u, 0xC2B2AE3Du};
constexpr uint64_t kPrime64[5] = {0x9E3779B185EBCA87u, 0xC2B2AE3D27D4EB4Fu, 0x165667B19E3779F9u, 0x85EBCA77C2B2AE63u,
                                  0x27D4EB2F165667C5u};

using Lanes = std::array<uint64_t, kChecksumLanes>;

uint64_t word_at(const void* data, size_t offset) {
  uint64_t word = 0;
  std::memcpy(&word, static_cast<const std::byte*>(data) + offset, sizeof(word));
  return word;
}

// `secret`: in bytes from the secret's beginning.
void add_stripe(Lanes& lanes, const std::byte* data, size_t secret) {
  for (size_t i = 0; i < kChecksumLanes; ++i) {
    const uint64_t word = word_at(data, 8 * i), mixed = word ^ word_at(kChecksumSecret, secret + 8 * i);
    lanes[i ^ 1] += word;
    lanes[i] += (mixed & 0xffffffffu) * (mixed >> 32);
  }
}

uint64_t folded_product(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t merged(const Lanes& lanes, size_t secret, uint64_t start) {
  uint64_t result = start;
  for (size_t i = 0; i < 4; ++i)
    result += folded_product(lanes[2 * i] ^ word_at(kChecksumSecret, secret + 16 * i),
                             lanes[2 * i + 1] ^ word_at(kChecksumSecret, secret + 16 * i + 8));
  result ^= result >> 37;
  result *= 0x165667919E3779F9u;
  return result ^ result >> 32;
}

}  // namespace

void checksum_block_sums(const std::byte* data, size_t blocks, uint64_t* sums) {
  for (size_t block = 0; block < blocks; ++block) {
    Lanes lanes{};
    for (size_t stripe = 0; stripe < kStripesABlock; ++stripe)
      add_stripe(lanes, data + block * kChecksumBlock + stripe * kChecksumStripe, 8 * stripe);
    std::memcpy(sums + block * kChecksumLanes, lanes.data(), sizeof(lanes));
  }
}

Checksum128 checksum_from_sums(std::span<const uint64_t> sums, std::span<const std::byte> tail, uint64_t bytes) {
  constexpr size_t kSecretBytes = sizeof(kChecksumSecret), kLast = kSecretBytes - kChecksumStripe;
  Lanes lanes{kPrime32[2], kPrime64[0], kPrime64[1], kPrime64[2], kPrime64[3], kPrime32[1], kPrime64[4], kPrime32[0]};
  const size_t blocks = checksum_blocks(bytes);
  for (size_t block = 0; block < blocks; ++block)
    for (size_t i = 0; i < kChecksumLanes; ++i) {
      uint64_t lane = lanes[i] + sums[block * kChecksumLanes + i];
      lane ^= lane >> 47;
      lanes[i] = (lane ^ kChecksumSecret[kLast / 8 + i]) * kPrime32[0];
    }
  const std::byte* rest = tail.data() + (blocks * kChecksumBlock - checksum_tail_begin(bytes));
  const size_t stripes = (bytes - 1 - blocks * kChecksumBlock) / kChecksumStripe;
  for (size_t stripe = 0; stripe < stripes; ++stripe) add_stripe(lanes, rest + stripe * kChecksumStripe, 8 * stripe);
  add_stripe(lanes, tail.data() + tail.size() - kChecksumStripe, kLast - 7);
  return {.high = merged(lanes, kLast - 11, ~(bytes * kPrime64[1])), .low = merged(lanes, 11, bytes * kPrime64[0])};
}

}  // namespace lockstep
