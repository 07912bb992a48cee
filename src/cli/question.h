// "Go on? [y/N]", where somebody is there to answer.
#pragma once
#include "base/text.h"

namespace lockstep {

bool somebody_is_there();  // stdin is a terminal
// False where nobody is there: what cannot be undone is not done because nobody said no.
bool agreed(const Text& question);

}  // namespace lockstep
