"""The file of an archive: NAME.dlperf.tar.gz, which holds NAME/, and in it MANIFEST.sha256. The same files make the
same bytes. Reading never writes to disk, and refuses what none of dlperf's archives has."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from dlperf.errors import shortened, unprintable

SUFFIX, MANIFEST = ".dlperf.tar.gz", "MANIFEST.sha256"
#: of an archive that is read: files, bytes of one, bytes of all
FILES, LARGEST, TOTAL = 20_000, 2**27, 2**29
#: unpacked bytes for each packed one, from so many bytes on; logs have some tens
RATIO, SMALL = 200, 2**24
#: of gzip, as Python writes it: no name, no time, no comment
HEAD = b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"
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
    """The tar of an archive; one that is read is to have the same bytes."""
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in sorted(files):
            member = tarfile.TarInfo(f"{name}/{file}")  # of no owner, made in 1970
            member.size = len(files[file])
            archive.addfile(member, io.BytesIO(files[file]))


def manifest(files: Mapping[str, bytes]) -> bytes:
    """As `sha256sum` writes it."""
    return "".join(f"{_digest(files[name])}  {name}\n" for name in sorted(files)).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _plain(name: str) -> bool:
    """Whether it is a path that stays where it is put, and that sha256sum writes as it is."""
    path = PurePosixPath(name)
    return (
        str(path) == name
        and not path.is_absolute()
        and ".." not in path.parts
        and name != "."
        and "\\" not in name
        and not name.startswith(" ")
        and not unprintable(name)
    )


def unpacked(path: Path) -> dict[str, bytes]:
    """The files of an archive by their paths in it, the manifest too. Refused for what is none of dlperf's, or has more
    in it than their content; OSError where it cannot be read."""
    with open(path, "rb") as file:
        head = file.read(len(HEAD))
        file.seek(0)
        most = min(TOTAL, max(SMALL, RATIO * os.fstat(file.fileno()).st_size))
        stream = _Unzipped(file, most)
        try:
            with tarfile.open(fileobj=cast(BinaryIO, stream), mode="r|", bufsize=2**16) as archive:
                found = dict(_members(archive))
                assert archive.fileobj is not None
                while rest := archive.fileobj.read(2**20):
                    if rest.strip(b"\0"):
                        raise Refused("something stands behind its last file")
        except (tarfile.TarError, zlib.error, EOFError, UnicodeError, OverflowError) as error:
            raise Refused(f"it is no archive of dlperf's, or is damaged ({shortened(str(error))})") from None
    tops = {name.partition("/")[0] for name in found}
    if len(tops) > 1:
        raise Refused(f"it has several folders: {', '.join(sorted(tops)[:5])}")
    files, again = {name.partition("/")[2]: data for name, data in found.items()}, _Digest()
    _write("".join(tops), files, cast(BinaryIO, again))
    if head != HEAD or stream.digest.hexdigest() != again.digest.hexdigest():
        raise Refused("it holds more than its files: dlperf packs these in other bytes (order, padding or heads)")
    return files


def _members(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
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
        content = archive.extractfile(member)
        assert content is not None, name
        yield name, content.read()


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


class _Digest:
    """A file of which only its digest is kept."""

    def __init__(self) -> None:
        self.digest, self._size = hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size


class _Unzipped:
    """What a file of gzip unpacks to. It ends in Refused when that is more than it may be, and when something stands
    behind it. digest: of what was read."""

    def __init__(self, file: BinaryIO, most: int):
        self._file, self._most, self._given = file, most, 0
        self._unzip, self._rest, self.digest = zlib.decompressobj(wbits=31), b"", hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = b""
        while size > 0 and not data and not self._unzip.eof:
            self._rest = self._rest or self._file.read(2**16)
            if not self._rest:
                raise EOFError("it ends too early")
            data = self._unzip.decompress(self._rest, min(size, self._most - self._given + 1))
            self._rest = self._unzip.unconsumed_tail
        if self._unzip.eof and (self._unzip.unused_data or self._file.read(1)):
            raise Refused("something stands behind its end")
        self._given += len(data)
        if self._given > self._most:
            raise Refused(f"it unpacks to more than {self._most:,} bytes")
        self.digest.update(data)
        return data


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
