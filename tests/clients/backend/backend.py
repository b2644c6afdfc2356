"""Uses the client for backends as its README describes: ADDRESS, KEY and secrets are in the environment, webhook requests in webhooks.json."""

import asyncio
import json
import os
from pathlib import Path

from bellwire import ProblemError, WebhookVerificationError, create_client, expect, paginate, sign_user_hmac, sign_user_token, stream_events, verify_webhook
from bellwire.rest.api.apps import apps_show
from bellwire.rest.api.messages import messages_batch_send, messages_send, messages_show
from bellwire.rest.api.topics import topics_list, topics_set
from bellwire.rest.models import Accepted, MessageBatch, MessageBatchResponse, MessageCounts, MessageRequest, MessageResponse, TopicRequest

client = create_client(os.environ["ADDRESS"], os.environ["KEY"])
for name in ("a", "b", "c", "d", "e"):
    topics_set.sync("shop", name, client=client, body=TopicRequest())
topics: list[str] = [topic.name for topic in paginate(topics_list.sync, "shop", client=client, limit=2)]

body = MessageRequest.from_dict({"to": {"topic": "news"}, "tier": "transactional", "content": {"title": "Hello"}})
message: str = expect(Accepted, messages_send.sync("shop", client=client, body=body)).id
batch = MessageBatch.from_dict({"messages": [{"to": {"users": ["ann"]}, "content": {"title": "Code"}}]})
accepted: int = expect(MessageBatchResponse, messages_batch_send.sync("shop", client=client, body=batch)).accepted
shown = expect(MessageResponse, asyncio.run(messages_show.asyncio("shop", message, client=client)))
targeted: int = expect(MessageCounts, shown.counts).targeted

problem: object = None
try:
    messages_send.sync("shop", client=client, body=MessageRequest.from_dict({**body.to_dict(), "ttl": -1}))
except ProblemError as error:
    problem = {"status": error.status, "code": error.code, "title": error.title, "pointer": error.errors[0].pointer}

busy = ""
try:
    apps_show.sync("busy", client=client)
except ProblemError as error:
    busy = f"{error.status} {error.code}"

cursor = "0"
events: list[tuple[str, int]] = []
for event in stream_events(client, "shop", cursor):
    events.append((event.kind.value, event.count))
    cursor = event.cursor
later_events = [event.id for event in stream_events(client, "shop", cursor)]
refused_cursor = ""
try:
    next(stream_events(client, "shop", "x"))
except ProblemError as error:
    refused_cursor = f"{error.status} {error.code}"

webhooks: list[list[str] | str] = []
for request in json.loads(Path("webhooks.json").read_text()):
    try:
        received = verify_webhook(request["body"].encode(), request["headers"], os.environ["WEBHOOK_SECRET"])
        webhooks.append([event["type"] for event in received])
    except WebhookVerificationError:
        webhooks.append("refused")

tokens = [sign_user_token("ann", os.environ["IDENTITY_SECRET"], app="shop"), sign_user_hmac("bob", os.environ["HMAC_SECRET"])]
sent = {"accepted": accepted, "message": message, "targeted": targeted, "problem": problem, "busy": busy}
read = {"topics": topics, "events": events, "later_events": later_events, "refused_cursor": refused_cursor}
print(json.dumps({**sent, **read, "webhooks": webhooks, "tokens": tokens}))
