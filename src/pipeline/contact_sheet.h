// Several pictures on one page.
#pragma once
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

// Pictures u8 [h, w, 3] of any sizes in rows of `columns`, each in a cell as large as the largest, with a grey gap
// around them.
Tensor contact_sheet(const std::vector<Tensor>& pictures, int columns);

}  // namespace lockstep
