// lockstep generate: text to image, and from a picture, with or without a mask.
#include <memory>

#include "base/error.h"
#include "cli/picture_command.h"

namespace lockstep {
namespace {

struct GenerateOptions : PictureOptions {
  std::string init_image;
};

void run_generate(App& app, const GenerateOptions& options) {
  const ModelFolder model = open_model(options, "tiny");
  const std::vector<std::string> prompts = read_prompts(options);
  if (prompts.empty())
    fail(Code::kUsage, "generate", "no prompt", {.hint = "--prompt \"a red circle left of a blue square\""});
  std::vector<GenerateRequest> requests = requests_from(options, model.defaults(), prompts);
  const Tensor picture = options.init_image.empty() ? Tensor() : read_input_picture(options.init_image);
  const Tensor mask = options.mask.empty() ? Tensor() : read_mask(options.mask);
  for (GenerateRequest& request : requests) {
    if (!request.width) request.width = model.defaults().width;
    if (!request.height) request.height = model.defaults().height;
    if (picture.defined()) request.pictures = {picture};
    request.mask = mask;
  }
  run_pictures(app, options, model, requests);
}

}  // namespace

void add_generate(App& app) {
  auto options = std::make_shared<GenerateOptions>();
  options->command = "generate";
  CLI::App* command = app.cli.add_subcommand("generate", "text to image");
  command->footer(
      "lockstep generate --prompt \"a red circle left of a blue square\"\n"
      "lockstep generate --prompt \"three green stars\" --count 4 --output stars-{seed}.png\n"
      "lockstep generate --model Qwen-Image --prompt \"a cat\" --negative-prompt \" \" --width 1024 --height 1024");
  command->add_option("--prompt", options->prompts, "what to draw; may be given several times");
  command->add_option("--prompt-file", options->prompt_file, "one prompt a line; the model is loaded once");
  CLI::Option* negative = command->add_option("--negative-prompt", options->negative_prompt,
                                              "what to steer away from; guidance is off without one");
  command->add_option("--model", options->model,
                      "a Qwen-Image folder in diffusers layout (default: the embedded model)");
  command->add_option("--init-image", options->init_image,
                      "start from this picture instead of noise, resized to --width and --height");
  command->add_option("--strength", options->strength,
                      "share of the steps that the picture goes through, 0 to 1 (default 0.6)");
  command->add_option("--mask", options->mask,
                      "draw only where this picture is white or transparent, and keep the rest of --init-image");
  command->add_option("--width", options->width, "pixels, floored to a multiple of 16");
  command->add_option("--height", options->height, "pixels, floored to a multiple of 16");
  add_picture_options(*command, *options);
  command->callback([&app, options, negative] {
    options->has_negative = negative->count() > 0;
    run_generate(app, *options);
  });
}

}  // namespace lockstep
