// The options of the commands that make pictures, and how they become requests.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/strict_stream.h"
#include "cli/picture_command.h"
#include "io/image.h"
#include "io/npy.h"
#include "io/picture_modes.h"
#include "io/safetensors.h"
#include "pipeline/pipeline.h"

namespace lockstep {
namespace {

Tensor read_latents(const std::string& path) {
  if (!fs::path(path).extension().compare(".safetensors")) {
    const auto file = SafetensorsFile::open(path);
    if (file->tensors().size() != 1)
      fail(Code::kBadInput, "latents", path + " holds several tensors",
           {.expected = "one", .got = std::to_string(file->tensors().size())});
    return file->tensor(file->tensors()[0].name);
  }
  return read_npy(path);
}

std::vector<double> parse_sigmas(const std::string& command, const std::string& text) {
  std::vector<double> values;
  std::istringstream in = strict_text(text);
  for (std::string item; std::getline(in, item, ',');) {
    size_t end = 0;
    double value = 0;
    try {
      value = std::stod(item, &end);
    } catch (const std::exception&) {
    }
    if (end == 0 || end != item.size() || !(value > 0 && value <= 1))
      fail(Code::kUsage, command, "--sigmas: \"" + item + "\" is not a sigma",
           {.expected = "numbers in (0, 1] with commas between them"});
    values.push_back(value);
  }
  return values;
}

std::vector<std::string> read_prompts(const PictureOptions& options) {
  std::vector<std::string> prompts = options.prompts;
  if (!options.prompt_file.empty()) {
    constexpr uint64_t kMaxPromptFileBytes = 64 << 20;
    std::istringstream lines = strict_text(read_text(options.prompt_file, kMaxPromptFileBytes));
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) prompts.push_back(line);
  }
  return prompts;
}

GenerateRequest request_from(const PictureOptions& options, const ModelDefaults& defaults, const std::string& prompt,
                             uint64_t seed) {
  GenerateRequest request;
  request.prompt = prompt;
  request.negative_prompt = options.negative_prompt ? options.negative_prompt : defaults.negative_prompt;
  request.width = options.width;
  request.height = options.height;
  const bool lightning = options.schedule == "lightning";
  request.steps = options.steps ? options.steps : lightning ? 8 : defaults.steps;
  request.guidance = options.guidance >= 0 ? options.guidance : lightning ? 1 : defaults.guidance;
  request.seed = seed;
  request.max_prompt_tokens = options.max_prompt_tokens;
  if (options.strength >= 0) request.strength = options.strength;
  if (!options.latents.empty()) request.latents = read_latents(options.latents);
  if (!options.sigmas.empty()) {
    request.sigmas = parse_sigmas(options.command, options.sigmas);
    request.steps = static_cast<int>(request.sigmas.size());
  }
  return request;
}

// The model that --model names, or the embedded one; refused when its class belongs to another command.
ModelFolder open_model(const PictureOptions& options, std::string_view embedded) {
  const fs::path path = options.model.empty() ? embedded_model_path(embedded) : fs::path(options.model);
  if (path.empty())
    fail(Code::kNotFound, options.command, "no embedded model next to the program", {.hint = "--model DIR"});
  ModelFolder model = ModelFolder::open(path);
  const Pipeline& pipeline = model.pipeline();
  if (pipeline.command() != options.command)
    fail(Code::kUsage, options.command,
         path.string() + " is a " + std::string(pipeline.class_name()) + " and does not fit this command",
         {.hint = "lockstep " + std::string(pipeline.command()) + " --model " + path.string()});
  return model;
}

// Prompts times count, seeds counted up from the first, each with all pictures.
std::vector<GenerateRequest> requests_from(const PictureCommand& command, const PictureOptions& options,
                                           const ModelFolder& model) {
  const bool layered = model.pipeline().makes_layers();
  std::vector<std::string> prompts = read_prompts(options);
  if (prompts.empty() && !layered)
    fail(Code::kUsage, options.command, command.no_prompt, {.hint = command.prompt_example});
  if (prompts.empty()) prompts = {""};  // the model describes the picture itself
  if (options.count < 1 || options.count > 10000)
    fail(Code::kUsage, options.command, "--count is out of range",
         {.expected = "1 to 10000", .got = std::to_string(options.count)});
  std::vector<Tensor> pictures;
  for (const std::string& path : options.pictures) {
    const Tensor pixels = read_image(path).pixels;
    pictures.push_back(layered ? rgba_picture(pixels) : rgb_over_white(pixels));
  }
  const Tensor mask = options.mask.empty() ? Tensor() : mask_picture(read_image(options.mask).pixels);
  std::vector<GenerateRequest> requests;
  for (const std::string& prompt : prompts)
    for (int i = 0; i < options.count; ++i) {
      GenerateRequest request =
          request_from(options, model.defaults(), prompt, options.seed + static_cast<uint64_t>(i));
      request.pictures = pictures;
      request.mask = mask;
      command.settle(request, model);
      requests.push_back(std::move(request));
    }
  return requests;
}

void add_picture_options(CLI::App& cli, const PictureCommand& command, PictureOptions& options) {
  cli.add_option("--prompt", options.prompts, command.prompt);
  cli.add_option("--prompt-file", options.prompt_file, command.prompt_file);
  cli.add_option("--negative-prompt", options.negative_prompt, "what to avoid; guidance is off without one");
  cli.add_option("--model", options.model, command.model);
  cli.add_option(command.picture_option, options.pictures, command.picture);
  cli.add_option("--mask", options.mask, command.mask);
  cli.add_option("--strength", options.strength, command.strength);
  cli.add_option("--width", options.width, command.size);
  cli.add_option("--height", options.height, command.size);
  command.add_own(cli);
  cli.add_option("--steps", options.steps, "denoising steps");
  cli.add_option("--sigmas", options.sigmas, "custom schedule, such as 1.0,0.75,0.5,0.25");
  cli.add_option(
         "--schedule", options.schedule,
         "model (the folder's schedule) or lightning (distilled weights: 8 steps, or --steps 4, without guidance)")
      ->check(CLI::IsMember({"model", "lightning"}));
  cli.add_option("--guidance", options.guidance, "true classifier-free guidance scale; 1 turns it off");
  cli.add_option("--guidance-run", options.guidance_run,
                 "auto, passes (one after the other, like the official pipeline) or batch (both at once)")
      ->check(CLI::IsMember({"auto", "passes", "batch"}));
  cli.add_option("--seed", options.seed, "first seed; --count increments it");
  cli.add_option("--count", options.count, "number of pictures per prompt");
  cli.add_option("--output", options.output, "file, or a pattern with {seed} and {index}; .png .jpg .webp");
  cli.add_option("--sheet", options.sheet, "also write all pictures to one sheet");
  cli.add_option("--columns", options.columns, "pictures per row of the sheet");
  cli.add_option(
      "--memory-limit", options.memory_limit,
      "memory for tensors and weights, such as 8GB; a call that needs more fails at the start with the number");
  cli.add_option("--latents", options.latents, "start from saved noise (.npy or .safetensors)");
  cli.add_option(
      "--device", options.device,
      "auto (a GPU if available, or the CPU), cpu, cuda, cuda:N, mlx or reference; weights that do not fit on a "
      "GPU are streamed");
  cli.add_option("--dtype", options.dtype, "f32 or bf16");
  cli.add_option("--quantize", options.quantize,
                 "quantise transformer weights to 2, 3, 4, 6 or 8 bits (MLX scheme), or to fp8 (CUDA only)")
      ->check(CLI::IsMember({"2", "3", "4", "6", "8", "fp8"}));
  cli.add_option("--threads", options.threads, "number of threads; 0: all cores");
  cli.add_option("--max-prompt-tokens", options.max_prompt_tokens, "truncate longer prompts (at most 1024)");
  cli.add_flag("--vae-tiling", options.tiling, "encode and decode large images in tiles of 256 pixels");
  cli.add_flag("--profile", options.profile,
               "time the engine's modules and stages; lockstep profile --run latest shows them");
  add_debug_options(cli, options.debug);
}

}  // namespace

void add_picture_command(App& app, const PictureCommand& command) {
  const auto options = std::make_shared<PictureOptions>();
  options->command = command.name;
  CLI::App* cli = app.cli.add_subcommand(command.name, command.about);
  cli->footer(command.examples);
  add_picture_options(*cli, command, *options);
  cli->callback([&app, command, options] {
    const ModelFolder model = open_model(*options, command.embedded_model);
    run_pictures(app, *options, model, requests_from(command, *options, model));
  });
}

}  // namespace lockstep
