"""The file of an archive: the same bytes from the same files, and nothing hostile comes out of one."""

import gzip
import hashlib
import io
import random
import subprocess
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlperf.archive import tar

FILES = {"results.json": b"{}", "runs/x/0/stdout.log": b"said\n" * 9, "code/a/" + "b" * 150 + "/ü.py": b"import this\n"}


def archive(path, *members, tail=b"", head=b""):
    """Of (name, content or type, ...) as tarfile takes them, with whatever else stands there."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, content, *rest in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes) and content[:5] != b"TYPE=":
                member.size = len(content)
                made.addfile(member, io.BytesIO(content))
            else:
                member.type, member.linkname = content[5:], rest[0] if rest else ""
                made.addfile(member)
    path.write_bytes(gzip.compress(head + out.getvalue() + tail, mtime=0))
    return path


def refusal(path):
    with pytest.raises(tar.Refused) as refused:
        tar.unpacked(path)
    return str(refused.value)


def test_what_was_packed_comes_back_and_the_same_files_make_the_same_bytes(tmp_path):
    made = tar.packed("mine", FILES)
    assert tar.packed("mine", dict(reversed(FILES.items()))) == made
    (tmp_path / "x").write_bytes(made)
    found = tar.unpacked(tmp_path / "x")
    assert found.pop(tar.MANIFEST) == tar.manifest(FILES)
    assert found == FILES
    with tarfile.open(tmp_path / "x") as opened:
        for member in opened:
            assert (member.mtime, member.uid, member.gid, member.uname, member.gname) == (0, 0, 0, "", "")


def test_sha256sum_reads_the_manifest(tmp_path):
    (tmp_path / "x.tar.gz").write_bytes(tar.packed("mine", FILES))
    subprocess.run(["tar", "xzf", "x.tar.gz"], cwd=tmp_path, check=True)
    check = ["sha256sum", "--check", "--strict", "--quiet", tar.MANIFEST]
    assert subprocess.run(check, cwd=tmp_path / "mine").returncode == 0
    (tmp_path / "mine" / "results.json").write_text("[]")
    ended = subprocess.run(check, cwd=tmp_path / "mine", capture_output=True, text=True)
    assert "results.json: FAILED" in ended.stdout


@pytest.mark.parametrize("name", ["../x", "/x", "a/../x", "a//x", "./x", "a\nb", "a\\b", " a", "a/", ".", "\ud800"])
def test_a_name_that_a_manifest_cannot_have_is_not_packed(name):
    with pytest.raises(ValueError, match="not a name of a file in an archive"):
        tar.packed("mine", {name: b""})


def test_more_than_is_read_again_is_not_packed(monkeypatch):
    monkeypatch.setattr(tar, "FILES", 3)
    with pytest.raises(ValueError, match="more than an archive may have"):
        tar.packed("mine", FILES)
    monkeypatch.setattr(tar, "FILES", 4)
    monkeypatch.setattr(tar, "LARGEST", 44)
    with pytest.raises(ValueError, match="more than an archive may have"):
        tar.packed("mine", FILES)


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "mine/../../x",
        "/etc/passwd",
        "mine//x",
        "mine/./x",
        "x",
        "mine/a\\..\\b",
        "mine/\x1b[2J",
        "mine/a\u2028b",
    ],
)
def test_a_path_that_leads_out_or_hides_something_is_refused(tmp_path, name):
    assert "does not stay in the archive's folder" in refusal(archive(tmp_path / "x", (name, b"a")))


@pytest.mark.parametrize(
    ("kind", "target"),
    [(tarfile.SYMTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "mine/a"), (tarfile.CHRTYPE, ""), (tarfile.BLKTYPE, ""),
     (tarfile.FIFOTYPE, ""), (tarfile.DIRTYPE, ""), (tarfile.CONTTYPE, ""), (tarfile.GNUTYPE_SPARSE, ""), (b"Z", "")],
)  # fmt: skip
def test_links_devices_and_all_that_is_no_plain_file_are_refused(tmp_path, kind, target):
    path = archive(tmp_path / "x", ("mine/a", b"a"), ("mine/b", b"TYPE=" + kind, target))
    assert "no plain file" in refusal(path) or "damaged" in refusal(path)


def test_a_name_twice_and_a_second_folder_are_refused(tmp_path):
    assert "mine/a is there twice" in refusal(archive(tmp_path / "x", ("mine/a", b"a"), ("mine/a", b"b")))
    assert "several folders: mine, other" in refusal(archive(tmp_path / "x", ("mine/a", b"a"), ("other/a", b"b")))


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    bomb = archive(tmp_path / "x", *((f"mine/{number}", bytes(2**22)) for number in range(8)))
    assert bomb.stat().st_size < 2**16
    assert "it unpacks to more than 16,777,216 bytes" in refusal(bomb)


def test_too_many_or_too_large_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tar, "FILES", 5)
    path = archive(tmp_path / "x", *((f"mine/{number}", b"") for number in range(6)))
    assert "one of more than 5 files" in refusal(path)
    monkeypatch.setattr(tar, "LARGEST", 9)
    assert "mine/a has 10 bytes" in refusal(archive(tmp_path / "x", ("mine/a", bytes(10))))


def test_a_size_that_the_file_does_not_have_is_refused(tmp_path):
    """It would have memory taken for it."""
    member = tarfile.TarInfo("mine/a")
    for size in (2**40, 2**26):
        member.size = size
        (tmp_path / "x").write_bytes(gzip.compress(member.tobuf()))
        assert "bytes" in refusal(tmp_path / "x") or "damaged" in refusal(tmp_path / "x")
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 2**33
    (tmp_path / "x").write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT)))
    assert "damaged" in refusal(tmp_path / "x")


def test_what_stands_behind_the_last_file_is_refused(tmp_path):
    other = archive(tmp_path / "other", ("mine/b", b"b"))
    path = archive(tmp_path / "x", ("mine/a", b"a"), tail=gzip.decompress(other.read_bytes()))
    assert "behind its last file" in refusal(path)
    archive(tmp_path / "x", ("mine/a", b"a")).open("ab").write(other.read_bytes())
    assert refusal(tmp_path / "x").startswith("something stands behind its ")


def _changed(member, **more):
    for name, value in more.items():
        setattr(member, name, value)
    return member


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"mode": 0o4755}, "mine/results.json has the mode 4755, and no file that dlperf packs has"),
        ({"uid": 1}, "mine/results.json has an owner or a time, and no file that dlperf packs has"),
        ({"uname": "ann"}, "mine/results.json has an owner or a time, and no file that dlperf packs has"),
        ({"mtime": 1}, "mine/results.json has an owner or a time, and no file that dlperf packs has"),
        (
            {"pax_headers": {"comment": "x"}},
            "mine/results.json has a header 'comment', and no file that dlperf packs has",
        ),
    ],
)
def test_what_a_file_has_besides_its_content_is_refused(tmp_path, more, says):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        member = _changed(tarfile.TarInfo("mine/results.json"), size=2, **more)
        made.addfile(member, io.BytesIO(b"{}"))
    (tmp_path / "x").write_bytes(gzip.compress(out.getvalue(), mtime=0))
    assert refusal(tmp_path / "x") == says


def test_what_stands_anywhere_else_in_the_file_is_refused(tmp_path):
    """In gzip's head, behind its end, in the order or the padding of the tar."""
    made = tar.packed("mine", FILES)
    more = "it holds more than its files: dlperf packs these in other bytes (order, padding or heads)"
    whole = gzip.decompress(made)
    at = whole.index(b"import this\n") + 100  # between two files
    hidden = whole[:at] + b"x" + whole[at + 1 :]
    for data, says in (
        (made + b"x", "something stands behind its end"),
        (made + b"\0", "something stands behind its end"),
        (made + gzip.compress(b"\0" * 512), "something stands behind its end"),
        (made[:4] + b"\1" + made[5:], more),
        (made[:10].replace(b"\x08\0", b"\x08\x10", 1) + b"said\0" + made[10:], more),
        (_zipped(hidden), more),
        (_zipped(whole + b"\0" * 10240), more),
    ):
        (tmp_path / "x").write_bytes(data)
        assert refusal(tmp_path / "x") == says
    (tmp_path / "x").write_bytes(_zipped(whole))
    assert tar.unpacked(tmp_path / "x")


def _zipped(data):
    out = io.BytesIO()
    with gzip.GzipFile("", "wb", fileobj=out, mtime=0) as zipped:
        zipped.write(data)
    return out.getvalue()


def test_noise_and_what_is_cut_or_changed_is_refused_or_found(tmp_path):
    """Wherever one bit is another one, or the file ends."""
    source, made, path = random.Random(20261127), tar.packed("mine", FILES), tmp_path / "x"
    for at in source.sample(range(10, len(made)), 60):
        for data in (made[:at], made[:at] + bytes([made[at] ^ 1 << source.randrange(8)]) + made[at + 1 :]):
            path.write_bytes(data)
            assert "damaged" in refusal(path) or "unpacks to" in refusal(path)
    whole = gzip.decompress(made)
    for at in source.sample(range(len(whole)), 200):
        path.write_bytes(gzip.compress(whole[:at] + bytes([whole[at] ^ 1 << source.randrange(8)]) + whole[at + 1 :]))
        try:
            found = tar.unpacked(path)
        except tar.Refused:
            continue
        assert [*tar.differing(found)] or found == {**FILES, tar.MANIFEST: tar.manifest(FILES)}
    for length in (0, 1, 100, 10_000):
        path.write_bytes(source.randbytes(length))
        assert refusal(path)
        path.write_bytes(gzip.compress(source.randbytes(length)))
        assert refusal(path)


def test_each_file_that_is_not_as_the_manifest_says_is_named():
    whole = {**FILES, tar.MANIFEST: tar.manifest(FILES)}
    assert [*tar.differing(whole)] == []
    changed = {**whole, "results.json": b"[]", "more": b""}
    del changed["runs/x/0/stdout.log"]
    assert [*tar.differing(changed)] == [
        "more is not in MANIFEST.sha256",
        "results.json is not as MANIFEST.sha256 has it",
        "runs/x/0/stdout.log is missing",
    ]
    assert "MANIFEST.sha256 is missing" in [*tar.differing(FILES)]
    again = whole[tar.MANIFEST] + hashlib.sha256(b"[]").hexdigest().encode() + b"  results.json\nnonsense\n"
    assert len([*tar.differing({**whole, tar.MANIFEST: again})]) == 2


@given(
    st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=120), st.integers(0, 2**33 - 1)
)
def test_the_heads_that_are_compared_are_those_that_tarfile_writes(path, size):
    member = tarfile.TarInfo(path)
    member.size = size
    assert tar._head(path, size) == member.tobuf(tarfile.PAX_FORMAT)
