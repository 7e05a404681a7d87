// npm over a session's mount; built where npm is installed.
#include "tests/mount/tools_fixture.h"

namespace escrow::test {
namespace {

using ToolsNpm = Tools;

TEST_F(ToolsNpm, InitAndPackMakeAPackage) {
  in_mount(R"sh(export npm_config_cache="$OUT/npm-cache" npm_config_update_notifier=false npm_config_offline=true
mkdir thing; cd thing; npm init -y > init.log; echo 'module.exports = 1' > index.js; npm pack > pack.log 2>&1
)sh");
  EXPECT_NE(content("thing/package.json").find("\"name\": \"thing\""), std::string::npos);
  EXPECT_EQ(git("cat-file blob main:thing/thing-1.0.0.tgz | tar -xzO package/index.js"), "module.exports = 1");
}

}  // namespace
}  // namespace escrow::test
