// A family: a formula with a few parameters that must explain the reference's tensor before it may speak about the
// candidate's. Adding one is one file, one line in table.cpp, one planted fault and one clean pair.
#pragma once
#include <vector>

#include "diagnose/case/case.h"

namespace lockstep {

using Findings = std::vector<Finding>;

struct Family {
  const char* name;
  void (*search)(Case& failing, Findings& out);
  // Does the formula that explains the reference give the candidate's tensor too, from the candidate's own inputs? Then
  // the stage is right, and what is wrong with its result was wrong with its inputs. Null: the family cannot tell.
  bool (*confirm)(Case& failing) = nullptr;
  bool recomputes = false;  // calls note_local: its formula makes the tensor from inputs
  bool pair_only = false;   // looks at the two tensors alone, so that it also explains parts and operands of a pair
};

const std::vector<Family>& families();
// The families that look at the two tensors alone.
Findings explain_pair(Case& pair);

// One function per family, in the folder of what it knows about.
bool confirm_activation(Case& failing);
bool confirm_linear(Case& failing);
bool confirm_norm(Case& failing);
bool confirm_timestep(Case& failing);
void search_activation(Case& failing, Findings& out);
void search_additional_stage(Case& failing, Findings& out);
void search_affine(Case& failing, Findings& out);
void search_attention(Case& failing, Findings& out);
void search_capture(Case& failing, Findings& out);
void search_channelwise(Case& failing, Findings& out);
void search_conditioning(Case& failing, Findings& out);
void search_convolution(Case& failing, Findings& out);
void search_elementwise(Case& failing, Findings& out);
void search_embedding(Case& failing, Findings& out);
void search_garbage(Case& failing, Findings& out);
void search_guidance(Case& failing, Findings& out);
void search_latents(Case& failing, Findings& out);
void search_layout(Case& failing, Findings& out);
void search_linear(Case& failing, Findings& out);
void search_norm(Case& failing, Findings& out);
void search_norm_between(Case& failing, Findings& out);
void search_parts(Case& failing, Findings& out);
void search_picture(Case& failing, Findings& out);
void search_precision(Case& failing, Findings& out);
void search_resample(Case& failing, Findings& out);
void search_rotary_table(Case& failing, Findings& out);
void search_rotation(Case& failing, Findings& out);
void search_scheduler(Case& failing, Findings& out);
void search_timestep(Case& failing, Findings& out);
void search_space_norm(Case& failing, Findings& out);
void search_tokens(Case& failing, Findings& out);

}  // namespace lockstep
