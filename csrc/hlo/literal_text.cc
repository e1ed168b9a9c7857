// SPDX-License-Identifier: Apache-2.0
#include "hlo/literal_text.h"

#include <complex>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/literal.h"
#include "xla/shape_util.h"
#include "xla/util.h"

namespace hloenv {
namespace {

constexpr absl::string_view kConstant = " constant(";

// Whether what stands somewhere is inside quotes, as metadata is: it may look
// like a constant there. Quotes end with their line.
class Quotes {
 public:
  explicit Quotes(absl::string_view text) : text_(text) {}

  // Of places in ascending order.
  bool Hold(size_t at) {
    for (; next_ < at; ++next_) {
      if (is_quoted_ && text_[next_] == '\\') {
        ++next_;
      } else if (text_[next_] == '"') {
        is_quoted_ = !is_quoted_;
      } else if (text_[next_] == '\n') {
        is_quoted_ = false;
      }
    }
    return is_quoted_;
  }

 private:
  absl::string_view text_;
  size_t next_ = 0;
  bool is_quoted_ = false;
};

bool IsEndOfNumber(char next) { return absl::StrContains(",)} \n", next); }

// Reads "nan", "-nan" or "nan(0x7)" at the start of `text`; returns its length,
// 0 where there is none.
size_t ReadNan(absl::string_view text, ComplexNan* nan) {
  absl::string_view rest = text;
  nan->is_negative = absl::ConsumePrefix(&rest, "-");
  nan->payload = 0;
  if (!absl::ConsumePrefix(&rest, "nan")) return 0;
  if (absl::ConsumePrefix(&rest, "(0x")) {
    const size_t end = rest.find(')');
    if (end == absl::string_view::npos ||
        !absl::SimpleHexAtoi(rest.substr(0, end), &nan->payload)) {
      return 0;
    }
    rest.remove_prefix(end + 1);
  }
  return text.size() - rest.size();
}

// Copies text with changes.
class Rewriter {
 public:
  explicit Rewriter(absl::string_view text) : text_(text) {}

  void Replace(size_t begin, size_t length, absl::string_view by) {
    absl::StrAppend(&result_, text_.substr(copied_, begin - copied_), by);
    copied_ = begin + length;
  }

  std::string Finish() {
    absl::StrAppend(&result_, text_.substr(copied_));
    return std::move(result_);
  }

 private:
  absl::string_view text_;
  std::string result_;
  size_t copied_ = 0;
};

// One constant, from behind its "(" on.
void Rewrite(absl::string_view text, size_t begin, bool is_complex,
             int64_t constant, Rewriter* rewriter,
             std::vector<ComplexNan>* nans) {
  int depth = 1;
  int64_t element = -1;
  bool is_imaginary = false;
  for (size_t i = begin; i < text.size() && depth > 0; ++i) {
    if (is_complex && (text[i] == 'n' || text[i] == '-')) {
      ComplexNan nan{constant, element, is_imaginary, false, 0};
      if (size_t length = ReadNan(text.substr(i), &nan); length > 0) {
        nans->push_back(nan);
        rewriter->Replace(i, length, "0");
        i += length - 1;
        continue;
      }
    }
    if (text[i] == '(') {
      ++depth;
      ++element;
      is_imaginary = false;
    }
    if (text[i] == ',') is_imaginary = true;
    if (text[i] == ')') --depth;
    if (text[i] != '-' || text.substr(i, 2) != "-0") continue;
    if (IsEndOfNumber(i + 2 < text.size() ? text[i + 2] : ' ')) {
      rewriter->Replace(i, 2, "-0.0");
    }
  }
}

template <typename Float>
void SetNan(const ComplexNan& nan, absl::Span<const int64_t> index,
            xla::Literal* literal) {
  const Float value =
      nan.payload == 0
          ? xla::NanWithSignAndPayload<Float>(
                nan.is_negative, xla::QuietNanWithoutPayload<Float>())
          : xla::NanWithSignAndPayload<Float>(nan.is_negative, nan.payload);
  auto number = literal->Get<std::complex<Float>>(index);
  nan.is_imaginary ? number.imag(value) : number.real(value);
  literal->Set(index, number);
}

// The index of an element by its position in text: the last dimension is the
// fastest, whatever the layout.
std::vector<int64_t> IndexOf(int64_t element, const xla::Shape& shape) {
  std::vector<int64_t> index(shape.dimensions().size());
  for (int64_t i = static_cast<int64_t>(index.size()) - 1; i >= 0; --i) {
    index[i] = element % shape.dimensions(i);
    element /= shape.dimensions(i);
  }
  return index;
}

}  // namespace

ReadableText MakeReadable(absl::string_view text) {
  ReadableText readable;
  Rewriter rewriter(text);
  Quotes quotes(text);
  int64_t num_complex = 0;
  for (size_t at = text.find(kConstant); at != absl::string_view::npos;
       at = text.find(kConstant, at + 1)) {
    if (quotes.Hold(at)) continue;
    const size_t equals = text.rfind("= ", at);
    if (equals == absl::string_view::npos) continue;
    const absl::string_view type = text.substr(equals + 2, 2);
    const bool has_width = type.size() == 2 && absl::ascii_isdigit(type[1]);
    const bool is_complex = has_width && type[0] == 'c';
    if (type != "bf" && !(has_width && type[0] == 'f') && !is_complex) continue;
    Rewrite(text, at + kConstant.size(), is_complex, num_complex, &rewriter,
            &readable.nans);
    num_complex += is_complex;
  }
  readable.text = rewriter.Finish();
  return readable;
}

bool SetNans(const std::vector<ComplexNan>& nans, xla::HloModule* module) {
  if (nans.empty()) return true;
  int64_t constant = -1;
  auto nan = nans.begin();
  for (xla::HloComputation* computation : module->computations()) {
    for (xla::HloInstruction* instruction : computation->instructions()) {
      const xla::Shape& shape = instruction->shape();
      if (instruction->opcode() != xla::HloOpcode::kConstant ||
          !xla::ShapeUtil::ElementIsComplex(shape)) {
        continue;
      }
      ++constant;
      xla::Literal* literal = nullptr;
      for (; nan != nans.end() && nan->constant == constant; ++nan) {
        if (literal == nullptr) {
          literal = xla::Cast<xla::HloConstantInstruction>(instruction)
                        ->mutable_literal();
        }
        const std::vector<int64_t> index = IndexOf(nan->element, shape);
        if (shape.element_type() == xla::C64) {
          SetNan<float>(*nan, index, literal);
        } else {
          SetNan<double>(*nan, index, literal);
        }
      }
    }
  }
  return nan == nans.end();
}

}  // namespace hloenv
