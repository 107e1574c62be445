"""Compiled code is never older than any file it was made from."""

import subprocess
import sys
import textwrap

from slurm_evo.kernels import fingerprint
from slurm_evo.sim.placing import best_node


def test_every_file_that_kernels_are_made_from_counts(tmp_path):
    for folder in ("sim", "policy", "optimize"):
        (tmp_path / folder).mkdir()
    files = [tmp_path / name for name in ("sim/world.py", "policy/machine.py", "optimize/mating_kernel.py")]
    seen = set()
    for file in files:
        for text in ("A = 1", "A = 2"):
            file.write_text(text)
            fingerprint.cache_clear()
            seen.add(fingerprint(tmp_path))
    assert len(seen) == 6
    (tmp_path / "optimize" / "queue.py").write_text("A = 3")
    fingerprint.cache_clear()
    assert fingerprint(tmp_path) in seen, "is in no kernel"
    fingerprint.cache_clear()


def test_a_constant_that_changed_in_another_file_is_the_one_that_runs(tmp_path):
    (tmp_path / "uses.py").write_text(
        textwrap.dedent("""
            import sys
            import slurm_evo.kernels as kernels
            from constants import ANSWER
            kernels.fingerprint = lambda root: sys.argv[1]

            @kernels.kernel()
            def answer():
                return ANSWER

            print(answer())
        """)
    )

    def run(constant, stamp):
        (tmp_path / "constants.py").write_text(f"ANSWER = {constant}\n")
        ran = subprocess.run(
            [sys.executable, "-B", "uses.py", stamp],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return int(ran.stdout)

    assert run(1, "first") == 1
    assert run(22, "second") == 22


def test_what_is_compiled_carries_the_fingerprint():
    stamp = best_node._cache._cache_file._source_stamp
    assert isinstance(stamp, tuple)
    assert len(stamp[1]) == 32
