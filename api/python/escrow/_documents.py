"""What the service answers, as plain values that do not change. `document` is the whole JSON of an answer.

Names of files are str as Python's os has them: bytes that are not UTF-8 are surrogates (PEP 383), so that every name
comes through and os.fsencode() gives its bytes.
"""
from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def text_of(document: Mapping[str, Any], name: str) -> str:
    """A string that may have its exact bytes beside it."""
    exact = document.get(name + "_base64")
    if exact is None:
        return str(document.get(name) or "")
    return base64.b64decode(exact).decode("utf-8", "surrogateescape")


def bytes_of(path: PathLike) -> bytes:
    raw = os.fspath(path)
    return raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogateescape")


def without_none(**members: Any) -> Dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def set_bytes(document: Dict[str, Any], name: str, path: PathLike) -> None:
    """The member of a request: as NAME where it is UTF-8, else as NAME_base64."""
    raw = bytes_of(path)
    try:
        document[name] = raw.decode("utf-8")
    except UnicodeDecodeError:
        document[name + "_base64"] = base64.b64encode(raw).decode("ascii")


def paths_of(items: Any) -> Tuple[str, ...]:
    return tuple(text_of(one, "path") for one in items or ())


def names_of(answer: Mapping[str, Any]) -> List[str]:
    """Of savepoints."""
    return [str(one["name"]) for one in answer["savepoints"]]


@dataclass(frozen=True)
class Counts:
    added: int
    modified: int
    deleted: int


@dataclass(frozen=True)
class SessionInfo:
    """A session as it was when the service answered."""

    id: str
    repository: str
    branch: str
    path_prefix: str
    state: str  # open, awaiting_approval, committing, committed, commit_failed, rolled_back
    reason: str
    base: Optional[str]
    commit: Optional[str]
    result: Optional[str]  # the sealed result that awaits approval
    mountpoint: Optional[str]
    exit_code: Optional[int]
    message: str
    last_error: str
    reviewer: str
    review_comment: str
    committer: str
    conflicts: Tuple[str, ...]  # from the repository's root
    omitted: Tuple[str, ...]  # what the commit leaves out, from the session's root
    counts: Optional[Counts]
    labels: Mapping[str, str]
    external_id: Optional[str]
    document: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def has_ended(self) -> bool:
        return self.state in ("committed", "commit_failed", "rolled_back")


def session_info(document: Mapping[str, Any], repository: str = "") -> SessionInfo:
    return SessionInfo(**_session_members(document, repository))


def _session_members(document: Mapping[str, Any], repository: str) -> Dict[str, Any]:
    counts = document.get("counts")
    return {
        "id": document["session"],
        "repository": document.get("repository", repository),
        "branch": text_of(document, "branch"),
        "path_prefix": text_of(document, "path_prefix"),
        "state": document["state"],
        "reason": document["reason"],
        "base": document.get("base"),
        "commit": document.get("commit"),
        "result": document.get("result"),
        "mountpoint": text_of(document, "mountpoint") or None,
        "exit_code": document.get("exit_code"),
        "message": text_of(document, "message"),
        "last_error": text_of(document, "last_error"),
        "reviewer": text_of(document, "reviewer"),
        "review_comment": text_of(document, "review_comment"),
        "committer": text_of(document, "committer"),
        "conflicts": paths_of(document.get("conflicts")),
        "omitted": paths_of(document.get("omitted")),
        "counts": None if counts is None else Counts(counts["added"], counts["modified"], counts["deleted"]),
        "labels": dict(document.get("labels") or {}),
        "external_id": document.get("external_id"),
        "document": document,
    }


@dataclass(frozen=True)
class Transition:
    time: str
    origin: str  # the state before; empty: it was opened
    state: str
    who: str
    why: str


@dataclass(frozen=True)
class AuditEntry(SessionInfo):
    """A session that has ended or awaits approval, and how it came to be so."""

    denied_calls: int = 0
    history: Tuple[Transition, ...] = ()


def audit_entry(document: Mapping[str, Any], repository: str) -> AuditEntry:
    history = tuple(Transition(one["time"], one["from"], one["to"], one["who"], one["why"])
                    for one in document["history"])
    return AuditEntry(**_session_members(document, repository), denied_calls=document["denied_calls"], history=history)


@dataclass(frozen=True)
class RunInfo:
    """A run as it was when the service answered."""

    id: str
    state: str  # running, ended
    command: Tuple[str, ...]
    user: str
    cancel_requested: bool
    session: Optional[SessionInfo]
    document: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def has_ended(self) -> bool:
        return self.state == "ended"

    @property
    def exit_code(self) -> Optional[int]:
        return self.session.exit_code if self.session is not None else None


def run_info(document: Mapping[str, Any]) -> RunInfo:
    session = document.get("session")
    return RunInfo(id=document["run"], state=document["state"], command=tuple(document["command"]),
                   user=document["user"], cancel_requested=document["cancel_requested"],
                   session=None if session is None else session_info(session), document=document)


@dataclass(frozen=True)
class RunResult:
    """How a run ended, with all of its output that was kept."""

    run: str
    exit_code: Optional[int]
    state: str  # of its session
    reason: str
    commit: Optional[str]
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    session: Optional[SessionInfo] = field(repr=False)

    @property
    def ok(self) -> bool:
        """Committed, nothing to commit, or sealed for a reviewer."""
        return self.state in ("committed", "awaiting_approval")


@dataclass(frozen=True)
class FileVersion:
    mode: str
    id: str
    size: Optional[int]


@dataclass(frozen=True)
class Change:
    path: str  # from the repository's root
    change: str  # added, modified, deleted, type_changed
    before: Optional[FileVersion]
    after: Optional[FileVersion]


def changes_of(document: Mapping[str, Any]) -> List[Change]:
    def version(one: Optional[Mapping[str, Any]]) -> Optional[FileVersion]:
        return None if one is None else FileVersion(one["mode"], one["id"], one["size"])
    return [Change(text_of(one, "path"), one["change"], version(one["before"]), version(one["after"]))
            for one in document["changes"]]


@dataclass(frozen=True)
class Entry:
    """A name in a directory of a session."""

    name: str
    path: str  # from the session's root
    mode: str  # as git writes it
    size: int

    @property
    def is_directory(self) -> bool:
        return self.mode in ("040000", "160000")

    @property
    def is_link(self) -> bool:
        return self.mode == "120000"


@dataclass(frozen=True)
class CommitInfo:
    commit: str
    parents: Tuple[str, ...]
    author: str
    message: str
    audit: Mapping[str, str]  # the Escrow-* trailers
    claimed: bool  # no record of the service confirms them; anybody who can push can have written them
    document: Mapping[str, Any] = field(repr=False, compare=False)


def commit_info(document: Mapping[str, Any]) -> CommitInfo:
    return CommitInfo(document["commit"], tuple(document["parents"]), document["author"]["name"],
                      text_of(document, "message"), dict(document["audit"]),
                      document.get("claimed", bool(document["audit"])), document)


@dataclass(frozen=True)
class RepositoryInfo:
    name: str
    path: str
    default_branch: str
    error: Optional[str]  # why it cannot be used


def repository_info(document: Mapping[str, Any]) -> RepositoryInfo:
    return RepositoryInfo(document["name"], text_of(document, "path"), document["default_branch"], document["error"])
