// Where a number decides whether something is believed, it stands here: one table, so that two families never mean two
// things by "near". How much is looked at (rows, candidates) is no threshold and stays where it is used.
#pragma once

namespace lockstep {

// The one rule by which explanations are accepted (`Case::explains`, `explains_candidate`, `is_better`).
inline constexpr double kFit = 2e-5;            // of a side: a fit that leaves no more explains it, in f32
inline constexpr double kRestOfError = 0.02;    // of the candidate's error: what other errors of its own may leave
inline constexpr double kNoiseInError = 0.15;   // of the candidate's error: beyond, noise would explain anything
inline constexpr double kClearlyBetter = 0.35;  // of what the reference's own parameters leave

// Numbers that were solved for.
inline constexpr double kWholeNumber = 0.02;  // positions, factors: whole to within this
inline constexpr double kSolvedNoise = 5e-4;  // of a solved weight or kernel, relative to its largest
inline constexpr double kExactFactor = 2e-6;  // a factor solved for from a row in f32 is known this well
inline constexpr double kTooSteep = 0.02;     // rounding must not become more than this on the way back

// Correlations and rests of products and weights.
inline constexpr double kUnrelated = 0.5;         // below, nothing of the right one is left
inline constexpr double kQuantisedRelated = 0.7;  // with the right weight, at least: two bits leave more
inline constexpr double kItsOwnScaled = 0.99999;  // above, it is the right one times a number
inline constexpr double kScaledRest = 0.25;       // of a scaled product: more is no rounding of its weight
inline constexpr double kNearReference = 4;       // times the reference's residual: as good as the reference
inline constexpr double kSameForm = 1e-5;         // of a weight made by a known form
inline constexpr double kEqualRows = 1e-3;        // of two weights: rounded to bf16 is still the same
inline constexpr double kAnotherStep = 0.05;      // steps are rounded too: what is closer counts as the same
inline constexpr double kRestOfRank = 1e-3;       // of the squares
inline constexpr double kOwnDirections = 0.05;    // how far outside its own directions a weight may lead
inline constexpr double kNearlyTheSameAngle = 0.05;
inline constexpr double kMostAnglesOff = 1.7, kLeastAnglesFar = 4;  // in what chance allows

// A first look at a few values: nothing right is so far off anywhere.
inline constexpr double kHopelessFormula = 0.3, kHopelessReading = 0.4, kHopelessWeight = 0.5, kHopelessSteps = 0.2;

// Parts of a tensor, and elements of another one in it: a larger share is the whole.
inline constexpr double kMostOfAxis = 0.9, kMostSlices = 0.76, kMostMixed = 0.98;

// Vectors, curves, tables.
inline constexpr double kRepeatedVector = 1e-3;  // two passes of a step get the same vector
inline constexpr double kReadingLimit = 0.06;    // of what varies: coefficients are solved for, and rounded
inline constexpr double kReadingFarOff = 0.5;    // of the variance, in a first look
inline constexpr double kNearVector = 0.03;      // of a coefficient that is recognised
inline constexpr double kRoughCurve = 2e-3, kRoughest = 0.05;  // an activation that is fitted, not known
inline constexpr double kAngleLimit = 1e-3;                    // of an angle that is no position times a frequency
inline constexpr double kOfFrequency = 3e-7;                   // what a frequency is known to
inline constexpr double kSlowFrequency = 0.15;                 // slow columns give rough frequencies
inline constexpr double kGridSlack = 2e-3;  // of a step of the grid: what was summed up may lie just below a whole one

}  // namespace lockstep
