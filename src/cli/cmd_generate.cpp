// lockstep generate: text to image, and from a picture, with or without a mask.
#include "cli/picture_command.h"

namespace lockstep {

void add_generate(App& app) {
  PictureCommand command;
  command.name = "generate";
  command.embedded_model = "tiny";
  command.about = "draw pictures from text";
  command.examples =
      "lockstep generate --prompt \"a red circle left of a blue square\"\n"
      "lockstep generate --prompt \"three green stars\" --count 4 --output stars-{seed}.png\n"
      "lockstep generate --model Qwen-Image --prompt \"a cat\" --negative-prompt \" \" --width 1024 --height 1024";
  command.prompt = "what to draw; repeatable";
  command.prompt_file = "file with one prompt per line; the model is loaded once";
  command.no_prompt = "no prompt";
  command.prompt_example = "--prompt \"a red circle left of a blue square\"";
  command.model = "a Qwen-Image folder in diffusers layout (default: the embedded model)";
  command.picture_option = "--init-image";
  command.picture = "start from this picture instead of noise, resized to --width and --height";
  command.mask = "draw only where this picture is white or transparent, and keep the rest of --init-image";
  command.strength = "share of the steps to run, 0 to 1 (default 0.6)";
  command.size = "pixels, floored to a multiple of 16";
  const auto noise = std::make_shared<std::string>("torch");
  command.add_own = [noise](CLI::App& cli) {
    cli.add_option("--noise", *noise,
                   "random generator: torch (its CPU generator, the same on every device) or torch-cuda (only with "
                   "--device cuda)")
        ->check(CLI::IsMember({"torch", "torch-cuda"}));
  };
  command.settle = [noise](GenerateRequest& request, const ModelFolder& model) {
    if (*noise == "torch-cuda") request.noise = NoiseStream::kTorchCuda;
    if (!request.width) request.width = model.defaults().width;
    if (!request.height) request.height = model.defaults().height;
  };
  add_picture_command(app, command);
}

}  // namespace lockstep
