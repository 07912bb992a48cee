#include <fmt/format.h>
#include <poll.h>

#include <cstdlib>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/platform/executable.h"
#include "batch/engine.h"
#include "batch/line_child.h"
#include "capture/installation.h"

namespace lockstep {
namespace {

std::vector<std::string> ray_command(const EngineOptions& options) {
  const char* told = std::getenv("LOCKSTEP_PYTHON");
  const std::string python = !options.python.empty() ? options.python : told && *told ? told : "python3";
  return {python,       (python_package_folder() / "lockstep" / "batch_with_ray.py").string(),
          "--program",  own_program().string(),
          "--output",   options.output.string(),
          "--home",     options.home.string(),
          "--device",   options.device,
          "--threads",  std::to_string(options.threads),
          "--retries",  std::to_string(options.retries),
          "--address",  options.address,
          "--num-gpus", fmt::format("{}", options.num_gpus),
          "--num-cpus", fmt::format("{}", options.num_cpus)};
}

}  // namespace

void run_with_ray(const std::vector<BatchJob>& jobs, const EngineOptions& options, const JobEnded& ended) {
  const fs::path log = options.output / "ray.log";
  LineChild ray(ray_command(options), log);
  for (const BatchJob& job : jobs)
    if (!ray.send(json_from(job).dump())) break;  // it has ended, and says below how
  ray.send_no_more();
  size_t left = jobs.size();
  while (left > 0) {
    pollfd end{ray.descriptor(), POLLIN, 0};
    constexpr int kInterruptMilliseconds = 200;
    ::poll(&end, 1, kInterruptMilliseconds);
    check_interrupt("batch");
    if (!end.revents) continue;
    std::vector<std::string> lines;
    if (!ray.read_some(lines))
      fail(Code::kIo, "batch", "the Python program that speaks to Ray ended: " + ray.how_it_ended(),
           {.hint = log.string() + ", which says why; the jobs that are left are done by the same command again"});
    for (const std::string& line : lines) {
      ended(parse_json(line, "Ray"));
      --left;
    }
  }
}

}  // namespace lockstep
