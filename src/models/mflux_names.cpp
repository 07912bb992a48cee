#include "models/mflux_names.h"

#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::models {
namespace {

void replace(std::string& text, std::string_view from, std::string_view to) {
  if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
}

// "encoder.down_blocks.7.conv1" → "encoder.down_blocks.2.resnets.1.conv1": the official list is flat, theirs is nested.
void nest_encoder_block(std::string& name, int res_blocks) {
  constexpr std::string_view kList = "encoder.down_blocks.";
  if (!name.starts_with(kList)) return;
  const size_t end = name.find('.', kList.size());
  if (end == std::string::npos) return;
  const int flat = std::stoi(name.substr(kList.size(), end - kList.size()));
  const int level = flat / (res_blocks + 1), within = flat % (res_blocks + 1);
  const std::string place = within < res_blocks ? ".resnets." + std::to_string(within) : std::string(".downsamplers.0");
  name = std::string(kList) + std::to_string(level) + place + name.substr(end);
}

bool ends_with_any(std::string_view name, const std::vector<std::string>& endings) {
  for (const std::string& ending : endings)
    if (name.ends_with(ending)) return true;
  return false;
}

}  // namespace

std::string mflux_transformer_name(const std::string& official) {
  std::string name = official;
  for (const char* stream : {"img", "txt"}) {
    const std::string s(stream);
    replace(name, "." + s + "_mod.1.", "." + s + "_mod_linear.");
    replace(name, "." + s + "_mlp.net.0.proj.", "." + s + "_ff.mlp_in.");
    replace(name, "." + s + "_mlp.net.2.", "." + s + "_ff.mlp_out.");
  }
  replace(name, ".attn.to_out.0.", ".attn.attn_to_out.0.");
  return name;
}

std::string mflux_text_name(const std::string& official) {
  std::string name = official;
  if (name.starts_with("model.")) name.replace(0, 6, "encoder.");
  return name;
}

std::string mflux_vae_name(const std::string& official, int res_blocks) {
  std::string name = official;
  nest_encoder_block(name, res_blocks);
  replace(name, "decoder.up_blocks.", "decoder.up_block");
  replace(name, ".conv_shortcut.", ".skip_conv.");
  replace(name, ".resample.1.", ".resample_conv.");
  if (name.ends_with(".gamma")) name.replace(name.size() - 5, 5, "weight");
  // Every causal convolution wraps its conv in a module of that name; the 2-D ones do not.
  for (const std::string_view part : {"weight", "bias"})
    if (ends_with_any(name, {std::string(".conv1.").append(part), std::string(".conv2.").append(part),
                             std::string(".skip_conv.").append(part), std::string("conv_in.").append(part),
                             std::string("conv_out.").append(part), std::string("quant_conv.").append(part)}))
      name.insert(name.size() - part.size(), "conv3d.");
  return name;
}

}  // namespace lockstep::models
