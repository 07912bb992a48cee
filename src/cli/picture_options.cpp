// How the command line becomes requests.
#include <fmt/format.h>

#include <sstream>

#include "base/error.h"
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

std::vector<double> parse_sigmas(const std::string& text) {
  std::vector<double> values;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, ',');) {
    size_t end = 0;
    double value = 0;
    try {
      value = std::stod(item, &end);
    } catch (const std::exception&) {
    }
    if (end == 0 || end != item.size() || !(value > 0 && value <= 1))
      fail(Code::kUsage, "generate", "--sigmas: \"" + item + "\" is not a sigma",
           {.expected = "numbers in (0, 1] with commas between them"});
    values.push_back(value);
  }
  return values;
}

}  // namespace

ModelFolder open_model(const PictureOptions& options, std::string_view embedded) {
  const fs::path path = options.model.empty() ? embedded_model_path(embedded) : fs::path(options.model);
  if (path.empty())
    fail(Code::kNotFound, options.command, "no embedded model beside the program", {.hint = "--model DIR"});
  ModelFolder model = ModelFolder::open(path);
  const Pipeline& pipeline = model.pipeline();
  if (pipeline.command() != options.command)
    fail(Code::kUsage, options.command,
         path.string() + " is a " + std::string(pipeline.class_name()) + " and does not fit this command",
         {.hint = "lockstep " + std::string(pipeline.command()) + " --model " + path.string()});
  return model;
}

std::vector<std::string> read_prompts(const PictureOptions& options) {
  std::vector<std::string> prompts = options.prompts;
  if (!options.prompt_file.empty()) {
    constexpr uint64_t kMaxPromptFileBytes = 64 << 20;
    std::istringstream lines(read_text(options.prompt_file, kMaxPromptFileBytes));
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) prompts.push_back(line);
  }
  return prompts;
}

GenerateRequest request_from(const PictureOptions& options, const ModelDefaults& defaults, const std::string& prompt,
                             uint64_t seed) {
  GenerateRequest request;
  request.prompt = prompt;
  request.negative_prompt = options.has_negative ? std::optional(options.negative_prompt) : defaults.negative_prompt;
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
    request.sigmas = parse_sigmas(options.sigmas);
    request.steps = static_cast<int>(request.sigmas.size());
  }
  return request;
}

std::vector<GenerateRequest> requests_from(const PictureOptions& options, const ModelDefaults& defaults,
                                           const std::vector<std::string>& prompts) {
  if (options.count < 1 || options.count > 10000)
    fail(Code::kUsage, options.command, "--count is out of range",
         {.expected = "1 to 10000", .got = std::to_string(options.count)});
  std::vector<GenerateRequest> requests;
  for (const std::string& prompt : prompts)
    for (int i = 0; i < options.count; ++i)
      requests.push_back(request_from(options, defaults, prompt, options.seed + static_cast<uint64_t>(i)));
  return requests;
}

Tensor read_input_picture(const std::string& path, bool alpha) {
  const Image image = read_image(path);
  return alpha ? rgba_picture(image.pixels) : rgb_over_white(image.pixels);
}

Tensor read_mask(const std::string& path) {
  return mask_picture(read_image(path).pixels);
}

void add_picture_options(CLI::App& command, PictureOptions& options) {
  command.add_option("--steps", options.steps, "denoising steps");
  command.add_option("--sigmas", options.sigmas, "a schedule of your own: 1.0,0.75,0.5,0.25");
  command
      .add_option("--schedule", options.schedule,
                  "model (the folder's own) or lightning (distilled weights: 8 steps, or --steps 4, and no guidance)")
      ->check(CLI::IsMember({"model", "lightning"}));
  command.add_option("--guidance", options.guidance, "true classifier-free guidance; 1 switches it off");
  command
      .add_option("--guidance-run", options.guidance_run,
                  "auto, passes (one after the other, as the official pipeline) or batch (both at once)")
      ->check(CLI::IsMember({"auto", "passes", "batch"}));
  command.add_option("--seed", options.seed, "first seed; --count counts it up");
  command.add_option("--count", options.count, "pictures for each prompt");
  command.add_option("--output", options.output, "file, or a pattern with {seed} and {index}; .png .jpg .webp");
  command.add_option("--sheet", options.sheet, "also write all pictures on one page");
  command.add_option("--columns", options.columns, "pictures across on the page");
  command.add_option(
      "--memory-limit", options.memory_limit,
      "for tensors, weights included (8GB); a call that needs more is refused at its start with the number");
  command.add_option("--latents", options.latents, "start from saved noise (.npy or .safetensors)");
  command.add_option("--device", options.device,
                     "auto (a GPU when the model fits its memory, else the CPU), cpu, cuda, cuda:N or reference");
  command.add_option("--dtype", options.dtype, "f32 or bf16");
  command
      .add_option("--quantize", options.quantize, "hold the transformer's weights in so many bits, as MLX quantises")
      ->check(CLI::IsMember({2, 3, 4, 6, 8}));
  command.add_option("--threads", options.threads, "0: all cores");
  command.add_option("--max-prompt-tokens", options.max_prompt_tokens, "longer prompts are cut (at most 1024)");
  command.add_flag("--vae-tiling", options.tiling, "encode and decode large images in tiles of 256 pixels");
  add_debug_options(command, options.debug);
}

}  // namespace lockstep
