// The program: parses the command line, runs one command, turns errors into messages and exit statuses. Each command is
// one file cmd_<name>.cpp that registers itself with add_<name>(app).
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "base/json.h"
#include "cli/global_options.h"
#include "cli/run_app.h"

namespace lockstep {

inline constexpr int kRecordFailed = 125;  // as with env and timeout: what they run has the other statuses

struct App {
  CLI::App cli{"Lockstep: Qwen-Image in C++, and a debugger for ported models."};
  GlobalOptions global;
  int status = 0;  // what the command decided: 0 done or match, 1 compared and different
  // What a failure of ours exits with; 0: by its code. A command that hands on a program's status keeps its own apart.
  int failure_status = 0;
};

void print_json(const Json& document);  // on stdout, one line; bytes that are no UTF-8 are replaced

// One line each; defined in the command's own file.
void add_batch(App& app);
void add_clean(App& app);
void add_compare(App& app);
void add_coverage(App& app);
void add_profile(App& app);
void add_prune(App& app);
void add_debug(App& app);
void add_doctor(App& app);
void add_edit(App& app);
void add_generate(App& app);
void add_docs(App& app);
void add_health(App& app);
void add_health_to(App& app, CLI::App& group, const std::string& name);  // `lockstep runs health` is the same
void add_jobs(App& app);
void add_kill_all(App& app);
void add_ledger(App& app);
void add_mcp(App& app);
void add_record(App& app);
void add_reference(App& app);
void add_runs(App& app);
void add_serve(App& app);
void add_tensors(App& app);
void add_tutorial(App& app);
void add_weights(App& app);
void add_zoom(App& app);

}  // namespace lockstep
