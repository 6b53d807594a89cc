"""The file of an archive: NAME.dlperf.tar.gz, which holds NAME/, and in it MANIFEST.sha256. The same files make the
same bytes. Reading never writes to disk, and refuses what none of dlperf's archives has."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, cast

from dlperf.errors import shortened, unprintable

SUFFIX, MANIFEST = ".dlperf.tar.gz", "MANIFEST.sha256"
#: of an archive that is read: files, bytes of one, bytes of all
FILES, LARGEST, TOTAL = 20_000, 2**27, 2**29
#: unpacked bytes for each packed one, from so many bytes on; logs have some tens
RATIO, SMALL = 200, 2**24
#: of gzip, as Python writes it: no name, no time, no comment
HEAD = b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"
#: the head of a file without a name in a tar, whose name is in the bytes 0-99, size in 124-135 and checksum in 148-155
USTAR = tarfile.TarInfo().tobuf(tarfile.PAX_FORMAT)
LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


class Refused(ValueError):
    """A file is no archive of dlperf's, or is damaged; the message says what of it."""


def packed(name: str, files: Mapping[str, bytes]) -> bytes:
    """An archive of files by their paths in it, and of the manifest over them. ValueError for a path that a line of the
    manifest cannot have, and for more than would be read again."""
    odd = [file for file in files if not _plain(file)]
    if odd:
        raise ValueError(f"{odd[0]!a} is not a name of a file in an archive")
    sizes = [len(data) for data in files.values()]
    if len(sizes) >= FILES or max(sizes, default=0) > LARGEST or sum(sizes) > TOTAL // 2:
        raise ValueError(f"{len(sizes):,} files with {sum(sizes):,} bytes are more than an archive may have")
    out = io.BytesIO()
    with gzip.GzipFile("", "wb", fileobj=out, mtime=0) as zipped:
        _write(name, {**files, MANIFEST: manifest(files)}, cast(BinaryIO, zipped))
    return out.getvalue()


def _write(name: str, files: Mapping[str, bytes], out: BinaryIO) -> None:
    """The tar of an archive."""
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in sorted(files):
            archive.addfile(_member(f"{name}/{file}", len(files[file])), io.BytesIO(files[file]))


def _member(path: str, size: int) -> tarfile.TarInfo:
    """Of no owner, made in 1970."""
    member = tarfile.TarInfo(path)
    member.size = size
    return member


def manifest(files: Mapping[str, bytes]) -> bytes:
    """As `sha256sum` writes it."""
    return "".join(f"{_digest(files[name])}  {name}\n" for name in sorted(files)).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _plain(name: str) -> bool:
    """Whether it is a path that stays where it is put, and that sha256sum writes as it is."""
    return (
        not {"", ".", ".."} & set(name.split("/"))
        and "\\" not in name
        and not name.startswith(" ")
        and not unprintable(name)
    )


def unpacked(path: Path) -> dict[str, bytes]:
    """The files of an archive by their paths in it, the manifest too. Refused for what is none of dlperf's, or has more
    in it than their content; OSError where it cannot be read."""
    with open(path, "rb") as file:
        packed = file.read(TOTAL)
    try:
        content = _unzipped(packed)
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            members = list(_members(archive))
    except (tarfile.TarError, zlib.error, EOFError, UnicodeError, OverflowError) as error:
        raise Refused(f"it is no archive of dlperf's, or is damaged ({shortened(str(error))})") from None
    tops = {member.name.partition("/")[0] for member in members}
    if len(tops) > 1:
        raise Refused(f"it has several folders: {', '.join(sorted(tops)[:5])}")
    last = max((member.offset_data + member.size for member in members), default=0)
    if content[last:].strip(b"\0"):
        raise Refused("something stands behind its last file")
    if not (packed.startswith(HEAD) and _as_written(content, members)):
        raise Refused("it holds more than its files: dlperf packs these in other bytes (order, padding or heads)")
    return {
        member.name.partition("/")[2]: content[member.offset_data : member.offset_data + member.size]
        for member in members
    }


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    seen: set[str] = set()
    for member in archive:
        name = member.name
        if not (_plain(name) and name.count("/")):
            raise Refused(f"{shortened(ascii(name))} does not stay in the archive's folder")
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
            raise Refused(f"{shortened(name)} is no plain file")
        if name in seen:
            raise Refused(f"{shortened(name)} is there twice")
        if len(seen) == FILES or not 0 <= member.size <= LARGEST:
            raise Refused(f"{shortened(name)} has {member.size:,} bytes, or is one of more than {FILES:,} files")
        if odd := _odd(member):
            raise Refused(f"{shortened(name)} has {odd}, and no file that dlperf packs has")
        seen.add(name)
        yield member


def _as_written(content: bytes, members: Iterable[tarfile.TarInfo]) -> bool:
    """Whether `_write` makes these bytes of these files. It is not called, which would take as long as all else."""
    at = 0
    for member in sorted(members, key=lambda member: member.name.partition("/")[2]):
        head = _head(member.name, member.size)
        end = at + len(head) + member.size
        padded = end + -member.size % tarfile.BLOCKSIZE
        if member.offset_data != at + len(head) or not content.startswith(head, at) or any(content[end:padded]):
            return False
        at = padded
    least = at + 2 * tarfile.BLOCKSIZE
    return len(content) == least + -least % tarfile.RECORDSIZE and not any(content[at:])


def _head(path: str, size: int) -> bytes:
    """What `_write` has before a file. tarfile takes five times as long for the usual one, whose name is short."""
    if len(path) > tarfile.LENGTH_NAME or not path.isascii():
        return _member(path, size).tobuf(tarfile.PAX_FORMAT)
    name, octal = path.encode().ljust(tarfile.LENGTH_NAME, b"\0"), b"%011o\0" % size
    head = b"".join((name, USTAR[100:124], octal, USTAR[136:148], b" " * 8, USTAR[156:]))
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]


def _odd(member: tarfile.TarInfo) -> str:
    """What a file has besides name and content, which unpacking would set, or could hide something in."""
    plain = tarfile.TarInfo()
    more = sorted(member.pax_headers.keys() - {"path"})
    if more:
        return f"a header {shortened(ascii(more[0]))}"
    if member.mode != plain.mode:
        return f"the mode {member.mode:o}"
    if (member.uid, member.gid, member.uname, member.gname, member.mtime) != (0, 0, "", "", 0):
        return "an owner or a time"
    return ""


def _unzipped(packed: bytes) -> bytes:
    """What a file of gzip unpacks to. Refused when that is more than it may be, and when something stands behind it;
    EOFError when it ends too early."""
    most = min(TOTAL, max(SMALL, RATIO * len(packed)))
    unzip = zlib.decompressobj(wbits=31)
    content = unzip.decompress(packed, most + 1)
    if len(content) > most:
        raise Refused(f"it unpacks to more than {most:,} bytes")
    if not unzip.eof:
        raise EOFError("it ends too early")
    if unzip.unused_data:
        raise Refused("something stands behind its end")
    return content


def differing(files: Mapping[str, bytes]) -> Iterator[str]:
    """What of an archive is not as its manifest says, a sentence for each file."""
    listed: dict[str, str] = {}
    for line in files.get(MANIFEST, b"").decode("utf-8", "replace").splitlines():
        if not (found := LINE.fullmatch(line)) or found[2] in listed:
            yield f"{MANIFEST} has a line that is not sha256sum's, or a file twice: {shortened(ascii(line))}"
        else:
            listed[found[2]] = found[1]
    if MANIFEST not in files:
        yield f"{MANIFEST} is missing"
    for name in sorted({*listed, *files} - {MANIFEST}):
        if name not in files:
            yield f"{shortened(name)} is missing"
        elif name not in listed:
            yield f"{shortened(name)} is not in {MANIFEST}"
        elif _digest(files[name]) != listed[name]:
            yield f"{shortened(name)} is not as {MANIFEST} has it"
