"""What a backend does with Bellwire: says who somebody is, sends, and hears what became of it."""

import hashlib
import hmac
import os
import sys
import time
import uuid
from collections.abc import Mapping

import httpx
from standardwebhooks import Webhook, WebhookVerificationError

APP = "shop"
TRIES = 3


def env(name: str, fallback: str | None = None) -> str:
    """A setting from the environment, where secrets belong. Without it the program ends."""
    value = os.environ.get(name) or fallback
    if not value:
        sys.exit(f"{name} is missing: README.md says where it comes from")
    return value


client = httpx.Client(
    base_url=env("PUSH_SERVER", "http://localhost:8787"),
    headers={"Authorization": f"Bearer {env('BELLWIRE_KEY')}"},
    timeout=10,
)
identity_secret = env("IDENTITY_SECRET")
webhook = Webhook(env("WEBHOOK_SECRET"))

Forged = WebhookVerificationError


class NotSent(Exception):
    """The server did not take a message."""


def user_token(user_id: str) -> str:
    """Proof that somebody is that user, for a browser in which they have logged in. It counts until the identity key is deleted."""
    return hmac.new(identity_secret.encode(), user_id.encode(), hashlib.sha256).hexdigest()


def send_code(user_id: str, code: str) -> str:
    """Sends a one-time code to all of a user's browsers. Returns the message's id."""
    message = {
        "to": {"users": [user_id]},
        "tier": "transactional",  # never waits behind a campaign
        "ttl": 300,  # seconds; later the code is of no use
        "content": {"title": f"Your code is {code}", "body": "It is valid for five minutes."},
    }
    # A request whose answer got lost is made again under the same key, so that nobody gets two pushes.
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    failure = ""
    for attempt in range(TRIES):
        time.sleep(0.5 * attempt)
        try:
            response = client.post(f"/v1/apps/{APP}/messages", json=message, headers=headers)
        except httpx.TransportError as error:
            failure = str(error)
            continue
        if response.is_success:
            return response.json()["id"]
        failure = response.text
        # Whatever the request itself is blamed for will not be better the next time.
        if response.status_code < 500 and response.status_code != 429:
            break
    raise NotSent(failure)


def verified(body: bytes, headers: Mapping[str, str]) -> list[dict]:
    """The events of a webhook's request. Raises `Forged` if it was not signed with our secret within the last minutes."""
    return webhook.verify(body, {name.lower(): value for name, value in headers.items()})
