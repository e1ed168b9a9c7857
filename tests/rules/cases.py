# SPDX-License-Identifier: Apache-2.0
"""One small module for each rule, and what the rule makes of it.

The elements of the inputs are few, so that `check_rule` tries every assignment of zeros
and ones, which proves that multilinear functions are equal. The expressions leave out
attributes; the values that the check compares depend on them.
"""

from __future__ import annotations

_MM = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
_BMM = (
    "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, "
    "rhs_contracting_dims={1}"
)
# A batch of images of 2 pixels in a row, padded; kernels of 3 pixels.
_CONV = "window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f"
_PLAIN = "window={size=1}, dim_labels=b0f_0io->b0f"

# rule: (instructions of the entry, expression of its result after the rule)
CASES = {
    # dots
    "factor-dot-left-operands": (
        f"""a = f32[1,2] parameter(0)
        b = f32[2,2] parameter(1)
        c = f32[1,2] parameter(2)
        x = f32[1,2] dot(a, b), {_MM}
        y = f32[1,2] dot(c, b), {_MM}
        ROOT r = f32[1,2] subtract(x, y)""",
        "dot(subtract(a, c), b)",
    ),
    "factor-dot-right-operands": (
        f"""a = f32[1,2,1] parameter(0)
        b = f32[1,1,2] parameter(1)
        c = f32[1,1,2] parameter(2)
        x = f32[1,2,2] dot(a, b), {_BMM}
        y = f32[1,2,2] dot(a, c), {_BMM}
        ROOT r = f32[1,2,2] add(x, y)""",
        "dot(a, add(b, c))",
    ),
    "expand-dot-left-operand": (
        f"""a = f32[1,2] parameter(0)
        b = f32[2,2] parameter(1)
        c = f32[1,2] parameter(2)
        s = f32[1,2] add(a, c)
        ROOT r = f32[1,2] dot(s, b), {_MM}""",
        "add(dot(a, b), dot(c, b))",
    ),
    "expand-dot-right-operand": (
        f"""a = f32[1,2] parameter(0)
        b = f32[2,2] parameter(1)
        c = f32[2,2] parameter(2)
        s = f32[2,2] subtract(b, c)
        ROOT r = f32[1,2] dot(a, s), {_MM}""",
        "subtract(dot(a, b), dot(a, c))",
    ),
    "merge-dot-sum": (
        f"""a = f32[1,2] parameter(0)
        b = f32[2,1] parameter(1)
        c = f32[1,3] parameter(2)
        d = f32[3,1] parameter(3)
        x = f32[1,1] dot(a, b), {_MM}
        y = f32[1,1] dot(c, d), {_MM}
        ROOT r = f32[1,1] add(x, y)""",
        "dot(concatenate(a, c), concatenate(b, d))",
    ),
    "split-dot-sum": (
        f"""a = f32[1,2] parameter(0)
        b = f32[2,1] parameter(1)
        c = f32[1,3] parameter(2)
        d = f32[3,1] parameter(3)
        x = f32[1,5] concatenate(a, c), dimensions={{1}}
        y = f32[5,1] concatenate(b, d), dimensions={{0}}
        ROOT r = f32[1,1] dot(x, y), {_MM}""",
        "add(dot(a, b), dot(c, d))",
    ),
    "bias-through-dot": (
        f"""x = f32[2,2] parameter(0)
        v = f32[2] parameter(1)
        w = f32[2,2] parameter(2)
        t = f32[2,2] broadcast(v), dimensions={{1}}
        s = f32[2,2] add(x, t)
        ROOT r = f32[2,2] dot(s, w), {_MM}""",
        "add(dot(x, w), broadcast(dot(v, w)))",
    ),
    "scalar-out-of-dot-left": (
        f"""a = f32[2,2] parameter(0)
        b = f32[2,1] parameter(1)
        s = f32[] parameter(2)
        t = f32[2,2] broadcast(s), dimensions={{}}
        u = f32[2,2] multiply(a, t)
        ROOT r = f32[2,1] dot(u, b), {_MM}""",
        "multiply(dot(a, b), broadcast(s))",
    ),
    "scalar-out-of-dot-right": (
        f"""a = f32[2,2] parameter(0)
        b = f32[2,1] parameter(1)
        s = f32[] parameter(2)
        t = f32[2,1] broadcast(s), dimensions={{}}
        u = f32[2,1] multiply(t, b)
        ROOT r = f32[2,1] dot(a, u), {_MM}""",
        "multiply(dot(a, b), broadcast(s))",
    ),
    "scalar-into-dot-left": (
        f"""a = f32[2,2] parameter(0)
        b = f32[2,1] parameter(1)
        s = f32[] parameter(2)
        x = f32[2,1] dot(a, b), {_MM}
        t = f32[2,1] broadcast(s), dimensions={{}}
        ROOT r = f32[2,1] multiply(x, t)""",
        "dot(multiply(a, broadcast(s)), b)",
    ),
    "scalar-into-dot-right": (
        f"""a = f32[2,2] parameter(0)
        b = f32[2,1] parameter(1)
        s = f32[] parameter(2)
        x = f32[2,1] dot(a, b), {_MM}
        t = f32[2,1] broadcast(s), dimensions={{}}
        ROOT r = f32[2,1] multiply(x, t)""",
        "dot(a, multiply(b, broadcast(s)))",
    ),
    "scale-rows-out-of-dot": (
        f"""a = f32[2,2] parameter(0)
        b = f32[2,1] parameter(1)
        s = f32[2] parameter(2)
        t = f32[2,2] broadcast(s), dimensions={{0}}
        u = f32[2,2] multiply(a, t)
        ROOT r = f32[2,1] dot(u, b), {_MM}""",
        "multiply(dot(a, b), broadcast(s))",
    ),
    "scale-columns-out-of-dot": (
        f"""a = f32[1,2] parameter(0)
        b = f32[2,2] parameter(1)
        s = f32[2] parameter(2)
        t = f32[2,2] broadcast(s), dimensions={{1}}
        u = f32[2,2] multiply(b, t)
        ROOT r = f32[1,2] dot(a, u), {_MM}""",
        "multiply(dot(a, b), broadcast(s))",
    ),
    "scale-rows-into-dot": (
        f"""a = f32[2,2] parameter(0)
        b = f32[2,1] parameter(1)
        s = f32[2] parameter(2)
        x = f32[2,1] dot(a, b), {_MM}
        t = f32[2,1] broadcast(s), dimensions={{0}}
        ROOT r = f32[2,1] multiply(x, t)""",
        "dot(multiply(a, broadcast(s)), b)",
    ),
    "scale-columns-into-dot": (
        f"""a = f32[1,2] parameter(0)
        b = f32[2,2] parameter(1)
        s = f32[2] parameter(2)
        x = f32[1,2] dot(a, b), {_MM}
        t = f32[1,2] broadcast(s), dimensions={{1}}
        ROOT r = f32[1,2] multiply(x, t)""",
        "dot(a, multiply(b, broadcast(s)))",
    ),
    "scale-across-dot": (
        f"""a = f32[1,2] parameter(0)
        b = f32[2,2] parameter(1)
        s = f32[2] parameter(2)
        t = f32[1,2] broadcast(s), dimensions={{1}}
        u = f32[1,2] multiply(a, t)
        ROOT r = f32[1,2] dot(u, b), {_MM}""",
        "dot(a, multiply(b, broadcast(s)))",
    ),
    "scale-across-dot-back": (
        f"""a = f32[1,2] parameter(0)
        b = f32[2,2] parameter(1)
        s = f32[2] parameter(2)
        t = f32[2,2] broadcast(s), dimensions={{0}}
        u = f32[2,2] multiply(b, t)
        ROOT r = f32[1,2] dot(a, u), {_MM}""",
        "dot(multiply(a, broadcast(s)), b)",
    ),
    "scale-of-biased": (
        """x = f32[2,2] parameter(0)
        v = f32[2] parameter(1)
        s = f32[2] parameter(2)
        t = f32[2,2] broadcast(v), dimensions={1}
        u = f32[2,2] subtract(x, t)
        w = f32[2,2] broadcast(s), dimensions={1}
        ROOT r = f32[2,2] multiply(u, w)""",
        "subtract(multiply(x, broadcast(s)), broadcast(multiply(v, s)))",
    ),
    "merge-biases": (
        """x = f32[2,2] parameter(0)
        u = f32[2] parameter(1)
        v = f32[2] parameter(2)
        t = f32[2,2] broadcast(u), dimensions={1}
        s = f32[2,2] subtract(x, t)
        w = f32[2,2] broadcast(v), dimensions={1}
        ROOT r = f32[2,2] add(s, w)""",
        "add(x, broadcast(subtract(v, u)))",
    ),
    # convolutions
    "factor-convolution-inputs": (
        f"""x = f32[1,2,2] parameter(0)
        y = f32[1,2,2] parameter(1)
        w = f32[1,2,1] parameter(2)
        p = f32[1,2,1] convolution(x, w), {_PLAIN}
        q = f32[1,2,1] convolution(y, w), {_PLAIN}
        ROOT r = f32[1,2,1] add(p, q)""",
        "convolution(add(x, y), w)",
    ),
    "expand-convolution-input": (
        f"""x = f32[1,2,1] parameter(0)
        y = f32[1,2,1] parameter(1)
        w = f32[3,1,1] parameter(2)
        s = f32[1,2,1] subtract(x, y)
        ROOT r = f32[1,2,1] convolution(s, w), {_CONV}""",
        "subtract(convolution(x, w), convolution(y, w))",
    ),
    "factor-convolution-kernels": (
        f"""x = f32[1,2,1] parameter(0)
        w = f32[3,1,1] parameter(1)
        v = f32[3,1,1] parameter(2)
        p = f32[1,2,1] convolution(x, w), {_CONV}
        q = f32[1,2,1] convolution(x, v), {_CONV}
        ROOT r = f32[1,2,1] subtract(p, q)""",
        "convolution(x, subtract(w, v))",
    ),
    "expand-convolution-kernel": (
        f"""x = f32[1,2,1] parameter(0)
        w = f32[3,1,1] parameter(1)
        v = f32[3,1,1] parameter(2)
        s = f32[3,1,1] add(w, v)
        ROOT r = f32[1,2,1] convolution(x, s), {_CONV}""",
        "add(convolution(x, w), convolution(x, v))",
    ),
    "merge-convolution-sum": (
        f"""x = f32[1,2,1] parameter(0)
        w = f32[1,1,1] parameter(1)
        y = f32[1,2,2] parameter(2)
        v = f32[1,2,1] parameter(3)
        p = f32[1,2,1] convolution(x, w), {_PLAIN}
        q = f32[1,2,1] convolution(y, v), {_PLAIN}
        ROOT r = f32[1,2,1] add(p, q)""",
        "convolution(concatenate(x, y), concatenate(w, v))",
    ),
    "split-convolution-sum": (
        f"""x = f32[1,2,1] parameter(0)
        w = f32[3,1,1] parameter(1)
        y = f32[1,2,1] parameter(2)
        v = f32[3,1,1] parameter(3)
        xy = f32[1,2,2] concatenate(x, y), dimensions={{2}}
        wv = f32[3,2,1] concatenate(w, v), dimensions={{1}}
        ROOT r = f32[1,2,1] convolution(xy, wv), {_CONV}""",
        "add(convolution(x, w), convolution(y, v))",
    ),
    "scale-into-kernel": (
        f"""x = f32[1,2,1] parameter(0)
        w = f32[3,1,2] parameter(1)
        s = f32[2] parameter(2)
        p = f32[1,2,2] convolution(x, w), {_CONV}
        t = f32[1,2,2] broadcast(s), dimensions={{2}}
        ROOT r = f32[1,2,2] multiply(p, t)""",
        "convolution(x, multiply(w, broadcast(s)))",
    ),
    "batch-norm-into-kernel": (
        """x = f32[1,2,1] parameter(0)
        w = f32[1,1,2] parameter(1)
        m = f32[2] parameter(2)
        s = f32[2] parameter(3)
        p = f32[1,2,2] convolution(x, w), window={size=1}, dim_labels=b0f_0io->b0f
        t = f32[1,2,2] broadcast(m), dimensions={2}
        c = f32[1,2,2] subtract(p, t)
        u = f32[1,2,2] broadcast(s), dimensions={2}
        ROOT r = f32[1,2,2] multiply(c, u)""",
        "subtract(convolution(x, multiply(w, broadcast(s))), broadcast(multiply(m, s)))",
    ),
    "scale-out-of-kernel": (
        f"""x = f32[1,2,1] parameter(0)
        w = f32[3,1,2] parameter(1)
        s = f32[2] parameter(2)
        t = f32[3,1,2] broadcast(s), dimensions={{2}}
        v = f32[3,1,2] multiply(w, t)
        ROOT r = f32[1,2,2] convolution(x, v), {_CONV}""",
        "multiply(convolution(x, w), broadcast(s))",
    ),
    "scale-of-input-into-kernel": (
        f"""x = f32[1,2,2] parameter(0)
        w = f32[3,2,1] parameter(1)
        s = f32[2] parameter(2)
        t = f32[1,2,2] broadcast(s), dimensions={{2}}
        y = f32[1,2,2] multiply(x, t)
        ROOT r = f32[1,2,1] convolution(y, w), {_CONV}""",
        "convolution(x, multiply(w, broadcast(s)))",
    ),
    "scale-of-kernel-into-input": (
        f"""x = f32[1,2,2] parameter(0)
        w = f32[3,2,1] parameter(1)
        s = f32[2] parameter(2)
        t = f32[3,2,1] broadcast(s), dimensions={{1}}
        v = f32[3,2,1] multiply(w, t)
        ROOT r = f32[1,2,1] convolution(x, v), {_CONV}""",
        "convolution(multiply(x, broadcast(s)), w)",
    ),
    "concat-of-convolutions-kernel": (
        f"""x = f32[1,2,1] parameter(0)
        w = f32[3,1,1] parameter(1)
        v = f32[3,1,2] parameter(2)
        p = f32[1,2,1] convolution(x, w), {_CONV}
        q = f32[1,2,2] convolution(x, v), {_CONV}
        ROOT r = f32[1,2,3] concatenate(p, q), dimensions={{2}}""",
        "convolution(x, concatenate(w, v))",
    ),
    "convolution-of-concat-kernel": (
        f"""x = f32[1,2,1] parameter(0)
        w = f32[3,1,1] parameter(1)
        v = f32[3,1,2] parameter(2)
        wv = f32[3,1,3] concatenate(w, v), dimensions={{2}}
        ROOT r = f32[1,2,3] convolution(x, wv), {_CONV}""",
        "concatenate(convolution(x, w), convolution(x, v))",
    ),
    "concat-of-convolutions-input": (
        f"""x = f32[1,2,1] parameter(0)
        y = f32[2,2,1] parameter(1)
        w = f32[3,1,1] parameter(2)
        p = f32[1,2,1] convolution(x, w), {_CONV}
        q = f32[2,2,1] convolution(y, w), {_CONV}
        ROOT r = f32[3,2,1] concatenate(p, q), dimensions={{0}}""",
        "convolution(concatenate(x, y), w)",
    ),
    "convolution-of-concat-input": (
        f"""x = f32[1,2,1] parameter(0)
        y = f32[2,2,1] parameter(1)
        w = f32[3,1,1] parameter(2)
        xy = f32[3,2,1] concatenate(x, y), dimensions={{0}}
        ROOT r = f32[3,2,1] convolution(xy, w), {_CONV}""",
        "concatenate(convolution(x, w), convolution(y, w))",
    ),
    "enlarge-kernel": (
        """x = f32[1,3,2,1] parameter(0)
        w = f32[1,1,1,2] parameter(1)
        ROOT r = f32[1,2,1,2] convolution(x, w), window={size=1x1 stride=2x2}, dim_labels=b01f_01io->b01f""",
        "convolution(x, pad(w, constant()))",
    ),
    "enlarge-and-merge": (
        """x = f32[1,2,2,1] parameter(0)
        w = f32[1,1,1,1] parameter(1)
        v = f32[3,3,1,1] parameter(2)
        p = f32[1,2,2,1] convolution(x, w), window={size=1x1}, dim_labels=b01f_01io->b01f
        q = f32[1,2,2,1] convolution(x, v), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
        ROOT r = (f32[1,2,2,1], f32[1,2,2,1]) tuple(p, q)""",
        "tuple(slice(convolution(x, concatenate(pad(w, constant()), v))), "
        "slice(convolution(x, concatenate(pad(w, constant()), v))))",
    ),
    "merge-groups": (
        """x = f32[1,1,4] parameter(0)
        w = f32[1,1,8] parameter(1)
        ROOT r = f32[1,1,8] convolution(x, w), window={size=1}, dim_labels=b0f_0io->b0f, feature_group_count=4""",
        "convolution(x, select(compare(remainder(divide(iota(), broadcast(constant())), "
        "broadcast(constant())), divide(iota(), broadcast(constant()))), "
        "concatenate(w, w), broadcast(constant())))",
    ),
    # concatenations
    "concat-of-unary": (
        """a = f32[2,1] parameter(0)
        b = f32[2,2] parameter(1)
        p = f32[2,1] negate(a)
        q = f32[2,2] negate(b)
        ROOT r = f32[2,3] concatenate(p, q), dimensions={1}""",
        "negate(concatenate(a, b))",
    ),
    "unary-of-concat": (
        """a = f32[2,1] parameter(0)
        b = f32[2,2] parameter(1)
        c = f32[2,3] concatenate(a, b), dimensions={1}
        ROOT r = f32[2,3] tanh(c)""",
        "concatenate(tanh(a), tanh(b))",
    ),
    "concat-of-binary": (
        """a = f32[1,2] parameter(0)
        b = f32[2,2] parameter(1)
        c = f32[1,2] parameter(2)
        d = f32[2,2] parameter(3)
        p = f32[1,2] subtract(a, c)
        q = f32[2,2] subtract(b, d)
        ROOT r = f32[3,2] concatenate(p, q), dimensions={0}""",
        "subtract(concatenate(a, b), concatenate(c, d))",
    ),
    "binary-of-concat": (
        """a = f32[1,2] parameter(0)
        b = f32[2,2] parameter(1)
        c = f32[1,2] parameter(2)
        d = f32[2,2] parameter(3)
        p = f32[3,2] concatenate(a, b), dimensions={0}
        q = f32[3,2] concatenate(c, d), dimensions={0}
        ROOT r = f32[3,2] maximum(p, q)""",
        "concatenate(maximum(a, c), maximum(b, d))",
    ),
    "concat-of-scalar-binary": (
        """a = f32[2] parameter(0)
        b = f32[1] parameter(1)
        s = f32[] parameter(2)
        t = f32[2] broadcast(s), dimensions={}
        u = f32[1] broadcast(s), dimensions={}
        p = f32[2] maximum(a, t)
        q = f32[1] maximum(b, u)
        ROOT r = f32[3] concatenate(p, q), dimensions={0}""",
        "maximum(concatenate(a, b), broadcast(s))",
    ),
    "scalar-binary-of-concat": (
        """a = f32[2] parameter(0)
        b = f32[1] parameter(1)
        s = f32[] parameter(2)
        c = f32[3] concatenate(a, b), dimensions={0}
        t = f32[3] broadcast(s), dimensions={}
        ROOT r = f32[3] subtract(c, t)""",
        "concatenate(subtract(a, broadcast(s)), subtract(b, broadcast(s)))",
    ),
    "flatten-concat-left": (
        """a = f32[1] parameter(0)
        b = f32[2] parameter(1)
        c = f32[3] parameter(2)
        p = f32[3] concatenate(a, b), dimensions={0}
        ROOT r = f32[6] concatenate(p, c), dimensions={0}""",
        "concatenate(a, b, c)",
    ),
    "flatten-concat-right": (
        """a = f32[1] parameter(0)
        b = f32[2] parameter(1)
        c = f32[3] parameter(2)
        p = f32[5] concatenate(b, c), dimensions={0}
        ROOT r = f32[6] concatenate(a, p), dimensions={0}""",
        "concatenate(a, b, c)",
    ),
    "nest-concat-left": (
        """a = f32[1] parameter(0)
        b = f32[2] parameter(1)
        c = f32[3] parameter(2)
        ROOT r = f32[6] concatenate(a, b, c), dimensions={0}""",
        "concatenate(concatenate(a, b), c)",
    ),
    "nest-concat-right": (
        """a = f32[1] parameter(0)
        b = f32[2] parameter(1)
        c = f32[3] parameter(2)
        ROOT r = f32[6] concatenate(a, b, c), dimensions={0}""",
        "concatenate(a, concatenate(b, c))",
    ),
    "flatten-concat-pairs": (
        """a = f32[1] parameter(0)
        b = f32[2] parameter(1)
        c = f32[1] parameter(2)
        d = f32[1] parameter(3)
        p = f32[3] concatenate(a, b), dimensions={0}
        q = f32[2] concatenate(c, d), dimensions={0}
        ROOT r = f32[5] concatenate(p, q), dimensions={0}""",
        "concatenate(a, b, c, d)",
    ),
    "nest-concat-pairs": (
        """a = f32[1] parameter(0)
        b = f32[2] parameter(1)
        c = f32[1] parameter(2)
        d = f32[1] parameter(3)
        ROOT r = f32[5] concatenate(a, b, c, d), dimensions={0}""",
        "concatenate(concatenate(a, b), concatenate(c, d))",
    ),
    "exchange-concats": (
        """a = f32[1,1] parameter(0)
        b = f32[1,2] parameter(1)
        c = f32[2,1] parameter(2)
        d = f32[2,2] parameter(3)
        p = f32[1,3] concatenate(a, b), dimensions={1}
        q = f32[2,3] concatenate(c, d), dimensions={1}
        ROOT r = f32[3,3] concatenate(p, q), dimensions={0}""",
        "concatenate(concatenate(a, c), concatenate(b, d))",
    ),
    "concat-of-dots-left": (
        f"""a = f32[1,2] parameter(0)
        c = f32[2,2] parameter(1)
        b = f32[2,1] parameter(2)
        p = f32[1,1] dot(a, b), {_MM}
        q = f32[2,1] dot(c, b), {_MM}
        ROOT r = f32[3,1] concatenate(p, q), dimensions={{0}}""",
        "dot(concatenate(a, c), b)",
    ),
    "concat-of-dots-right": (
        f"""a = f32[1,2,2] parameter(0)
        b = f32[1,2,1] parameter(1)
        c = f32[1,2,2] parameter(2)
        p = f32[1,2,1] dot(a, b), {_BMM}
        q = f32[1,2,2] dot(a, c), {_BMM}
        ROOT r = f32[1,2,3] concatenate(p, q), dimensions={{2}}""",
        "dot(a, concatenate(b, c))",
    ),
    "dot-of-concat-left": (
        f"""a = f32[1,2] parameter(0)
        c = f32[2,2] parameter(1)
        b = f32[2,1] parameter(2)
        p = f32[3,2] concatenate(a, c), dimensions={{0}}
        ROOT r = f32[3,1] dot(p, b), {_MM}""",
        "concatenate(dot(a, b), dot(c, b))",
    ),
    "dot-of-concat-right": (
        f"""a = f32[1,2] parameter(0)
        b = f32[2,1] parameter(1)
        c = f32[2,2] parameter(2)
        p = f32[2,3] concatenate(b, c), dimensions={{1}}
        ROOT r = f32[1,3] dot(a, p), {_MM}""",
        "concatenate(dot(a, b), dot(a, c))",
    ),
    # slices
    "slice-of-unary": (
        """a = f32[3,2] parameter(0)
        p = f32[3,2] tanh(a)
        ROOT r = f32[2,1] slice(p), slice={[0:3:2], [1:2]}""",
        "tanh(slice(a))",
    ),
    "unary-of-slice": (
        """a = f32[3,2] parameter(0)
        s = f32[2,1] slice(a), slice={[0:3:2], [1:2]}
        ROOT r = f32[2,1] negate(s)""",
        "slice(negate(a))",
    ),
    "slice-of-binary": (
        """a = f32[3] parameter(0)
        b = f32[3] parameter(1)
        p = f32[3] subtract(a, b)
        ROOT r = f32[2] slice(p), slice={[1:3]}""",
        "subtract(slice(a), slice(b))",
    ),
    "binary-of-slices": (
        """a = f32[3] parameter(0)
        b = f32[3] parameter(1)
        s = f32[2] slice(a), slice={[1:3]}
        t = f32[2] slice(b), slice={[1:3]}
        ROOT r = f32[2] maximum(s, t)""",
        "slice(maximum(a, b))",
    ),
    "slice-of-transpose": (
        """a = f32[1,2,3] parameter(0)
        t = f32[3,1,2] transpose(a), dimensions={2,0,1}
        ROOT r = f32[2,1,1] slice(t), slice={[0:3:2], [0:1], [1:2]}""",
        "transpose(slice(a))",
    ),
    "transpose-of-slice": (
        """a = f32[1,2,3] parameter(0)
        s = f32[1,1,2] slice(a), slice={[0:1], [1:2], [0:3:2]}
        ROOT r = f32[2,1,1] transpose(s), dimensions={2,0,1}""",
        "slice(transpose(a))",
    ),
    "slice-of-concat-left": (
        """a = f32[2,2] parameter(0)
        b = f32[2,1] parameter(1)
        p = f32[2,3] concatenate(a, b), dimensions={1}
        ROOT r = f32[1,1] slice(p), slice={[1:2], [1:2]}""",
        "slice(a)",
    ),
    "slice-of-concat-right": (
        """a = f32[2] parameter(0)
        b = f32[4] parameter(1)
        p = f32[6] concatenate(a, b), dimensions={0}
        ROOT r = f32[2] slice(p), slice={[3:6:2]}""",
        "slice(b)",
    ),
    "join-slices": (
        """a = f32[2,4] parameter(0)
        s = f32[1,2] slice(a), slice={[1:2], [0:2]}
        t = f32[1,1] slice(a), slice={[1:2], [2:3]}
        ROOT r = f32[1,3] concatenate(s, t), dimensions={1}""",
        "slice(a)",
    ),
    "slice-of-dot-left": (
        f"""a = f32[1,3,2] parameter(0)
        b = f32[1,2,2] parameter(1)
        p = f32[1,3,2] dot(a, b), {_BMM}
        ROOT r = f32[1,2,2] slice(p), slice={{[0:1], [0:3:2], [0:2]}}""",
        "dot(slice(a), b)",
    ),
    "dot-of-slice-left": (
        f"""a = f32[3,2] parameter(0)
        b = f32[2,1] parameter(1)
        s = f32[2,2] slice(a), slice={{[1:3], [0:2]}}
        ROOT r = f32[2,1] dot(s, b), {_MM}""",
        "slice(dot(a, b))",
    ),
    "slice-of-dot-right": (
        f"""a = f32[1,2] parameter(0)
        b = f32[2,3] parameter(1)
        p = f32[1,3] dot(a, b), {_MM}
        ROOT r = f32[1,2] slice(p), slice={{[0:1], [1:3]}}""",
        "dot(a, slice(b))",
    ),
    "dot-of-slice-right": (
        f"""a = f32[1,1,2] parameter(0)
        b = f32[1,2,3] parameter(1)
        s = f32[1,2,2] slice(b), slice={{[0:1], [0:2], [0:3:2]}}
        ROOT r = f32[1,1,2] dot(a, s), {_BMM}""",
        "slice(dot(a, b))",
    ),
    "slice-of-convolution-batch": (
        f"""x = f32[2,2,1] parameter(0)
        w = f32[3,1,2] parameter(1)
        p = f32[2,2,2] convolution(x, w), {_CONV}
        ROOT r = f32[1,2,2] slice(p), slice={{[1:2], [0:2], [0:2]}}""",
        "convolution(slice(x), w)",
    ),
    "convolution-of-slice-batch": (
        f"""x = f32[2,2,1] parameter(0)
        w = f32[3,1,2] parameter(1)
        s = f32[1,2,1] slice(x), slice={{[1:2], [0:2], [0:1]}}
        ROOT r = f32[1,2,2] convolution(s, w), {_CONV}""",
        "slice(convolution(x, w))",
    ),
    "slice-of-convolution-features": (
        f"""x = f32[1,2,1] parameter(0)
        w = f32[3,1,3] parameter(1)
        p = f32[1,2,3] convolution(x, w), {_CONV}
        ROOT r = f32[1,2,2] slice(p), slice={{[0:1], [0:2], [0:3:2]}}""",
        "convolution(x, slice(w))",
    ),
    "convolution-of-slice-features": (
        f"""x = f32[1,2,1] parameter(0)
        w = f32[3,1,3] parameter(1)
        s = f32[3,1,2] slice(w), slice={{[0:3], [0:1], [1:3]}}
        ROOT r = f32[1,2,2] convolution(x, s), {_CONV}""",
        "slice(convolution(x, w))",
    ),
    # transposes
    "transpose-of-unary": (
        """a = f32[2,3] parameter(0)
        p = f32[2,3] tanh(a)
        ROOT r = f32[3,2] transpose(p), dimensions={1,0}""",
        "tanh(transpose(a))",
    ),
    "unary-of-transpose": (
        """a = f32[2,3] parameter(0)
        p = f32[3,2] transpose(a), dimensions={1,0}
        ROOT r = f32[3,2] negate(p)""",
        "transpose(negate(a))",
    ),
    "transpose-of-binary": (
        """a = f32[1,2,3] parameter(0)
        b = f32[1,2,3] parameter(1)
        p = f32[1,2,3] divide(a, b)
        ROOT r = f32[3,1,2] transpose(p), dimensions={2,0,1}""",
        "divide(transpose(a), transpose(b))",
    ),
    "binary-of-transposes": (
        """a = f32[1,2,3] parameter(0)
        b = f32[1,2,3] parameter(1)
        p = f32[3,1,2] transpose(a), dimensions={2,0,1}
        q = f32[3,1,2] transpose(b), dimensions={2,0,1}
        ROOT r = f32[3,1,2] subtract(p, q)""",
        "transpose(subtract(a, b))",
    ),
    "transpose-of-concat": (
        """a = f32[1,2,3] parameter(0)
        b = f32[1,1,3] parameter(1)
        p = f32[1,3,3] concatenate(a, b), dimensions={1}
        ROOT r = f32[3,1,3] transpose(p), dimensions={2,0,1}""",
        "concatenate(transpose(a), transpose(b))",
    ),
    "concat-of-transposes": (
        """a = f32[1,2,3] parameter(0)
        b = f32[1,1,3] parameter(1)
        p = f32[3,1,2] transpose(a), dimensions={2,0,1}
        q = f32[3,1,1] transpose(b), dimensions={2,0,1}
        ROOT r = f32[3,1,3] concatenate(p, q), dimensions={2}""",
        "transpose(concatenate(a, b))",
    ),
    "transpose-of-dot": (
        f"""a = f32[2,2] parameter(0)
        b = f32[2,3] parameter(1)
        p = f32[2,3] dot(a, b), {_MM}
        ROOT r = f32[3,2] transpose(p), dimensions={{1,0}}""",
        "dot(b, a)",
    ),
    "exchange-dot": (
        f"""a = f32[2,2] parameter(0)
        b = f32[2,3] parameter(1)
        ROOT r = f32[2,3] dot(a, b), {_MM}""",
        "transpose(dot(b, a))",
    ),
    "dot-of-transpose-left": (
        f"""a = f32[3,2] parameter(0)
        b = f32[3,1] parameter(1)
        p = f32[2,3] transpose(a), dimensions={{1,0}}
        ROOT r = f32[2,1] dot(p, b), {_MM}""",
        "dot(a, b)",
    ),
    "dot-of-transpose-right": (
        f"""a = f32[1,2] parameter(0)
        b = f32[3,2] parameter(1)
        p = f32[2,3] transpose(b), dimensions={{1,0}}
        ROOT r = f32[1,3] dot(a, p), {_MM}""",
        "dot(a, b)",
    ),
    "transpose-dot-left": (
        """a = f32[2,3] parameter(0)
        b = f32[2,1] parameter(1)
        ROOT r = f32[3,1] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}""",
        "dot(transpose(a), b)",
    ),
    "transpose-dot-right": (
        """a = f32[1,2] parameter(0)
        b = f32[3,2] parameter(1)
        ROOT r = f32[1,3] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}""",
        "dot(a, transpose(b))",
    ),
}


def module_of(instructions: str) -> str:
    """HLO text of a module with these instructions."""
    return f"HloModule case\n\nENTRY main {{\n{instructions}\n}}\n"
