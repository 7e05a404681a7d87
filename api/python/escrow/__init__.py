"""Escrow's client for Python: transactional sessions over git repositories, and runs in them, from a program.

    import escrow

    with escrow.connect().session("data", path_prefix="models") as s:
        s.write("latest.txt", "42")

The block commits when it is left, and rolls back when an exception leaves it. escrow.aio is the same for asyncio.
"""
from . import aio
from ._client import Client, Run, Session, connect
from ._documents import (
    AuditEntry, Change, CommitInfo, Counts, Entry, FileVersion, RepositoryInfo, RunInfo, RunResult, SessionInfo,
    Transition,
)
from ._errors import (
    PROBLEMS,
    AttachedElsewhere, BadRequest, BodyTooLarge, BranchMoved, Busy, CommitFailed, Conflict, DamagedRepository,
    DataLost, EscrowError, Exists, ExpectationFailed, Forbidden, HeaderTooLarge, IdempotencyInFlight,
    IdempotencyKeyReused, Internal, InvalidValue, MalformedJson, MalformedRequest, MethodNotAllowed, NewerState,
    NoBranch, NoRepository, NoSession, NoSpace, NotFound, NotImplementedByService, Problem, QuotaExceeded,
    RequestTimeout, ResultMoved, ResultTooLarge, RunFailed, SessionFinished, TargetTooLong, Unauthenticated,
    Unavailable, UnknownField, Unreachable, UnsupportedMediaType, UnsupportedRepository, VersionNotSupported,
    WaitTimeout, WrongState,
)
from ._virtual_files import MemoryFS, VirtualEntry, VirtualFileSystem

__version__ = "0.1.0"
__all__ = [
    "PROBLEMS", "Client", "MemoryFS", "Run", "Session", "VirtualEntry", "VirtualFileSystem", "aio", "connect",
    "AuditEntry", "Change", "CommitInfo", "Counts", "Entry", "FileVersion", "RepositoryInfo", "RunInfo", "RunResult",
    "SessionInfo", "Transition", "AttachedElsewhere", "BadRequest", "BodyTooLarge", "BranchMoved", "Busy",
    "CommitFailed", "Conflict", "DamagedRepository", "DataLost", "EscrowError", "Exists", "ExpectationFailed",
    "Forbidden", "HeaderTooLarge", "IdempotencyInFlight", "IdempotencyKeyReused", "Internal", "InvalidValue",
    "MalformedJson", "MalformedRequest", "MethodNotAllowed", "NewerState", "NoBranch", "NoRepository", "NoSession",
    "NoSpace", "NotFound", "NotImplementedByService", "Problem", "QuotaExceeded", "RequestTimeout", "ResultMoved",
    "ResultTooLarge", "RunFailed", "SessionFinished", "TargetTooLong", "Unauthenticated", "Unavailable",
    "UnknownField", "Unreachable", "UnsupportedMediaType", "UnsupportedRepository", "VersionNotSupported",
    "WaitTimeout", "WrongState",
]
