// The names that mflux gives the tensors of a Qwen-Image folder (also what mlx-community publishes), from the official
// ones.
#pragma once
#include <string>

namespace lockstep::models {

std::string mflux_transformer_name(const std::string& official);
std::string mflux_text_name(const std::string& official);
std::string mflux_vae_name(const std::string& official, int res_blocks);

}  // namespace lockstep::models
