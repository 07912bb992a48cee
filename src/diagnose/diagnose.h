// Runs the families on one failing pair and ranks what they find.
#pragma once
#include "diagnose/case/case.h"

namespace lockstep {

// At most three, best first; empty when nothing explains both sides.
std::vector<Finding> diagnose(Case& failing);

// A constant or a factor for each channel says what is different, not what was done.
bool names_a_mistake(const std::vector<Finding>& causes);

// A family explains both sides with one and the same formula, each from its own inputs.
bool is_right_on_its_inputs(Case& failing);
// What the stage adds to the error of its inputs: the reference's own formula applied to the candidate's inputs,
// against the candidate's tensor. Nothing when no family knows the formula. The search ends at an error that is small
// enough.
std::optional<double> error_on_its_inputs(Case& stage, double small_enough);

}  // namespace lockstep
