// Uses Bellwire's tools as the official client of the Model Context Protocol does. In the environment: KEY, and either ADDRESS or BELLWIRE, the
// program, with ARGUMENTS. Prints what a client sees: tools, both answers of a send, and what is denied.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { ADDRESS, BELLWIRE, ARGUMENTS, KEY, BELLWIRE_SERVER } = process.env;
const headers = { Authorization: `Bearer ${KEY}` };
const transport = BELLWIRE
  ? new StdioClientTransport({ command: BELLWIRE, args: JSON.parse(ARGUMENTS), env: { BELLWIRE_SERVER, BELLWIRE_KEY: KEY } })
  : new StreamableHTTPClientTransport(new URL(`${ADDRESS}/mcp`), { requestInit: { headers } });
const client = new Client({ name: "test", version: "1" });
await client.connect(transport);

const call = async (name, args) => {
  const { content, isError } = await client.callTool({ name, arguments: args });
  const { text } = content[0];
  return isError ? { denied: text } : JSON.parse(text);
};
const { tools } = await client.listTools();
const message = { to: { topic: "news" }, content: { title: "Hello" } };
const counted = await call("messages_send", { app: "shop", body: message });
const sent = await call("messages_send", { body: message, expected_recipients: counted.recipients ?? 1 });
const denied = await call("topics_set", { topic: "sport", body: {} });
console.log(JSON.stringify({ server: client.getServerVersion(), tools: tools.map((tool) => tool.name), counted, sent, denied }));
await client.close();
