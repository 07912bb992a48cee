#include "report/html_report.h"

#include <gtest/gtest.h>

#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

TEST(HtmlReport, IsOnePageWithTheDataInIt) {
  RunMaker a, b;
  const Values x = noise({1, 8, 16}, 1);
  a.add("net.one", x).add("net.</script><b>two", x);
  b.add("net.one", mapped(x, [](double v) { return 1000 * v; })).add("net.</script><b>two", x);
  const Comparison result = compare_runs(a.run, b.run, {});
  const std::string page = html_report(result, a.run, b.run);
  EXPECT_NE(page.find("affine.scale"), std::string::npos);
  EXPECT_EQ(page.find("net.</script>"), std::string::npos) << "a name must not end the script";
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);
  EXPECT_EQ(page.find("/*DATA*/"), std::string::npos);
}

TEST(HtmlReport, PicturesTravelAsPixels) {
  RunMaker a, b;
  for (RunMaker* side : {&a, &b}) {
    RecordedTensor record;
    record.key = {"image", -1, 0, {}};
    record.role = Role::kCheckpoint;
    record.dtype = DType::kU8;
    record.shape = {2, 2, 3};
    const uint8_t base = side == &a ? 10 : 200;
    const Tensor pixels = Tensor::from<uint8_t>({2, 2, 3}, {base, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    record.load = [pixels] { return pixels; };
    side->run.records.push_back(record);
  }
  const Comparison result = compare_runs(a.run, b.run, {});
  ASSERT_EQ(result.images.size(), 1u);
  const std::string page = html_report(result, a.run, b.run);
  EXPECT_NE(page.find("CgECAwQFBgcICQoL"), std::string::npos);  // base64 of the reference's bytes
}

}  // namespace
}  // namespace lockstep
