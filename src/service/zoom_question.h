// From two recorded runs to the lines that differ: the first divergence, or the stage that was named, with every
// operation of that one call traced on both sides.
#pragma once
#include <string>

#include "base/json.h"
#include "compare/question.h"
#include "zoom/search.h"

namespace lockstep {

struct ZoomQuestion {
  std::string reference, candidate;    // runs: an id, latest:NAME, or a folder
  std::string stage, candidate_stage;  // the module; empty: the first divergence, and the same name
  std::string pass, map;
  int64_t step = -1, hit = -1;  // -1: whichever comes first
  bool propose = true;          // pair names by content where they differ
};

struct ZoomAnswer {
  zoom::Side reference, yours;
  zoom::Answer answer;
};

ZoomQuestion zoom_question_from(const Json& arguments);  // as checked_arguments gives them for "zoom"
ZoomAnswer answer_to(const ZoomQuestion& question, const fs::path& home, bool quiet);
// The same where the two runs were compared already: the first divergence is taken from there.
ZoomAnswer answer_to(const ZoomQuestion& question, const CompareAnswer& compared, const fs::path& home, bool quiet);

}  // namespace lockstep
