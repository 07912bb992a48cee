// Yours is another tensor of the reference: captured at another stage or hit, or a stage was left out.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/case/family.h"
#include "diagnose/case/thresholds.h"
#include "diagnose/layout/layouts.h"
#include "diagnose/search/report.h"
#include "measure/region.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

constexpr size_t kMostLoads = 96, kMostPartLoads = 48, kMostMixLoads = 32;
constexpr size_t kFewestMixed = 16;  // elements: fewer are alike by chance

bool may_be(const RecordedTensor& record, const Case& failing) {
  return record.load && is_floating(record.dtype) && same_size_shape(record.shape, failing.r.shape);
}

std::string label_of(const RecordedTensor& record) {
  return (record.role == Role::kInput ? "input of " : "") + to_string(record.key);
}

// Where nothing after it is affected, it was never what the model computed with.
EditName replaced_by(const Case& failing, std::string fix) {
  return failing.isolated ? EditName{"capture.other_stage", std::move(fix), Blame::kCapture}
                          : EditName{"stage.replaced", std::move(fix)};
}

// The records of the reference for which `may_be_it` holds, nearest first.
template <typename MayBe>
std::vector<size_t> nearest_records(const Case& failing, size_t most, const MayBe& may_be_it) {
  const RunView& run = failing.reference_run();
  const size_t own = failing.reference_record();
  std::vector<size_t> out;
  for (size_t i = 0; i < run.records.size(); ++i)
    if (i != own && may_be_it(run.records[i])) out.push_back(i);
  const auto distance = [&](size_t i) { return i > own ? i - own : own - i; };
  std::sort(out.begin(), out.end(), [&](size_t a, size_t b) { return distance(a) < distance(b); });
  std::stable_partition(out.begin(), out.end(), [&](size_t i) { return run.records[i].key.name == failing.name; });
  if (out.size() > most) out.resize(most);
  return out;
}

// Yours is the beginning or the end of a longer tensor of the reference, row for row.
void search_part(Case& failing, Findings& out) {
  const RunView& run = failing.reference_run();
  const size_t own = failing.reference_record(), size = failing.c.v.size();
  std::vector<size_t> order;
  for (size_t i = own; i-- > 0;) {
    const RecordedTensor& record = run.records[i];
    if (record.load && is_floating(record.dtype) && !record.shape.empty() &&
        record.shape.back() == failing.r.shape.back() && checked_numel(record.shape) > failing.r.size())
      order.push_back(i);
  }
  // The same name in another pass, then the stages of the pipeline: what is passed on by mistake is mostly one of them.
  std::stable_partition(order.begin(), order.end(),
                        [&](size_t i) { return failing.structure().site(i).module.empty(); });
  std::stable_partition(order.begin(), order.end(), [&](size_t i) { return run.records[i].key.name == failing.name; });
  if (order.size() > kMostPartLoads) order.resize(kMostPartLoads);
  for (const size_t i : order) {
    const RecordedTensor& record = run.records[i];
    const Values& other = failing.load_reference(i);
    const std::span<const float> all(other.v);
    for (const bool end : {false, true}) {
      const auto part = end ? all.last(size) : all.first(size);
      const double residual = relative_error(failing.c.v, part);
      if (!failing.explains_candidate(residual) || failing.explains_candidate(relative_error(failing.r.v, part)))
        continue;
      const std::string label = label_of(record);
      Report(failing.name, 0, out)
          .add(replaced_by(failing, fmt::format("the wrong tensor is passed on: {} belongs elsewhere", label)),
               fmt::format("the {} {} rows of the reference's {}", end ? "last" : "first", failing.c.rows(), label),
               residual, 1.4);
      return;
    }
  }
}

// Yours is another tensor of the reference in another order of axes, or moved: two mistakes that look like one.
void search_other_layout(Case& failing, Findings& out) {
  constexpr size_t kMostLayouts = 8;
  const RunView& run = failing.reference_run();
  const size_t own = failing.reference_record();
  size_t looked = 0;
  for (size_t apart = 1; apart <= 24 && looked < kMostLayouts; ++apart)
    for (const size_t i : {own - apart, own + apart}) {
      if (i >= run.records.size() || !run.records[i].load || !is_floating(run.records[i].dtype) ||
          checked_numel(run.records[i].shape) != failing.r.size() || ++looked > kMostLayouts)
        continue;
      const Values& other = failing.load_reference(i);
      for (const Rearrangement& found : find_rearrangements(failing.name, failing.c, other, failing.tolerance)) {
        if (!failing.explains_candidate(found.residual)) continue;
        Report(failing.name, 0, out)
            .add(replaced_by(failing, "take the tensor of this stage, and in its own layout"),
                 fmt::format("the reference's {}, {}", label_of(run.records[i]), found.words), found.residual, 1.8);
        return;
      }
    }
}

void search_whole(Case& failing, Findings& out) {
  const RunView& run = failing.reference_run();
  const size_t own = failing.reference_record();
  for (const size_t i :
       nearest_records(failing, kMostLoads, [&](const RecordedTensor& record) { return may_be(record, failing); })) {
    const Values& other = failing.load_reference(i);
    const double residual = relative_error(failing.c.v, other.v);
    if (!failing.explains_candidate(residual) || failing.explains_candidate(relative_error(failing.r.v, other.v)))
      continue;
    const RecordedTensor& record = run.records[i];
    const std::string label = label_of(record);
    Finding finding{
        .cause = {}, .residual = residual, .complexity = failing.isolated ? 0.5 : 1.2, .blame = Blame::kCapture};
    if (record.key.name == failing.name && record.role == failing.role) {
      finding.cause = "capture.other_hit";
      // A stage of the pipeline that is exactly what it was a step before: no formula says it more plainly.
      if (failing.module.empty() && failing.step >= 0) finding.complexity = std::min(finding.complexity, 0.75);
      finding.explanation =
          fmt::format("yours equals the reference's {}: the hits, steps or passes are counted differently", label);
      finding.fix = "capture the same call on both sides; check step, hit and pass";
    } else if (failing.isolated) {
      finding.cause = "capture.other_stage";
      finding.explanation = fmt::format("yours equals the reference's {}: captured {} stage than {}", label,
                                        i < own ? "an earlier" : "a later", failing.name);
      finding.fix = "move the checkpoint; the model itself agrees after this point";
    } else {
      finding.cause = "stage.replaced";
      finding.explanation = fmt::format("reference: {}; yours: the reference's {}, unchanged", failing.name, label);
      finding.fix =
          fmt::format("what lies between {} and {} is left out, or the wrong tensor is passed on", label, failing.name);
      finding.blame = Blame::kNone;
    }
    out.push_back(std::move(finding));
    return;
  }
}

// Only where the two sides differ, yours is what the stage gave at another call: a copy that had not ended, a buffer
// that was half overwritten. Element by element, as memory ends anywhere.
void search_mixed(Case& failing, Findings& out) {
  if (!std::isfinite(failing.error)) return;
  const Values &r = failing.r, &c = failing.c;
  const double limit = 4 * failing.tolerance * rms(r.v);
  std::vector<size_t> wrong;
  for (size_t i = 0; i < r.v.size(); ++i)
    if (!(std::fabs(static_cast<double>(c.v[i]) - r.v[i]) <= limit)) wrong.push_back(i);
  if (wrong.size() < kFewestMixed || static_cast<double>(wrong.size()) > kMostMixed * static_cast<double>(r.v.size()))
    return;
  const auto left = [&](const Values& other, const Values& of, size_t step) {
    Residual unexplained;
    for (size_t k = 0; k < wrong.size(); k += step) {
      const double y = of.v[wrong[k]];
      unexplained.add(other.v[wrong[k]], y);
    }
    return unexplained.relative();
  };
  const RunView& run = failing.reference_run();
  const auto other_call = [&](const RecordedTensor& record) {
    return may_be(record, failing) && record.key.name == failing.name && record.role == failing.role;
  };
  for (const size_t i : nearest_records(failing, kMostMixLoads, other_call)) {
    const Values& other = failing.load_reference(i);
    if (other.v.size() != c.v.size()) continue;
    if (!failing.explains_candidate(left(other, c, std::max<size_t>(1, wrong.size() / 64)))) continue;
    const double residual = left(other, c, 1);
    if (!failing.explains_candidate(residual) || failing.explains_candidate(left(other, r, 1))) continue;
    const std::string where = describe_region(failing.name, c, r, 4 * failing.tolerance).words;
    out.push_back(
        {.cause = "capture.other_hit",
         .explanation = fmt::format("{}: there yours is what the reference has here{}; elsewhere the two agree", where,
                                    to_string(run.records[i].key).substr(failing.name.size())),
         .fix = "a buffer of another call shows through: wait until the copy has ended, and give each call memory "
                "of its own",
         .residual = residual,
         .complexity = failing.isolated ? 0.7 : 1.4,
         .blame = failing.isolated ? Blame::kCapture : Blame::kNone});
    return;
  }
}

}  // namespace

void search_capture(Case& failing, Findings& out) {
  if (failing.r.size() < 8) return;
  const size_t before = out.size();
  search_whole(failing, out);
  if (out.size() == before && !failing.r.shape.empty()) search_part(failing, out);
  if (out.size() == before) search_mixed(failing, out);
  if (out.size() == before && failing.r.size() >= 64 && failing.isolated) search_other_layout(failing, out);
}

}  // namespace lockstep
