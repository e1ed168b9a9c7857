// SPDX-License-Identifier: Apache-2.0
// The values of attributes in HLO text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "hlo/outline/cursor.h"

namespace hloenv {

class ValueCursor : public TextCursor {
 public:
  using TextCursor::TextCursor;

 protected:
  // Whether "key=N" occurs with N in 1 to `count`; `row` has no strings.
  static bool IsWithin(absl::string_view row, absl::string_view key,
                       int64_t count) {
    const size_t at = row.find(absl::StrCat(key, "="));
    if (at == absl::string_view::npos) return false;
    int64_t value = 0;
    row.remove_prefix(at + key.size() + 1);
    return absl::SimpleAtoi(row.substr(0, row.find_first_not_of("0123456789")),
                            &value) &&
           value >= 1 && value <= count;
  }

  // (0, {1}, may-alias)
  bool AliasSource(OutlineAlias* alias) {
    if (!Need("(") || !Int(&alias->operand) || !Need(",") ||
        !IntList(&alias->operand_index)) {
      return false;
    }
    if (Eat(",")) Word();
    return Need(")");
  }

  // { {0}: (0, {}), ... }
  bool AliasList(std::vector<OutlineAlias>* aliases) {
    if (!Need("{")) return false;
    if (Eat("}")) return true;
    do {
      OutlineAlias& alias = aliases->emplace_back();
      if (!IntList(&alias.output_index) || !Need(":") || !AliasSource(&alias)) {
        return false;
      }
    } while (Eat(","));
    return Need("}");
  }

  // The bits of reduce-precision come as two numbers of one field.
  bool Number(Field field, OutlineInstruction* self) {
    int64_t value;
    if (!Int(&value)) return false;
    for (auto& [each, values] : self->fields) {
      if (each == field) {
        values.push_back(value);
        return true;
      }
    }
    self->Set(field, {value});
    return true;
  }

  bool CompareType(OutlineInstruction* self) {
    const absl::string_view type = Word();
    const absl::string_view kTypes[] = {"FLOAT", "TOTALORDER", "SIGNED",
                                        "UNSIGNED"};
    for (int64_t i = 0; i < 4; ++i) {
      if (type == kTypes[i]) {
        self->Set(Field::kCompareType, {i + 1});
        return true;
      }
    }
    return Fail("an unknown type of comparison");
  }

  // {[0:4], [0:8:2]}
  bool Slices(OutlineInstruction* self) {
    Ints starts;
    Ints limits;
    Ints strides;
    if (!Need("{")) return false;
    if (!Eat("}")) {
      do {
        int64_t start;
        int64_t limit;
        int64_t stride = 1;
        if (!Need("[") || !Int(&start) || !Need(":") || !Int(&limit)) {
          return false;
        }
        if (Eat(":") && !Int(&stride)) return false;
        if (!Need("]")) return false;
        starts.push_back(start);
        limits.push_back(limit);
        strides.push_back(stride);
      } while (Eat(","));
      if (!Need("}")) return false;
    }
    self->Set(Field::kStarts, std::move(starts));
    self->Set(Field::kLimits, std::move(limits));
    self->Set(Field::kStrides, std::move(strides));
    return true;
  }

  // Numbers with `separator` between them.
  static bool Split(absl::string_view text, char separator, Ints* values) {
    for (const absl::string_view part : absl::StrSplit(text, separator)) {
      int64_t value;
      if (part.size() > 18 || !absl::SimpleAtoi(part, &value)) return false;
      values->push_back(value);
    }
    return true;
  }

  // Pairs "low_high", or triples with the interior, for each dimension.
  bool Pads(absl::string_view text, Ints* low, Ints* high, Ints* interior) {
    if (text.empty()) return true;
    for (const absl::string_view part : absl::StrSplit(text, 'x')) {
      Ints values;
      if (!Split(part, '_', &values) || values.size() < 2 ||
          values.size() > (interior == nullptr ? 2U : 3U)) {
        return Fail("expected a padding");
      }
      low->push_back(values[0]);
      high->push_back(values[1]);
      if (interior != nullptr) {
        interior->push_back(values.size() == 3 ? values[2] : 0);
      }
    }
    return true;
  }

  bool Padding(OutlineInstruction* self) {
    Ints low;
    Ints high;
    Ints interior;
    if (!Pads(Word(), &low, &high, &interior)) return false;
    self->Set(Field::kPadLow, std::move(low));
    self->Set(Field::kPadHigh, std::move(high));
    self->Set(Field::kPadInterior, std::move(interior));
    return true;
  }

  // {size=3x3 stride=2x2 pad=0_0x1_1 lhs_dilate=2x2 rhs_reversal=1x1}
  bool Window(OutlineInstruction* self) {
    std::string text;
    if (!Braces(&text)) return false;
    absl::string_view window = text;
    absl::ConsumeSuffix(&window, "}");
    absl::flat_hash_map<absl::string_view, absl::string_view> parts;
    for (const absl::string_view part :
         absl::StrSplit(window, ' ', absl::SkipEmpty())) {
      const std::pair<absl::string_view, absl::string_view> both =
          absl::StrSplit(part, absl::MaxSplits('=', 1));
      if (!parts.insert(both).second) return Fail("part of a window twice");
    }
    Ints size;
    if (parts.contains("size") && !Split(parts["size"], 'x', &size)) {
      return Fail("expected a window");
    }
    self->Set(Field::kWindowSize, size);
    const std::pair<absl::string_view, Field> kKeys[] = {
        {"stride", Field::kWindowStride},
        {"lhs_dilate", Field::kWindowLhsDilation},
        {"rhs_dilate", Field::kWindowRhsDilation},
        {"rhs_reversal", Field::kDimensions}};
    size_t num_known = parts.contains("size");
    for (const auto& [key, field] : kKeys) {
      Ints values(size.size(), 1);
      if (parts.contains(key)) {
        ++num_known;
        values.clear();
        if (!Split(parts[key], 'x', &values) || values.size() != size.size()) {
          return Fail("expected a window");
        }
      }
      if (field != Field::kDimensions) self->Set(field, std::move(values));
    }
    Ints low(size.size(), 0);
    Ints high(size.size(), 0);
    if (parts.contains("pad")) {
      ++num_known;
      low.clear();
      high.clear();
      if (!Pads(parts["pad"], &low, &high, nullptr)) return false;
    }
    self->Set(Field::kWindowPadLow, std::move(low));
    self->Set(Field::kWindowPadHigh, std::move(high));
    return num_known == parts.size() || Fail("an unknown part of a window");
  }

  // Where the first letters stand, then the spatial dimensions.
  bool Labels(absl::string_view labels, absl::string_view letters,
              Ints* places) {
    places->assign(labels.size(), -1);
    for (size_t i = 0; i < labels.size(); ++i) {
      size_t place = letters.find(labels[i]);
      if (absl::ascii_isdigit(labels[i])) place = 2 + (labels[i] - '0');
      if (place >= labels.size() || (*places)[place] != -1) {
        return Fail("expected labels of dimensions");
      }
      (*places)[place] = static_cast<int64_t>(i);
    }
    return true;
  }

  // b01f_01io->b01f
  bool DimLabels(OutlineInstruction* self) {
    const absl::string_view text = Word();
    // A word ends in front of ">", with the arrow's "-".
    const size_t middle = text.find('_');
    if (middle == absl::string_view::npos || text.back() != '-' ||
        Peek() != '>') {
      return Fail("expected labels of dimensions");
    }
    ++at_;
    Ints input;
    Ints kernel;
    Ints output;
    if (!Labels(text.substr(0, middle), "bf", &input) ||
        !Labels(text.substr(middle + 1, text.size() - middle - 2), "io",
                &kernel) ||
        !Labels(Word(), "bf", &output)) {
      return false;
    }
    self->Set(Field::kConvInput, std::move(input));
    self->Set(Field::kConvKernel, std::move(kernel));
    self->Set(Field::kConvOutput, std::move(output));
    return true;
  }

  bool ConstrainedShapes(OutlineInstruction* self) {
    if (!Need("{")) return false;
    if (Eat("}")) {
      return self->operands.empty() || Fail("it constrains other operands");
    }
    do {
      if (!Shape(&self->constrained_operands.emplace_back())) return false;
    } while (Eat(","));
    return Need("}");
  }

  bool Sharding() {
    std::string text;
    if (!Braces(&text)) return false;
    return text == "replicated}" || text == "manual}" ||
           Fail("a sharding other than replicated");
  }
};

}  // namespace hloenv
