# SPDX-License-Identifier: Apache-2.0
"""The rules of `hloenv.rules.sets` that terms can express, in egglog's language.

Conditions on shapes compare texts, which equal shapes share. What a rule makes gets the
shape of a value that has the same one; where there is none, as for concatenations, it
has no shape in the e-graph, and rules that need it do not apply to it there.
"""

from __future__ import annotations

from collections.abc import Iterator

_MATRIX = '"{1}" "{0}" ""'

_SUMS = """
(rule ((= r (Binary f (Dot a b l q t) (Dot c b l q t)))
       (= s (shape a)) (= s (shape c)) OPS)
      ((let x (Binary f a c)) (set (shape x) s) (union r (Dot x b l q t))))
(rule ((= r (Binary f (Dot a b l q t) (Dot a c l q t)))
       (= s (shape b)) (= s (shape c)) OPS)
      ((let x (Binary f b c)) (set (shape x) s) (union r (Dot a x l q t))))
(rule ((= r (Dot (Binary f a c) b l q t)) (= s (shape r)) OPS)
      ((let x (Dot a b l q t)) (let y (Dot c b l q t))
       (set (shape x) s) (set (shape y) s) (union r (Binary f x y))))
(rule ((= r (Dot a (Binary f b c) l q t)) (= s (shape r)) OPS)
      ((let x (Dot a b l q t)) (let y (Dot a c l q t))
       (set (shape x) s) (set (shape y) s) (union r (Binary f x y))))
(rule ((= r (Binary f (Conv a b t) (Conv c b t)))
       (= s (shape a)) (= s (shape c)) OPS)
      ((let x (Binary f a c)) (set (shape x) s) (union r (Conv x b t))))
(rule ((= r (Binary f (Conv a b t) (Conv a c t)))
       (= s (shape b)) (= s (shape c)) OPS)
      ((let x (Binary f b c)) (set (shape x) s) (union r (Conv a x t))))
(rule ((= r (Conv (Binary f a c) b t)) (= s (shape r)) OPS)
      ((let x (Conv a b t)) (let y (Conv c b t))
       (set (shape x) s) (set (shape y) s) (union r (Binary f x y))))
(rule ((= r (Conv a (Binary f b c) t)) (= s (shape r)) OPS)
      ((let x (Conv a b t)) (let y (Conv a c t))
       (set (shape x) s) (set (shape y) s) (union r (Binary f x y))))
"""

_REST = f"""
(rule ((= r (Binary "add" (Dot a b {_MATRIX}) (Dot c d {_MATRIX})))
       (= s (shape a)) (= s (shape c)) (= u (shape b)) (= u (shape d)))
      ((union r (Dot (Concat a c "{{1}}") (Concat b d "{{0}}") {_MATRIX}))))
(rule ((= r (Dot (Concat a c "{{1}}") (Concat b d "{{0}}") {_MATRIX}))
       (= s (shape a)) (= s (shape c)) (= u (shape b)) (= u (shape d)) (= w (shape r)))
      ((let x (Dot a b {_MATRIX})) (let y (Dot c d {_MATRIX}))
       (set (shape x) w) (set (shape y) w) (union r (Binary "add" x y))))
(rewrite (Concat (Unary f a) (Unary f b) d) (Unary f (Concat a b d)))
(rewrite (Unary f (Concat a b d)) (Concat (Unary f a) (Unary f b) d))
(rewrite (Concat (Binary f a c) (Binary f b e) d)
         (Binary f (Concat a b d) (Concat c e d)))
(rule ((= r (Binary f (Concat a b d) (Concat c e d)))
       (= s (shape a)) (= s (shape c)) (= u (shape b)) (= u (shape e)))
      ((let x (Binary f a c)) (let y (Binary f b e))
       (set (shape x) s) (set (shape y) u) (union r (Concat x y d))))
(rewrite (Concat (Concat a b d) c d) (Concat a (Concat b c d) d))
(rewrite (Concat a (Concat b c d) d) (Concat (Concat a b d) c d))
(rewrite (Transpose (Unary f a) p) (Unary f (Transpose a p)))
(rewrite (Unary f (Transpose a p)) (Transpose (Unary f a) p))
(rewrite (Transpose (Binary f a b) p) (Binary f (Transpose a p) (Transpose b p)))
(rewrite (Binary f (Transpose a p) (Transpose b p)) (Transpose (Binary f a b) p))
(rule ((= r (Concat (Dot a b {_MATRIX}) (Dot c b {_MATRIX}) "{{0}}"))
       (matrix a) (matrix b) (matrix c))
      ((union r (Dot (Concat a c "{{0}}") b {_MATRIX}))))
(rule ((= r (Concat (Dot a b {_MATRIX}) (Dot a c {_MATRIX}) "{{1}}"))
       (matrix a) (matrix b) (matrix c))
      ((union r (Dot a (Concat b c "{{1}}") {_MATRIX}))))
(rule ((= r (Transpose (Dot a b {_MATRIX}) "{{1,0}}")) (matrix a) (matrix b))
      ((union r (Dot b a "{{0}}" "{{1}}" ""))))
(rule ((= r (Dot (Transpose a "{{1,0}}") b "{{1}}" q "")) (matrix a) (matrix b))
      ((union r (Dot a b "{{0}}" q ""))))
(rule ((= r (Dot a (Transpose b "{{1,0}}") l "{{0}}" "")) (matrix a) (matrix b))
      ((union r (Dot a b l "{{1}}" ""))))
(rule ((= r (Dot (Binary "multiply" a (Broadcast v "{{}}" h)) b l q t))
       (= s (shape r)))
      ((let x (Dot a b l q t)) (let y (Broadcast v "{{}}" s))
       (set (shape x) s) (set (shape y) s) (union r (Binary "multiply" x y))))
(rule ((= r (Dot a (Binary "multiply" b (Broadcast v "{{}}" h)) l q t))
       (= s (shape r)))
      ((let x (Dot a b l q t)) (let y (Broadcast v "{{}}" s))
       (set (shape x) s) (set (shape y) s) (union r (Binary "multiply" x y))))
(rule ((= r (Binary "multiply" (Dot a b l q t) (Broadcast v "{{}}" h)))
       (= s (shape a)))
      ((let y (Broadcast v "{{}}" s)) (let x (Binary "multiply" a y))
       (set (shape x) s) (set (shape y) s) (union r (Dot x b l q t))))
"""

_COMMUTATIVE = """
(rewrite (Binary "add" a b) (Binary "add" b a))
(rewrite (Binary "multiply" a b) (Binary "multiply" b a))
"""


def _split(program: str) -> Iterator[str]:
    """The expressions of a program without texts that have parentheses."""
    depth = start = 0
    for place, letter in enumerate(program):
        if letter == "(":
            start = place if depth == 0 else start
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth == 0:
                yield program[start : place + 1]


def _all() -> tuple[str, ...]:
    sums = [_SUMS.replace("OPS", f'(= f "{op}")') for op in ("add", "subtract")]
    return tuple(_split("".join([*sums, _REST, _COMMUTATIVE])))


# Each one is a command of egglog.
RULES = _all()
