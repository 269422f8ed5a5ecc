"""Configuration and clocks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gsan
import pytest
from gsan import _settings
from gsan.testing import ScalarClock


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"device_ranks": {0: 0}}, "device_ranks and num_devices must be given together"),
        ({"num_devices": 2}, "device_ranks and num_devices must be given together"),
        ({"device_ranks": {0: 2}, "num_devices": 2}, "ranks are from 0 to 1"),
        ({"device_ranks": {-1: 0}, "num_devices": 2}, "devices count from 0"),
        ({"device_ranks": {0: 0}, "num_devices": 2**33}, "num_devices is 8589934592"),
        ({"device_ranks": {}, "num_devices": 0}, "num_devices is 0"),
        ({"rng_seed": -1}, "must be from 0 to"),
        ({"rng_seed": "x"}, "rng_seed is 'x'; it must be from 0 to"),
        ({"clock_buffer_size": 0}, "must be from 1 to"),
        ({"clock_buffer_size": "x"}, "clock_buffer_size is 'x'; it must be from 1 to"),
        ({"handle_type": 3}, "3 is not a valid ShareableHandleType"),
        ({"handle_type": "fabric"}, r"there are POSIX_FILE_DESCRIPTOR \(1\), FABRIC \(8\)"),
    ],
)
def test_settings_that_cannot_be(settings: dict, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        gsan.configure(**settings)


@pytest.mark.parametrize(
    ("name", "said"),
    [("seed", "'rng_seed'"), ("num_device", "'num_devices'"), ("xyz", "there are device_ranks, ")],
)
def test_settings_that_are_none_name_those_that_are(name: str, said: str) -> None:
    settings: dict = {name: 4}
    with pytest.raises(TypeError, match=f"no setting '{name}'; .*{said}"):
        gsan.configure(**settings)


def handle() -> Any:
    """Of one rank, which has no memory."""
    from gsan.symmetric_memory import GSanSymmetricMemoryHandle

    return GSanSymmetricMemoryHandle(
        group=None,
        rank=0,
        world_size=1,
        device_index=0,
        buffer_size=0,
        peer_ptrs=(0,),
        peer_offsets=(0,),
    )


def test_a_barrier_waits_for_a_time_that_can_be() -> None:
    for timeout in (-5, 2**32):
        with pytest.raises(ValueError, match=f"timeout_ms is {timeout}"):
            handle().barrier(0, timeout)


def test_a_buffer_is_one_of_a_rank_and_has_a_shape() -> None:
    with pytest.raises(ValueError, match="Invalid peer rank: 1; they go from 0 to 0"):
        handle().get_buffer(1, (4,), None)
    with pytest.raises(TypeError, match=r"sizes is 4096; it must be a sequence such as \(4096,\)"):
        handle().get_buffer(0, 4096, None)


def test_a_group_is_made_before() -> None:
    pytest.importorskip("torch")
    from gsan import symmetric_memory

    with pytest.raises(TypeError, match=r"the group is None: call .*init_process_group\(\) before"):
        symmetric_memory.configure(None)
    with pytest.raises(TypeError, match="unsupported group type: .*int.*a process group or its"):
        symmetric_memory.configure(3)


def test_clocks_compare_by_value_with_any_of_the_same_fields() -> None:
    clock = ScalarClock(3, 4, 2, True)
    # Triton's scope is an enumeration.
    theirs = SimpleNamespace(epoch=3, thread_id=4, scope=SimpleNamespace(value=2), is_release=True)
    assert clock == theirs and theirs == clock
    theirs.epoch = 5
    assert clock != theirs and clock != "clock"
    assert clock.scope_name == "gpu" and ScalarClock(0, 0).scope_name == "none"


CONFIGURATION = """\
# of the whole run
[topology]
device_ranks = {}
[shadow]
records = 2          # environment
[clock]
publications = 65_536
[[report.suppress]]
records = "elsewhere"
"""


def test_settings_are_read_from_what_the_library_says(monkeypatch) -> None:
    library = SimpleNamespace(text=lambda name: CONFIGURATION)
    monkeypatch.setattr(_settings, "library", lambda: library)
    assert _settings.number("shadow", "records", 4) == 2
    assert _settings.number("clock", "publications", 0) == 65536
    assert _settings.number("launch", "max_registers", 128) == 128
    assert _settings.value("report.suppress", "records") == '"elsewhere"'
