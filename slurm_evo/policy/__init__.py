"""Layer 2 expressions: parse, check, print, evaluate; the terminals they are made of."""

from slurm_evo.policy.policy import DEFAULT_TEXT, Policy, admitted, problems
from slurm_evo.policy.terminals import HALF_LIFE_S, ROW, TERMINALS, Terminal

__all__ = ["DEFAULT_TEXT", "HALF_LIFE_S", "ROW", "TERMINALS", "Policy", "Terminal", "admitted", "problems"]
