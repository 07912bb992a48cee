// The one released architecture, for folders that hold no configs: mflux saves none.
#pragma once
#include "models/qwen2_5_vl/text_model.h"
#include "models/qwen_image/transformer.h"
#include "models/qwen_vae/vae.h"
#include "pipeline/scheduler.h"

namespace lockstep::released {

models::QwenImageConfig transformer();
models::TextConfig text_encoder();
models::VaeConfig vae();
SchedulerConfig scheduler();

}  // namespace lockstep::released
