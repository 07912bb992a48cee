// From an operation's arguments to the question that compare/question.h answers.
#pragma once
#include "compare/question.h"

namespace lockstep {

CompareQuestion question_from(const Json& arguments);  // as checked_arguments gives them for "compare"

}  // namespace lockstep
