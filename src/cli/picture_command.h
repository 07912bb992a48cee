// The commands that make pictures are one command in two wordings: their options, and the way from the command line to
// the files.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/debug_run.h"
#include "pipeline/generate.h"

namespace lockstep {

struct PictureOptions {
  std::string command;  // "generate" or "edit": for messages
  std::vector<std::string> prompts, pictures;
  std::optional<std::string> negative_prompt;
  std::string prompt_file, model, output = "lockstep.png", device = "auto", dtype = "f32", latents, sigmas, sheet,
                                  memory_limit, guidance_run = "auto", schedule = "model", mask;
  int width = 0, height = 0, steps = 0, count = 1, threads = 0, max_prompt_tokens = 512, columns = 4;
  std::string quantize;
  double guidance = -1, strength = -1;
  uint64_t seed = 0;
  bool tiling = false, profile = false;
  DebugOptions debug;
};

// What is different between them.
struct PictureCommand {
  std::string name, embedded_model, about, examples;
  std::string picture_option;                                             // --init-image or --input-image
  std::string prompt, prompt_file, model, picture, mask, strength, size;  // help of the options
  std::string no_prompt, prompt_example;                                  // for the message when there is none
  std::function<void(CLI::App&)> add_own = [](CLI::App&) {};              // further options
  std::function<void(GenerateRequest&, const ModelFolder&)> settle;       // what they say about a request
};

void add_picture_command(App& app, const PictureCommand& command);

// Makes the pictures, writes them, and tells about it.
void run_pictures(App& app, const PictureOptions& options, const ModelFolder& model,
                  const std::vector<GenerateRequest>& requests);

}  // namespace lockstep
