#include "cli/official_arguments.h"

#include <fmt/format.h>

namespace lockstep {

std::vector<std::string> official_arguments(const OfficialPicture& picture) {
  std::vector<std::string> out{"--model",    picture.model,
                               "--seed",     std::to_string(picture.seed),
                               "--steps",    std::to_string(picture.steps),
                               "--guidance", fmt::format("{}", picture.guidance),
                               "--dtype",    picture.dtype,
                               "--device",   picture.device};
  const auto add = [&out](const std::string& option, const std::string& value) {
    out.push_back("--" + option + "=" + value);  // in one piece: a prompt may begin with a dash
  };
  const auto add_size = [&](const std::string& option, int given) {
    if (given) add(option, std::to_string(given));
  };
  if (picture.prompt) add("prompt", *picture.prompt);
  add_size("width", picture.width);
  add_size("height", picture.height);
  for (const std::string& file : picture.pictures) add("input-image", file);
  if (!picture.mask.empty()) add("mask", picture.mask);
  if (picture.strength >= 0) add("strength", fmt::format("{}", picture.strength));
  add_size("layers", picture.layers);
  add_size("resolution", picture.resolution);
  add_size("condition-resolution", picture.condition_resolution);
  if (picture.negative_prompt) add("negative-prompt", *picture.negative_prompt);
  return out;
}

}  // namespace lockstep
