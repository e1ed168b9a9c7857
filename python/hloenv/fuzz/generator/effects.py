# SPDX-License-Identifier: Apache-2.0
"""Steps with effects: collectives on one replica, async pairs, tokens, chance."""

from __future__ import annotations

from .builder import ArrayType, Computation, Value
from .rare import RareSteps

_VECTOR = ArrayType("f32", (4,))


class EffectSteps(RareSteps):
    """Each method adds one use."""

    def _collective(self, c: Computation) -> None:
        x = self._take(c, 4)
        add = self._scalar("f32[] add(a, b)")
        groups = self.rng.choice(["{}", "{{0}}"])
        channel = ""
        if groups == "{{0}}" and self.rng.random() < 0.3:
            channel = f", channel_id={self.next_name}, use_global_device_ids=true"
        shape, text = self.rng.choice(
            [
                (
                    "f32[4]",
                    f"all-reduce({x.name}), replica_groups={groups}{channel}, "
                    f"to_apply={add}",
                ),
                (
                    "f32[4]",
                    f"all-gather({x.name}), dimensions={{0}}, replica_groups={groups}",
                ),
                (
                    "f32[4]",
                    f"reduce-scatter({x.name}), dimensions={{0}}, "
                    f"replica_groups={groups}, to_apply={add}",
                ),
                (
                    "f32[4]",
                    f"all-to-all({x.name}), dimensions={{0}}, replica_groups={{{{0}}}}",
                ),
                (
                    "f32[4]",
                    f"collective-permute({x.name}), source_target_pairs={{{{0,0}}}}",
                ),
                (
                    "f32[4]",
                    f"collective-broadcast({x.name}), replica_groups={{{{0}}}}",
                ),
            ]
        )
        self._end(c, shape, text, "collective")

    def _ids(self, c: Computation) -> None:
        opcode = self.rng.choice(["replica-id", "partition-id"])
        number = self._line(c, "id", "u32[]", f"{opcode}()")
        c.values.append(Value(number, ArrayType("u32", ()), 1))

    def _pair(self, c: Computation) -> None:
        """A start and its done, with work between."""
        x = self._take(c, 4)
        add = self._scalar("f32[] add(a, b)")
        shape, start, done = self.rng.choice(
            [
                (
                    "f32[4]",
                    f"all-reduce-start({x.name}), replica_groups={{}}, to_apply={add}",
                    "all-reduce-done",
                ),
                (
                    "(f32[4], f32[4])",
                    f"all-gather-start({x.name}), dimensions={{0}}, "
                    "replica_groups={{0}}",
                    "all-gather-done",
                ),
                (
                    "(f32[4], f32[4])",
                    f"collective-permute-start({x.name}), "
                    "source_target_pairs={{0,0}}",
                    "collective-permute-done",
                ),
                ("(f32[4], f32[4], u32[])", f"copy-start({x.name})", "copy-done"),
            ]
        )
        begun = self._line(c, "start", shape, start)
        self._take(c, 4)
        self._end(c, "f32[4]", f"{done}({begun})", "done")

    def _async(self, c: Computation) -> None:
        x = self._take(c, 4)
        name = self._name("wrapped")
        self.texts.append(
            f"{name} {{\n  a = f32[4] parameter(0)\n"
            '  ROOT r = f32[4] custom-call(a), custom_call_target="slow"\n}\n'
        )
        shape = "((f32[4]), f32[4], s32[])"
        begun = self._line(c, "start", shape, f"async-start({x.name}), calls={name}")
        if self.rng.random() < 0.5:
            begun = self._line(c, "update", shape, f"async-update({begun})")
        self._end(c, "f32[4]", f"async-done({begun})", "done")

    def _tokens(self, c: Computation) -> None:
        x = self._take(c, 4)
        token = self._line(c, "token", "token[]", "after-all()")
        if self.rng.random() < 0.6:
            fed = self._line(c, "fed", "(f32[4], token[])", f"infeed({token})")
            self._element(c, fed, 0, _VECTOR)
            token = self._line(
                c, "token", "token[]", f"get-tuple-element({fed}), index=1"
            )
        if self.rng.random() < 0.6:
            token = self._line(
                c,
                "token",
                "token[]",
                f"outfeed({x.name}, {token}), outfeed_shape=f32[4]",
            )
        text = f"add-dependency({x.name}, {token})"
        self._end(c, "f32[4]", text, "after")

    def _send_receive(self, c: Computation) -> None:
        x = self._take(c, 4)
        token = self._line(c, "token", "token[]", "after-all()")
        channel, state = self.next_name, "(f32[4], u32[], token[])"
        sent = self._line(
            c,
            "sent",
            state,
            f"send({x.name}, {token}), channel_id={channel}, is_host_transfer=true",
        )
        attributes = f"channel_id={channel}, is_host_transfer=true"
        self._line(c, "sent", "token[]", f"send-done({sent}), {attributes}")
        attributes = f"channel_id={channel + 100000}, is_host_transfer=true"
        received = self._line(c, "received", state, f"recv({token}), {attributes}")
        done = self._line(
            c,
            "received",
            "(f32[4], token[])",
            f"recv-done({received}), {attributes}",
        )
        self._element(c, done, 0, _VECTOR)

    def _chance(self, c: Computation) -> None:
        """Stateful random numbers, which no one may repeat or drop."""
        zero = self._constant(c, ArrayType("f32", ()), "0")
        one = self._constant(c, ArrayType("f32", ()), "1")
        kind = self.rng.choice(["rng_uniform", "rng_normal"])
        text = f"rng({zero.name}, {one.name}), distribution={kind}"
        self._end(c, "f32[4]", text, "rng")
        if self.rng.random() < 0.3:
            self._line(c, "lost", "f32[4]", text)
        if self.rng.random() < 0.3:
            state = "rng-get-and-update-state(), delta=1"
            self._line(c, "state", "u64[2]", state)

    def _bits(self, c: Computation) -> None:
        """Random bits that a key determines."""
        key = self._line(c, "key", "u64[2]", f"constant({{7, {self.next_name}}})")
        algorithm = self.rng.choice(["rng_three_fry", "rng_philox", "rng_default"])
        drawn = self._line(
            c,
            "drawn",
            "(u64[2], u32[5])",
            f"rng-bit-generator({key}), algorithm={algorithm}",
        )
        bits = self._element(c, drawn, 1, ArrayType("u32", (5,)))
        three = self._constant(c, bits.type, "3")
        self._emit(c, bits.type, "and", [bits, three], magnitude=3, is_exact=True)
        if self.rng.random() < 0.3:
            x = self._take(c, 5)
            text = f"stochastic-convert({x.name}, {bits.name})"
            narrow = self._line(c, "narrow", "s8[5]", text)
            c.values.append(Value(narrow, ArrayType("s8", (5,)), 2))

    def _foreign(self, c: Computation) -> None:
        """A custom call without implementation, with or without a side effect."""
        x = self._take(c, 4)
        effect = ", custom_call_has_side_effect=true" * (self.rng.random() < 0.5)
        text = f'custom-call({x.name}), custom_call_target="unknown"{effect}'
        self._end(c, "f32[4]", text, "foreign")
