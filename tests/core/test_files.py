"""Files of arrays: what is written, what is read, and every way in which a file is refused, word for word."""

from __future__ import annotations

import json
import os
import re
import stat
import zipfile
import zlib

import numpy as np
import pytest

from conftest import same
from fedqhd.core import files
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import (
    SEALED,
    VERSION,
    DamagedFile,
    WriteFailed,
    checkpoints,
    checksum,
    make_durable,
    number_of,
    pack,
    read_arrays,
    read_checkpoint,
    sync,
    unpack,
    write_arrays,
    write_bytes,
    write_checkpoint,
    write_failed,
    write_secret,
    write_whole,
)
from fedqhd.core.lines import (
    append_lines,
    complete,
    encoded,
    parsed,
    read_complete_lines,
    read_lines,
    write_lines,
)

ARRAYS = {
    "W": np.arange(6.0).reshape(2, 3),
    "a": np.array([True, False]),
    "z": np.array(1j),
    "e": np.zeros((0, 4), "i2"),
}


def refused(path, why, kind=DamagedFile):
    return pytest.raises(kind, match=f"^{re.escape(str(path))} {why}$")


def damaged(path, why):
    return refused(path, rf"is damaged or not a FedQHD file \({why}\): restore it or make it again")


def test_arrays_and_their_note_come_back_as_they_were(tmp_path):
    write_arrays(tmp_path / "f.npz", ARRAYS, {"x": [1, None, "y"]})
    arrays, about = read_arrays(tmp_path / "f.npz")
    assert about == {"version": VERSION, "x": [1, None, "y"]}
    assert list(arrays) == list(ARRAYS)
    assert all(arrays[k].dtype == v.dtype and arrays[k].shape == v.shape for k, v in ARRAYS.items())
    assert same(arrays.values(), ARRAYS.values())
    with np.load(tmp_path / "f.npz") as z:  # numpy reads it as well
        assert same([z["W"]], [ARRAYS["W"]])


def test_a_file_ends_with_the_checksum_of_all_before_it(tmp_path):
    write_arrays(tmp_path / "f.npz", ARRAYS, {})
    data = (tmp_path / "f.npz").read_bytes()
    assert data[-15:-8] == b"fedqhd:"
    assert data[-17:-15] == (15).to_bytes(2, "little")  # the length of a zip comment
    assert data[-8:] == checksum(data[:-8]) == b"%08x" % zlib.crc32(data[:-8])
    assert checksum(b"") == b"00000000"
    with zipfile.ZipFile(tmp_path / "f.npz") as z:
        assert z.comment == data[-15:]


def test_what_is_no_file_of_arrays_is_refused(tmp_path):
    path = tmp_path / "f.npz"
    with refused(path, "does not exist", FedQHDError):
        read_arrays(path)
    write_arrays(path, ARRAYS, {})
    whole = path.read_bytes()
    path.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    with damaged(path, "its checksum does not match its content"):
        read_arrays(path)
    path.write_bytes(whole[:-1] + (b"0" if whole[-1:] != b"0" else b"1"))
    with damaged(path, "its checksum does not match its content"):
        read_arrays(path)
    path.write_bytes(b"")
    with pytest.raises(DamagedFile):
        read_arrays(path)


@pytest.mark.parametrize("note", [3, [], {}, {"version": "4"}, {"version": 4.0}, {"version": True}, {"version": None}])
def test_a_note_without_a_version_is_refused(tmp_path, note):
    path = tmp_path / "f.npz"
    np.savez(path, **{"about.json": np.frombuffer(json.dumps(note).encode(), np.uint8)})
    with damaged(path, "its note has no version"):
        read_arrays(path)


@pytest.mark.parametrize("version", range(-1, VERSION + 3))
def test_versions(tmp_path, version):
    path = tmp_path / "f.npz"
    np.savez(path, **{"about.json": np.frombuffer(json.dumps({"version": version}).encode(), np.uint8)}, W=np.ones(2))
    if version in range(1, SEALED):  # which had no checksum
        arrays, about = read_arrays(path)
        assert about == {"version": version}
        assert list(arrays) == ["W"]
    elif version in range(SEALED, VERSION + 1):
        with damaged(path, "its checksum is missing"):
            read_arrays(path)
    else:
        why = f"has file version {version}, and this FedQHD reads versions up to {VERSION}: use a newer FedQHD"
        with refused(path, why, FedQHDError):
            read_arrays(path)


def test_a_file_is_replaced_at_once_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "in" / "f"
    write_bytes(path, b"one")
    assert path.read_bytes() == b"one"

    def fail(f):
        f.write(b"half of it")
        f.flush()
        assert (path.parent / "f.part").read_bytes() == b"half of it"
        assert path.read_bytes() == b"one"
        raise OSError(28, "No space left on device")

    with refused(path, r"cannot be written \(No space left on device\): make room or give another folder", WriteFailed):
        write_whole(path, fail)
    assert path.read_bytes() == b"one"
    assert os.listdir(path.parent) == ["f"]
    write_bytes(path, b"two")
    assert path.read_bytes() == b"two"


def test_a_file_is_on_disk_before_it_is_renamed_and_its_folder_afterwards(tmp_path, monkeypatch):
    done, fsync, replace = [], os.fsync, os.replace

    def record(name, f):
        return lambda *args: (
            done.append(name if name != "fsync" else stat.S_ISDIR(os.fstat(args[0]).st_mode)),
            f(*args),
        )[1]

    monkeypatch.setattr(files.os, "fsync", record("fsync", fsync))
    monkeypatch.setattr(files.os, "replace", record("replace", replace))
    write_bytes(tmp_path / "f", b"x")
    assert done == [False, "replace", True]
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    sync(tmp_path)
    assert not before or len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "nowhere")
    done.clear()
    write_arrays(tmp_path / "a.npz", {"x": np.zeros(3)}, {})
    assert done == [False, "replace", True]
    done.clear()
    write_arrays(tmp_path / "a.npz", {"x": np.zeros(3)}, {}, durable=False)
    assert done == ["replace"]
    make_durable(tmp_path)
    assert done == ["replace", False, False, True]
    with pytest.raises(WriteFailed, match="nowhere"):
        make_durable(tmp_path / "nowhere")


def test_why_a_file_could_not_be_written_is_said(tmp_path):
    said = str(write_failed(tmp_path, OSError(13, "Permission denied")))
    assert said == f"{tmp_path} cannot be written (Permission denied): make room or give another folder"
    assert "(odd)" in str(write_failed(tmp_path, OSError("odd")))
    (tmp_path / "file").write_text("")
    for write in (write_bytes, write_secret):
        with pytest.raises(WriteFailed, match=r"file/f cannot be written \((Not a directory|File exists)\)"):
            write(tmp_path / "file" / "f", b"")


def test_a_secret_is_for_its_owner_from_the_start(tmp_path):
    path = tmp_path / "new" / "secret"
    for content in (b"one", b"two"):
        (tmp_path / "new").mkdir(exist_ok=True)
        (tmp_path / "new" / "secret.part").write_bytes(b"left behind, for all to read")
        write_secret(path, content)
        assert path.read_bytes() == content
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert os.listdir(path.parent) == ["secret"]
    write_secret(tmp_path / "a" / "b" / "c", b"")


def test_packed_arrays_come_back_as_they_were():
    odd = {**ARRAYS, "F": np.asfortranarray(np.arange(6).reshape(2, 3)), "cut": np.arange(10)[::3]}
    data, index = pack(odd)
    assert data.dtype == np.uint8
    assert data.nbytes == sum(v.nbytes for v in odd.values())
    again = unpack(data, json.loads(json.dumps(index)))
    assert list(again) == list(odd)
    assert same(again.values(), odd.values())
    assert all(again[k].dtype == v.dtype and again[k].flags.writeable for k, v in odd.items())
    assert unpack(*pack({})) == {}


@pytest.mark.parametrize(
    ("data", "index", "why"),
    [
        (np.zeros(8), [["W", "<f8", [1]]], "its data are float64 of shape (8,), not bytes"),
        (np.zeros((8, 1), np.uint8), [["W", "<f8", [1]]], "its data are uint8 of shape (8, 1), not bytes"),
        (np.zeros(9, np.uint8), [["W", "<f8", [1]]], "its index describes 8 of its 9 bytes"),
        (
            np.zeros(8, np.uint8),
            [["W", "<f4", [1]], ["W", "<f4", [1]]],
            "its index has the name 'W' twice or for no array",
        ),
        (np.zeros(8, np.uint8), [[3, "<f8", [1]]], "its index has the name 3 twice or for no array"),
    ],
)
def test_an_index_that_does_not_describe_its_data_is_refused(data, index, why):
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        unpack(data, index)


@pytest.mark.parametrize("index", [[["W", "<f8", [2]]], [["W", "<f8", [-1]]], [["W", "|O", [1]]], [["W", "<f8"]], [3]])
def test_an_index_of_other_arrays_is_refused(index):
    with pytest.raises((ValueError, TypeError)):
        unpack(np.zeros(8, np.uint8), index)


def test_the_newest_checkpoints_are_kept_and_the_newest_whole_one_is_read(tmp_path, caplog):
    assert read_checkpoint(tmp_path) is None
    assert checkpoints(tmp_path) == []
    for k in (1, 2, 10, 999_999, 1_000_000):
        write_checkpoint(tmp_path, k, {"W": np.full(2, k)}, {"k": k}, 3)
    (tmp_path / "checkpoint-7.npz").write_text("another file")
    (tmp_path / "checkpoint-000007.npz.part").write_text("another file")
    assert [p.name for p in checkpoints(tmp_path)] == [
        "checkpoint-1000000.npz", "checkpoint-999999.npz", "checkpoint-000010.npz"
    ]  # fmt: skip
    assert [number_of(p) for p in checkpoints(tmp_path)] == [1_000_000, 999_999, 10]
    found = read_checkpoint(tmp_path)
    assert (found.number, found.about, found.path) == (
        1_000_000, {"version": VERSION, "k": 1_000_000}, tmp_path / "checkpoint-1000000.npz"
    )  # fmt: skip
    assert same([found.arrays["W"]], [np.full(2, 1_000_000)])
    assert not caplog.text
    for path in checkpoints(tmp_path)[:2]:
        path.write_bytes(path.read_bytes()[:-9])
    assert read_checkpoint(tmp_path).number == 10
    assert [m[m.index("; ") :] for m in caplog.messages] == ["; continuing from the checkpoint before it"] * 2


def test_a_checkpoint_of_an_earlier_version_is_passed_over_with_a_word(tmp_path, caplog):
    path = tmp_path / "checkpoint-000001.npz"
    np.savez(path, **{"about.json": np.frombuffer(b'{"version": 1}', np.uint8)})
    assert read_checkpoint(tmp_path) is None
    assert caplog.messages == [f"{path} was written by an earlier FedQHD, and this version cannot resume from it"]


def test_a_checkpoint_with_a_wrong_index_is_passed_over(tmp_path, caplog):
    write_arrays(tmp_path / "checkpoint-000001.npz", {"data": np.zeros(3, np.uint8)}, {"index": [["W", "|u1", [2]]]})
    write_arrays(tmp_path / "checkpoint-000002.npz", {"data": np.zeros(3, np.uint8)}, {})
    assert read_checkpoint(tmp_path) is None
    assert "its index does not fit its data: its index describes 2 of its 3 bytes" in caplog.text
    assert "its index does not fit its data: 'index'" in caplog.text
    assert [m.partition(" is ")[0] for m in caplog.messages] == [str(p) for p in checkpoints(tmp_path)]


def test_lines_are_objects_of_json_one_to_a_line(tmp_path):
    lines = [{"a": 1, "b": [2.5]}, {"c": "ü\n"}]
    assert encoded(lines) == b'{"a": 1, "b": [2.5]}\n{"c": "\\u00fc\\n"}\n'
    assert encoded(lines[:1], (",", ":")) == b'{"a":1,"b":[2.5]}\n'
    assert encoded([]) == b""
    assert parsed(encoded(lines)) == lines
    with pytest.raises(ValueError, match="Expecting"):
        parsed(b'{"a": 1}\n{"a"\n')
    assert complete(b"one\ntwo\nthr") == b"one\ntwo\n"
    assert complete(b"one") == b""
    file = tmp_path / "f.jsonl"
    assert read_lines(file) == read_complete_lines(file) == []
    write_lines(file, lines)
    assert append_lines(file, lines[:1]) == encoded(lines[:1])
    assert read_lines(file) == read_complete_lines(file) == [*lines, lines[0]]
    write_lines(file, lines[:1], (",", ":"))
    assert file.read_bytes() == encoded(lines[:1], (",", ":"))
    with file.open("ab") as f:
        f.write(b'{"half')
    assert read_complete_lines(file) == lines[:1]
    with pytest.raises(ValueError, match="Unterminated"):
        read_lines(file)


def test_lines_are_on_disk_if_they_must_be(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("fedqhd.core.lines.os.fsync", lambda handle: synced.append(os.fstat(handle).st_size))
    append_lines(tmp_path / "f", [{}])
    assert synced == []
    append_lines(tmp_path / "f", [{}], durable=True)
    assert synced == [6]
    with refused(
        tmp_path / "no" / "f",
        r"cannot be written \(No such file or directory\): make room or give another folder",
        WriteFailed,
    ):
        append_lines(tmp_path / "no" / "f", [{}])
