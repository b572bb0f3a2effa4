"""Files that claim more than they hold, or hold anything but numbers, cost one sentence and no memory."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import DamagedFile, pack, read_arrays, read_checkpoint, unpack, write_arrays, write_checkpoint
from fedqhd.envs.anchors import UNPACKED, read_states

FREE = 50 << 20
"""Bytes that reading a file may take beyond its own."""


def header(descr, shape):
    f = io.BytesIO()
    np.lib.format.write_array_header_1_0(f, {"descr": descr, "fortran_order": False, "shape": shape})
    return f.getvalue()


def zipped(members, **options):
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w", **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return f.getvalue()


def peak_of(read):
    """The most bytes that a function took, which must raise FedQHDError, and what it said."""
    tracemalloc.start()
    try:
        with pytest.raises(FedQHDError) as caught:
            read()
        return tracemalloc.get_traced_memory()[1], str(caught.value)
    finally:
        tracemalloc.stop()


NOTE = header("|u1", (13,)) + b'{"version":1}'
ZEROS = header("<f8", (40_000_000,)) + bytes(320_000_000)
HOSTILE = {
    "compressed": lambda: zipped({"about.json.npy": NOTE, "W.npy": ZEROS}, compression=zipfile.ZIP_DEFLATED),
    "header": lambda: zipped({"about.json.npy": NOTE, "W.npy": header("<f8", (10**12,)) + bytes(80)}),
    "objects": lambda: zipped({"about.json.npy": NOTE, "W.npy": header("|O", (1,)) + bytes(8)}),
    "text": lambda: zipped({"about.json.npy": NOTE, "W.npy": header("<U2", (1,)) + bytes(8)}),
    "twice": lambda: zipped({"about.json.npy": NOTE, "about.json": NOTE}),
    "no note": lambda: zipped({"W.npy": NOTE}),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_that_claims_more_than_it_holds_is_refused_before_it_is_unpacked(kind, tmp_path):
    file = tmp_path / "f.npz"
    file.write_bytes(HOSTILE[kind]())
    assert file.stat().st_size < 1 << 20
    peak, said = peak_of(lambda: read_arrays(file))
    assert peak < FREE
    assert "is damaged or not a FedQHD file" in said


def test_members_that_share_their_bytes_are_refused(tmp_path):
    """A thousand entries of the directory of a zip file may point at one member."""
    data = bytearray(zipped({"about.json.npy": NOTE, "W.npy": header("|u1", (1 << 20,)) + bytes(1 << 20)}))
    end = data.rfind(b"PK\x05\x06")
    start = int.from_bytes(data[end + 16 : end + 20], "little")
    directory = bytes(data[start:end])
    last = directory[directory.rfind(b"PK\x01\x02") :]
    many = directory + b"".join(last.replace(b"W.npy", b"%05d" % k) for k in range(1000))
    tail = bytearray(data[end:])
    tail[8:10] = tail[10:12] = (1002).to_bytes(2, "little")
    tail[12:16] = len(many).to_bytes(4, "little")
    file = tmp_path / "f.npz"
    file.write_bytes(bytes(data[:start]) + many + bytes(tail))
    peak, said = peak_of(lambda: read_arrays(file))
    assert peak < FREE
    assert "claims to hold" in said


def test_a_pipe_or_a_device_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "f.npz")
    for file in (tmp_path / "f.npz", "/dev/zero"):
        with pytest.raises(DamagedFile, match="not a regular file"):
            read_arrays(file)


def test_anchors_may_be_compressed_but_not_expand_without_end(tmp_path):
    file = tmp_path / "a.npz"
    np.savez_compressed(file, states=np.ones((1000, 2)))
    assert read_states(str(file), 2).shape == (1000, 2)
    np.savez_compressed(file, states=np.zeros((UNPACKED // 16 + 1, 2)))
    peak, said = peak_of(lambda: read_states(str(file), 2))
    assert peak < FREE
    assert said.startswith(f"anchor_file={str(file)!r} cannot be read")
    np.save(tmp_path / "a.npy", np.array([[1, {}]], dtype=object))
    (tmp_path / "b.npy").write_bytes(header("<f8", (10**12, 2)))
    np.save(tmp_path / "c.npy", np.array([[1j, 2]]))
    for name in "abc":
        with pytest.raises(FedQHDError, match="cannot be read as"):
            read_states(str(tmp_path / f"{name}.npy"), 2)


@pytest.mark.parametrize(
    "index",
    [
        [["x", "<f8", [4]]], [["x", "<f8", [2]]], [["x", "|O", [3]]], [["x", "<f8", [-1, -3]]], [["x", "<f8", "3"]],
        [["x", "<f8", [3.0]]], [["x", "nonsense", [3]]], [[3, "<f8", [3]]], [["x"]], 7, None,
        [["x", "<f8", [0]], ["x", "<f8", [3]]], [["x", "<f8", [10**30]]], [["x", "<i1,<f8", [3]]],
    ],
)  # fmt: skip
def test_a_checkpoint_whose_index_does_not_describe_its_data_gives_way_to_the_one_before(index, tmp_path, caplog):
    write_checkpoint(tmp_path, 1, {"x": np.arange(3.0)}, {}, keep=9)
    data, _ = pack({"x": np.arange(3.0)})
    write_arrays(tmp_path / "checkpoint-000002.npz", {"data": data}, {"index": index})
    write_arrays(tmp_path / "checkpoint-000003.npz", {"other": data}, {"index": []})
    found = read_checkpoint(tmp_path)
    assert found.number == 1
    np.testing.assert_array_equal(found.arrays["x"], np.arange(3.0))
    assert caplog.text.count("is damaged") == 2


def test_what_is_packed_is_unpacked():
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array(True), "c": np.zeros((0, 2), np.complex64)}
    again = unpack(*pack(arrays))
    assert all(np.array_equal(again[k], v) and again[k].dtype == v.dtype for k, v in arrays.items())
