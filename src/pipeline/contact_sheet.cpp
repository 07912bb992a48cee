#include "pipeline/contact_sheet.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "tensor/convert.h"

namespace lockstep {

Tensor contact_sheet(const std::vector<Tensor>& pictures, int columns) {
  constexpr int64_t kGap = 4;
  constexpr uint8_t kGrey = 96;
  if (pictures.empty() || columns < 1) fail(Code::kBadInput, "contact sheet", "no pictures or no columns");
  int64_t cell_height = 0, cell_width = 0;
  for (const Tensor& picture : pictures) {
    cell_height = std::max(cell_height, picture.dim(0));
    cell_width = std::max(cell_width, picture.dim(1));
  }
  const int64_t across = std::min<int64_t>(columns, static_cast<int64_t>(pictures.size()));
  const int64_t down = (static_cast<int64_t>(pictures.size()) + across - 1) / across;
  Tensor sheet =
      Tensor::empty(DType::kU8, {down * (cell_height + kGap) + kGap, across * (cell_width + kGap) + kGap, 3});
  std::memset(sheet.mutable_data<uint8_t>(), kGrey, sheet.bytes());
  for (size_t i = 0; i < pictures.size(); ++i) {
    const int64_t y = static_cast<int64_t>(i) / across * (cell_height + kGap) + kGap,
                  x = static_cast<int64_t>(i) % across * (cell_width + kGap) + kGap;
    Tensor place = sheet.slice(0, y, y + pictures[i].dim(0)).slice(1, x, x + pictures[i].dim(1));  // [h, w, 3]
    copy_strided(pictures[i], place);
  }
  return sheet;
}

}  // namespace lockstep
