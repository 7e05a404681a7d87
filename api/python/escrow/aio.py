"""The client for asyncio. escrow.Client is the same, blocking.

    async with escrow.aio.connect().session("data") as s:
        await s.write("note.txt", "hello")
"""
from __future__ import annotations

import asyncio
import base64
from time import monotonic
from types import TracebackType
from typing import (Any, AsyncIterator, Dict, Generator, Iterable, List, Literal, Mapping, Optional, Sequence, Tuple,
                    Type, Union, overload)

from ._channel import AsyncChannel, Channel, address_of
from ._documents import (AuditEntry, Change, CommitInfo, Entry, PathLike, RepositoryInfo, RunInfo, RunResult,
                         SessionInfo, audit_entry, bytes_of, changes_of, commit_info, names_of, repository_info,
                         run_info, session_info, set_bytes, text_of, without_none)
from ._errors import CommitFailed, Conflict, EscrowError, NotFound, RunFailed, WaitTimeout
from ._requests import POLL_MS, Query, Requests, target_of
from ._terms import opening, order
from ._virtual_files import VirtualFileSystem, write_tree

Content = Union[str, bytes, bytearray, memoryview]
RunLike = Union["Run", RunInfo, RunResult, str]
SessionLike = Union["Session", SessionInfo, str]
Failure = Union[RunFailed, Conflict, CommitFailed]
MOST_RUNS = 256  # of one wait
ENDED = "committed,commit_failed,rolled_back"


def run_id(run: Any) -> str:
    return run if isinstance(run, str) else str(run.run if isinstance(run, RunResult) else run.id)


def session_id(session: Any) -> str:
    return session if isinstance(session, str) else str(session.id)


class Deadline:
    """How long something is waited for, poll after poll; None: for ever."""

    def __init__(self, what: str, timeout_s: Optional[float], now: float) -> None:
        self._what, self._timeout_s = what, timeout_s
        self._ends = None if timeout_s is None else now + timeout_s

    def poll_ms(self, now: float) -> int:
        if self._ends is None:
            return POLL_MS
        return max(0, min(POLL_MS, int((self._ends - now) * 1000)))

    def check(self, now: float) -> None:
        if self._ends is not None and now >= self._ends:
            raise WaitTimeout(f"{self._what} has not ended within {self._timeout_s:g} s")


def connect(host: Optional[str] = None, token: Optional[str] = None, *, ca: Optional[str] = None,
            patience: float = 30.0, timeout: float = 300.0) -> Client:
    """See escrow.connect()."""
    return Client(AsyncChannel(address_of(host, token, ca)), patience, timeout)


class Client:
    """One service. It holds no connection; any number of tasks may use it."""

    def __init__(self, channel: Channel, patience: float, timeout: float) -> None:
        self.requests = Requests(channel, patience, timeout)

    # ---- Sessions.

    def session(self, repository: Optional[str] = None, *, path_prefix: Optional[PathLike] = None,
                branch: Optional[str] = None, mountpoint: Optional[PathLike] = None, message: Optional[str] = None,
                require_approval: bool = False, read_only: bool = False, **options: Any) -> Opening:
        """Opens a session: to be awaited, or entered with `async with`. See escrow.Client.session()."""
        return Opening(self, repository, opening(
            path_prefix=path_prefix, branch=branch, mountpoint=mountpoint, message=message,
            require_approval=require_approval, read_only=read_only, options=options))

    async def attach(self, session: SessionLike) -> Session:
        """A session that is there already; leaving its `with` block commits or rolls back, too."""
        return Session(self, await self.status(session))

    async def sessions(self, *, state: Optional[str] = None, repository: Optional[str] = None,
                       labels: Optional[Mapping[str, str]] = None, external_id: Optional[str] = None,
                       principal: Optional[str] = None) -> AsyncIterator[SessionInfo]:
        query = _filter(state, repository, labels, external_id, principal)
        async for one in self.requests.pages(("sessions",), query, "sessions"):
            yield session_info(one)

    async def status(self, session: SessionLike, with_changes: bool = False) -> SessionInfo:
        target = target_of("sessions", session_id(session), query=[("with_changes", with_changes or None)])
        return session_info(await self.requests.json("GET", target))

    async def changes(self, session: SessionLike) -> List[Change]:
        return changes_of(await self.requests.json("GET", target_of("sessions", session_id(session), "changes")))

    async def diff(self, session: SessionLike, format: str = "patch",  # pylint: disable=redefined-builtin
                   path: Optional[PathLike] = None, since: Optional[str] = None) -> bytes:
        query: Query = [("format", format), ("path", None if path is None else bytes_of(path)), ("since", since)]
        return (await self.requests.send("GET", target_of("sessions", session_id(session), "diff", query=query))).body

    async def verb(self, session: SessionLike, name: str, document: Optional[Mapping[str, Any]] = None) -> SessionInfo:
        target = target_of("sessions", session_id(session), name)
        return session_info(await self.requests.json("POST", target, document))

    # ---- Review.

    async def waiting(self, repository: Optional[str] = None) -> List[SessionInfo]:
        """The sessions whose sealed results await approval, oldest first."""
        return [one async for one in self.sessions(state="awaiting_approval", repository=repository)]

    async def approve(self, session: SessionLike, result: Optional[str] = None, *, comment: Optional[str] = None,
                      message: Optional[str] = None) -> SessionInfo:
        """Commits exactly `result`; default: the one that the SessionInfo has, which is the one that was looked at."""
        info = session.info if isinstance(session, Session) else session
        seen = result or (info.result if isinstance(info, SessionInfo) else None)
        if not seen:
            raise ValueError("approve() needs the id of the result that was looked at")
        return await self.verb(session, "approve", without_none(result=seen, comment=comment, message=message))

    async def reject(self, session: SessionLike, comment: Optional[str] = None) -> SessionInfo:
        return await self.verb(session, "reject", without_none(comment=comment))

    async def audit(self, repository: Optional[str] = None, *, session: Optional[str] = None,
                    branch: Optional[str] = None, states: Iterable[str] = (),
                    since_ms: Optional[int] = None) -> AsyncIterator[AuditEntry]:
        """What became of the sessions, oldest first."""
        name = await self._repository(repository)
        query: Query = [("session", session), ("branch", branch), ("states", ",".join(states) or None),
                        ("since_ms", since_ms)]
        async for one in self.requests.pages(("repositories", name, "audit"), query, "sessions"):
            yield audit_entry(one, name)

    # ---- Repositories.

    async def repositories(self) -> List[RepositoryInfo]:
        answer = await self.requests.json("GET", target_of("repositories"))
        return [repository_info(one) for one in answer["repositories"]]

    async def register(self, name: str, path: Optional[PathLike] = None, *, create: bool = False,
                       branch: Optional[str] = None) -> RepositoryInfo:
        """For operators. With `create` it is made when it is missing."""
        document = without_none(name=name, create=create or None, branch=branch)
        if path is not None:
            set_bytes(document, "path", path)
        return repository_info(await self.requests.json("POST", target_of("repositories"), document))

    async def branches(self, repository: Optional[str] = None) -> Dict[str, str]:
        """The head of each branch."""
        name = await self._repository(repository)
        answer = await self.requests.json("GET", target_of("repositories", name, "branches"))
        return {text_of(one, "name"): one["head"] for one in answer["branches"]}

    async def log(self, repository: Optional[str] = None, *, branch: Optional[str] = None,
                  path: Optional[PathLike] = None) -> AsyncIterator[CommitInfo]:
        """Commits with their audit records, newest first."""
        name = await self._repository(repository)
        query: Query = [("branch", branch), ("path", None if path is None else bytes_of(path))]
        async for one in self.requests.pages(("repositories", name, "log"), query, "commits"):
            yield commit_info(one)

    async def _repository(self, name: Optional[str]) -> str:
        if name is not None:
            return name
        names = [one.name for one in await self.repositories()]
        if len(names) != 1:
            raise ValueError(f"name a repository: the service has {', '.join(names) or 'none'}")
        return names[0]

    # ---- Runs.

    async def spawn(self, repository: Optional[str], command: Sequence[str], *, env: Optional[Mapping[str, str]] = None,
                    timeout_ms: Optional[int] = None, memory_bytes: Optional[int] = None,
                    path_prefix: Optional[PathLike] = None, branch: Optional[str] = None,
                    message: Optional[str] = None, require_approval: bool = False, **options: Any) -> Run:
        """Starts a command in a session of its own. See escrow.Client.spawn()."""
        document = order(command, env=env, timeout_ms=timeout_ms, memory_bytes=memory_bytes, path_prefix=path_prefix,
                         branch=branch, message=message, require_approval=require_approval, options=options)
        document["repository"] = await self._repository(repository)
        return Run(self, run_info(await self.requests.json("POST", target_of("runs"), document)))

    async def runs(self, *, state: Optional[str] = None, repository: Optional[str] = None,
                   labels: Optional[Mapping[str, str]] = None, external_id: Optional[str] = None,
                   principal: Optional[str] = None) -> AsyncIterator[RunInfo]:
        query = _filter(state, repository, labels, external_id, principal)
        async for one in self.requests.pages(("runs",), query, "runs"):
            yield run_info(one)

    async def run(self, run: RunLike) -> RunInfo:
        return run_info(await self.requests.json("GET", target_of("runs", run_id(run))))

    async def wait(self, run: RunLike, timeout: Optional[float] = None) -> RunInfo:
        """The run when it has ended. Raises WaitTimeout; the run goes on then."""
        return (await self.wait_all([run], timeout))[0]

    async def wait_all(self, runs: Iterable[RunLike], timeout: Optional[float] = None) -> List[RunInfo]:
        """The runs when all of them have ended, in the same order."""
        return await self._wait(runs, timeout, "all")

    async def wait_any(self, runs: Iterable[RunLike], timeout: Optional[float] = None) -> List[RunInfo]:
        """The runs (at most 256) when one of them at least has ended, in the same order."""
        ids = list(runs)
        if not 0 < len(ids) <= MOST_RUNS:
            raise ValueError(f"wait_any() takes 1 to {MOST_RUNS} runs")
        return await self._wait(ids, timeout, "any")

    async def _wait(self, runs: Iterable[RunLike], timeout: Optional[float], which: str) -> List[RunInfo]:
        ids = [run_id(one) for one in runs]
        deadline = Deadline("a run", timeout, monotonic())
        ended: List[RunInfo] = []
        for first in range(0, len(ids), MOST_RUNS):
            part = ",".join(ids[first:first + MOST_RUNS])
            while True:
                query: Query = [("ids", part), ("for", which), ("timeout_ms", deadline.poll_ms(monotonic()))]
                answer = await self.requests.json("GET", target_of("runs", "wait", query=query))
                if answer["done"]:
                    ended += [run_info(one) for one in answer["runs"]]
                    break
                deadline.check(monotonic())
        return ended

    @overload
    async def gather(self, runs: Iterable[RunLike], *, timeout: Optional[float] = ...,
                     return_exceptions: Literal[False] = ...) -> List[RunResult]: ...

    @overload
    async def gather(self, runs: Iterable[RunLike], *, timeout: Optional[float] = ...,
                     return_exceptions: Literal[True]) -> List[Union[RunResult, Failure]]: ...

    async def gather(self, runs: Iterable[RunLike], *, timeout: Optional[float] = None,
                     return_exceptions: bool = False) -> Any:
        """Waits for all, and returns their results with all output. The first run that was not committed raises
        RunFailed or Conflict, when all have ended; with return_exceptions these are in the list.
        """
        found: List[Union[RunResult, Failure]] = []
        for info in await self.wait_all(runs, timeout):
            result = await self.result(info)
            failure = failure_of(result)
            found.append(failure if failure is not None else result)
        failures = [one for one in found if isinstance(one, EscrowError)]
        if failures and not return_exceptions:
            raise failures[0]
        return found

    async def result(self, run: RunLike) -> RunResult:
        """Of a run that has ended: how, and all of its output that was kept."""
        info = run if isinstance(run, RunInfo) else await self.run(run)
        if not info.has_ended:
            raise ValueError(f"run {info.id} has not ended")
        session = info.session
        return RunResult(
            run=info.id, exit_code=info.exit_code, state=session.state if session else "forgotten",
            reason=session.reason if session else "forgotten", commit=session.commit if session else None,
            stdout=await self.output(info), stderr=await self.output(info, "stderr"), session=session)

    async def is_alive(self, run: RunLike) -> bool:
        """False for a run that has ended, or that was freed."""
        try:
            return not (await self.run(run)).has_ended
        except NotFound:
            return False

    async def output(self, run: RunLike, stream: str = "stdout") -> bytes:
        """What the command has written so far. The first bytes of a stream are kept, up to the service's limit."""
        pieces: List[bytes] = []
        offset = 0
        while True:
            query: Query = [("stream", stream), ("offset", offset)]
            answer = await self.requests.send("GET", target_of("runs", run_id(run), "output", query=query))
            pieces.append(answer.body)
            offset = int(answer.headers.get("escrow-next-offset", offset + len(answer.body)))
            if not answer.body or answer.headers.get("escrow-complete") == "true":
                return b"".join(pieces)

    def follow(self, run: RunLike, stream: str = "stdout") -> AsyncIterator[bytes]:
        """The output as it comes, until the run has ended; also over a restart of the service."""
        return self.requests.follow(("runs", run_id(run), "output"), [("stream", stream)])

    async def cancel(self, run: RunLike) -> RunInfo:
        """SIGTERM, then SIGKILL; the run is rolled back whatever it exits with."""
        return run_info(await self.requests.json("POST", target_of("runs", run_id(run), "cancel")))

    async def free(self, run: RunLike) -> None:
        """Drops the output of a run that has ended. The record of its session stays."""
        await self.requests.send("DELETE", target_of("runs", run_id(run)))

    async def sandbox_spawn(self, code: Union[str, Sequence[str]], timeout_ms: Optional[int] = None,
                            memory_bytes: Optional[int] = None, *, repository: Optional[str] = None,
                            **options: Any) -> Run:
        """spawn() of Python source (`python3 -c`), or of a command."""
        command = ["python3", "-c", code] if isinstance(code, str) else code
        return await self.spawn(repository, command, timeout_ms=timeout_ms, memory_bytes=memory_bytes, **options)

    sandbox_await = wait
    sandbox_await_all = wait_all
    sandbox_gather = gather
    sandbox_is_alive = is_alive
    sandbox_free = free
    sandbox_get_output = output




def _filter(state: Optional[str], repository: Optional[str], labels: Optional[Mapping[str, str]],
            external_id: Optional[str], principal: Optional[str]) -> Query:
    query: List[Tuple[str, Union[str, bytes, int, bool, None]]] = [
        ("state", state), ("repository", repository), ("external_id", external_id), ("principal", principal)]
    return query + [("label", f"{name}:{value}") for name, value in (labels or {}).items()]


def failure_of(result: RunResult) -> Optional[Failure]:
    if result.ok:
        return None
    session = result.session
    if session is not None and session.state == "commit_failed":
        return not_committed(session)
    return RunFailed(result)


def not_committed(info: SessionInfo) -> Union[Conflict, CommitFailed]:
    """What a session that ended as commit_failed raises."""
    if info.reason != "conflict":
        return CommitFailed(info)
    paths = ", ".join(info.conflicts)
    return Conflict({"code": "conflict", "status": 409, "exit_code": 122, "state": info.state, "reason": info.reason,
                     "detail": f"session {info.id} and branch {info.branch} both changed: {paths}",
                     "conflicts": info.document.get("conflicts", [])}, info)


class Opening:
    """A session that is opened when this is awaited or entered."""

    def __init__(self, client: Client, repository: Optional[str], document: Dict[str, Any]) -> None:
        self._client, self._repository, self._document = client, repository, document
        self._session: Optional[Session] = None

    async def _open(self) -> Session:
        document = dict(self._document)
        document["repository"] = await self._client._repository(self._repository)
        answer = await self._client.requests.json("POST", target_of("sessions"), document)
        return Session(self._client, session_info(answer))

    def __await__(self) -> Generator[Any, None, Session]:
        return self._open().__await__()

    async def __aenter__(self) -> Session:
        self._session = await self._open()
        return self._session

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if self._session is not None:
            await self._session.__aexit__(kind, error, trace)


class Session:
    """An open session. Paths of files are as a program in its mount has them: from path_prefix."""

    def __init__(self, client: Client, info: SessionInfo) -> None:
        self._client = client
        self.info = info

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def state(self) -> str:
        return self.info.state

    @property
    def mountpoint(self) -> Optional[str]:
        return self.info.mountpoint

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if self.info.state != "open":
            return
        if error is None:
            await self.finish(exit_code=0)
            return
        is_cancel = isinstance(error, (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit))
        try:
            await (self.finish(cancelled=True) if is_cancel else self.finish(exit_code=1))
        except EscrowError:
            pass  # the block's own exception says more; who has a lease is rolled back by it

    def _path(self, path: PathLike) -> bytes:
        raw, prefix = bytes_of(path), bytes_of(self.info.path_prefix)
        if not raw or raw.startswith(b"/"):
            raise ValueError(f"{path!r} is not the path of a file, from the session's root")
        return prefix + b"/" + raw if prefix else raw

    def _target(self, path: PathLike, query: Query = ()) -> str:
        return target_of("sessions", self.id, "files", self._path(path), query=query)

    async def read(self, path: PathLike, *, base: bool = False) -> bytes:
        """A file's content, of a symbolic link its target; with `base` as it was before the session."""
        return (await self._client.requests.send("GET", self._target(path, [("side", "base" if base else None)]))).body

    async def read_text(self, path: PathLike, encoding: str = "utf-8", *, base: bool = False) -> str:
        return (await self.read(path, base=base)).decode(encoding)

    async def write(self, path: PathLike, content: Content, *, executable: Optional[bool] = None) -> None:
        """Writes the whole file; missing directories are made. It is on the service's disk on return."""
        mode = None if executable is None else ("100755" if executable else "100644")
        raw = content.encode("utf-8") if isinstance(content, str) else bytes(content)
        await self._client.requests.send("PUT", self._target(path, [("mode", mode)]), content=raw)

    async def write_files(self, path: str, files: VirtualFileSystem) -> List[str]:
        """Copies every file of `files` below `path`; they are files of the session, and its commit has them."""
        return await write_tree(self.write, path, files)

    async def delete(self, path: PathLike) -> None:
        """A file, a link or an empty directory."""
        await self._client.requests.send("DELETE", self._target(path))

    async def list(self, path: PathLike = "", *, recursive: bool = False) -> List[Entry]:
        """The names in a directory, in the order of their bytes; with `recursive` also what is below, depth first."""
        found: List[Entry] = []
        below = text_of_path(path)
        query: Query = [("path", self._path(path) if below else None)]
        async for one in self._client.requests.pages(("sessions", self.id, "entries"), query, "entries"):
            name = text_of(one, "name")
            entry = Entry(name, f"{below}/{name}" if below else name, one["mode"], one["size"])
            found.append(entry)
            if recursive and entry.mode == "040000":
                found += await self.list(entry.path, recursive=True)
        return found

    async def changes(self) -> List[Change]:
        """What a commit would change; paths from the repository's root."""
        return await self._client.changes(self)

    async def diff(self, format: str = "patch", path: Optional[PathLike] = None,  # pylint: disable=W0622
                   since: Optional[str] = None) -> bytes:
        """The same as git shows it: patch, stat or name_status; `path` is from the repository's root, `since` a
        savepoint.
        """
        return await self._client.diff(self, format, path, since)

    async def status(self, with_changes: bool = False) -> SessionInfo:
        self.info = await self._client.status(self, with_changes)
        return self.info

    async def _verb(self, name: str, document: Optional[Mapping[str, Any]] = None) -> SessionInfo:
        self.info = await self._client.verb(self, name, document)
        return self.info

    async def mount(self, mountpoint: PathLike, *, show_git: Sequence[str] = (),
                    mount_options: Optional[Sequence[str]] = None) -> str:
        """Mounts it below one of the service's mount_roots; shows the .git of others at `show_git`, which git obeys."""
        document = without_none(show_git=list(show_git) or None, mount_options=mount_options)
        set_bytes(document, "mountpoint", mountpoint)
        return (await self._verb("mount", document)).mountpoint or ""

    async def unmount(self) -> None:
        await self._verb("unmount")

    async def renew(self, lease_ms: Optional[int] = None) -> SessionInfo:
        """Of a session with lease_ms: not renewed in time it is rolled back."""
        return await self._verb("lease", without_none(lease_ms=lease_ms))

    async def update(self) -> List[str]:
        """Brings it onto the branch's new head. Returns the paths that both changed: then it stays as it was."""
        answer = await self._client.requests.json("POST", target_of("sessions", self.id, "update"))
        return [text_of(one, "path") for one in answer["conflicts"]]

    async def unresolved(self) -> List[str]:
        """The paths that both it and others changed, which keep it from being committed."""
        answer = await self._client.requests.json("GET", target_of("sessions", self.id, "unresolved"))
        return [text_of(one, "path") for one in answer["unresolved"]]

    async def resolve(self, *paths: PathLike, how: str) -> List[str]:
        """Settles such paths, or all below a directory: "mine" (the session's side stays), "theirs" (the branch's
        comes into it) or "merged" (what is in the session now is the merge). Returns those that are left."""
        document = {**_paths(paths), "how": how}
        answer = await self._client.requests.json("POST", target_of("sessions", self.id, "resolve"), document)
        return [text_of(one, "path") for one in answer["unresolved"]]

    async def resume(self) -> "Session":
        """Of one whose commit met a conflict, or that failed and kept its result: a new session with what it did, on
        the branch's new head."""
        answer = await self._client.requests.json("POST", target_of("sessions", self.id, "resume"))
        return Session(self._client, session_info(answer))

    async def savepoints(self) -> List[str]:
        """The names of its savepoints, the oldest first."""
        return names_of(await self._client.requests.json("GET", target_of("sessions", self.id, "savepoints")))

    async def savepoint(self, name: str) -> List[str]:
        """Keeps what it has now, mounted or not; nothing is copied. Returns all names."""
        target = target_of("sessions", self.id, "savepoints")
        return names_of(await self._client.requests.json("POST", target, {"name": name}))

    async def restore(self, name: str) -> str:
        """Goes back to a savepoint; returns the name of that which it makes first. Changed caches begin anew."""
        target = target_of("sessions", self.id, "savepoints", name, "restore")
        return str((await self._client.requests.json("POST", target))["undo"])

    async def drop_savepoint(self, name: str) -> None:
        await self._client.requests.json("DELETE", target_of("sessions", self.id, "savepoints", name))

    async def discard(self, *paths: PathLike) -> None:
        """Takes paths (from the repository's root) back to what the base has."""
        await self._client.requests.json("POST", target_of("sessions", self.id, "discard"), _paths(paths))

    async def finish(self, *, exit_code: Optional[int] = None, signal: Optional[int] = None, cancelled: bool = False,
                     message: Optional[str] = None) -> SessionInfo:
        """How the work ended: exit_code 0 commits, or seals for a reviewer; everything else rolls back. A conflict ends
        the session, and raises Conflict.
        """
        info = await self._verb("finish", without_none(exit_code=exit_code, signal=signal, cancelled=cancelled or None,
                                                       message=message))
        if info.state == "commit_failed":
            raise not_committed(info)
        return info

    async def commit(self, message: Optional[str] = None) -> SessionInfo:
        """Commits now. A conflict raises Conflict and leaves the session open."""
        return await self._verb("commit", without_none(message=message))

    async def rollback(self, keep_result: bool = False) -> SessionInfo:
        return await self._verb("rollback", without_none(keep_result=keep_result or None))

    async def wait(self, timeout: Optional[float] = None, states: str = ENDED) -> SessionInfo:
        """The session when it has ended, for example when a reviewer has decided. Raises WaitTimeout."""
        deadline = Deadline(f"session {self.id}", timeout, monotonic())
        while True:
            query: Query = [("states", states), ("timeout_ms", deadline.poll_ms(monotonic()))]
            answer = await self._client.requests.json("GET", target_of("sessions", self.id, "wait", query=query))
            self.info = session_info(answer)
            if self.info.state in states.split(","):
                return self.info
            deadline.check(monotonic())


def text_of_path(path: PathLike) -> str:
    return bytes_of(path).decode("utf-8", "surrogateescape").rstrip("/")


def _paths(paths: Sequence[PathLike]) -> Dict[str, Any]:
    given = [bytes_of(one) for one in paths]
    if all(_is_utf8(one) for one in given):
        return {"paths": [one.decode("utf-8") for one in given]}
    return {"paths_base64": [base64.b64encode(one).decode("ascii") for one in given]}


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class Run:
    """A run of a command. `info` is as of the last answer."""

    def __init__(self, client: Client, info: RunInfo) -> None:
        self._client = client
        self.info = info

    @property
    def id(self) -> str:
        return self.info.id

    async def wait(self, timeout: Optional[float] = None) -> RunInfo:
        self.info = await self._client.wait(self, timeout)
        return self.info

    async def result(self, timeout: Optional[float] = None) -> RunResult:
        """Waits; raises RunFailed or Conflict where it was not committed."""
        result = await self._client.result(await self.wait(timeout))
        failure = failure_of(result)
        if failure is not None:
            raise failure
        return result

    async def is_alive(self) -> bool:
        return await self._client.is_alive(self)

    async def output(self, stream: str = "stdout") -> bytes:
        return await self._client.output(self, stream)

    def follow(self, stream: str = "stdout") -> AsyncIterator[bytes]:
        return self._client.follow(self, stream)

    async def cancel(self) -> RunInfo:
        self.info = await self._client.cancel(self)
        return self.info

    async def free(self) -> None:
        await self._client.free(self)
