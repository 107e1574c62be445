"""Whatever happens to Slurm's answers on the way, the readers know one error only."""

import contextlib
import copy
import string

from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import RELEASES, answer, text

from slurm_evo.model import AnswerUnreadable, ClusterName, ClusterRefused
from slurm_evo.slurm.answers import parse_jobs, parse_nodes, parse_partitions
from slurm_evo.slurm.facts import facts_of, parse_config, parse_federation, parse_shown_partitions
from slurm_evo.slurm.limits import (
    parse_associations,
    parse_associations_json,
    parse_qos,
    parse_qos_json,
)
from slurm_evo.slurm.priorities import parse_sprio
from slurm_evo.slurm.rest_version import choose
from slurm_evo.slurm.runner import utc_now

ALPHA = ClusterName("alpha")
JSON_READERS = (
    ("squeue.json", parse_jobs),
    ("nodes.json", parse_nodes),
    ("rest_partitions.json", parse_partitions),
    ("rest_associations.json", parse_associations_json),
    ("rest_qos.json", parse_qos_json),
    ("rest_openapi.json", lambda cluster, data: choose(cluster, data, wanted=None)),
)
TEXT_READERS = (
    ("sprio.txt", parse_sprio),
    ("partitions.txt", parse_shown_partitions),
    ("assoc.txt", parse_associations),
    ("qos.txt", parse_qos),
    ("federation.txt", lambda _, damaged: parse_federation(damaged)),
    (
        "config.txt",
        lambda cluster, damaged: facts_of(
            cluster, parse_config(cluster, damaged), parse_federation(""), now=utc_now()
        ),
    ),
)
ANSWERS = {(release, name): answer(release, "alpha", name) for release in RELEASES for name, _ in JSON_READERS}

SLURMS_CHARACTERS = "[]{}(),:=/-+*.0123456789gpuresIDXn " + string.ascii_letters
junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.text(alphabet=SLURMS_CHARACTERS, max_size=30)
    | st.sampled_from(
        ["n[1-", "n[0-999]x[0-999]", "gres/gpu=9E9", "gpu:(", "UNLIMITED", 2**64, -(2**63), 10**400]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["set", "infinite", "number", "name", "count", "type"]) | st.text(max_size=5),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)


def places(value, path=()):
    """The path of every value inside a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from places(child, (*path, key))


PLACES = {key: list(places(data)) for key, data in ANSWERS.items()}


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_damaged_json_is_read_or_unreadable_and_nothing_else(data):
    name, reader = data.draw(st.sampled_from(JSON_READERS))
    release = data.draw(st.sampled_from(RELEASES))
    damaged = copy.deepcopy(ANSWERS[release, name])
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from(PLACES[release, name]))
        replacement = data.draw(junk)
        if not path:
            damaged = replacement
            break
        holder = damaged
        try:
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = replacement
        except (KeyError, IndexError, TypeError):
            continue  # an earlier damage took this place away
    try:
        with contextlib.suppress(AnswerUnreadable):
            reader(ALPHA, damaged)
    except ClusterRefused:
        assert name == "rest_openapi.json"  # the damage took every known API version away


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_text_is_read_or_unreadable_and_nothing_else(data):
    name, reader = data.draw(st.sampled_from(TEXT_READERS))
    damaged = text(data.draw(st.sampled_from(RELEASES)), "alpha", name)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(damaged)))
        end = data.draw(st.integers(start, min(len(damaged), start + 40)))
        damaged = (
            damaged[:start] + data.draw(st.text(alphabet=SLURMS_CHARACTERS + "|\n", max_size=20)) + damaged[end:]
        )
    with contextlib.suppress(AnswerUnreadable):
        reader(ALPHA, damaged)
