// XXH3-128 in two halves, so that a device can do the first: sums of each block of the input, which depend on nothing
// before them, and then a short chain over those sums. The result is the one that libxxhash gives for the same bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

inline constexpr size_t kChecksumBlock = 1024, kChecksumStripe = 64;
inline constexpr size_t kChecksumLanes = 8, kStripesABlock = kChecksumBlock / kChecksumStripe;
inline constexpr size_t kShortestBlockChecksum = 241;  // fewer bytes are hashed in another way

// XXH3's default secret as the little-endian words that a stripe meets: stripe s meets words s to s + 7.
inline constexpr uint64_t kChecksumSecret[24] = {
    0xbe4ba423396cfeb8u, 0x1cad21f72c81017cu, 0xdb979083e96dd4deu, 0x1f67b3b7a4a44072u, 0x78e5c0cc4ee679cbu,
    0x2172ffcc7dd05a82u, 0x8e2443f7744608b8u, 0x4c263a81e69035e0u, 0xcb00c391bb52283cu, 0xa32e531b8b65d088u,
    0x4ef90da297486471u, 0xd8acdea946ef1938u, 0x3f349ce33f76faa8u, 0x1d4f0bc7c7bbdcf9u, 0x3159b4cd4be0518au,
    0x647378d9c97e9fc8u, 0xc3ebd33483acc5eau, 0xeb6313faffa081c5u, 0x49daf0b751dd0d17u, 0x9e68d429265516d3u,
    0xfca1477d58be162bu, 0xce31d07ad1b8f88fu, 0x280416958f3acb45u, 0x7e404bbbcafbd7afu};

struct Checksum128 {
  uint64_t high = 0, low = 0;
  friend bool operator==(const Checksum128&, const Checksum128&) = default;
};

// How many whole blocks of `bytes` bytes are summed before the tail, which is never empty.
constexpr size_t checksum_blocks(size_t bytes) {
  return bytes == 0 ? 0 : (bytes - 1) / kChecksumBlock;
}
// Where the bytes begin that checksum_from_sums needs as they are: the last block and the stripe before it.
constexpr size_t checksum_tail_begin(size_t bytes) {
  const size_t blocks = checksum_blocks(bytes);
  return blocks == 0 ? 0 : blocks * kChecksumBlock - kChecksumStripe;
}

// What a device computes: `sums` has kChecksumLanes for each block.
void checksum_block_sums(const std::byte* data, size_t blocks, uint64_t* sums);

// `sums`: of checksum_blocks(bytes) blocks; `tail`: the bytes from checksum_tail_begin(bytes) on. bytes is at least
// kShortestBlockChecksum.
Checksum128 checksum_from_sums(std::span<const uint64_t> sums, std::span<const std::byte> tail, uint64_t bytes);

}  // namespace lockstep
