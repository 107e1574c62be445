"""A policy as the small file that the plugin in slurmctld reads: a checked header and three-address code.

The file is ASCII text, one fact a line, so that an admin can read it too::

    slurm-evo-policy 1                                  kind and version
    id p-5c2f9a01b3                                     `policy_id` of the text
    text weight * (wait + 60) / sqrt(sqrt(runtime))     canonical infix, for people
    terminals 11                                        rows of the feature table
    registers 2
    const 60.0                                          operand 11, the next one 12, ...
    code add 0 11 0                                     operator, left, right, register written
    crc32 89abcdef                                      of every byte before this line

Operand k is terminal k, then a constant, then a register (see `machine.Program`).
slurm-conf/plugins/site_factor_evo/evo_policy.c is the reader in C.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING

from slurm_evo.model import PolicyError
from slurm_evo.policy.terminals import TERMINALS

if TYPE_CHECKING:
    from slurm_evo.policy.policy import Policy

KIND = "slurm-evo-policy"
VERSION = 1


def dump(policy: Policy) -> str:
    """The file's text. The same policy always gives the same text."""
    from slurm_evo.policy.machine import OPCODES

    program = policy.program
    names = {code: name for name, code in OPCODES.items()}
    lines = [
        f"{KIND} {VERSION}",
        f"id {policy_id(policy)}",
        f"text {policy.text}",
        f"terminals {len(TERMINALS)}",
        f"registers {program.registers}",
        *(f"const {value!r}" for value in program.constants.tolist()),
        *(f"code {names[op]} {left} {right} {to}" for op, left, right, to in program.code.tolist()),
    ]
    return sealed(lines)


def load(text: str) -> Policy:
    """Read a file that `dump` wrote; the plugin reads the code, this reads the expression and compares.

    Raises:
        PolicyError: it is damaged, of another version, or its code is not what its expression compiles to.
    """
    from slurm_evo.policy.policy import Policy

    lines = unsealed(text)
    if lines[0] != f"{KIND} {VERSION}":
        raise PolicyError(f"a policy file begins with {KIND!r} {VERSION}, this one with {lines[0][:60]!r}")
    expression = next((line.removeprefix("text ") for line in lines if line.startswith("text ")), None)
    if expression is None:
        raise PolicyError("the policy file has no line 'text'")
    policy = Policy.parse(expression)
    if dump(policy) != text:
        raise PolicyError("the policy file's code is not what its expression compiles to")
    return policy


def policy_id(policy: Policy) -> str:
    """Names an expression by its canonical text: the same one has the same id everywhere."""
    return "p-" + hashlib.blake2b(policy.text.encode(), digest_size=5).hexdigest()


def sealed(lines: list[str]) -> str:
    """Lines with their checksum as the last one."""
    body = "".join(f"{line}\n" for line in lines)
    return f"{body}crc32 {zlib.crc32(body.encode()):08x}\n"


def unsealed(text: str) -> list[str]:
    """The lines before the checksum.

    Raises:
        PolicyError: the checksum is missing or wrong.
    """
    body, mark, last = text.rpartition("crc32 ")
    if not mark or not body.endswith("\n") or not last.endswith("\n"):
        raise PolicyError("the file is cut off: it does not end in a line 'crc32'")
    if last != f"{zlib.crc32(body.encode()):08x}\n":
        raise PolicyError("the file is damaged: its checksum does not match")
    return body.splitlines()
