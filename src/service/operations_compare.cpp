// compare: two runs. The terminal, REST and MCP take these arguments and no others.
#include "service/compare_question.h"
#include "service/groups.h"
#include "service/service.h"

namespace lockstep {
namespace {

using enum ArgumentType;

Json compare(Service& service, const Json& arguments, CallControl&) {
  return json_from(answer_to(question_from(arguments), service.home()));
}

}  // namespace

CompareQuestion question_from(const Json& arguments) {
  CompareQuestion question;
  question.reference = text_argument(arguments, "reference");
  question.candidate = text_argument(arguments, "candidate");
  question.only = text_argument(arguments, "only");
  question.map = text_argument(arguments, "map");
  question.tolerances = text_argument(arguments, "tolerances");
  question.propose = arguments.value("propose", false);
  question.partial = arguments.value("partial", false);
  question.noise = text_argument(arguments, "noise");
  question.weights = text_argument(arguments, "weights");
  question.weights_a = text_argument(arguments, "weights_a");
  question.weights_b = text_argument(arguments, "weights_b");
  return question;
}

std::vector<Operation> compare_operations() {
  return {
      {.name = "compare",
       .help = "compare two runs: verdict, first divergence, cause",
       .arguments = {{.name = "reference",
                      .help = "the correct run: an id, latest:NAME, or a folder",
                      .required = true,
                      .positional = true},
                     {.name = "candidate", .help = "the run to check", .required = true, .positional = true},
                     {.name = "only", .help = "compare only these names", .value = "GLOB"},
                     {.name = "map",
                      .help = "JSON file that maps the candidate's names to the reference's",
                      .path = true,
                      .value = "FILE"},
                     {.name = "propose",
                      .type = kBool,
                      .help = "pair the remaining tensors by content, place and name; the answer contains the map used",
                      .standard = false},
                     {.name = "partial",
                      .type = kBool,
                      .help = "accept a match of what was recorded, even if the program failed or recorded little",
                      .standard = false},
                     {.name = "tolerances",
                      .help = "JSON file that maps globs to the largest relative error",
                      .path = true,
                      .value = "FILE"},
                     {.name = "noise",
                      .help = "a second reference run whose distance is the noise floor",
                      .value = "RUN"},
                     {.name = "weights",
                      .help = "the checkpoint that both sides load; needed to diagnose weights",
                      .path = true,
                      .value = "DIR"},
                     {.name = "weights_a", .help = "the reference's checkpoint", .path = true, .value = "DIR"},
                     {.name = "weights_b", .help = "the candidate's checkpoint", .path = true, .value = "DIR"}},
       .result = "verdict:string compared:integer first_divergence?:any causes?:array tensors?:array "
                 "map?:object notes?:strings unpaired?:object nothing_compared?:object",
       .reads = true,
       .slow = true,
       .examples = {"lockstep compare latest:reference latest"},
       .call = &compare},
  };
}

}  // namespace lockstep
