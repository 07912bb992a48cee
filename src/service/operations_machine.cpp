// doctor: what the machine of the service offers.
#include <mutex>

#include "base/error.h"
#include "service/groups.h"
#include "service/machine_report.h"
#include "service/service.h"

namespace lockstep {
namespace {

std::mutex report_mutex;
std::function<Json()>& machine_report() {
  static std::function<Json()> report;
  return report;
}

Json doctor(Service&, const Json&, CallControl&) {
  const std::lock_guard lock(report_mutex);
  if (!machine_report()) fail(Code::kUnsupported, "doctor", "this service cannot tell", {.hint = "lockstep doctor"});
  return machine_report()();
}

}  // namespace

void set_machine_report(std::function<Json()> report) {
  const std::lock_guard lock(report_mutex);
  machine_report() = std::move(report);
}

std::vector<Operation> machine_operations() {
  return {
      {.name = "doctor",
       .help = "check this machine: CPU features, memory, libraries, versions",
       .arguments = {},
       .result =
           "version:string compiler:string cpu:object memory:object cuda:object mlx:object devices:array python:any "
           "libraries:object",
       .reads = true,
       .slow = true,
       .examples = {"lockstep doctor"},
       .call = &doctor}};
}

}  // namespace lockstep
