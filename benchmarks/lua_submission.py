"""What slurm_evo.lua costs a submission, without hold-backs and with: microseconds in each Lua. Needs lupa."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from evo_library import LUAS, MODULE, lua_runtime

from slurm_evo.policy import Policy, compact, lua

SITE = """
slurm = { SUCCESS = 0, NO_VAL = 4294967294, NO_VAL16 = 65534, INFINITE = 4294967295 }
function slurm_job_submit() return slurm.SUCCESS end
function run(count)
  for i = 1, count do
    slurm_job_submit({ script = "x", time_limit = 10 + i % 100, user_name = "ada", account = "physics",
      partition = "gpu", user_id = 1000, tres_per_node = "gres/gpu:2", min_nodes = 1, comment = "a comment" },
      {}, 1000)
  end
end
"""


def main() -> None:
    """One line for each Lua, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--submissions", type=int, default=100_000)
    given = parser.parse_args()
    result: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "policy.lua").write_text(lua.export(Policy.default()))
        scale = [f"scale {place * 10.0} {place * 1000.0}" for place in range(1, 65)]
        users = [f"user user{number} 1000.0 5.0" for number in range(500)]
        lines = ["slurm-evo-context 1", "time 1", "stay slurm-evo:stay", *users, *scale]
        (folder / "context").write_text(compact.sealed(lines))
        (folder / "held").mkdir()
        for shared in ("policy.lua", "context"):
            (folder / "held" / shared).write_text((folder / shared).read_text())
        lines = ["slurm-evo-places 1", f"time {time.time():.0f}", "good_s 3600", "back c1 60"]
        lines += [f"member c{number}" for number in range(8)]
        lines += [f"room c{number} gpu -1 {count} 8 64 512000" for number in range(8) for count in range(1, 5)]
        lines += [f"apart user{number} physics" for number in range(500)]
        (folder / "held" / "places").write_text(compact.sealed(lines))
        for version in LUAS:
            spent = {}
            for how, where in (("without", None), ("with", folder), ("holding back", folder / "held")):
                runtime = lua_runtime(version)
                runtime.execute(SITE)
                if where:
                    hook = f'dofile("{MODULE}").hook_job_submit({{ dir = "{where}", site_factor = true }})'
                    runtime.execute(hook)
                runtime.globals().run(100)
                began = time.process_time()
                runtime.globals().run(given.submissions)
                spent[how] = (time.process_time() - began) / given.submissions * 1e6
            cost, held = spent["with"] - spent["without"], spent["holding back"] - spent["without"]
            print(f"{version:9} {cost:5.1f} µs a submission, {held:5.1f} where jobs are held back")
            result[version] = {"microseconds": round(cost, 2), "holding_back": round(held, 2)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
