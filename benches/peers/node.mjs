// Sends pushes with npm's `web-push`, over connections that stay open: node node.mjs TASK CONCURRENCY COUNT
// Answers one line of JSON: CPU time and duration of the pushes alone.
import { readFileSync } from "node:fs";
import https from "node:https";
import webpush from "web-push";

const [task, concurrency, count] = process.argv.slice(2);
const { subscriptions, vapid, payload } = JSON.parse(readFileSync(task, "utf8"));
const agent = new https.Agent({ keepAlive: true, maxSockets: Number(concurrency) });
const vapidDetails = { subject: vapid.subject, publicKey: vapid.public, privateKey: vapid.private };
const options = { vapidDetails, agent, TTL: 86400, urgency: "low" };

async function send(count) {
  let next = 0;
  const worker = async () => {
    while (next < count) {
      const subscription = subscriptions[next++ % subscriptions.length];
      await webpush.sendNotification(subscription, payload, options); // rejects unless the answer is 2xx
    }
  };
  await Promise.all(Array.from({ length: Number(concurrency) }, worker));
}

await send(300); // connections open, code compiled
const [cpu, began] = [process.cpuUsage(), process.hrtime.bigint()];
await send(Number(count));
const [used, took] = [process.cpuUsage(cpu), process.hrtime.bigint() - began];
console.log(JSON.stringify({ cpu_s: (used.user + used.system) / 1e6, took_s: Number(took) / 1e9 }));
agent.destroy();
