"""The demo shop's backend. What has to do with notifications is in notifications.py; here is a small server around it."""

import json
import secrets
from collections import OrderedDict
from pathlib import Path

import httpx
from bellwire import ProblemError, WebhookVerificationError
from flask import Flask, abort, jsonify, request, send_from_directory

from notifications import env, send_code, user_token, verified

SEEN_MAX = 10_000

site = Path(env("SITE", "../plain-site")).resolve()
accounts: dict[str, str] = json.loads(env("ACCOUNTS"))
# Your own shop has a store for each of these three.
sessions: dict[str, str] = {}
codes: dict[str, str] = {}
seen: OrderedDict[str, None] = OrderedDict()

app = Flask(__name__, static_folder=None)
app.config["MAX_CONTENT_LENGTH"] = 512 * 1024  # octets; webhooks send 256 KiB at most, unless a single event is longer


def logged_in() -> str:
    user = sessions.get(request.cookies.get("session", ""))
    return user or abort(401)


def identity(user: str) -> dict[str, str]:
    return {"userId": user, "userToken": user_token(user)}


@app.post("/api/login")
def login():
    given = request.get_json()
    user, password = given.get("user"), given.get("password")
    # A demo's check: keep hashes of passwords, and compare them in constant time.
    if not password or accounts.get(user) != password:
        abort(401)
    session = secrets.token_hex(16)
    sessions[session] = user
    response = jsonify(identity(user))
    response.set_cookie("session", session, httponly=True, samesite="Strict")
    return response


@app.post("/api/logout")
def logout():
    sessions.pop(request.cookies.get("session", ""), None)
    return "", 204


@app.get("/api/me")
def me():
    return identity(logged_in())


@app.post("/api/code")
def code():
    user = logged_in()
    codes[user] = f"{secrets.randbelow(1_000_000):06}"
    try:
        return {"message": send_code(user, codes[user])}, 202
    except (ProblemError, httpx.HTTPError) as failure:
        app.logger.error("the code was not sent: %s", failure)
        abort(502)


@app.post("/webhooks/bellwire")
def hear():
    try:
        # The signature is over the octets as they came: verify first, parse afterwards.
        events = verified(request.get_data(), request.headers)
    except WebhookVerificationError:
        abort(400)
    # The same request may come again, under the same id.
    request_id = request.headers["webhook-id"]
    if request_id not in seen:
        for event in events:
            print("received", event["type"], event["data"].get("user_id") or "", flush=True)
        seen[request_id] = None
        if len(seen) > SEEN_MAX:
            seen.popitem(last=False)
    return "", 204


@app.get("/", defaults={"path": "index.html"})
@app.get("/<path:path>")
def file(path: str):
    return send_from_directory(site, path, max_age=0)
