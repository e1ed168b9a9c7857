// SPDX-License-Identifier: Apache-2.0
// Words, numbers and shapes of HLO text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "hlo/outline/outline.h"
#include "xla/primitive_util.h"

namespace hloenv {

// A position in a text. Each reader returns whether the text continues with
// what it reads, and then moves the position behind it.
class TextCursor {
 public:
  explicit TextCursor(absl::string_view text) : text_(text) {}

 protected:
  // Always false.
  bool Fail(absl::string_view why) {
    if (why_.empty()) why_ = std::string(why);
    return false;
  }

  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  // Blanks and comments.
  bool Skip() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
        ++at_;
      } else if (c == '/' && absl::StartsWith(text_.substr(at_), "/*")) {
        const size_t end = text_.find("*/", at_ + 2);
        if (end == absl::string_view::npos) return Fail("an open comment");
        at_ = end + 2;
      } else if (c == '/' && absl::StartsWith(text_.substr(at_), "//")) {
        at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
      } else {
        break;
      }
    }
    return true;
  }

  bool Eat(absl::string_view what) {
    if (!Skip() || !absl::StartsWith(text_.substr(at_), what)) return false;
    at_ += what.size();
    return true;
  }

  bool Need(absl::string_view what) {
    return Eat(what) || Fail(absl::StrCat("expected '", what, "'"));
  }

  // The characters of a name (see IsNameChar) from the position on.
  absl::string_view Word() {
    Skip();
    const size_t begin = at_;
    while (at_ < text_.size() && IsNameChar(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  bool Name(absl::string_view* name) {
    if (!Skip()) return false;
    if (Peek() == '%') ++at_;
    if (!IsNameStart(Peek())) return Fail("expected a name");
    *name = Word();
    return true;
  }

  bool Int(int64_t* value) {
    if (!Skip()) return false;
    const size_t begin = at_;
    if (Peek() == '-') ++at_;
    while (absl::ascii_isdigit(Peek())) ++at_;
    return (at_ - begin < 19 &&
            absl::SimpleAtoi(text_.substr(begin, at_ - begin), value)) ||
           Fail("expected a number");
  }

  // {0, 1}
  bool IntList(Ints* values) {
    if (!Need("{")) return false;
    if (Eat("}")) return true;
    do {
      int64_t value;
      if (!Int(&value)) return false;
      values->push_back(value);
    } while (Eat(","));
    return Need("}");
  }

  // "..."
  bool String() {
    if (!Need("\"")) return false;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"') {
        ++at_;
        return true;
      }
      if (text_[at_] != '\\') continue;
      ++at_;
      if (Peek() == '\n') break;
    }
    return Fail("an open string");
  }

  // {...}, which may contain strings and braces. Appends the text outside of
  // strings to `outside`.
  bool Braces(std::string* outside = nullptr) {
    if (!Need("{")) return false;
    int depth = 1;
    while (depth > 0) {
      if (at_ >= text_.size()) return Fail("an open brace");
      const char c = text_[at_];
      if (c == '"') {
        if (!String()) return false;
        continue;
      }
      if (c == '\'' || (!absl::ascii_isprint(c) && !absl::ascii_isspace(c))) {
        return Fail("an unexpected character");
      }
      if (c == '/' && (absl::StartsWith(text_.substr(at_), "/*") ||
                       absl::StartsWith(text_.substr(at_), "//"))) {
        return Fail("a comment in a value");
      }
      depth += (c == '{') - (c == '}');
      if (depth > kMaxBraces) return TooDeep("braces are nested too deep");
      if (outside != nullptr) outside->push_back(c);
      ++at_;
    }
    return true;
  }

  bool TooDeep(absl::string_view why) {
    return Refuse(Verdict::kNoModule, why);
  }

  // Always false.
  bool Refuse(Verdict verdict, absl::string_view why) {
    if (why_.empty()) verdict_ = verdict;
    return Fail(why);
  }

  bool Shape(OutlineShape* shape, int nesting = 0) {
    if (nesting > kMaxShapeNesting)
      return TooDeep("a shape is nested too deep");
    if (Eat("(")) {
      shape->type = xla::TUPLE;
      if (Eat(")")) return true;
      do {
        if (!Shape(&shape->elements.emplace_back(), nesting + 1)) return false;
      } while (Eat(","));
      return Need(")");
    }
    return Leaf(shape);
  }

  bool Leaf(OutlineShape* shape) {
    const absl::string_view name = Word();
    if (name == "token" || name == "opaque") {
      shape->type = name == "token" ? xla::TOKEN : xla::OPAQUE_TYPE;
      return Peek() == '[' && Eat("[") && Need("]");
    }
    const auto type = xla::primitive_util::StringToPrimitiveType(name);
    if (!type.ok() || !xla::primitive_util::IsArrayType(*type)) {
      return Fail("expected a shape");
    }
    shape->type = *type;
    if (Peek() != '[') return Fail("expected dimensions");
    ++at_;
    if (!Eat("]")) {
      do {
        Eat("<=");
        int64_t dim;
        if (!Int(&dim)) return false;
        shape->dims.push_back(dim);
      } while (Eat(","));
      if (!Need("]")) return false;
    }
    // As in XLA's parser, a brace followed by a number starts a layout.
    const size_t before = at_;
    if (Eat("{") && Skip() && (absl::ascii_isdigit(Peek()) || Peek() == '-')) {
      at_ = before;
      return IntList(&shape->layout.emplace());
    }
    if (Peek() == ':') return Fail("a layout with more than an order");
    at_ = before;
    return true;
  }

  const absl::string_view text_;
  size_t at_ = 0;
  std::string why_;
  Verdict verdict_ = Verdict::kUnsure;

 private:
  static constexpr int kMaxBraces = 100;

  static bool IsNameStart(char c) { return absl::ascii_isalpha(c) || c == '_'; }
  static bool IsNameChar(char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
  }
};

}  // namespace hloenv
