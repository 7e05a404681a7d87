"""The blocking client: each method runs its namesake of escrow.aio to its end."""
from __future__ import annotations

from types import TracebackType
from typing import Any, Dict, Iterable, Iterator, List, Literal, Mapping, Optional, Sequence, Type, Union, overload

from . import aio
from ._channel import SyncChannel, address_of, drive, drive_all
from ._documents import (AuditEntry, Change, CommitInfo, Entry, PathLike, RepositoryInfo, RunInfo, RunResult,
                         SessionInfo)
from ._virtual_files import VirtualFileSystem

RunLike = Union["Run", RunInfo, RunResult, str]
SessionLike = Union["Session", SessionInfo, str]


def connect(host: Optional[str] = None, token: Optional[str] = None, *, ca: Optional[str] = None,
            patience: float = 30.0, timeout: float = 300.0) -> Client:
    """A client of the service at `host`: unix://PATH or https://NAME:PORT; default: ESCROW_HOST, else the usual socket.

    token: over TLS, default ESCROW_TOKEN. ca: a file of certificates to trust beside the system's. patience: seconds
    for which a request is sent again while the service is away or says "try again". timeout: seconds for one answer.
    Nothing is sent yet.
    """
    return Client(aio.Client(SyncChannel(address_of(host, token, ca)), patience, timeout))


def _session(session: SessionLike) -> aio.SessionLike:
    return session._inner if isinstance(session, Session) else session


def _run(run: RunLike) -> aio.RunLike:
    return run.id if isinstance(run, Run) else run


def _runs(runs: Iterable[RunLike]) -> List[aio.RunLike]:
    return [_run(one) for one in runs]


class Client:
    """One service. It holds no connection; any number of threads may use it."""

    def __init__(self, inner: aio.Client) -> None:
        self._inner = inner

    # ---- Sessions.

    def session(self, repository: Optional[str] = None, *, path_prefix: Optional[PathLike] = None,
                branch: Optional[str] = None, mountpoint: Optional[PathLike] = None, message: Optional[str] = None,
                require_approval: bool = False, read_only: bool = False, **options: Any) -> Session:
        """Opens a session; leaving its `with` block commits, and rolls back after an exception.

        repository: may be left out where the service has one. path_prefix: the directory that is the session's root.
        mountpoint: where the service mounts it, below its mount_roots; without one files are read and written over the
        API. options: the other fields of Opening in openapi.yaml (labels, lease_ms, limits, policy, ...).
        """
        return Session(drive(self._inner.session(
            repository, path_prefix=path_prefix, branch=branch, mountpoint=mountpoint, message=message,
            require_approval=require_approval, read_only=read_only, **options)._open()))

    def attach(self, session: SessionLike) -> Session:
        """A session that is there already; leaving its `with` block commits or rolls back, too."""
        return Session(drive(self._inner.attach(_session(session))))

    def sessions(self, *, state: Optional[str] = None, repository: Optional[str] = None,
                 labels: Optional[Mapping[str, str]] = None, external_id: Optional[str] = None,
                 principal: Optional[str] = None) -> Iterator[SessionInfo]:
        """The sessions that the caller may see, oldest first."""
        return drive_all(self._inner.sessions(state=state, repository=repository, labels=labels,
                                              external_id=external_id, principal=principal))

    def status(self, session: SessionLike, with_changes: bool = False) -> SessionInfo:
        """with_changes: counts what a commit would change, which builds the session's tree."""
        return drive(self._inner.status(_session(session), with_changes))

    def changes(self, session: SessionLike) -> List[Change]:
        return drive(self._inner.changes(_session(session)))

    def diff(self, session: SessionLike, format: str = "patch",  # pylint: disable=redefined-builtin
             path: Optional[PathLike] = None, since: Optional[str] = None) -> bytes:
        """As git shows it: patch, stat or name_status. Of a session that awaits approval: its sealed result."""
        return drive(self._inner.diff(_session(session), format, path, since))

    # ---- Review.

    def waiting(self, repository: Optional[str] = None) -> List[SessionInfo]:
        """The sessions whose sealed results await approval, oldest first."""
        return drive(self._inner.waiting(repository))

    def approve(self, session: SessionLike, result: Optional[str] = None, *, comment: Optional[str] = None,
                message: Optional[str] = None) -> SessionInfo:
        """Commits exactly `result`; default: the one that the SessionInfo has. Where the branch moved: ResultMoved."""
        return drive(self._inner.approve(_session(session), result, comment=comment, message=message))

    def reject(self, session: SessionLike, comment: Optional[str] = None) -> SessionInfo:
        """Rolls a sealed result back."""
        return drive(self._inner.reject(_session(session), comment))

    def audit(self, repository: Optional[str] = None, *, session: Optional[str] = None, branch: Optional[str] = None,
              states: Iterable[str] = (), since_ms: Optional[int] = None) -> Iterator[AuditEntry]:
        """What became of the sessions, oldest first; also of those that left no commit."""
        return drive_all(self._inner.audit(repository, session=session, branch=branch, states=states,
                                           since_ms=since_ms))

    # ---- Repositories.

    def repositories(self) -> List[RepositoryInfo]:
        return drive(self._inner.repositories())

    def register(self, name: str, path: Optional[PathLike] = None, *, create: bool = False,
                 branch: Optional[str] = None) -> RepositoryInfo:
        """For operators. With `create` it is made when it is missing."""
        return drive(self._inner.register(name, path, create=create, branch=branch))

    def branches(self, repository: Optional[str] = None) -> Dict[str, str]:
        """The head of each branch."""
        return drive(self._inner.branches(repository))

    def log(self, repository: Optional[str] = None, *, branch: Optional[str] = None,
            path: Optional[PathLike] = None) -> Iterator[CommitInfo]:
        """Commits with their audit records, newest first."""
        return drive_all(self._inner.log(repository, branch=branch, path=path))

    # ---- Runs.

    def spawn(self, repository: Optional[str], command: Sequence[str], *, env: Optional[Mapping[str, str]] = None,
              timeout_ms: Optional[int] = None, memory_bytes: Optional[int] = None,
              path_prefix: Optional[PathLike] = None, branch: Optional[str] = None, message: Optional[str] = None,
              require_approval: bool = False, **options: Any) -> Run:
        """Starts a command, confined, in a session of its own that its exit status decides: 0 commits, or seals for a
        reviewer; everything else rolls back. It goes on without this client.

        repository None: the only one. options: the other fields of Ordering in openapi.yaml (labels, limits, policy,
        network, max_processes, ...).
        """
        return Run(self, drive(self._inner.spawn(
            repository, command, env=env, timeout_ms=timeout_ms, memory_bytes=memory_bytes, path_prefix=path_prefix,
            branch=branch, message=message, require_approval=require_approval, **options)).info)

    def runs(self, *, state: Optional[str] = None, repository: Optional[str] = None,
             labels: Optional[Mapping[str, str]] = None, external_id: Optional[str] = None,
             principal: Optional[str] = None) -> Iterator[RunInfo]:
        """The runs that the caller may see, oldest first."""
        return drive_all(self._inner.runs(state=state, repository=repository, labels=labels, external_id=external_id,
                                          principal=principal))

    def run(self, run: RunLike) -> RunInfo:
        return drive(self._inner.run(_run(run)))

    def wait(self, run: RunLike, timeout: Optional[float] = None) -> RunInfo:
        """The run when it has ended. Raises WaitTimeout; the run goes on then."""
        return drive(self._inner.wait(_run(run), timeout))

    def wait_all(self, runs: Iterable[RunLike], timeout: Optional[float] = None) -> List[RunInfo]:
        """The runs when all of them have ended, in the same order."""
        return drive(self._inner.wait_all(_runs(runs), timeout))

    def wait_any(self, runs: Iterable[RunLike], timeout: Optional[float] = None) -> List[RunInfo]:
        """The runs (at most 256) when one of them at least has ended, in the same order."""
        return drive(self._inner.wait_any(_runs(runs), timeout))

    @overload
    def gather(self, runs: Iterable[RunLike], *, timeout: Optional[float] = ...,
               return_exceptions: Literal[False] = ...) -> List[RunResult]: ...

    @overload
    def gather(self, runs: Iterable[RunLike], *, timeout: Optional[float] = ...,
               return_exceptions: Literal[True]) -> List[Union[RunResult, aio.Failure]]: ...

    def gather(self, runs: Iterable[RunLike], *, timeout: Optional[float] = None,
               return_exceptions: bool = False) -> Any:
        """Waits for all, and returns their results with all output. The first run that was not committed raises
        RunFailed or Conflict, when all have ended; with return_exceptions these are in the list.
        """
        inner = self._inner
        if return_exceptions:
            return drive(inner.gather(_runs(runs), timeout=timeout, return_exceptions=True))
        return drive(inner.gather(_runs(runs), timeout=timeout))

    def result(self, run: RunLike) -> RunResult:
        """Of a run that has ended: how, and all of its output that was kept."""
        return drive(self._inner.result(_run(run)))

    def is_alive(self, run: RunLike) -> bool:
        """False for a run that has ended, or that was freed."""
        return drive(self._inner.is_alive(_run(run)))

    def output(self, run: RunLike, stream: str = "stdout") -> bytes:
        """What the command has written so far to stdout or stderr, up to the service's limit."""
        return drive(self._inner.output(_run(run), stream))

    def follow(self, run: RunLike, stream: str = "stdout") -> Iterator[bytes]:
        """The output as it comes, until the run has ended; also over a restart of the service."""
        return drive_all(self._inner.follow(_run(run), stream))

    def cancel(self, run: RunLike) -> RunInfo:
        """SIGTERM, then SIGKILL; the run is rolled back whatever it exits with."""
        return drive(self._inner.cancel(_run(run)))

    def free(self, run: RunLike) -> None:
        """Drops the output of a run that has ended. The record of its session stays."""
        drive(self._inner.free(_run(run)))

    def sandbox_spawn(self, code: Union[str, Sequence[str]], timeout_ms: Optional[int] = None,
                      memory_bytes: Optional[int] = None, *, repository: Optional[str] = None,
                      **options: Any) -> Run:
        """spawn() of Python source (`python3 -c`), or of a command."""
        return Run(self, drive(self._inner.sandbox_spawn(code, timeout_ms, memory_bytes, repository=repository,
                                                         **options)).info)

    sandbox_await = wait
    sandbox_await_all = wait_all
    sandbox_gather = gather
    sandbox_is_alive = is_alive
    sandbox_free = free
    sandbox_get_output = output


class Session:
    """An open session. Paths of files are as a program in its mount has them: from path_prefix."""

    def __init__(self, inner: aio.Session) -> None:
        self._inner = inner

    @property
    def info(self) -> SessionInfo:
        """As of the last answer."""
        return self._inner.info

    @property
    def id(self) -> str:
        return self._inner.info.id

    @property
    def state(self) -> str:
        return self._inner.info.state

    @property
    def mountpoint(self) -> Optional[str]:
        return self._inner.info.mountpoint

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        drive(self._inner.__aexit__(kind, error, trace))

    def read(self, path: PathLike, *, base: bool = False) -> bytes:
        """A file's content, of a symbolic link its target; with `base` as it was before the session."""
        return drive(self._inner.read(path, base=base))

    def read_text(self, path: PathLike, encoding: str = "utf-8", *, base: bool = False) -> str:
        return drive(self._inner.read_text(path, encoding, base=base))

    def write(self, path: PathLike, content: aio.Content, *, executable: Optional[bool] = None) -> None:
        """Writes the whole file; missing directories are made. It is on the service's disk on return."""
        drive(self._inner.write(path, content, executable=executable))

    def write_files(self, path: str, files: VirtualFileSystem) -> List[str]:
        """Copies every file of `files` below `path`; they are files of the session, and its commit has them."""
        return drive(self._inner.write_files(path, files))

    def delete(self, path: PathLike) -> None:
        """A file, a link or an empty directory."""
        drive(self._inner.delete(path))

    def list(self, path: PathLike = "", *, recursive: bool = False) -> List[Entry]:
        """The names in a directory, in the order of their bytes; with `recursive` also what is below, depth first."""
        return drive(self._inner.list(path, recursive=recursive))

    def changes(self) -> List[Change]:
        """What a commit would change; paths from the repository's root."""
        return drive(self._inner.changes())

    def diff(self, format: str = "patch", path: Optional[PathLike] = None,  # pylint: disable=W0622
             since: Optional[str] = None) -> bytes:
        """The same as git shows it: patch, stat or name_status; `path` is from the repository's root, `since` a
        savepoint.
        """
        return drive(self._inner.diff(format, path, since))

    def status(self, with_changes: bool = False) -> SessionInfo:
        return drive(self._inner.status(with_changes))

    def mount(self, mountpoint: PathLike, *, show_git: Sequence[str] = (),
              mount_options: Optional[Sequence[str]] = None) -> str:
        """Mounts it below one of the service's mount_roots; shows the .git of others at `show_git`, which git obeys."""
        return drive(self._inner.mount(mountpoint, show_git=show_git, mount_options=mount_options))

    def unmount(self) -> None:
        drive(self._inner.unmount())

    def renew(self, lease_ms: Optional[int] = None) -> SessionInfo:
        """Of a session with lease_ms: not renewed in time it is rolled back."""
        return drive(self._inner.renew(lease_ms))

    def update(self) -> List[str]:
        """Brings it onto the branch's new head. Returns the paths that both changed: then it stays as it was."""
        return drive(self._inner.update())

    def unresolved(self) -> List[str]:
        """The paths that both it and others changed, which keep it from being committed."""
        return drive(self._inner.unresolved())

    def resolve(self, *paths: PathLike, how: str) -> List[str]:
        """Settles such paths, or all below a directory: "mine" (the session's side stays), "theirs" (the branch's
        comes into it) or "merged" (what is in the session now is the merge). Returns those that are left."""
        return drive(self._inner.resolve(*paths, how=how))

    def resume(self) -> "Session":
        """Of one whose commit met a conflict, or that failed and kept its result: a new session with what it did, on
        the branch's new head."""
        return Session(drive(self._inner.resume()))

    def savepoints(self) -> List[str]:
        """The names of its savepoints, the oldest first."""
        return drive(self._inner.savepoints())

    def savepoint(self, name: str) -> List[str]:
        """Keeps what it has now, mounted or not; nothing is copied. Returns all names."""
        return drive(self._inner.savepoint(name))

    def restore(self, name: str) -> str:
        """Goes back to a savepoint; returns the name of that which it makes first. Changed caches begin anew."""
        return drive(self._inner.restore(name))

    def drop_savepoint(self, name: str) -> None:
        drive(self._inner.drop_savepoint(name))

    def discard(self, *paths: PathLike) -> None:
        """Takes paths (from the repository's root) back to what the base has."""
        drive(self._inner.discard(*paths))

    def finish(self, *, exit_code: Optional[int] = None, signal: Optional[int] = None, cancelled: bool = False,
               message: Optional[str] = None) -> SessionInfo:
        """How the work ended: exit_code 0 commits, or seals for a reviewer; everything else rolls back. A conflict ends
        the session, and raises Conflict.
        """
        return drive(self._inner.finish(exit_code=exit_code, signal=signal, cancelled=cancelled, message=message))

    def commit(self, message: Optional[str] = None) -> SessionInfo:
        """Commits now. A conflict raises Conflict and leaves the session open."""
        return drive(self._inner.commit(message))

    def rollback(self, keep_result: bool = False) -> SessionInfo:
        return drive(self._inner.rollback(keep_result))

    def wait(self, timeout: Optional[float] = None, states: str = aio.ENDED) -> SessionInfo:
        """The session when it has ended, for example when a reviewer has decided. Raises WaitTimeout."""
        return drive(self._inner.wait(timeout, states))


class Run:
    """A run of a command. `info` is as of the last answer."""

    def __init__(self, client: Client, info: RunInfo) -> None:
        self._client = client
        self.info = info

    @property
    def id(self) -> str:
        return self.info.id

    def wait(self, timeout: Optional[float] = None) -> RunInfo:
        self.info = self._client.wait(self, timeout)
        return self.info

    def result(self, timeout: Optional[float] = None) -> RunResult:
        """Waits; raises RunFailed or Conflict where it was not committed."""
        result = self._client.result(self.wait(timeout))
        failure = aio.failure_of(result)
        if failure is not None:
            raise failure
        return result

    def is_alive(self) -> bool:
        return self._client.is_alive(self)

    def output(self, stream: str = "stdout") -> bytes:
        return self._client.output(self, stream)

    def follow(self, stream: str = "stdout") -> Iterator[bytes]:
        return self._client.follow(self, stream)

    def cancel(self) -> RunInfo:
        self.info = self._client.cancel(self)
        return self.info

    def free(self) -> None:
        self._client.free(self)
