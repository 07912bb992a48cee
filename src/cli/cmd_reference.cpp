#include <fmt/format.h>

#include <fstream>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "capture/recorded_program.h"
#include "cli/app.h"
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
  double guidance = -1;
  bool has_negative = false;
};

bool names_missing_module(const fs::path& log) {
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("ModuleNotFoundError") || line.starts_with("ImportError")) return true;
  return false;
}

void generate_reference(App& app, ReferenceOptions& options) {
  RecordRequest& request = options.record;
  request.home = home_folder(app.global.home);
  request.output_to_stderr = app.global.json;
  request.quiet = app.global.quiet;
  if (request.name.empty()) request.name = "reference";
  // The defaults of `generate`: two runs without options are the same picture, made twice.
  const std::string model = options.model.empty() ? embedded_model_path().string() : options.model;
  if (model.empty())
    fail(Code::kNotFound, "reference", "no model was named and none came with the program", {.hint = "--model DIR"});
  if (!options.output.empty()) check_picture_file("reference", options.output);
  const ModelDefaults defaults = read_model_defaults(model);
  const std::optional<std::string> negative =
      options.has_negative ? std::optional(options.negative_prompt) : defaults.negative_prompt;
  request.argv = {(python_package_folder() / "lockstep" / "reference.py").string(),
                  "--model",
                  model,
                  "--prompt=" + options.prompt,  // in one piece: a prompt may begin with a dash
                  "--seed",
                  std::to_string(options.seed),
                  "--steps",
                  std::to_string(options.steps ? options.steps : defaults.steps),
                  "--guidance",
                  fmt::format("{}", options.guidance >= 0 ? options.guidance : defaults.guidance),
                  "--width",
                  std::to_string(options.width ? options.width : defaults.width),
                  "--height",
                  std::to_string(options.height ? options.height : defaults.height),
                  "--dtype",
                  options.dtype,
                  "--device",
                  options.device};
  if (negative) request.argv.push_back("--negative-prompt=" + *negative);
  const RecordOutcome outcome = record_program(request);
  const fs::path image = outcome.run / "images" / "image.png";
  std::error_code error;
  const bool has_image = fs::exists(image, error);
  if (has_image && !options.output.empty()) write_image(options.output, read_image(image));
  const std::string shown = options.output.empty() ? image.string() : options.output;
  if (app.global.json)
    fmt::print("{}\n", Json{{"run", outcome.id},
                            {"path", outcome.run.string()},
                            {"status", outcome.status},
                            {"exit_code", outcome.exit_code},
                            {"records", outcome.records},
                            {"image", has_image ? Json(shown) : Json()}}
                           .dump());
  else if (outcome.exit_code == 0)
    fmt::print("run {} with {} records\nimage {}\n", outcome.id, outcome.records, shown);
  if (outcome.exit_code != 0) {
    const fs::path log = outcome.run / "output.log";
    fmt::print(stderr, "lockstep: [reference] the official pipeline ended with {}; see {}{}\n", outcome.exit_code,
               log.string(),
               names_missing_module(log) ? "; try --python with a Python that has torch and diffusers" : "");
    app.status = exit_status(Code::kIo);
  }
}

}  // namespace

void add_reference(App& app) {
  CLI::App* command = app.cli.add_subcommand("reference", "the official implementation, recorded");
  command->footer("lockstep reference generate --model Qwen-Image --prompt \"a cat\" --steps 4");
  command->require_subcommand(1);
  CLI::App* generate = command->add_subcommand(
      "generate", "run the official QwenImagePipeline, record every module and stage, save the image");
  generate->footer(
      "lockstep reference generate --model Qwen-Image --prompt \"a cat\" --steps 4\n"
      "lockstep reference generate --model Qwen-Image --prompt \"a cat\" --dtype bf16 --device cuda --output cat.png");
  auto options = std::make_shared<ReferenceOptions>();
  generate->add_option("--model", options->model, "a diffusers folder (default: the embedded model)");
  generate->add_option("--prompt", options->prompt, "what the image shall show")->required();
  CLI::Option* negative = generate->add_option("--negative-prompt", options->negative_prompt, "what it shall not show");
  generate->add_option("--seed", options->seed, "of the initial noise (0)");
  generate->add_option("--steps", options->steps, "denoising steps (the model's default)")->check(CLI::Range(1, 10000));
  generate->add_option("--guidance", options->guidance, "true_cfg_scale; 1 turns it off (the model's default)");
  generate->add_option("--width", options->width, "pixels (the model's default)")->check(CLI::Range(16, 16384));
  generate->add_option("--height", options->height, "pixels (the model's default)")->check(CLI::Range(16, 16384));
  generate->add_option("--dtype", options->dtype, "f32 (the default), bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  generate->add_option("--device", options->device, "torch device, such as cpu or cuda");
  generate->add_option("--output", options->output, "write the image to this file too; .png .jpg .webp");
  generate->add_option("--python", options->record.python, "the Python with diffusers (default python3)");
  generate->add_option("--name", options->record.name, "name of the run (default reference)");
  generate->add_option("--tap", options->record.tap, "record only tensors that match");
  generate->add_option("--no-tap", options->record.no_tap, "leave these out");
  generate->add_option("--record-steps", options->record.steps, "denoising steps to record, such as 0,5-9");
  // On by default: most inputs are some module's output and share its file, and the others are what tells a fault
  // between modules from one inside.
  options->record.inputs = true;
  generate->add_flag("--inputs", options->record.inputs, "record the inputs of modules too (the default)");
  generate->add_flag_callback(
      "--no-inputs", [options] { options->record.inputs = false; }, "record outputs alone");
  generate->add_flag("--stats-only", options->record.stats_only, "keep no full tensors");
  generate->add_option("--full", options->record.full, "keep exactly these in full, whatever the budget");
  generate->add_option("--budget", options->record.budget, "bytes of full tensors to keep");
  generate->callback([&app, options, negative] {
    options->has_negative = negative->count() > 0;
    generate_reference(app, *options);
  });
}

}  // namespace lockstep
