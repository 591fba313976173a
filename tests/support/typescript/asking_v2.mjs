import { McpServer, inputRequired, acceptedContent, createMcpHandler } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { createServer } from "node:http";
import * as z from "zod";
const form = z.object({ people: z.number().int(), day: z.enum(["Saturday", "Sunday"]) });
function make() {
  const server = new McpServer({ name: "two", version: "1" }, { capabilities: {} });
  server.registerTool("book", { description: "Book" }, async (ctx) => {
    const answer = await ctx.mcpReq.elicitInput({ message: "When do you come?", requestedSchema: { type: "object", properties: { people: { type: "integer" }, day: { type: "string", enum: ["Saturday", "Sunday"] } }, required: ["people", "day"] } });
    return { content: [{ type: "text", text: `${answer.action} ${JSON.stringify(answer.content)}` }] };
  });
  server.registerTool("book_anew", { description: "Book" }, async (ctx) => {
    const given = acceptedContent(ctx.mcpReq.inputResponses, "table", form);
    if (given === undefined) return inputRequired({ inputRequests: { table: inputRequired.elicit({ message: "When do you come?", requestedSchema: form }) } });
    return { content: [{ type: "text", text: `accept ${JSON.stringify(given)}` }] };
  });
  return server;
}
if (process.argv[2] === "http") {
  const handler = createMcpHandler(make);
  const http = createServer(async (req, res) => {
    const parts = []; for await (const p of req) parts.push(p);
    const answer = await handler.fetch(new Request(`http://127.0.0.1${req.url}`, { method: req.method, headers: req.headers, body: parts.length ? Buffer.concat(parts) : undefined }));
    res.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body) for await (const p of answer.body) res.write(p);
    res.end();
  });
  http.listen(0, "127.0.0.1", () => console.log(http.address().port));
} else serveStdio(make, { legacy: process.argv[2] === "new" ? "reject" : "serve" });
