"""Files that a program has elsewhere than on a disk, as a tree that a session can take."""
from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Awaitable, Callable, Dict, Iterator, List, Mapping, NamedTuple, Tuple, Union


class VirtualEntry(NamedTuple):
    """What stat and readdir say; kind is "file" or "directory", and the size of a directory is 0."""
    name: str
    kind: str
    size: int


class VirtualFileSystem(ABC):
    """A tree of files. Paths have no leading slash; "" is the root. A path that is not there is a FileNotFoundError."""

    @abstractmethod
    def read_file(self, path: str) -> bytes: ...

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def stat(self, path: str) -> VirtualEntry: ...

    @abstractmethod
    def readdir(self, path: str) -> List[VirtualEntry]: ...

    def files(self, path: str = "") -> Iterator[Tuple[str, bytes]]:
        """Every file below `path`, with its path from the root. One file's content is held at a time."""
        for entry in self.readdir(path):
            inner = f"{path}/{entry.name}" if path else entry.name
            if entry.kind == "directory":
                yield from self.files(inner)
            else:
                yield inner, self.read_file(inner)


class MemoryFS(VirtualFileSystem):
    """Files of a dictionary from path to content; directories are those that the paths name."""

    def __init__(self, files: Mapping[str, Union[str, bytes]]) -> None:
        self._files: Dict[str, bytes] = {}
        self._directories: Dict[str, Dict[str, None]] = {"": {}}
        for path, content in files.items():
            self._add(path, content.encode("utf-8", "surrogateescape") if isinstance(content, str) else bytes(content))

    def read_file(self, path: str) -> bytes:
        if path in self._directories:
            raise IsADirectoryError(f"{path!r} is a directory")
        if path not in self._files:
            raise FileNotFoundError(f"{path!r} is not in this MemoryFS")
        return self._files[path]

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def stat(self, path: str) -> VirtualEntry:
        name = path.rpartition("/")[2]
        if path in self._directories:
            return VirtualEntry(name, "directory", 0)
        return VirtualEntry(name, "file", len(self.read_file(path)))

    def readdir(self, path: str) -> List[VirtualEntry]:
        if path in self._files:
            raise NotADirectoryError(f"{path!r} is a file")
        if path not in self._directories:
            raise FileNotFoundError(f"{path!r} is not in this MemoryFS")
        return [self.stat(f"{path}/{name}" if path else name) for name in self._directories[path]]

    def _add(self, path: str, content: bytes) -> None:
        names = path.split("/")
        if any(name in ("", ".", "..") for name in names):
            raise ValueError(f"{path!r} is no path of a MemoryFS: write it without a leading slash, '.' and '..'")
        directory = ""
        for depth, name in enumerate(names):
            self._directories[directory][name] = None
            inner = f"{directory}/{name}" if directory else name
            if depth + 1 == len(names):
                if inner in self._directories:
                    raise ValueError(f"{inner!r} is a file and a directory: give it one of the two")
                self._files[inner] = content
            else:
                if inner in self._files:
                    raise ValueError(f"{inner!r} is a file and a directory: give it one of the two")
                self._directories.setdefault(inner, {})
            directory = inner


async def write_tree(write: Callable[[str, bytes], Awaitable[Any]], path: str, files: VirtualFileSystem) -> List[str]:
    """The paths written, in the order of the walk. When one is refused, those before it stay written."""
    written: List[str] = []
    for inner, content in files.files():
        target = f"{path}/{inner}" if path else inner
        await write(target, content)
        written.append(target)
    return written
