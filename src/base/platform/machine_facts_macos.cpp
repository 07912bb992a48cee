#include <mach/mach.h>
#include <sys/resource.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include <thread>

#include "base/platform/machine_facts.h"

namespace lockstep {
namespace {

uint64_t number_of(const char* name) {
  uint64_t value = 0;  // little endian: a 32-bit answer fills its lower half
  size_t bytes = sizeof value;
  return ::sysctlbyname(name, &value, &bytes, nullptr, 0) == 0 ? value : 0;
}

std::string text_of(const char* name) {
  char text[256] = {};
  size_t bytes = sizeof text - 1;
  return ::sysctlbyname(name, text, &bytes, nullptr, 0) == 0 ? text : "";
}

}  // namespace

CpuFacts cpu_facts() {
  CpuFacts facts;
  facts.model = text_of("machdep.cpu.brand_string");
  facts.cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (const auto& [name, question] :
       {std::pair{"neon", "hw.optional.neon"}, std::pair{"fp16", "hw.optional.arm.FEAT_FP16"},
        std::pair{"dotprod", "hw.optional.arm.FEAT_DotProd"}, std::pair{"i8mm", "hw.optional.arm.FEAT_I8MM"},
        std::pair{"bf16", "hw.optional.arm.FEAT_BF16"}, std::pair{"sme", "hw.optional.arm.FEAT_SME"}})
    facts.features.emplace_back(name, number_of(question) != 0);
  return facts;
}

MemoryFacts memory_facts() {
  MemoryFacts facts;
  facts.total_bytes = number_of("hw.memsize");
  vm_statistics64_data_t pages{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  if (::host_statistics64(::mach_host_self(), HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&pages), &count) ==
      KERN_SUCCESS)
    facts.available_bytes = (uint64_t{pages.free_count} + pages.inactive_count + pages.purgeable_count) *
                            static_cast<uint64_t>(::getpagesize());
  return facts;
}

uint64_t resident_bytes() {
  mach_task_basic_info_data_t facts{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  const kern_return_t asked =
      ::task_info(::mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&facts), &count);
  return asked == KERN_SUCCESS ? facts.resident_size : 0;
}

uint64_t bytes_of_peak(long ru_maxrss) {
  return static_cast<uint64_t>(ru_maxrss);
}

uint64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return bytes_of_peak(usage.ru_maxrss);
}

uint64_t peak_that_children_inherit() {
  return 0;  // a spawned process begins with memory of its own
}

int64_t memory_kills() {
  return -1;
}

}  // namespace lockstep
