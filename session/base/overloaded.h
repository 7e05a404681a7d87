// Several lambdas as one function object, for std::visit (cppreference, "std::visit").
#pragma once

namespace escrow::session {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;  // clang 14, which builds the fuzz targets, does not deduce it

}  // namespace escrow::session
