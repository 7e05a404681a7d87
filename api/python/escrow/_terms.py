"""The bodies of requests that open sessions and order runs."""
from __future__ import annotations

import base64
from typing import Any, Dict, Mapping, Optional, Sequence

from ._documents import PathLike, set_bytes


def opening(*, path_prefix: Optional[PathLike], branch: Optional[str], mountpoint: Optional[PathLike],
            message: Optional[str], require_approval: bool, read_only: bool,
            options: Mapping[str, Any]) -> Dict[str, Any]:
    """`options` goes as it is: the service knows its fields, and refuses others by name."""
    document: Dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for name, path in (("path_prefix", path_prefix), ("mountpoint", mountpoint)):
        if path is not None:
            set_bytes(document, name, path)
    for name, value in (("branch", branch), ("message", message)):
        if value is not None:
            document[name] = value
    if require_approval:
        document["require_approval"] = True
    if read_only:
        document["read_only"] = True
    return document


def order(command: Sequence[str], *, env: Optional[Mapping[str, str]], timeout_ms: Optional[int],
          memory_bytes: Optional[int], path_prefix: Optional[PathLike], branch: Optional[str], message: Optional[str],
          require_approval: bool, options: Mapping[str, Any]) -> Dict[str, Any]:
    if isinstance(command, (str, bytes)):
        raise TypeError("the command is a list of words; of a shell's line it is ['sh', '-c', line]")
    rest = dict(options)
    document = opening(path_prefix=path_prefix, branch=branch, mountpoint=rest.pop("mountpoint", None),
                       message=message, require_approval=require_approval, read_only=rest.pop("read_only", False),
                       options=rest)
    words = [word.encode("utf-8", "surrogateescape") for word in command]
    try:
        document["command"] = [word.decode("utf-8") for word in words]
    except UnicodeDecodeError:
        document["command_base64"] = [base64.b64encode(word).decode("ascii") for word in words]
    for name, value in (("timeout_ms", timeout_ms), ("memory_bytes", memory_bytes),
                        ("env", dict(env) if env is not None else None)):
        if value is not None:
            document[name] = value
    return document
