"""The exceptions: one class for each code of the service's problem documents, and the few that are the client's own."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple, Type

if TYPE_CHECKING:
    from ._documents import RunResult, SessionInfo


class EscrowError(Exception):
    """The base of every exception of this package."""


class Unreachable(EscrowError, ConnectionError):
    """The service did not answer, also not when it was asked again."""


class WaitTimeout(EscrowError, TimeoutError):
    """What was waited for did not happen in time. It goes on."""


class CommitFailed(EscrowError):
    """The session ended without a commit, for another reason than a conflict. `session` says which."""

    def __init__(self, session: SessionInfo) -> None:
        super().__init__(f"session {session.id} was not committed ({session.reason}): {session.last_error}")
        self.session = session


class RunFailed(EscrowError):
    """A run was rolled back. `result` has its exit status, its output and its session."""

    def __init__(self, result: RunResult) -> None:
        how = f"exit status {result.exit_code}" if result.exit_code is not None else "no exit status"
        last = result.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        super().__init__(f"run {result.run} was rolled back ({result.reason}, {how})" + "".join(f": {x}" for x in last))
        self.result = result


class Problem(EscrowError):
    """What the service refused or failed at (RFC 9457). A code that this client does not know is a plain Problem."""

    code = ""
    # Whether the client may send the request again by itself, and for how many seconds at most; None: its patience.
    _repeats = False
    _repeats_for: Optional[float] = None

    def __init__(self, document: Mapping[str, Any]) -> None:
        super().__init__(str(document.get("detail") or document.get("title") or "the service refused the request"))
        self.document = dict(document)
        self.code = str(document.get("code", ""))
        self.status = int(document.get("status", 0))
        self.detail = str(document.get("detail", ""))
        self.retryable = bool(document.get("retryable", False))
        self.exit_code = int(document.get("exit_code", 1))
        self.field: Optional[str] = document.get("field")
        self.state: Optional[str] = document.get("state")
        self.reason: Optional[str] = document.get("reason")


class MalformedRequest(Problem):
    """400: the request is none of HTTP."""
    code = "malformed_request"


class MalformedJson(Problem):
    """400: the body is not one JSON object."""
    code = "malformed_json"


class UnknownField(Problem):
    """400: the service does not know `field`."""
    code = "unknown_field"


class InvalidValue(Problem):
    """400: `field` has an impossible value."""
    code = "invalid_value"


class BadRequest(Problem):
    """400: the request cannot be understood."""
    code = "bad_request"


class Unauthenticated(Problem):
    """401: over TLS, the token is missing or wrong."""
    code = "unauthenticated"


class Forbidden(Problem):
    """403: not allowed to this principal. Of a policy: `path`, `action` and the `rule` that decided."""
    code = "forbidden"

    def __init__(self, document: Mapping[str, Any]) -> None:
        super().__init__(document)
        self.path: Optional[str] = document.get("path")
        self.action: Optional[str] = document.get("action")
        self.rule: Optional[str] = document.get("rule")


class NotFound(Problem):
    """404: there is no such file, run or route."""
    code = "not_found"


class NoRepository(Problem):
    """404: no repository is registered by this name."""
    code = "no_repository"


class NoBranch(Problem):
    """404: the repository has no such branch."""
    code = "no_branch"


class NoSession(Problem):
    """404: there is no such session, or the caller may not see it."""
    code = "no_session"


class MethodNotAllowed(Problem):
    """405: the resource does not know this method."""
    code = "method_not_allowed"


class RequestTimeout(Problem):
    """408: the request came too slowly."""
    code = "request_timeout"
    _repeats = True


class Exists(Problem):
    """409: there is one already."""
    code = "exists"


class Conflict(Problem):
    """409: the session and the branch both changed `paths` (from the repository's root); nothing was committed.

    A session that ended in its `with` block is in `session`; its result stays in the repository as `result_ref`.
    """
    code = "conflict"

    def __init__(self, document: Mapping[str, Any], session: Optional[SessionInfo] = None) -> None:
        super().__init__(document)
        from ._documents import text_of  # pylint: disable=import-outside-toplevel,cyclic-import
        self.paths: List[str] = [text_of(one, "path") for one in document.get("conflicts", ())]
        self.sides: Dict[str, Tuple[str, str]] = {
            text_of(one, "path"): (one.get("ours", ""), one.get("theirs", "")) for one in document.get("conflicts", ())}
        self.session = session
        self.result_ref = f"refs/sessions/{session.id}" if session is not None else None


class ResultMoved(Problem):
    """409: the branch moved, so the sealed result has another id now: `result`. Look at it, then approve that one."""
    code = "result_moved"

    def __init__(self, document: Mapping[str, Any]) -> None:
        super().__init__(document)
        self.result = str(document.get("result", ""))


class SessionFinished(Problem):
    """409: the session has another outcome already, `state` and `reason`."""
    code = "session_finished"


class WrongState(Problem):
    """409: what was asked is not possible in this state."""
    code = "wrong_state"


class DataLost(Problem):
    """409: the disk did not take what programs stored, so the commit was refused."""
    code = "data_lost"


class AttachedElsewhere(Problem):
    """409: another process than the service hosts the session."""
    code = "attached_elsewhere"
    # After a restart the service needs a moment to find its hosts; what a run has, it keeps until its end.
    _repeats = True
    _repeats_for = 5.0


class Busy(Problem):
    """409: another request is under way on the session, or somebody uses its mount."""
    code = "busy"
    _repeats = True


class IdempotencyInFlight(Problem):
    """409: the service is still at work on the same request, sent before."""
    code = "idempotency_in_flight"
    _repeats = True


class BodyTooLarge(Problem):
    """413: the content is larger than max_content_bytes."""
    code = "body_too_large"


class TargetTooLong(Problem):
    """414: the path is too long."""
    code = "target_too_long"


class UnsupportedMediaType(Problem):
    """415: the body is of another type."""
    code = "unsupported_media_type"


class ExpectationFailed(Problem):
    """417: an Expect that the service does not know."""
    code = "expectation_failed"


class IdempotencyKeyReused(Problem):
    """422: the key was used for another request."""
    code = "idempotency_key_reused"


class ResultTooLarge(Problem):
    """422: the answer would be too large; ask for less."""
    code = "result_too_large"


class UnsupportedRepository(Problem):
    """422: the repository cannot be used."""
    code = "unsupported_repository"


class QuotaExceeded(Problem):
    """429: the caller has as many sessions or runs as it may have at once."""
    code = "quota_exceeded"


class HeaderTooLarge(Problem):
    """431: the header of the request is too large."""
    code = "header_too_large"


class Internal(Problem):
    """500: the service failed."""
    code = "internal"


class DamagedRepository(Problem):
    """500: the repository or its state is damaged."""
    code = "damaged_repository"


class NewerState(Problem):
    """500: a later version of Escrow has written the state."""
    code = "newer_state"


class NotImplementedByService(Problem):
    """501: the service does not know this part of HTTP."""
    code = "not_implemented"


class BranchMoved(Problem):
    """503: the branch moved too often while the session was committed."""
    code = "branch_moved"
    _repeats = True


class Unavailable(Problem):
    """503: not possible at the moment, for example while the service stops."""
    code = "unavailable"
    _repeats = True


class VersionNotSupported(Problem):
    """505: another version of HTTP."""
    code = "version_not_supported"


class NoSpace(Problem):
    """507: the disk is full, or the session has reached its limits. It is not sent again: that makes no room."""
    code = "no_space"


_ALL: Tuple[Type[Problem], ...] = (
    MalformedRequest, MalformedJson, UnknownField, InvalidValue, BadRequest, Unauthenticated, Forbidden, NotFound,
    NoRepository, NoBranch, NoSession, MethodNotAllowed, RequestTimeout, Exists, Conflict, ResultMoved, SessionFinished,
    WrongState, DataLost, AttachedElsewhere, Busy, IdempotencyInFlight, BodyTooLarge, TargetTooLong,
    UnsupportedMediaType, ExpectationFailed, IdempotencyKeyReused, ResultTooLarge, UnsupportedRepository,
    QuotaExceeded, HeaderTooLarge, Internal, DamagedRepository, NewerState, NotImplementedByService, BranchMoved,
    Unavailable, VersionNotSupported, NoSpace)
# By the code, in the order of openapi.yaml.
PROBLEMS: Dict[str, Type[Problem]] = {one.code: one for one in _ALL}


def problem_of(document: Mapping[str, Any]) -> Problem:
    return PROBLEMS.get(str(document.get("code")), Problem)(document)
