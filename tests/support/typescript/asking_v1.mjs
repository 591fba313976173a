// The TypeScript SDK 1.x: stdio, or HTTP with sessions on a port.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { createServer } from "node:http";
import { randomUUID } from "node:crypto";
function make() {
  const server = new McpServer({ name: "one", version: "1" }, { capabilities: {} });
  server.registerTool("book", { description: "Book" }, async () => {
    const answer = await server.server.elicitInput({ message: "When do you come?", requestedSchema: { type: "object", properties: { people: { type: "integer" }, day: { type: "string", enum: ["Saturday", "Sunday"] } }, required: ["people", "day"] } });
    return { content: [{ type: "text", text: `${answer.action} ${JSON.stringify(answer.content)}` }] };
  });
  return server;
}
if (process.argv[2] === "http") {
  const known = {};
  const http = createServer(async (req, res) => {
    const id = req.headers["mcp-session-id"];
    let transport = known[id];
    if (!transport) {
      if (id) { res.writeHead(400, {"content-type": "application/json"}); res.end(JSON.stringify({jsonrpc: "2.0", error: {code: -32000, message: "Bad Request: No valid session ID provided"}, id: null})); return; }
      transport = new StreamableHTTPServerTransport({ sessionIdGenerator: () => randomUUID(), onsessioninitialized: (s) => { known[s] = transport; } });
      await make().connect(transport);
    }
    await transport.handleRequest(req, res);
  });
  http.listen(0, "127.0.0.1", () => console.log(http.address().port));
} else await make().connect(new StdioServerTransport());
