// The right values in the wrong places.
#include "compare/families/family.h"
#include "compare/layouts.h"

namespace lockstep {
namespace {

const char* fix_for(const std::string& id) {
  if (id == "layout.axes") return "permute the axes before use, or read the tensor with the reference's axis order";
  if (id == "layout.strided") return "make the view contiguous before its memory is read, or honour its strides";
  if (id == "layout.parts_exchanged") return "split in the reference's order: the parts are exchanged";
  if (id == "layout.interleaved") return "unpack blocks against interleaved elements as the reference does";
  if (id == "layout.heads")
    return "split the channels into [heads, head size] and move the axes before they are flattened";
  if (id == "layout.packing") return "pack or unpack the patches in the reference's order of factors";
  if (id == "layout.repeated") return "an index or stride of 0: each slice needs its own source";
  return "put the slices in the reference's order";
}

}  // namespace

void search_layout(Case& failing, Findings& out) {
  for (const Rearrangement& found : find_rearrangements(failing.name, failing.c, failing.r, failing.tolerance)) {
    if (!failing.explains_candidate(found.residual)) continue;
    out.push_back({found.id, "reference: these values; yours: the same values, " + found.words, fix_for(found.id), "",
                   0, found.residual, 0.9 + 0.2 * found.complexity, 0, Blame::kCapture});
  }
}

}  // namespace lockstep
