# SPDX-License-Identifier: Apache-2.0
"""Sizes of convolutions, and what is known to be faster for which.

The conditions come from measurements, as those of `known_forms`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..graph.hlo_graph import dtypes

if TYPE_CHECKING:
    from ..graph.hlo_graph import HloGraph

_SPATIAL = range(3)
CONVOLUTION_ATTRIBUTES = (
    *("feature_group_count", "batch_group_count", "output_batch", "output_feature"),
    *("kernel_input_feature", "kernel_output_feature"),
    *(f"{name}_{d}" for name in ("sizes", "base_dilations") for d in _SPATIAL),
    *(
        f"{name}_{d}"
        for name in ("low", "high", "window_dilations", "strides")
        for d in _SPATIAL
    ),
    *(f"{name}_spatial_{d}" for name in ("input", "output") for d in _SPATIAL),
)
_ENDS = tuple((name, d) for d in _SPATIAL for name in ("low", "high"))
ABSENT = -(2**40)

# Elements of the window of a patch embedding, from which XLA's convolution with as
# large a base dilation was slow.
_LARGE_PATCH = 100
# Rows of the matrix of patches, features and elements of the window, of convolutions
# that read the kernel transposed and were slow.
_FEW_ROWS, _MANY_FEATURES, _MAX_WINDOW = 100, 128, 16
# Images from which, and output features up to which, phases were faster for gradients
# of transposed convolutions with respect to their kernels.
_LARGE_BATCH, _FEW_OUTPUTS = 16, 16
# Terms of each sum and features, of gradients with respect to kernels that were slow;
# first layers of networks, which are as narrow, have more patches.
_FEW_TERMS, _MANY_ROWS = 64, 64
# Products from which a loop over rows was faster than a reduction for each sum: with so
# many columns, and with fewer.
_WIDE_ROW, _SOME_OF_ROWS, _MANY_OF_ROWS = 20, 2**17, 2**23
# Elements of all patches, up to which one dot was faster; those of grouped convolutions
# and the input features of a group where so few are enough.
_MAX_PATCHES, _SOME_PATCHES, _MAX_GROUPED_PATCHES = 2**20, 2**16, 2**21
# Those up to which a dot for each element of the window was faster.
_NARROW_GROUP, _MAX_PATCHES_OF_TAPS = 4, 2**24
# Input features of a group up to which one dot was faster for 1x1 windows, and of any
# for one image.
_MAX_OF_BLOCKS = 32
# Elements of a dilated input, up to which a sum over the window was faster.
_FEW_PIXELS = 16
# Input features up to which, and output features with one of them, and with several,
# multiplications were faster; and results of one output feature from which on.
_FEW_INPUTS, _MAX_OF_ONE, _MAX_OF_FEW, _MANY_RESULTS = 8, 16, 7, 256
# Output features from which jaxlib has fast code for 64-bit floats in two dimensions.
_MANY_OUTPUTS = 32
# Elements of a window of three dimensions, from which it is the result of a layer.
_LARGE_VOLUME = 216
# Input features of three dimensions, and the fewer ones of gradients with respect to
# kernels, up to which one dot was faster than one for each element of the window, or
# of the result; and the elements of its matrix.
_SOME_FEATURES, _MAX_OF_VOLUME = 16, 2**22
# Of bands: features up to which they are few, and elements of the arrays that are made
# then, and otherwise.
_FEW_OF_BANDS, _MAX_OF_BANDS, _SOME_OF_BANDS = 4, 10_000_000, 3_600_000
# Elements of a filter of signals, and of a gradient with respect to one, from which one
# dot with a Toeplitz matrix was faster; features up to which, and of groups.
_LONG_FILTER, _LONG_OF_GROUPS, _LONG_GRADIENT, _FEW_SIGNALS = 32, 121, 32, 4
# Products for each of these features from which it was, and strides up to which.
_LONG_PRODUCTS, _MAX_STRIDES = 16_000, 4
# Elements of a window up to which sums of multiplications were faster: of one input
# feature, of few, and of those where they are slow.
_MAX_SUMMED, _LARGE_WINDOW, _SMALL_WINDOW = 169, 48, 24
# Input features of the widest convolutions that are slow; of at least a window of so
# many elements if there is one output feature.
_MAX_INPUTS, _WINDOW_OF_MANY = 16, 81
# Multiplications of one result up to which the rule terms applies.
_MAX_TERMS = 256
# Images up to which gradients with respect to kernels were slow, and output features up
# to which they were, and without padding.
_VERY_FEW_IMAGES, _FEW_IMAGES, _MAX_OUTPUTS, _MAX_UNPADDED_OUTPUTS = 2, 4, 16, 3
# Of the window that an image is as large as, where bands were faster; and positions
# from which they were.
_MIN_SHARE, _FEW_POSITIONS = 0.2, 300
# Products from which a call of oneDNN was faster than XLA's own, and phases than a
# convolution of few dilated pixels; and elements of the
# window above which it was slower, as of gradients with respect to kernels, but for
# those of three dimensions; and features up to which it was faster for such gradients.
_MANY_PRODUCTS, _MAX_TAPS, _MAX_OF_GRADIENT = 2**18, 121, 128
# Of gradients for each image apart: elements of the largest kernels; output features
# from which a dot for each element of the kernel was faster; and elements of the image
# from which, and of the kernel up to which, one dot was.
_MAX_KERNEL, _SOME_OUTPUTS, _LARGE_IMAGE, _LARGE_KERNEL = 64, 32, 196, 25
# Of depthwise convolutions with several output features for each input feature, which
# are the last dimension: elements of the window and bytes of the kernel from which sums
# were slower than XLA's form; and the squares of these features times the elements of
# the window, by which power of two divides the former, as vectors have so many.
_MANY_SUMMED, _MAX_KERNEL_BYTES = 25, 100_000
_MAX_SUMS = {1: 2400, 2: 4800, 4: 19_700, 8: 50_000}
# And elements of the window from which, and up to which, they were for bfloat16.
_SCALAR_SUMS = range(4, 16)
# Multiplications from which a convolution in a loop or a branch was faster in the order
# of dimensions that XLA's library takes; and signals up to which their sum, a gradient
# with respect to a kernel of one dimension, was not.
_REORDERED, _FEW_SUMMED = 2**14, 4
# Output features below which it was slower, as of gradients with respect to images.
_FEW_FEATURES = 8


@dataclass(frozen=True)
class ConvolutionSizes:
    """Sizes of a convolution; `batch`, `inputs` and `outputs` are those of one group.

    Attributes:
        is_transposed: the output features precede the input features in the kernel, as
            in gradients with respect to the input.
        is_float64: the numbers have 64 bits.
        has_padding: the image has padding.
        has_window_dilation: as in gradients of convolutions with strides.
        has_strides: there are strides.
        is_feature_last: the features are the last dimension of the result.
        is_bfloat16: the numbers are of type bfloat16.
        is_kernel_feature_last: the output features are the kernel's last dimension.
    """

    groups: int
    has_batch_groups: bool
    batch: int
    inputs: int
    outputs: int
    image: tuple[int, ...]
    window: tuple[int, ...]
    positions: int
    is_transposed: bool
    has_base_dilation: bool
    is_float64: bool = False
    has_padding: bool = False
    has_window_dilation: bool = False
    has_strides: bool = False
    is_feature_last: bool = False
    is_bfloat16: bool = False
    is_kernel_feature_last: bool = True

    @property
    def taps(self) -> int:
        """Number of elements of the window."""
        return math.prod(self.window)

    @property
    def products(self) -> int:
        """Multiplications, those with padding included."""
        outputs = self.groups * self.outputs
        return self.batch * self.positions * self.taps * self.inputs * outputs

    @property
    def is_larger_than_image(self) -> bool:
        """Whether the window is larger than the input in each dimension."""
        return not self.has_base_dilation and all(
            n < k for n, k in zip(self.image, self.window, strict=True)
        )

    def forms(self) -> tuple[str, ...]:
        """The faster rules, the best first; none if XLA's form is as fast."""
        toeplitz = ("toeplitz",) if self._has_fast_toeplitz else ()
        if toeplitz and self.positions < self.taps:
            return toeplitz
        if self.groups > 1:
            if self.taps > _LONG_OF_GROUPS:
                return (*toeplitz, *self._grouped_forms())
            return (*self._grouped_forms(), *toeplitz)
        if self.has_base_dilation and self.positions < self.taps:
            # The gradient with respect to the kernel of a transposed convolution, whose
            # batch is the input features here.
            is_narrow = self.inputs >= _LARGE_BATCH and self.outputs <= _FEW_OUTPUTS
            return ("phases", "outputs") if is_narrow else ("outputs",)
        if not self.image:
            return ()
        if max(self.image) == 1:
            return ("taps",) if self.positions == 1 else ("blocks",)
        if self.positions == 1:
            # A gradient with respect to a 1x1 kernel, or a window over the image.
            return ("blocks",)
        if self.has_base_dilation:
            return self._dilated_forms()
        if self.taps == 1:
            return ("blocks",) if self.is_transposed or self.is_float64 else ()
        bands = ("bands",) if self._has_fast_bands else ()
        if self.is_larger_than_image:
            few = ("taps", "patches")
            if math.prod(self.image) < _MIN_SHARE * self.taps:
                bands = ()
            return (*(few if self.is_transposed else few[::-1]), *bands)
        return (*bands, *self._forms_of_windows(), *toeplitz)

    def forms_in_loops(self) -> tuple[str, ...]:
        """The same in a loop or a branch, where XLA keeps the order of dimensions."""
        # LLVM reads the signals that are summed as vectors.
        is_signal_sum = (
            len(self.image) == 1
            and self.positions < self.taps
            and self.inputs <= _FEW_SUMMED
            and not self.is_kernel_feature_last
        )
        if self.products < _REORDERED or is_signal_sum:
            return self.forms()
        return (*self.forms(), "channels_last")

    def _forms_of_windows(self) -> tuple[str, ...]:
        """For windows over an image that is not smaller, without base dilation."""
        if len(self.image) == 3 and self.taps >= _LARGE_VOLUME > self.positions:
            return self._kernel_gradient_forms()
        if self.is_float64 and self.inputs > 1:
            return self._float64_forms()
        rows = self.batch * self.positions
        if len(self.image) == 3 and self.inputs > 1:
            return self._volume_forms()
        if self.inputs <= _FEW_INPUTS and rows >= _MANY_RESULTS:
            if self.inputs == 1 and self.outputs <= _MAX_OF_ONE:
                # In a kernel of their own: pooling would compute them several times.
                return ("taps_apart", "taps")
            if self.inputs > 1 and self.outputs <= _MAX_OF_FEW:
                return ("terms",)
        is_wide = min(self.inputs, self.outputs) >= _MANY_FEATURES
        if self.is_transposed and rows <= _FEW_ROWS and is_wide:
            return ("taps",) if self.taps <= _MAX_WINDOW else ()
        terms = self.inputs * self.taps
        is_small = rows * terms <= _MAX_PATCHES
        if self.batch >= _MANY_ROWS and terms <= _FEW_TERMS and is_small:
            return ("patches",)
        return ()

    @property
    def _has_fast_bands(self) -> bool:
        """Whether one dot of the columns of windows was faster; of one group."""
        if len(self.image) != 2:
            return False
        if self.positions < self.taps:
            return self._has_fast_bands_of_gradient
        if self.has_strides or self.positions < _FEW_POSITIONS:
            return False
        largest = self._largest_of_bands
        features = max(self.inputs, self.outputs)
        is_few = features <= _FEW_OF_BANDS
        if self.is_float64 and self.inputs > 1:
            is_narrow = features <= _FEW_INPUTS and largest <= _SOME_OF_BANDS
            return is_narrow and self.taps * self.inputs > _MAX_TERMS
        if is_few or (self.inputs == 1 and self.outputs <= _FEW_FEATURES):
            return largest <= _MAX_OF_BANDS and self.taps > self._most_summed
        if largest > _SOME_OF_BANDS:
            return False
        is_large = self.taps > _MAX_TAPS and self.inputs > 1
        most = _MAX_OUTPUTS if self.has_padding else _FEW_FEATURES
        if self.inputs <= _FEW_INPUTS and self.outputs <= most and is_large:
            return True
        if self.outputs > _MAX_OF_FEW or self.inputs == 1:
            return False
        if self.inputs == _MAX_INPUTS:
            return self.outputs > 1 or self.taps >= _WINDOW_OF_MANY
        if self.inputs > _FEW_INPUTS:
            return False
        # Where the rule terms does not apply, and where it was not faster.
        is_slow = self.inputs == _FEW_INPUTS and (
            self.outputs == 2 or (self.outputs == 1 and self.taps > _SMALL_WINDOW)
        )
        return self.taps * self.inputs > _MAX_TERMS or is_slow

    @property
    def _has_fast_toeplitz(self) -> bool:
        """Whether one dot of parts of signals was faster than a long filter of them."""
        if len(self.image) != 1 or self.is_float64:
            return False
        is_gradient = self.positions < self.taps
        if self.has_base_dilation or self.has_window_dilation:
            return False
        if is_gradient and self.has_strides:
            return False
        # Those of a gradient are where the batch is.
        inputs = self.batch if is_gradient else self.inputs
        features = max(inputs, self.outputs)
        is_small = self.positions * self.taps < _LONG_PRODUCTS * features
        if is_small or features > _FEW_SIGNALS:
            return False
        if is_gradient:
            return self.positions >= _LONG_GRADIENT
        has_few_strides = self.image[0] <= _MAX_STRIDES * self.positions
        return has_few_strides and self.taps >= _LONG_FILTER

    @property
    def _largest_of_bands(self) -> int:
        """Elements of the largest array that the rule makes, but for the padding."""
        rows = self.groups * self.batch * self.positions
        return rows * max(self.window[1] * self.inputs, self.window[0] * self.outputs)

    @property
    def _most_summed(self) -> int:
        """Elements of a window up to which sums of multiplications were faster."""
        if self.inputs == 1:
            return _MAX_SUMMED
        is_slow = self.inputs == 2 or self.is_transposed
        return _SMALL_WINDOW if is_slow else _LARGE_WINDOW

    @property
    def _has_fast_bands_of_gradient(self) -> bool:
        """The same for a gradient with respect to a kernel.

        The input features are images there, and the batch is the input features.
        """
        features = max(self.batch, self.outputs)
        largest = features * math.sqrt(self.positions) * self.taps * self.inputs
        if largest > _MAX_OF_BANDS or self.outputs > _MAX_OUTPUTS:
            return False
        if self.is_float64 and features == 1:
            return False
        if not self.has_padding:
            return self.inputs == 1 and self.outputs <= _MAX_UNPADDED_OUTPUTS
        if self.inputs == 1:
            return True
        if self.inputs <= _VERY_FEW_IMAGES:
            return self.batch > 1 or self.outputs <= _FEW_FEATURES
        return self.inputs <= _FEW_IMAGES and self.outputs <= 2 * self.batch

    def _dilated_forms(self) -> tuple[str, ...]:
        """For gradients with respect to images, and transposed convolutions."""
        if self.taps == 1:
            return ("blocks",) if self.is_transposed or self.is_float64 else ()
        if len(self.image) == 3:  # for which jaxlib has a slow loop
            return ("taps", "phases") if self.outputs == 1 else ("blocks", "phases")
        of_one: tuple[str, ...] = ()
        rows = self.batch * self.positions
        if self.inputs == self.outputs == 1 and rows >= _MANY_RESULTS:
            # Other sample rates, larger images: jaxlib has a slow loop for most.
            of_one = ("taps_apart",)
            if self.is_float64 and len(self.image) == 2:
                of_one = ("phases", *of_one)
            elif len(self.image) == 1 or self.has_strides:
                of_one = (*of_one, "phases")
        if self.taps >= _LARGE_PATCH:
            return ("blocks", *of_one)
        if of_one:
            return of_one
        pixels = math.prod(self.image)
        if pixels < self.taps and self.products >= _MANY_PRODUCTS:
            # XLA swaps image and kernel.
            is_few = self.is_transposed and self.batch * pixels <= _FEW_PIXELS
            return ("taps", "phases") if is_few else ("phases",)
        if not self.is_float64:
            return ()
        return ("patches", "phases") if len(self.image) == 1 else ("phases",)

    def _float64_forms(self) -> tuple[str, ...]:
        """For windows of 64-bit floats, for most of which jaxlib has a slow loop."""
        if len(self.image) == 1:
            return ("patches", "taps")
        if len(self.image) == 3:
            return ("terms", "taps") if self.outputs <= _MAX_OF_FEW else ("taps",)
        if self.outputs >= _MANY_OUTPUTS:
            return ()
        return ("terms", "taps")

    def _volume_forms(self) -> tuple[str, ...]:
        """For windows of three dimensions, for which jaxlib has a slow loop."""
        if self.outputs <= _MAX_OF_FEW:
            return ("terms", "taps")
        forms: list[str] = []
        if self.inputs <= _FEW_INPUTS and not self.is_transposed:
            forms.append("terms")
        elements = self.batch * self.positions * self.taps * self.inputs
        if elements <= _MAX_OF_VOLUME and self.inputs <= _SOME_FEATURES:
            forms.append("patches")
        if self.inputs >= _SOME_FEATURES:
            forms.append("taps")
        return tuple(forms)

    def _kernel_gradient_forms(self) -> tuple[str, ...]:
        """For gradients with respect to kernels of three dimensions."""
        elements = self.inputs * self.taps * self.positions * self.batch
        if elements > 2 * _MAX_OF_VOLUME:
            return ()
        if elements > _MAX_OF_VOLUME or min(self.batch, self.outputs) > _SOME_FEATURES:
            return ("outputs",)
        return ("patches", "outputs")

    def _grouped_forms(self) -> tuple[str, ...]:
        if self.has_batch_groups:
            # A gradient with respect to the kernel; of a depthwise one without batch.
            is_depthwise = self.inputs == self.batch == self.outputs == 1
            others: tuple[str, ...] = ("outputs", "blocks", "patches")
            products = self.groups * self.inputs * self.taps * self.positions
            is_wide = bool(self.window) and self.window[-1] >= _WIDE_ROW
            if products >= (_SOME_OF_ROWS if is_wide else _MANY_OF_ROWS):
                others = ("rows", *others)
            is_slow = self.has_padding and not self.has_window_dilation
            largest = products * math.isqrt(self.positions) // max(self.positions, 1)
            if self.batch == self.outputs == 1 and is_slow and largest <= _MAX_OF_BANDS:
                others = (*others, "bands")
            return ("taps", *others) if is_depthwise else (*others, "taps")
        if self._is_single_gradient:
            return self._forms_of_single_gradients()
        bands: tuple[str, ...] = ()
        if len(self.image) == 2 and not self.has_strides:
            bands = ("bands",) if self._largest_of_bands <= _MAX_OF_BANDS else ()
        if self.is_larger_than_image:
            return ("outputs", "taps", *bands)
        if self.inputs == 1:
            return () if self._has_slow_sums else ("taps", *bands)
        if self.taps == 1:
            is_fast = self.batch == 1 or self.inputs <= _MAX_OF_BLOCKS
            return ("blocks",) if is_fast else ()
        if self.has_base_dilation:
            return ("phases",)
        features = self.groups * self.inputs
        patches = features * self.batch * self.positions * self.taps
        if patches < _SOME_PATCHES and self.inputs > _NARROW_GROUP:
            return ()
        if patches <= _MAX_GROUPED_PATCHES:
            return ("patches", "taps")
        is_large = patches <= _MAX_PATCHES_OF_TAPS and features >= _MANY_FEATURES
        return ("taps",) if is_large else ()

    @property
    def _has_slow_sums(self) -> bool:
        """Whether multiplications were slower than XLA's form; of one input feature."""
        if self.outputs == 1 or not self.is_feature_last or self.taps > _MAX_SUMMED:
            return False
        item = 8 if self.is_float64 else 2 if self.is_bfloat16 else 4
        kernel_bytes = self.groups * self.outputs * self.taps * item
        if self.taps >= _MANY_SUMMED and kernel_bytes >= _MAX_KERNEL_BYTES:
            return True
        is_many = self.outputs >= _FEW_FEATURES
        if self.is_bfloat16 and is_many and self.taps in _SCALAR_SUMS:
            return True
        return self.outputs**2 * self.taps >= _MAX_SUMS[math.gcd(self.outputs, 8)]

    @property
    def _is_single_gradient(self) -> bool:
        """Whether it is a gradient with respect to a kernel of each image apart.

        An image is a group there, and its features are the batch.
        """
        if self.inputs > 1 or self.outputs < _FEW_FEATURES:
            return False
        most = _MAX_KERNEL if self.has_window_dilation else self.taps - 1
        return self.positions <= most

    def _forms_of_single_gradients(self) -> tuple[str, ...]:
        """For these gradients, by features of the images and of the results."""
        if self.positions == 1:
            return ("blocks",)
        elements = self.groups * self.batch * self.positions * self.taps
        patches = ("patches",) if elements <= _MAX_OF_VOLUME else ()
        if self.batch == 1 and patches:
            return (*patches, "outputs")
        if self.outputs >= _SOME_OUTPUTS:
            return ("outputs", *patches)
        if self.batch < _FEW_FEATURES:
            return ()
        if not self.has_window_dilation:
            is_small = self._largest_of_bands <= _MAX_OF_BANDS
            return ("bands",) if is_small and len(self.image) == 2 else ()
        is_fast = self.taps >= _LARGE_IMAGE and self.positions <= _LARGE_KERNEL
        return patches if is_fast and elements <= _MAX_GROUPED_PATCHES else ()

    def is_faster_by_onednn(self) -> bool:
        """Whether oneDNN was faster than jaxlib's code and than the other forms."""
        outputs = self.groups * self.outputs
        if self.has_batch_groups or self.has_base_dilation or not self.image:
            return False
        if self.products < _MANY_PRODUCTS or outputs < _FEW_FEATURES:
            return False
        num_dims = len(self.image)
        if num_dims == 3:
            return True
        if self.taps > _MAX_TAPS:
            return False
        if self.groups > 1:
            return num_dims == 2
        if self.positions < self.taps and self.outputs > _MAX_OF_GRADIENT:
            return False
        return self.inputs > 1 and not self.forms()


def convolution_at(
    graph: HloGraph, node: int, attributes: dict[str, int]
) -> ConvolutionSizes:
    """The sizes of one convolution.

    Args:
        graph: of the module.
        node: of the convolution.
        attributes: its `CONVOLUTION_ATTRIBUTES`, `ABSENT` where it has none.
    """
    start = graph.in_offsets[node]
    left, right = graph.edge_dims[start : start + 2].tolist()
    result = graph.dims[node].tolist()
    groups = attributes["feature_group_count"] * attributes["batch_group_count"]
    spatial = [d for d in _SPATIAL if attributes[f"sizes_{d}"] != ABSENT]
    image = tuple(left[attributes[f"input_spatial_{d}"]] for d in spatial)
    kernel_input = attributes["kernel_input_feature"]
    kernel_output = attributes["kernel_output_feature"]
    return ConvolutionSizes(
        groups=groups,
        has_batch_groups=attributes["batch_group_count"] > 1,
        batch=result[attributes["output_batch"]],
        inputs=right[kernel_input],
        outputs=right[kernel_output] // groups,
        image=image,
        window=tuple(attributes[f"sizes_{d}"] for d in spatial),
        positions=math.prod(result[attributes[f"output_spatial_{d}"]] for d in spatial),
        is_transposed=kernel_output < kernel_input,
        has_base_dilation=any(
            attributes[f"base_dilations_{d}"] > 1 and size > 1
            for d, size in zip(spatial, image, strict=True)
        ),
        is_float64=dtypes()[graph.dtype[node]] == "f64",
        has_padding=any(
            attributes[f"{name}_{d}"] > 0 for name, d in _ENDS[: 2 * len(spatial)]
        ),
        has_window_dilation=any(
            attributes[f"window_dilations_{d}"] > 1 for d in spatial
        ),
        has_strides=any(attributes[f"strides_{d}"] > 1 for d in spatial),
        is_feature_last=attributes["output_feature"] == int(graph.rank[node]) - 1,
        is_bfloat16=dtypes()[graph.dtype[node]] == "bf16",
        is_kernel_feature_last=kernel_output == len(spatial) + 1,
    )
