"""Notifications of the shop: user tokens, one-time codes, and the events of a webhook."""

import os
import sys
from collections.abc import Mapping

from bellwire import WebhookEvent, create_client, expect, sign_user_hmac, verify_webhook
from bellwire.rest.api.messages import messages_send
from bellwire.rest.models import Accepted, MessageRequest


def env(name: str, fallback: str | None = None) -> str:
    """A setting from the environment, where secrets belong. Without it the program ends."""
    value = os.environ.get(name) or fallback
    if not value:
        sys.exit(f"{name} is missing: README.md describes its source")
    return value


client = create_client(env("PUSH_SERVER", "http://localhost:8787"), env("BELLWIRE_KEY"))
identity_secret = env("IDENTITY_SECRET")
webhook_secret = env("WEBHOOK_SECRET")


def user_token(user_id: str) -> str:
    """Proves a user's identity, for a browser in which the user has logged in. It is valid until the identity key is deleted."""
    return sign_user_hmac(user_id, identity_secret)


def send_code(user_id: str, code: str) -> str:
    """Sends a one-time code to all of a user's browsers, and returns the message's id. The client retries under one `Idempotency-Key`."""
    message = {
        "to": {"users": [user_id]},
        "tier": "transactional",  # never waits behind a campaign
        "ttl": 300,  # seconds; later the code is of no use
        "content": {"title": f"Your code is {code}", "body": "It is valid for five minutes."},
    }
    sent = messages_send.sync("shop", client=client, body=MessageRequest.from_dict(message))
    return expect(Accepted, sent).id


def verified(body: bytes, headers: Mapping[str, str]) -> list[WebhookEvent]:
    """Returns the events of a webhook request. Raises if it is not signed with our secret, or was signed over five minutes ago."""
    return verify_webhook(body, headers, webhook_secret)
