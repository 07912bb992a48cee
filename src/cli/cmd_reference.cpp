#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "base/strict_stream.h"
#include "base/text.h"
#include "capture/recorded_program.h"
#include "cli/app.h"
#include "cli/official_arguments.h"
#include "cli/picture_file.h"
#include "io/image.h"
#include "pipeline/model_folder.h"

namespace lockstep {
namespace {

struct ReferenceOptions {
  RecordRequest record;
  std::string model, prompt, negative_prompt, dtype = "f32", device = "cpu", output;
  int64_t seed = 0;
  int steps = 0, width = 0, height = 0;  // 0: the model's default, as in `generate`
  double guidance = -1, strength = -1;
  std::vector<std::string> pictures;
  std::string mask;
  int layers = 0, resolution = 0, condition_resolution = 0;
  bool edit = false;
  bool has_negative = false;
};

bool names_missing_module(const fs::path& log) {
  std::ifstream file = strict_file(log);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("ModuleNotFoundError") || line.starts_with("ImportError")) return true;
  return false;
}

void run_reference(App& app, ReferenceOptions& options) {
  RecordRequest& request = options.record;
  request.home = home_folder(app.global.home);
  request.output_to_stderr = app.global.json;
  request.quiet = app.global.quiet;
  if (request.name.empty()) request.name = "reference";
  // The defaults of `generate`: two runs without options are the same picture, made twice.
  const std::string model =
      options.model.empty() ? embedded_model_path(options.edit ? "tiny-edit" : "tiny").string() : options.model;
  if (model.empty())
    fail(Code::kNotFound, "reference", "no model was named and none came with the program", {.hint = "--model DIR"});
  if (!options.output.empty()) check_picture_file("reference", options.output);
  const ModelDefaults defaults = read_model_defaults(model);
  const std::optional<std::string> negative =
      options.has_negative ? std::optional(options.negative_prompt) : defaults.negative_prompt;
  OfficialPicture picture;
  picture.model = model, picture.dtype = options.dtype, picture.device = options.device;
  if (!options.edit || !options.prompt.empty()) picture.prompt = options.prompt;
  picture.negative_prompt = negative;
  picture.seed = static_cast<uint64_t>(options.seed);
  picture.steps = options.steps ? options.steps : defaults.steps;
  picture.guidance = options.guidance >= 0 ? options.guidance : defaults.guidance;
  picture.strength = options.strength;
  const auto given_or = [](int given, int otherwise) { return given ? given : otherwise; };
  picture.width = given_or(options.width, options.edit ? 0 : defaults.width);
  picture.height = given_or(options.height, options.edit ? 0 : defaults.height);
  picture.pictures = options.pictures, picture.mask = options.mask, picture.layers = options.layers;
  if (options.edit) {
    picture.resolution = given_or(options.resolution, defaults.resolution == 1024 ? 0 : defaults.resolution);
    picture.condition_resolution = given_or(options.condition_resolution,
                                            defaults.condition_resolution == 384 ? 0 : defaults.condition_resolution);
  }
  request.argv = official_arguments(picture);
  request.argv.insert(request.argv.begin(), (python_package_folder() / "lockstep" / "reference.py").string());
  const RecordOutcome outcome = record_program(request);
  const fs::path image = outcome.run / "images" / "image.png";
  std::error_code error;
  const bool has_image = fs::exists(image, error);
  if (has_image && !options.output.empty()) write_image(options.output, read_image(image));
  const std::string shown = options.output.empty() ? image.string() : options.output;
  if (app.global.json)
    print_json(Json{{"run", outcome.id},
                    {"path", outcome.run.string()},
                    {"status", outcome.status},
                    {"exit_code", outcome.exit_code},
                    {"records", outcome.records},
                    {"image", has_image ? Json(shown) : Json()}});
  else if (outcome.exit_code == 0)
    print("run {} with {} records\nimage {}\n", outcome.id, outcome.records, shown);
  if (outcome.exit_code != 0) {
    const fs::path log = outcome.run / "output.log";
    print_error("lockstep: [reference] the official pipeline ended with {}; see {}{}\n", outcome.exit_code,
                log.string(),
                names_missing_module(log) ? "; try --python with a Python that has torch and diffusers" : "");
    app.status = exit_status(Code::kIo);
  }
}

// One of the two subcommands.
void add_subcommand(App& app, CLI::App& parent, bool edit) {
  auto options = std::make_shared<ReferenceOptions>();
  options->edit = edit;
  CLI::App* command = parent.add_subcommand(
      edit ? "edit" : "generate",
      edit ? "run the official editing pipeline of a folder, record every module and stage, save the image"
           : "run the official QwenImagePipeline, record every module and stage, save the image");
  command->footer(edit ? "lockstep reference edit --model Qwen-Image-Edit-2509 --input-image photo.png --prompt \"make "
                         "it night\" --steps 4"
                       : "lockstep reference generate --model Qwen-Image --prompt \"a cat\" --steps 4\n"
                         "lockstep reference generate --model Qwen-Image --prompt \"a cat\" --dtype bf16 --device cuda "
                         "--output cat.png");
  command->add_option("--model", options->model, "a diffusers folder (default: the embedded model)");
  CLI::Option* prompt =
      command->add_option("--prompt", options->prompt, edit ? "what to change" : "what the image should show");
  if (!edit) prompt->required();
  CLI::Option* negative =
      command->add_option("--negative-prompt", options->negative_prompt, "what the image should not show");
  if (edit) {
    command->add_option("--input-image", options->pictures, "the input picture; repeatable")->required();
    command->add_option("--layers", options->layers, "number of layers to split a picture into");
    command->add_option("--resolution", options->resolution, "side of the working area, as in `edit`");
    command->add_option("--condition-resolution", options->condition_resolution, "side of the text encoder's copy");
  } else {
    command->add_option("--init-image", options->pictures, "start from this picture");
  }
  command->add_option("--mask", options->mask, "white or transparent where new pixels should be drawn");
  command->add_option("--strength", options->strength, "share of the steps to run");
  command->add_option("--seed", options->seed, "seed of the initial noise (default 0)");
  command->add_option("--steps", options->steps, "denoising steps (the model's default)")->check(CLI::Range(1, 10000));
  command->add_option("--guidance", options->guidance, "true_cfg_scale; 1 turns it off (the model's default)");
  command->add_option("--width", options->width, "pixels (the model's default)")->check(CLI::Range(16, 16384));
  command->add_option("--height", options->height, "pixels (the model's default)")->check(CLI::Range(16, 16384));
  command->add_option("--dtype", options->dtype, "f32 (the default), bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  command->add_option("--device", options->device, "torch device, such as cpu or cuda");
  command->add_option("--output", options->output, "also write the image to this file; .png .jpg .webp");
  command->add_option("--python", options->record.python, "the Python with diffusers (default python3)");
  command->add_option("--name", options->record.name, "name of the run (default reference)");
  command->add_option("--tap", options->record.tap, "record only matching tensors");
  command->add_option("--no-tap", options->record.no_tap, "do not record these");
  command->add_option("--record-steps", options->record.steps, "denoising steps to record, such as 0,5-9");
  // On by default: most inputs are some module's output and share its file, and the others are what tells a fault
  // between modules from one inside.
  options->record.inputs = true;
  command->add_flag("--inputs", options->record.inputs, "also record the inputs of modules (the default)");
  command->add_flag_callback(
      "--no-inputs", [options] { options->record.inputs = false; }, "record outputs only");
  command->add_flag("--stats-only", options->record.stats_only, "store statistics only");
  command->add_option("--full", options->record.full, "store exactly these in full, whatever the budget");
  command->add_option("--budget", options->record.budget, "storage for full tensors");
  command->callback([&app, options, negative] {
    options->has_negative = negative->count() > 0;
    run_reference(app, *options);
  });
}

}  // namespace

void add_reference(App& app) {
  CLI::App* command = app.cli.add_subcommand("reference", "run and record the official implementation");
  command->footer("lockstep reference generate --model Qwen-Image --prompt \"a cat\" --steps 4");
  command->require_subcommand(1);
  add_subcommand(app, *command, false);
  add_subcommand(app, *command, true);
}

}  // namespace lockstep
