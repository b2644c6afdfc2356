"""Sends a message with a generated client: ADDRESS and KEY are in the environment. Prints its id."""

import json
import os

from bellwire_client import AuthenticatedClient
from bellwire_client.api.messages import messages_send, messages_show
from bellwire_client.models import MessageRequest

client = AuthenticatedClient(base_url=os.environ["ADDRESS"], token=os.environ["KEY"])
body = MessageRequest.from_dict({"to": {"topic": "news"}, "tier": "transactional", "content": {"title": "Hello"}})
sent = messages_send.sync("shop", client=client, body=body)
shown = messages_show.sync("shop", sent.id, client=client)
print(json.dumps({"id": sent.id, "targeted": shown.counts.targeted}))
