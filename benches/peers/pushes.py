"""Sends pushes with PyPI's `pywebpush`, over connections that stay open: pushes.py threads|async TASK CONCURRENCY COUNT

Answers one line of JSON: CPU time and duration of the pushes alone.
"""

import asyncio
import itertools
import json
import ssl
import sys
import threading
import time

import aiohttp
import requests
from py_vapid import Vapid
from pywebpush import webpush, webpush_async

mode, task, concurrency, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with open(task) as file:
    task = json.load(file)
key = Vapid.from_string(task["vapid"]["private"])


def arguments(n):
    subscriptions = task["subscriptions"]
    return dict(
        subscription_info=subscriptions[n % len(subscriptions)],
        data=task["payload"],
        vapid_private_key=key,
        vapid_claims={"sub": task["vapid"]["subject"]},
        ttl=86400,
        headers={"urgency": "low"},
    )


def stopwatch():
    """Begins to measure; what it returns says how much it was."""
    cpu, began = time.process_time(), time.perf_counter()
    return lambda: print(json.dumps({"cpu_s": time.process_time() - cpu, "took_s": time.perf_counter() - began}))


def by_threads():
    sessions = [requests.Session() for _ in range(concurrency)]
    failures = []

    def send(count):
        numbers = itertools.count()

        def work(session):
            try:
                while (n := next(numbers)) < count:
                    webpush(requests_session=session, **arguments(n))  # raises unless the answer is 2xx
            except Exception as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(session,)) for session in sessions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    send(300)  # connections open
    stop = stopwatch()
    send(count)
    stop()


async def by_tasks():
    connector = aiohttp.TCPConnector(limit=concurrency, ssl=ssl.create_default_context(cafile=task["ca"]))
    async with aiohttp.ClientSession(connector=connector) as session:

        async def send(count):
            numbers = itertools.count()

            async def work():
                while (n := next(numbers)) < count:
                    answer = await webpush_async(aiohttp_session=session, **arguments(n))
                    await answer.read()  # gives the connection back
                    assert answer.status == 201, answer.status

            await asyncio.gather(*(work() for _ in range(concurrency)))

        await send(300)  # connections open
        stop = stopwatch()
        await send(count)
        stop()


if mode == "threads":
    by_threads()
else:
    asyncio.run(by_tasks())
