// lockstep edit: pictures and an instruction in, a picture out; or a picture taken apart into layers.
#include <memory>

#include "base/error.h"
#include "cli/picture_command.h"
#include "pipeline/pipeline.h"

namespace lockstep {
namespace {

struct EditOptions {
  std::string positions = "official", caption = "model";
  int resolution = 0, condition_resolution = 0, layers = 0;
  bool rescale = false, english = false;
};

void add_edit_options(CLI::App& command, EditOptions& options) {
  command.add_option("--layers", options.layers, "number of layers to split a picture into (default 4)");
  command
      .add_option("--resolution", options.resolution,
                  "side of the working area in pixels (default 1024, layers 640, or set by the model)")
      ->check(CLI::Range(32, 8192));
  command
      .add_option("--condition-resolution", options.condition_resolution,
                  "side of the text encoder's copy (default 384)")
      ->check(CLI::Range(32, 8192));
  command
      .add_option("--image-positions", options.positions,
                  "official (counted one by one, as in diffusers 0.42.1) or mrope (rows and columns, as trained)")
      ->check(CLI::IsMember({"official", "mrope"}));
  command
      .add_option("--caption", options.caption,
                  "with --layers and no prompt: sample as in generation_config.json (model), or always take the "
                  "likeliest word (greedy)")
      ->check(CLI::IsMember({"model", "greedy"}));
  command.add_flag("--english-caption", options.english,
                   "with --layers and no prompt: describe in English, not Chinese");
  command.add_flag("--rescale-guidance", options.rescale, "with --layers: rescale guidance like the other models");
}

void settle_edit(const EditOptions& options, GenerateRequest& request, const ModelFolder& model) {
  if (options.layers && !model.pipeline().makes_layers())
    fail(Code::kUsage, "edit", "--layers: " + model.path().string() + " makes one picture",
         {.expected = "a QwenImageLayeredPipeline", .got = std::string(model.pipeline().class_name())});
  request.resolution = options.resolution;
  request.condition_resolution = options.condition_resolution;
  request.positions = options.positions == "mrope" ? ImagePositions::kMrope : ImagePositions::kOfficial;
  if (options.layers) request.layers = options.layers;
  request.rescale_layers = options.rescale;
  request.english_caption = options.english;
  request.greedy_caption = options.caption == "greedy";
}

}  // namespace

void add_edit(App& app) {
  const auto own = std::make_shared<EditOptions>();
  PictureCommand command;
  command.name = "edit";
  command.embedded_model = "tiny-edit";
  command.about = "edit a picture by an instruction, or split it into layers";
  command.examples =
      "lockstep edit --input-image photo.png --prompt \"make the circle blue\" --output out.png\n"
      "lockstep edit --input-image a.png --input-image b.png --prompt \"the shape of picture 1 in the color of picture "
      "2\"\n"
      "lockstep edit --model Qwen-Image-Layered --input-image poster.png --layers 4 --output poster-{layer}.png";
  command.prompt =
      "what to change; repeatable. With --layers, what the picture shows (default: the model describes "
      "it)";
  command.prompt_file = "file with one instruction per line; the model is loaded once";
  command.no_prompt = "no instruction";
  command.prompt_example = "--prompt \"make the circle blue\"";
  command.model = "a folder of Qwen-Image-Edit, -Edit-2509, -Edit-2511 or -Layered (default: the embedded model)";
  command.picture_option = "--input-image";
  command.picture =
      "the input picture; repeatable. PNG, JPEG or WebP; EXIF orientation is applied, transparent parts "
      "become white";
  command.mask = "change only where this picture is white or transparent; as large as the first input picture";
  command.strength = "with a mask: share of the steps to run, 0 to 1 (default 0.6)";
  command.size = "pixels, floored to a multiple of 16 (default: from the pictures)";
  command.add_own = [own](CLI::App& options) { add_edit_options(options, *own); };
  command.settle = [own](GenerateRequest& request, const ModelFolder& model) { settle_edit(*own, request, model); };
  add_picture_command(app, command);
}

}  // namespace lockstep
