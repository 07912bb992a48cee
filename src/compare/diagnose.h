// Runs the families on one failing pair and ranks what they find.
#pragma once
#include "compare/families/family.h"

namespace lockstep {

// At most three, best first; empty when nothing explains both sides.
std::vector<Finding> diagnose(Case& failing);

// A family explains both sides with one and the same formula, each from its own inputs.
bool is_right_on_its_inputs(Case& failing);
// What the stage adds to the error of its inputs: the reference's own formula applied to the candidate's inputs,
// against the candidate's tensor. Nothing when no family knows the formula. The search ends at an error that is small
// enough.
std::optional<double> error_on_its_inputs(Case& stage, double small_enough);

// The good tensors the record was, or may have been, made from; nearest first. `is_good` answers for a reference
// record, and so does `is_assumed`: which ones may stand for tensors that the candidate did not record.
std::vector<Item> gather_items(const RunView& reference, const Structure& structure, size_t record,
                               const std::function<size_t(size_t)>& partner, const std::function<bool(size_t)>& is_good,
                               const std::function<bool(size_t)>& is_assumed = {});

}  // namespace lockstep
