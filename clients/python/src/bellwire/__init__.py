"""Client for backends. `bellwire.rest` is generated from the description of the API; this module has what that cannot express."""

import asyncio
import base64
import hmac
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypedDict, TypeVar, cast
from urllib.parse import quote

import httpx

from .rest import AuthenticatedClient
from .rest.models import EventLine, FieldError

P = ParamSpec("P")
T = TypeVar("T", covariant=True)
RETRIED = (httpx.NetworkError, httpx.ProxyError, httpx.RemoteProtocolError, httpx.TimeoutException)
WebhookEvent = TypedDict("WebhookEvent", {"id": str, "type": str, "timestamp": str, "data": dict[str, Any]})


class ProblemError(Exception):
    """An error response (RFC 9457). `code` is stable; it is `unexpected_response` if something between client and server answered."""
    def __init__(self, response: httpx.Response) -> None:
        problem: dict[str, Any] = response.json() if "problem+json" in response.headers.get("Content-Type", "") else {}
        self.status, self.retry_after = response.status_code, str(response.headers.get("Retry-After", ""))
        self.code: str = problem.get("code", "unexpected_response")
        self.title: str = problem.get("title", response.reason_phrase)
        self.detail: str = problem.get("detail", response.text[:200])
        self.errors = [FieldError.from_dict(error) for error in problem.get("errors", [])]
        self.request_id: str | None = problem.get("request_id")
        super().__init__(f"{self.status} {self.code}: {self.detail}")


class WebhookVerificationError(Exception):
    """The request is not signed with this secret, or its signature is too old."""


class _Call:
    def __init__(self, request: httpx.Request, attempts: int, seconds: float) -> None:
        if request.method == "POST":
            request.headers.setdefault("Idempotency-Key", secrets.token_hex(16))
        self.attempts, self.deadline, self.attempt = attempts, time.monotonic() + seconds, 0

    def delay(self, failure: Exception) -> float:
        """Returns the seconds until the next attempt, or raises the failure."""
        self.attempt += 1
        status, after = (failure.status, failure.retry_after) if isinstance(failure, ProblemError) else (0, "")
        delay = float(after) if after.isdecimal() else secrets.SystemRandom().random() * min(8.0, 0.25 * 2**self.attempt)
        is_transient = status in (0, 429) or status >= 500 or (status == 409 and after != "")  # 409: the first attempt has not finished
        if not is_transient or self.attempt >= self.attempts or time.monotonic() + delay >= self.deadline:
            raise failure
        return delay


class _Client(httpx.Client):
    limits = (4, 30.0)
    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        call = _Call(request, *self.limits)
        while True:
            try:
                if (response := super().send(request, **options)).is_success:
                    return response
                response.read()
                raise ProblemError(response)
            except (*RETRIED, ProblemError) as error:
                time.sleep(call.delay(error))


class _AsyncClient(httpx.AsyncClient):
    limits = (4, 30.0)
    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        call = _Call(request, *self.limits)
        while True:
            try:
                if (response := await super().send(request, **options)).is_success:
                    return response
                await response.aread()
                raise ProblemError(response)
            except (*RETRIED, ProblemError) as error:
                await asyncio.sleep(call.delay(error))


def create_client(url: str, key: str, *, attempts: int = 4, seconds: float = 30, timeout: float = 10) -> AuthenticatedClient:
    """Creates a client, which retries after network errors, 429 and 5xx. `timeout` is httpx's for each request, `seconds` limits all retries."""
    options: dict[str, Any] = {"base_url": url, "headers": {"Authorization": f"Bearer {key}"}, "timeout": timeout}
    client, async_client = _Client(**options), _AsyncClient(**options)
    client.limits = async_client.limits = (attempts, seconds)
    return AuthenticatedClient(url, token=key).set_httpx_client(client).set_async_httpx_client(async_client)


def expect(kind: type[T], result: object) -> T:
    """Narrows the result of a call to the expected type: `expect(Accepted, messages_send.sync(…))`."""
    if not isinstance(result, kind):
        raise TypeError(f"expected {kind.__name__}, not {result!r}")
    return result


class Page(Protocol[T]):
    @property
    def data(self) -> Sequence[T]: ...
    @property
    def iterator(self) -> object: ...


def paginate(list_page: Callable[P, Page[T] | None], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
    """Returns all rows of a list: `paginate(messages_list.sync, "shop", client=client)`."""
    page = list_page(*args, **kwargs)
    while page:
        yield from page.data
        kwargs["iterator"] = page.iterator
        page = list_page(*args, **kwargs) if page.iterator else None


def stream_events(client: AuthenticatedClient, app: str, after: str = "0") -> Iterator[EventLine]:
    """Reads the events after a cursor line by line. `cursor` of the last event continues the stream; "0" begins with the oldest event."""
    with client.get_httpx_client().stream("GET", f"/v1/apps/{quote(app, safe='')}/events", params={"after": after}) as response:
        rest = b""
        for chunk in response.iter_bytes():
            *lines, rest = (rest + chunk).split(b"\n")  # `iter_lines` also splits at U+2028, which JSON contains unescaped
            yield from (EventLine.from_dict(json.loads(line)) for line in lines)


def sign_user_token(user_id: str, secret: str, *, expires_in: int = 3600, app: str | None = None) -> str:
    """Signs a user token, a JWT with HS256. It is valid for `expires_in` seconds: one hour by default, at most 7 days."""
    claims = {"sub": user_id, "exp": int(time.time()) + expires_in, **({"aud": app} if app else {})}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "HS256", "typ": "JWT"}, claims)]
    signature = hmac.digest(secret.encode(), b".".join(parts), "sha256")
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def sign_user_hmac(user_id: str, secret: str) -> str:
    """Signs a user token with an identity key of the form `hmac`. It is valid until that key is deleted."""
    return hmac.digest(secret.encode(), user_id.encode(), "sha256").hex()


def verify_webhook(body: bytes, headers: Mapping[str, str], secret: str, tolerance: float = 300) -> list[WebhookEvent]:
    """Verifies a webhook request and returns its events. `body` is the raw body, `tolerance` the maximum age of the signature in seconds."""
    given = {name.lower(): value for name, value in headers.items()}
    request_id, timestamp = given.get("webhook-id", ""), given.get("webhook-timestamp", "")
    if not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > tolerance:
        raise WebhookVerificationError("webhook-timestamp is missing, too old or too new")
    if not (key := base64.b64decode(secret.removeprefix("whsec_"))):
        raise WebhookVerificationError("the secret is empty")
    expected = b"v1," + base64.b64encode(hmac.digest(key, f"{request_id}.{timestamp}.".encode() + body, "sha256"))
    if not any(hmac.compare_digest(one.encode(), expected) for one in given.get("webhook-signature", "").split(" ")):
        raise WebhookVerificationError("no signature in webhook-signature matches")
    return cast(list[WebhookEvent], json.loads(body))
