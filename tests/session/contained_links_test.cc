// Links of a base that no program could have made: git keeps any bytes as a target.
#include "session/decorators/contained_links.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "session/base/link_target.h"
#include "tests/session/overlay_fixture.h"

namespace escrow::session {
namespace {

class ContainedLinksTest : public OverlayTest, public DenialSink {
 protected:
  void denied(const Denial&) noexcept override { ++denials_; }
  void links(const std::map<std::string, std::string>& targets) {
    Tree below;
    for (const auto& [name, target] : targets) below.push_back({name, GitMode::symlink, objects.put_blob(target)});
    base(objects.put_tree({{"d", GitMode::tree, objects.put_tree(below)}, {"e", GitMode::tree, objects.put_tree({})}}));
    contained_.emplace(
        *overlay, [&](NodeId id) { return overlay->names(id).paths; },
        ContainedLinks::Roots{.visible = "/seen/there", .host = "/host", .prefix = ""}, *this);
  }
  std::string read_link(const std::string& name) { return contained_->read_link(node("d/" + name)); }

  std::optional<ContainedLinks> contained_;
  int denials_ = 0;
};

const std::string kWithNul("..\0x", 4);

TEST_F(ContainedLinksTest, TargetThatNoSystemCallTakesIsAnInputError) {
  links({{"cut", kWithNul},
         {"deep", std::string("a\0/../../..", 11)},
         {"empty", ""},
         {"ends", std::string("x\0", 2)},
         {"fits", std::string(4095, 't')},
         {"longer", std::string(4096, 't')},
         {"much", std::string(4094, 't') + "/../../../x"}});
  for (const char* name : {"cut", "deep", "empty", "ends", "longer", "much"})
    EXPECT_EQ(code_of([&] { read_link(name); }), Errc::input_output) << name;
  EXPECT_EQ(read_link("fits"), std::string(4095, 't'));
  EXPECT_EQ(denials_, 0);
}

TEST_F(ContainedLinksTest, TargetIsJudgedByTheBytesThatAreShown) {
  links({{"at", "/host/" + std::string(4088, 't')}, {"up", "../../x"}, {"near", "../x"}});
  EXPECT_EQ(code_of([&] { read_link("at"); }), Errc::input_output) << "with /seen/there before it, it is too long";
  EXPECT_EQ(code_of([&] { read_link("up"); }), Errc::access_denied);
  EXPECT_EQ(read_link("near"), "../x");
}

TEST_F(ContainedLinksTest, DirectoryWithAnUnusableLinkCanBeMovedAndKeepsItsBytes) {
  links({{"cut", kWithNul}, {"longer", std::string(5000, 't')}});
  const Tree before = objects.read_tree(objects.read_tree(*options.base_tree)[0].id);
  contained_->rename(kRootNode, "d", node("e"), "d", RenameMode::replace);
  EXPECT_EQ(code_of([&] { contained_->read_link(node("e/d/cut")); }), Errc::input_output);
  const Tree moved = quarantine.read_tree(quarantine.read_tree(*tree()).at(0).id);
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(quarantine.read_tree(moved[0].id), before);
}

TEST(LinkTarget, IsOneTo4095BytesWithoutNul) {
  for (const std::string& good : {std::string("x"), std::string(".."), std::string(4095, 'x'), std::string("\xff\n")})
    EXPECT_TRUE(is_link_target(good)) << good;
  for (const std::string& bad : {std::string(), kWithNul, std::string("\0", 1), std::string(4096, 'x')})
    EXPECT_FALSE(is_link_target(bad)) << bad;
}

}  // namespace
}  // namespace escrow::session
