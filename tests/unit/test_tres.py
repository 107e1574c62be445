import pytest

from slurm_evo.slurm.tres import Gpus, gpus_of_gres, gpus_of_tres, memory_mb_of_tres


@pytest.mark.parametrize(
    ("text", "count", "named"),
    [
        ("", 0, None),
        ("(null)", 0, None),
        ("N/A", 0, None),
        ("gpu", 1, None),
        ("gpu:4", 4, None),
        ("gpu:a100", 1, "a100"),
        ("gpu:a100:8", 8, "a100"),
        ("gpu:a100:8(S:0-1)", 8, "a100"),
        ("gpu:a100:3(IDX:0,2-3)", 3, "a100"),
        ("gpu:a100:0(IDX:N/A)", 0, None),
        ("gres/gpu:4", 4, None),
        ("gres:gpu:v100:2", 2, "v100"),
        ("gres/gpu=2", 2, None),
        ("gres/gpu:a100=2", 2, "a100"),
        ("cpu:2,gres/gpu:1", 1, None),
        ("gpu:a100:2(IDX:0-1),gpu:v100:1(IDX:0)", 3, "a100,v100"),
        ("gpu:1g.5gb:7", 7, "1g.5gb"),
        ("shard:gpu:8,mps:100,gpu:2", 2, None),
        ("gpu:1K", 1024, None),
    ],
)
def test_devices_of_a_gres_list(text, count, named):
    assert gpus_of_gres(text) == Gpus(count, named)


@pytest.mark.parametrize("text", ["gpu:a100:many", "gpu=lots", "gpu:a100:-1"])
def test_a_gres_count_that_is_none_is_an_error(text):
    with pytest.raises(ValueError, match="no readable count"):
        gpus_of_gres(text)


def test_a_total_and_its_typed_share_are_not_added_up():
    assert gpus_of_tres("cpu=4,mem=6000M,gres/gpu=8,gres/gpu:a100=8") == Gpus(8, "a100")


def test_typed_shares_alone_are_added_up():
    assert gpus_of_tres("gres/gpu:a100=2,gres/gpu:v100=1") == Gpus(3, "a100,v100")


def test_memory_and_use_of_gpus_are_no_devices():
    assert gpus_of_tres("cpu=1,gres/gpumem=40G,gres/gpuutil=90") is None


def test_a_tres_list_without_gpus_tracks_none():
    assert gpus_of_tres("cpu=1,mem=512M,node=1,billing=1") is None


@pytest.mark.parametrize("text", ["gres/gpu=eight", "gres/gpu", "=3"])
def test_a_damaged_tres_list_is_an_error(text):
    with pytest.raises(ValueError, match="is no"):
        gpus_of_tres(text)


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [
        ("mem=512M", 512),
        ("mem=62.50G", 64_000),
        ("cpu=1,mem=2T", 2_097_152),
        ("mem=100", 100),
        ("cpu=1", None),
    ],
)
def test_memory_of_a_tres_list(text, megabytes):
    assert memory_mb_of_tres(text) == megabytes
