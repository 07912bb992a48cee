#include "compare/range_cards.h"

#include <fmt/format.h>

#include <cmath>

#include "base/names.h"

namespace lockstep {
namespace {

// First match counts.
const RangeCard kCards[] = {
    {"diffusion transformer", "transformer.norm_out*", 1e9},
    {"diffusion transformer", "transformer.transformer_blocks*", 1e9},
    {"diffusion transformer", "transformer.single_transformer_blocks*", 1e9},
    {"diffusion transformer", "*transformer_blocks.*", 1e9},
    {"language model", "text_encoder*.layers.*", 1e6},  // a few channels of a few tokens hold tens of thousands
    {"language model", "text_encoder*", 1e6},
    {"variational autoencoder", "vae*", 1e4},
    {"pipeline", "latents*", 1e3},
    {"pipeline", "noise_pred*", 1e3},
    {"any model", "*", 1e6},
};

}  // namespace

const RangeCard& range_card(std::string_view name) {
  for (const RangeCard& card : kCards)
    if (glob_match(card.glob, std::string(name))) return card;
  return kCards[std::size(kCards) - 1];
}

std::string range_alarm(std::string_view name, double rms) {
  const RangeCard& card = range_card(name);
  if (std::isfinite(rms) && rms <= card.largest) return "";
  return fmt::format("values of size {:.3g} are beyond what a {} shows here ({:.0e})", rms, card.family, card.largest);
}

}  // namespace lockstep
