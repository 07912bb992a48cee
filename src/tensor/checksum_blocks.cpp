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
  // A chain that is as long as the tensor: its eight links stay in registers.
  const uint64_t* next = sums.data();
  uint64_t l0 = lanes[0], l1 = lanes[1], l2 = lanes[2], l3 = lanes[3], l4 = lanes[4], l5 = lanes[5], l6 = lanes[6],
           l7 = lanes[7];
  const auto advance = [](uint64_t& link, uint64_t sum, uint64_t secret) {
    link += sum;
    link = (link ^ link >> 47 ^ secret) * kPrime32[0];
  };
  for (size_t block = 0; block < blocks; ++block, next += kChecksumLanes) {
    constexpr const uint64_t* kSecret = kChecksumSecret + kLast / 8;
    advance(l0, next[0], kSecret[0]);
    advance(l1, next[1], kSecret[1]);
    advance(l2, next[2], kSecret[2]);
    advance(l3, next[3], kSecret[3]);
    advance(l4, next[4], kSecret[4]);
    advance(l5, next[5], kSecret[5]);
    advance(l6, next[6], kSecret[6]);
    advance(l7, next[7], kSecret[7]);
  }
  lanes = {l0, l1, l2, l3, l4, l5, l6, l7};
  const std::byte* rest = tail.data() + (blocks * kChecksumBlock - checksum_tail_begin(bytes));
  const size_t stripes = (bytes - 1 - blocks * kChecksumBlock) / kChecksumStripe;
  for (size_t stripe = 0; stripe < stripes; ++stripe) add_stripe(lanes, rest + stripe * kChecksumStripe, 8 * stripe);
  add_stripe(lanes, tail.data() + tail.size() - kChecksumStripe, kLast - 7);
  return {.high = merged(lanes, kLast - 11, ~(bytes * kPrime64[1])), .low = merged(lanes, 11, bytes * kPrime64[0])};
}

}  // namespace lockstep
