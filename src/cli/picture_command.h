// What the commands that make pictures share: their options, and a run from the command line to the files.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/debug_run.h"
#include "pipeline/generate.h"

namespace lockstep {

struct PictureOptions {
  std::string command;  // "generate" or "edit": for messages
  std::vector<std::string> prompts;
  std::string prompt_file, negative_prompt, model, output = "lockstep.png", device = "auto", dtype = "f32", latents,
                                                   sigmas, sheet, memory_limit, guidance_run = "auto",
                                                   schedule = "model", mask;
  int width = 0, height = 0, steps = 0, count = 1, threads = 0, max_prompt_tokens = 512, columns = 4, quantize = 0;
  double guidance = -1, strength = -1;
  uint64_t seed = 0;
  bool tiling = false, has_negative = false;
  DebugOptions debug;
};

void add_picture_options(CLI::App& command, PictureOptions& options);

// The model that --model names, or the embedded one; refused when its class belongs to another command.
ModelFolder open_model(const PictureOptions& options, std::string_view embedded);

std::vector<std::string> read_prompts(const PictureOptions& options);  // none given: empty

// A request with everything that both commands decide alike.
GenerateRequest request_from(const PictureOptions& options, const ModelDefaults& defaults, const std::string& prompt,
                             uint64_t seed);

// Prompts times count, seeds counted up from the first.
std::vector<GenerateRequest> requests_from(const PictureOptions& options, const ModelDefaults& defaults,
                                           const std::vector<std::string>& prompts);

// A picture for the pipeline: read, turned as its EXIF says, transparent parts over white (alpha true: kept).
Tensor read_input_picture(const std::string& path, bool alpha = false);
Tensor read_mask(const std::string& path);

// Makes the pictures, writes them, and tells about it.
void run_pictures(App& app, const PictureOptions& options, const ModelFolder& model,
                  const std::vector<GenerateRequest>& requests);

}  // namespace lockstep
