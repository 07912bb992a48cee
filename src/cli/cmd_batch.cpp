// lockstep batch: a file of jobs, done by several workers, each once.
#include <fmt/format.h>

#include <fstream>
#include <memory>

#include "base/error.h"
#include "base/progress.h"
#include "base/shown_json.h"
#include "base/text.h"
#include "batch/engine.h"
#include "batch/worker.h"
#include "capture/store.h"
#include "cli/app.h"

namespace lockstep {
namespace {

struct BatchOptions {
  std::string jobs, output, engine = "local";
  EngineOptions run;
  bool worker = false;
};

// results.jsonl: one line for each job, those of earlier calls first.
class ResultLines {
 public:
  ResultLines(const fs::path& output, const std::vector<Json>& done) : path_(output / "results.jsonl") {
    std::string text;
    for (const Json& result : done) text += shown_json(result) + "\n";
    write_atomically(path_, text);
    file_.open(path_, std::ios::app);
  }
  void add(const Json& result) {
    file_ << shown_json(result) << std::endl;
    if (!file_) fail(Code::kIo, "batch", path_.string() + " cannot be written");
  }

 private:
  fs::path path_;
  std::ofstream file_;
};

void run_batch(App& app, BatchOptions& options) {
  const auto jobs = read_jobs(options.jobs);
  options.run.output = fs::absolute(options.output).lexically_normal();
  options.run.home = fs::absolute(home_folder(app.global.home)).lexically_normal();
  fs::create_directories(options.run.output);
  remove_unfinished_files(options.run.output);
  std::vector<BatchJob> left;
  std::vector<Json> done;
  for (const BatchJob& job : jobs) {
    if (std::optional<Json> whole = whole_result(options.run.output, job))
      done.push_back(*whole);
    else
      left.push_back(job);
  }
  ResultLines results(options.run.output, done);
  size_t failures = 0, made = 0;
  Progress bar("jobs", static_cast<int64_t>(left.size()), !app.global.quiet && !app.global.json);
  const JobEnded ended = [&](const Json& result) {
    results.add(result);
    const bool bad = result.value("status", "") != "done";
    ++(bad ? failures : made);
    if (bad && !app.global.quiet)
      print_error("lockstep: job {}: {}\n", result.value("id", ""), result["error"].value("message", ""));
    bar.advance();
  };
  if (!left.empty()) (options.engine == "ray" ? run_with_ray : run_locally)(left, options.run, ended);
  remove_unfinished_files(options.run.output);
  if (failures) app.status = exit_status(Code::kIo);
  if (app.global.json)
    print_json({{"jobs", jobs.size()},
                {"done", made},
                {"done_before", done.size()},
                {"failed", failures},
                {"results", (options.run.output / "results.jsonl").string()}});
  else
    print("{} jobs: {} done now, {} done before, {} failed; {}\n", jobs.size(), made, done.size(), failures,
          (options.run.output / "results.jsonl").string());
}

void run_worker(App& app, const BatchOptions& options) {
  BatchWorker worker({options.output, home_folder(app.global.home), options.run.device, options.run.threads});
  serve_jobs(worker);
}

}  // namespace

void add_batch(App& app) {
  const auto options = std::make_shared<BatchOptions>();
  CLI::App* command =
      app.cli.add_subcommand("batch", "run a file of jobs (generate, edit, compare) with several workers");
  command->footer(
      "lockstep batch jobs.jsonl --output pictures\n"
      "lockstep batch jobs.jsonl --output pictures --workers 2 --retries 5\n"
      "lockstep batch jobs.jsonl --output /shared/pictures --engine ray --num-gpus 1");
  CLI::Option* jobs = command->add_option("JOBS", options->jobs, "one JSON object a line: see docs/cluster.md");
  command
      ->add_option("--output", options->output,
                   "folder for the outputs and results.jsonl; what is whole there is not done again")
      ->required()
      ->type_name("DIR");
  command->add_option("--engine", options->engine, "local (processes of this machine) or ray (a Ray cluster)")
      ->check(CLI::IsMember({"local", "ray"}))
      ->capture_default_str();
  command
      ->add_option("--workers", options->run.workers,
                   "local: processes (default: one for each GPU, else for each core)")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--threads", options->run.threads, "of each worker (default: the cores divided among the workers)")
      ->check(CLI::Range(0, 1024));
  command
      ->add_option("--retries", options->run.retries,
                   "further tries of a job whose worker was lost, or that failed for want of memory, disk or device")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command->add_option("--device", options->run.device, "auto, cpu, cuda, cuda:N, mlx or reference")
      ->capture_default_str();
  command
      ->add_option("--address", options->run.address,
                   "ray: the cluster; auto: the one that is running, local: one for this batch")
      ->capture_default_str();
  command->add_option("--num-gpus", options->run.num_gpus, "ray: GPUs for each worker; may be a fraction")
      ->check(CLI::Range(0.0, 1024.0))
      ->capture_default_str();
  command->add_option("--num-cpus", options->run.num_cpus, "ray: cores for each worker")
      ->check(CLI::Range(0.0, 1024.0))
      ->capture_default_str();
  command->add_option("--python", options->run.python, "ray: the Python that has Ray (default python3)");
  command->add_flag("--worker", options->worker, "a job a line on stdin, its result a line on stdout")->group("");
  command->callback([&app, options, jobs] {
    if (options->worker) return run_worker(app, *options);
    if (jobs->count() == 0)
      fail(Code::kUsage, "batch", "no file of jobs", {.hint = "lockstep batch jobs.jsonl --output DIR"});
    run_batch(app, *options);
  });
}

}  // namespace lockstep
