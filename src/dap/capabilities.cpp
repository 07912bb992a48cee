// What the adapter says it can. Nothing stands here that it does not do; a test asks for each.
#include "dap/adapter.h"

namespace lockstep {

Json dap_capabilities() {
  return {{"supportsConfigurationDoneRequest", true},
          {"supportsFunctionBreakpoints", true},
          {"supportsConditionalBreakpoints", true},
          {"supportsHitConditionalBreakpoints", true},
          {"supportsLogPoints", true},
          {"supportsBreakpointLocationsRequest", true},
          {"supportsEvaluateForHovers", true},
          {"supportsClipboardContext", true},
          {"supportsSetVariable", true},
          {"supportsSetExpression", true},
          {"supportsCompletionsRequest", true},
          {"completionTriggerCharacters", Json::array({"."})},
          {"supportsModulesRequest", true},
          {"additionalModuleColumns",
           Json::array({{{"attributeName", "isUserCode"}, {"label", "User code"}, {"type", "boolean"}}})},
          {"supportsLoadedSourcesRequest", true},
          {"supportsRestartRequest", true},
          {"supportsTerminateRequest", true},
          {"supportTerminateDebuggee", true},
          {"supportSuspendDebuggee", true},
          {"supportsDelayedStackTraceLoading", true},
          {"supportsExceptionInfoRequest", true},
          {"supportsSingleThreadExecutionRequests", true},
          {"supportsCancelRequest", true},
          {"exceptionBreakpointFilters",
           Json::array({{{"filter", "uncaught"},
                         {"label", "Uncaught exceptions"},
                         {"description", "Stop in the frame that raised, before the program ends"},
                         {"default", true}}})},
          {"supportsLockstepTensorPicture", true},
          {"supportsLockstepOperation", true}};
}

}  // namespace lockstep
