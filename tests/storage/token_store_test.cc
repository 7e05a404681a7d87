// The tokens that escrowd keeps: only their hashes, and what became of them.
#include "storage/database/token_store.h"

#include <gtest/gtest.h>

#include "session/base/error.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

class TokenStoreTest : public testing::Test {
 protected:
  static TokenStore::Token token(const std::string& id, const std::string& principal, std::int64_t expires_s) {
    return {.id = id, .hash = "sha256:" + id, .principal = principal, .note = "note", .created_by = "user:root",
            .created_s = 100, .expires_s = expires_s};
  }
  static std::vector<std::string> ids(const std::vector<TokenStore::Token>& tokens) {
    std::vector<std::string> found;
    for (const auto& one : tokens) found.push_back(one.id);
    return found;
  }

  using Ids = std::vector<std::string>;
  support::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/tokens.db";
};

TEST_F(TokenStoreTest, WhatHasEndedStaysSoInTheNextProcess) {
  {
    TokenStore store(path_);
    store.add(token("a", "agent:x", 200));
    store.add(token("b", "agent:y", 300));
    store.add(token("c", "agent:x", 400));
    EXPECT_TRUE(store.revoke("a", "user:root", 150));
    EXPECT_FALSE(store.revoke("a", "user:other", 151));
    EXPECT_FALSE(store.revoke("none", "user:root", 151));
    EXPECT_FALSE(store.expire(299, 10));
    EXPECT_TRUE(store.expire(300, 1));
  }
  TokenStore store(path_);
  EXPECT_EQ(ids(store.valid()), Ids{"c"});
  EXPECT_EQ(store.find("a")->ended_by, "user:root");
  EXPECT_EQ(store.find("a")->ended_s, 150);
  EXPECT_EQ(store.find("b")->ended_by, "");
  EXPECT_EQ(store.find("b")->ended_s, 300);
  EXPECT_FALSE(store.find("none"));
}

TEST_F(TokenStoreTest, ListsAreOfOneOrAllWithOrWithoutWhatHasEnded) {
  TokenStore store(path_);
  for (const char* id : {"a", "b", "c", "d"}) {
    store.add(token(id, id[0] % 2 == 0 ? "agent:even" : "agent:odd", 200));
  }
  store.revoke("b", "user:root", 150);
  EXPECT_EQ(ids(store.list_after(0, std::nullopt, true, 10)), (Ids{"a", "b", "c", "d"}));
  EXPECT_EQ(ids(store.list_after(0, std::nullopt, false, 2)), (Ids{"a", "c"}));
  EXPECT_EQ(ids(store.list_after(3, std::nullopt, false, 2)), Ids{"d"});
  EXPECT_EQ(ids(store.list_after(0, "agent:even", false, 10)), Ids{"d"});
  EXPECT_EQ(ids(store.list_after(0, "agent:even", true, 1)), Ids{"b"});
}

TEST_F(TokenStoreTest, AHashIsOneTokensForAsLongAsItIsRemembered) {
  TokenStore store(path_);
  store.add(token("a", "agent:x", 200));
  TokenStore::Token again = token("b", "agent:y", 200);
  again.hash = "sha256:a";
  EXPECT_THROW(store.add(again), session::Error);
  store.revoke("a", "user:root", 150);
  EXPECT_THROW(store.add(again), session::Error);
  EXPECT_FALSE(store.forget(150, 10));
  EXPECT_TRUE(store.find("a"));
  EXPECT_TRUE(store.forget(151, 1));
  EXPECT_FALSE(store.find("a"));
  store.add(again);
}

TEST_F(TokenStoreTest, ChangesAreThereUntilTheyAreToldAndNoNumberComesTwice) {
  TokenStore store(path_);
  store.add(token("a", "agent:x", 200));
  store.revoke("a", "user:root", 150);
  store.add(token("b", "agent:x", 200));
  store.expire(200, 10);
  store.forget(1000, 10);
  const auto changes = store.changes_after(0, 10);
  ASSERT_EQ(changes.size(), 4u);
  EXPECT_EQ(changes[1].kind, "revoked");
  EXPECT_EQ(changes[1].principal, "agent:x");
  EXPECT_EQ(changes[3].kind, "expired");
  EXPECT_EQ(changes[3].who, "escrowd");
  store.forget_changes(changes[3].number);
  EXPECT_TRUE(store.changes_after(0, 10).empty());
  store.add(token("c", "agent:x", 200));
  EXPECT_EQ(store.changes_after(0, 10).at(0).number, changes[3].number + 1);
}

}  // namespace
}  // namespace escrow::storage
