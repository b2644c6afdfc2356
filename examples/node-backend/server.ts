// The demo shop's backend. What has to do with notifications is in notifications.ts; here is a small server around it.
import { randomBytes, randomInt } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { extname, join } from "node:path";
import { sendCode, userToken, verified } from "./notifications.js";
import { env } from "./env.js";

const BODY_MAX = 512 * 1024; // octets; webhooks send 256 KiB at most, unless a single event is longer
const SEEN_MAX = 10_000;

const site = env("SITE", "../plain-site");
const accounts = new Map<string, string>(Object.entries(JSON.parse(env("ACCOUNTS"))));
// Your own shop has a store for each of these three.
const sessions = new Map<string, string>();
const codes = new Map<string, string>();
const seen = new Set<string>();

const answer = (response: ServerResponse, status: number, body?: object) =>
  response.writeHead(status, { "Content-Type": "application/json" }).end(body && JSON.stringify(body));

const session = (request: IncomingMessage) => /(?:^|; )session=([0-9a-f]+)/.exec(request.headers.cookie ?? "")?.[1] ?? "";

async function read(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let octets = 0;
  for await (const chunk of request) {
    octets += chunk.length;
    if (octets > BODY_MAX) throw new Error("the body is too large");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

async function login(request: IncomingMessage, response: ServerResponse) {
  const { user, password } = JSON.parse((await read(request)).toString());
  // A demo's check: keep hashes of passwords, and compare them in constant time.
  if (!password || accounts.get(user) !== password) return answer(response, 401);
  const id = randomBytes(16).toString("hex");
  sessions.set(id, user);
  response.setHeader("Set-Cookie", `session=${id}; HttpOnly; SameSite=Strict; Path=/`);
  answer(response, 200, { userId: user, userToken: userToken(user) });
}

async function hear(request: IncomingMessage, response: ServerResponse) {
  const body = await read(request);
  let events;
  try {
    // The signature is over the octets as they came: verify first, parse afterwards.
    events = verified(body, request.headers);
  } catch {
    return answer(response, 400);
  }
  // The same request may come again, under the same id.
  const id = String(request.headers["webhook-id"]);
  if (!seen.has(id)) {
    for (const event of events) console.log(`received ${event.type} ${event.data.user_id ?? ""}`);
    seen.add(id);
    if (seen.size > SEEN_MAX) seen.delete(seen.values().next().value!);
  }
  answer(response, 204);
}

async function file(path: string, response: ServerResponse) {
  const types: Record<string, string> = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".webmanifest": "application/manifest+json",
  };
  const type = types[extname(path)];
  const content = type && (await readFile(join(site, path)).catch(() => undefined));
  if (!content) return answer(response, 404);
  response.writeHead(200, { "Content-Type": type, "Cache-Control": "no-cache" }).end(content);
}

async function handle(request: IncomingMessage, response: ServerResponse) {
  const path = new URL(request.url ?? "/", "http://localhost").pathname; // without any `..`
  const user = sessions.get(session(request));
  switch (`${request.method} ${path}`) {
    case "POST /webhooks/bellwire":
      return hear(request, response);
    case "POST /api/login":
      return login(request, response);
    case "POST /api/logout":
      sessions.delete(session(request));
      return answer(response, 204);
    case "GET /api/me":
      return user ? answer(response, 200, { userId: user, userToken: userToken(user) }) : answer(response, 401);
    case "POST /api/code": {
      if (!user) return answer(response, 401);
      const code = String(randomInt(1_000_000)).padStart(6, "0");
      codes.set(user, code);
      return answer(response, 202, { message: await sendCode(user, code) });
    }
    default:
      return request.method === "GET" ? file(path === "/" ? "/index.html" : path, response) : answer(response, 405);
  }
}

const server = createServer((request, response) => {
  handle(request, response).catch((error: Error) => {
    console.error(error.message);
    if (!response.headersSent) answer(response, error instanceof SyntaxError ? 400 : 502);
  });
});
server.listen(Number(env("PORT", "3000")), "localhost", () => {
  const address = server.address();
  console.log(`listening on http://localhost:${typeof address === "object" && address?.port}`);
});
