"""Kernels that are functions of the host: from an access to a race in Python, without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import gsan
import pytest
from gsan import _memory

PROGRAM = Path(__file__).parent / "racy.py"
COMMAND = Path(sysconfig.get_path("scripts")) / "gsan"
HOST = {**os.environ, "GSAN_TOPOLOGY_BACKEND": "host"}


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GSAN_TOPOLOGY_BACKEND", "host")
    monkeypatch.setattr(sys, "argv", ["racy.py"])
    gsan.reset()
    yield
    gsan.reset()


def test_two_ctas_that_write_one_word(session) -> None:
    import racy

    racy.launch()
    assert gsan.race_count() == 1
    (race,) = gsan.races()
    assert race.kind == "write-after-write" and (race.bytes, race.times) == (4, 1)
    assert race.lines == {("kernel.py", 7), ("kernel.py", 9)}
    assert {race.later.cta, race.earlier.cta} == {(0, 0, 0), (1, 0, 0)}
    assert race.later.kernel == race.earlier.kernel == "racy"
    assert "error[write-after-write]: data race on 4 bytes" in gsan.report()
    assert '"write-after-write"' in gsan.report("json")
    with pytest.raises(gsan.RaceFound, match="data race on 4 bytes"):
        gsan.assert_no_races()
    gsan.forget_races()
    gsan.assert_no_races()


def test_two_ctas_that_write_two_words(session, monkeypatch: pytest.MonkeyPatch) -> None:
    import racy

    monkeypatch.setattr(racy, "ORDERED", True)
    racy.launch()
    gsan.assert_no_races()


def test_races_are_told_when_they_are_found(session) -> None:
    import racy

    told: list[gsan.Race] = []
    gsan.on_race(told.append)
    try:
        racy.launch()
        assert gsan.race_count() == 1
    finally:
        gsan.on_race(None)
    assert [race.kind for race in told] == ["write-after-write"]


def test_reports_are_written_as_files_are(session, tmp_path) -> None:
    before = os.umask(0o022)
    try:
        gsan.write_report(tmp_path / "new.json")
    finally:
        os.umask(before)
    assert (tmp_path / "new.json").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "new.json").read_text() == gsan.report("json")
    (tmp_path / "new.json").chmod(0o660)
    (tmp_path / "link").symlink_to("new.json")
    gsan.write_report(str(tmp_path / "link").encode(), "human")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "new.json").stat().st_mode & 0o777 == 0o660
    assert (tmp_path / "new.json").read_text() == gsan.report()
    os.mkfifo(tmp_path / "fifo")
    end = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        gsan.write_report(tmp_path / "fifo")
        assert os.read(end, 9999).decode() == gsan.report("json")
    finally:
        os.close(end)
    folder = os.fsencode(tmp_path)
    gsan.write_report(folder + b"/\xff")
    assert sorted(os.listdir(folder)) == [b"fifo", b"link", b"new.json", b"\xff"]
    with pytest.raises(gsan.Error, match="cannot be written to .*nowhere/x: there is no such dir"):
        gsan.write_report(tmp_path / "nowhere" / "x")
    with pytest.raises(ValueError, match="null byte"):
        gsan.write_report("x\0y")


def test_reset_refuses_while_memory_is_live(session) -> None:
    address = _memory.gsan_malloc(4096, 0)
    assert gsan.has_live_allocations()
    with pytest.raises(AssertionError, match=re.escape(hex(address))):
        gsan.reset()
    with pytest.raises(RuntimeError):
        gsan.configure(rng_seed=3)
    _memory.gsan_free(address, 0)
    assert not gsan.has_live_allocations()
    gsan.reset()
    gsan.configure(rng_seed=3)


def test_a_rank_has_one_of_the_devices(session) -> None:
    gsan.configure(device_ranks={1: 1}, num_devices=2)
    address = _memory.gsan_malloc(4096, 1)
    assert _memory.get_device_rank(1) == 1
    with pytest.raises(RuntimeError):
        _memory.get_device_rank(0)
    _memory.gsan_free(address, 1)
    gsan.reset()
    assert _memory.get_device_rank(0) == 0


def test_a_forked_child_is_told_no_address_of_its_parent(session) -> None:
    assert _memory.get_global_state_pointer() and _memory.get_device_rank(0) == 0
    child = os.fork()
    if child == 0:
        told = 0
        for ask in (_memory.get_global_state_pointer, lambda: _memory.get_device_rank(0)):
            try:
                ask()
            except gsan.Error:
                told += 1
        os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


def test_what_is_remembered_can_be_seen(session) -> None:
    from gsan import testing

    address = _memory.gsan_malloc(4096, 0)
    cell = testing.shadow_cell_from_address(address)
    assert cell == testing.ShadowCell(0, testing.ScalarClock(0, 0), [])
    assert testing.global_state_of(0).num_devices == 1
    assert _memory.get_device_rank(0) == 0
    base, size = _memory.get_reserve_pointer(), _memory.get_reserve_size()
    assert base + size // 2 <= address < base + size
    assert base <= testing.shadow_address(address) < base + size // 2
    with pytest.raises(ValueError, match="is not managed memory"):
        testing.shadow_address(base)
    _memory.gsan_free(address, 0)


def test_tensors_of_what_is_remembered_name_it(session, monkeypatch: pytest.MonkeyPatch) -> None:
    from gsan import testing
    from gsan._compat import _testing

    def tensor(address: int, size: int, device: int) -> SimpleNamespace:
        def rows(shape: tuple[int, int], strides: tuple[int, int]) -> SimpleNamespace:
            assert (shape[0] - 1) * strides[0] + shape[1] == size
            return tensor(address, shape[0] * shape[1], device)

        on = SimpleNamespace(index=device)
        return SimpleNamespace(
            is_cuda=True,
            device=on,
            data_ptr=lambda: address,
            numel=lambda: size,
            as_strided=rows,
        )

    monkeypatch.setattr(testing, "uint8_cuda_tensor_from_ptr", tensor)
    address = _memory.gsan_malloc(4096, 0)
    cell = testing.shadow_cell_tensor_from_address(address + 16, device_index=0)
    assert cell.numel() == _testing.shadow_cell_size(address)
    assert cell.data_ptr() == _testing.shadow_cell_address(address + 16)
    nothing = testing.ShadowCell(0, testing.ScalarClock(0, 0), [])
    assert _testing.decode_shadow_cell_tensor(cell) == nothing
    state = testing.global_state_tensor(device_index=0)
    assert _testing.decode_global_state_tensor(state) == testing.global_state_of(0)
    first, other = (testing.thread_state_tensor(smid, device_index=0) for smid in (0, 40))
    stride = _testing.thread_state_stride_bytes(65536, 65536)
    assert other.data_ptr() == first.data_ptr() + 40 * stride
    decoded = _testing.decode_thread_state_tensor(other, 65536, 65536)
    assert decoded.thread_id == 40 and not any(decoded.vector_clock)
    with pytest.raises(ValueError, match="is none of device 0"):
        testing.thread_state_tensor(1 << 20, device_index=0)
    with pytest.raises(RuntimeError, match="cannot be decoded from bytes"):
        _testing.decode_thread_state_tensor(tensor(64, 4, 0), 65536, 65536)
    _memory.gsan_free(address, 0)


@pytest.mark.parametrize("wanted", [1, 8])
def test_exports_that_are_refused_leave_nothing_open(session, wanted: int) -> None:
    address = _memory.gsan_malloc(4096, 0)
    exports = [
        lambda: _memory.export_allocation_handles(address, wanted, write_once=True),
        lambda: _memory.export_runtime_state_handle(0, 8),
    ]
    try:
        for export in exports:
            with pytest.raises(ValueError):
                export()
            before = len(os.listdir("/proc/self/fd"))
            with pytest.raises(ValueError):
                export()
            assert len(os.listdir("/proc/self/fd")) == before
    finally:
        _memory.gsan_free(address, 0)


def test_a_callback_hears_of_races_that_are_found_at_the_exit(python) -> None:
    code = (
        "import gsan, racy\n"
        "gsan.on_race(lambda race: print('told of', race.kind))\n"
        "{install}racy.launch()\n"
    )
    for install in ("", "gsan.install()\n"):
        ended = python(
            code.format(install=install),
            GSAN_TOPOLOGY_BACKEND="host",
            PYTHONPATH=os.pathsep.join([str(PROGRAM.parent), *sys.path]),
        )
        assert (ended.returncode, ended.stdout) == (0, "told of write-after-write\n"), ended.stderr


@pytest.mark.parametrize("words", [["ordered"], []])
def test_two_ranks_race_unless_they_meet(words: list[str]) -> None:
    program = PROGRAM.with_name("two_ranks.py")
    pair = f"two ranks {os.getpid()} {len(words)}"
    ranks = [
        subprocess.Popen(
            [sys.executable, program, str(rank), pair, *words],
            env=HOST,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    told = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    race = "read-after-write (0, 1) [3, 9] (1, 0, 0)\n"
    assert told == ["", "" if words else race]


def under_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    if not COMMAND.is_file():
        pytest.skip("the gsan command is not installed")
    return subprocess.run(
        [COMMAND, "run", "--", sys.executable, PROGRAM, *arguments],
        env=HOST,
        capture_output=True,
        text=True,
        timeout=60,
    )


# A race wins over the program's own code; a signal is 128 and its number.
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["ordered", "returns"], 0),
        (["ordered", "code"], 3),
        (["ordered", "raises"], 1),
        (["ordered", "killed"], 137),
        (["ordered", "interrupted"], 130),
        (["racy", "returns"], 66),
        (["racy", "code"], 66),
        (["racy", "raises"], 66),
        (["racy", "_exit"], 66),
        (["racy", "killed"], 66),
        (["racy", "interrupted"], 66),
        (["racy", "fork"], 66),
    ],
)
def test_exit_codes_of_gsan_run(arguments: list[str], code: int) -> None:
    ended = under_run(*arguments)
    assert ended.returncode == code, ended.stderr
    found = "data race on 4 bytes" in ended.stderr
    assert found == ("racy" in arguments), ended.stderr
    if arguments[-1] == "raises":
        assert "ValueError: of the program" in ended.stderr
